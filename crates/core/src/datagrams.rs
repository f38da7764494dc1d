//! Clients that send datagrams: a session for each address, and its datagrams on their way to it.
//!
//! The kernel gives a datagram to any worker that watches a shared socket, and another socket of a
//! `reuseport` group once that has changed its size. A session stays where it began: its worker knows
//! it in a map of its own, and a table of the process says which worker that is. Only what a worker
//! does not know itself is looked up there; it is handed over by a bounded channel.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc::{channel, error::TrySendError, Receiver, Sender};
use weir_runtime::datagrams::DATAGRAM_MAX_BYTES;
use weir_runtime::listen::Listener;

/// What waits for one session, and for all of a worker.
const QUEUED_MAX: usize = 256;
const QUEUED_MAX_BYTES: usize = 256 * 1024;
const WORKER_QUEUED_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Datagrams on their way to another worker.
const HANDED_MAX: usize = 256;
/// Parts of the table, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// By what a session is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The socket's address.
    pub listen: SocketAddr,
    /// Its first datagram's sender.
    pub client: SocketAddr,
    /// The address that the client has asked.
    pub local: IpAddr,
}

/// A datagram for the session of another worker.
pub struct Handed {
    /// Whose session it is for.
    pub key: Key,
    /// Its text; a datagram may be empty.
    pub data: Vec<u8>,
}

type Shard = HashMap<Key, (usize, Sender<Handed>)>;

/// Which worker has whose session.
struct Owners {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

static OWNERS: LazyLock<Owners> =
    LazyLock::new(|| Owners { hasher: RandomState::new(), shards: Default::default() });

impl Owners {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A socket of each address, by which sessions answer whose own is gone.
static SOCKETS: LazyLock<Mutex<HashMap<SocketAddr, Weak<Listener>>>> =
    LazyLock::new(Mutex::default);

/// Makes a socket known, which is received from.
pub fn announce(listener: &Arc<Listener>) {
    let Some(addr) = listener.addr.ip() else { return };
    let mut sockets = SOCKETS.lock().unwrap_or_else(|e| e.into_inner());
    sockets.insert(addr, Arc::downgrade(listener));
}

fn socket(addr: &SocketAddr) -> Option<Arc<Listener>> {
    let sockets = SOCKETS.lock().unwrap_or_else(|e| e.into_inner());
    sockets.get(addr).and_then(Weak::upgrade)
}

/// What has become of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Its session has it, or will.
    Delivered,
    /// There was no room.
    Dropped,
    /// There is no session: one is to begin here, or [`Sessions::disown`] be called.
    First,
}

/// One worker's sessions.
pub struct Sessions {
    worker: usize,
    known: RefCell<HashMap<Key, Rc<Datagrams>>>,
    inbox: Sender<Handed>,
    queued_bytes: Cell<usize>,
    /// Where datagrams are received.
    pub buf: RefCell<Vec<u8>>,
}

impl Sessions {
    /// And what the others hand over.
    pub fn new(worker: usize) -> (Rc<Sessions>, Receiver<Handed>) {
        let (inbox, handed) = channel(HANDED_MAX);
        let sessions = Sessions {
            worker,
            known: RefCell::default(),
            inbox,
            queued_bytes: Cell::new(0),
            buf: RefCell::default(),
        };
        (Rc::new(sessions), handed)
    }

    /// Makes room for the largest datagram.
    pub fn make_room(&self) {
        self.buf.borrow_mut().resize(DATAGRAM_MAX_BYTES, 0);
    }

    /// Puts a datagram where its session is.
    pub fn deliver(&self, key: &Key, data: &[u8]) -> Arrival {
        if let Some(session) = self.known.borrow().get(key) {
            return session.push(data);
        }
        let mut shard = OWNERS.shard(key);
        if let Some((_, inbox)) = shard.get(key).filter(|(worker, _)| *worker != self.worker) {
            match inbox.try_send(Handed { key: *key, data: data.to_vec() }) {
                Ok(()) => return Arrival::Delivered,
                Err(TrySendError::Full(_)) => return Arrival::Dropped,
                // That worker is gone, and its sessions with it.
                Err(TrySendError::Closed(_)) => {}
            }
        }
        shard.insert(*key, (self.worker, self.inbox.clone()));
        Arrival::First
    }

    /// No session begins.
    pub fn disown(&self, key: &Key) {
        OWNERS.shard(key).remove(key);
    }

    /// A session begins with its first datagram.
    pub fn begin(
        self: &Rc<Self>,
        key: Key,
        listener: Weak<Listener>,
        data: &[u8],
    ) -> Rc<Datagrams> {
        let session = Rc::new(Datagrams {
            key,
            sessions: Rc::clone(self),
            listener: RefCell::new(listener),
            held: RefCell::default(),
            queue: RefCell::default(),
            queued_bytes: Cell::new(0),
            waker: RefCell::default(),
            released: Cell::new(false),
            is_cut: Cell::new(false),
        });
        session.put(data.to_vec());
        self.known.borrow_mut().insert(key, Rc::clone(&session));
        session
    }
}

/// One session's end of its client's datagrams.
pub struct Datagrams {
    key: Key,
    sessions: Rc<Sessions>,
    listener: RefCell<Weak<Listener>>,
    /// The same, to be kept open.
    held: RefCell<Option<Arc<Listener>>>,
    queue: RefCell<VecDeque<Vec<u8>>>,
    queued_bytes: Cell<usize>,
    waker: RefCell<Option<Waker>>,
    /// Further datagrams are another session's.
    released: Cell<bool>,
    /// The session is to end.
    is_cut: Cell<bool>,
}

impl Datagrams {
    fn push(&self, data: &[u8]) -> Arrival {
        let is_full = self.queue.borrow().len() >= QUEUED_MAX
            || self.queued_bytes.get() + data.len() > QUEUED_MAX_BYTES
            || self.sessions.queued_bytes.get() + data.len() > WORKER_QUEUED_MAX_BYTES;
        if is_full {
            return Arrival::Dropped;
        }
        self.put(data.to_vec());
        self.wake();
        Arrival::Delivered
    }

    fn put(&self, data: Vec<u8>) {
        self.count(data.len() as isize);
        self.queue.borrow_mut().push_back(data);
    }

    fn count(&self, bytes: isize) {
        let add = |cell: &Cell<usize>| cell.set(cell.get().saturating_add_signed(bytes));
        add(&self.queued_bytes);
        add(&self.sessions.queued_bytes);
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The next datagram that is there.
    pub fn take(&self) -> Option<Vec<u8>> {
        let data = self.queue.borrow_mut().pop_front()?;
        self.count(-(data.len() as isize));
        Some(data)
    }

    /// Has the task woken by the next one, and when the session is to end.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// The next datagram; never one again behind [`Datagrams::release`].
    pub fn poll_take(&self, cx: &Context<'_>) -> Poll<Vec<u8>> {
        self.watch(cx);
        match self.released.get() {
            true => Poll::Pending,
            false => self.take().map_or(Poll::Pending, Poll::Ready),
        }
    }

    /// Answers the client.
    ///
    /// # Errors
    ///
    /// The kernel's, `NotConnected` when the address is no longer listened on.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        let listener = self.socket().ok_or(io::ErrorKind::NotConnected)?;
        listener.send_to(data, self.key.client, self.key.local)
    }

    /// An open socket of the address.
    fn socket(&self) -> Option<Arc<Listener>> {
        if let Some(own) = self.listener.borrow().upgrade() {
            return Some(own);
        }
        let other = socket(&self.key.listen)?;
        self.listener.replace(Arc::downgrade(&other));
        Some(other)
    }

    /// The worker is to end: keeps the socket open for the answers that are still to come.
    pub fn hold(&self) {
        self.held.replace(self.socket());
    }

    /// Further datagrams of the client begin another session; those that wait do so at once.
    pub fn release(&self) {
        if self.released.replace(true) {
            return;
        }
        self.sessions.known.borrow_mut().remove(&self.key);
        self.sessions.disown(&self.key);
        while let Some(data) = self.take() {
            // What finds no room is lost, as datagrams are.
            let _ = self.sessions.inbox.try_send(Handed { key: self.key, data });
        }
    }

    /// Ends the session.
    pub fn cut(&self) {
        self.is_cut.set(true);
        self.wake();
    }

    /// Whether [`Datagrams::cut`] was called: what is still to be sent is not.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(port: u16) -> Key {
        Key {
            listen: "127.0.0.1:53".parse().unwrap(),
            client: SocketAddr::new("127.0.0.9".parse().unwrap(), port),
            local: "127.0.0.1".parse().unwrap(),
        }
    }

    #[test]
    fn a_session_stays_on_the_worker_where_it_began() {
        let (a, mut for_a) = Sessions::new(1);
        let (b, mut for_b) = Sessions::new(2);
        assert_eq!(a.deliver(&key(1), b"1"), Arrival::First);
        let session = a.begin(key(1), Weak::new(), b"1");
        assert_eq!(a.deliver(&key(1), b""), Arrival::Delivered);
        assert_eq!(b.deliver(&key(1), b"3"), Arrival::Delivered);
        let handed = for_a.try_recv().unwrap();
        assert_eq!(a.deliver(&handed.key, &handed.data), Arrival::Delivered);
        assert_eq!(session.take().unwrap(), b"1");
        // What it leaves begins another, anywhere.
        session.release();
        assert_eq!(for_a.try_recv().unwrap().data, b"");
        assert_eq!(for_a.try_recv().unwrap().data, b"3");
        assert_eq!(b.deliver(&key(1), b"4"), Arrival::First);
        assert_eq!(a.deliver(&key(1), b"5"), Arrival::Delivered);
        assert_eq!(for_b.try_recv().unwrap().data, b"5");
        b.disown(&key(1));
        assert_eq!(a.deliver(&key(1), b"6"), Arrival::First);
        a.disown(&key(1));
    }

    #[test]
    fn what_waits_is_bounded() {
        let (a, mut for_a) = Sessions::new(3);
        let (b, _for_b) = Sessions::new(4);
        assert_eq!(a.deliver(&key(2), b"1"), Arrival::First);
        let session = a.begin(key(2), Weak::new(), b"1");
        let sent = (0..1000).filter(|_| a.deliver(&key(2), b"x") == Arrival::Delivered).count();
        assert_eq!(sent, QUEUED_MAX - 1);
        while session.take().is_some() {}
        let large = vec![0; DATAGRAM_MAX_BYTES];
        let sent = (0..1000).filter(|_| a.deliver(&key(2), &large) == Arrival::Delivered).count();
        assert_eq!(sent, QUEUED_MAX_BYTES / DATAGRAM_MAX_BYTES);
        assert_eq!(a.queued_bytes.get(), sent * DATAGRAM_MAX_BYTES);
        let handed = (0..1000).filter(|_| b.deliver(&key(2), b"x") == Arrival::Delivered).count();
        assert_eq!(handed, HANDED_MAX);
        while for_a.try_recv().is_ok() {}
        session.release();
        assert_eq!(a.queued_bytes.get(), 0);
    }
}
