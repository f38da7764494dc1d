//! Chunked bodies: the same body whole and in pieces; what Weir writes reads back.

use super::Target;
use crate::random::Random;
use weir_wire::http1::chunked::{write_chunk_header, write_last_chunk, Decoder, Event};
use weir_wire::http1::field::{FieldEvent, FieldRules, Fields};

/// The fields of trailers, and of servers' heads.
pub const FIELDS: Target = Target {
    name: "fields",
    seeds: &[
        b"A: b\r\nConnection: close\r\nEmpty:\r\n\r\n",
        b"X_Bad: 1\nX/Bad: 1\nNoColon\nAccept:  a, b  \n\n",
        b"Date: now\r\nDate: then\r\nContent-Length: 10\r\n\r\nrest",
    ],
    pieces: &[
        b"\r\n",
        b"\n",
        b"\r",
        b":",
        b" ",
        b"\t",
        b"\0",
        b"\xff",
        b"_",
        b"\r\n\r\n",
        b"A: b\r\n",
    ],
    check: fields,
};

fn fields(buf: &[u8], random: &mut Random) {
    let rules = FieldRules { underscores: true, upstream: random.coin() };
    let read = |cuts: &[usize]| {
        let mut fields = Fields::default();
        let mut events = Vec::new();
        for &cut in cuts {
            loop {
                match fields.next(&buf[..cut], rules) {
                    Ok(FieldEvent::NeedMore) => break,
                    Ok(FieldEvent::End) => return (events, Some(Ok(fields.position()))),
                    Ok(event) => events.push(event),
                    Err(error) => return (events, Some(Err(error))),
                }
            }
        }
        (events, None)
    };
    assert_eq!(read(&random.cuts(buf.len())), read(&[buf.len()]));
}

pub const TARGET: Target = Target {
    name: "chunked body",
    seeds: &[
        b"3\r\nabc\r\n0\r\n\r\n",
        b"1;a=b\r\nx\r\nA \r\n0123456789\r\n00;x\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n",
        b"ff\r\n",
        b"0\r\nTrailer: x\r\n\r\n",
    ],
    pieces: &[
        b"\r\n",
        b"\n",
        b"\r",
        b"0",
        b"f",
        b";",
        b" ",
        b"\t",
        b"7fffffffffffffff",
        b"-",
        b"0x",
        b"\0",
        b"0\r\n\r\n",
        b"A: b\r\n",
        b"1\r\nx\r\n",
    ],
    check,
};

/// The body and where it ended, or `None` for an error.
fn decode(buf: &[u8], cuts: &[usize], keep: bool) -> Option<(Vec<u8>, Option<usize>)> {
    let mut decoder = if keep { Decoder::keeping_trailers() } else { Decoder::new() };
    let mut body = Vec::new();
    let mut at = 0;
    for &cut in cuts {
        loop {
            let input = &buf[at..cut];
            let (used, event) = decoder.decode(input).ok()?;
            assert!(used <= input.len());
            at += used;
            match event {
                Event::Data(range) => body.extend_from_slice(&input[range]),
                Event::NeedMore => {
                    assert_eq!(at, cut);
                    assert!(decoder.min_remaining() > 0);
                    break;
                }
                Event::End => return Some((body, Some(at))),
            }
        }
    }
    Some((body, None))
}

fn check(buf: &[u8], random: &mut Random) {
    let keep = random.coin();
    let whole = decode(buf, &[buf.len()], keep);
    assert_eq!(decode(buf, &random.cuts(buf.len()), keep), whole);
    let mut written = Vec::new();
    for part in buf.chunks(1 + random.below(60)) {
        write_chunk_header(part.len() as u64, &mut written);
        written.extend_from_slice(part);
        written.extend_from_slice(b"\r\n");
    }
    write_last_chunk(&mut written);
    let cuts = random.cuts(written.len());
    assert_eq!(decode(&written, &cuts, false), Some((buf.to_vec(), Some(written.len()))));
}
