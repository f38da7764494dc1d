//! Answers of FastCGI servers and of memcached: the same whole and in pieces.

use super::Target;
use crate::random::Random;
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress, Start};
use weir_wire::{fastcgi, memcached, scgi, uwsgi};

pub const FASTCGI: Target = Target {
    name: "fastcgi answer",
    seeds: &[
        b"\x01\x06\0\x01\0\x0d\x03\0Status: 1\r\n\r\nxyz\x01\x07\0\x01\0\x02\0\0no\x01\x06\0\x01\0\0\0\0",
        b"\x01\x06\0\x01\0\x02\0\0\r\n\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0",
    ],
    pieces: &[
        b"\x01",
        b"\x06",
        b"\x07",
        b"\x03",
        b"\0",
        b"\xff",
        b"\r\n",
        b"\x01\x06\0\x01\0\x01\0\0a",
        b"\x01\x03\0\x01\0\0\0\0",
        b"\x01\x07\0\x01\0\x01\x02\0e??",
    ],
    check: fastcgi_answer,
};

fn fastcgi_answer(buf: &[u8], random: &mut Random) {
    let read = |cuts: &[usize]| {
        let mut decoder = fastcgi::Decoder::default();
        let (mut text, mut at) = (Vec::new(), 0);
        for &cut in cuts {
            let mut piece = b"kept".to_vec();
            piece.extend_from_slice(&buf[at..cut]);
            let result = decoder.decode(&mut piece, 4);
            assert!(piece.starts_with(b"kept"));
            text.extend_from_slice(&piece[4..]);
            at = cut;
            if let Err(e) = result {
                return (text, Some(e), decoder.closed, decoder.ended);
            }
        }
        (text, None, decoder.closed, decoder.ended)
    };
    let whole = read(&[buf.len()]);
    assert_eq!(read(&random.cuts(buf.len())), whole);
    cgi_head(&whole.0, random);
    requests(buf, random);
}

/// A head without a status line, however it arrives.
fn cgi_head(buf: &[u8], random: &mut Random) {
    let read = |cuts: &[usize]| {
        let (mut parser, mut head) =
            (ResponseParser::starting(Start::Either), ResponseHead::default());
        for &cut in cuts {
            match parser.parse(&buf[..cut], usize::MAX, &mut head) {
                Ok(ResponseProgress::NeedMore) => {}
                done => return (Some(done), head),
            }
        }
        (None, ResponseHead::default())
    };
    assert_eq!(read(&random.cuts(buf.len())).0, read(&[buf.len()]).0);
}

/// Whatever the parameters are, the lengths that are written are those of what follows.
fn requests(buf: &[u8], random: &mut Random) {
    let at = random.below(buf.len() + 1);
    let (name, value) = buf.split_at(at);
    let mut out = Vec::new();
    let mut writer = scgi::RequestWriter::new(&mut out, 0);
    writer.param(name, &[value]);
    writer.finish();
    let colon = out.iter().position(|b| *b == b':').unwrap_or(0);
    let length = std::str::from_utf8(&out[..colon]).ok().and_then(|t| t.parse().ok());
    assert_eq!(length, Some(out.len() - colon - 2));
    assert_eq!(out.iter().filter(|b| **b == 0).count(), 4);
    let mut out = Vec::new();
    let mut writer = uwsgi::RequestWriter::new(&mut out, (0, 0));
    writer.param(name, &[value]);
    if writer.finish(b"").is_ok() {
        assert_eq!(usize::from(u16::from_le_bytes([out[1], out[2]])), out.len() - 4);
    }
}

pub const MEMCACHED: Target = Target {
    name: "memcached answer",
    seeds: &[b"VALUE key 1 5\r\nhello\r\nEND\r\n", b"END\r\n", b"VALUE key 0 0\r\n\r\nEND\r\n"],
    pieces: &[b"\r\n", b"\n", b"\r", b" ", b"VALUE ", b"key", b"END\r\n", b"\0", b"9", b"-"],
    check: memcached_answer,
};

fn memcached_answer(buf: &[u8], random: &mut Random) {
    let flag = random.below(3) as u64;
    let read = |cuts: &[usize]| {
        let mut decoder = memcached::Decoder::new(b"key", flag, 4096);
        let (mut text, mut at) = (Vec::new(), 0);
        for &cut in cuts {
            let mut piece = buf[at..cut].to_vec();
            at = cut;
            if decoder.decode(&mut piece, 0).is_err() {
                return (text, true, false);
            }
            text.extend_from_slice(&piece);
        }
        (text, false, decoder.missing)
    };
    assert_eq!(read(&random.cuts(buf.len())), read(&[buf.len()]));
}
