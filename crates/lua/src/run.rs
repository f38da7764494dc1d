//! Runs: one entry point's code from its beginning to its end, and what it waits for meanwhile.

use crate::api::capture::Given;
use crate::api::pipe::Held;
use crate::api::socket::{Sock, Socks};
use crate::border::Thread;
use crate::machine::{code, State};
use crate::site::{Site, Who};
use crate::ssl::Moment;
use crate::vm::{self, enter, Vm};
use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weir_core::logger::LogLevel;
use weir_core::{ConnError, Connection, LocalFuture};
use weir_http::body::{self, BodyError};
use weir_http::lent::Toward;
use weir_http::{ClientWatch, Request};
use weir_runtime::{clock, event_loop};
use weir_stream::Session;
use weir_upstream::balancer::Balancing;

/// Where code runs, as bits.
pub(crate) mod context {
    pub(crate) const SET: u32 = 1;
    pub(crate) const REWRITE: u32 = 1 << 1;
    pub(crate) const ACCESS: u32 = 1 << 2;
    pub(crate) const CONTENT: u32 = 1 << 3;
    pub(crate) const LOG: u32 = 1 << 4;
    pub(crate) const HEADER: u32 = 1 << 5;
    pub(crate) const BODY: u32 = 1 << 6;
    pub(crate) const TIMER: u32 = 1 << 7;
    pub(crate) const INIT_WORKER: u32 = 1 << 8;
    pub(crate) const BALANCER: u32 = 1 << 9;
    pub(crate) const SSL_CERT: u32 = 1 << 10;
    pub(crate) const SSL_STORE: u32 = 1 << 11;
    pub(crate) const SSL_FETCH: u32 = 1 << 12;
    pub(crate) const SERVER_REWRITE: u32 = 1 << 13;
    pub(crate) const EXIT_WORKER: u32 = 1 << 14;
    pub(crate) const SSL_HELLO: u32 = 1 << 15;
    pub(crate) const PRECONTENT: u32 = 1 << 16;
    pub(crate) const INIT: u32 = 1 << 17;
    pub(crate) const PROXY_SSL_CERT: u32 = 1 << 18;
    pub(crate) const PROXY_SSL_VERIFY: u32 = 1 << 19;
    /// Of `stream`.
    pub(crate) const PREREAD: u32 = 1 << 20;
    /// A state apart from a worker's.
    pub(crate) const APART: u32 = 1 << 21;

    /// Everywhere.
    pub(crate) const ANY: u32 = u32::MAX;
    /// Phases that may wait.
    pub(crate) const HANDLERS: u32 =
        REWRITE | ACCESS | CONTENT | SERVER_REWRITE | PRECONTENT | PREREAD;
    /// Handshakes with clients, and those of their phases that may wait.
    pub(crate) const SSL: u32 = SSL_WAITING | SSL_STORE;
    pub(crate) const SSL_WAITING: u32 = SSL_CERT | SSL_FETCH | SSL_HELLO | PROXY_SSL;
    /// Handshakes with servers.
    pub(crate) const PROXY_SSL: u32 = PROXY_SSL_CERT | PROXY_SSL_VERIFY;
    /// All that may wait.
    pub(crate) const WAITING: u32 = HANDLERS | TIMER | SSL_WAITING;
    /// All that have a request.
    pub(crate) const REQUEST: u32 = HANDLERS | PROXY_SSL | SET | LOG | HEADER | BODY | BALANCER;

    /// As the inventory of phases names them.
    const NAMES: &[(u32, &str, &str)] = &[
        (SET, "set", "set_by_lua*"),
        (REWRITE, "rewrite", "rewrite_by_lua*"),
        (ACCESS, "access", "access_by_lua*"),
        (CONTENT, "content", "content_by_lua*"),
        (LOG, "log", "log_by_lua*"),
        (HEADER, "header_filter", "header_filter_by_lua*"),
        (BODY, "body_filter", "body_filter_by_lua*"),
        (TIMER, "timer", "ngx.timer"),
        (INIT_WORKER, "init_worker", "init_worker_by_lua*"),
        (BALANCER, "balancer", "balancer_by_lua*"),
        (SERVER_REWRITE, "server_rewrite", "server_rewrite_by_lua*"),
        (EXIT_WORKER, "exit_worker", "exit_worker_by_lua*"),
        (PRECONTENT, "precontent", "precontent_by_lua*"),
        (PREREAD, "preread", "preread_by_lua*"),
        (INIT, "init", "init_by_lua*"),
        (PROXY_SSL_CERT, "proxy_ssl_cert", "proxy_ssl_certificate_by_lua*"),
        (PROXY_SSL_VERIFY, "proxy_ssl_verify", "proxy_ssl_verify_by_lua*"),
        (SSL_HELLO, "ssl_client_hello", "ssl_client_hello_by_lua*"),
        (SSL_CERT, "ssl_cert", "ssl_certificate_by_lua*"),
        (SSL_FETCH, "ssl_session_fetch", "ssl_session_fetch_by_lua*"),
        (SSL_STORE, "ssl_session_store", "ssl_session_store_by_lua*"),
    ];

    /// `ngx.get_phase`
    pub(crate) fn name(context: u32) -> &'static str {
        NAMES.iter().find(|n| n.0 == context).map_or("(unknown)", |n| n.1)
    }

    /// As errors call it.
    pub(crate) fn shown(context: u32) -> &'static str {
        NAMES.iter().find(|n| n.0 == context).map_or("(unknown)", |n| n.2)
    }
}

/// What a wait has come to: a code and its values.
#[derive(Default)]
pub(crate) struct Reply {
    pub code: i32,
    pub x: f64,
    pub text: Vec<u8>,
}

impl Reply {
    pub(crate) fn ok() -> Reply {
        Reply { code: code::TRUE, ..Reply::default() }
    }

    pub(crate) fn fail(why: impl Into<Vec<u8>>) -> Reply {
        Reply { code: code::FAILED, x: 0.0, text: why.into() }
    }
}

/// What a coroutine waits for.
pub(crate) enum WaitFor {
    /// Something that has no use for the request.
    Future(LocalFuture<'static, Reply>),
    /// The request's body as a whole.
    Body,
    /// A further piece of the request's body, for so many milliseconds.
    Piece(u64),
    /// Until the client has taken all but so many bytes.
    Drain(u64),
    /// Until so many of the first bytes of a session are there.
    Peek(usize),
    /// For TLS on a session's connection, of which so much has been read, until then (monotonic ms).
    Secure(Rc<[u8]>, u64),
}

/// A word from one run to another.
#[derive(Default)]
pub(crate) struct Told {
    reply: RefCell<Option<Reply>>,
    waker: RefCell<Option<Waker>>,
}

impl Told {
    pub(crate) fn tell(&self, reply: Reply) {
        *self.reply.borrow_mut() = Some(reply);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Reply> {
        if let Some(reply) = self.reply.borrow_mut().take() {
            return Poll::Ready(reply);
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// What needs the request, or the session, while it is waited for.
enum OfRequest {
    Body,
    Piece(u64),
    Drain(u64),
    Peek(usize),
    Secure(Rc<[u8]>, u64),
}

struct Wait {
    id: u64,
    what: WaitFor,
}

/// How a run has ended.
#[derive(Default, Debug)]
pub(crate) enum Outcome {
    /// At the end of its code.
    #[default]
    Ended,
    /// By an error, which has been logged.
    Failed,
    /// `ngx.exit`
    Exit(i32),
    /// `ngx.exec`: the URI and its arguments.
    Exec(Vec<u8>, Vec<u8>),
    /// `ngx.req.set_uri` with a jump.
    Jump,
    /// `ngx.redirect`
    Redirect(u16),
}

/// Whether an entry has ended the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Ended,
    Waits,
}

/// What a body filter is given, and what it makes of it.
#[derive(Default)]
pub(crate) struct Piece {
    pub text: Vec<u8>,
    pub last: bool,
    pub is_set: bool,
}

/// A request, and whether its answer is whole.
type Ended = (Box<Request>, bool);

/// A subrequest, once it has ended, and whether its answer is whole.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    pub part: Rc<RefCell<Option<Ended>>>,
    /// Whether its variables are its parent's.
    pub shares: bool,
}

/// One run.
pub(crate) struct Run {
    pub id: u64,
    pub context: u32,
    pub vm: Rc<Vm>,
    pub outcome: Outcome,
    /// For the coroutine that is woken.
    pub reply: Reply,
    /// What `ngx.arg` is about.
    pub piece: Piece,
    /// The arguments of a `set_by_lua`, and what its code returns.
    pub args: Vec<Vec<u8>>,
    pub result: Option<Vec<u8>>,
    /// The number that code has returned which does not wait.
    pub returned: f64,
    /// Subrequests that have not been looked at yet, by their waits' numbers.
    pub parts: Vec<(u64, Asked)>,
    /// How many there were.
    pub captures: u32,
    /// How many have ended since others have had their turn.
    ended: u32,
    /// Of a run without a request, what lines of the log say of the one that began it.
    pub origin: Rc<[u8]>,
    /// Of a run without a request, where the code stands that has begun it.
    pub site: Option<Site>,
    /// The handshake that it is about.
    pub moment: Option<Rc<Moment>>,
    /// The same, of one with a server.
    pub toward: Option<Rc<Toward>>,
    /// What a `balancer_by_lua` makes of the try at hand.
    pub balancing: Option<Box<Balancing>>,
    /// Its sockets, by their numbers.
    pub socks: Socks,
    /// The flags of the next value that goes into a dictionary.
    pub flags: u32,
    /// The client has gone, which the code has been told.
    pub is_gone: bool,
    /// Code is to run then.
    pub has_abort: bool,
    /// The client had ended its side before the code began.
    half_closed: bool,
    /// Its coroutine, while it waits and Lua does not order its threads.
    pub thread: Option<Thread>,
    /// What that waits for; 0 for nothing.
    pub waits_for: u64,
    /// What has come before anybody asked for it.
    pub early: Vec<u64>,
    /// Lua knows of it, and orders its threads.
    pub is_scheduled: bool,
    /// What the next subrequest is given.
    pub given: Given,
    /// Of a run without a request: the number of its context; 0 if it has none.
    pub ctx: u64,
    /// The same: what it has started.
    pub processes: Option<Box<Held>>,
    waits: Vec<Wait>,
}

impl Run {
    pub(crate) fn new(vm: &Rc<Vm>, context: u32) -> Run {
        Run {
            id: vm.next(),
            context,
            vm: Rc::clone(vm),
            outcome: Outcome::Ended,
            reply: Reply::default(),
            piece: Piece::default(),
            args: Vec::new(),
            result: None,
            returned: 0.0,
            parts: Vec::new(),
            captures: 0,
            ended: 0,
            origin: Rc::default(),
            site: None,
            moment: None,
            toward: None,
            balancing: None,
            socks: Socks::default(),
            flags: 0,
            is_gone: false,
            has_abort: false,
            half_closed: false,
            thread: None,
            waits_for: 0,
            early: Vec::new(),
            is_scheduled: false,
            given: Given::default(),
            ctx: 0,
            processes: None,
            waits: Vec::new(),
        }
    }

    /// A socket is this run's, by that number.
    pub(crate) fn keep_sock(&mut self, id: u64, sock: Sock) {
        if self.socks.is_empty() {
            self.vm.with_socks.borrow_mut().insert(self.id);
        }
        self.socks.insert(id, Rc::new(RefCell::new(sock)));
    }

    /// Its context is the one of that number; the one before is nobody's.
    pub(crate) fn put_ctx(&mut self, id: u64) {
        let before = std::mem::replace(&mut self.ctx, id);
        if before != 0 {
            self.vm.forget(entry::FREE, before as i64);
        }
    }

    /// A number for something that is waited for from now on.
    pub(crate) fn wait(&mut self, vm: &Vm, what: WaitFor) -> u64 {
        let id = vm.next();
        self.waits.push(Wait { id, what });
        id
    }

    /// Whether the request's body is being read.
    pub(crate) fn reads_body(&self) -> bool {
        self.waits.iter().any(|w| matches!(w.what, WaitFor::Body | WaitFor::Piece(_)))
    }

    /// Nobody waits for that any more.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.waits.retain(|w| w.id != id);
    }

    /// Begins the code of that number.
    pub(crate) fn begin(&mut self, who: Who<'_>, code: u32) -> Step {
        if self.context & context::HANDLERS != 0 && who.checks_abort() {
            // An end that comes later is the client's going.
            self.half_closed = match &who {
                Who::Request(r) => r.is_half_closed(),
                Who::Session(s) => s.conn().is_half_closed(),
                Who::Nobody => false,
            };
        }
        vm::begin(who, self, code)
    }

    /// What of the waits has come, without those that need the request.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(u64, Reply)> {
        for at in 0..self.waits.len() {
            let ready = match &mut self.waits[at].what {
                WaitFor::Future(future) => future.as_mut().poll(cx),
                WaitFor::Body
                | WaitFor::Piece(_)
                | WaitFor::Drain(_)
                | WaitFor::Peek(_)
                | WaitFor::Secure(..) => Poll::Pending,
            };
            if let Poll::Ready(reply) = ready {
                return Poll::Ready((self.waits.remove(at).id, reply));
            }
        }
        Poll::Pending
    }

    /// What comes next, or that the client has gone, where somebody wants to know.
    async fn next_or_gone(&mut self, who: Who<'_>) -> Option<(u64, Reply)> {
        let watch = if self.is_gone { None } else { Watch::of(&who, self.half_closed) };
        let Some(mut watch) = watch else { return Some(self.next(who).await) };
        let mut next = pin!(self.next(who));
        poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(found) => Poll::Ready(Some(found)),
            Poll::Pending if watch.is_gone(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    async fn next(&mut self, who: Who<'_>) -> (u64, Reply) {
        let of_request = |w: &Wait| {
            let what = match &w.what {
                WaitFor::Body => OfRequest::Body,
                WaitFor::Piece(ms) => OfRequest::Piece(*ms),
                WaitFor::Drain(leave) => OfRequest::Drain(*leave),
                WaitFor::Peek(bytes) => OfRequest::Peek(*bytes),
                WaitFor::Secure(read, deadline) => OfRequest::Secure(Rc::clone(read), *deadline),
                WaitFor::Future(_) => return None,
            };
            Some((w.id, what))
        };
        let first = self.waits.iter().find_map(of_request);
        let Some((id, what)) = first else {
            return poll_fn(|cx| self.poll(cx)).await;
        };
        let mut of_request = pin!(async {
            match (what, who) {
                (OfRequest::Body, Who::Request(r)) => read_body(r).await,
                (OfRequest::Piece(ms), Who::Request(r)) => read_piece(r, ms).await,
                (OfRequest::Drain(leave), Who::Request(r)) => drain(r, leave).await,
                (OfRequest::Peek(bytes), Who::Session(s)) => peek(s, bytes).await,
                (OfRequest::Secure(read, deadline), Who::Session(s)) => {
                    secure(s, &read, deadline).await
                }
                // Nobody asks for these elsewhere.
                _ => std::future::pending().await,
            }
        });
        let done = poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(other) => Poll::Ready(other),
            Poll::Pending => of_request.as_mut().poll(cx).map(|reply| (id, reply)),
        });
        let done = done.await;
        self.cancel(done.0);
        done
    }

    /// The client is gone: the code that was given for that runs, or the request ends.
    fn client_goes(&mut self, who: Who<'_>) -> Step {
        self.is_gone = true;
        let stream = if matches!(who, Who::Session(_)) { "stream " } else { "" };
        who.log(LogLevel::Info, &format!("{stream}client prematurely closed connection"));
        if self.has_abort {
            return enter(who, self, entry::ABORT, 0.0);
        }
        self.outcome = Outcome::Exit(499);
        Step::Ended
    }

    /// Goes on until the run has ended.
    pub(crate) async fn drive(&mut self, mut who: Who<'_>) {
        loop {
            let Some((id, reply)) = self.next_or_gone(who.again()).await else {
                if self.client_goes(who.again()) == Step::Ended {
                    return;
                }
                continue;
            };
            self.ended += u32::from(self.parts.iter().any(|(part, _)| *part == id));
            if self.ended >= AT_A_TIME {
                self.ended = 0;
                event_loop::yield_now().await;
            }
            if vm::wake(who.again(), self, id, reply) == Step::Ended {
                return;
            }
        }
    }
}

/// So many subrequests of a run may end in a row before others have their turn.
const AT_A_TIME: u32 = 64;

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.vm.release(thread);
        }
        if !self.socks.is_empty() {
            self.vm.with_socks.borrow_mut().remove(&self.id);
        }
        if self.is_scheduled {
            self.vm.forget(entry::DROP, self.id as i64);
        }
        self.put_ctx(0);
    }
}

/// Whether the client goes while something is waited for.
enum Watch {
    Request(ClientWatch),
    Session(Rc<Connection>, bool),
    /// Of a session whose client had ended its side.
    HalfClosed(Rc<Connection>),
}

impl Watch {
    /// Nothing where nobody wants to know.
    fn of(who: &Who<'_>, half_closed: bool) -> Option<Watch> {
        match who {
            _ if !who.checks_abort() => None,
            Who::Request(r) => Some(Watch::Request(ClientWatch::beside(r, half_closed))),
            Who::Session(s) if half_closed => Some(Watch::HalfClosed(Rc::clone(s.conn()))),
            Who::Session(s) => Some(Watch::Session(Rc::clone(s.conn()), true)),
            Who::Nobody => None,
        }
    }

    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Watch::Request(watch) => watch.is_gone(cx),
            Watch::Session(conn, watching) => conn.poll_gone(cx, watching),
            Watch::HalfClosed(conn) => conn.poll_broken(cx),
        }
    }
}

async fn read_body(r: &mut Request) -> Reply {
    match body::read_all_named(r).await {
        Ok(()) => Reply::ok(),
        Err(BodyError::Status(status)) => {
            Reply { code: code::NUMBER, x: f64::from(status), text: Vec::new() }
        }
        Err(_) => Reply { code: code::NUMBER, x: 499.0, text: Vec::new() },
    }
}

async fn read_piece(r: &mut Request, ms: u64) -> Reply {
    match weir_runtime::timer::within_ms(ms, body::next_to_pass_on(r)).await {
        None => Reply::fail("timeout"),
        Some(Ok(Some(piece))) => Reply { code: code::TEXT, x: 0.0, text: piece.to_vec() },
        Some(Ok(None)) => Reply::fail("closed"),
        Some(Err(BodyError::Status(408))) => Reply::fail("timeout"),
        Some(Err(_)) => {
            // One that says no more may wait for what code has to say to that.
            if r.is_half_closed() {
                r.conn().broken.set(false);
            }
            Reply::fail("client aborted")
        }
    }
}

async fn peek(s: &mut Session, bytes: usize) -> Reply {
    match s.peek(bytes).await {
        Ok(()) => Reply { code: code::TEXT, x: 0.0, text: s.buf[..bytes].to_vec() },
        Err(status) => Reply { code: code::NUMBER, x: f64::from(status), text: Vec::new() },
    }
}

async fn secure(s: &mut Session, read: &[u8], deadline: u64) -> Reply {
    match s.secure(read.to_vec(), deadline).await {
        Ok(()) => Reply::ok(),
        Err(()) if clock::mono_ms() >= deadline => Reply::fail("timeout"),
        Err(()) => Reply::fail("handshake failed"),
    }
}

async fn drain(r: &mut Request, leave: u64) -> Reply {
    let done = r.drain(leave).await;
    if leave == 0 && r.awaits_turn() {
        // The frames are with the connection's task, which sends them now.
        event_loop::yield_now().await;
    }
    match done {
        Ok(()) => Reply { code: code::NUMBER, x: 1.0, text: Vec::new() },
        Err(ConnError::Timeout) => Reply::fail("timeout"),
        Err(_) => Reply::fail("client aborted"),
    }
}

/// What Lua's entry function is asked for.
pub(crate) mod entry {
    /// The code of that number is to be compiled and kept.
    pub(crate) const COMPILE: i32 = 1;
    /// What the wait of that number was for has come.
    pub(crate) const WAKE: i32 = 2;
    /// The run is over.
    pub(crate) const DROP: i32 = 3;
    /// The context of that number is not used any more. (Rust does that by itself.)
    pub(crate) const FREE: i32 = 4;
    /// The timer of that number is due; the second number is 1 when it comes before its time.
    pub(crate) const TIMER: i32 = 5;
    /// The timer of that number does not run.
    pub(crate) const NO_TIMER: i32 = 9;
    /// The client has gone.
    pub(crate) const ABORT: i32 = 7;
    /// All pieces are to be loaded.
    pub(crate) const PIECES: i32 = 6;
    /// The coroutine that Rust has gone on with so far has stopped.
    pub(crate) const GO_ON: i32 = 8;
}

/// What an operation says of the wake.
pub(crate) fn take_reply(state: &mut State<'_>) -> Reply {
    std::mem::take(&mut state.run.reply)
}
