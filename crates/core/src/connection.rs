//! A client connection: its socket, its addresses, its output queue, its one timer.

use crate::datagrams::Datagrams;
use crate::deadlines::Alarm;
use crate::generation::{AddrConf, Generation, ListenConf, Virtual, WorkerGen};
use crate::handed_on::HandedOn;
use crate::logger::LogLevel;
use crate::tls::Secure;
use crate::worker::Worker;
use crate::{ClientAddr, OutQueue};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{ready, Context, Poll, Waker};
use weir_runtime::clock;
use weir_runtime::net::Stream;
use weir_runtime::timer::LazyTimer;
use weir_tls::Channel;
use weir_wire::proxy_protocol::Proxied;

/// Pieces handed to the kernel in one call, and when there are many.
const PIECES_MAX: usize = 16;
const MANY_PIECES_MAX: usize = 128;
/// More is not encrypted without other connections having their turn.
const AT_ONCE_MAX_BYTES: u64 = 64 * 1024;
/// One sendfile call can move no more.
const SENDFILE_MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// A client that is connected, or (datagrams, parts, detached requests) what stands for one.
pub struct Connection {
    /// Which it stays on until it ends.
    pub worker: Rc<Worker>,
    /// Plain, or with TLS once the handshake is over.
    pub stream: Channel,
    /// It came to an address with TLS.
    pub tls_port: Cell<bool>,
    /// It leads nowhere and stands for one with TLS.
    pub like_tls: Cell<bool>,
    /// What the handshake told.
    pub secure: OnceCell<Box<Secure>>,
    /// `$connection`: unique over all workers.
    pub serial: u64,
    /// At the socket's other end.
    pub(crate) peer: ClientAddr,
    /// What it has from the sessions that have handed it on.
    pub(crate) handed_on: OnceCell<Box<HandedOn>>,
    /// The generation that it works by.
    gen: RefCell<Rc<WorkerGen>>,
    /// Its number among the worker's; 0 for one that was not the newest even at first.
    gen_turn: Cell<u32>,
    /// Which `ListenConf` of that generation it came by: never a number of another's.
    listen: Cell<usize>,
    /// It came by way of another server, which handed it on.
    is_passed: Cell<bool>,
    /// `$server_addr` and `$server_port`, once asked of the system.
    pub local: Cell<Option<SocketAddr>>,
    /// The address text of `$remote_addr`, made when it is first asked for.
    client_text: OnceCell<Box<[u8]>>,
    /// Begun so far: `$connection_requests`.
    pub requests: Cell<u32>,
    /// Monotonic ms when it was accepted.
    pub start_ms: u64,
    /// What a PROXY header has said.
    pub proxied: RefCell<Option<Box<Proxied>>>,
    /// What is still to be sent.
    pub out: RefCell<OutQueue>,
    /// For what the client is to send.
    alarm: Alarm,
    /// For what it is to take, made when that is first waited for.
    write_timer: RefCell<Option<Box<LazyTimer>>>,
    pub(crate) nodelay_set: Cell<bool>,
    /// The connection is closed for sending right after what is queued.
    ending: Cell<bool>,
    /// Bytes received and sent over its whole life.
    pub bytes_in: Cell<u64>,
    /// As `bytes_in`, of what was sent.
    pub bytes_out: Cell<u64>,
    /// Nothing more can be sent: what is queued stays unsent.
    pub broken: Cell<bool>,
    /// The client has taken nothing for as long as `send_timeout` allows.
    pub timed_out: Cell<bool>,
    /// Queued bytes that were thrown away.
    dropped: Cell<u64>,
    /// Somebody is told of its end.
    has_farewells: Cell<bool>,
    /// Waiting for a further request; may be closed without harm.
    pub idle: Cell<bool>,
    /// Waiting for a first or further request; may give way when connections run out.
    pub waiting: Cell<bool>,
    /// Monotonic ms until which the next request may begin.
    pub keepalive_deadline: Cell<u64>,
    /// The first bytes may be HTTP/2's preface.
    pub may_speak_h2: Cell<bool>,
    /// The task to wake when the worker is to finish, if it ends by itself then.
    pub ender: RefCell<Option<Waker>>,
    /// Coarse monotonic ms before which an idle connection is not closed by us.
    pub keepalive_least: Cell<u64>,
    /// Another process has it now.
    pub carried_away: Cell<bool>,
    /// Ended by us both ways: `worker_shutdown_timeout` has passed.
    pub is_cut: Cell<bool>,
    /// The client sends datagrams, and the stream leads nowhere.
    pub datagrams: OnceCell<Rc<Datagrams>>,
}

/// How a wait for the client ended badly.
#[derive(Debug)]
pub enum ConnError {
    /// Nothing has come, or nothing was taken, until the deadline.
    Timeout,
    /// The socket's error, or TLS's.
    Io(io::Error),
}

impl Connection {
    /// One that was accepted from the socket `listen` of that generation. `serial` is `$connection`.
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        client: ClientAddr,
        (gen, listen): (Rc<WorkerGen>, usize),
        serial: u64,
    ) -> Connection {
        let is_newest = Rc::ptr_eq(&worker.generation(), &gen);
        Connection {
            stream: stream.into(),
            tls_port: Cell::new(false),
            like_tls: Cell::new(false),
            secure: OnceCell::new(),
            serial,
            peer: client,
            handed_on: OnceCell::new(),
            gen: RefCell::new(gen),
            gen_turn: Cell::new(if is_newest { worker.turn() } else { 0 }),
            listen: Cell::new(listen),
            is_passed: Cell::new(false),
            local: Cell::new(None),
            client_text: OnceCell::new(),
            requests: Cell::new(0),
            start_ms: clock::mono_ms(),
            proxied: RefCell::new(None),
            out: RefCell::new(OutQueue::default()),
            alarm: Alarm::default(),
            write_timer: RefCell::new(None),
            nodelay_set: Cell::new(false),
            ending: Cell::new(false),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            broken: Cell::new(false),
            timed_out: Cell::new(false),
            dropped: Cell::new(0),
            has_farewells: Cell::new(false),
            idle: Cell::new(false),
            waiting: Cell::new(false),
            keepalive_deadline: Cell::new(0),
            may_speak_h2: Cell::new(false),
            ender: RefCell::new(None),
            keepalive_least: Cell::new(0),
            carried_away: Cell::new(false),
            is_cut: Cell::new(false),
            datagrams: OnceCell::new(),
            worker,
        }
    }

    /// The generation that it works by, which need not be the newest.
    pub fn generation(&self) -> Rc<WorkerGen> {
        Rc::clone(&self.gen.borrow())
    }

    /// The same, and the number of the socket in it.
    pub fn came_by(&self) -> (Rc<WorkerGen>, usize) {
        (self.generation(), self.listen.get())
    }

    /// Goes over to the newest generation and lets go of an older one, while nothing is done for the client;
    /// `false` when it may not, because its address is not listened on any more, or in another way.
    #[inline]
    pub fn keep_up(&self) -> bool {
        self.is_newest() || self.go_over()
    }

    #[cold]
    fn go_over(&self) -> bool {
        let newest = self.worker.generation();
        let Some(at) = self.place_in(&newest.shared) else { return false };
        self.listen.set(at);
        self.gen.replace(newest);
        self.gen_turn.set(self.worker.turn());
        true
    }

    /// Whether it ends once nothing is done for the client, for it cannot go over to the newest generation.
    #[inline]
    pub fn is_left_behind(&self) -> bool {
        !self.is_newest() && self.must_stay()
    }

    #[cold]
    fn must_stay(&self) -> bool {
        self.place_in(&self.worker.generation().shared).is_none()
    }

    #[inline]
    fn is_newest(&self) -> bool {
        self.worker.turn() == self.gen_turn.get()
    }

    /// Where a newer generation has it. One that was handed on stood before another server's rules first,
    /// which may be others now.
    #[cold]
    fn place_in(&self, newer: &Generation) -> Option<usize> {
        if self.is_passed.get() {
            return None;
        }
        let (mine, at) = self.came_by();
        let door = mine.shared.door(at, || self.local_addr());
        newer.same_door(&mine.shared.listens[at].addr, &door, || self.local_addr())
    }

    /// Another socket of its generation has it from now on, as if it had been accepted there.
    pub fn pass_to(&self, listen: usize, local: Option<SocketAddr>) {
        self.listen.set(listen);
        self.is_passed.set(true);
        if local.is_some() {
            self.local.set(local);
        }
    }

    /// Whether it came by way of another server.
    pub fn is_passed(&self) -> bool {
        self.is_passed.get()
    }

    /// The protocol it is of: the name of the block.
    pub fn protocol(&self) -> &'static str {
        self.gen.borrow().shared.protocol(self.listen.get())
    }

    /// There is a newer generation: has the task that ends the connection by itself look at it;
    /// `false` when there is none.
    pub fn look_again(&self) -> bool {
        let ender = self.ender.borrow();
        ender.as_ref().map(Waker::wake_by_ref).is_some()
    }

    /// Whether it still works by that generation.
    pub fn works_by(&self, gen: &Rc<WorkerGen>) -> bool {
        Rc::ptr_eq(&self.gen.borrow(), gen) && !self.waiting.get()
    }

    /// The socket it came by, in the generation of one of its requests.
    #[inline]
    pub fn socket<'g>(&self, gen: &'g Generation) -> &'g ListenConf {
        let mine = self.gen.borrow();
        if std::ptr::eq(gen, &*mine.shared) {
            return &gen.listens[self.listen.get()];
        }
        self.socket_before(gen, &mine)
    }

    /// Of a request that began before its connection went over, as HTTP/2's may have.
    #[cold]
    fn socket_before<'g>(&self, gen: &'g Generation, mine: &WorkerGen) -> &'g ListenConf {
        let addr = &mine.shared.listens[self.listen.get()].addr;
        let at = gen.listens.place(addr);
        &gen.listens[at.expect("a connection goes over to no other address")]
    }

    /// The address it came to, in that generation.
    #[inline]
    pub fn addr<'g>(&self, gen: &'g Generation) -> &'g AddrConf {
        self.socket(gen).choose(|| self.local_addr())
    }

    /// The number of the server of a session that has not named one yet: the one whose name the client
    /// asked for in its TLS hello, or the address' default.
    pub fn default_server(&self, gen: &Generation) -> usize {
        let addr = self.addr(gen);
        // Names were matched in the handshake; only a new configuration can fail to here.
        let asked = self.secure.get().and_then(|s| s.server(gen, addr).ok().flatten());
        asked.unwrap_or(addr.default)
    }

    /// A server of its protocol, by its number.
    pub fn server<'g>(&self, gen: &'g Generation, id: usize) -> &'g Arc<Virtual> {
        &gen.servers(self.socket(gen))[id]
    }

    /// Logs without a request.
    pub fn log(&self, level: LogLevel, text: &[u8]) {
        let mut line = text.to_vec();
        line.extend_from_slice(b", client: ");
        line.extend_from_slice(self.client_text());
        if let Some(local) = self.local_addr() {
            line.extend_from_slice(format!(", server: {local}").as_bytes());
        }
        let gen = self.generation();
        let server = self.server(&gen.shared, self.default_server(&gen.shared));
        server.error_log.log(level, Some(self.serial), &line);
    }

    /// Ready once the deadline for reading has passed.
    pub fn poll_timeout(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        self.alarm.poll_until(&self.worker.deadlines, cx, deadline)
    }

    /// Wakes the task if it waits for the client with a deadline.
    pub fn wake(&self) {
        self.alarm.wake(&self.worker.deadlines);
    }

    /// Whether the client speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.stream.is_tls() || self.like_tls.get()
    }

    /// Whether the client sends datagrams.
    pub fn is_udp(&self) -> bool {
        self.datagrams.get().is_some()
    }

    /// Ends the connection both ways, for whoever works with it.
    pub fn cut(&self) {
        self.is_cut.set(true);
        self.stream.shutdown_both();
        if let Some(datagrams) = self.datagrams.get() {
            datagrams.cut();
        }
    }

    /// The address the client connected to.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        if self.local.get().is_none() {
            self.local.set(self.stream.local_addr());
        }
        self.local.get()
    }

    /// Whose it is; a session may find another.
    #[inline]
    pub fn client(&self) -> ClientAddr {
        self.handed_on.get().map_or(self.peer, |h| h.last().client)
    }

    /// The same, of one by IP.
    pub fn client_addr(&self) -> Option<SocketAddr> {
        match self.client() {
            ClientAddr::Ip(addr) => Some(addr),
            ClientAddr::Unix => None,
        }
    }

    /// The text of `$remote_addr`.
    pub fn client_text(&self) -> &[u8] {
        match self.handed_on.get() {
            Some(handed_on) => &handed_on.last().text,
            None => self.client_text.get_or_init(|| self.peer.text()),
        }
    }

    /// Waits for bytes and reads them into a buffer that is taken when they are there; 0 is the end.
    pub fn poll_read_lazy<T>(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        slot: &mut T,
        buf: impl Fn(&mut T) -> &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_read_lazy(cx, room, slot, buf);
        read.map_ok(|n| {
            self.bytes_in.set(self.bytes_in.get() + n as u64);
            n
        })
    }

    /// Reads what has already arrived, if anything has.
    pub fn try_read(&self, buf: &mut Vec<u8>, room: usize) -> bool {
        match self.stream.try_read(buf, room) {
            Ok(n) if n > 0 => {
                self.bytes_in.set(self.bytes_in.get() + n as u64);
                true
            }
            _ => false,
        }
    }

    /// Reads more into the buffer; 0 is the end. `deadline` is in monotonic ms.
    pub async fn read(
        &self,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: u64,
    ) -> Result<usize, ConnError> {
        poll_fn(|cx| self.poll_read(cx, buf, room, deadline)).await
    }

    /// [`Connection::read`] for who is polled.
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: u64,
    ) -> Poll<Result<usize, ConnError>> {
        if let Poll::Ready(r) = self.stream.poll_read(cx, buf, room) {
            if let Ok(n) = r {
                self.bytes_in.set(self.bytes_in.get() + n as u64);
            }
            return Poll::Ready(r.map_err(ConnError::Io));
        }
        self.poll_timeout(cx, deadline).map(|()| Err(ConnError::Timeout))
    }

    /// Sends what is queued, up to `max` bytes; answers how much was sent.
    pub fn poll_flush(&self, cx: &mut Context<'_>, max: u64) -> Poll<io::Result<u64>> {
        if self.broken.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut total = 0u64;
        let mut out = self.out.borrow_mut();
        while out.queued() > 0 && total < max {
            let n = match self.poll_send(cx, &out, max - total) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => {
                    drop(out);
                    self.bytes_out.set(self.bytes_out.get() + total);
                    self.fail();
                    return Poll::Ready(Err(e));
                }
                Poll::Pending if total > 0 => break,
                Poll::Pending => return Poll::Pending,
            };
            total += n as u64;
            out.consume(n);
        }
        self.bytes_out.set(self.bytes_out.get() + total);
        Poll::Ready(Ok(total))
    }

    /// Nothing more can be sent.
    fn fail(&self) {
        self.broken.set(true);
        self.drop_output();
    }

    /// Sends what is queued, if it is a little and the socket takes all of it: most answers need no future
    /// that waits. What is left is for the others to send; `true` when nothing is.
    pub fn flush_at_once(&self) -> bool {
        let mut out = self.out.borrow_mut();
        if out.queued() == 0 {
            return true;
        }
        let is_little = out.first_file().is_none() && out.pieces() <= PIECES_MAX;
        if !is_little || self.broken.get() {
            return false;
        }
        if self.stream.is_tls() {
            let is_little = out.queued() <= AT_ONCE_MAX_BYTES;
            drop(out);
            return is_little && self.encrypt_at_once();
        }
        let (socket, ends) = (self.stream.socket(), self.ending.get());
        let sent = match out.all_text() {
            Some(text) => socket.write_at_once(&[IoSlice::new(text)], ends),
            None => {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                let (count, more) = out.slices(&mut slices, u64::MAX);
                socket.write_at_once(&slices[..count], more || ends)
            }
        };
        match sent {
            Some(Ok(n)) => {
                out.consume(n);
                self.bytes_out.set(self.bytes_out.get() + n as u64);
                out.queued() == 0
            }
            Some(Err(_)) => {
                drop(out);
                self.fail();
                false
            }
            None => false,
        }
    }

    /// Nobody is woken when there is room: who sends what is left asks again.
    fn encrypt_at_once(&self) -> bool {
        let sent = self.poll_flush(&mut Context::from_waker(Waker::noop()), u64::MAX);
        matches!(sent, Poll::Ready(Ok(_))) && self.out.borrow().queued() == 0
    }

    fn poll_send(&self, cx: &mut Context<'_>, out: &OutQueue, max: u64) -> Poll<io::Result<usize>> {
        if let Some((file, offset, len)) = out.first_file() {
            let n = len.min(max).min(SENDFILE_MAX_BYTES) as usize;
            let sent = ready!(self.stream.poll_send_file(cx, file, offset, n))?;
            if sent == 0 {
                return Poll::Ready(Err(io::Error::other("the file was truncated while sent")));
            }
            return Poll::Ready(Ok(sent));
        }
        match out.pieces() > PIECES_MAX {
            false => self.send_pieces::<PIECES_MAX>(cx, out, max),
            true => self.send_pieces::<MANY_PIECES_MAX>(cx, out, max),
        }
    }

    fn send_pieces<const MAX: usize>(
        &self,
        cx: &mut Context<'_>,
        out: &OutQueue,
        max: u64,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); MAX];
        let (count, more) = out.slices(&mut slices, max);
        let more = more || self.ending.get();
        self.stream.poll_write(cx, &slices[..count], more)
    }

    /// Sends what is queued until at most `leave` bytes are left; `timeout_ms` is the longest time
    /// between two writes that make progress.
    pub async fn drain(&self, leave: u64, timeout_ms: u64) -> Result<(), ConnError> {
        while self.out.borrow().queued() > leave {
            self.drain_some(u64::MAX, timeout_ms).await?;
        }
        Ok(())
    }

    /// As [`Connection::drain`], in turns of at most so many bytes, between which other connections
    /// have theirs; 0 for no turns.
    pub async fn drain_in_turns(
        &self,
        leave: u64,
        turn: u64,
        timeout_ms: u64,
    ) -> Result<(), ConnError> {
        let turn = if turn == 0 { u64::MAX } else { turn };
        loop {
            let before = self.out.borrow().queued();
            if before <= leave {
                return Ok(());
            }
            self.drain_some(turn, timeout_ms).await?;
            if before - self.out.borrow().queued() >= turn {
                weir_runtime::event_loop::yield_now().await;
            }
        }
    }

    /// Sends at least one and at most `max` of the queued bytes.
    pub async fn drain_some(&self, max: u64, timeout_ms: u64) -> Result<(), ConnError> {
        let mut deadline = 0;
        poll_fn(|cx| {
            if let Poll::Ready(r) = self.poll_flush(cx, max) {
                return Poll::Ready(r.map(|_| ()).map_err(ConnError::Io));
            }
            if deadline == 0 {
                deadline = clock::mono_ms() + timeout_ms;
            }
            self.poll_write_timeout(cx, deadline)
        })
        .await
    }

    /// Bytes that were queued and have not left, nor will those of them that are gone.
    pub fn unsent(&self) -> u64 {
        self.out.borrow().queued() + self.dropped.get()
    }

    /// Throws away what is queued.
    pub fn drop_output(&self) {
        let mut out = self.out.borrow_mut();
        self.dropped.set(self.dropped.get() + out.queued());
        out.clear();
    }

    /// Throws away what is queued but for its first bytes.
    pub fn drop_output_behind(&self, bytes: u64) {
        let mut out = self.out.borrow_mut();
        self.dropped.set(self.dropped.get() + out.cut(bytes));
    }

    /// The client takes nothing: it gets nothing more.
    pub fn give_up_sending(&self) {
        self.broken.set(true);
        self.timed_out.set(true);
    }

    /// Fails once the deadline for writing has passed; nothing more is sent then.
    pub fn poll_write_timeout(
        &self,
        cx: &mut Context<'_>,
        deadline: u64,
    ) -> Poll<Result<(), ConnError>> {
        self.poll_write_timer(cx, deadline).map(|()| {
            self.give_up_sending();
            Err(ConnError::Timeout)
        })
    }

    fn poll_write_timer(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        let mut timer = self.write_timer.borrow_mut();
        timer.get_or_insert_with(Box::default).poll_until(cx, deadline)
    }

    /// Whether the client has hung up; otherwise wakes the task when it may have. `watching` is turned off
    /// once there is something to read, for the end cannot be seen behind it.
    #[inline]
    pub fn poll_gone(&self, cx: &mut Context<'_>, watching: &mut bool) -> bool {
        while *watching && self.stream.poll_readable(cx).is_ready() {
            match self.stream.peek() {
                Ok(0) => match self.stream.poll_ended(cx) {
                    Poll::Ready(true) => return true,
                    Poll::Ready(false) => *watching = false,
                    Poll::Pending => return false,
                },
                Ok(_) => *watching = false,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
        }
        false
    }

    /// Whether the client has ended its side behind all that was read: only [`Connection::poll_broken`] tells then
    /// that it is gone.
    pub fn is_half_closed(&self) -> bool {
        self.stream.is_ended()
    }

    /// Whether nothing reaches the client any more; otherwise wakes the task when that may be.
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> bool {
        self.stream.poll_broken(cx).is_ready()
    }

    /// Whether something waits to be read, be it the end; otherwise wakes the task when that may be.
    pub fn poll_heard(&self, cx: &mut Context<'_>) -> bool {
        while self.stream.poll_readable(cx).is_ready() {
            match self.stream.peek() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                _ => return true,
            }
        }
        false
    }

    /// Waits, but no longer than the client is there. `half_closed`: that it has ended its side says nothing, for it may wait
    /// for the rest.
    pub async fn sleep_while_open(&self, ms: u64, half_closed: bool) -> Result<(), ConnError> {
        // The turn's clock may be behind, and says whole milliseconds.
        clock::renew();
        let deadline = clock::mono_ms().saturating_add(ms).saturating_add(1);
        let mut watching = true;
        let mut is_gone = |cx: &mut Context<'_>| match half_closed {
            true => self.poll_broken(cx),
            false => self.poll_gone(cx, &mut watching),
        };
        poll_fn(|cx| match is_gone(cx) {
            true => Poll::Ready(Err(ConnError::Io(io::ErrorKind::BrokenPipe.into()))),
            false => self.poll_write_timer(cx, deadline).map(Ok),
        })
        .await
    }

    /// Small answers leave at once; set when a connection is kept, as nginx does.
    pub fn set_nodelay(&self) {
        if !self.nodelay_set.replace(true) {
            self.stream.set_nodelay(true);
        }
    }

    /// The worker is to finish: tells the task that ends the connection by itself; `false` when
    /// there is none.
    pub fn tell_of_end(&self) -> bool {
        // It stays, for by it HTTP/2 is told from what another process could go on with.
        self.look_again()
    }

    /// What is queued is the last: it leaves in one packet with the end of the stream, which
    /// [`Connection::end_sending`] must follow.
    pub fn will_end(&self) {
        self.ending.set(true);
    }

    /// The sending half is still to be closed behind the last that was queued.
    pub fn will_end_soon(&self) -> bool {
        self.ending.get()
    }

    /// Closes the sending half.
    pub fn end_sending(&self) {
        self.ending.set(false);
        self.stream.shutdown_write();
    }

    /// Takes an output queue from the worker's pool for the answer that begins.
    pub fn take_queue(&self) {
        let mut out = self.out.borrow_mut();
        if out.is_bare() {
            *out = self.worker.take_queue();
        }
    }

    /// Gives back what a request has needed, while the connection waits.
    pub fn rest(&self) {
        self.write_timer.take();
        self.give_queue();
    }

    fn give_queue(&self) {
        let mut out = self.out.borrow_mut();
        if out.is_spare() {
            let queue = std::mem::take(&mut *out);
            if !queue.is_large() {
                self.worker.give_queue(queue);
            }
        }
    }
}

/// What is to be done when connections end, by their numbers: few have anything, which costs the others nothing.
#[derive(Default)]
struct Farewells(RefCell<HashMap<u64, VecDeque<Farewell>>>);

/// What it is known by, and what is to be done.
type Farewell = ((usize, u64), Box<dyn FnOnce()>);

/// Of one connection: beyond it the oldest is done at once.
const FAREWELLS_MAX: usize = 64;

impl Connection {
    /// Has something done when the connection has ended, once for each key.
    pub fn at_end(&self, key: (usize, u64), f: impl FnOnce() + 'static) {
        self.has_farewells.set(true);
        let all = self.worker.local::<Farewells>();
        let mut all = all.0.borrow_mut();
        let own = all.entry(self.serial).or_default();
        if own.iter().any(|(known, _)| *known == key) {
            return;
        }
        own.push_back((key, Box::new(f)));
        let oldest = (own.len() > FAREWELLS_MAX).then(|| own.pop_front()).flatten();
        drop(all);
        oldest.into_iter().for_each(|(_, f)| f());
    }

    #[cold]
    fn say_farewell(&self) {
        let own = self.worker.local::<Farewells>().0.borrow_mut().remove(&self.serial);
        own.into_iter().flatten().for_each(|(_, f)| f());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.has_farewells.get() {
            self.say_farewell();
        }
        if let Some(datagrams) = self.datagrams.get() {
            datagrams.release();
        }
        self.alarm.end(&self.worker.deadlines);
        self.give_queue();
    }
}
