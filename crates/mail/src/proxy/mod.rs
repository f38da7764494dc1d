//! nginx's `ngx_mail_proxy_module`: the server that a client has been given is told of it, and the two talk.

mod rows;

pub use rows::MODULE;

use crate::Session;
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use weir_core::logger::LogLevel;
use weir_core::proxy_header::Sent;
use weir_core::relay::{End, How, Talk, Waits};
use weir_core::{os_text, socket_errors, ClientAddr, Session as _};
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_runtime::clock;
use weir_upstream::{connect_failure, Link, LinkError, PeerAddr, SocketOptions};
use weir_wire::mail::backend::{Client, Conversation, Failure, Options, Step};
use weir_wire::mail::sasl::Credentials;
use weir_wire::mail::session::Session as Dialogue;

/// `server` level.
#[derive(Default)]
pub(crate) struct ProxySrv {
    /// nginx reads it and asks nobody: clients are brought to servers either way.
    enable: Val<bool>,
    buffer: Val<u64>,
    timeout: Val<u64>,
    pass_error_message: Val<bool>,
    xclient: Val<bool>,
    smtp_auth: Val<bool>,
    proxy_protocol: Val<Sent>,
}

impl ConfType for ProxySrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &ProxySrv) -> ConfResult {
        merge_values!(self, parent;
            enable = false,
            buffer = crate::conf::PAGE_BYTES,
            timeout = 24 * 60 * 60 * 1000,
            pass_error_message = false,
            xclient = true,
            smtp_auth = false,
            proxy_protocol = Sent::Off,
        );
        Ok(())
    }
}

/// Connects to the server and logs in for the client; an error has the words that the client is told before the
/// session ends. What is left of what the client has said goes to the server first.
pub(crate) async fn join(
    s: &mut Session,
    dialogue: &Dialogue,
    server: SocketAddr,
    credentials: Credentials,
    rest: Vec<u8>,
) -> Result<Talk, Vec<u8>> {
    s.doing = "connecting to upstream";
    let upstream: Box<str> = format!("{}:{}", server.ip(), server.port()).into();
    s.facts.turns_to(&upstream);
    s.upstream = Some(upstream);
    let options = options(s);
    let client = Client {
        address: s.client_text().to_vec(),
        is_ipv6: matches!(s.client(), ClientAddr::Ip(addr) if addr.is_ipv6()),
        host: s.host.clone(),
    };
    let reply_max_bytes = options.reply_max_bytes;
    let conversation = Conversation::new(dialogue, credentials, options, client);
    let internal_error = dialogue.protocol().internal_error();
    let deadline = clock::mono_ms() + *s.server().core.timeout;
    let Some(link) = connect(s, server).await else { return Err(internal_error.to_vec()) };
    let mut login = Login { s, link, conversation, buf: Vec::new(), reply_max_bytes, deadline };
    match login.run().await {
        Ok(()) => {
            let Login { link, mut conversation, .. } = login;
            let from_server = std::mem::take(&mut conversation.out);
            s.doing = "";
            s.log(LogLevel::Info, "client logged in");
            s.shrink();
            let received = [0, from_server.len() as u64];
            Ok(Talk::new(link.stream, how(s), [rest, from_server], received))
        }
        Err(Some(words)) => Err(words),
        Err(None) => Err(internal_error.to_vec()),
    }
}

fn options(s: &Session) -> Options {
    let conf = s.base().conf::<ProxySrv>();
    Options {
        pass_error_message: *conf.pass_error_message,
        xclient: *conf.xclient,
        smtp_auth: *conf.smtp_auth,
        reply_max_bytes: *conf.buffer as usize,
        server_name: s.server().settings.server_name.clone(),
    }
}

fn how(s: &Session) -> How {
    let conf = s.base().conf::<ProxySrv>();
    let (size, waits) = (*conf.buffer as usize, Waits::all(*conf.timeout));
    How { size, waits, half_close: false, rates: [0, 0] }
}

async fn connect(s: &mut Session, server: SocketAddr) -> Option<Box<Link>> {
    let timeout_ms = *s.server().core.timeout;
    let (addr, options) = (PeerAddr::Ip(server), SocketOptions::default());
    match Link::connect(&addr, &options, timeout_ms, &s.conn().worker).await {
        Ok(link) => {
            link.stream.set_nodelay(true);
            s.facts.connected();
            Some(link)
        }
        Err(LinkError::Io(e)) => {
            let (level, text) = connect_failure(&e, s.upstream.as_deref());
            s.log(level, &text);
            None
        }
        Err(e) => {
            log_link(s, "connect()", e);
            None
        }
    }
}

fn log_link(s: &Session, call: &str, e: LinkError) {
    match e {
        LinkError::Timeout => {
            s.log(LogLevel::Info, "upstream timed out (110: Connection timed out)");
        }
        LinkError::Io(e) => {
            let text = format!("{call} failed ({})", os_text(&e));
            s.log(socket_errors::level(&e, LogLevel::Error), &text);
        }
        LinkError::Protocol(text) => s.log(LogLevel::Error, &text),
    }
}

/// What is said to a server until it has let the client in.
struct Login<'a> {
    s: &'a mut Session,
    link: Box<Link>,
    conversation: Conversation,
    /// What the server has said and nobody has understood yet.
    buf: Vec<u8>,
    reply_max_bytes: usize,
    /// When it must have let the client in, in monotonic ms.
    deadline: u64,
}

impl Login<'_> {
    /// An error has the words of the server for the client, if it is to be told them.
    async fn run(&mut self) -> Result<(), Option<Vec<u8>>> {
        self.send_header()?;
        loop {
            let (read, step) = self.conversation.advance(&self.buf);
            self.buf.drain(..read);
            match step {
                Step::NeedMore => self.read().await?,
                Step::Send => self.send().await?,
                Step::Join => return Ok(()),
                Step::Failed => {
                    self.log_failure();
                    return Err(Some(std::mem::take(&mut self.conversation.out)));
                }
            }
        }
    }

    fn send_header(&mut self) -> Result<(), Option<Vec<u8>>> {
        let version = *self.s.base().conf::<ProxySrv>().proxy_protocol;
        if version == Sent::Off {
            return Ok(());
        }
        self.s.doing = "sending PROXY protocol header to upstream";
        let mut header = Vec::new();
        version.write(self.s, &mut header);
        if !self.link.send_at_once(&header) {
            self.s.log(LogLevel::Error, "could not send PROXY protocol header at once");
            return Err(None);
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Option<Vec<u8>>> {
        self.s.doing = "reading response from upstream";
        let room = self.reply_max_bytes.saturating_sub(self.buf.len());
        if room == 0 {
            return Err(None);
        }
        let (link, buf, deadline) = (&mut self.link, &mut self.buf, &mut self.deadline);
        match poll_fn(|cx| link.poll_read(cx, buf, room, deadline, 0)).await {
            // As in nginx nothing is said of a server that ends.
            Ok(0) => Err(None),
            Ok(_) => Ok(()),
            Err(e) => {
                log_link(self.s, "recv()", e);
                Err(None)
            }
        }
    }

    async fn send(&mut self) -> Result<(), Option<Vec<u8>>> {
        let out = std::mem::take(&mut self.conversation.out);
        let (link, deadline) = (&mut self.link, &mut self.deadline);
        let mut rest = &out[..];
        while !rest.is_empty() {
            match poll_fn(|cx| link.poll_send(cx, &[IoSlice::new(rest)], deadline, 0)).await {
                Ok(n) => rest = &rest[n..],
                Err(e) => {
                    log_link(self.s, "send()", e);
                    return Err(None);
                }
            }
        }
        Ok(())
    }

    fn log_failure(&mut self) {
        let Some(failure) = self.conversation.failure.take() else { return };
        let passes = *self.s.base().conf::<ProxySrv>().pass_error_message;
        let level = match failure {
            Failure::Invalid(_) if passes => LogLevel::Info,
            _ => LogLevel::Error,
        };
        self.s.log(level, &failure.to_string());
    }
}

/// The client and the server talk until one of them is done.
pub(crate) async fn relay(s: &mut Session, mut talk: Talk) {
    s.doing = "proxying";
    let end = poll_fn(|cx| talk.poll(s, cx)).await;
    match end {
        End::Timeout => s.log(LogLevel::Info, "client timed out (110: Connection timed out)"),
        End::Cut => s.log(LogLevel::Info, "shutdown timeout"),
        End::Done(_) => {
            s.doing = "";
            s.log(LogLevel::Info, "proxied session done");
        }
        End::Broken => {}
    }
}
