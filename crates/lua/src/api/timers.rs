//! Timers: runs that no request is there for.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{self, ANY};
use crate::run::{Run, Step, Told};
use crate::site::{came_by, Block, Site, Who};
use crate::vm::{enter, Vm};
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weir_core::logger::LogLevel;
use weir_core::worker::Running;
use weir_core::Session as _;
use weir_runtime::{event_loop, timer};

pub(super) const OPS: &[OpRow] =
    &[
        // What begins when a worker is over would never run.
        OpRow::any("timer", ANY & !(context::INIT | context::EXIT_WORKER), begin),
        OpRow::any("timer_count", ANY, |state, args, answer| {
            let count =
                if args.i == 0 { &state.vm.pending_timers } else { &state.vm.running_timers };
            answer.number(count.get() as f64)
        }),
        OpRow::any("timer_is_early", ANY, |state, _, _| {
            if state.run.piece.last {
                code::TRUE
            } else {
                code::FALSE
            }
        }),
        OpRow::any("is_ending", ANY, |state, _, _| {
            if state.vm.is_ending.get() {
                code::TRUE
            } else {
                code::FALSE
            }
        }),
    ];

/// Begins a timer of that number.
fn begin(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let main = state.vm.main();
    let max = main.and_then(|m| m.max_pending_timers.as_option().copied()).unwrap_or(1024);
    let (ms, number) = ((args.x * 1000.0).clamp(0.0, 1e12) as u64, args.i);
    // What code that logs has to send away goes now, or never.
    if state.vm.is_ending.get() && ms > 0 {
        return answer.fail("process exiting");
    }
    if state.vm.pending_timers.get() as u64 >= max {
        return answer.fail("too many pending timers");
    }
    let place = String::from_utf8_lossy(args.a).into_owned();
    let begun_by = (origin(state), state.site());
    let repeats = args.y != 0.0;
    // What is begun before a worker serves runs before it does, if it can.
    let at_once = ms == 0 && state.run.context == context::INIT_WORKER;
    let vm = Rc::clone(&state.run.vm);
    let told = Rc::new(Told::default());
    vm.pending_timers.set(vm.pending_timers.get() + 1);
    vm.timers.borrow_mut().push(Rc::clone(&told));
    // A worker that ends has it come at once, and waits for its end.
    let running = vm.worker.upgrade().map(Running::new);
    event_loop::spawn(async move {
        let _running = running;
        loop {
            let early = {
                let mut sleep = pin!(timer::sleep_ms(ms));
                poll_fn(|cx| match told.poll(cx) {
                    Poll::Ready(_) => Poll::Ready(true),
                    Poll::Pending if at_once => Poll::Ready(false),
                    Poll::Pending => sleep.as_mut().poll(cx).map(|()| false),
                })
                .await
            };
            vm.pending_timers.set(vm.pending_timers.get() - 1);
            vm.timers.borrow_mut().retain(|t| !Rc::ptr_eq(t, &told));
            let has_run = run(&vm, number, early, &place, &begun_by).await;
            if !has_run && repeats && !vm.is_ending.get() {
                // It has missed one time.
                vm.pending_timers.set(vm.pending_timers.get() + 1);
                vm.timers.borrow_mut().push(Rc::clone(&told));
                continue;
            }
            if !has_run {
                // Its function goes with it.
                vm.forget(crate::run::entry::NO_TIMER, i64::from(number));
            }
            return;
        }
    });
    code::TRUE
}

/// What lines of the log say of a timer that this code begins.
fn origin(state: &State<'_>) -> Rc<[u8]> {
    match (&state.r, &state.s) {
        (Some(r), _) => came_by(r.conn(), r.client_text()),
        (None, Some(s)) => came_by(s.conn(), s.client_text()),
        (None, None) => Rc::clone(&state.run.origin),
    }
}

/// What of the code that has begun a timer stays with it.
type BegunBy = (Rc<[u8]>, Option<Site>);

/// Runs its code, if not too many run already.
async fn run(vm: &Rc<Vm>, number: i32, early: bool, place: &str, begun_by: &BegunBy) -> bool {
    let main = vm.main();
    let max = main.and_then(|m| m.max_running_timers.as_option().copied()).unwrap_or(256);
    let stream = if vm.block == Block::Stream { "stream " } else { "" };
    if vm.running_timers.get() as u64 >= max {
        let of = if vm.block == Block::Stream { "stream lua: " } else { "" };
        let text = format!(
            "lua failed to run timer with function defined at {place}: {of}{max} lua_max_running_timers are not enough"
        );
        vm.log(LogLevel::Alert, &text);
        return false;
    }
    vm.running_timers.set(vm.running_timers.get() + 1);
    vm.log(LogLevel::Debug, &format!("{stream}lua ngx.timer expired"));
    let mut run = Run::new(vm, context::TIMER);
    (run.origin, run.site) = begun_by.clone();
    if early {
        run.piece.last = true;
    }
    run.is_scheduled = true;
    if enter(Who::Nobody, &mut run, crate::run::entry::TIMER, f64::from(number)) == Step::Waits {
        run.drive(Who::Nobody).await;
    }
    drop(run);
    let text = match vm.block {
        Block::Http => "http lua close fake http connection",
        Block::Stream => "stream lua close fake stream connection",
    };
    vm.log(LogLevel::Debug, text);
    vm.running_timers.set(vm.running_timers.get() - 1);
    true
}
