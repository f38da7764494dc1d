//! `auth_http`: a server that knows clients is asked who they are, and which server is theirs.

mod rows;

pub use rows::MODULE;

use crate::Session;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_conf::Position;
use weir_core::logger::LogLevel;
use weir_core::{os_text, socket_errors, Session as _};
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_runtime::clock;
use weir_tls::server::VerifyClient;
use weir_upstream::{connect_failure, Link, LinkError, PeerAddr, SocketOptions};
use weir_wire::mail::auth_answer::{Answer, Reader};
use weir_wire::mail::auth_http::{write_request, Facts, Tls};
use weir_wire::mail::session::Session as Dialogue;

/// nginx's limit for the head of an answer.
const HEAD_MAX_BYTES: usize = 1024;

/// Where the server is.
#[derive(Debug)]
enum Place {
    Known(PeerAddr),
    /// Looked up when the configuration is built.
    Named(String, u16),
}

/// What `auth_http` names.
#[derive(Debug)]
struct Server {
    place: Place,
    /// Without the scheme.
    written: String,
    /// Where the directive stands.
    at: Position,
    /// Made when the configuration is built.
    addr: OnceLock<PeerAddr>,
    /// As the request says it.
    host: Vec<u8>,
    uri: Vec<u8>,
}

/// `server` level.
#[derive(Default)]
pub(crate) struct AuthSrv {
    server: Option<Arc<Server>>,
    timeout: Val<u64>,
    pass_client_cert: Val<bool>,
    /// The lines of `auth_http_header`.
    header_lines: Vec<u8>,
}

impl ConfType for AuthSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &AuthSrv) -> ConfResult {
        if self.server.is_none() {
            self.server.clone_from(&parent.server);
        }
        if self.header_lines.is_empty() {
            self.header_lines.clone_from(&parent.header_lines);
        }
        merge_values!(self, parent; timeout = 60_000, pass_client_cert = false);
        Ok(())
    }
}

/// Asks about what the client has said; nothing, and a line in the log, if there is no answer.
pub(crate) async fn ask(s: &mut Session, dialogue: &Dialogue) -> Option<Answer> {
    let server = Arc::clone(s.server());
    let conf = server.base.conf::<AuthSrv>();
    let auth = conf.server.as_ref()?;
    let addr = auth.addr.get()?;
    let name = addr.to_string();
    let request = request(s, dialogue, conf, auth);
    match exchange(s, dialogue, addr, *conf.timeout, &request).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(e)) => {
            s.log(LogLevel::Error, &e.log(&name).to_string());
            None
        }
        Err(Failed::Timeout) => {
            let text = format!("auth http server {name} timed out (110: Connection timed out)");
            s.log(LogLevel::Error, &text);
            None
        }
        Err(Failed::Connecting(e)) => {
            let (level, text) = connect_failure(&e, Some(&name));
            s.log(level, &text);
            None
        }
        Err(Failed::Talking(call, e)) => {
            let text = format!("{call} failed ({})", os_text(&e));
            s.log(socket_errors::level(&e, LogLevel::Error), &text);
            None
        }
    }
}

fn request(s: &mut Session, dialogue: &Dialogue, conf: &AuthSrv, auth: &Server) -> Vec<u8> {
    let is_tls = s.conn().is_tls();
    let verifies = is_tls && s.base().verify_client != VerifyClient::Off;
    let mut value = |wanted: bool, name: &str| match wanted {
        true => s.value(name),
        false => Vec::new(),
    };
    let (protocol, cipher) = (value(is_tls, "ssl_protocol"), value(is_tls, "ssl_cipher"));
    let verify = value(verifies, "ssl_client_verify");
    let subject = value(verifies, "ssl_client_s_dn");
    let issuer = value(verifies, "ssl_client_i_dn");
    let serial = value(verifies, "ssl_client_serial");
    let fingerprint = value(verifies, "ssl_client_fingerprint");
    let certificate = value(verifies && *conf.pass_client_cert, "ssl_client_raw_cert");
    let conn = Rc::clone(s.conn());
    let proxied = conn.proxied.borrow();
    let tls = is_tls.then_some(Tls {
        protocol: &protocol,
        cipher: &cipher,
        verify: &verify,
        subject: &subject,
        issuer: &issuer,
        serial: &serial,
        fingerprint: &fingerprint,
        certificate: &certificate,
    });
    let facts = Facts {
        uri: &auth.uri,
        host: &auth.host,
        client_ip: s.client_text(),
        client_host: &s.host,
        proxied: proxied.as_deref(),
        tls,
        headers: &conf.header_lines,
    };
    let mut out = Vec::new();
    write_request(dialogue, &facts, &mut out);
    out
}

/// Why there was no answer.
enum Failed {
    Timeout,
    Connecting(std::io::Error),
    /// By which call.
    Talking(&'static str, std::io::Error),
}

/// What was answered: nothing, if the server has ended before its answer did.
type Answered = Result<Option<Answer>, weir_wire::mail::auth_answer::AnswerError>;

async fn exchange(
    s: &Session,
    dialogue: &Dialogue,
    addr: &PeerAddr,
    timeout_ms: u64,
    request: &[u8],
) -> Result<Answered, Failed> {
    let failed = |call: &'static str| {
        move |e: LinkError| match e {
            LinkError::Timeout => Failed::Timeout,
            LinkError::Io(e) => Failed::Talking(call, e),
            LinkError::Protocol(text) => Failed::Talking(call, std::io::Error::other(text)),
        }
    };
    let mut deadline = clock::mono_ms() + timeout_ms;
    let options = SocketOptions::default();
    let link = Link::connect(addr, &options, timeout_ms, &s.conn().worker).await;
    let mut link = link.map_err(|e| match e {
        LinkError::Io(e) => Failed::Connecting(e),
        e => failed("connect()")(e),
    })?;
    let mut rest = request;
    while !rest.is_empty() {
        let sent =
            poll_fn(|cx| link.poll_send(cx, &[IoSlice::new(rest)], &mut deadline, timeout_ms));
        let n = sent.await.map_err(failed("send()"))?;
        rest = &rest[n..];
    }
    let mut reader = Reader::new(dialogue, HEAD_MAX_BYTES);
    let mut buf = Vec::new();
    loop {
        let room = HEAD_MAX_BYTES.saturating_sub(buf.len()).max(1);
        let read =
            poll_fn(|cx| link.poll_read(cx, &mut buf, room, &mut deadline, timeout_ms)).await;
        if read.map_err(failed("recv()"))? == 0 {
            return Ok(Ok(None));
        }
        match reader.read(&buf) {
            Ok(None) => {}
            done => return Ok(done),
        }
    }
}
