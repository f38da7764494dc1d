//! Messages with sockets and handles from a process to one that it has started: by a pipe that is the other's standard
//! input. Who sends has a thread that writes, so that he never waits; who receives has one that reads, and is woken by it
//! as by a signal.

use super::lent::{self, LENT_BYTES};
use super::sockets::{AsRawFd, OwnedFd, RawFd, UnixStream};
use super::{signals, unsupported};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a message may be.
pub struct Bounds {
    pub body_max_bytes: u64,
    pub fds_max: u64,
    /// Of the whole message; `None` waits as long as it takes.
    pub deadline: Option<Instant>,
}

/// Between the processes of one program.
const TRUSTED: Bounds = Bounds { body_max_bytes: 1 << 30, fds_max: 1 << 20, deadline: None };
const HEAD_BYTES: usize = 16;

/// One of the two ends.
pub(super) enum End {
    Sends(Mutex<Option<PipeWriter>>),
    /// To be the standard input of a process.
    Lies(PipeReader),
    Receives(Arc<Inbox>),
}

/// A message on its way.
struct Parcel {
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
    class: u8,
}

#[derive(Default)]
struct Waiting {
    parcels: VecDeque<Parcel>,
    /// The process that they go to, once it is there.
    to: Option<u32>,
    /// No more come.
    is_closed: bool,
    has_failed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    bell: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending side. What was sent is written even after it is dropped.
pub struct Outbox(Arc<Queue>);

impl Drop for Outbox {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.bell.notify_all();
    }
}

impl Outbox {
    /// # Errors
    ///
    /// It is not the end that sends, or there is no thread.
    pub fn new(link: UnixStream) -> io::Result<Outbox> {
        let End::Sends(pipe) = &link.0 else { return unsupported() };
        let pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pipe = pipe.ok_or(io::ErrorKind::NotConnected)?;
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        std::thread::Builder::new().name("handover".into()).spawn(move || write_all(&own, pipe))?;
        Ok(Outbox(queue))
    }

    /// Says which process is at the other end; nothing is written before.
    pub fn goes_to(&mut self, pid: i32) {
        self.0.lock().to = Some(pid.unsigned_abs());
        self.0.bell.notify_all();
    }

    /// Queues a body with what goes beside it. A message makes earlier ones of its class needless, if they are not yet
    /// begun.
    ///
    /// # Errors
    ///
    /// The other process does not read any more.
    pub fn send(&mut self, body: &[u8], fds: Vec<OwnedFd>, class: u8) -> io::Result<()> {
        let mut waiting = self.0.lock();
        if waiting.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        waiting.parcels.retain(|p| p.class != class);
        waiting.parcels.push_back(Parcel { body: body.to_vec(), fds, class });
        self.0.bell.notify_all();
        Ok(())
    }

    /// # Errors
    ///
    /// None.
    pub fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// A thread waits.
    pub fn waits(&self) -> Option<RawFd> {
        None
    }
}

fn write_all(queue: &Queue, mut pipe: PipeWriter) {
    let mut waiting = queue.lock();
    loop {
        match (waiting.to, waiting.is_closed) {
            (Some(pid), _) if !waiting.parcels.is_empty() => {
                let parcel = waiting.parcels.pop_front();
                drop(waiting);
                let done = parcel.map_or(Ok(()), |p| write(&mut pipe, pid, &p));
                waiting = queue.lock();
                if done.is_err() {
                    waiting.parcels.clear();
                    waiting.has_failed = true;
                    return;
                }
            }
            (_, true) => return,
            _ => waiting = queue.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Lengths, what goes beside it, the body.
fn write(pipe: &mut PipeWriter, pid: u32, parcel: &Parcel) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + parcel.fds.len() * LENT_BYTES);
    bytes.extend_from_slice(&(parcel.body.len() as u64).to_ne_bytes());
    bytes.extend_from_slice(&(parcel.fds.len() as u64).to_ne_bytes());
    for fd in &parcel.fds {
        bytes.extend_from_slice(&lent::lend(fd.as_raw_fd(), pid)?);
    }
    pipe.write_all(&bytes)?;
    pipe.write_all(&parcel.body)
}

type Received = (Vec<u8>, Vec<OwnedFd>);

fn read(from: &mut impl Read, bounds: &Bounds) -> io::Result<Received> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head)?;
    let (len, count) = head.split_at(HEAD_BYTES / 2);
    let number = |b: &[u8]| b.try_into().map(u64::from_ne_bytes).unwrap_or(u64::MAX);
    let (len, count) = (number(len), number(count));
    if len > bounds.body_max_bytes || count > bounds.fds_max {
        return Err(io::Error::other("a message of impossible length"));
    }
    let mut fds = Vec::new();
    for _ in 0..count {
        let mut lent = [0; LENT_BYTES];
        from.read_exact(&mut lent)?;
        fds.push(lent::take(&lent)?);
    }
    let mut body = vec![0; len as usize];
    from.read_exact(&mut body)?;
    Ok((body, fds))
}

/// The one message that a process is told by who has started it to take its place.
pub(super) fn read_one(from: &mut File) -> io::Result<Received> {
    read(from, &TRUSTED)
}

#[derive(Default)]
struct Come {
    messages: VecDeque<Received>,
    is_closed: bool,
}

/// What has come and was not received yet.
#[derive(Default)]
pub(super) struct Inbox {
    come: Mutex<Come>,
    bell: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Come> {
        self.come.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from a pipe, by a thread of its own.
    pub(super) fn begin(mut pipe: File) -> io::Result<Arc<Inbox>> {
        let inbox = Arc::<Inbox>::default();
        let own = Arc::clone(&inbox);
        std::thread::Builder::new().name("handover".into()).spawn(move || loop {
            let come = read(&mut pipe, &TRUSTED);
            let is_end = come.is_err();
            {
                let mut all = own.lock();
                all.messages.extend(come);
                all.is_closed = is_end;
            }
            own.bell.notify_all();
            signals::ring();
            if is_end {
                return;
            }
        })?;
        Ok(inbox)
    }

    /// Whether there is a message, or never will be.
    pub(super) fn is_ready(&self) -> bool {
        let come = self.lock();
        come.is_closed || !come.messages.is_empty()
    }
}

fn inbox(from: &UnixStream) -> io::Result<&Inbox> {
    match &from.0 {
        End::Receives(inbox) => Ok(inbox),
        End::Sends(_) | End::Lies(_) => unsupported(),
    }
}

/// Whether [`receive`] would find something.
pub fn has_message(from: &UnixStream) -> bool {
    inbox(from).is_ok_and(Inbox::is_ready)
}

/// Nobody listens under such a name.
///
/// # Errors
///
/// In any case.
pub fn connect_abstract(_: &[u8], _: Duration) -> io::Result<UnixStream> {
    unsupported()
}

/// Receives what [`Outbox::send`] sent; waits for it.
///
/// # Errors
///
/// The other process has gone.
pub fn receive(from: &UnixStream) -> io::Result<Received> {
    let inbox = inbox(from)?;
    let mut come = inbox.lock();
    loop {
        match come.messages.pop_front() {
            Some(message) => return Ok(message),
            None if come.is_closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => come = inbox.bell.wait(come).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The same; of strangers there are none.
///
/// # Errors
///
/// As above.
pub fn receive_within(from: &UnixStream, _: &Bounds) -> io::Result<Received> {
    receive(from)
}
