use super::*;
use crate::common::Address;
use crate::fake::{self, answer};
use crate::receiver::Stop;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{channel, Receiver};
use std::thread;
use weir_shipping::otlp::{grpc, proto};
use weir_wire::http2::{frame, hpack};

fn texts() -> [Vec<u8>; 2] {
    [b"{\"message\":\"a\"}".to_vec(), b"{\"message\":\"b\"}".to_vec()]
}

fn partial(rejected: u64, why: &str) -> Vec<u8> {
    let mut out = Vec::new();
    proto::Message::new(&mut out).message(1, |m| {
        m.number(1, rejected);
        m.text(2, why);
    });
    out
}

fn exporter(way: Way) -> Box<dyn Client> {
    let resource = [("service.name".to_owned(), "w".to_owned())];
    Otlp { way, resource: resource.into() }.client(fake::ground())
}

#[test]
fn over_http() {
    let (port, told) = fake::http(vec![
        answer("200 OK", "", ""),
        answer("200 OK", "", partial(1, "old")),
        answer("200 OK", "", partial(0, "beware")),
        answer("400 Bad", "", "no"),
        answer("503 Busy", "Retry-After: 2\r\n", "no"),
        "HTTP/1.1 200 OK\r\nContent-Le".into(),
        answer("200 OK", "", ""),
    ]);
    let mut exporter = exporter(Way::Http(Arc::new(HttpConf::fake(port))));
    let mut send = || fake::send(&mut *exporter, &texts());
    assert!(matches!(send(), Outcome::All));
    let request = told.recv().unwrap();
    assert!(request.head.starts_with("post /v1/logs http/1.1\r\n"), "{}", request.head);
    assert!(request.head.contains("\r\ncontent-type: application/x-protobuf\r\n"));
    assert!(String::from_utf8_lossy(&request.body).contains("0000000000000001-2-1"));
    let Outcome::Some { done, refused, .. } = send() else { panic!() };
    assert_eq!((done, refused.len()), (vec![true, false], 1));
    assert!(matches!(send(), Outcome::All));
    let Outcome::Some { refused, .. } = send() else { panic!() };
    assert_eq!(refused.len(), 2);
    let Outcome::Later { after, .. } = send() else { panic!() };
    assert_eq!(after, Some(Duration::from_secs(2)));
    let outcome = send();
    assert!(matches!(outcome, Outcome::Later { .. }), "half an answer: {outcome:?}");
    assert!(matches!(send(), Outcome::All));
}

/// What the gRPC server does with a call.
#[derive(Clone)]
enum Trick {
    /// A message and its status.
    Answer(Vec<u8>, u32, &'static str),
    /// The same, packed.
    Packed(Vec<u8>),
    /// A head that is the end, too.
    Trailers(u32, &'static str),
    /// The head, and then no more.
    Half,
    Close,
    Http(u16),
    Long,
}

/// The call's fields, and its message as it came.
type Call = (Vec<(String, String)>, Vec<u8>);

fn server(tricks: Vec<Trick>) -> (u16, Receiver<Call>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut tricks = tricks.into_iter().peekable();
        while tricks.peek().is_some() {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; 24]).unwrap();
            let mut out = Vec::new();
            frame::settings(&[], &mut out);
            socket.write_all(&out).unwrap();
            let mut decoder = hpack::Decoder::without_table();
            while let Some((id, call)) = call(&mut socket, &mut decoder) {
                tell.send(call).unwrap();
                let Some(trick) = tricks.next() else { return };
                if !play(&mut socket, id, trick) {
                    end(&mut socket);
                    break;
                }
            }
        }
    });
    (port, told)
}

/// What the client has on its way is read: closed over it, the socket would send a reset that
/// overtakes the answer.
fn end(socket: &mut TcpStream) {
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let _ = std::io::copy(socket, &mut std::io::sink());
}

fn call(socket: &mut TcpStream, decoder: &mut hpack::Decoder) -> Option<(u32, Call)> {
    let (mut fields, mut body) = (Vec::new(), Vec::new());
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; len];
        socket.read_exact(&mut payload).ok()?;
        match head[3] {
            frame::HEADERS => {
                let mut found = hpack::Fields::default();
                let limits = hpack::HpackLimits { string_max_bytes: 9999, block_max_bytes: 9999 };
                decoder.decode(&payload, &limits, &mut found).ok()?;
                let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                fields = found.iter().map(|(n, v)| (text(n), text(v))).collect();
            }
            frame::DATA => body.extend_from_slice(&payload),
            _ => continue,
        }
        if head[4] & frame::END_STREAM != 0 {
            return Some((id, (fields, body)));
        }
    }
}

fn head(id: u32, end: bool, write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; frame::HEAD_BYTES]);
    write(out);
    frame::finish_block(out, at, id, if end { frame::END_STREAM } else { 0 }, 16_384);
}

fn play(socket: &mut TcpStream, id: u32, trick: Trick) -> bool {
    let mut out = Vec::new();
    let trailers = |code: u32, text: &str, out: &mut Vec<u8>| {
        hpack::literal(b"grpc-status", code.to_string().as_bytes(), out);
        hpack::literal(b"grpc-message", text.as_bytes(), out);
    };
    let data = |bytes: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(&frame::head(bytes.len(), frame::DATA, 0, id));
        out.extend_from_slice(bytes);
    };
    match trick {
        Trick::Close => return false,
        Trick::Http(code) => head(id, true, |out| hpack::status(code, out), &mut out),
        Trick::Half => head(id, false, |out| hpack::status(200, out), &mut out),
        Trick::Trailers(code, text) => head(
            id,
            true,
            |out| {
                hpack::status(200, out);
                trailers(code, text, out);
            },
            &mut out,
        ),
        Trick::Long => {
            head(id, false, |out| hpack::status(200, out), &mut out);
            (0..20).for_each(|_| data(&[0; 8000], &mut out));
        }
        Trick::Packed(ref message) => {
            head(id, false, |out| hpack::status(200, out), &mut out);
            data(&grpc::frame(&pack(message).unwrap(), true), &mut out);
            head(id, true, |out| trailers(0, "", out), &mut out);
        }
        Trick::Answer(ref message, code, text) => {
            head(id, false, |out| hpack::status(200, out), &mut out);
            data(&grpc::frame(message, false), &mut out);
            head(id, true, |out| trailers(code, text, out), &mut out);
        }
    }
    let _ = socket.write_all(&out);
    !matches!(trick, Trick::Half | Trick::Long | Trick::Http(_))
}

#[test]
fn over_grpc() {
    let (port, told) = server(vec![
        Trick::Answer(Vec::new(), 0, ""),
        Trick::Packed(partial(1, "old")),
        Trick::Trailers(14, "go%20away"),
        Trick::Trailers(3, "bad"),
        Trick::Half,
        Trick::Close,
        Trick::Http(502),
        Trick::Long,
        Trick::Answer(Vec::new(), 0, ""),
    ]);
    let address = Address { scheme: "grpc".into(), host: "127.0.0.1".into(), port };
    let conf = conf::Grpc::fake(address);
    let mut exporter = exporter(Way::Grpc(Arc::new(conf)));
    let mut send = || fake::send(&mut *exporter, &texts());
    assert!(matches!(send(), Outcome::All));
    let (fields, body) = told.recv().unwrap();
    let field = |name: &str| &fields.iter().find(|(n, _)| n == name).unwrap().1[..];
    assert_eq!(field(":path"), LOGS.method);
    assert_eq!(field("content-type"), "application/grpc");
    assert_eq!(field("te"), "trailers");
    assert_eq!(field("grpc-encoding"), "gzip");
    assert_eq!(field("x-tenant"), "us");
    let mut message = Vec::new();
    flate2::read::GzDecoder::new(&body[5..]).read_to_end(&mut message).unwrap();
    assert_eq!(
        (body[0], body.len()),
        (1, 5 + u32::from_be_bytes([body[1], body[2], body[3], body[4]]) as usize)
    );
    assert!(String::from_utf8_lossy(&message).contains("0000000000000001-2-1"));
    let Outcome::Some { refused, .. } = send() else { panic!() };
    assert_eq!(refused.len(), 1);
    let mut later = |words: &str| match send() {
        Outcome::Later { why, .. } => assert!(why.contains(words), "{why}"),
        other => panic!("{words}: {other:?}"),
    };
    later("UNAVAILABLE (14): go away");
    let Outcome::Some { refused, .. } = fake::send(&mut *exporter, &texts()) else { panic!() };
    assert_eq!(refused.len(), 2);
    let mut later = |words: &str| match fake::send(&mut *exporter, &texts()) {
        Outcome::Later { why, .. } => assert!(why.contains(words), "{why}"),
        other => panic!("{words}: {other:?}"),
    };
    later("closed");
    later("closed");
    later("502");
    later("too long");
    assert!(matches!(fake::send(&mut *exporter, &texts()), Outcome::All));
}

/// A message that is larger than all windows goes as the server lets it.
#[test]
fn large_messages_wait_for_windows() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 24]).unwrap();
        let mut out = Vec::new();
        frame::settings(&[], &mut out);
        socket.write_all(&out).unwrap();
        let mut got = 0;
        loop {
            let mut head = [0; 9];
            socket.read_exact(&mut head).unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            socket.read_exact(&mut payload).unwrap();
            if head[3] != frame::DATA {
                continue;
            }
            got += payload.len();
            let mut out = Vec::new();
            frame::window_update(0, payload.len() as u32, &mut out);
            frame::window_update(1, payload.len() as u32, &mut out);
            if head[4] & frame::END_STREAM != 0 {
                play(&mut socket, 1, Trick::Answer(Vec::new(), 0, ""));
                return got;
            }
            socket.write_all(&out).unwrap();
        }
    });
    let mut caller = Caller {
        address: Address { scheme: "grpc".into(), host: "127.0.0.1".into(), port },
        tls: None,
        timeout: Duration::from_secs(10),
        fields: Vec::new(),
        packed: false,
        stop: Arc::new(Stop::default()),
        open: None,
    };
    let reply = caller.call("/x", &vec![7; 1 << 20]).unwrap();
    assert_eq!(reply.status, 0);
    assert_eq!(server.join().unwrap(), 5 + (1 << 20));
}
