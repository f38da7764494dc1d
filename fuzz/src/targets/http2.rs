//! HTTP/2: the same frames whole and in pieces; Huffman there and back.

use super::Target;
use crate::random::Random;
use weir_wire::http2::hpack::{Fields, HpackLimits};
use weir_wire::http2::receive::{Event, Receiver};
use weir_wire::http2::{huffman, Fault};

pub const TARGET: Target = Target {
    name: "http2",
    seeds: &[
        b"\0\0\0\x04\0\0\0\0\0\0\0\x05\x01\x05\0\0\0\x01\x82\x84\x86\x41\0",
        b"\0\0\x01\x01\0\0\0\0\x01\x82\0\0\x06\x09\x04\0\0\0\x01\x84\x86\x40\x01x\0",
        b"\0\0\x05\0\x09\0\0\0\x01\x02ab\0\0\0\0\x00\0\x01\0\0\0\x01",
        b"\0\0\x0c\x04\0\0\0\0\0\0\x04\0\x01\0\0\0\x05\0\0\x50\0",
        b"\0\0\x08\x06\0\0\0\0\0abcdefgh\0\0\x04\x08\0\0\0\0\0\0\0\x01\0",
        b"\0\0\x05\x02\0\0\0\0\x03\0\0\0\0\x10\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08",
        b"\0\0\x07\x10\0\0\0\0\0\0\0\0\x01u=1\0\0\x03\xbb\0\0\0\0\0abc",
        b"\0\0\x11\x01\x25\0\0\0\x03\0\0\0\0\x0f\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a",
    ],
    pieces: &[
        b"\0\0\0",
        b"\0\0\x05",
        b"\x01\x05\0\0\0\x01",
        b"\x01\x04\0\0\0\x03",
        b"\x09\x04\0\0\0\x01",
        b"\0\x01\0\0\0\x01",
        b"\x82",
        b"\xbe",
        b"\x3f\xe1\x1f",
        b"\x20",
        b"\x40\x01x\x01y",
        b"\x41\x8c",
        b"\xff\xff\xff",
        b"\x7f\x80\x01",
        b"\x80\0\0\0",
        b"\0\0\x08\x07\0\0\0\0\0",
    ],
    check,
};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the frames meant: DATA joined, the rest in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub other: Vec<String>,
    pub data: Vec<(u32, Vec<u8>)>,
    pub fault: Option<Fault>,
    pub out: Vec<u8>,
    pub last_stream: u32,
    /// Nothing has begun that is not complete.
    pub between: bool,
}

fn check(input: &[u8], random: &mut Random) {
    let bytes = [PREFACE, input].concat();
    let whole = run(&bytes, &[bytes.len()]);
    let pieces = run(&bytes, &random.cuts(bytes.len()));
    assert_eq!(whole, pieces);
    let (mut coded, mut text) = (Vec::new(), Vec::new());
    huffman::encode(input, &mut coded);
    assert_eq!(coded.len(), huffman::coded_len(input));
    huffman::decode(&coded, &mut text).expect("what was encoded can be decoded");
    assert_eq!(text, input);
    let _ = huffman::decode(input, &mut text);
}

pub fn run(bytes: &[u8], cuts: &[usize]) -> Seen {
    let limits = HpackLimits { string_max_bytes: 512, block_max_bytes: 2048 };
    let mut receiver = Receiver::new(limits, 0);
    let (mut fields, mut seen) = (Fields::default(), Seen::default());
    let mut at = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        loop {
            match receiver.next(&bytes[at..cut.max(at)], &mut fields, &mut seen.out) {
                Err(fault) => {
                    seen.fault = Some(fault);
                    return seen;
                }
                Ok((0, _)) => break,
                Ok((used, event)) => {
                    at += used;
                    assert!(at <= cut, "more used than there is");
                    event.into_iter().for_each(|e| note(&e, &fields, &mut seen));
                }
            }
        }
    }
    seen.last_stream = receiver.last_stream();
    seen.between = receiver.is_between_frames();
    assert!(
        receiver.is_idle(seen.last_stream + 1) && !receiver.is_idle(seen.last_stream | 1)
            || seen.last_stream == 0
    );
    seen
}

pub fn note(event: &Event, fields: &Fields, seen: &mut Seen) {
    match event {
        Event::Data { stream, bytes, end, .. } => {
            match seen.data.last_mut().filter(|(s, _)| s == stream) {
                Some((_, text)) => text.extend_from_slice(bytes),
                None => seen.data.push((*stream, bytes.to_vec())),
            }
            if *end {
                seen.other.push(format!("end of {stream}"));
            }
        }
        Event::Headers { .. } => {
            let size: usize = fields.iter().map(|(n, v)| n.len() + v.len()).sum();
            assert!(size <= 2048, "a block beyond its limit");
            seen.other.push(format!("{event:?} {:?}", fields.iter().collect::<Vec<_>>()));
        }
        other => seen.other.push(format!("{other:?}")),
    }
}
