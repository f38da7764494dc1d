//! A collector that speaks OTLP, over gRPC or HTTP, and says what a test wants; and the real one.

use crate::message;
use crate::origin::{Conn, Next, Origin};
use crate::tools::{self, listens_on, Running};
use crate::wait_for;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_wire::http2::frame::{self, Head, HEAD_BYTES};
use weir_wire::http2::hpack::{self, Decoder, Fields, HpackLimits};

/// One export as it came.
#[derive(Clone, Debug)]
pub struct Export {
    pub path: String,
    pub fields: Vec<(String, String)>,
    pub message: Vec<u8>,
    pub connection: usize,
}

impl Export {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The resource's attributes.
    pub fn resource(&self) -> BTreeMap<String, String> {
        attributes(&bytes(&bytes(&self.message, 1)[0], 1)[0], 1)
    }

    pub fn spans(&self) -> Vec<Span> {
        let all = bytes(&self.message, 1);
        let scopes = all.iter().flat_map(|of| bytes(of, 2));
        scopes.flat_map(|scope| bytes(&scope, 2)).map(|span| Span::read(&span)).collect()
    }
}

/// What a test looks at; ids as digits, values as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub state: String,
    pub name: String,
    pub kind: u64,
    pub began: u64,
    pub ended: u64,
    pub status: u64,
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    fn read(of: &[u8]) -> Span {
        let first = |field| bytes(of, field).into_iter().next().unwrap_or_default();
        let text = |field| String::from_utf8(first(field)).expect("texts are UTF-8");
        Span {
            trace: hex(&first(1)),
            id: hex(&first(2)),
            state: text(3),
            parent: hex(&first(4)),
            name: text(5),
            kind: number(of, 6),
            began: number(of, 7),
            ended: number(of, 8),
            status: number(&first(15), 3),
            attributes: attributes(of, 9),
        }
    }

    #[track_caller]
    pub fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.get(name);
        found.unwrap_or_else(|| panic!("no {name}: {:?}", self.attributes))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn attributes(of: &[u8], field: u64) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("texts are UTF-8");
    let value = |any: &[u8]| match (bytes(any, 1).first(), bytes(any, 5).first()) {
        (Some(value), _) => text(value),
        (None, Some(list)) => {
            let all = bytes(list, 1).iter().map(|v| text(&bytes(v, 1)[0])).collect::<Vec<_>>();
            format!("[{}]", all.join(","))
        }
        (None, None) => number(any, 3).to_string(),
    };
    let pair = |pair: Vec<u8>| (text(&bytes(&pair, 1)[0]), value(&bytes(&pair, 2)[0]));
    bytes(of, field).into_iter().map(pair).collect()
}

/// Fields of a message of protocol buffers, which must be whole.
fn fields(mut rest: &[u8]) -> Vec<(u64, Result<Vec<u8>, u64>)> {
    fn varint(rest: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = rest[0];
            *rest = &rest[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        panic!("a number without an end")
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = match tag & 7 {
            0 => Err(varint(&mut rest)),
            1 => {
                let (word, behind) = rest.split_at(8);
                rest = behind;
                Err(u64::from_le_bytes(word.try_into().unwrap()))
            }
            2 => {
                let len = varint(&mut rest) as usize;
                let (bytes, behind) = rest.split_at(len);
                rest = behind;
                Ok(bytes.to_vec())
            }
            kind => panic!("wire type {kind}"),
        };
        found.push((tag >> 3, value));
    }
    found
}

/// All messages and texts of that number.
pub fn bytes(of: &[u8], field: u64) -> Vec<Vec<u8>> {
    fields(of).into_iter().filter(|(n, _)| *n == field).filter_map(|(_, v)| v.ok()).collect()
}

/// The number of that number, or 0.
pub fn number(of: &[u8], field: u64) -> u64 {
    let found = fields(of).into_iter().find(|(n, _)| *n == field);
    found.and_then(|(_, v)| v.err()).unwrap_or(0)
}

/// What is answered to an export.
#[derive(Clone, Debug)]
pub enum Say {
    Taken,
    /// A message as it is, with success.
    Message(Vec<u8>),
    /// gRPC's status and words, or HTTP's.
    Status(u32, &'static str),
    /// Nothing until the client gives up.
    Nothing,
    /// gRPC only: it is taken, and then the connection is closed as servers close idle ones (GOAWAY first).
    TakenAndGone,
    /// gRPC only: it is taken, and then the connection is closed unless a PING is answered within two seconds.
    TakenAndPing,
    /// gRPC only: GOAWAY in place of an answer, as of a connection that was closed just before.
    Gone,
}

type Script = Arc<dyn Fn(usize) -> Say + Send + Sync>;

/// Runs until dropped.
pub struct Collector {
    origin: Origin,
    exports: Arc<Mutex<Vec<Export>>>,
    idle: Arc<AtomicUsize>,
}

impl Collector {
    /// Takes everything.
    pub fn grpc() -> Collector {
        Collector::grpc_saying(|_| Say::Taken)
    }

    /// Answers each export by its number, from 0.
    pub fn grpc_saying(script: impl Fn(usize) -> Say + Send + Sync + 'static) -> Collector {
        let exports: Arc<Mutex<Vec<Export>>> = Arc::default();
        let (all, script): (_, Script) = (Arc::clone(&exports), Arc::new(script));
        let idle: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&idle);
        let origin = Origin::start_raw(move |conn, connection| {
            serve(conn, connection, &all, &script, &count);
        });
        Collector { origin, exports, idle }
    }

    /// The same over HTTP.
    pub fn http_saying(script: impl Fn(usize) -> Say + Send + Sync + 'static) -> Collector {
        Collector::http(move |number, _| script(number))
    }

    /// Answers each export by its message.
    pub fn http_reading(script: impl Fn(&[u8]) -> Say + Send + Sync + 'static) -> Collector {
        Collector::http(move |_, message| script(message))
    }

    fn http(script: impl Fn(usize, &[u8]) -> Say + Send + Sync + 'static) -> Collector {
        let exports: Arc<Mutex<Vec<Export>>> = Arc::default();
        let all = Arc::clone(&exports);
        let origin = Origin::start(move |request, conn| {
            let mut all = all.lock().unwrap();
            let lines = request.head.lines().skip(1).filter_map(|line| line.split_once(": "));
            let number = all.len();
            all.push(Export {
                path: request.head.split(' ').nth(1).unwrap_or_default().to_owned(),
                fields: lines.map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned())).collect(),
                message: request.body.clone(),
                connection: request.connection,
            });
            drop(all);
            match script(number, &request.body) {
                Say::Taken => conn.reply("200 OK", "", ""),
                Say::Message(message) => {
                    conn.reply("200 OK", "", &String::from_utf8(message).unwrap());
                }
                Say::Status(code, words) => conn.reply(&format!("{code} X"), "", words),
                Say::Nothing => {
                    conn.wait_closed();
                }
                Say::TakenAndGone | Say::TakenAndPing | Say::Gone => panic!("this is gRPC's"),
            }
            Next::Keep
        });
        Collector { origin, exports, idle: Arc::default() }
    }

    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    pub fn exports(&self) -> Vec<Export> {
        self.exports.lock().unwrap().clone()
    }

    /// How often it has closed an idle connection, or was answered a PING in time.
    pub fn idle(&self) -> usize {
        self.idle.load(Ordering::SeqCst)
    }

    pub fn spans(&self) -> Vec<Span> {
        self.exports().iter().flat_map(Export::spans).collect()
    }

    /// Waits until there are so many.
    #[track_caller]
    pub fn expect_spans(&self, count: usize) -> Vec<Span> {
        let done = wait_for(|| self.spans().len() >= count, crate::AT_LAST);
        let spans = self.spans();
        assert!(done && spans.len() == count, "{} spans: {spans:#?}", spans.len());
        spans
    }
}

/// Calls of one connection, one after the other.
fn serve(
    conn: &mut Conn,
    connection: usize,
    all: &Mutex<Vec<Export>>,
    script: &Script,
    idle: &AtomicUsize,
) {
    let mut out = Vec::new();
    frame::settings(&[(frame::SETTING_INITIAL_WINDOW_SIZE, 1 << 24)], &mut out);
    out.extend_from_slice(&frame::head(4, frame::WINDOW_UPDATE, 0, 0));
    out.extend_from_slice(&(1u32 << 30).to_be_bytes());
    conn.write(&out);
    if conn.read_exactly(24).is_none() {
        return;
    }
    let mut decoder = Decoder::default();
    while let Some((stream, fields, body)) = call(conn, &mut decoder) {
        let number = all.lock().unwrap().len();
        let find = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let path = find(":path").unwrap_or_default();
        assert_eq!(body[0], 0, "not packed");
        let message = body[5..].to_vec();
        all.lock().unwrap().push(Export { path, fields, message, connection });
        match script(number) {
            Say::Taken => answer(conn, stream, 0, "", &[]),
            Say::Message(message) => answer(conn, stream, 0, "", &message),
            Say::Status(code, words) => answer(conn, stream, code, words, &[]),
            Say::Nothing => {
                conn.wait_closed();
                return;
            }
            Say::TakenAndGone => {
                answer(conn, stream, 0, "", &[]);
                // Not in one piece with the answer.
                std::thread::sleep(Duration::from_millis(50));
                go_away(conn, stream);
                idle.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Say::TakenAndPing => {
                answer(conn, stream, 0, "", &[]);
                if !ping(conn) {
                    return;
                }
                idle.fetch_add(1, Ordering::SeqCst);
            }
            Say::Gone => return go_away(conn, stream - 2),
        }
    }
}

/// The connection is closed; streams up to this one were seen.
fn go_away(conn: &mut Conn, last: u32) {
    let mut out = frame::head(8, frame::GOAWAY, 0, 0).to_vec();
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    conn.write(&out);
}

/// Whether it is answered in time.
fn ping(conn: &mut Conn) -> bool {
    let mut out = Vec::new();
    frame::ping(0, b"are you?", &mut out);
    conn.write(&out);
    conn.patience(Duration::from_secs(2));
    let answered = loop {
        let Some(head) = conn.read_exactly(HEAD_BYTES).and_then(|head| Head::parse(&head)) else {
            break false;
        };
        if conn.read_exactly(head.len).is_none() {
            break false;
        }
        if head.kind == frame::PING && head.flags & frame::ACK != 0 {
            break true;
        }
    };
    conn.patience(crate::PATIENCE * 2);
    answered
}

type Call = (u32, Vec<(String, String)>, Vec<u8>);

fn call(conn: &mut Conn, decoder: &mut Decoder) -> Option<Call> {
    let (mut fields, mut body) = (Vec::new(), Vec::new());
    loop {
        let head = Head::parse(&conn.read_exactly(HEAD_BYTES)?)?;
        let payload = conn.read_exactly(head.len)?;
        match head.kind {
            frame::HEADERS => {
                let limits = HpackLimits { string_max_bytes: 1 << 16, block_max_bytes: 1 << 16 };
                let mut found = Fields::default();
                decoder.decode(&payload, &limits, &mut found).expect("a header block");
                let text = message::latin1;
                fields = found.iter().map(|(n, v)| (text(n), text(v))).collect();
            }
            frame::DATA => body.extend_from_slice(&payload),
            _ => continue,
        }
        if head.flags & frame::END_STREAM != 0 {
            return Some((head.stream, fields, body));
        }
    }
}

fn answer(conn: &mut Conn, stream: u32, status: u32, words: &str, message: &[u8]) {
    let mut out = Vec::new();
    let block = |end: bool, write: &dyn Fn(&mut Vec<u8>), out: &mut Vec<u8>| {
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        write(out);
        frame::finish_block(out, at, stream, if end { frame::END_STREAM } else { 0 }, 16_384);
    };
    block(false, &|out| hpack::status(200, out), &mut out);
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    out.extend_from_slice(&frame::head(body.len(), frame::DATA, 0, stream));
    out.extend_from_slice(&body);
    let trailers = |out: &mut Vec<u8>| {
        hpack::literal(b"grpc-status", status.to_string().as_bytes(), out);
        hpack::literal(b"grpc-message", words.as_bytes(), out);
    };
    block(true, &trailers, &mut out);
    conn.write(&out);
}

/// The OpenTelemetry collector with OTLP over gRPC and HTTP on these ports, over gRPC with TLS on the third (`cert.pem`,
/// `key.pem` of the folder), which writes logs, metrics and spans as JSON to `out.json` there. Without it the test is
/// skipped.
pub fn start_real(dir: &Path, [grpc, http, tls]: [u16; 3]) -> Option<Running> {
    let collector = tools::need("otelcol")?;
    let shown = dir.display();
    let pipeline =
        |kind| format!("    {kind}:\n      receivers: [otlp, otlp/tls]\n      exporters: [file]\n");
    let pipelines: String = ["logs", "metrics", "traces"].into_iter().map(pipeline).collect();
    let text = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: 127.0.0.1:{grpc}\n      http:\n        endpoint: 127.0.0.1:{http}\n  \
         otlp/tls:\n    protocols:\n      grpc:\n        endpoint: 127.0.0.1:{tls}\n        tls:\n          cert_file: {shown}/cert.pem\n          key_file: {shown}/key.pem\n\
         exporters:\n  file:\n    path: {shown}/out.json\n    flush_interval: 50ms\n\
         service:\n  telemetry:\n    metrics:\n      level: none\n  pipelines:\n{pipelines}"
    );
    let conf = dir.join("collector.yaml");
    std::fs::write(&conf, text).unwrap();
    let log = std::fs::File::create(dir.join("collector.log")).unwrap();
    let running = collector.start(|command| {
        command.arg("--config").arg(format!("file:{}", conf.display())).stderr(log);
    });
    let up = wait_for(|| [http, grpc, tls].iter().all(|p| listens_on(*p)), Duration::from_secs(30));
    assert!(up, "{}", std::fs::read_to_string(dir.join("collector.log")).unwrap_or_default());
    Some(running)
}
