//! `balancer_by_lua`: code that chooses the servers of an upstream.

use crate::code;
use crate::conf::LuaMain;
use crate::run::{context, Outcome, Run};
use crate::site::Who;
use crate::vm::Vm;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_stream::Session;
use weir_upstream::balancer::{Balancer, Balancing, Verdict};
use weir_upstream::UpstreamMain;

/// Connections that are kept where `balancer_keepalive` says nothing.
const IDLE_MAX: usize = 30;

/// How many connections the upstream that is being read keeps to a server that its code names.
fn idle_max(cf: &mut Cf) -> Arc<AtomicUsize> {
    let upstream = cf.get::<UpstreamMain>().current_ref().number();
    let all = &mut cf.get::<LuaMain>().balancers;
    let fresh = || Arc::new(AtomicUsize::new(IDLE_MAX));
    Arc::clone(all.entry(upstream).or_insert_with(fresh))
}

/// Who may be sent to a server that code has chosen.
pub(crate) trait Sent: weir_core::Session {
    /// Runs the code before a try.
    fn choose(&mut self, code: u32, balancing: &mut Balancing) -> Verdict;
}

impl Sent for Request {
    fn choose(&mut self, code: u32, balancing: &mut Balancing) -> Verdict {
        let vm = Vm::of_request(self);
        choose(&vm, Who::Request(self), code, balancing)
    }
}

impl Sent for Session {
    fn choose(&mut self, code: u32, balancing: &mut Balancing) -> Verdict {
        let vm = Vm::of_session(self);
        choose(&vm, Who::Session(self), code, balancing)
    }
}

pub(crate) fn set<S: Sent>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let code = code::of::<S>(cf, d)?;
    let code = cf.get::<LuaMain>().add(code);
    let idle_max = idle_max(cf);
    let balancer = Balancer::<S> { choose: S::choose, code, idle_max };
    cf.get::<UpstreamMain>().set_sticky(d, Box::new(balancer))
}

pub(crate) fn set_keepalive(cf: &mut Cf, d: &Directive) -> ConfResult {
    match d.num(0)? {
        0 => Err(d.bad(0, "room for one connection at least is to be there")),
        n => {
            idle_max(cf).store(usize::try_from(n).unwrap_or(usize::MAX), Ordering::Relaxed);
            Ok(())
        }
    }
}

fn choose(vm: &Rc<Vm>, who: Who<'_>, code: u32, balancing: &mut Balancing) -> Verdict {
    let mut run = Run::new(vm, context::BALANCER);
    run.balancing = Some(Box::new(std::mem::take(balancing)));
    run.begin(who, code);
    *balancing = run.balancing.take().map(|made| *made).unwrap_or_default();
    verdict(&run.outcome)
}

fn verdict(outcome: &Outcome) -> Verdict {
    const BUSY: i32 = -3;
    const DECLINED: i32 = -5;
    match outcome {
        Outcome::Exit(0) => Verdict::Choose,
        Outcome::Exit(BUSY) => Verdict::NoServer,
        Outcome::Exit(DECLINED) => Verdict::Next,
        Outcome::Exit(status @ 300..=999) => Verdict::Status(*status as u16),
        Outcome::Exit(_) | Outcome::Failed => Verdict::Status(500),
        _ => Verdict::Choose,
    }
}
