//! A thread looks at the processor's time of those that are enrolled, and has one that has used its turn stand still while
//! it copies registers and stack.
//!
//! The system counts that time by its own ticks (15.6 ms), as Linux does: a sample stands for all turns of one. A
//! thread that waits just then has used them before, and its next sample stands for them too.

use super::{io, Sample, STACK_MAX_BYTES};
use crate::stack;
use crate::windows::held::Other;
use crate::windows::process::busy_100ns;
use std::ops::Range;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use windows_sys::core::{s, w};
use windows_sys::Win32::System::Diagnostics::Debug::CONTEXT;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};

/// Samples that may wait for the reader, of all threads; 2 MB in all.
const SLOTS: usize = 64;
/// Threads are looked at once a turn, but not less often than this.
const LOOK_MAX: Duration = Duration::from_millis(10);
const SECOND_100NS: u64 = 10_000_000;

/// A copy, or the memory for one.
struct Raw {
    worker: usize,
    turns: u32,
    ip: u64,
    sp: u64,
    fp: u64,
    len: usize,
    stack: Box<[u8]>,
}

impl Raw {
    fn new() -> Raw {
        let stack = vec![0; STACK_MAX_BYTES].into_boxed_slice();
        Raw { worker: 0, turns: 0, ip: 0, sp: 0, fp: 0, len: 0, stack }
    }

    /// Copies what a thread that stands still was doing. Allocates nothing and takes no lock.
    fn copy(&mut self, registers: &CONTEXT, stack: &Range<usize>) {
        (self.ip, self.sp, self.fp) = (registers.Rip, registers.Rsp, registers.Rbp);
        let at = registers.Rsp as usize;
        self.len = match stack.contains(&at) {
            true => (stack.end - at).min(self.stack.len()),
            false => 0,
        };
        // SAFETY: the thread's stack is there from its stack pointer to its upper end, and nobody writes to it as long as it
        // stands still. The copy is no longer than the memory for it.
        unsafe {
            let from = ptr::with_exposed_provenance::<u8>(at);
            ptr::copy_nonoverlapping(from, self.stack.as_mut_ptr(), self.len);
        }
    }
}

/// A thread that may be sampled.
struct Target {
    worker: usize,
    id: u32,
    other: Other,
    stack: Range<usize>,
    /// The processor's time when it was looked at the last time, and that for which there is no sample yet.
    busy_100ns: u64,
    owed_100ns: u64,
}

#[derive(Clone, Copy, PartialEq)]
struct How {
    /// No two sessions have the same.
    number: u64,
    frequency_hz: u32,
    only: Option<usize>,
}

impl How {
    fn turn_100ns(self) -> u64 {
        SECOND_100NS / u64::from(self.frequency_hz)
    }

    fn means(self, worker: usize) -> bool {
        self.only.is_none_or(|n| n == worker)
    }
}

/// Who may be sampled, and what was.
struct State {
    targets: Vec<Target>,
    session: Option<How>,
    sessions: u64,
    ready: Vec<Raw>,
    free: Vec<Raw>,
    lost: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    targets: Vec::new(),
    session: None,
    sessions: 0,
    ready: Vec::new(),
    free: Vec::new(),
    lost: 0,
});

/// Who has a thread stand still has it before, so that the thread does not.
fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that this thread is a worker's and may be sampled, until this is dropped.
pub struct Enrolled {
    id: Option<u32>,
}

/// Enrolls the thread that calls.
pub fn enroll(worker: usize) -> Enrolled {
    // One that comes later and cannot be sampled is not: the others are.
    let (Ok(other), Some((low, high))) = (Other::own(), stack::bounds()) else {
        return Enrolled { id: None };
    };
    let (id, busy_100ns) = (other.id(), busy_100ns(other.raw()).unwrap_or(0));
    let stack = low..high;
    state().targets.push(Target { worker, id, other, stack, busy_100ns, owed_100ns: 0 });
    Enrolled { id: Some(id) }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        state().targets.retain(|t| Some(t.id) != self.id);
    }
}

/// The calls that wait: a thread that is in one uses no time now.
struct Waits(Vec<Range<u64>>);

impl Waits {
    fn find() -> Waits {
        /// So long is the code that goes over to the system.
        const CALL_BYTES: u64 = 32;
        let names = [
            s!("NtRemoveIoCompletionEx"),
            s!("NtRemoveIoCompletion"),
            s!("NtWaitForSingleObject"),
            s!("NtWaitForMultipleObjects"),
            s!("NtWaitForAlertByThreadId"),
            s!("NtWaitForKeyedEvent"),
            s!("NtDelayExecution"),
        ];
        // SAFETY: the names are texts with a zero at their end; the library is never unloaded.
        let at = |name| unsafe { GetProcAddress(GetModuleHandleW(w!("ntdll.dll")), name) };
        let found = names.into_iter().filter_map(at).map(|f| f as usize as u64);
        Waits(found.map(|at| at..at + CALL_BYTES).collect())
    }

    fn has(&self, ip: u64) -> bool {
        self.0.iter().any(|call| call.contains(&ip))
    }
}

impl Target {
    /// How many turns it owes, if it has used time since the last look.
    fn due(&mut self, turn_100ns: u64) -> Option<u64> {
        let now = busy_100ns(self.other.raw())?;
        let used = now.saturating_sub(self.busy_100ns);
        self.busy_100ns = now;
        self.owed_100ns = (self.owed_100ns + used).min(SECOND_100NS);
        Some(self.owed_100ns / turn_100ns).filter(|turns| used > 0 && *turns > 0)
    }
}

impl State {
    /// Looks at all threads once.
    fn look(&mut self, how: How, waits: &Waits) {
        let State { targets, ready, free, lost, .. } = self;
        for target in targets.iter_mut().filter(|t| how.means(t.worker)) {
            let Some(turns) = target.due(how.turn_100ns()) else { continue };
            let paid = turns * how.turn_100ns();
            let Some(mut raw) = free.pop() else {
                *lost += turns;
                target.owed_100ns -= paid;
                continue;
            };
            (raw.worker, raw.turns, raw.len) = (target.worker, turns as u32, 0);
            target.other.hold(|registers| raw.copy(registers, &target.stack));
            if raw.len == 0 || waits.has(raw.ip) {
                free.push(raw);
            } else {
                target.owed_100ns -= paid;
                ready.push(raw);
            }
        }
    }
}

fn sample(how: How) {
    let waits = Waits::find();
    let every = (Duration::from_secs(1) / how.frequency_hz).min(LOOK_MAX);
    loop {
        std::thread::sleep(every);
        let mut state = state();
        if state.session != Some(how) {
            return;
        }
        state.look(how, &waits);
    }
}

/// Threads are sampled while it is there; there is one at most.
pub struct Session(Option<JoinHandle<()>>);

impl Session {
    /// Begins to sample the enrolled threads, or only that of one worker; those that are enrolled later too.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`: there is a session. `NotFound`: there is no such worker. `InvalidInput`: the frequency is 0 or above
    /// the most. Others are the system's.
    pub fn begin(frequency_hz: u32, only: Option<usize>) -> io::Result<Session> {
        let mut state = state();
        let is_known = only.is_none_or(|n| state.targets.iter().any(|t| t.worker == n));
        super::may_begin(frequency_hz, state.session.is_some(), is_known)?;
        state.sessions += 1;
        let how = How { number: state.sessions, frequency_hz, only };
        let thread = std::thread::Builder::new().name("sampler".into());
        // It waits for what this has.
        let thread = thread.spawn(move || sample(how))?;
        for target in &mut state.targets {
            target.busy_100ns = busy_100ns(target.other.raw()).unwrap_or(0);
            target.owed_100ns = 0;
        }
        state.lost = 0;
        state.free = (0..SLOTS).map(|_| Raw::new()).collect();
        state.session = Some(how);
        Ok(Session(Some(thread)))
    }

    /// Gives all samples that have come. To be called often: few wait.
    pub fn take(&self, mut each: impl FnMut(Sample<'_>)) {
        let ready = std::mem::take(&mut state().ready);
        for raw in &ready {
            let (worker, turns) = (raw.worker, raw.turns);
            let (ip, sp, fp) = (raw.ip, raw.sp, raw.fp);
            each(Sample { worker, turns, ip, sp, fp, lr: 0, stack: &raw.stack[..raw.len] });
        }
        state().free.extend(ready);
    }

    /// How many samples found no room.
    pub fn lost(&self) -> u64 {
        state().lost
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        {
            let mut state = state();
            state.session = None;
            (state.ready, state.free) = (Vec::new(), Vec::new());
        }
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}
