//! HTTP/2 as clients speak it: requests in frames that keep to the rules, mixed and cut in every
//! way the rules allow, mean what was put into them; changed ones mean the same however they arrive.

use super::http2::{note, run, Seen, PREFACE};
use super::Target;
use crate::random::Random;
use weir_wire::http2::frame;
use weir_wire::http2::hpack::{literal, Fields};
use weir_wire::http2::receive::{Dependency, Event, Settings};
use weir_wire::http2::ErrorCode;

/// The input is what names, values and bodies are made of.
pub const TARGET: Target = Target {
    name: "http2 requests",
    seeds: &[
        b"GET /index.html accept text/html cookie a=b; c=d",
        b"0123456789abcdefghijklmnopqrstuvwxyz",
        b"\0\0\x05\x01\x05\0\0\0\x01\x82\x84\x86\x41\0",
    ],
    pieces: &[b"\0\0\0", b"\x01\x05\0\0\0\x01", b"\x82", b"\xbe", b"\xff", b" ", b"x"],
    check,
};

const FLIPS: &[&[u8]] = &[
    b"\0",
    b"\x82",
    b"\xbe",
    b"\x20",
    b"\0\0\0\0\x01\0\0\0\x01",
    b"\0\0\x01\x09\x04\0\0\0\x01\x82",
    b"\0\0\x01\x01\x05\0\0\0\x09\x82",
    b"\0\0\0\x03\0\0\0\0\x01",
];

fn check(input: &[u8], random: &mut Random) {
    let mut talk = Talk::new(input);
    for _ in 0..1 + random.below(20) {
        talk.step(random);
    }
    talk.seen.between = true;
    let bytes = [PREFACE, &talk.bytes].concat();
    assert_eq!(run(&bytes, &[bytes.len()]), talk.seen);
    assert_eq!(run(&bytes, &random.cuts(bytes.len())), talk.seen);

    let bad = [PREFACE, &random.mutate(&[&talk.bytes], FLIPS)].concat();
    let seen = run(&bad, &[bad.len()]);
    assert_eq!(run(&bad, &random.cuts(bad.len())), seen);
    let data: usize = seen.data.iter().map(|(_, text)| text.len()).sum();
    assert!(data + frame::HEAD_BYTES * seen.other.len() <= bad.len() * 2);
    assert!(seen.data.iter().all(|(stream, _)| *stream > 0));
}

/// What a client says, and what that means.
struct Talk<'a> {
    input: &'a [u8],
    bytes: Vec<u8>,
    seen: Seen,
    /// Streams whose request is not complete.
    open: Vec<u32>,
    next: u32,
    /// Fields both sides keep, the newest first.
    table: Vec<(Vec<u8>, Vec<u8>)>,
}

type Field = (Vec<u8>, Vec<u8>);

impl<'a> Talk<'a> {
    fn new(input: &'a [u8]) -> Talk<'a> {
        Talk {
            input,
            bytes: Vec::new(),
            seen: Seen::default(),
            open: Vec::new(),
            next: 1,
            table: Vec::new(),
        }
    }

    fn step(&mut self, random: &mut Random) {
        if self.bytes.len() > 3000 {
            return;
        }
        let stream = self.open.get(random.below(self.open.len())).copied();
        match (random.below(5), stream) {
            (0, _) | (_, None) => {
                let stream = self.next;
                self.next += 2 + 2 * random.below(3) as u32;
                self.open.push(stream);
                self.headers(stream, true, random);
            }
            (1, Some(stream)) => self.headers(stream, false, random),
            (2 | 3, Some(stream)) => self.data(stream, random),
            _ => self.control(random),
        }
    }

    fn head(&mut self, len: usize, kind: u8, flags: u8, stream: u32) {
        self.bytes.extend_from_slice(&frame::head(len, kind, flags, stream));
    }

    fn note(&mut self, event: &Event<'_>) {
        note(event, &Fields::default(), &mut self.seen);
    }

    fn text(&self, random: &mut Random) -> &'a [u8] {
        let from = random.below(self.input.len() + 1);
        let len = random.below(60).min(self.input.len() - from);
        &self.input[from..from + len]
    }

    /// A request's fields, or its trailers, which end it.
    fn headers(&mut self, stream: u32, fresh: bool, random: &mut Random) {
        let mut block = Vec::new();
        let mut fields = Vec::new();
        for _ in 0..1 + random.below(6) {
            fields.push(self.field(&mut block, random));
        }
        let end = !fresh || random.coin();
        if end {
            self.open.retain(|s| *s != stream);
        }
        let priority = random.below(3) == 0;
        let dependency = priority.then(|| Dependency {
            on: [0, stream + 1][random.below(2)],
            exclusive: random.coin(),
            weight: 1 + random.below(256) as u16,
        });
        self.block(stream, &block, end, dependency, random);
        self.seen.last_stream = self.seen.last_stream.max(stream);
        let event = Event::Headers { stream, len: block.len(), end, fresh, dependency };
        let shown: Vec<(&[u8], &[u8])> = fields.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        self.seen.other.push(format!("{event:?} {shown:?}"));
    }

    /// One field in one of the forms there are.
    fn field(&mut self, block: &mut Vec<u8>, random: &mut Random) -> Field {
        match random.below(5) {
            0 => {
                block.push(0x82);
                (b":method".to_vec(), b"GET".to_vec())
            }
            1 if !self.table.is_empty() => {
                let at = random.below(self.table.len());
                block.push(0x80 | (62 + at) as u8);
                self.table[at].clone()
            }
            2 if self.table.len() < 20 => {
                let value = self.text(random).to_vec();
                block.extend_from_slice(&[0x40, 1, b'k', value.len() as u8]);
                block.extend_from_slice(&value);
                self.table.insert(0, (b"k".to_vec(), value));
                self.table[0].clone()
            }
            _ => {
                let value = self.text(random);
                literal(b"some-name", value, block);
                (b"some-name".to_vec(), value.to_vec())
            }
        }
    }

    /// A block in one frame or in several.
    fn block(
        &mut self,
        stream: u32,
        block: &[u8],
        end: bool,
        dependency: Option<Dependency>,
        random: &mut Random,
    ) {
        let mut cuts = Vec::new();
        while random.below(3) == 0 && cuts.len() < 6 {
            cuts.push(1 + random.below(block.len()));
        }
        cuts.sort_unstable();
        cuts.push(block.len());
        let mut flags = if end { frame::END_STREAM } else { 0 };
        let padding = (random.below(3) == 0).then(|| random.below(20));
        let mut payload = Vec::new();
        if let Some(n) = padding {
            flags |= frame::PADDED;
            payload.push(n as u8);
        }
        if let Some(d) = dependency {
            flags |= frame::HAS_PRIORITY;
            payload.extend_from_slice(&(d.on | u32::from(d.exclusive) << 31).to_be_bytes());
            payload.push((d.weight - 1) as u8);
        }
        payload.extend_from_slice(&block[..cuts[0]]);
        payload.extend(std::iter::repeat_n(0, padding.unwrap_or(0)));
        let done = |n: usize| if n + 1 == cuts.len() { frame::END_HEADERS } else { 0 };
        self.head(payload.len(), frame::HEADERS, flags | done(0), stream);
        self.bytes.extend_from_slice(&payload);
        for n in 1..cuts.len() {
            let part = &block[cuts[n - 1]..cuts[n]];
            self.head(part.len(), frame::CONTINUATION, done(n), stream);
            self.bytes.extend_from_slice(part);
        }
    }

    fn data(&mut self, stream: u32, random: &mut Random) {
        let text = self.text(random);
        let end = random.below(3) == 0;
        let padding = (random.below(3) == 0).then(|| random.below(20));
        let flags = if end { frame::END_STREAM } else { 0 };
        match padding {
            None => self.head(text.len(), frame::DATA, flags, stream),
            Some(n) => {
                self.head(1 + text.len() + n, frame::DATA, flags | frame::PADDED, stream);
                self.bytes.push(n as u8);
            }
        }
        self.bytes.extend_from_slice(text);
        self.bytes.extend(std::iter::repeat_n(0, padding.unwrap_or(0)));
        if end {
            self.open.retain(|s| *s != stream);
        }
        self.note(&Event::Data { stream, bytes: text, flow: 0, end });
    }

    /// A frame that is no part of a request.
    fn control(&mut self, random: &mut Random) {
        let stream = self.next - 2;
        let word = random.next() as u32;
        match random.below(8) {
            0 => {
                let ack = [0, frame::ACK][random.below(2)];
                frame::ping(ack, b"01234567", &mut self.bytes);
                if ack == 0 {
                    frame::ping(frame::ACK, b"01234567", &mut self.seen.out);
                }
            }
            1 => {
                frame::settings_ack(&mut self.bytes);
                self.note(&Event::SettingsAck);
            }
            2 => {
                let window = word >> 1;
                frame::settings(&[(4, window), (1, word), (0xfafa, word)], &mut self.bytes);
                let initial_window = Some(window);
                let settings = Settings { initial_window, header_table: true, max_frame: None };
                self.note(&Event::Settings(settings));
            }
            3 => {
                let (stream, bytes) = (stream * (word & 1), (word >> 1).max(1));
                frame::window_update(stream, bytes, &mut self.bytes);
                self.note(&Event::WindowUpdate { stream, bytes });
            }
            4 => {
                frame::rst_stream(stream, ErrorCode(word), &mut self.bytes);
                self.open.retain(|s| *s != stream);
                self.note(&Event::Reset { stream, code: ErrorCode(word) });
            }
            5 => {
                self.head(5, frame::PRIORITY, 0, stream);
                self.bytes.extend_from_slice(&[0x80, 0, 0, 0, 0xff]);
                let dependency = Dependency { on: 0, exclusive: true, weight: 256 };
                self.note(&Event::Priority { stream, dependency });
            }
            6 => {
                let value = self.text(random);
                self.head(4 + value.len(), frame::PRIORITY_UPDATE, 0, 0);
                self.bytes.extend_from_slice(&stream.to_be_bytes());
                self.bytes.extend_from_slice(value);
                self.note(&Event::PriorityUpdate { stream, value });
            }
            // Of a kind that nobody knows.
            _ => {
                let text = self.text(random);
                self.head(text.len(), 0xbb, word as u8, word);
                self.bytes.extend_from_slice(text);
            }
        }
    }
}
