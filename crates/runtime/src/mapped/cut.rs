//! What is done when another program cuts a mapped file short: the system says so by SIGBUS, at the first touch of what
//! is no longer there.
//!
//! Memory without a file is put in its place and the mapping is marked, so that the instruction goes on and whoever
//! made it looks at the mark afterwards. A SIGBUS anywhere else is what it was before.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{compiler_fence, AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Where a mapping is. Once made it stays, for a handler may look at it at any time; the next mapping takes its place.
#[derive(Default)]
pub struct Place {
    /// 0: nothing is mapped there.
    start: AtomicUsize,
    end: AtomicUsize,
    is_cut: AtomicBool,
    next: AtomicPtr<Place>,
}

/// All places.
static FIRST: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// Who makes places or takes them.
static TAKING: Mutex<()> = Mutex::new(());
/// What a SIGBUS did before.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

impl Place {
    fn all() -> impl Iterator<Item = &'static Place> {
        // SAFETY: places are leaked, and written only as atomics.
        let at = |p: &AtomicPtr<Place>| unsafe { p.load(Ordering::Acquire).as_ref() };
        std::iter::successors(at(&FIRST), move |place| at(&place.next))
    }

    /// Of a mapping that is there, before anything of it is touched.
    ///
    /// # Errors
    ///
    /// The system does not take a handler.
    pub fn of(start: usize, len: usize) -> io::Result<&'static Place> {
        install()?;
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match Place::all().find(|p| p.start.load(Ordering::Relaxed) == 0) {
            Some(free) => free,
            None => {
                let place: &'static mut Place = Box::leak(Box::default());
                place.next = AtomicPtr::new(FIRST.load(Ordering::Relaxed));
                FIRST.store(place, Ordering::Release);
                place
            }
        };
        place.is_cut.store(false, Ordering::Relaxed);
        place.end.store(start + len, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        Ok(place)
    }

    /// Nobody touches the mapping any more; it is about to go.
    pub fn give_back(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Whether some of what this thread has touched so far was not the file's.
    #[inline]
    pub fn is_cut(&self) -> bool {
        // The handler runs in the thread that touches: only the compiler could look too early.
        compiler_fence(Ordering::SeqCst);
        self.is_cut.load(Ordering::Acquire)
    }
}

fn install() -> io::Result<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    ONCE.call_once(|| {
        // SAFETY: the action is plain data, its set is initialised, its handler is async-signal-safe; what was before
        // is written once, before a handler can read it but in another thread's fault, which has none of our mappings.
        let rc = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            let before = &raw mut BEFORE;
            libc::sigaction(libc::SIGBUS, ptr::null(), before.cast()).min(libc::sigaction(
                libc::SIGBUS,
                &action,
                ptr::null_mut(),
            ))
        };
        FAILED.store(rc < 0, Ordering::Relaxed);
    });
    match FAILED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        false => Ok(()),
    }
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system gives a handler with SA_SIGINFO what happened, with an address for this signal.
    let at = unsafe { (*info).si_addr() } as usize;
    let is_it = |p: &&Place| {
        let start = p.start.load(Ordering::Acquire);
        start != 0 && (start..p.end.load(Ordering::Relaxed)).contains(&at)
    };
    if Place::all().find(is_it).is_some_and(|place| replace(place, at)) {
        return;
    }
    // SAFETY: written before this was a handler. The instruction is tried again, and its fault is then that one's.
    unsafe {
        let before = &raw const BEFORE;
        libc::sigaction(libc::SIGBUS, before.cast(), ptr::null_mut());
    }
}

/// Puts zeros where the file was, from that page to the mapping's end. Whether that was possible.
fn replace(place: &Place, at: usize) -> bool {
    // First, so that whoever writes into these zeros finds the mark behind that.
    place.is_cut.store(true, Ordering::SeqCst);
    // SAFETY: the range is within a mapping that its owner has while a thread of its touches it. mmap() is a call of
    // the system's that takes no lock; errno is the interrupted code's.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE).max(1) as usize;
        let errno = libc::__errno_location();
        let before = *errno;
        let from = at - at % page;
        let len = place.end.load(Ordering::Relaxed) - from;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let to = ptr::with_exposed_provenance_mut::<libc::c_void>(from);
        let mapped = libc::mmap(to, len, access, how, -1, 0);
        *errno = before;
        mapped != libc::MAP_FAILED
    }
}
