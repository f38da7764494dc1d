//! Bodies of backends' answers: however they arrive, the same bytes, the same end and the same
//! fault; never more than was announced.

use super::Target;
use crate::random::Random;
use weir_backend::{BadBody, BodyReader};
use weir_wire::http1::chunked::{write_chunk_header, write_last_chunk};
use weir_wire::http1::response::ResponseHead;

pub const TARGET: Target = Target {
    name: "reply body",
    seeds: &[
        b"3\r\nabc\r\n0\r\n\r\n",
        b"1;a=b\r\nx\r\nA \r\n0123456789\r\n0\r\nX-A: b\r\nX-B: c\r\n\r\nHTTP/1.1 200 OK\r\n",
        b"0\r\nA: b\nB:\n\n",
        b"0123456789",
    ],
    pieces: &[
        b"\r\n",
        b"\n",
        b"0",
        b"f",
        b";",
        b":",
        b"7fffffffffffffff",
        b"0\r\n\r\n",
        b"A: b\r\n",
        b"1\r\nx\r\n",
        b"0\r\nA: b\r\n\r\n",
    ],
    check,
};

fn check(buf: &[u8], random: &mut Random) {
    chunked(buf, random);
    written(buf, random);
    by_length(buf, random);
    to_the_end(buf, random);
    streamed(buf, random);
    decoded(buf, random);
}

/// What a body was.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    body: Vec<u8>,
    fault: Option<BadBody>,
    done: bool,
    excess: bool,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Everything is fed, also what is behind the body's end; where `ends`, the last piece is told to
/// be it.
fn read(mut reader: BodyReader, buf: &[u8], cuts: &[usize], ends: bool) -> Seen {
    let (mut body, mut fault, mut at) = (Vec::new(), None, 0);
    for (i, &cut) in cuts.iter().enumerate() {
        let before = (reader.done, reader.excess);
        let mut piece = [b"kept", &buf[at..cut]].concat();
        at = cut;
        reader.set_ended(ends && i + 1 == cuts.len());
        let fed = reader.feed(&mut piece, 4);
        assert!(piece.starts_with(b"kept"));
        assert!(!before.0 || piece.len() == 4 || reader.ends_with_connection(), "behind the end");
        body.extend_from_slice(&piece[4..]);
        if let Err(e) = fed {
            fault = Some(e);
            break;
        }
        assert!(reader.done >= before.0 && reader.excess >= before.1, "taken back");
    }
    let (done, excess) = (reader.done, reader.excess);
    Seen { body, fault, done, excess, trailers: reader.trailers }
}

fn head(content_length: Option<u64>, chunked: bool) -> ResponseHead {
    ResponseHead { status: 200, content_length, chunked, ..ResponseHead::default() }
}

fn chunked(buf: &[u8], random: &mut Random) {
    let reader = || BodyReader::new(&head(None, true), false);
    let whole = read(reader(), buf, &[buf.len()], false);
    assert!(whole.body.len() <= buf.len());
    assert_eq!(read(reader(), buf, &random.cuts(buf.len()), false), whole);
}

/// What is written as chunks is read again, and a part of it is not taken for the whole.
fn written(buf: &[u8], random: &mut Random) {
    let mut out = Vec::new();
    for part in buf.chunks(1 + random.below(60)) {
        write_chunk_header(part.len() as u64, &mut out);
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    write_last_chunk(&mut out);
    let mut trailers = Vec::new();
    if random.coin() {
        out.truncate(out.len() - 2);
        // Now and then more of them than are taken.
        let most = if random.below(20) == 0 { 40_000 } else { 40 };
        for n in 0..random.below(5) {
            let value = vec![b'v'; 1 + random.below(most)];
            trailers.push((format!("name-{n}").into_bytes(), value));
        }
        for (name, value) in &trailers {
            out.extend_from_slice(&[&name[..], b": ", value, b"\r\n"].concat());
        }
        out.extend_from_slice(b"\r\n");
    }
    let end = out.len();
    let more = random.below(3);
    out.extend(std::iter::repeat_n(b'x', more));
    let reader = || BodyReader::new(&head(None, true), false);
    let whole = read(reader(), &out, &[out.len()], false);
    assert_eq!(whole.body, buf);
    match whole.fault {
        Some(fault) => assert!(fault == BadBody::Trailers && end > 16_384),
        None => {
            assert!(whole.done && whole.excess == (more > 0));
            assert_eq!(whole.trailers, trailers);
        }
    }
    let step = 1 + random.below(3000);
    let cuts: Vec<usize> = (0..out.len()).step_by(step).chain([out.len()]).collect();
    assert_eq!(read(reader(), &out, &cuts, false), whole);
    let less = random.below(end);
    assert!(!read(reader(), &out[..less], &[less], false).done, "cut at {less} of {end}");
}

fn by_length(buf: &[u8], random: &mut Random) {
    let length = random.below(buf.len() + 3);
    let bodiless = random.below(4) == 0;
    let cuts = random.cuts(buf.len());
    let reader = BodyReader::new(&head(Some(length as u64), false), bodiless);
    let seen = read(reader, buf, &cuts, false);
    let length = if bodiless { 0 } else { length };
    assert_eq!(seen.body, buf[..length.min(buf.len())]);
    assert_eq!((seen.done, seen.excess), (buf.len() >= length, buf.len() > length));
    assert_eq!(seen.fault, None);
}

fn to_the_end(buf: &[u8], random: &mut Random) {
    let reader = BodyReader::new(&head(None, false), false);
    assert!(reader.ends_with_connection() && reader.remaining().is_none());
    let seen = read(reader, buf, &random.cuts(buf.len()), false);
    assert_eq!((&seen.body[..], seen.done, seen.excess, seen.fault), (buf, false, false, None));
}

/// An HTTP/2 stream's body has the length that was announced, or is at fault.
fn streamed(buf: &[u8], random: &mut Random) {
    let length = random.coin().then(|| random.below(buf.len() + 3));
    let ends = random.coin();
    let reader = BodyReader::of_stream(&head(length.map(|n| n as u64), false), false, false);
    let seen = read(reader, buf, &random.cuts(buf.len()), ends);
    let fault = match length {
        Some(n) if buf.len() > n => Some(BadBody::TooLong),
        Some(n) if buf.len() < n && ends => Some(BadBody::TooShort),
        _ => None,
    };
    assert_eq!(seen.fault, fault);
    assert!(buf.starts_with(&seen.body) && length.is_none_or(|n| seen.body.len() <= n));
    if fault.is_none() {
        assert_eq!((&seen.body[..], seen.done), (buf, ends));
    }
}

/// What a decoder leaves is passed on up to the length that was announced.
fn decoded(buf: &[u8], random: &mut Random) {
    let length = random.coin().then(|| random.below(buf.len() + 3));
    let (ends, to_head) = (random.coin(), random.coin());
    let reader = BodyReader::decoded(&head(length.map(|n| n as u64), false), to_head, false);
    let seen = read(reader, buf, &random.cuts(buf.len()), ends);
    let most = length.unwrap_or(buf.len()).min(buf.len());
    assert_eq!(seen.body, buf[..most]);
    assert_eq!(seen.excess, buf.len() > most);
    let is_cut = ends && !to_head && length.is_some_and(|n| n > buf.len());
    assert_eq!(seen.fault, is_cut.then_some(BadBody::Cut));
    assert!(is_cut || seen.done == (ends || seen.excess));
}
