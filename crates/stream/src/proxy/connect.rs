//! A server is found for a session, and connected to; where that fails, the next.

use super::balanced::{Answer, Balanced};
use super::{datagrams, toward, Pass, ProxySrv};
use crate::serve::{BAD_GATEWAY, ERROR, OK};
use crate::Session;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::addr::{EndpointOptions, Host};
use weir_core::bind;
use weir_core::logger::LogLevel;
use weir_core::relay::{End, How, Talk, Waits, CLIENT};
use weir_core::timing::UpstreamState;
use weir_core::Session as _;
use weir_resolve::message::error_text as dns_text;
use weir_resolve::{Failed, Question};
use weir_runtime::clock;
use weir_runtime::listen::parse_endpoint;
use weir_runtime::net::{is_out_of_descriptors, Stream};
use weir_script::template::Template;
use weir_tls::TlsError;
use weir_upstream::{
    ad_hoc, connect_failure, error_text, Choice, Key, Lease, Link, LinkError, Peer, PeerAddr,
    SecureError, SocketOptions, UpstreamMain, Wanted, WorkerGroup,
};

/// No name of a protocol is longer (RFC 7301, section 3.1).
const ALPN_MAX_BYTES: usize = 255;

/// Of a server that has failed as often as it may.
const DISABLED: &str = "upstream server temporarily disabled";

/// A server is there.
struct Joined {
    to: To,
    lease: Lease,
}

enum To {
    Bytes(Talk),
    Datagrams(Stream, datagrams::How, Vec<u8>),
}

/// Asks servers until one takes the session, and lets the two talk.
pub(super) async fn run(s: &mut Session) -> u16 {
    // In a box of its own, for that takes far more room than what follows.
    let mut joined = match Box::pin(join(s)).await {
        Ok(joined) => joined,
        Err(status) => return status,
    };
    let (status, failed) = match &mut joined.to {
        To::Bytes(talk) => {
            let end = poll_fn(|cx| talk.poll(s, cx)).await;
            log_end(s, end);
            (OK, false)
        }
        To::Datagrams(link, how, first) => Box::pin(datagrams::run(s, link, how, first)).await,
    };
    let mut lease = joined.lease;
    if let Some(state) = s.upstream.last() {
        lease.took(state);
    }
    if lease.end(failed) {
        s.log(LogLevel::Warn, DISABLED);
    }
    status
}

/// Finds a server; an error is the status to end with.
async fn join(s: &mut Session) -> Result<Box<Joined>, u16> {
    let server = Arc::clone(s.server());
    let conf = server.conf::<ProxySrv>();
    s.log_more = Some(log_more);
    let pass = conf.pass.as_ref().ok_or(ERROR)?;
    let group = find(s, pass).await?;
    let mut choice = group.choice();
    if *conf.next_upstream_tries > 0 {
        let most = u32::try_from(*conf.next_upstream_tries).unwrap_or(u32::MAX);
        choice.tries = choice.tries.min(most);
    }
    let key = group.key(s);
    if s.match_failed() {
        return Err(ERROR);
    }
    let options = socket_options(s, conf);
    // As in nginx, datagrams have none.
    let tls = match *conf.ssl && !s.conn().is_udp() {
        false => None,
        true => {
            let mut wanted = conf.tls.wanted(s, &group.shown_name).ok_or(ERROR)?;
            wanted.alpn = alpn(s, conf);
            Some(wanted)
        }
    };
    if s.match_failed() {
        return Err(ERROR);
    }
    let balanced = Balanced::of(&group, conf, &mut choice);
    let mut way = Way { conf, group, choice, key, balanced, options, tls };
    way.go(s).await
}

/// Through an upstream, to a server that takes the session.
struct Way<'a> {
    conf: &'a ProxySrv,
    group: Rc<WorkerGroup>,
    choice: Choice,
    key: Key,
    /// Where code chooses.
    balanced: Option<Balanced>,
    options: SocketOptions,
    tls: Option<Wanted>,
}

impl Way<'_> {
    async fn go(&mut self, s: &mut Session) -> Result<Box<Joined>, u16> {
        let begun_ms = clock::mono_ms();
        let conf = self.conf;
        loop {
            s.doing = "connecting to upstream";
            let lease = match self.pick(s)? {
                Picked::Server(lease) => lease,
                Picked::None if self.choice.tries > 0 && *conf.next_upstream => continue,
                Picked::None => return Err(BAD_GATEWAY),
            };
            let peer = lease.group().name_of(lease.peer);
            s.upstream.push(UpstreamState::new(peer, false));
            let asked_us = clock::mono_us();
            lease.chosen(asked_us);
            let status = match self.connect(s, &lease).await {
                Ok(connected) => return self.begin(s, connected, lease, asked_us),
                Err(status) => status,
            };
            if let Some(state) = s.upstream.last_mut() {
                state.response_us = Some(clock::mono_us().saturating_sub(asked_us));
            }
            let is_late = *conf.next_upstream_timeout > 0
                && clock::mono_ms() - begun_ms >= *conf.next_upstream_timeout;
            if self.give_back(lease, status.is_none()) {
                s.log(LogLevel::Warn, DISABLED);
            }
            if let Some(status) = status {
                return Err(status);
            }
            if self.choice.tries == 0 || !*conf.next_upstream || is_late {
                return Err(BAD_GATEWAY);
            }
        }
    }

    /// The next server; an error is the status to end with.
    fn pick(&mut self, s: &mut Session) -> Result<Picked, u16> {
        let Way { group, choice, key, balanced, .. } = self;
        let lease = match balanced {
            None => group.pick(choice, key),
            Some(balanced) => match balanced.choose(s, group, choice, key) {
                Answer::Server(lease) => lease,
                Answer::Status(status) => return Err(status),
                Answer::Next => return Ok(Picked::None),
            },
        };
        if let Some(lease) = lease {
            return Ok(Picked::Server(lease));
        }
        let peer = Rc::clone(&group.shown_name);
        let state = UpstreamState::new(peer, false);
        s.upstream.push(UpstreamState { response_us: Some(0), ..state });
        s.log(LogLevel::Error, "no live upstreams");
        Err(BAD_GATEWAY)
    }

    fn give_back(&mut self, lease: Lease, failed: bool) -> bool {
        match &mut self.balanced {
            None => lease.release(&mut self.choice, failed),
            Some(balanced) => balanced.give_back(lease, &self.group, &mut self.choice, failed),
        }
    }

    /// An error is a status to end with, or `None` for the next server.
    async fn connect(&mut self, s: &mut Session, lease: &Lease) -> Result<Connected, Option<u16>> {
        let balanced = self.balanced.as_ref();
        if let Some(local) = balanced.and_then(Balanced::local) {
            self.options.bind = Some(local);
        }
        if s.conn().is_udp() {
            return connect_udp(s, lease, &self.options).map(Connected::Datagrams);
        }
        let timeout = balanced.and_then(Balanced::connect_ms);
        let timeout = timeout.unwrap_or(*self.conf.connect_timeout);
        let tls = self.tls.as_ref();
        connect(s, (self.conf, timeout), lease, &self.options, tls).await.map(Connected::Bytes)
    }

    /// The client and the server are to talk.
    fn begin(
        &self,
        s: &mut Session,
        connected: Connected,
        lease: Lease,
        asked_us: u64,
    ) -> Result<Box<Joined>, u16> {
        let quiet = self.balanced.as_ref().and_then(Balanced::quiet_ms);
        begin(s, (self.conf, quiet), connected, lease, asked_us)
    }
}

/// What has come of looking for a server.
enum Picked {
    Server(Lease),
    /// The code wants to be asked again.
    None,
}

/// Behind the lines of the error log: the server, and how much has passed.
fn log_more(s: &Session, line: &mut Vec<u8>) {
    let last = s.upstream.last();
    if let Some(state) = last.filter(|state| !state.peer.is_empty()) {
        line.extend_from_slice(b", upstream: \"");
        line.extend_from_slice(&state.peer);
        line.push(b'"');
    }
    let (from, to) = last.map_or((0, 0), |state| (state.bytes_received, state.bytes_sent));
    let text = format!(
        ", bytes from/to client:{}/{}, bytes from/to upstream:{from}/{to}",
        s.received, s.sent
    );
    line.extend_from_slice(text.as_bytes());
}

pub(super) fn socket_options(s: &mut Session, conf: &ProxySrv) -> SocketOptions {
    let size = |n: u64| (n > 0).then_some(n as usize);
    SocketOptions {
        bind: conf.bind.as_ref().and_then(|b| bind::address(s, b)),
        transparent: conf.bind.as_ref().is_some_and(|b| b.transparent),
        keepalive: *conf.socket_keepalive,
        rcvbuf: size(*conf.socket_rcvbuf),
        sndbuf: size(*conf.socket_sndbuf),
    }
}

/// The servers that a session may go to, or the status that it ends with.
async fn find(s: &mut Session, pass: &Pass) -> Result<Rc<WorkerGroup>, u16> {
    match pass {
        Pass::Fixed(upstream) => {
            let gen = Rc::clone(s.gen());
            let group = gen.shared.main.get::<UpstreamMain>().group(*upstream).ok_or(ERROR)?;
            Ok(group.on(&s.conn().worker))
        }
        Pass::Vars(template) => evaluate(s, template).await,
    }
}

async fn evaluate(s: &mut Session, template: &Template) -> Result<Rc<WorkerGroup>, u16> {
    let text = s.eval(template);
    if s.match_failed() {
        return Err(ERROR);
    }
    let shown = String::from_utf8_lossy(&text).into_owned();
    let url = parse_endpoint(&text, EndpointOptions::default()).map_err(|e| {
        s.log(LogLevel::Error, &format!("{e} in upstream \"{shown}\""));
        ERROR
    })?;
    let gen = Rc::clone(s.gen());
    let port = url.port.unwrap_or(0);
    let main = gen.shared.main.get::<UpstreamMain>();
    if let Some(group) = main.find(url.host_text, port, url.port.is_none()) {
        return Ok(group.on(&s.conn().worker));
    }
    let host = url.host_text;
    if port == 0 && !matches!(url.host, Host::Unix(_)) {
        let name = String::from_utf8_lossy(host).into_owned();
        s.log(LogLevel::Error, &format!("no port in upstream \"{name}\""));
        return Err(ERROR);
    }
    let one = |addr: PeerAddr| vec![Peer::new(addr, host)];
    let peers = match url.host {
        Host::V4(a) => one(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::V6(a) => one(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::Unix(path) => one(PeerAddr::Unix(weir_runtime::paths::path(path).into_owned())),
        Host::Name(_) | Host::Any => resolve(s, host, port).await?,
    };
    Ok(ad_hoc(host, peers))
}

async fn resolve(s: &mut Session, host: &[u8], port: u16) -> Result<Vec<Peer>, u16> {
    let name = String::from_utf8_lossy(host).into_owned();
    let base = Arc::clone(&s.server().base);
    let Some(resolver) = &base.resolver else {
        s.log(LogLevel::Error, &format!("no resolver defined to resolve {name}"));
        return Err(ERROR);
    };
    weir_core::resolver::log_to(resolver, &base.error_log);
    match resolver.resolve(Question::Name(&name), base.resolver_timeout_ms).await {
        Ok(found) => {
            let peer = |t: weir_resolve::Target| {
                Peer::new(PeerAddr::Ip(SocketAddr::new(t.ip, port)), host)
            };
            Ok(found.targets.into_iter().map(peer).collect())
        }
        Err(Failed { code, .. }) => {
            let text = dns_text(code);
            s.log(LogLevel::Error, &format!("{name} could not be resolved ({code}: {text})"));
            Err(ERROR)
        }
    }
}

enum Connected {
    Bytes(Box<Link>),
    Datagrams(Stream),
}

/// A socket for datagrams; an error is as that of [`connect`].
fn connect_udp(
    s: &mut Session,
    lease: &Lease,
    options: &SocketOptions,
) -> Result<Stream, Option<u16>> {
    datagrams::connect(&lease.config().addr, options, &s.conn().worker).map_err(|e| {
        let (level, text) = connect_failure(&e, None);
        s.log(level, &text);
        is_out_of_descriptors(&e).then_some(ERROR)
    })
}

/// Connects; an error is a status to end with, or `None` for the next server.
async fn connect(
    s: &mut Session,
    (conf, timeout_ms): (&ProxySrv, u64),
    lease: &Lease,
    options: &SocketOptions,
    tls: Option<&Wanted>,
) -> Result<Box<Link>, Option<u16>> {
    let addr = &lease.config().addr;
    match Link::connect(addr, options, timeout_ms, &s.conn().worker).await {
        Ok(mut link) => {
            if s.server().base.tcp_nodelay && matches!(addr, PeerAddr::Ip(_)) {
                link.stream.set_nodelay(true);
            }
            if let Some(wanted) = tls {
                secure(s, conf, lease, &mut link, wanted).await?;
            }
            Ok(link)
        }
        Err(LinkError::Timeout) => {
            s.log(LogLevel::Error, "upstream timed out (110: Connection timed out)");
            Err(None)
        }
        Err(LinkError::Io(e)) => {
            let peer = s.upstream.last().map(|state| String::from_utf8_lossy(&state.peer));
            let (level, text) = connect_failure(&e, peer.as_deref());
            s.log(level, &text);
            // It is nothing that the server has done.
            Err(is_out_of_descriptors(&e).then_some(ERROR))
        }
        Err(LinkError::Protocol(text)) => {
            s.log(LogLevel::Error, &text);
            Err(None)
        }
    }
}

/// The protocols that the server is offered; one whose variables are empty is not.
pub(super) fn alpn(s: &mut Session, conf: &ProxySrv) -> Vec<Vec<u8>> {
    let mut protocols: Vec<_> = conf.alpn.iter().map(|t| s.eval(t)).collect();
    protocols.retain(|p| !p.is_empty() && p.len() <= ALPN_MAX_BYTES);
    protocols
}

/// TLS with the server, behind the PROXY protocol's header.
async fn secure(
    s: &mut Session,
    conf: &ProxySrv,
    lease: &Lease,
    link: &mut Link,
    wanted: &Wanted,
) -> Result<(), Option<u16>> {
    s.doing = "SSL handshaking to upstream";
    let mut header = Vec::new();
    conf.proxy_protocol.write(s, &mut header);
    if !header.is_empty() && !link.send_at_once(&header) {
        s.log(LogLevel::Error, "could not send PROXY protocol header at once");
        return Err(Some(ERROR));
    }
    let begun_us = clock::mono_us();
    let timeout_ms = *conf.connect_timeout;
    let done = match toward::of(s) {
        None => link.secure(wanted, timeout_ms).await,
        Some(code) => Box::pin(toward::secure(s, link, wanted, timeout_ms, code)).await,
    };
    lease.secured(link, Some(&done), begun_us);
    let text = match done {
        Ok(()) => return Ok(()),
        Err(SecureError::Timeout) => {
            "upstream SSL handshake timed out (110: Connection timed out)".to_string()
        }
        Err(SecureError::Refused(text) | SecureError::Unverified(_, text)) => text,
        Err(SecureError::Certificate(text)) => {
            s.log(LogLevel::Error, &text);
            return Err(Some(ERROR));
        }
        Err(SecureError::Tls(TlsError::Closed)) => {
            "peer closed connection in SSL handshake".to_string()
        }
        Err(SecureError::Tls(TlsError::Io(e))) => {
            format!("SSL_do_handshake() failed {}", error_text(&e))
        }
        Err(SecureError::Tls(TlsError::Tls(e))) => format!("SSL_do_handshake() failed (SSL: {e})"),
    };
    s.log(LogLevel::Error, &text);
    Err(None)
}

/// `quiet_ms`: how long both may be quiet, where the configuration does not say it.
fn begin(
    s: &mut Session,
    (conf, quiet_ms): (&ProxySrv, Option<u64>),
    connected: Connected,
    mut lease: Lease,
    asked_us: u64,
) -> Result<Box<Joined>, u16> {
    log_connected(s, &connected);
    let took_us = match &connected {
        Connected::Bytes(_) => clock::mono_us().saturating_sub(asked_us),
        Connected::Datagrams(_) => 0,
    };
    if let Some(state) = s.upstream.last_mut() {
        state.connect_us = Some(took_us);
    }
    // Of a server that is sent datagrams this tells nothing.
    lease.connected(took_us, matches!(connected, Connected::Bytes(_)));
    let mut first = Vec::new();
    // With TLS it has been sent before the handshake.
    if !matches!(&connected, Connected::Bytes(link) if link.stream.is_tls()) {
        conf.proxy_protocol.write(s, &mut first);
    }
    first.append(&mut s.buf);
    let mut rate = |t: &Option<Arc<Template>>| t.as_ref().map_or(0, |t| s.eval_size(t));
    let rates = [rate(&conf.upload_rate), rate(&conf.download_rate)];
    if s.match_failed() {
        return Err(ERROR);
    }
    s.doing = "proxying connection";
    let timeout_ms = quiet_ms.unwrap_or(*conf.timeout);
    let to = match connected {
        Connected::Bytes(link) => {
            let size = *conf.buffer_size as usize;
            let (waits, half_close) = (Waits::all(timeout_ms), *conf.half_close);
            let how = How { size, waits, half_close, rates };
            let received = [s.received, 0];
            s.shrink();
            To::Bytes(Talk::new(link.stream, how, [first, Vec::new()], received))
        }
        Connected::Datagrams(link) => {
            let (requests, responses) = (*conf.requests, *conf.responses);
            let how = datagrams::How { requests, responses, timeout_ms, rates };
            To::Datagrams(link, how, first)
        }
    };
    Ok(Box::new(Joined { to, lease }))
}

fn log_connected(s: &Session, connected: &Connected) {
    let log = s.error_log();
    if !log.enabled(LogLevel::Info) {
        return;
    }
    let (udp, local) = match connected {
        Connected::Bytes(link) => ("", link.stream.local_addr()),
        Connected::Datagrams(link) => ("udp ", link.local_addr()),
    };
    let local = local.map_or("unix:".to_string(), |a| a.to_string());
    let peer = s.upstream.last().map(|state| String::from_utf8_lossy(&state.peer).into_owned());
    let text = format!("{udp}proxy {local} connected to {}", peer.unwrap_or_default());
    log.log(LogLevel::Info, Some(s.conn().serial), text.as_bytes());
}

fn log_end(s: &Session, end: End) {
    let who = match end {
        End::Done(CLIENT) => "client disconnected",
        End::Done(_) => "upstream disconnected",
        End::Timeout => {
            let text = "connection timed out (110: Connection timed out)";
            return s.log(LogLevel::Info, text);
        }
        End::Cut => return s.log(LogLevel::Info, "shutdown timeout"),
        End::Broken => return,
    };
    let (received, sent) = s.upstream.last().map_or((0, 0), |u| (u.bytes_received, u.bytes_sent));
    let text = format!(
        "{who}, bytes from/to client:{}/{}, bytes from/to upstream:{received}/{sent}",
        s.received, s.sent
    );
    s.error_log().log(LogLevel::Info, Some(s.conn().serial), text.as_bytes());
}
