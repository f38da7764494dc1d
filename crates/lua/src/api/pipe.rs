//! `ngx.pipe`: programs that code starts, writes to, reads from and waits for.
//!
//! A process is known by a number, and is the request's (the session's; where there is neither the run's) whose code
//! has started it: with that it goes, or when Lua has collected it. Its two outputs and its input wait apart from each
//! other and from its end, for one thread each.

use super::control::debug;
use super::socket::{settings_of, words_of};
use crate::crossing::{Answer, Args};
use crate::machine::{code, items, List, OpRow, State};
use crate::run::context::{self, ANY, WAITING};
use crate::run::{Reply, WaitFor};
use crate::vm::Vm;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weir_core::logger::LogLevel;
use weir_core::LocalFuture;
use weir_runtime::children::{self, Child, NotSent, NotStarted, PipeEnd, Program};
use weir_runtime::clock;
use weir_runtime::process::Exit;
use weir_runtime::timer::LazyTimer;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("pipe_spawn", ANY & !context::INIT, spawn),
    OpRow::any("pipe_read", WAITING, read),
    OpRow::any("pipe_write", WAITING, write),
    OpRow::any("pipe_wait", WAITING, wait),
    OpRow::any("pipe_shutdown", ANY, shutdown),
    OpRow::any("pipe_kill", ANY, kill),
    OpRow::any("pipe_free", ANY, |state, args, _| {
        state.vm.processes.end(&[args.id], state.vm);
        code::TRUE
    }),
];

/// A single read asks the system for no more, whatever code says.
const ROOM_MAX_BYTES: usize = 1024 * 1024;
/// Words and variables of one process.
const WORDS_MAX: usize = 16 * 1024;
/// What a program that cannot be executed ends with, as a child that has tried would.
const NOT_EXECUTED: Exit = Exit::Code(1);
/// The number of one that has not begun: no system gives it to a process, so that nothing is hit by it.
const NOBODY: i32 = i32::MAX;
const TOO_MUCH: &str = "more than lua_socket_max_read_size";

/// Those of a state, by their numbers.
#[derive(Default)]
pub(crate) struct Processes(RefCell<HashMap<u64, Rc<Process>>>);

impl Processes {
    /// These are over: what is still there of them is killed.
    fn end(&self, ids: &[u64], vm: &Vm) {
        for id in ids {
            let known = self.0.borrow_mut().remove(id);
            if let Some(process) = known {
                process.destroy(*id, vm);
            }
        }
    }
}

/// The processes of a request, a session or a run.
pub(crate) struct Held {
    vm: Rc<Vm>,
    ids: RefCell<Vec<u64>>,
}

impl Held {
    fn new(vm: &Rc<Vm>) -> Held {
        Held { vm: Rc::clone(vm), ids: RefCell::default() }
    }

    fn hold(&self, id: u64) {
        let known = self.vm.processes.0.borrow();
        let mut ids = self.ids.borrow_mut();
        // Code that goes on for long starts many, of which few are left.
        ids.retain(|id| known.contains_key(id));
        ids.push(id);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.vm.processes.end(&self.ids.take(), &self.vm);
    }
}

/// One of the pipes of a process.
#[derive(Default)]
struct Side {
    end: RefCell<Option<Rc<PipeEnd>>>,
    /// Somebody reads or writes.
    is_busy: Cell<bool>,
    /// Why who does is to stop.
    aborted: Cell<Option<&'static str>>,
    waker: RefCell<Option<Waker>>,
    /// What has been read and not been asked for.
    buf: RefCell<Vec<u8>>,
    at: Cell<usize>,
    is_over: Cell<bool>,
}

struct Process {
    /// Nothing where the program could not be executed.
    child: RefCell<Option<Child>>,
    pid: i32,
    stdin: Side,
    stdout: Side,
    /// Not where it is merged with the other.
    stderr: Option<Side>,
    /// Somebody waits for its end.
    is_awaited: Cell<bool>,
    /// Its end has been told of, and with it all is over.
    is_closed: Cell<bool>,
    /// What a single read asks the system for, and what one call may read.
    room: usize,
    read_max: usize,
}

/// As lines of the log name a process: by its number here.
fn shown(id: u64) -> String {
    format!("{id:012X}")
}

impl Side {
    fn new(end: PipeEnd) -> Side {
        Side { end: RefCell::new(Some(Rc::new(end))), ..Side::default() }
    }

    /// Nobody uses it any more; who does at the moment is told why.
    fn close(&self, why: &'static str) {
        self.end.take();
        if self.is_busy.get() {
            self.aborted.set(Some(why));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    fn rest(&self) -> usize {
        self.buf.borrow().len() - self.at.get()
    }

    fn take(&self, n: usize, skipped: usize) -> Vec<u8> {
        let mut buf = self.buf.borrow_mut();
        let at = self.at.get();
        let text = buf[at..at + n].to_vec();
        self.at.set(at + n + skipped);
        if self.at.get() == buf.len() {
            buf.clear();
            self.at.set(0);
        }
        text
    }

    /// What is wanted, if it is here; so many bytes have been looked through already.
    fn found(&self, wanted: Wanted, seen: usize) -> Option<Vec<u8>> {
        match wanted {
            Wanted::All => None,
            Wanted::Bytes(n) => (self.rest() >= n).then(|| self.take(n, 0)),
            Wanted::Any(most) => {
                let n = self.rest().min(most);
                (n > 0).then(|| self.take(n, 0))
            }
            Wanted::Line => {
                let end = {
                    let buf = self.buf.borrow();
                    let rest = &buf[self.at.get()..];
                    seen + memchr::memchr(b'\n', &rest[seen..])?
                };
                let mut line = self.take(end, 1);
                line.retain(|b| *b != b'\r');
                Some(line)
            }
        }
    }

    /// More from the child; nothing at its end.
    fn poll_more(&self, cx: &Context<'_>, end: &PipeEnd, most: usize) -> Poll<io::Result<usize>> {
        let mut buf = self.buf.borrow_mut();
        if self.at.get() * 2 > buf.len() {
            buf.drain(..self.at.get());
            self.at.set(0);
        }
        end.poll_read(cx, &mut buf, most)
    }

    /// Whether who uses it is to stop, and why; it is woken when that happens.
    fn poll_aborted(&self, cx: &Context<'_>) -> Option<&'static str> {
        self.waker.replace(Some(cx.waker().clone()));
        self.aborted.take()
    }
}

impl Process {
    fn exit(&self) -> Option<Exit> {
        match &*self.child.borrow() {
            Some(child) => child.exit(),
            None => Some(NOT_EXECUTED),
        }
    }

    /// Its end has been told of, or nobody is left who would ask.
    fn close(&self) {
        self.is_closed.set(true);
        self.stdin.close("closed");
        self.stdout.close("closed");
        if let Some(stderr) = &self.stderr {
            stderr.close("closed");
        }
    }

    fn destroy(&self, id: u64, vm: &Vm) {
        let logs = vm.gen.error_log.enabled(LogLevel::Debug);
        if logs {
            let text = format!("lua pipe destroy process:{} pid:{}", shown(id), self.pid);
            vm.log(LogLevel::Debug, &text);
        }
        if self.exit().is_none() && logs {
            let text = format!("lua pipe kill process:{} pid:{}", shown(id), self.pid);
            vm.log(LogLevel::Debug, &text);
        }
        self.child.take();
        self.close();
    }
}

fn find(state: &State<'_>, args: &Args<'_>) -> Option<Rc<Process>> {
    state.vm.processes.0.borrow().get(&args.id).map(Rc::clone)
}

/// `a`: its words, `b`: its variables; `i`: the sum of 1 where `a` is a line for the shell, 2 where its outputs are
/// merged, 4 where it has variables of its own; `x`: what a read asks for. Its numbers here and in the system.
fn spawn(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let has = |bit: i32| args.i & bit != 0;
    let (file, arguments) = match has(1) {
        true => children::of_shell(args.a),
        false => {
            let words = items(args.a);
            (words.first().copied().unwrap_or_default(), words)
        }
    };
    let environment = has(4).then(|| items(args.b));
    if arguments.len().max(environment.as_ref().map_or(0, Vec::len)) > WORDS_MAX {
        return answer.fail("too many arguments");
    }
    if memchr::memchr(0, args.a).is_some() || memchr::memchr(0, args.b).is_some() {
        return answer.fail("a NUL byte in an argument");
    }
    let program = Program { file, arguments, is_line: has(1), environment, merges: has(2) };
    let started = match children::start(&program) {
        Ok(started) => Some(started),
        Err(NotStarted::Execute(e)) => {
            not_executed(state, &program, &e);
            None
        }
        Err(e) => return answer.fail(why_not(&e)),
    };
    let room = (args.x as usize).clamp(1, ROOM_MAX_BYTES);
    let read_max = settings_of(state).read_max;
    let process = match started {
        Some(started) => Process {
            pid: started.child.pid(),
            child: RefCell::new(Some(started.child)),
            stdin: Side::new(started.stdin),
            stdout: Side::new(started.stdout),
            stderr: started.stderr.map(Side::new),
            is_awaited: Cell::default(),
            is_closed: Cell::default(),
            room,
            read_max,
        },
        None => Process {
            pid: NOBODY,
            child: RefCell::default(),
            stdin: Side::default(),
            stdout: over(),
            stderr: (!program.merges).then(over),
            is_awaited: Cell::default(),
            is_closed: Cell::default(),
            room,
            read_max,
        },
    };
    let (id, pid) = (state.vm.next(), process.pid);
    debug(state, || {
        let (merged, size) = (i32::from(has(2)), args.x);
        let shown = shown(id);
        format!("lua pipe spawn process:{shown} pid:{pid} merge_stderr:{merged} buffer_size:{size}")
    });
    state.vm.processes.0.borrow_mut().insert(id, Rc::new(process));
    hold(state, id);
    answer.list().number(id as f64).number(f64::from(pid));
    code::LIST
}

/// An output that has ended.
fn over() -> Side {
    Side { is_over: Cell::new(true), ..Side::default() }
}

/// It is there as long as what the code runs for.
fn hold(state: &mut State<'_>, id: u64) {
    let vm = &state.run.vm;
    match (&mut state.r, &mut state.s) {
        // Internal redirects are the same request.
        (Some(r), _) => match r.kept::<Held>() {
            Some(held) if Rc::ptr_eq(&held.vm, vm) => held.hold(id),
            _ => {
                let held = Held::new(vm);
                held.hold(id);
                r.keep_state(held);
            }
        },
        (None, Some(s)) => match s.ctx_ref::<Held>() {
            Some(held) => held.hold(id),
            None => {
                let held = Held::new(vm);
                held.hold(id);
                s.set_ctx(held);
            }
        },
        (None, None) => {
            let fresh = || Box::new(Held::new(vm));
            state.run.processes.get_or_insert_with(fresh).hold(id);
        }
    }
}

fn why_not(e: &NotStarted) -> String {
    match e {
        NotStarted::TooMany => format!("too many processes: there are {} already", children::MAX),
        NotStarted::Pipe(e) => format!("pipe failed: {}", words_of(e)),
        NotStarted::Fork(e) => format!("fork failed: {}", words_of(e)),
        NotStarted::Execute(e) => format!("execvp() failed: {}", words_of(e)),
    }
}

/// The log is told as a child that has failed to become the program would tell it.
fn not_executed(state: &State<'_>, program: &Program<'_>, e: &io::Error) {
    let call = if program.environment.is_some() { "execvpe" } else { "execvp" };
    let file = String::from_utf8_lossy(program.file);
    let why = weir_upstream::error_text(e);
    let text = format!("lua pipe child {call}() failed while executing {file} {why}");
    state.vm.log(LogLevel::Error, &text);
}

/// What is to be read.
#[derive(Clone, Copy)]
enum Wanted {
    Bytes(usize),
    Line,
    All,
    Any(usize),
}

impl Wanted {
    /// Of so many bytes in which it is not, those that need not be looked through again.
    fn seen(self, bytes: usize) -> usize {
        match self {
            Wanted::Line => bytes,
            _ => 0,
        }
    }
}

/// A side is not used by this wait any more, however it ends.
struct Busy {
    process: Rc<Process>,
    which: Which,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Stdin,
    Stdout,
    Stderr,
}

impl Busy {
    fn new(process: &Rc<Process>, which: Which) -> Busy {
        let busy = Busy { process: Rc::clone(process), which };
        busy.side().is_busy.set(true);
        busy.side().aborted.set(None);
        busy
    }

    fn side(&self) -> &Side {
        match (self.which, &self.process.stderr) {
            (Which::Stdin, _) => &self.process.stdin,
            (Which::Stderr, Some(stderr)) => stderr,
            _ => &self.process.stdout,
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.side().is_busy.set(false);
        self.side().waker.take();
    }
}

/// For how long without a byte; 0 is for ever.
fn deadline(ms: f64) -> u64 {
    match ms > 0.0 {
        true => clock::mono_ms().saturating_add(ms as u64),
        false => u64::MAX,
    }
}

/// `a`: what (`l`, `b`, `a` or `any`), `b`: not empty for the errors; `x`: how much; `y`: milliseconds.
fn read(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let wanted = match args.a {
        b"l" => Wanted::Line,
        b"b" => Wanted::Bytes(args.x as usize),
        b"a" => Wanted::All,
        _ => Wanted::Any(args.x as usize),
    };
    let process = match find(state, args) {
        Some(process) if !process.is_closed.get() => process,
        _ => return answer.fail("closed"),
    };
    let which = if args.b.is_empty() { Which::Stdout } else { Which::Stderr };
    if which == Which::Stderr && process.stderr.is_none() {
        return answer.fail("merged to stdout");
    }
    let id = shown(args.id);
    debug(state, || format!("lua pipe read process:{id} pid:{}", process.pid));
    {
        let side = match &process.stderr {
            Some(stderr) if which == Which::Stderr => stderr,
            _ => &process.stdout,
        };
        if side.end.borrow().is_none() && !side.is_over.get() {
            return answer.fail("closed");
        }
        if side.is_busy.get() {
            return answer.fail("pipe busy reading");
        }
        if let Some(text) = side.found(wanted, 0) {
            answer.list().text(&text);
            return code::LIST;
        }
    }
    let ms = args.y;
    let reading = Box::pin(reading(Busy::new(&process, which), wanted, ms));
    now_or_later(state, reading, answer, |state| tell_wait(state, "read", &id, process.pid, ms))
}

/// What can be done at once is; before somebody has to wait, that is told.
fn now_or_later(
    state: &mut State<'_>,
    mut work: LocalFuture<'static, Reply>,
    answer: &mut Answer,
    before: impl FnOnce(&State<'_>),
) -> i32 {
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => {
            (answer.x, answer.text) = (reply.x, reply.text);
            reply.code
        }
        Poll::Pending => {
            before(state);
            state.wait(WaitFor::Future(work), answer)
        }
    }
}

fn tell_wait(state: &State<'_>, what: &str, id: &str, pid: i32, ms: f64) {
    if ms > 0.0 {
        let doing = what.trim_end_matches('e').to_owned() + "ing";
        debug(state, || format!("lua pipe add timer for {doing}: {ms}(ms) process:{id} pid:{pid}"));
    }
    debug(state, || format!("lua pipe {what} yielding process:{id} pid:{pid}"));
}

async fn reading(busy: Busy, wanted: Wanted, ms: f64) -> Reply {
    let side = busy.side();
    let (room, read_max) = (busy.process.room, busy.process.read_max);
    let mut limit = LazyTimer::new();
    let mut until = deadline(ms);
    let mut seen = wanted.seen(side.rest());
    let done = poll_fn(|cx| loop {
        if let Some(why) = side.poll_aborted(cx) {
            return Poll::Ready(Err(why.to_owned()));
        }
        let end = side.end.borrow().as_ref().map(Rc::clone);
        let Some(end) = end.filter(|_| !side.is_over.get()) else {
            return Poll::Ready(Err("closed".to_owned()));
        };
        match side.poll_more(cx, &end, room) {
            Poll::Ready(Ok(0)) => side.is_over.set(true),
            Poll::Ready(Ok(_)) => {
                until = deadline(ms);
                if let Some(text) = side.found(wanted, seen) {
                    return Poll::Ready(Ok(text));
                }
                seen = wanted.seen(side.rest());
                if side.rest() > read_max {
                    return Poll::Ready(Err(TOO_MUCH.to_owned()));
                }
            }
            Poll::Ready(Err(e)) => return Poll::Ready(Err(words_of(&e))),
            Poll::Pending if until == u64::MAX => return Poll::Pending,
            Poll::Pending => {
                return limit.poll_until(cx, until).map(|()| Err("timeout".to_owned()));
            }
        }
    })
    .await;
    let mut text = Vec::new();
    let mut list = List(&mut text);
    let rest = |side: &Side| side.take(side.rest(), 0);
    match done {
        Ok(found) => list.text(&found),
        // The end is what was read to.
        Err(_) if matches!(wanted, Wanted::All) && side.is_over.get() => list.text(&rest(side)),
        Err(why) => list.nil().text(why.as_bytes()).text(&rest(side)),
    };
    Reply { code: code::LIST, x: 0.0, text }
}

/// `a`: what; `y`: milliseconds.
fn write(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let process = match find(state, args) {
        Some(process) if !process.is_closed.get() => process,
        _ => return answer.fail("closed"),
    };
    let id = shown(args.id);
    debug(state, || format!("lua pipe write process:{id} pid:{}", process.pid));
    if process.stdin.end.borrow().is_none() {
        return answer.fail("closed");
    }
    if process.stdin.is_busy.get() {
        return answer.fail("pipe busy writing");
    }
    if args.a.is_empty() {
        return answer.number(0.0);
    }
    let (text, ms) = (args.a.to_vec(), args.y);
    let writing = Box::pin(writing(Busy::new(&process, Which::Stdin), text, ms));
    now_or_later(state, writing, answer, |state| tell_wait(state, "write", &id, process.pid, ms))
}

async fn writing(busy: Busy, text: Vec<u8>, ms: f64) -> Reply {
    let side = busy.side();
    let mut limit = LazyTimer::new();
    let mut until = deadline(ms);
    let mut sent = 0;
    let done = poll_fn(|cx| loop {
        if let Some(why) = side.poll_aborted(cx) {
            return Poll::Ready(Err(why.to_owned()));
        }
        if sent == text.len() {
            return Poll::Ready(Ok(()));
        }
        let end = side.end.borrow().as_ref().map(Rc::clone);
        let Some(end) = end else { return Poll::Ready(Err("closed".to_owned())) };
        match end.poll_write(cx, &text[sent..]) {
            Poll::Ready(Ok(n)) => {
                sent += n;
                until = deadline(ms);
            }
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => {
                return Poll::Ready(Err("closed".to_owned()));
            }
            Poll::Ready(Err(e)) => return Poll::Ready(Err(words_of(&e))),
            Poll::Pending if until == u64::MAX => return Poll::Pending,
            Poll::Pending => {
                return limit.poll_until(cx, until).map(|()| Err("timeout".to_owned()));
            }
        }
    })
    .await;
    match done {
        Ok(()) => Reply { code: code::NUMBER, x: text.len() as f64, text: Vec::new() },
        Err(why) => Reply::fail(why),
    }
}

/// Nobody waits for the process by this any more.
struct Awaited(Rc<Process>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.is_awaited.set(false);
    }
}

/// `y`: milliseconds.
fn wait(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let process = match find(state, args) {
        Some(process) if !process.is_closed.get() => process,
        _ => return answer.fail("exited"),
    };
    let (id, pid) = (shown(args.id), process.pid);
    debug(state, || format!("lua pipe wait process:{id} pid:{pid}"));
    if process.is_awaited.get() {
        return answer.fail("pipe busy waiting");
    }
    if let Some(exit) = process.exit() {
        process.close();
        tell_exit(&mut answer.list(), exit);
        return code::LIST;
    }
    let ms = args.y;
    tell_wait(state, "wait", &id, pid, ms);
    process.is_awaited.set(true);
    let awaited = Awaited(process);
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let (mut limit, until) = (LazyTimer::new(), deadline(ms));
            let exit = poll_fn(|cx| match &*awaited.0.child.borrow() {
                Some(child) => match child.poll_exit(cx) {
                    Poll::Ready(exit) => Poll::Ready(Some(exit)),
                    Poll::Pending if until == u64::MAX => Poll::Pending,
                    Poll::Pending => limit.poll_until(cx, until).map(|()| None),
                },
                None => Poll::Ready(Some(NOT_EXECUTED)),
            })
            .await;
            let Some(exit) = exit else { return Reply::fail("timeout") };
            awaited.0.close();
            let mut text = Vec::new();
            tell_exit(&mut List(&mut text), exit);
            Reply { code: code::LIST, x: 0.0, text }
        })),
        answer,
    )
}

fn tell_exit(list: &mut List<'_>, exit: Exit) {
    let (reason, status) = match exit {
        Exit::Code(code) => ("exit", code),
        Exit::Signal(signal) => ("signal", signal),
    };
    list.boolean(status == 0).text(reason.as_bytes()).number(f64::from(status));
}

/// `a`: which of the three.
fn shutdown(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let process = match find(state, args) {
        Some(process) if !process.is_closed.get() => process,
        _ => return answer.fail("closed"),
    };
    let side = match (args.a, &process.stderr) {
        (b"stdin", _) => &process.stdin,
        (b"stdout", _) => &process.stdout,
        (_, Some(stderr)) => stderr,
        (_, None) => return answer.fail("merged to stdout"),
    };
    let why = if process.exit().is_some() { "closed" } else { "aborted" };
    side.is_over.set(false);
    side.close(why);
    code::TRUE
}

/// `x`: the signal's number.
fn kill(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(process) = find(state, args) else { return answer.fail("exited") };
    let sent = match &*process.child.borrow() {
        Some(child) if !process.is_closed.get() => child.send(args.x as i32),
        _ => Err(NotSent::Ended),
    };
    match sent {
        Ok(()) => code::TRUE,
        Err(NotSent::Ended) => answer.fail("exited"),
        Err(NotSent::System(e)) if e.kind() == io::ErrorKind::InvalidInput => {
            answer.fail("invalid signal")
        }
        Err(NotSent::System(e)) => answer.fail(words_of(&e)),
    }
}
