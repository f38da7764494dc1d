use super::frame::{self, Head};
use super::hpack::{Fields, HpackLimits};
use super::receive::{Event, Receiver};
use super::*;
use crate::http1::request::HTTP2_PREFACE;

fn receiver() -> Receiver {
    Receiver::new(HpackLimits { string_max_bytes: 8192, block_max_bytes: 32768 }, 0)
}

fn framed(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::head(payload.len(), kind, flags, stream)[..], payload].concat()
}

/// Feeds the bytes in pieces; the events as text, and the fault if there was one.
fn feed(r: &mut Receiver, bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>, Option<Fault>) {
    let (mut fields, mut out, mut seen) = (Fields::default(), Vec::new(), Vec::new());
    let mut buf = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        buf.extend_from_slice(part);
        let mut at = 0;
        loop {
            match r.next(&buf[at..], &mut fields, &mut out) {
                Err(fault) => return (seen, out, Some(fault)),
                Ok((used, event)) => {
                    at += used;
                    let none = event.is_none();
                    seen.extend(event.map(|e| text_of(&e, &fields)));
                    if used == 0 && none {
                        break;
                    }
                }
            }
        }
        buf.drain(..at);
    }
    (seen, out, None)
}

fn text_of(event: &Event, fields: &Fields) -> String {
    match event {
        Event::Headers { stream, end, fresh, .. } => {
            let list: Vec<String> = fields
                .iter()
                .map(|(n, v)| format!("{}={}", n.escape_ascii(), v.escape_ascii()))
                .collect();
            format!("headers {stream} end={end} fresh={fresh} {}", list.join(" "))
        }
        Event::Data { stream, bytes, end, .. } => {
            format!("data {stream} {} end={end}", bytes.escape_ascii())
        }
        other => format!("{other:?}"),
    }
}

fn conversation() -> Vec<u8> {
    let mut text = HTTP2_PREFACE.to_vec();
    frame::settings(&[(4, 70000), (5, 20000)], &mut text);
    frame::settings_ack(&mut text);
    text.extend(framed(frame::HEADERS, frame::PADDED, 1, &[2, 0x82, 0x84, 0, 0]));
    text.extend(framed(frame::CONTINUATION, 0, 1, &[0x86, 0x41, 3]));
    text.extend(framed(frame::CONTINUATION, frame::END_HEADERS, 1, b"a.b"));
    text.extend(framed(frame::DATA, frame::PADDED, 1, b"\x03abc\0\0\0"));
    text.extend(framed(0x77, 0, 9, b"whatever"));
    frame::ping(0, b"12345678", &mut text);
    text.extend(framed(frame::DATA, frame::END_STREAM, 1, b""));
    frame::window_update(0, 100_000, &mut text);
    text.extend(framed(frame::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"));
    frame::rst_stream(1, ErrorCode::CANCEL, &mut text);
    text
}

#[test]
fn a_conversation_in_any_pieces() {
    let text = conversation();
    let (whole, out, fault) = feed(&mut receiver(), &text, text.len());
    assert_eq!(fault, None);
    assert_eq!(whole.len(), 8, "{whole:#?}");
    assert!(whole[2].contains("headers 1 end=false fresh=true :method=GET :path=/"), "{whole:?}");
    assert!(whole[2].ends_with(":scheme=http :authority=a.b"));
    assert_eq!(Head::parse(&out).map(|h| (h.kind, h.flags)), Some((frame::PING, frame::ACK)));
    let data = |list: &[String]| -> (String, Vec<String>) {
        let (d, other): (Vec<_>, Vec<_>) =
            list.iter().cloned().partition(|l| l.starts_with("data"));
        let bytes = d.iter().filter_map(|l| l.split(' ').nth(2)).collect();
        (bytes, other)
    };
    for piece in 1..40 {
        let (pieces, _, fault) = feed(&mut receiver(), &text, piece);
        assert_eq!(fault, None, "{piece}");
        assert_eq!(data(&pieces), data(&whole), "{piece}");
    }
}

#[test]
fn faults() {
    let headers = framed(frame::HEADERS, frame::END_HEADERS, 1, &[0x82]);
    for (frames, code) in [
        (framed(frame::DATA, frame::PADDED, 1, b""), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::DATA, frame::PADDED, 1, b"\x01"), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::DATA, 0, 0, b"x"), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::HEADERS, 4, 2, &[0x82]), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::HEADERS, 4, 1, &[]), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::HEADERS, 4 | 8, 1, &[9, 0x82]), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::HEADERS, 4 | 32, 1, &[0, 0, 0, 1, 0, 0x82]), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::PRIORITY, 0, 1, b"1234"), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::RST_STREAM, 0, 0, b"1234"), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::SETTINGS, 0, 1, b""), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::SETTINGS, 1, 0, b"123456"), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::SETTINGS, 0, 0, b"12345"), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), ErrorCode::FLOW_CONTROL_ERROR),
        (framed(frame::SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 42]), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::PUSH_PROMISE, 0, 1, b"1234"), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::PING, 0, 0, b"1234567"), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::GOAWAY, 0, 0, b"1234"), ErrorCode::FRAME_SIZE_ERROR),
        (framed(frame::GOAWAY, 0, 1, b"12345678"), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::WINDOW_UPDATE, 0, 0, &[0; 4]), ErrorCode::PROTOCOL_ERROR),
        (framed(frame::CONTINUATION, 4, 1, &[0x82]), ErrorCode::PROTOCOL_ERROR),
        ([framed(frame::HEADERS, 0, 1, &[0x82]), headers].concat(), ErrorCode::PROTOCOL_ERROR),
    ] {
        let text = [HTTP2_PREFACE, &frames].concat();
        for piece in [1, text.len()] {
            let fault = feed(&mut receiver(), &text, piece).2;
            assert_eq!(fault.map(|f| f.code), Some(code), "{}", frames.escape_ascii());
        }
    }
    assert!(feed(&mut receiver(), b"GET / HTTP/1.1\r\n", 3).2.is_some());
}

#[test]
fn frames_larger_than_announced_are_refused_by_their_heads() {
    let most = FRAME_TAKEN_MAX_BYTES as usize;
    for kind in [frame::DATA, frame::HEADERS, frame::CONTINUATION, 0x77] {
        let text = [HTTP2_PREFACE, &frame::head(most + 1, kind, 0, 1)].concat();
        let fault = feed(&mut receiver(), &text, text.len()).2;
        assert_eq!(fault.map(|f| f.code), Some(ErrorCode::FRAME_SIZE_ERROR), "{kind}");
    }
    let text = [HTTP2_PREFACE, &framed(frame::DATA, 0, 1, &vec![0; most])].concat();
    assert_eq!(feed(&mut receiver(), &text, text.len()).2, None);
}

#[test]
fn streams_are_idle_until_their_header() {
    let mut r = receiver();
    assert!(r.is_idle(1));
    let text = [HTTP2_PREFACE, &framed(frame::HEADERS, 5, 3, &[0x82])].concat();
    assert_eq!(feed(&mut r, &text, text.len()).2, None);
    let idle: Vec<u32> = (1..7).filter(|s| r.is_idle(*s)).collect();
    assert_eq!(idle, [2, 4, 5, 6]);
}

#[test]
fn floods_are_ended() {
    let ping = framed(frame::PING, 0, 0, b"12345678");
    let settings = framed(frame::SETTINGS, 0, 0, b"");
    let empty = framed(frame::DATA, 0, 1, b"");
    let priority = framed(frame::PRIORITY, 0, 3, b"12345");
    let tiny = framed(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    for (frame, most) in
        [(ping, 5000), (settings, 500), (empty, 5000), (priority, 5000), (tiny, 5000)]
    {
        let text = [HTTP2_PREFACE, &frame.repeat(most)].concat();
        let fault = feed(&mut receiver(), &text, text.len()).2;
        assert_eq!(fault.map(|f| f.code), Some(ErrorCode::ENHANCE_YOUR_CALM));
    }
    let mut text = [HTTP2_PREFACE, &framed(frame::HEADERS, 0, 1, &[0x82])].concat();
    text.extend(framed(frame::CONTINUATION, 0, 1, b"").repeat(100));
    let fault = feed(&mut receiver(), &text, text.len()).2;
    assert_eq!(fault.map(|f| f.code), Some(ErrorCode::ENHANCE_YOUR_CALM), "CONTINUATION");
}

#[test]
fn a_block_that_comes_too_late_is_decoded_and_dropped() {
    let mut r = receiver();
    let block = [0x82, 0x40, 1, b'x', 1, b'y'];
    let text = [HTTP2_PREFACE, &framed(frame::HEADERS, 5, 1, &block)].concat();
    let (mut fields, mut out) = (Fields::default(), Vec::new());
    assert_eq!(r.next(&text, &mut fields, &mut out), Ok((24, None)));
    assert_eq!(r.next(&text[24..36], &mut fields, &mut out), Ok((0, None)));
    assert_eq!(r.partial_headers(), Some(1));
    r.give_up_partial();
    assert_eq!((r.partial_headers(), r.last_stream()), (None, 1));
    assert_eq!(r.next(&text[24..], &mut fields, &mut out), Ok((9 + block.len(), None)));
    let next = framed(frame::HEADERS, 5, 3, &[0xbe]);
    assert!(matches!(r.next(&next, &mut fields, &mut out), Ok((_, Some(Event::Headers { .. })))));
    assert_eq!(fields.iter().next(), Some((&b"x"[..], &b"y"[..])));
}

#[test]
fn windows() {
    use super::flow::*;
    let mut s = SendWindow::new(10);
    s.take(10);
    s.widen(-5).unwrap();
    assert_eq!(s.available(), 0);
    s.widen(6).unwrap();
    assert_eq!(s.available(), 1);
    assert_eq!(s.widen(i64::from(WINDOW_MAX_BYTES)), Err(Overflow));
    let mut w = ReceiveWindow::new(100);
    assert_eq!(w.take(101), Err(Overflow));
    assert_eq!(w.open_to(100), 0);
    w.take(60).unwrap();
    assert_eq!((w.open_to(100), w.left()), (60, 100));
}

#[test]
fn long_blocks_are_cut() {
    let mut out = vec![0; frame::HEAD_BYTES];
    out.extend_from_slice(&[7; 25]);
    frame::finish_block(&mut out, 0, 3, frame::END_STREAM, 10);
    let mut heads = Vec::new();
    let mut at = 0;
    while let Some(h) = Head::parse(&out[at..]) {
        heads.push((h.kind, h.flags, h.len));
        at += frame::HEAD_BYTES + h.len;
    }
    assert_eq!(heads, [(1, 1, 10), (9, 0, 10), (9, 4, 5)]);
    assert_eq!(at, out.len());
}
