//! Handlers of phases, and what becomes of a request when their code has ended.

use crate::api::{output, raw};
use crate::border::Engine;
use crate::code;
use crate::conf::{LuaLoc, LuaMain};
use crate::run::{context, Outcome, Run, Step};
use crate::site::{Block, Who};
use crate::vm::{main_of, Vm};
use std::rc::Rc;
use weir_core::captured::{self, Of};
use weir_core::worker::AtWorker;
use weir_core::{LocalFuture, Worker};
use weir_http::body::{self, BodyError};
use weir_http::conf::Satisfy;
use weir_http::module::{Flow, Phase, PhaseHandler};
use weir_http::redirect::{internal_redirect, named_location};
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive, Slots};
use weir_modules::rewrite::{self, Failed, Program};
use weir_script::template::{Template, VarId};

/// The code of a phase in a location.
fn code_of(loc: &LuaLoc, context: u32) -> Option<u32> {
    let of = |val: &weir_module::Val<Option<u32>>| val.as_option().copied().flatten();
    match context {
        context::SERVER_REWRITE => of(&loc.server_rewrite),
        context::REWRITE => of(&loc.rewrite),
        context::ACCESS => of(&loc.access),
        context::PRECONTENT => of(&loc.precontent),
        context::CONTENT => loc.content,
        context::LOG => of(&loc.log),
        _ => None,
    }
}

/// Whether the code of a phase runs before the other modules of that phase.
fn is_first(loc: &LuaLoc, context: u32) -> bool {
    match context {
        context::REWRITE => *loc.rewrite_first,
        context::ACCESS => *loc.access_first,
        context::PRECONTENT => *loc.precontent_first,
        _ => false,
    }
}

fn is_active<const CONTEXT: u32, const FIRST: bool>(slots: &Slots) -> bool {
    let loc = slots.get::<LuaLoc>();
    code_of(loc, CONTEXT).is_some() && is_first(loc, CONTEXT) == FIRST
}

const fn in_phase<const CONTEXT: u32>(phase: Phase) -> PhaseHandler {
    PhaseHandler { phase, handler: handler::<CONTEXT>, active: is_active::<CONTEXT, false> }
}

const fn first_in<const CONTEXT: u32>(phase: Phase) -> PhaseHandler {
    PhaseHandler { phase, handler: handler::<CONTEXT>, active: is_active::<CONTEXT, true> }
}

/// Before lines of logs are written.
pub(crate) const LOGS: &[PhaseHandler] = &[in_phase::<{ context::LOG }>(Phase::Log)];

/// Behind what looks for files.
pub(crate) const LAST: &[PhaseHandler] = &[in_phase::<{ context::PRECONTENT }>(Phase::Precontent)];

/// Those that are not postponed.
pub(crate) const FIRST: &[PhaseHandler] = &[
    first_in::<{ context::REWRITE }>(Phase::Rewrite),
    first_in::<{ context::ACCESS }>(Phase::Access),
    first_in::<{ context::PRECONTENT }>(Phase::Precontent),
];

pub(crate) const PHASES: &[PhaseHandler] = &[
    in_phase::<{ context::SERVER_REWRITE }>(Phase::ServerRewrite),
    in_phase::<{ context::REWRITE }>(Phase::Rewrite),
    in_phase::<{ context::ACCESS }>(Phase::Access),
    in_phase::<{ context::CONTENT }>(Phase::Content),
    crate::trim::PHASE,
];

/// A run that waits, between the handler and the future that goes on with it.
struct Parked(Run);

fn handler<const CONTEXT: u32>(r: &mut Request) -> Flow {
    let loc = r.loc();
    let conf = loc.conf::<LuaLoc>();
    let Some(code) = code_of(conf, CONTEXT) else { return Flow::Declined };
    if CONTEXT & context::HANDLERS != 0 && *conf.need_request_body && !r.body.complete {
        return Flow::Wait(after_body::<CONTEXT>);
    }
    if CONTEXT & context::HANDLERS != 0 && Engine::runs_here() {
        // A subrequest of code that waits for it.
        return Flow::Wait(apart::<CONTEXT>);
    }
    match begin(r, CONTEXT, code) {
        (run, Step::Ended) => finish(r, run),
        (run, Step::Waits) => {
            r.set_ctx(Parked(run));
            Flow::Wait(go_on)
        }
    }
}

/// Runs code as far as it goes without waiting.
fn begin(r: &mut Request, context: u32, code: u32) -> (Run, Step) {
    let vm = Vm::of_request(r);
    let mut run = Run::new(&vm, context);
    let step = run.begin(Who::Request(r), code);
    (run, step)
}

fn go_on(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async {
        let Some(parked) = r.take_ctx::<Parked>() else { return Flow::Status(500) };
        let Parked(mut run) = *parked;
        run.drive(Who::Request(r)).await;
        finish(r, run)
    })
}

fn after_body<const CONTEXT: u32>(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async {
        match body::read_all_named(r).await {
            Ok(()) => {}
            Err(BodyError::Status(status)) => return Flow::Status(status),
            Err(_) => return Flow::Status(499),
        }
        apart::<CONTEXT>(r).await
    })
}

/// The whole of it, once no other code runs.
fn apart<const CONTEXT: u32>(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async {
        let code = code_of(r.loc().conf::<LuaLoc>(), CONTEXT).unwrap_or_default();
        match begin(r, CONTEXT, code) {
            (run, Step::Ended) => finish(r, run),
            (mut run, Step::Waits) => {
                run.drive(Who::Request(r)).await;
                finish(r, run)
            }
        }
    })
}

/// What the phase comes to.
fn finish(r: &mut Request, mut run: Run) -> Flow {
    let context = run.context;
    if raw::is_taken(r) {
        raw::count(r, !matches!(run.outcome, Outcome::Failed));
        return Flow::Close;
    }
    if let Some(status) = crate::filters::wanted_status(r) {
        return Flow::Status(status);
    }
    match std::mem::take(&mut run.outcome) {
        Outcome::Failed if r.flags.header_sent => Flow::Close,
        Outcome::Failed => Flow::Status(500),
        Outcome::Ended => ended(r, context),
        Outcome::Exit(code) => exited(r, context, code),
        Outcome::Redirect(status) => Flow::Status(status),
        Outcome::Jump => match context {
            context::SERVER_REWRITE | context::REWRITE => Flow::Declined,
            _ => Flow::Redirect,
        },
        Outcome::Exec(uri, args) => match uri.first() {
            Some(b'@') => named_location(r, &uri),
            _ => internal_redirect(r, &uri, &args),
        },
    }
}

fn ended(r: &mut Request, context: u32) -> Flow {
    match context {
        context::CONTENT => output::end(r),
        context::LOG => Flow::Declined,
        _ if output::has_begun(r) => output::end(r),
        context::ACCESS => Flow::Ok,
        _ => Flow::Declined,
    }
}

fn exited(r: &mut Request, context: u32, code: i32) -> Flow {
    match code {
        0 | 200..=203 | 205..=299 if context == context::CONTENT || code != 0 => output::end(r),
        0 => ended(r, context),
        -5 if context == context::CONTENT => Flow::Declined,
        -5 if output::has_begun(r) => output::end(r),
        // Other handlers of the phase are to judge.
        -5 => Flow::Declined,
        i32::MIN..0 => Flow::Close,
        // The client is not told that this was all.
        408 | 444 | 499 if output::has_begun(r) => {
            // A header alone has left.
            if !r.flags.header_only {
                r.abort(code as u16);
            }
            Flow::Close
        }
        1..=999 if output::has_begun(r) => output::end(r),
        // No answer ends with these.
        1..=199 => Flow::Close,
        200..=999 => {
            // What answers in its place (`error_page … =`) and says none of its own leaves with that.
            let may_go_on = context == context::ACCESS && *r.loc().core.satisfy == Satisfy::Any;
            if r.out.status == 0 && !may_go_on {
                r.out.status = code as u16;
            }
            Flow::Status(code as u16)
        }
        _ => Flow::Status(500),
    }
}

/// `set_by_lua`: a step of the rewrite program.
struct SetBy {
    target: VarId,
    code: u32,
    args: Vec<Template>,
}

pub(crate) fn set_by(cf: &mut Cf, d: &Directive) -> ConfResult {
    let target = rewrite::variable(cf, d, 0, d.arg(0))?;
    let mut inner = d.clone();
    inner.args.remove(0);
    let code = code::of::<Request>(cf, &inner)?;
    let args = (1..inner.args.len()).map(|at| weir_http::vars::template(cf, &inner, at));
    let args = args.collect::<ConfResult<Vec<_>>>()?;
    let code = cf.get::<LuaMain>().add(code);
    rewrite::append(cf, SetBy { target, code, args });
    Ok(())
}

impl rewrite::Step for SetBy {
    fn run(&self, at: &mut Program<'_>) -> Result<(), Failed> {
        let mut args = Vec::with_capacity(self.args.len());
        for template in &self.args {
            let mut text = Vec::new();
            at.eval(template, &mut text);
            args.push(text);
        }
        let r = &mut *at.r;
        let vm = Vm::of_request(r);
        let mut run = Run::new(&vm, context::SET);
        run.args = args;
        run.begin(Who::Request(r), self.code);
        if matches!(run.outcome, Outcome::Failed) {
            return Err(Failed);
        }
        r.set_var(self.target, run.result.as_deref().unwrap_or_default());
        Ok(())
    }
}

use weir_core::Session;

/// A worker serves by its newest generation: states of older ones end, and the new one begins.
pub(crate) fn begin_worker(worker: &Rc<Worker>, block: Block) {
    let gen = worker.generation();
    let number = gen.shared.number;
    Vm::end_others(worker, Some(number));
    let of = match block {
        Block::Http => Of::Http,
        Block::Stream => Of::Stream,
    };
    let capture = main_of(&gen.shared, block).and_then(|main| main.capture.as_option());
    captured::begin(of, number, capture.map(|bytes| *bytes as usize));
    let Some(main) = main_of(&gen.shared, block).filter(|main| main.is_used) else { return };
    let vm = Vm::of(worker, &gen.shared, block);
    if let Some(code) = main.init_worker {
        Run::new(&vm, context::INIT_WORKER).begin(Who::Nobody, code);
    }
}

/// `exit_worker_by_lua`: nobody works by that state any more, and nobody will.
pub(crate) fn leave(vm: &Rc<Vm>) {
    if let Some(code) = vm.main().and_then(|main| main.exit_worker) {
        Run::new(vm, context::EXIT_WORKER).begin(Who::Nobody, code);
    }
}

pub(crate) const AT_WORKER: AtWorker =
    AtWorker { ends: Some(Vm::end_all), over: Some(Vm::leave_all), ..AtWorker::NOTHING };
