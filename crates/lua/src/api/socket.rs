//! Cosockets: TCP and unix connections that code reads and writes as if it waited.
//!
//! A socket is the run's that made it, and is closed with it. What is read ahead stays in its buffer; reading and
//! writing wait apart from each other, so that two threads may share a socket.

use super::control::debug;
use super::line::Line;
use super::pool::Place;
use crate::crossing::{Answer, Args};
use crate::machine::{code, List, OpRow, State};
use crate::run::context::{ANY, WAITING};
use crate::run::{Reply, WaitFor};
use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use weir_core::logger::LogLevel;
use weir_resolve::{Question, Resolver};
use weir_runtime::net::{Choice, SocketOptions, Stream};
use weir_runtime::timer::LazyTimer;
use weir_runtime::{clock, paths, timer};
use weir_tls::Channel;
use weir_upstream::{connect_failure, error_text};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("sock_new", WAITING, new),
    OpRow::any("sock_is_connecting", ANY, |state, args, _| {
        match sock(state, args).is_some_and(|sock| sock.borrow().connecting) {
            true => code::TRUE,
            false => code::FALSE,
        }
    }),
    OpRow::any("sock_connect", WAITING, connect),
    OpRow::any("sock_pooled", WAITING, super::pool::pooled),
    OpRow::any("sock_bind", WAITING, bind),
    OpRow::any("sock_fd", WAITING, fd),
    OpRow::any("sock_send", WAITING, send),
    OpRow::any("sock_read", WAITING, read),
    OpRow::any("sock_close", WAITING, close),
    OpRow::any("sock_shutdown", WAITING, shutdown),
    OpRow::any("sock_keep", WAITING, super::pool::keep),
    OpRow::any("sock_peer", ANY, peer),
    OpRow::any("sock_timeouts", WAITING, timeouts),
    OpRow::any("sock_option", WAITING, option),
    OpRow::any("sock_defaults", WAITING, |state, _, answer| defaults(state, answer)),
];

/// What a single read asks the system for, where no location says.
const ROOM_BYTES: usize = 4 * 1024;
/// What one call may read altogether, where no location says.
pub(crate) const READ_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What the location says of sockets.
pub(super) struct Settings {
    /// How long one waits to connect, to send and to read, in milliseconds.
    waits: [u64; 3],
    /// What a single read asks the system for.
    room: usize,
    /// What one call may read.
    pub(super) read_max: usize,
}

/// One socket of Lua's.
pub(crate) struct Sock {
    channel: Option<Line>,
    /// Its place among the connections of a pool, where these are counted.
    place: Option<Place>,
    /// Whom it has tried to connect to.
    tried: Option<IpAddr>,
    /// Where it connects from, if that is not the system's choice.
    local: Option<IpAddr>,
    /// What has been read and not been asked for.
    buf: Vec<u8>,
    at: usize,
    connect_ms: u64,
    send_ms: u64,
    read_ms: u64,
    /// What a single read asks the system for.
    room: usize,
    /// What one call may read: it is kept here until it is whole.
    read_max: usize,
    reused: u32,
    reading: bool,
    writing: bool,
    connecting: bool,
    /// Something was sent in part: nothing more is.
    is_cut: bool,
    /// TLS was begun, and whom it is with has not been found to be right yet.
    pub(super) is_unproven: bool,
    /// The other side has ended, or broken.
    ended: Option<String>,
}

/// All of a run's.
pub(crate) type Socks = foldhash::HashMap<u64, Rc<RefCell<Sock>>>;

pub(super) fn sock(state: &State<'_>, args: &Args<'_>) -> Option<Rc<RefCell<Sock>>> {
    state.run.socks.get(&(args.id)).map(Rc::clone)
}

pub(super) fn settings_of(state: &State<'_>) -> Settings {
    match state.site() {
        Some(site) => {
            let conf = site.conf();
            let waits = [*conf.connect_timeout, *conf.send_timeout, *conf.read_timeout];
            let read_max = bytes_or_all(*conf.max_read);
            Settings { waits, room: *conf.buffer_size as usize, read_max }
        }
        None => {
            let read_max = bytes_or_all(READ_MAX_BYTES);
            Settings { waits: [60_000; 3], room: ROOM_BYTES, read_max }
        }
    }
}

/// 0: no bound.
fn bytes_or_all(bytes: u64) -> usize {
    usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(usize::MAX)
}

/// Its number, that of its run, and the settings of its location.
fn new(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let id = state.vm.next();
    let sock = Sock::new(settings_of(state));
    state.run.keep_sock(id, sock);
    answer.list().number(id as f64).number(state.run.id as f64);
    defaults(state, answer)
}

/// The location's settings of connections: the pool's size, how long one is kept, whether errors are logged, and for
/// how long a socket waits to read, to send and to connect; in milliseconds.
fn defaults(state: &State<'_>, answer: &mut Answer) -> i32 {
    let (size, keep_ms, log, waits) = match state.site() {
        Some(site) => {
            let conf = site.conf();
            let waits = [*conf.read_timeout, *conf.send_timeout, *conf.connect_timeout];
            (*conf.pool_size, *conf.keepalive_timeout, *conf.log_errors, waits)
        }
        None => (30, 60_000, true, [60_000; 3]),
    };
    let mut list = answer.list();
    list.number(size as f64).number(keep_ms as f64).boolean(log);
    waits.iter().for_each(|ms| {
        list.number(*ms as f64);
    });
    code::LIST
}

/// `a` is which of the three; `x` milliseconds.
fn timeouts(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return code::NIL };
    let mut sock = sock.borrow_mut();
    let ms = args.x.max(0.0) as u64;
    match args.a {
        b"connect" => sock.connect_ms = ms,
        b"send" => sock.send_ms = ms,
        _ => sock.read_ms = ms,
    }
    code::TRUE
}

/// The resolver of the request's location, or of the block.
pub(super) fn resolver_of(state: &State<'_>) -> Option<(Arc<Resolver>, u64)> {
    state.site()?.resolver()
}

/// `a`: the host, `x`: the port.
fn connect(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    {
        let mut sock = sock.borrow_mut();
        if sock.reading || sock.writing || sock.connecting {
            return answer.fail(match (sock.reading, sock.writing) {
                (true, _) => "socket busy reading",
                (_, true) => "socket busy writing",
                _ => "socket busy connecting",
            });
        }
        sock.channel = None;
        sock.buf.clear();
        (sock.at, sock.reused, sock.ended, sock.tried) = (0, 0, None, None);
        (sock.is_cut, sock.is_unproven) = (false, false);
    }
    let host = args.a.to_vec();
    let port = args.x as u16;
    let (timeout, local) = (sock.borrow().connect_ms, sock.borrow().local);
    debug(state, || format!("lua tcp socket connect timeout: {timeout}"));
    let resolver = resolver_of(state);
    let connecting = Connecting::new(sock);
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let connecting = connecting;
            let opened = open(&host, port, resolver, local, timeout, &connecting.0).await;
            let mut sock = connecting.over();
            match opened {
                Ok(stream) => {
                    sock.channel = Some(Channel::from(stream).into());
                    Reply::ok()
                }
                Err(why) => {
                    sock.place = None;
                    Reply::fail(why)
                }
            }
        })),
        answer,
    )
}

/// A socket is connecting, or in the queue for that, as long as this lives: whoever gives it up leaves one that is not.
pub(super) struct Connecting(Rc<RefCell<Sock>>);

impl Connecting {
    pub(super) fn new(sock: Rc<RefCell<Sock>>) -> Connecting {
        sock.borrow_mut().connecting = true;
        Connecting(sock)
    }

    /// It has come to something, which the socket is told.
    pub(super) fn over(&self) -> RefMut<'_, Sock> {
        let mut sock = self.0.borrow_mut();
        sock.connecting = false;
        sock
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let mut sock = self.0.borrow_mut();
        if std::mem::take(&mut sock.connecting) {
            sock.place = None;
        }
    }
}

/// A connection within `timeout` milliseconds; the resolver has a time of its own (`resolver_timeout`) before.
async fn open(
    host: &[u8],
    port: u16,
    resolver: Option<(Arc<Resolver>, u64)>,
    local: Option<IpAddr>,
    timeout: u64,
    sock: &RefCell<Sock>,
) -> Result<Stream, String> {
    let shown = String::from_utf8_lossy(host);
    let in_time = |opened: Option<io::Result<Stream>>| match opened {
        Some(opened) => opened.map_err(|e| failure(&e, &shown, local)),
        None => Err("timeout".to_owned()),
    };
    if let Some(path) = host.strip_prefix(b"unix:") {
        let path = paths::path(path);
        return in_time(timer::within_ms(timeout, Stream::connect_path(&path)).await);
    }
    let text = String::from_utf8_lossy(host).into_owned();
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(&text);
    let ip = match bare.parse::<IpAddr>() {
        Ok(ip) => ip,
        Err(_) => resolved(&text, resolver).await?,
    };
    sock.borrow_mut().tried = Some(ip);
    let bind = local.map(|ip| SocketAddr::new(ip, 0));
    let options = SocketOptions { bind, ..SocketOptions::default() };
    in_time(timer::within_ms(timeout, Stream::connect(SocketAddr::new(ip, port), &options)).await)
}

/// The words of a failed connect, the number of its level in the log and its line there.
fn failure(e: &io::Error, host: &str, local: Option<IpAddr>) -> String {
    let is_bind = e.kind() == io::ErrorKind::AddrNotAvailable;
    let (level, line) = match local.filter(|_| is_bind) {
        Some(ip) => (LogLevel::Crit, format!("bind({ip}) failed {}", error_text(e))),
        None => connect_failure(e, host.starts_with("unix:").then_some(host)),
    };
    let number = if level == LogLevel::Crit { 3 } else { 4 };
    format!("{}\n{number}{line}", words_of(e))
}

pub(super) async fn resolved(
    name: &str,
    resolver: Option<(Arc<Resolver>, u64)>,
) -> Result<IpAddr, String> {
    let Some((resolver, timeout)) = resolver else {
        return Err(format!("no resolver defined to resolve \"{name}\""));
    };
    match resolver.resolve(Question::Name(name), timeout).await {
        Ok(found) => match found.targets.first() {
            Some(target) => Ok(target.ip),
            None => Err(format!("{name} could not be resolved (3: Host not found)")),
        },
        Err(weir_resolve::Failed { code, .. }) => {
            let text = weir_resolve::message::error_text(code);
            Err(format!("{name} could not be resolved ({code}: {text})"))
        }
    }
}

/// What Lua's side says of a system's error.
pub(super) fn words_of(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => weir_conf::messages::os_error(e)
            .split_once(": ")
            .map_or_else(|| e.to_string(), |(_, words)| words.to_ascii_lowercase()),
    }
}

/// The address of whom it is connected to, or was to be.
fn peer(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return code::NIL };
    let sock = sock.borrow();
    let connected = || sock.channel.as_ref()?.peer_addr().map(|addr| addr.ip());
    match sock.tried.or_else(connected) {
        Some(ip) => answer.text(ip.to_string().as_bytes()),
        None => code::NIL,
    }
}

fn close(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let mut sock = sock.borrow_mut();
    if sock.reading || sock.writing {
        return answer.fail(if sock.reading {
            "socket busy reading"
        } else {
            "socket busy writing"
        });
    }
    sock.place = None;
    if sock.channel.take().is_none() {
        return answer.fail("closed");
    }
    answer.number(1.0)
}

/// The address `a` is where it connects from.
fn bind(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let text = String::from_utf8_lossy(args.a);
    match text.parse() {
        Ok(ip) => {
            sock.borrow_mut().local = Some(ip);
            code::TRUE
        }
        Err(_) => answer.fail("bad address"),
    }
}

/// The number that the system knows it by.
fn fd(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let channel = sock.borrow().channel();
    match channel {
        Some(channel) => answer.number(f64::from(channel.fd())),
        None => answer.fail("closed"),
    }
}

fn shutdown(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let sock = sock.borrow();
    match &sock.channel {
        None => answer.fail("closed"),
        Some(channel) => {
            channel.shutdown_write();
            answer.number(1.0)
        }
    }
}

/// The options of connections, by their names.
const CHOICES: [(&[u8], Choice); 7] = [
    (b"keepalive", Choice::KeepAlive),
    (b"reuseaddr", Choice::ReuseAddress),
    (b"tcp-nodelay", Choice::NoDelay),
    (b"sndbuf", Choice::SendBuffer),
    (b"rcvbuf", Choice::ReceiveBuffer),
    (b"keepintvl", Choice::KeepInterval),
    (b"keepcnt", Choice::KeepCount),
];

/// `a`: the option's name; `y`: whether it is set, to `x`.
fn option(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some((_, choice)) = CHOICES.iter().find(|(name, _)| *name == args.a) else {
        return answer.fail([b"unsupported option ", args.a].concat());
    };
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let sock = sock.borrow();
    let Some(channel) = &sock.channel else { return answer.fail("closed") };
    let done = match args.y != 0.0 {
        true => channel.socket().choose(*choice, args.x as i32).map(|()| None),
        false => channel.socket().chosen(*choice).map(Some),
    };
    match done {
        Ok(None) => code::TRUE,
        Ok(Some(value)) => answer.number(f64::from(value)),
        Err(e) => answer.fail(weir_core::os_text(&e).split_once(": ").map_or("", |(_, w)| w)),
    }
}

/// The socket is not used by this wait any more, however it ends. Of one that is given up before its end (its thread
/// was killed) nobody knows what has gone over the connection: nothing else will.
pub(super) struct Busy {
    pub sock: Rc<RefCell<Sock>>,
    is_reading: bool,
    is_done: bool,
}

impl Busy {
    fn new(sock: Rc<RefCell<Sock>>, is_reading: bool) -> Busy {
        Busy { sock, is_reading, is_done: false }
    }

    /// What was waited for has come to something.
    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut sock = self.sock.borrow_mut();
        match self.is_reading {
            true => sock.reading = false,
            false => sock.writing = false,
        }
        // A client's connection stays its request's: what is read of it is kept, and what is sent to it is its own.
        if !self.is_done && matches!(sock.channel, Some(Line::Own(_))) {
            sock.drop_line();
        }
    }
}

/// How much of it has gone without waiting.
fn write_at_once(channel: &Line, text: &[u8]) -> usize {
    if channel.is_tls() {
        return 0;
    }
    let sent = channel.socket().try_write(&[IoSlice::new(text)], false).unwrap_or(0);
    channel.count_sent(sent);
    sent
}

fn send(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let (channel, timeout) = {
        let mut sock = sock.borrow_mut();
        if sock.writing {
            return answer.fail("socket busy writing");
        }
        let channel = sock.channel().filter(|_| !sock.is_cut);
        let Some(channel) = channel else {
            return answer.fail("closed");
        };
        sock.writing = true;
        (channel, sock.send_ms)
    };
    let busy = Busy::new(sock, false);
    if let Line::Session(conn, _) = &channel {
        return super::session::send(state, conn, busy, (args.a, timeout), answer);
    }
    let mut sent = write_at_once(&channel, args.a);
    if sent == args.a.len() {
        busy.done();
        return answer.number(sent as f64);
    }
    let text = args.a.to_vec();
    debug(state, || format!("lua tcp socket send timeout: {timeout}"));
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let mut limit = LazyTimer::new();
            let mut deadline = clock::mono_ms() + timeout;
            let done = poll_fn(|cx| loop {
                if sent == text.len() {
                    return Poll::Ready(Ok(()));
                }
                match channel.poll_write(cx, &[IoSlice::new(&text[sent..])], false) {
                    Poll::Ready(Ok(n)) => {
                        sent += n;
                        channel.count_sent(n);
                        deadline = clock::mono_ms() + timeout;
                    }
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(words_of(&e))),
                    Poll::Pending => {
                        return limit.poll_until(cx, deadline).map(|()| Err("timeout".to_owned()))
                    }
                }
            })
            .await;
            let reply = match done {
                Ok(()) => Reply { code: code::NUMBER, x: text.len() as f64, text: Vec::new() },
                Err(why) => {
                    let mut sock = busy.sock.borrow_mut();
                    match why.as_str() {
                        // Whatever followed would be taken for the rest of it.
                        "timeout" => sock.is_cut = true,
                        _ => sock.drop_line(),
                    }
                    Reply::fail(why)
                }
            };
            busy.done();
            reply
        })),
        answer,
    )
}

/// What is to be read.
enum Wanted {
    Bytes(usize),
    Line,
    All,
    Any(usize),
    Until { pattern: Vec<u8>, most: usize, inclusive: bool },
}

/// Where what is wanted is, from the first byte that was not used.
struct Found {
    bytes: usize,
    /// So many behind it go with it.
    behind: usize,
    /// It has no carriage returns.
    is_line: bool,
    /// Whether it is the last of its kind.
    is_last: bool,
}

impl Found {
    fn of(bytes: usize) -> Found {
        Found { bytes, behind: 0, is_line: false, is_last: true }
    }
}

impl Wanted {
    /// Whether code is told which piece is the last.
    fn has_last(&self) -> bool {
        matches!(self, Wanted::Until { .. })
    }

    /// Of so many bytes in which it is not, those that need not be looked through again.
    fn seen(&self, bytes: usize) -> usize {
        match self {
            Wanted::Until { pattern, .. } => bytes.saturating_sub(pattern.len().saturating_sub(1)),
            _ => bytes,
        }
    }
}

/// The other side has sent more than one call may read.
const TOO_MUCH: &str = "more than lua_socket_max_read_size";

impl Sock {
    /// Why it cannot be used by another now.
    pub(super) fn busy(&self) -> Option<&'static str> {
        match (self.reading, self.writing) {
            (true, _) => Some("socket busy reading"),
            (_, true) => Some("socket busy writing"),
            _ => None,
        }
    }

    /// It is read from until that is dropped.
    pub(super) fn occupy(sock: Rc<RefCell<Sock>>) -> Busy {
        sock.borrow_mut().reading = true;
        Busy::new(sock, true)
    }

    /// For connecting, and for reading; in milliseconds.
    pub(super) fn timeouts(&self) -> (u64, u64) {
        (self.connect_ms, self.read_ms)
    }

    fn new(settings: Settings) -> Sock {
        let [connect_ms, send_ms, read_ms] = settings.waits;
        Sock {
            channel: None,
            place: None,
            local: None,
            buf: Vec::new(),
            at: 0,
            connect_ms,
            send_ms,
            read_ms,
            room: settings.room,
            read_max: settings.read_max,
            reused: 0,
            reading: false,
            writing: false,
            connecting: false,
            is_cut: false,
            is_unproven: false,
            ended: None,
            tried: None,
        }
    }

    /// One that is connected already, of which some has been read.
    pub(super) fn on(line: Line, buf: Vec<u8>, settings: Settings) -> Sock {
        Sock { channel: Some(line), buf, ..Sock::new(settings) }
    }

    /// What it reads before anything else.
    pub(super) fn put_first(&mut self, text: Vec<u8>) {
        self.buf.splice(self.at..self.at, text);
    }

    /// What was read of a session's connection and not used.
    pub(crate) fn rest_of_session(&mut self) -> Option<Vec<u8>> {
        let is_session = matches!(self.channel, Some(Line::Session(..)));
        is_session.then(|| self.take(self.buf.len() - self.at))
    }

    pub(super) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    pub(super) fn channel(&self) -> Option<Line> {
        self.channel.clone()
    }

    pub(super) fn put(&mut self, channel: Rc<Channel>) {
        self.channel = Some(Line::Own(channel));
    }

    /// It has a connection that was kept; how often that was used.
    pub(super) fn put_kept(&mut self, line: Line, reused: u32, place: Option<Place>) -> u32 {
        self.buf.clear();
        (self.at, self.ended) = (0, None);
        (self.is_cut, self.is_unproven) = (false, false);
        self.put_back(line, reused, place);
        reused
    }

    pub(super) fn put_back(&mut self, line: Line, reused: u32, place: Option<Place>) {
        self.channel = Some(line);
        (self.reused, self.place) = (reused, place);
    }

    /// Its connection, once there is one, counts for a pool.
    pub(super) fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Its connection, for who keeps it, or why it cannot be kept.
    pub(super) fn give(&mut self) -> Result<(Line, u32, Option<Place>), &'static str> {
        match () {
            () if self.reading => Err("socket busy reading"),
            () if self.writing => Err("socket busy writing"),
            () if self.is_cut => Err("closed"),
            // Code has read all that there was, and its end.
            () if self.ended.is_some() && self.rest().is_empty() => Err("closed"),
            () if self.at < self.buf.len() => Err("unread data in buffer"),
            () => {
                let line = self.channel.take().ok_or("closed")?;
                Ok((line, self.reused, self.place.take()))
            }
        }
    }

    /// The connection is over.
    pub(super) fn drop_line(&mut self) {
        (self.channel, self.place) = (None, None);
        (self.at, self.is_unproven) = (0, false);
        self.buf.clear();
    }

    fn rest(&self) -> &[u8] {
        &self.buf[self.at..]
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let text = self.buf[self.at..self.at + n].to_vec();
        self.leave(n);
        text
    }

    /// So much of what was read is used.
    fn leave(&mut self, n: usize) {
        self.at += n;
        if self.at == self.buf.len() {
            self.buf.clear();
            self.at = 0;
        }
    }

    /// Adds what was found to a text.
    fn give_to(&mut self, text: &mut Vec<u8>, found: &Found) {
        let part = &self.buf[self.at..self.at + found.bytes];
        match memchr::memchr(b'\r', part).filter(|_| found.is_line) {
            // As in most lines, at the end.
            Some(at) if at + 1 == part.len() => text.extend_from_slice(&part[..at]),
            Some(_) => text.extend(part.iter().filter(|b| **b != b'\r')),
            None => text.extend_from_slice(part),
        }
        self.leave(found.bytes + found.behind);
    }

    /// What is wanted, if it is here. So many bytes have been looked through already: what ends it does not begin
    /// there.
    fn found(&self, wanted: &Wanted, seen: usize) -> Option<Found> {
        let rest = self.rest();
        match wanted {
            Wanted::Bytes(n) => (rest.len() >= *n).then(|| Found::of(*n)),
            Wanted::All => None,
            Wanted::Any(most) => {
                let n = rest.len().min(*most);
                (n > 0).then(|| Found::of(n))
            }
            Wanted::Line => {
                let end = seen + memchr::memchr(b'\n', &rest[seen..])?;
                Some(Found { behind: 1, is_line: true, ..Found::of(end) })
            }
            Wanted::Until { pattern, most, inclusive } => {
                let limit = if *most == 0 { usize::MAX } else { *most };
                match memchr::memmem::find(&rest[seen..], pattern).map(|at| seen + at) {
                    Some(at) if at <= limit && *inclusive => Some(Found::of(at + pattern.len())),
                    Some(at) if at <= limit => {
                        Some(Found { behind: pattern.len(), ..Found::of(at) })
                    }
                    Some(_) => Some(Found { is_last: false, ..Found::of(limit) }),
                    // What may be the pattern's beginning is not given out yet.
                    None if rest.len() - begun(rest, pattern) >= limit => {
                        Some(Found { is_last: false, ..Found::of(limit) })
                    }
                    None => None,
                }
            }
        }
    }

    /// What was found, for code.
    fn tell(&mut self, wanted: &Wanted, found: &Found, text: &mut Vec<u8>) -> i32 {
        if !wanted.has_last() {
            self.give_to(text, found);
            return code::TEXT;
        }
        let mut piece = Vec::new();
        self.give_to(&mut piece, found);
        List(text).text(&piece).boolean(found.is_last);
        code::LIST
    }

    /// More from the other side, but no more than `most` bytes ahead; what goes wrong ends it.
    fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        channel: &Line,
        most: usize,
    ) -> Poll<Result<(), String>> {
        if let Some(why) = &self.ended {
            return Poll::Ready(Err(why.clone()));
        }
        if self.rest().len() >= most {
            return Poll::Ready(Err("buffer too small".to_owned()));
        }
        if self.at > 0 && self.at * 2 > self.buf.len() {
            self.buf.drain(..self.at);
            self.at = 0;
        }
        let why = match channel.poll_read(cx, &mut self.buf, self.room) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) => channel.end().to_owned(),
            Poll::Ready(Ok(n)) => {
                channel.count(n);
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => "closed".to_owned(),
            Poll::Ready(Err(e)) => words_of(&e),
        };
        self.ended = Some(why.clone());
        Poll::Ready(Err(why))
    }
}

/// How much of the end of a text may be the pattern's beginning.
fn begun(text: &[u8], pattern: &[u8]) -> usize {
    let most = (pattern.len() - 1).min(text.len());
    let tail = &text[text.len() - most..];
    let starts = memchr::memchr_iter(pattern[0], tail);
    starts.map(|at| &tail[at..]).find(|end| pattern.starts_with(end)).map_or(0, <[u8]>::len)
}

/// `y`: the kind; `x`: how much; `a`: what ends it.
fn read(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let wanted = match args.y as i32 {
        0 => Wanted::Bytes(args.x as usize),
        1 => Wanted::Line,
        2 => Wanted::All,
        3 => Wanted::Any(args.x as usize),
        kind => {
            Wanted::Until { pattern: args.a.to_vec(), most: args.x as usize, inclusive: kind == 5 }
        }
    };
    let (channel, timeout) = {
        let mut sock = sock.borrow_mut();
        if sock.reading {
            return answer.fail("socket busy reading");
        }
        if let Some(found) = sock.found(&wanted, 0) {
            return sock.tell(&wanted, &found, &mut answer.text);
        }
        let Some(channel) = sock.channel() else {
            return answer.fail("closed");
        };
        sock.reading = true;
        (channel, sock.read_ms)
    };
    // No state would take a longer text.
    let most = state.vm.text_max_bytes();
    let busy = Busy::new(sock, true);
    debug(state, || format!("lua tcp socket read timeout: {timeout}"));
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let mut limit = LazyTimer::new();
            let mut deadline = clock::mono_ms() + timeout;
            let mut seen = wanted.seen(busy.sock.borrow().rest().len());
            let done = poll_fn(|cx| loop {
                let mut sock = busy.sock.borrow_mut();
                match sock.poll_more(cx, &channel, most) {
                    Poll::Ready(Ok(())) => {
                        deadline = clock::mono_ms() + timeout;
                        if let Some(found) = sock.found(&wanted, seen) {
                            return Poll::Ready(Ok(found));
                        }
                        seen = wanted.seen(sock.rest().len());
                        if sock.rest().len() > sock.read_max {
                            sock.ended = Some(TOO_MUCH.to_owned());
                        }
                    }
                    Poll::Ready(Err(why)) => return Poll::Ready(Err(why)),
                    Poll::Pending => {
                        return limit.poll_until(cx, deadline).map(|()| Err("timeout".to_owned()))
                    }
                }
            })
            .await;
            let reply = told_of(&mut busy.sock.borrow_mut(), &wanted, done);
            busy.done();
            reply
        })),
        answer,
    )
}

/// What came of reading, for code.
fn told_of(sock: &mut Sock, wanted: &Wanted, done: Result<Found, String>) -> Reply {
    let mut text = Vec::new();
    let code = match done {
        Ok(found) => sock.tell(wanted, &found, &mut text),
        Err(why) => {
            let n = sock.rest().len();
            let rest = sock.take(n);
            let mut list = List(&mut text);
            match matches!(wanted, Wanted::All) && why == "closed" {
                true => list.text(&rest).boolean(true),
                false => list.nil().text(why.as_bytes()).text(&rest),
            };
            code::LIST
        }
    };
    Reply { code, x: 0.0, text }
}
