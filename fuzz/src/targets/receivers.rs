//! What receivers of events answer: Kafka's brokers, OTLP over HTTP and gRPC, Loki; and what a producer has kept.

use super::Target;
use weir_shipping::event::{Kind, Severity};
use weir_shipping::kafka::message::{self, Metadata, ProducerId, Versions};
use weir_shipping::kafka::scram::{Hash, Scram};
use weir_shipping::kafka::state::{Spread, State};
use weir_shipping::otlp::proto::{Field, Fields};
use weir_shipping::otlp::{answer, grpc};
use weir_shipping::record::{frame, framed_bytes, Records, EVENT_MAX_BYTES};
use weir_shipping::{loki, syslog};

/// What is shown of an answer is no longer, whatever it says.
const SHOWN_MAX_BYTES: usize = 4096;

/// What a power cut, or somebody who writes the folder, has left of a segment.
pub const QUEUE: Target = Target {
    name: "ship queue",
    seeds: &[b"", b"\x02\0\0\0\0\x06\0\0\x05\0\0\0\0\0\0\0", b"{}"],
    pieces: &[b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\x01\0", b"{}"],
    check: |bytes, random| {
        // As they are: nobody reads beyond their end, or stays where he is.
        let mut records = Records::new(bytes, random.below(bytes.len() + 2));
        let mut at = records.at();
        while let Some(read) = records.next() {
            assert!(records.at() > at && records.at() <= bytes.len());
            if let Ok((place, record)) = read {
                assert_eq!(place, at);
                assert!(record.json.len() <= EVENT_MAX_BYTES);
                assert_eq!(records.at(), at + framed_bytes(record.json.len()));
            }
            at = records.at();
        }
        // Documents that were written and then hurt: those before are whole, none is another.
        let mut segment = Vec::new();
        let parts: Vec<&[u8]> = bytes.chunks(9).take(8).collect();
        for (n, part) in parts.iter().enumerate() {
            let (head, fill) = frame(part, n as u64, Kind::ALL[n % 4], Severity::Info);
            segment.extend_from_slice(&[&head[..], part, fill].concat());
        }
        let hurt = random.below(segment.len() + 1);
        if let Some(byte) = segment.get_mut(hurt) {
            *byte ^= 1 << random.below(8);
        }
        let whole = Records::new(&segment, 0).map_while(Result::ok);
        let mut n = 0;
        for (place, record) in whole {
            // Two bytes of a head and what fills up are nobody's.
            assert_eq!((record.time_ms, record.json), (n as u64, parts[n]), "at {place}");
            n += 1;
        }
        assert!(n == parts.len() || segment.len() > hurt);
    },
};

pub const KAFKA: Target = Target {
    name: "kafka broker",
    seeds: &[
        b"\0\0\0\0\0\x01\0\0\0\0\x0b\0\x03\0\0\0\x0c",
        b"\0\0\0\0\0\0\0\x01\0\0\0\x05\0\x01h\0\0#\x84\xff\xff\xff\xff\0\0\0\x05\0\0\0\x01\0\0\0\x01t\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0",
        b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03\0\x57\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x02\0\x01b\0\x01w\0\0\0\x28",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\x01",
        b"r=abcd,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ],
    pieces: &[b"\xff\xff\xff\xff", b"\x7f\xff", b"\0\0\0\x01", b"\0\x01t", b",", b"r=abc", b"i=1", b"="],
    check: |bytes, random| {
        for topic in ["t", ""] {
            if let Some(found) = Metadata::read(bytes, topic) {
                assert!(found.partitions.windows(2).all(|p| p[0].number <= p[1].number));
                assert!(found.partitions.len() + found.brokers.len() <= bytes.len());
            }
            for version in 3..=8 {
                if let Some((parts, wait_ms)) = message::produced(bytes, version, topic) {
                    assert!(parts.len() <= bytes.len() && wait_ms >= 0);
                }
            }
        }
        let _ = (Versions::read(bytes), ProducerId::read(bytes));
        let _ = (message::mechanisms(bytes), message::authenticated(bytes));
        let _ = message::answer(bytes, random.below(3) as i32);
        let mut scram = Scram::new(Hash::Sha256, "u", "p", "abc");
        assert!(scram.check(bytes).is_err(), "nothing was said that could be proven");
        // Rounds cost time, which is the server's to ask for up to a bound.
        if !bytes.windows(5).any(|w| w.starts_with(b"i=") && w[2..].iter().all(u8::is_ascii_digit)) {
            assert!(scram.answer(bytes).is_err());
        }
    },
};

pub const KEPT: Target = Target {
    name: "kafka producer's state",
    seeds: &[b"", b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"],
    pieces: &[b"\0\0\0\0", b"\x01"],
    check: |bytes, _| {
        assert_eq!(State::read(bytes, "t"), None, "a checksum is not met by chance");
        let mut state = State::new("t");
        state.renew(i64::from(bytes.first().copied().unwrap_or(0)), 1);
        let spread: Spread = bytes.iter().map(|b| (i32::from(*b), vec![0])).take(9).collect();
        let flight = weir_shipping::kafka::state::Flight {
            events: bytes.len() as u32 + 1,
            sum: 1,
            partitions: 300,
            sticky: 0,
            chunk_bytes: 100,
        };
        state.begin(flight, &spread);
        let again = State::read(&state.write(), "t").expect("what was written");
        assert_eq!(again.write(), state.write());
    },
};

pub const ANSWERS: Target = Target {
    name: "otlp and loki answers",
    seeds: &[
        b"\x0a\x07\x08\x03\x12\x03old",
        b"\x08\x0e\x12\x04gone",
        b"\0\0\0\0\x03abc",
        b"CA4SBGdvbmU=",
        b"entry ignored, reason: 'too old', total ignored: 2 out of 7",
    ],
    pieces: &[
        b"\xff\xff\xff\xff\xff",
        b"total ignored: ",
        b"99999999999999999999",
        b"%2",
        b"\x1b[31m",
    ],
    check: |bytes, random| {
        let status = [200, 204, 400, 413, 429, 503][random.below(6)];
        let said = |text: &str| {
            assert!(text.len() <= SHOWN_MAX_BYTES && !text.contains('\n'), "{text:?}");
        };
        use answer::Verdict::{Later, Refused, Taken, TooLarge};
        match answer::http(status, bytes) {
            Taken(None) => {}
            Taken(Some(text)) | Refused(_, text) | TooLarge(text) | Later(text) => said(&text),
        }
        match answer::grpc(random.below(20) as u32, &grpc::text(bytes), bytes) {
            Taken(None) => {}
            Taken(Some(text)) | Refused(_, text) | TooLarge(text) | Later(text) => said(&text),
        }
        match loki::verdict(status, bytes, 7) {
            loki::Verdict::Taken => {}
            loki::Verdict::Refused(count, text) => {
                assert!(count <= 7);
                said(&text);
            }
            loki::Verdict::Later(text) => said(&text),
        }
        let _ = (answer::retry_ms(bytes), grpc::message(bytes));
        let inside = |field: (u32, Field<'_>)| match field.1 {
            Field::Bytes(b) => b.len(),
            Field::Number(_) => 0,
        };
        assert!(Fields::of(bytes).map(inside).sum::<usize>() <= bytes.len());
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = syslog::is_structure(text);
        }
    },
};
