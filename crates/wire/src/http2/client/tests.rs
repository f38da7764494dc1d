use super::*;

fn fresh() -> Client {
    let mut c = Client::new();
    c.request(false, |out| hpack::request_line(b"POST", false, b"/", Some(b"h"), out));
    c.out.clear();
    c
}

fn events(c: &mut Client, bytes: &[u8]) -> Result<Vec<Event>, String> {
    c.input.extend_from_slice(bytes);
    let mut all = Vec::new();
    loop {
        match c.advance()? {
            Event::More => return Ok(all),
            event => all.push(event),
        }
    }
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::head(payload.len(), kind, flags, stream)[..], payload].concat()
}

const OK: u8 = 0x88;

#[test]
fn an_answer_in_whatever_pieces() {
    let mut wire = Vec::new();
    frame::settings(&[(frame::SETTING_INITIAL_WINDOW_SIZE, 2)], &mut wire);
    wire.extend(frame_of(frame::HEADERS, 0, 1, &[OK]));
    wire.extend(frame_of(frame::CONTINUATION, frame::END_HEADERS, 1, b"\x00\x01a\x01b"));
    wire.extend(frame_of(frame::DATA, frame::PADDED, 1, b"\x02abc\0\0"));
    wire.extend(frame_of(frame::PING, 0, 0, b"12345678"));
    let trailers = frame::END_HEADERS | frame::END_STREAM;
    wire.extend(frame_of(frame::HEADERS, trailers, 1, b"\x00\x01t\x01v"));
    for step in 1..=wire.len() {
        let mut c = fresh();
        let mut body = Vec::new();
        let mut last = Event::More;
        for part in wire.chunks(step) {
            c.input.extend_from_slice(part);
            loop {
                match c.advance().unwrap() {
                    Event::More => break,
                    Event::Data(range) => body.extend_from_slice(&c.input[range]),
                    event => last = event,
                }
            }
        }
        assert_eq!((body.as_slice(), last), (&b"abc"[..], Event::Trailers));
        assert!(c.has_ended() && !c.may_go_on(), "the request has not ended");
        assert_eq!(c.room(), 2);
        let mut answers = Vec::new();
        frame::settings_ack(&mut answers);
        frame::ping(frame::ACK, b"12345678", &mut answers);
        assert_eq!(c.out, answers);
        c.send_data(b"xy", true);
        c.out.clear();
        assert!(c.may_go_on());
        c.request(true, |_| {});
        assert_eq!(Head::parse(&c.out).unwrap().stream, 3);
        assert_eq!(c.room(), 0);
    }
}

#[test]
fn a_body_keeps_to_the_windows() {
    let mut c = fresh();
    assert_eq!(c.room(), 65_535);
    c.send_data(&[b'x'; 20_000], false);
    let first = Head::parse(&c.out).unwrap();
    assert_eq!((first.len, first.flags), (16_384, 0));
    let second = Head::parse(&c.out[HEAD_BYTES + 16_384..]).unwrap();
    assert_eq!((second.len, second.flags), (20_000 - 16_384, 0));
    assert_eq!(c.room(), 45_535);
    let mut update = Vec::new();
    frame::window_update(1, 1_000_000, &mut update);
    events(&mut c, &update).unwrap();
    assert_eq!(c.room(), 45_535, "the connection's window is the smaller");
    c.send_data(b"", true);
    assert!(c.is_closed() && c.room() == 0);
}

#[test]
fn what_a_peer_must_not_do() {
    let head = frame_of(frame::HEADERS, frame::END_HEADERS, 1, &[OK]);
    let after_head = |rest: &[u8]| events(&mut fresh(), &[&head, rest].concat()).unwrap_err();
    let alone = |bytes: &[u8]| events(&mut fresh(), bytes).unwrap_err();
    let goaway = [&[0; 4][..], &[0, 0, 0, 7]].concat();
    for (got, wanted) in [
        (alone(&frame_of(frame::DATA, 0, 1, b"x")), "unexpected http2 frame: 0"),
        (alone(&frame_of(frame::HEADERS, 4, 3, &[OK])), "frame for unknown stream 3"),
        (alone(&frame_of(frame::HEADERS, 4, 1, b"\x00\x01a\x01b")), "no :status header"),
        (alone(&frame_of(frame::HEADERS, 4, 1, &[0x21, OK])), "dynamic table size update"),
        (alone(&frame_of(frame::HEADERS, 4, 1, &[0xbe])), "invalid http2 table index"),
        (alone(&frame_of(frame::HEADERS, 4, 1, b"\x88\x00\x01A\x01b")), "invalid header"),
        (alone(&frame_of(frame::HEADERS, 4, 1, b"\x88\x00\x01a\x01\n")), "invalid header"),
        (alone(&frame_of(frame::RST_STREAM, 0, 1, &[0; 4])), "rejected request with error 0"),
        (alone(&frame_of(frame::GOAWAY, 0, 0, &goaway)), "goaway with error 7"),
        (alone(&frame_of(frame::PUSH_PROMISE, 4, 1, &[0; 4])), "push promise"),
        (alone(&frame_of(frame::WINDOW_UPDATE, 0, 0, &[0; 4])), "zero window update"),
        (alone(&frame_of(frame::PING, 1, 0, &[0; 8])), "ping frame with ack flag"),
        (alone(&frame::head(16_385, frame::HEADERS, 0, 1)), "too large http2 frame: 16385"),
        (after_head(&frame_of(frame::HEADERS, 4, 1, b"\x00\x01a\x01b")), "without end stream"),
        (after_head(&frame_of(frame::DATA, frame::PADDED, 1, b"\x05ab")), "too long padding"),
    ] {
        assert!(got.contains(wanted), "{got}: {wanted}");
    }
    let ping = frame_of(frame::PING, 0, 0, &[0; 8]).repeat(1001);
    assert!(alone(&ping).contains("too many ping frames"));
    let one = 1u32.to_be_bytes();
    for idle in [
        frame_of(frame::WINDOW_UPDATE, 0, 0, &one),
        frame_of(frame::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame_of(77, 0, 1, b"x"),
    ] {
        assert!(alone(&idle.repeat(10_001)).contains("carry nothing"));
    }
    for idle in [
        frame_of(frame::DATA, 0, 1, b""),
        frame_of(frame::DATA, frame::PADDED, 1, b"\0"),
        frame_of(frame::DATA, frame::PADDED, 1, b"\x02ab"),
    ] {
        assert!(after_head(&idle.repeat(10_001)).contains("carry nothing"));
    }
}

#[test]
fn the_request_behind_one_that_was_reset_has_a_body() {
    let mut c = fresh();
    c.send_data(b"", true);
    let end = frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &[OK]);
    let reset = frame_of(frame::RST_STREAM, 0, 1, &[0; 4]);
    assert!(events(&mut c, &[end, reset].concat()).is_ok());
    c.out.clear();
    assert!(c.may_go_on());
    c.request(false, |out| hpack::request_line(b"POST", false, b"/", Some(b"h"), out));
    assert!(!c.is_reset() && c.room() > 0);
    c.out.clear();
    c.send_data(b"body", true);
    assert_eq!(c.out, frame_of(frame::DATA, frame::END_STREAM, 3, b"body"));
}

#[test]
fn a_stream_that_has_ended() {
    let end = frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &[OK]);
    let reset = frame_of(frame::RST_STREAM, 0, 1, &[0; 4]);
    let ended = |rest: &[u8]| {
        let mut c = fresh();
        let got = events(&mut c, &[&end, rest].concat());
        (got, c)
    };
    let (got, c) = ended(&reset);
    assert_eq!(got, Ok(vec![Event::Head { end: true }]));
    assert!(c.is_reset() && c.room() == 0 && !c.may_go_on());
    assert!(ended(&reset.repeat(2)).0.is_err());
    let closed = frame_of(frame::RST_STREAM, 0, 1, &[0, 0, 0, 5]);
    assert!(ended(&closed).0.is_err());
    assert!(ended(&[&reset[..], &closed, &closed].concat()).0.is_ok(), "said again");
    assert!(ended(&frame_of(frame::DATA, 0, 1, b"x")).0.is_err());
    let goaway = frame_of(frame::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let (got, mut c) = ended(&goaway);
    c.send_data(b"", true);
    c.out.clear();
    assert!(got.is_ok() && !c.may_go_on());
}
