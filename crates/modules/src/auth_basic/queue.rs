//! Threads for password hashes that are slow on purpose: few, for the workers need the processors
//! as well, and with a queue that has an end. A hash is computed for a request that waits for it:
//! when its client goes before its turn, it is left out.
//!
//! Clients take turns, whatever number of passwords each has sent; when all places are taken, one with
//! fewer of them pushes out the last password of the one with most. So nobody fills the queue for others.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Passwords that wait to be checked, of all workers.
pub const WAITING_MAX: usize = 256;
const THREADS_MAX: usize = 8;

type Work = Box<dyn FnOnce() -> bool + Send>;

/// Who is one client: an IPv4 address, a /64 of IPv6's (which one host may have to itself), or all that
/// come by a local socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client(Option<(bool, u64)>);

impl Client {
    pub fn of(address: Option<IpAddr>) -> Client {
        Client(address.map(|address| match address.to_canonical() {
            IpAddr::V4(v4) => (false, u64::from(v4.to_bits())),
            IpAddr::V6(v6) => (true, (v6.to_bits() >> 64) as u64),
        }))
    }
}

/// The password had to make room for another client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushedOut;

pub type Answer = Result<bool, PushedOut>;

struct Job {
    work: Work,
    answer: oneshot::Sender<Answer>,
}

/// What one client waits for.
struct Line {
    client: Client,
    jobs: VecDeque<Job>,
}

#[derive(Default)]
struct Queue {
    /// In the order of their next turns; none is empty.
    lines: VecDeque<Line>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

impl Queue {
    fn waiting(&self) -> usize {
        self.lines.iter().map(|line| line.jobs.len()).sum()
    }

    fn waiting_of(&self, client: Client) -> usize {
        self.lines.iter().find(|line| line.client == client).map_or(0, |line| line.jobs.len())
    }

    /// Whether there is a place, if need be that of another client's last password.
    fn make_room(&mut self, client: Client) -> bool {
        if self.waiting() < WAITING_MAX {
            return true;
        }
        self.lines.iter_mut().for_each(|line| line.jobs.retain(|job| !job.answer.is_closed()));
        self.lines.retain(|line| !line.jobs.is_empty());
        if self.waiting() < WAITING_MAX {
            return true;
        }
        let own = self.waiting_of(client);
        let longest = self.lines.iter_mut().max_by_key(|line| line.jobs.len());
        // With one more alone there would be no end of pushing each other out.
        let last = longest.filter(|line| line.jobs.len() > own + 1).and_then(|l| l.jobs.pop_back());
        last.map(|job| job.answer.send(Err(PushedOut))).is_some()
    }

    fn put(&mut self, client: Client, job: Job) {
        match self.lines.iter_mut().find(|line| line.client == client) {
            Some(line) => line.jobs.push_back(job),
            None => self.lines.push_back(Line { client, jobs: VecDeque::from([job]) }),
        }
    }

    fn take(&mut self) -> Option<Job> {
        let mut line = self.lines.pop_front()?;
        let job = line.jobs.pop_front();
        if !line.jobs.is_empty() {
            self.lines.push_back(line);
        }
        job
    }
}

static QUEUE: Mutex<Option<Queue>> = Mutex::new(None);
static FRESH: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Option<Queue>> {
    QUEUE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Half of the processors.
fn threads_max() -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    (all / 2).clamp(1, THREADS_MAX)
}

/// Has work done in turn; whoever drops the receiver takes it back. `None` when too many wait, or no
/// thread can be had.
pub fn submit(
    client: Client,
    work: impl FnOnce() -> bool + Send + 'static,
) -> Option<oneshot::Receiver<Answer>> {
    let (answer, receiver) = oneshot::channel();
    let mut guard = lock();
    let queue = guard.get_or_insert_default();
    if !queue.make_room(client) {
        return None;
    }
    if queue.waiting() >= queue.idle && queue.threads < threads_max() {
        let thread = std::thread::Builder::new().name("passwords".into()).spawn(run);
        queue.threads += usize::from(thread.is_ok());
    }
    if queue.threads == 0 {
        return None;
    }
    queue.put(client, Job { work: Box::new(work), answer });
    drop(guard);
    FRESH.notify_one();
    Some(receiver)
}

fn run() {
    loop {
        let Job { work, answer } = next();
        if answer.is_closed() {
            continue;
        }
        // Without an answer the request learns that something went wrong.
        if let Ok(right) = catch_unwind(AssertUnwindSafe(work)) {
            let _ = answer.send(Ok(right));
        }
    }
}

fn next() -> Job {
    let mut guard = lock();
    loop {
        let queue = guard.get_or_insert_default();
        if let Some(job) = queue.take() {
            return job;
        }
        queue.idle += 1;
        guard = FRESH.wait(guard).unwrap_or_else(|e| e.into_inner());
        guard.get_or_insert_default().idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{mpsc, Arc};

    fn client(address: &str) -> Client {
        Client::of(address.parse().ok())
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
        assert_ne!(client("10.0.0.1"), client("10.0.0.2"));
        assert_ne!(client("::a00:1"), client("10.0.0.1"));
        assert_ne!(Client::of(None), client("0.0.0.0"));
    }

    #[test]
    fn clients_take_turns() {
        let (mut queue, mut answers) = (Queue::default(), Vec::new());
        // Which of them it is: the only one whose work says yes.
        for (address, says) in [("10.0.0.1", false), ("10.0.0.1", false), ("10.0.0.2", true)] {
            let (answer, receiver) = oneshot::channel();
            answers.push(receiver);
            queue.put(client(address), Job { work: Box::new(move || says), answer });
        }
        let said = std::iter::from_fn(|| queue.take()).map(|job| (job.work)());
        assert_eq!(said.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn the_queue_has_an_end_but_not_for_others() {
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (one, other) = (client("10.0.0.1"), client("10.0.0.2"));
        let busy: Vec<_> = (0..threads_max())
            .map(|_| {
                let gate = Arc::clone(&gate);
                submit(one, move || gate.lock().unwrap().recv().is_ok()).unwrap()
            })
            .collect();
        while lock().as_ref().unwrap().waiting() > 0 {
            std::thread::yield_now();
        }
        let done = Arc::new(AtomicUsize::new(0));
        let count = |done: &Arc<AtomicUsize>, client| {
            let done = Arc::clone(done);
            submit(client, move || done.fetch_add(1, Ordering::SeqCst) < usize::MAX)
        };
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| count(&done, one).unwrap()).collect();
        assert!(count(&done, one).is_none());
        // Another has a place nevertheless, and at the end as many as the first.
        let others: Vec<_> = (0..WAITING_MAX / 2).map(|_| count(&done, other).unwrap()).collect();
        assert!(count(&done, other).is_none());
        for pushed_out in waiting.drain(WAITING_MAX / 2..) {
            assert_eq!(pushed_out.blocking_recv(), Ok(Err(PushedOut)));
        }
        drop(others);
        waiting.truncate(10);
        waiting.push(count(&done, one).expect("places of those that have gone"));
        busy.iter().for_each(|_| go.send(()).unwrap());
        waiting.into_iter().for_each(|w| assert_eq!(w.blocking_recv(), Ok(Ok(true))));
        assert_eq!(done.load(Ordering::SeqCst), 11);
        let wrong = submit(one, || panic!("as a hash never does")).unwrap();
        assert!(wrong.blocking_recv().is_err());
        busy.into_iter().for_each(|b| assert_eq!(b.blocking_recv(), Ok(Ok(true))));
    }
}
