//! Timers of threads, the handler, and the memory between it and the reader.

use super::{io, Sample, FREQUENCY_MAX_HZ, STACK_MAX_BYTES, THREADS_MAX};
use crate::stack;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Samples that may wait for the reader, of all threads; 2 MB in all.
const SLOTS: usize = 64;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const READY: u32 = 2;

/// Plain numbers and bytes, for which zeroes are good: it is memory as the system gives it.
#[repr(C)]
struct Slot {
    state: AtomicU32,
    raw: UnsafeCell<Raw>,
}

#[repr(C)]
struct Raw {
    worker: u32,
    turns: u32,
    len: u32,
    ip: u64,
    sp: u64,
    fp: u64,
    lr: u64,
    stack: [u8; STACK_MAX_BYTES],
}

/// Whether a session is on.
static ON: AtomicBool = AtomicBool::new(false);
/// The memory of the slots, once there has been a session; it stays.
static MEMORY: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Handlers that run.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Samples for which there was no slot.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The stack of each worker's thread, by its number; 0 to 0 of one that is not there.
struct Bounds {
    low: AtomicUsize,
    high: AtomicUsize,
}

static STACKS: [Bounds; THREADS_MAX] =
    [const { Bounds { low: AtomicUsize::new(0), high: AtomicUsize::new(0) } }; THREADS_MAX];

/// A thread that may be sampled.
struct Target {
    worker: usize,
    tid: i32,
    timer: Option<Timer>,
}

/// Who may be sampled, and who is.
#[derive(Default)]
struct State {
    targets: Vec<Target>,
    session: Option<How>,
}

#[derive(Clone, Copy)]
struct How {
    frequency_hz: u32,
    only: Option<usize>,
}

static STATE: Mutex<State> = Mutex::new(State { targets: Vec::new(), session: None });

/// The handler never takes it.
fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A timer of one thread's processor time.
struct Timer(libc::timer_t);

// SAFETY: it is a number to the system, whichever thread uses it.
unsafe impl Send for Timer {}

impl Timer {
    fn start(tid: i32, worker: usize, frequency_hz: u32) -> io::Result<Timer> {
        // As the system makes the clock of a thread of this process from its number: CPUCLOCK_PERTHREAD_MASK and
        // CPUCLOCK_SCHED below it. Of a thread that is gone it is refused.
        let clock = (!tid << 3) | 6;
        // SAFETY: both structures are plain data, which zeroes are good for, and valid for their calls.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = tid;
            event.sigev_value.sival_ptr = ptr::without_provenance_mut(worker);
            let mut id: libc::timer_t = std::mem::zeroed();
            if libc::timer_create(clock, &mut event, &mut id) < 0 {
                return Err(io::Error::last_os_error());
            }
            let timer = Timer(id);
            let mut every: libc::itimerspec = std::mem::zeroed();
            let nanos = 1_000_000_000 / i64::from(frequency_hz);
            every.it_interval.tv_sec = nanos / 1_000_000_000;
            every.it_interval.tv_nsec = nanos % 1_000_000_000;
            every.it_value = every.it_interval;
            if libc::timer_settime(timer.0, 0, &every, ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is this one's, and deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Says that this thread is a worker's and may be sampled, until this is dropped: by the same thread.
pub struct Enrolled {
    tid: i32,
    worker: usize,
}

/// Enrolls the thread that calls.
pub fn enroll(worker: usize) -> Enrolled {
    // SAFETY: takes nothing and reads a number.
    let tid = unsafe { libc::gettid() };
    if let (Some(bounds), Some((low, high))) = (STACKS.get(worker), stack::bounds()) {
        let mut state = state();
        bounds.low.store(low, Ordering::Relaxed);
        bounds.high.store(high, Ordering::Release);
        // One that comes later and cannot be sampled is not: the others are.
        let timer = state.session.and_then(|how| how.timer(tid, worker).ok().flatten());
        state.targets.push(Target { worker, tid, timer });
    }
    Enrolled { tid, worker }
}

impl How {
    fn timer(self, tid: i32, worker: usize) -> io::Result<Option<Timer>> {
        let is_meant = self.only.is_none_or(|n| n == worker);
        is_meant.then(|| Timer::start(tid, worker, self.frequency_hz)).transpose()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut state = state();
        state.targets.retain(|t| t.tid != self.tid);
        if let Some(bounds) = STACKS.get(self.worker) {
            bounds.high.store(0, Ordering::Release);
        }
    }
}

/// The slots' memory, made at the first session.
fn memory() -> io::Result<*mut Slot> {
    let there = MEMORY.load(Ordering::Acquire);
    if !there.is_null() {
        return Ok(there);
    }
    let (access, how) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: fresh memory, which nothing else uses.
    let fresh =
        unsafe { libc::mmap(ptr::null_mut(), SLOTS * size_of::<Slot>(), access, how, -1, 0) };
    if fresh == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    MEMORY.store(fresh.cast(), Ordering::Release);
    Ok(fresh.cast())
}

/// The slots, if there is memory of theirs.
fn slots() -> &'static [Slot] {
    let at = MEMORY.load(Ordering::Acquire);
    match at.is_null() {
        true => &[],
        // SAFETY: the memory has room for so many, zeroes are good for them, and it stays for ever.
        false => unsafe { std::slice::from_raw_parts(at, SLOTS) },
    }
}

/// What a thread was doing, by what the system has saved of it: instruction, stack, frame, return.
#[cfg(target_arch = "x86_64")]
fn registers(of: &libc::ucontext_t) -> [u64; 4] {
    let of = |n: libc::c_int| of.uc_mcontext.gregs[n as usize] as u64;
    [of(libc::REG_RIP), of(libc::REG_RSP), of(libc::REG_RBP), 0]
}

#[cfg(target_arch = "aarch64")]
fn registers(of: &libc::ucontext_t) -> [u64; 4] {
    let m = &of.uc_mcontext;
    [m.pc, m.sp, m.regs[29], m.regs[30]]
}

/// The handler. See above for what it may not do.
extern "C" fn on_tick(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // In this order, and the session's end in the other: it knows when the last handler has left.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    if ON.load(Ordering::SeqCst) && !info.is_null() && !context.is_null() {
        // SAFETY: the system gives both to a handler with SA_SIGINFO, for as long as it runs.
        unsafe { note(&*info, &*context.cast::<libc::ucontext_t>()) };
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

/// How many turns of the timer a signal stands for: one, and those that the system has counted beside it. A second at most,
/// which no thread runs without a tick of the system's.
fn turns(info: &libc::siginfo_t) -> u32 {
    /// Where `si_overrun` is: behind signal, errno, code, what fills up to eight bytes, and the timer's number.
    const OVERRUN_AT: usize = 5;
    // SAFETY: the structure is 128 bytes of plain data, and those that a timer's signal has there are an int.
    let more = unsafe { (&raw const *info).cast::<libc::c_int>().add(OVERRUN_AT).read() };
    1 + u32::try_from(more).unwrap_or(0).min(FREQUENCY_MAX_HZ)
}

/// Copies what the thread was doing to a free slot.
fn note(info: &libc::siginfo_t, context: &libc::ucontext_t) {
    if info.si_code != libc::SI_TIMER {
        return;
    }
    // SAFETY: a signal of a timer has a value.
    let worker = unsafe { info.si_value() }.sival_ptr.addr();
    let [ip, sp, fp, lr] = registers(context);
    let Some(bounds) = STACKS.get(worker) else { return };
    let (high, low) = (bounds.high.load(Ordering::Acquire), bounds.low.load(Ordering::Relaxed));
    let at = sp as usize;
    if !(low..high).contains(&at) {
        return;
    }
    let is_free = |s: &&Slot| {
        s.state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let turns = turns(info);
    let Some(slot) = slots().iter().find(is_free) else {
        LOST.fetch_add(u64::from(turns), Ordering::Relaxed);
        return;
    };
    let len = (high - at).min(STACK_MAX_BYTES);
    // SAFETY: the slot is this handler's until its state says that it is ready. The thread's stack is mapped from
    // its stack pointer, which the handler's own frame is below, to its upper end.
    unsafe {
        let raw = slot.raw.get();
        (*raw).worker = worker as u32;
        (*raw).turns = turns;
        (*raw).len = len as u32;
        ((*raw).ip, (*raw).sp, (*raw).fp, (*raw).lr) = (ip, sp, fp, lr);
        let to = (&raw mut (*raw).stack).cast::<u8>();
        ptr::copy_nonoverlapping(ptr::with_exposed_provenance::<u8>(at), to, len);
    }
    slot.state.store(READY, Ordering::Release);
}

fn install() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut done = Ok(());
    ONCE.call_once(|| {
        // SAFETY: the action is plain data, its set is initialised, and its handler is async-signal-safe.
        let rc = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_tick as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGPROF, &action, ptr::null_mut())
        };
        if rc < 0 {
            done = Err(io::Error::last_os_error());
        }
    });
    done
}

/// Threads are sampled while it is there; there is one at most.
pub struct Session(());

impl Session {
    /// Begins to sample the enrolled threads, or only that of one worker; those that are enrolled later too.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`: there is a session. `NotFound`: there is no such worker. `InvalidInput`: the frequency is 0 or above the most. Others are the
    /// system's.
    pub fn begin(frequency_hz: u32, only: Option<usize>) -> io::Result<Session> {
        let mut state = state();
        let is_known = only.is_none_or(|n| state.targets.iter().any(|t| t.worker == n));
        super::may_begin(frequency_hz, state.session.is_some(), is_known)?;
        memory()?;
        install()?;
        LOST.store(0, Ordering::Relaxed);
        let how = How { frequency_hz, only };
        state.session = Some(how);
        ON.store(true, Ordering::SeqCst);
        let session = Session(());
        let begun = state.targets.iter_mut().try_for_each(|t| {
            t.timer = how.timer(t.tid, t.worker)?;
            Ok(())
        });
        // The end of a session takes it, too.
        drop(state);
        begun.map(|()| session)
    }

    /// Gives all samples that have come. To be called often: few wait.
    pub fn take(&self, mut each: impl FnMut(Sample<'_>)) {
        for slot in slots() {
            if slot.state.load(Ordering::Acquire) != READY {
                continue;
            }
            // SAFETY: what is ready is the reader's until it is free again; the session is the only reader.
            let raw = unsafe { &*slot.raw.get() };
            let stack = &raw.stack[..(raw.len as usize).min(STACK_MAX_BYTES)];
            let Raw { ip, sp, fp, lr, worker, turns, .. } = *raw;
            each(Sample { worker: worker as usize, turns, ip, sp, fp, lr, stack });
            slot.state.store(FREE, Ordering::Release);
        }
    }

    /// How many samples found no room.
    pub fn lost(&self) -> u64 {
        LOST.load(Ordering::Relaxed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = state();
        state.targets.iter_mut().for_each(|t| t.timer = None);
        ON.store(false, Ordering::SeqCst);
        while INSIDE.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        state.session = None;
        let at = MEMORY.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: the whole mapping, in which no handler writes any more and of which nobody has a piece.
            // Read again it is zeroes: free slots.
            unsafe { libc::madvise(at.cast(), SLOTS * size_of::<Slot>(), libc::MADV_DONTNEED) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[inline(never)]
    fn work(until: &AtomicBool) -> u64 {
        let mut sum = 1u64;
        while !until.load(Ordering::Relaxed) {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 7);
        }
        sum
    }

    /// This thread's, of the processor.
    fn own_micros() -> u64 {
        // SAFETY: the structure is plain data that outlives the call.
        unsafe {
            let mut at: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut at);
            at.tv_sec as u64 * 1_000_000 + at.tv_nsec as u64 / 1000
        }
    }

    /// A session is the process's, and so is who is enrolled.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn all_turns_are_there_at_the_highest_frequency() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        static USED_MICROS: AtomicU64 = AtomicU64::new(0);
        static END: AtomicBool = AtomicBool::new(false);
        let (ready, is_ready) = mpsc::channel::<()>();
        let busy = std::thread::spawn(move || {
            let _enrolled = enroll(7);
            let _ = ready.send(());
            let mut sum = 1u64;
            while !END.load(Ordering::Relaxed) {
                (0..10_000).for_each(|n| sum = std::hint::black_box(sum.wrapping_mul(31) + n));
                USED_MICROS.store(own_micros(), Ordering::Relaxed);
            }
        });
        is_ready.recv().unwrap();
        let session = Session::begin(FREQUENCY_MAX_HZ, Some(7)).unwrap();
        let (before, start) = (USED_MICROS.load(Ordering::Relaxed), Instant::now());
        let (mut turns, mut used) = (0, 0);
        while used < 600_000 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
            session.take(|s| turns += u64::from(s.turns));
            used = USED_MICROS.load(Ordering::Relaxed) - before;
        }
        turns += session.lost();
        drop(session);
        END.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        let wanted = used / 1000;
        assert!(turns.abs_diff(wanted) <= wanted / 8, "{turns} turns in {wanted} ms");
    }

    #[test]
    fn a_thread_that_works_is_sampled_and_one_that_waits_is_not() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        static END: AtomicBool = AtomicBool::new(false);
        let (tell, told) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel::<()>();
        let other_ready = ready.clone();
        let busy = std::thread::spawn(move || {
            let _enrolled = enroll(5);
            let _ = ready.send(());
            work(&END)
        });
        let idle = std::thread::spawn(move || {
            let _enrolled = enroll(6);
            let _ = other_ready.send(());
            let _ = told.recv();
        });
        is_ready.recv().unwrap();
        is_ready.recv().unwrap();
        assert_eq!(
            Session::begin(0, None).err().map(|e| e.kind()),
            Some(io::ErrorKind::InvalidInput)
        );
        assert!(Session::begin(FREQUENCY_MAX_HZ + 1, None).is_err());
        let session = Session::begin(200, None).unwrap();
        assert_eq!(
            Session::begin(99, None).err().map(|e| e.kind()),
            Some(io::ErrorKind::AlreadyExists)
        );
        let mut seen = Vec::new();
        let start = Instant::now();
        while seen.len() < 5 && start.elapsed() < Duration::from_secs(20) {
            session.take(|s| {
                assert!(s.stack.len() >= 8 && s.word(s.sp).is_some() && s.word(s.sp - 8).is_none());
                seen.push(s.worker);
            });
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(session);
        END.store(true, Ordering::Relaxed);
        drop(tell);
        busy.join().unwrap();
        idle.join().unwrap();
        assert!(seen.len() >= 5 && seen.iter().all(|w| *w == 5), "{seen:?}");
        assert!(state().targets.is_empty());
        assert_eq!(
            Session::begin(99, Some(3)).err().map(|e| e.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }
}
