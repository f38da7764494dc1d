//! A client connection: its socket, its addresses, its output queue, its one timer.

use crate::generation::{Location, Server, WorkerGen};
use crate::logger::LogLevel;
use crate::request::Request;
use crate::tls::Secure;
use crate::worker::Worker;
use bytes::Bytes;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{ready, Context, Poll, Waker};
use weir_runtime::clock;
use weir_runtime::net::Stream;
use weir_runtime::timer::LazyTimer;
use weir_tls::Channel;
use weir_wire::proxy_protocol::Proxied;

/// Pieces up to this size are copied together; larger ones are sent from where they are.
const COPY_MAX_BYTES: usize = 2048;
/// Pieces handed to the kernel in one call, and when there are many.
const PIECES_MAX: usize = 16;
const MANY_PIECES_MAX: usize = 128;
/// One sendfile call can move no more.
const SENDFILE_MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// What nginx rounds a part of a file up to, that it may send by a rate.
const PAGE_BYTES: u64 = 4096;
/// Output buffers kept for the next response, when no larger than this.
const KEEP_BUFFER_MAX_BYTES: usize = 64 * 1024;
/// The same for a buffer that was read into: as much as is read with a head.
const KEEP_READ_MAX_BYTES: usize = 32 * 1024;
/// A queue with room for more pieces than this is let go with its connection's wait.
const KEEP_PIECES_MAX: usize = 512;

enum Piece {
    Text(Vec<u8>),
    Mem(Bytes),
    /// What a buffer holds from `from` on; the buffer is read into anew when that has left.
    Read {
        buf: Vec<u8>,
        from: usize,
    },
    File {
        file: Rc<File>,
        offset: u64,
        len: u64,
    },
}

/// What is still to be sent to the client, in order.
#[derive(Default)]
pub struct OutQueue {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are already sent.
    sent: usize,
    queued: u64,
    spare: Option<Vec<u8>>,
    /// A buffer that has left, for the next that is queued as it is.
    spare_read: Option<Vec<u8>>,
}

impl OutQueue {
    /// The buffer at the end of the queue, for appending; report growth with [`OutQueue::grew`].
    fn text(&mut self) -> &mut Vec<u8> {
        if !matches!(self.pieces.back(), Some(Piece::Text(_))) {
            let fresh = self.spare.take().unwrap_or_else(|| Vec::with_capacity(1024));
            self.pieces.push_back(Piece::Text(fresh));
        }
        match self.pieces.back_mut() {
            Some(Piece::Text(t)) => t,
            _ => unreachable!("a text piece was just put at the end"),
        }
    }

    /// Appends text through a closure; answers how much was added.
    pub fn write(&mut self, f: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let text = self.text();
        let before = text.len();
        f(text);
        let added = (text.len() - before) as u64;
        self.queued += added;
        added
    }

    pub fn push_bytes(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_MAX_BYTES {
            self.write(|t| t.extend_from_slice(&bytes));
            return;
        }
        self.queued += bytes.len() as u64;
        self.pieces.push_back(Piece::Mem(bytes));
    }

    /// Queues what a buffer holds from `from` on, where it is, and puts another in its place, which
    /// begins with what stands before `from`.
    pub fn push_read(&mut self, buf: &mut Vec<u8>, from: usize) {
        let mut other = self.spare_read.take().unwrap_or_default();
        other.extend_from_slice(&buf[..from]);
        let buf = std::mem::replace(buf, other);
        self.queued += (buf.len() - from) as u64;
        self.pieces.push_back(Piece::Read { buf, from });
    }

    pub fn push_file(&mut self, file: Rc<File>, offset: u64, len: u64) {
        if len > 0 {
            self.queued += len;
            self.pieces.push_back(Piece::File { file, offset, len });
        }
    }

    /// `max`, and what of a file is left behind it in its page.
    pub(crate) fn to_page_end(&self, max: u64) -> u64 {
        let mut before = 0;
        for (at, piece) in self.pieces.iter().enumerate() {
            let skipped = if at == 0 { self.sent } else { 0 };
            let (offset, len) = match piece {
                Piece::Text(text) => (None, text.len() - skipped),
                Piece::Mem(bytes) => (None, bytes.len() - skipped),
                Piece::Read { buf, from } => (None, buf.len() - from - skipped),
                Piece::File { offset, len, .. } => (Some(*offset), *len as usize),
            };
            if let Some(offset) = offset.filter(|_| max < before + len as u64) {
                let end = offset + max.saturating_sub(before);
                let aligned = end.next_multiple_of(PAGE_BYTES);
                return match aligned <= offset + len as u64 {
                    true => max + (aligned - end),
                    false => max,
                };
            }
            before += len as u64;
        }
        max
    }

    /// Bytes that are not sent yet.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    fn first_is_file(&self) -> bool {
        matches!(self.pieces.front(), Some(Piece::File { .. }))
    }

    fn consume(&mut self, mut n: usize) {
        self.queued -= n as u64;
        while let Some(front) = self.pieces.front_mut() {
            let left = match front {
                Piece::Text(t) => t.len() - self.sent,
                Piece::Mem(b) => b.len() - self.sent,
                Piece::Read { buf, from } => buf.len() - *from - self.sent,
                Piece::File { offset, len, .. } => {
                    *offset += n as u64;
                    *len -= n as u64;
                    n = 0;
                    *len as usize
                }
            };
            if n < left || (n == 0 && left > 0) {
                self.sent += n;
                return;
            }
            n -= left;
            self.sent = 0;
            match self.pieces.pop_front() {
                Some(Piece::Text(mut t)) if t.capacity() <= KEEP_BUFFER_MAX_BYTES => {
                    t.clear();
                    self.spare = Some(t);
                }
                Some(Piece::Read { mut buf, .. }) if buf.capacity() <= KEEP_READ_MAX_BYTES => {
                    buf.clear();
                    self.spare_read = Some(buf);
                }
                _ => {}
            }
        }
    }

    /// Moves the first `n` bytes of another queue to the end of this one.
    pub fn take_from(&mut self, from: &mut OutQueue, n: u64) {
        let mut left = n;
        while left > 0 {
            let Some(front) = from.pieces.front() else { return };
            let taken = match front {
                Piece::Text(t) => {
                    let part = &t[from.sent..];
                    let part = &part[..part.len().min(left as usize)];
                    self.write(|text| text.extend_from_slice(part))
                }
                Piece::Read { buf, from: start } => {
                    let part = &buf[*start + from.sent..];
                    let part = &part[..part.len().min(left as usize)];
                    self.write(|text| text.extend_from_slice(part))
                }
                Piece::Mem(b) => {
                    let end = b.len().min(from.sent + left as usize);
                    let part = b.slice(from.sent..end);
                    let taken = part.len() as u64;
                    self.push_bytes(part);
                    taken
                }
                Piece::File { file, offset, len } => {
                    let taken = left.min(*len);
                    self.push_file(Rc::clone(file), *offset, taken);
                    taken
                }
            };
            from.consume(taken as usize);
            left -= taken;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = OutQueue::default();
    }

    /// What it holds for text to come.
    pub(crate) fn kept_bytes(&self) -> usize {
        let spare = [&self.spare, &self.spare_read];
        spare.into_iter().flatten().map(Vec::capacity).sum()
    }

    /// Nothing is queued, and there is memory that another connection could use.
    fn is_spare(&self) -> bool {
        self.queued == 0 && self.pieces.is_empty() && self.pieces.capacity() > 0
    }
}

/// A client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddr {
    Ip(SocketAddr),
    Unix,
}

impl ClientAddr {
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            ClientAddr::Ip(a) => Some(a.ip()),
            ClientAddr::Unix => None,
        }
    }

    /// `$remote_addr`.
    pub fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        match self {
            // Writing into a Vec cannot fail.
            ClientAddr::Ip(a) => drop(write!(out, "{}", a.ip())),
            ClientAddr::Unix => out.extend_from_slice(b"unix:"),
        }
    }

    pub fn port(&self) -> Option<u16> {
        match self {
            ClientAddr::Ip(a) => Some(a.port()),
            ClientAddr::Unix => None,
        }
    }
}

pub struct Connection {
    pub worker: Rc<Worker>,
    pub stream: Channel,
    /// It came to an address with TLS.
    pub tls_port: Cell<bool>,
    /// It leads nowhere and stands for one with TLS.
    pub(crate) like_tls: Cell<bool>,
    /// What the handshake told.
    pub secure: OnceCell<Box<Secure>>,
    /// `$connection`: unique over all workers.
    pub serial: u64,
    pub client: ClientAddr,
    /// The generation in use: the newest one that still names its listening address.
    gen: RefCell<Rc<WorkerGen>>,
    /// Which `ListenConf` of that generation it came by.
    pub listen: Cell<usize>,
    pub local: Cell<Option<SocketAddr>>,
    /// The address text of `$remote_addr`, made when it is first asked for.
    client_text: OnceCell<Vec<u8>>,
    pub requests: Cell<u32>,
    /// Monotonic ms when it was accepted.
    pub start_ms: u64,
    pub proxied: RefCell<Option<Proxied>>,
    pub out: RefCell<OutQueue>,
    timer: RefCell<LazyTimer>,
    write_timer: RefCell<LazyTimer>,
    pub nodelay_set: Cell<bool>,
    /// The connection is closed for sending right after what is queued.
    ending: Cell<bool>,
    /// Bytes received and sent over its whole life.
    pub bytes_in: Cell<u64>,
    pub bytes_out: Cell<u64>,
    /// Nothing more can be sent: what is queued stays unsent.
    pub broken: Cell<bool>,
    /// The client has taken nothing for as long as `send_timeout` allows.
    pub timed_out: Cell<bool>,
    /// Queued bytes that were thrown away.
    dropped: Cell<u64>,
    /// Waiting for a further request; may be closed without harm.
    pub idle: Cell<bool>,
    /// Waiting for a first or further request; may give way when connections run out.
    pub waiting: Cell<bool>,
    /// Monotonic ms until which the next request may begin.
    pub keepalive_deadline: Cell<u64>,
    /// The first bytes may be HTTP/2's preface.
    pub(crate) may_speak_h2: Cell<bool>,
    /// The task to wake when the worker is to finish, if it ends by itself then.
    pub(crate) ender: RefCell<Option<Waker>>,
    /// Coarse monotonic ms before which an idle connection is not closed by us.
    pub keepalive_least: Cell<u64>,
    /// Another process has it now.
    pub(crate) carried_away: Cell<bool>,
}

/// How a wait for the client ended badly.
#[derive(Debug)]
pub enum ConnError {
    Timeout,
    Io(io::Error),
}

impl Connection {
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        client: ClientAddr,
        listen: usize,
        serial: u64,
    ) -> Connection {
        Connection {
            stream: stream.into(),
            tls_port: Cell::new(false),
            like_tls: Cell::new(false),
            secure: OnceCell::new(),
            serial,
            client,
            gen: RefCell::new(worker.generation()),
            listen: Cell::new(listen),
            local: Cell::new(None),
            client_text: OnceCell::new(),
            requests: Cell::new(0),
            start_ms: clock::mono_ms(),
            proxied: RefCell::new(None),
            out: RefCell::new(OutQueue::default()),
            timer: RefCell::new(LazyTimer::new()),
            write_timer: RefCell::new(LazyTimer::new()),
            nodelay_set: Cell::new(false),
            ending: Cell::new(false),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            broken: Cell::new(false),
            timed_out: Cell::new(false),
            dropped: Cell::new(0),
            idle: Cell::new(false),
            waiting: Cell::new(false),
            keepalive_deadline: Cell::new(0),
            may_speak_h2: Cell::new(false),
            ender: RefCell::new(None),
            keepalive_least: Cell::new(0),
            carried_away: Cell::new(false),
            worker,
        }
    }

    /// The newest generation, when it still listens on this connection's address; otherwise the
    /// one the connection has.
    pub fn generation(&self) -> Rc<WorkerGen> {
        let newest = self.worker.generation();
        let mut mine = self.gen.borrow_mut();
        if !Rc::ptr_eq(&newest, &mine) {
            let addr = &mine.shared.listens[self.listen.get()].addr;
            if let Some(at) = newest.shared.listens.place(addr) {
                self.listen.set(at);
                *mine = newest;
            }
        }
        Rc::clone(&mine)
    }

    /// Lets go of an old generation while nothing is done for the client; `false` when the newest
    /// does not listen on this connection's address.
    pub fn keep_up(&self) -> bool {
        if Rc::ptr_eq(&self.worker.gen.borrow(), &self.gen.borrow()) {
            return true;
        }
        let mine = self.generation();
        Rc::ptr_eq(&self.worker.gen.borrow(), &mine)
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

    /// The server of a request that has not named one yet: the one whose name the client asked for
    /// in its TLS hello, or the address' default.
    pub fn default_server_of(&self, gen: &Rc<WorkerGen>) -> Rc<Server> {
        let listen = &gen.shared.listens[self.listen.get()];
        let addr = listen.choose(|| self.local_addr());
        // Names were matched in the handshake; only a new configuration can fail to here.
        let asked = self.secure.get().and_then(|s| s.server(gen, addr).ok().flatten());
        Rc::clone(&gen.servers[asked.unwrap_or(addr.default)])
    }

    pub fn default_server(&self) -> Rc<Server> {
        self.default_server_of(&self.generation())
    }

    pub fn default_location(&self) -> Rc<Location> {
        let gen = self.generation();
        let server = self.default_server_of(&gen);
        Rc::clone(&gen.locations[server.location])
    }

    /// Logs without a request.
    pub fn log(&self, level: LogLevel, text: &[u8]) {
        let mut line = text.to_vec();
        line.extend_from_slice(b", client: ");
        line.extend_from_slice(self.client_text());
        if let Some(local) = self.local_addr() {
            line.extend_from_slice(format!(", server: {local}").as_bytes());
        }
        self.default_location().error_log.log(level, Some(self.serial), &line);
    }

    /// Ready once the deadline for reading has passed.
    pub fn poll_timeout(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        self.timer.borrow_mut().poll_until(cx, deadline)
    }

    /// Wakes the task if it waits for the client with a deadline.
    pub(crate) fn wake(&self) {
        self.timer.borrow_mut().wake();
    }

    /// Whether the client speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.stream.is_tls() || self.like_tls.get()
    }

    /// The address the client connected to.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        if self.local.get().is_none() {
            self.local.set(self.stream.local_addr());
        }
        self.local.get()
    }

    /// The text of `$remote_addr`.
    pub fn client_text(&self) -> &[u8] {
        self.client_text.get_or_init(|| {
            let mut text = Vec::new();
            self.client.write(&mut text);
            text
        })
    }

    /// Waits for a request and begins to read it into one from the worker's pool; `false` at the
    /// end of the stream. A connection that waits holds none.
    pub fn poll_read_request(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        slot: &mut Option<Box<Request>>,
    ) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_read_lazy(cx, room, slot, |slot| {
            &mut slot.get_or_insert_with(|| self.worker.take_request()).buf
        });
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
        self.timer.borrow_mut().poll_until(cx, deadline).map(|()| Err(ConnError::Timeout))
    }

    /// Sends what is queued, up to `max` bytes; answers how much was sent.
    pub fn poll_flush(&self, cx: &mut Context<'_>, max: u64) -> Poll<io::Result<u64>> {
        if self.broken.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut total = 0u64;
        let mut out = self.out.borrow_mut();
        while out.queued > 0 && total < max {
            let n = match self.poll_send(cx, &out, max - total) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => {
                    drop(out);
                    self.bytes_out.set(self.bytes_out.get() + total);
                    self.broken.set(true);
                    self.drop_output();
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

    fn poll_send(&self, cx: &mut Context<'_>, out: &OutQueue, max: u64) -> Poll<io::Result<usize>> {
        if out.first_is_file() {
            let Some(Piece::File { file, offset, len }) = out.pieces.front() else {
                return Poll::Ready(Ok(0));
            };
            let n = (*len).min(max).min(SENDFILE_MAX_BYTES) as usize;
            let sent = ready!(self.stream.poll_send_file(cx, file, *offset, n))?;
            if sent == 0 {
                return Poll::Ready(Err(io::Error::other("the file was truncated while sent")));
            }
            return Poll::Ready(Ok(sent));
        }
        match out.pieces.len() > PIECES_MAX {
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
        let (mut count, mut bytes, mut more) = (0, 0u64, self.ending.get());
        for piece in &out.pieces {
            let whole: &[u8] = match piece {
                Piece::Text(t) => t,
                Piece::Mem(b) => b,
                Piece::Read { buf, from } => &buf[*from..],
                Piece::File { .. } => {
                    more = true;
                    break;
                }
            };
            if count == MAX || bytes >= max {
                more = true;
                break;
            }
            let mut part = if count == 0 { &whole[out.sent..] } else { whole };
            if part.len() as u64 > max - bytes {
                part = &part[..(max - bytes) as usize];
            }
            slices[count] = IoSlice::new(part);
            count += 1;
            bytes += part.len() as u64;
        }
        self.stream.poll_write(cx, &slices[..count], more)
    }

    /// Sends what is queued until at most `leave` bytes are left; `timeout_ms` is the longest time
    /// between two writes that make progress.
    pub async fn drain(&self, leave: u64, timeout_ms: u64) -> Result<(), ConnError> {
        while self.out.borrow().queued > leave {
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
            let before = self.out.borrow().queued;
            if before <= leave {
                return Ok(());
            }
            self.drain_some(turn, timeout_ms).await?;
            if before - self.out.borrow().queued >= turn {
                tokio::task::yield_now().await;
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
        self.out.borrow().queued + self.dropped.get()
    }

    /// Throws away what is queued.
    pub(crate) fn drop_output(&self) {
        let mut out = self.out.borrow_mut();
        self.dropped.set(self.dropped.get() + out.queued);
        out.clear();
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
        self.write_timer.borrow_mut().poll_until(cx, deadline).map(|()| {
            self.give_up_sending();
            Err(ConnError::Timeout)
        })
    }

    /// Waits, but no longer than the client is there.
    pub async fn sleep_while_open(&self, ms: u64) -> Result<(), ConnError> {
        let deadline = clock::mono_ms() + ms;
        let mut watch = true;
        poll_fn(|cx| {
            while watch {
                match self.stream.poll_readable(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(ConnError::Io(e))),
                    Poll::Ready(Ok(())) => {}
                }
                match self.stream.peek() {
                    Ok(0) => {
                        return Poll::Ready(Err(ConnError::Io(io::ErrorKind::BrokenPipe.into())))
                    }
                    // More requests wait behind this one: the end cannot be seen.
                    Ok(_) => watch = false,
                    Err(_) => self.stream.not_readable(cx),
                }
            }
            self.write_timer.borrow_mut().poll_until(cx, deadline).map(Ok)
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
    pub(crate) fn will_end(&self) {
        self.ending.set(true);
    }

    /// The sending half is still to be closed behind the last that was queued.
    pub(crate) fn will_end_soon(&self) -> bool {
        self.ending.get()
    }

    /// Closes the sending half.
    pub(crate) fn end_sending(&self) {
        self.ending.set(false);
        self.stream.shutdown_write();
    }

    /// Takes an output queue from the worker's pool for the request that begins.
    pub(crate) fn take_queue(&self) {
        let mut out = self.out.borrow_mut();
        if out.pieces.capacity() == 0 {
            *out = self.worker.take_queue();
        }
    }

    /// Gives the output queue back, while the connection waits.
    pub(crate) fn give_queue(&self) {
        let mut out = self.out.borrow_mut();
        if out.is_spare() {
            let queue = std::mem::take(&mut *out);
            if queue.pieces.capacity() <= KEEP_PIECES_MAX {
                self.worker.give_queue(queue);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.give_queue();
    }
}
