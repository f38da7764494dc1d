//! The border to LuaJIT: the one file of this crate with `unsafe` in it.
//!
//! An [`Engine`] is one Lua state. Rust enters it by one call, [`Engine::enter`], and Lua calls back by one
//! function of C's, [`weir_call`], which the FFI compiles into traces. What Lua code may ask for is lent for the
//! time of one `enter`: a [`Host`], which gets the words of the question and writes the answer.
//!
//! Rules that everything here keeps:
//! * a state never leaves its thread (`Engine` has a raw pointer and is neither `Send` nor `Sync`);
//! * no error of Lua's passes a frame of Rust's: Rust calls only what is protected (`lua_pcall`, loading), or what
//!   raises nothing but "not enough memory" and is itself called within `lua_cpcall`;
//! * no panic passes a frame of Lua's: [`weir_call`] and the allocator catch them;
//! * a host is used by one call at a time: it is taken away while it works;
//! * an operation may enter the state anew (an answer's filters run code) only if it was called by
//!   [`weir_function`], which is a function of Lua's own kind: LuaJIT allows that of no call by the FFI.
#![allow(unsafe_code)]

use crate::watch::{Seat, Verdict};
use mlua_sys as lua;
use std::alloc::{alloc, dealloc, realloc, Layout};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::fmt::Write as _;
use std::io;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use weir_runtime::interrupt;

/// Whether that is Lua, in a state of its own; an error is what the compiler says.
pub(crate) fn check_syntax(text: &[u8], name: &CStr) -> Result<(), String> {
    // SAFETY: a fresh state that nobody else has; loading is protected, and nothing is run.
    let state = unsafe { lua::luaL_newstate() };
    if state.is_null() {
        return Ok(());
    }
    let begin = text.as_ptr().cast::<c_char>();
    // SAFETY: the state is there; text and name outlive the call, which copies what it keeps.
    let status = unsafe { lua::luaL_loadbuffer(state, begin, text.len(), name.as_ptr()) };
    let done = match status {
        lua::LUA_OK => Ok(()),
        // SAFETY: the error is on top of the stack.
        _ => Err(unsafe { text_at(state, -1) }),
    };
    // SAFETY: the state is closed once, and not used behind this.
    unsafe { lua::lua_close(state) };
    done
}

/// What Lua asks with.
pub(crate) struct Args<'a> {
    pub i: i32,
    pub a: &'a [u8],
    pub b: &'a [u8],
    pub x: f64,
    pub y: f64,
}

/// What it is answered besides a code. It is the engine's, and used again.
#[derive(Default)]
pub(crate) struct Answer {
    pub text: Vec<u8>,
    pub x: f64,
    pub i: i32,
    pub k: i32,
}

/// Who answers Lua.
pub(crate) trait Host {
    /// The code is for the Lua side to know what is in the answer.
    fn call(&mut self, op: i32, args: &Args<'_>, answer: &mut Answer) -> i32;

    /// Code has run for so long, and is at this place now: what becomes of it.
    fn overdue(&mut self, ms: u64, place: &str) -> Verdict;
}

/// As the Lua side declares it.
#[repr(C)]
struct Out {
    p: *const u8,
    n: usize,
    x: f64,
    i: i32,
    k: i32,
}

/// Behind the code of an answer that was none.
const BROKEN: i32 = -9;
/// The alignment that Lua's objects may want.
const ALIGN: usize = 16;
/// So often garbage is collected where collecting makes more.
const COLLECTIONS_MAX: u32 = 16;
/// What an end may take beyond what code may.
const ROOM_BYTES: usize = 4 * 1024 * 1024;
/// What is kept of the memory for an answer.
const KEPT_BYTES: usize = 256 * 1024;

/// What one engine has taken, and may take.
struct Memory {
    used: Cell<usize>,
    max: Cell<usize>,
    /// Something was refused since this was last looked at.
    refused: Cell<bool>,
}

struct Shared {
    out: Out,
    answer: Answer,
    memory: Memory,
    /// A panic of a host, for who has entered.
    panic: Option<Box<dyn Any + Send>>,
    /// The coroutine that an operation was called by, if Lua may be entered from there.
    caller: *mut lua::lua_State,
}

/// One Lua state.
pub(crate) struct Engine {
    state: *mut lua::lua_State,
    shared: *mut Shared,
    /// The registry's number of the function that all calls go to.
    entry: c_int,
    /// By which others see that Lua runs.
    seat: Arc<Seat>,
    /// Its memory was out, and hardly any of it was garbage.
    is_spent: Cell<bool>,
}

/// How an entry has failed: nothing of it can be relied on but the text.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error that nobody caught.
    Error(String),
    /// There is no memory left for this engine.
    Memory,
}

thread_local! {
    /// The state that runs on this thread; null where none does. The handler of a signal reads it, too.
    static RUNS: AtomicPtr<lua::lua_State> = const { AtomicPtr::new(ptr::null_mut()) };
    /// The state that runs has a hook. Written by the handler as well.
    static ARMED: Cell<bool> = const { Cell::new(false) };
    /// Code is to end, wherever it catches that.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    /// Who answers the engine that runs on this thread.
    static HOST: Cell<Option<(*mut dyn Host, *mut Shared)>> = const { Cell::new(None) };
}

unsafe extern "C" fn allocate(
    ud: *mut c_void,
    old: *mut c_void,
    had: usize,
    wanted: usize,
) -> *mut c_void {
    // SAFETY: `ud` is the `Memory` of the engine, which lives longer than its state. `old` came from here with
    // `had` bytes (0 where it is null), as Lua's contract says.
    unsafe {
        let memory = &*ud.cast::<Memory>();
        let had = if old.is_null() { 0 } else { had };
        if wanted == 0 {
            if had > 0 {
                dealloc(old.cast(), Layout::from_size_align_unchecked(had, ALIGN));
                memory.used.set(memory.used.get() - had);
            }
            return ptr::null_mut();
        }
        let used = memory.used.get() - had + wanted;
        if wanted > had && used > memory.max.get() || wanted > isize::MAX as usize - ALIGN {
            memory.refused.set(true);
            return ptr::null_mut();
        }
        let fresh = match had {
            0 => alloc(Layout::from_size_align_unchecked(wanted, ALIGN)),
            _ => realloc(old.cast(), Layout::from_size_align_unchecked(had, ALIGN), wanted),
        };
        if !fresh.is_null() {
            memory.used.set(used);
        }
        fresh.cast()
    }
}

unsafe fn slice<'a>(p: *const u8, n: usize) -> &'a [u8] {
    match n {
        0 => &[],
        // SAFETY: the caller has it from Lua, which keeps the text for as long as the call lasts.
        _ => unsafe { std::slice::from_raw_parts(p, n) },
    }
}

/// Has the host answer, and leaves the answer where Lua looks for it.
///
/// # Safety
///
/// `caller` is null, or the coroutine that runs and has called by [`weir_function`].
unsafe fn answer(op: c_int, args: &Args<'_>, caller: *mut lua::lua_State) -> c_int {
    let Some((host, shared)) = HOST.take() else { return BROKEN };
    // SAFETY: both were put there by `enter`, which has not returned: Lua runs only within it. The host was taken
    // away, so that this is its only use. Of `shared` no reference is held while the host works, which may enter Lua.
    let code = unsafe {
        let before = std::mem::replace(&mut (*shared).caller, caller);
        let mut answer = std::mem::take(&mut (*shared).answer);
        answer.text.clear();
        (answer.x, answer.i, answer.k) = (0.0, 0, 0);
        let done = catch_unwind(AssertUnwindSafe(|| (*host).call(op, args, &mut answer)));
        (*shared).caller = before;
        let out = &mut (*shared).out;
        (out.p, out.n) = (answer.text.as_ptr(), answer.text.len());
        (out.x, out.i, out.k) = (answer.x, answer.i, answer.k);
        (*shared).answer = answer;
        done.unwrap_or_else(|panic| {
            (*shared).panic = Some(panic);
            BROKEN
        })
    };
    HOST.set(Some((host, shared)));
    code
}

/// What Lua calls by the FFI: never raises, never unwinds.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn weir_call(
    op: c_int,
    i: c_int,
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    x: f64,
    y: f64,
) -> c_int {
    // SAFETY: the texts are strings of Lua's that the caller holds. Lua is not entered from here.
    unsafe { answer(op, &Args { i, a: slice(a, an), b: slice(b, bn), x, y }, ptr::null_mut()) }
}

/// The same as a function of Lua's, of an operation, a number and a text: for operations that may enter Lua.
unsafe extern "C-unwind" fn weir_function(l: *mut lua::lua_State) -> c_int {
    // SAFETY: the state is the running one. The text is on its stack for as long as this lasts; a value that is no
    // string is not asked for its text. Nothing here raises.
    unsafe {
        let mut length = 0;
        let text = match lua::lua_type(l, 3) {
            lua::LUA_TSTRING => lua::lua_tolstring(l, 3, &mut length),
            _ => ptr::null(),
        };
        let (op, i) = (lua::lua_tonumber(l, 1) as c_int, lua::lua_tonumber(l, 2) as c_int);
        let args = Args { i, a: slice(text.cast(), length), b: &[], x: 0.0, y: 0.0 };
        let code = answer(op, &args, l);
        lua::lua_pushnumber(l, f64::from(code));
        1
    }
}

/// What is done within `lua_cpcall`, where running out of memory is an error of Lua's and no more.
struct Boot<'a> {
    text: &'a [u8],
    name: &'a [u8],
    shared: *mut Shared,
    entry: c_int,
}

unsafe extern "C-unwind" fn boot(l: *mut lua::lua_State) -> c_int {
    // SAFETY: called by `lua_cpcall` with a `Boot` that its caller holds. There is nothing to drop in this frame
    // when Lua leaves it by an error.
    unsafe {
        let with = &mut *lua::lua_touserdata(l, 1).cast::<Boot<'_>>();
        lua::luaL_openlibs(l);
        let text = with.text.as_ptr().cast::<c_char>();
        let status = lua::luaL_loadbuffer(l, text, with.text.len(), with.name.as_ptr().cast());
        if status != lua::LUA_OK {
            lua::lua_error(l);
        }
        lua::lua_pushlightuserdata(l, weir_call as *mut c_void);
        lua::lua_pushlightuserdata(l, ptr::addr_of_mut!((*with.shared).out).cast());
        lua::lua_pushlightuserdata(l, ptr::null_mut());
        lua::lua_pushcclosure(l, weir_function, 0);
        lua::lua_call(l, 4, 1);
        with.entry = lua::luaL_ref(l, lua::LUA_REGISTRYINDEX);
        0
    }
}

/// Within `lua_cpcall`: collects garbage, and has more of it collected from now on.
unsafe extern "C-unwind" fn collect(l: *mut lua::lua_State) -> c_int {
    const PAUSE_PERCENT: c_int = 100;
    // SAFETY: called with a number in the place of a pointer. There is nothing to drop in this frame.
    unsafe {
        let how = lua::lua_touserdata(l, 1).addr() as c_int;
        lua::lua_gc(l, lua::LUA_GCSETPAUSE, PAUSE_PERCENT);
        lua::lua_gc(l, how, 0);
    }
    0
}

unsafe fn text_at(l: *mut lua::lua_State, at: c_int) -> String {
    // SAFETY: the state is the caller's. Only what is a string is asked for its text, which makes nothing.
    unsafe {
        if lua::lua_type(l, at) != lua::LUA_TSTRING {
            return String::from("an error that is no text");
        }
        let mut length = 0;
        let text = lua::lua_tolstring(l, at, &mut length);
        String::from_utf8_lossy(slice(text.cast(), length)).into_owned()
    }
}

extern "C" {
    /// The hook at work is over, although it has not returned (`luajit/build/hook.c`).
    fn weir_leave_hook(l: *mut lua::lua_State);
}

/// So many calls of a place are shown.
const PLACE_CALLS: c_int = 16;
/// The chunk whose code keeps the accounts of runs (`lua/prelude.lua`).
const ACCOUNTS: &CStr = c"=weir";
/// What is raised in code that has run for too long.
const TOO_LONG: &str = "it has run for longer than lua_max_run_time without waiting";

/// Has code that runs on threads which are interrupted look at itself.
///
/// # Errors
///
/// The system has no such thing.
pub(crate) fn install_interrupts() -> io::Result<()> {
    // SAFETY: the handler reads and writes thread-locals that are there from the thread's beginning, and calls what
    // LuaJIT says may be called from the handler of a signal.
    unsafe { interrupt::install(on_interrupt) }
}

/// In the handler of a signal: the state that runs here is given a hook, which comes before its next instruction.
/// Where this has interrupted LuaJIT itself in the same thing, the hook may be lost; whoever interrupts does so again.
extern "C" fn on_interrupt() {
    let state = RUNS.with(|runs| runs.load(Ordering::Acquire));
    if state.is_null() {
        return;
    }
    ARMED.set(true);
    // SAFETY: the state runs on this very thread, so that it is there; `lua_sethook` may be called from handlers.
    unsafe {
        // All over again, whatever was there.
        lua::lua_sethook(state, None, 0, 0);
        lua::lua_sethook(state, Some(hook), lua::LUA_MASKCOUNT, 1);
    }
}

/// Takes the hook away. Every part of the dispatch tables changes twice, so that none is left as a signal in the
/// midst of their making had left it.
///
/// # Safety
///
/// The state is this thread's; not to be called by a handler.
unsafe fn disarm(l: *mut lua::lua_State) {
    const ALL: c_int =
        lua::LUA_MASKCALL | lua::LUA_MASKRET | lua::LUA_MASKLINE | lua::LUA_MASKCOUNT;
    ARMED.set(false);
    ENDS.set(false);
    // SAFETY: as the caller says. No code runs between the two.
    unsafe {
        lua::lua_sethook(l, Some(hook), ALL, 1);
        lua::lua_sethook(l, None, 0, 0);
    }
}

/// Called before an instruction of code that has a hook. Once it is to end, all of it does: an error that it catches
/// comes again at the next instruction. Only what keeps the accounts of runs is left to do so.
unsafe extern "C-unwind" fn hook(l: *mut lua::lua_State, _: *mut lua::lua_Debug) {
    // SAFETY: the state is the running one. Errors leave a frame with nothing to drop.
    unsafe {
        if !ENDS.get() {
            match judge_overdue(l) {
                Verdict::Ends => ENDS.set(true),
                Verdict::GoesOn => return disarm(l),
            }
        }
        if keeps_accounts(l) {
            return;
        }
        lua::luaL_where(l, 0);
        lua::lua_pushlstring(l, TOO_LONG.as_ptr().cast(), TOO_LONG.len());
        lua::lua_concat(l, 2);
        // What handles the error has a hook, too.
        weir_leave_hook(l);
        lua::lua_error(l);
    }
}

/// Whether it runs what no entry may be without: the state's own thread has nothing else.
unsafe fn keeps_accounts(l: *mut lua::lua_State) -> bool {
    if RUNS.with(|runs| runs.load(Ordering::Relaxed)) == l {
        return true;
    }
    // SAFETY: plain data, which is read only where it was filled; the names are the state's.
    unsafe {
        let mut at: lua::lua_Debug = std::mem::zeroed();
        lua::lua_getstack(l, 0, &mut at) != 0
            && lua::lua_getinfo(l, c"S".as_ptr(), &mut at) != 0
            && !at.source.is_null()
            && CStr::from_ptr(at.source) == ACCOUNTS
    }
}

/// Asks the host about the entry, if it is the one that has run for long.
unsafe fn judge_overdue(l: *mut lua::lua_State) -> Verdict {
    let Some(ms) = Seat::of_thread().accused_ms() else { return Verdict::GoesOn };
    let Some((host, shared)) = HOST.take() else { return Verdict::GoesOn };
    // SAFETY: as in `answer`: the host is there until `enter` returns, and was taken away. The state is the running one.
    let verdict = unsafe {
        let place = place_of(l);
        let done = catch_unwind(AssertUnwindSafe(|| (*host).overdue(ms, &place)));
        done.unwrap_or_else(|panic| {
            (*shared).panic = Some(panic);
            Verdict::Ends
        })
    };
    HOST.set(Some((host, shared)));
    verdict
}

/// Where code is, from the innermost call outwards, as lines.
unsafe fn place_of(l: *mut lua::lua_State) -> String {
    let mut text = String::from("stack traceback:");
    for level in 0..PLACE_CALLS {
        // SAFETY: plain data, which is read only where it was filled; names are the state's, and end with a zero.
        unsafe {
            let mut at: lua::lua_Debug = std::mem::zeroed();
            if lua::lua_getstack(l, level, &mut at) == 0
                || lua::lua_getinfo(l, c"Sln".as_ptr(), &mut at) == 0
            {
                break;
            }
            let file = CStr::from_ptr(at.short_src.as_ptr()).to_string_lossy();
            let _ = write!(text, "\n\t{file}");
            if at.currentline > 0 {
                let _ = write!(text, ":{}", at.currentline);
            }
            if !at.name.is_null() {
                let _ = write!(text, ": in '{}'", CStr::from_ptr(at.name).to_string_lossy());
            }
        }
    }
    text
}

impl Engine {
    /// Begins a state that may take so many bytes. `text` is Lua code that is given the function to call, the place
    /// of its answers, a null pointer and the function that may enter; it answers the function that
    /// [`Engine::enter`] calls.
    pub(crate) fn new(
        max_bytes: usize,
        text: &[u8],
        host: &mut dyn Host,
    ) -> Result<Engine, Failure> {
        let memory =
            Memory { used: Cell::new(0), max: Cell::new(max_bytes), refused: Cell::new(false) };
        let out = Out { p: ptr::null(), n: 0, x: 0.0, i: 0, k: 0 };
        let (answer, caller) = (Answer::default(), ptr::null_mut());
        let shared = Shared { out, answer, memory, panic: None, caller };
        let shared = Box::into_raw(Box::new(shared));
        // SAFETY: the memory's place is given to the state, which is closed before it is freed (`Drop`).
        let state = unsafe {
            let memory = ptr::addr_of_mut!((*shared).memory).cast::<c_void>();
            lua::lua_newstate(allocate, memory)
        };
        let mut engine =
            Engine { state, shared, entry: 0, seat: Seat::of_thread(), is_spent: Cell::new(false) };
        if state.is_null() {
            return Err(Failure::Memory);
        }
        let mut with = Boot { text, name: b"=weir\0", shared, entry: 0 };
        // SAFETY: the state is this engine's and not in use; `with` outlives the call.
        let boot = || unsafe { lua::lua_cpcall(state, boot, ptr::addr_of_mut!(with).cast()) };
        let status = engine.lend(host, boot);
        engine.judge(state, status)?;
        engine.entry = with.entry;
        Ok(engine)
    }

    /// Calls `f` with the host lent to what Lua calls.
    fn lend<T>(&self, host: &mut dyn Host, f: impl FnOnce() -> T) -> T {
        let host: *mut dyn Host = host;
        // SAFETY: only the lifetime is taken away. The pointer is gone from `HOST` before this function returns,
        // and the host is borrowed until then.
        let host: *mut (dyn Host + 'static) = unsafe { std::mem::transmute(host) };
        let before = HOST.replace(Some((host, self.shared)));
        let value = f();
        HOST.set(before);
        value
    }

    /// What a protected call has come to. An error is on top of the stack.
    fn judge(&self, l: *mut lua::lua_State, status: c_int) -> Result<(), Failure> {
        // SAFETY: no operation is at work, so that nobody else uses `shared`.
        if let Some(panic) = unsafe { (*self.shared).panic.take() } {
            resume_unwind(panic);
        }
        match status {
            lua::LUA_OK => Ok(()),
            lua::LUA_ERRMEM => Err(Failure::Memory),
            // SAFETY: the state is the one that was called.
            _ => Err(Failure::Error(unsafe { text_at(l, -1) })),
        }
    }

    /// Calls the entry with three numbers; the number that it answers. Texts are asked for by Lua.
    ///
    /// # Errors
    ///
    /// Lua has failed, or runs and cannot be entered from where it has called.
    pub(crate) fn enter(
        &self,
        host: &mut dyn Host,
        what: i32,
        x: f64,
        y: f64,
    ) -> Result<i32, Failure> {
        // SAFETY: a field is read; no reference to `shared` is held elsewhere.
        let caller = unsafe { (*self.shared).caller };
        let runs = RUNS.with(|runs| !runs.load(Ordering::Relaxed).is_null());
        let l = match (runs, caller.is_null()) {
            (false, _) => self.state,
            (true, false) => caller,
            (true, true) => return Err(Failure::Error("Lua runs already".to_owned())),
        };
        if !runs {
            self.seat.begin();
            RUNS.with(|runs| runs.store(self.state, Ordering::Release));
        }
        let entry = self.entry;
        let call = || {
            // SAFETY: the state is this engine's: not in use, or the coroutine that has called this operation by
            // `weir_function` and waits for it. There is room, numbers take no memory, and the call is protected.
            unsafe {
                if lua::lua_checkstack(l, 8) == 0 {
                    return (0, lua::LUA_ERRMEM);
                }
                let top = lua::lua_gettop(l);
                lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, entry);
                lua::lua_pushnumber(l, f64::from(what));
                lua::lua_pushnumber(l, x);
                lua::lua_pushnumber(l, y);
                (top, lua::lua_pcall(l, 3, 1, 0))
            }
        };
        let (top, status) = self.lend(host, call);
        if !runs {
            // After an error the run is still there, and all that it has.
            if status == lua::LUA_OK {
                self.make_room();
            }
            RUNS.with(|runs| runs.store(ptr::null_mut(), Ordering::Release));
            self.seat.end();
            if ARMED.get() {
                // SAFETY: the state is this engine's and not in use.
                unsafe { disarm(self.state) };
            }
        }
        let done = self.judge(l, status);
        // SAFETY: the one result, or an error, is on top of the stack, and is taken off it.
        let answer = unsafe {
            let answer = lua::lua_tonumber(l, -1);
            lua::lua_settop(l, top);
            answer
        };
        done?;
        // SAFETY: no operation of this entry is at work; one around it has its answer with it.
        let kept = unsafe { &mut (*self.shared).answer.text };
        if kept.capacity() > KEPT_BYTES {
            *kept = Vec::new();
        }
        Ok(answer as i32)
    }

    /// Calls the entry for an end that must not fail: however little memory there is.
    pub(crate) fn enter_at_end(&self, host: &mut dyn Host, what: i32, id: f64) {
        // SAFETY: it lives as long as the engine; a cell of it is read and written.
        let max = unsafe { &(*self.shared).memory.max };
        let before = max.replace(max.get().saturating_add(ROOM_BYTES));
        let _ = self.enter(host, what, id, id);
        max.set(before);
        if !Engine::runs_here() {
            self.make_room();
        }
    }

    /// Whether it has no memory to go on with: code keeps what there was.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// Whether Lua runs on this thread.
    pub(crate) fn runs_here() -> bool {
        RUNS.with(|runs| !runs.load(Ordering::Relaxed).is_null())
    }

    /// LuaJIT fails where memory is refused, however much of it is garbage, and by itself collects that only when
    /// there is twice as much as was left the last time. Where that may be more than there is, it is helped.
    fn make_room(&self) {
        // SAFETY: cells are read and written; no operation is at work.
        let memory = unsafe { &(*self.shared).memory };
        let max = memory.max.get();
        if max == usize::MAX {
            return;
        }
        let how = match memory.refused.take() {
            true => lua::LUA_GCCOLLECT,
            false if memory.used.get() > max / 2 => lua::LUA_GCSTEP,
            false => return,
        };
        // The call itself takes some; finalizers of code's must not take all there is.
        memory.max.set(max.saturating_add(ROOM_BYTES));
        for _ in 0..COLLECTIONS_MAX {
            // SAFETY: the state is this engine's and not in use; an error of a finalizer's stays within. There is
            // nothing to be done about one, nor left of it.
            unsafe {
                let how_at = ptr::without_provenance_mut(how as usize);
                lua::lua_cpcall(self.state, collect, how_at);
                lua::lua_settop(self.state, 0);
            }
            // An error of a finalizer has ended it, and what that has made is garbage as well.
            if !memory.refused.take() {
                break;
            }
        }
        memory.max.set(max);
        if how == lua::LUA_GCCOLLECT {
            self.is_spent.set(memory.used.get() > max / 4 * 3);
        }
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        // SAFETY: `shared` lives as long as the engine; a `Cell` of it is read.
        unsafe { (*self.shared).memory.used.get() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        /// Answers nobody: finalizers may run.
        struct Nobody;
        impl Host for Nobody {
            fn call(&mut self, _: i32, _: &Args<'_>, _: &mut Answer) -> i32 {
                BROKEN
            }

            fn overdue(&mut self, _: u64, _: &str) -> Verdict {
                Verdict::GoesOn
            }
        }
        if !self.state.is_null() {
            let state = self.state;
            // SAFETY: the state is not in use; errors of finalizers stay within.
            self.lend(&mut Nobody, || unsafe { lua::lua_close(state) });
        }
        // SAFETY: made by `Box::into_raw`; the state that knew of it is closed.
        drop(unsafe { Box::from_raw(self.shared) });
    }
}
