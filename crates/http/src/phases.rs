//! The way of a request through nginx's phases, and how it ends.

use crate::client_cert::{self, Objection};
use crate::early;
use crate::flow::{Flow, Phase, WaitFn};
use crate::matching::checked;
use crate::redirect::{internal_redirect, named_location};
use crate::request::Request;
use crate::special;
use crate::subrequest;
use crate::waiting;
use crate::walk::{Step, Walk};
use weir_core::{LocalFuture, Session};

/// Runs a request until its response is complete (or must be broken off: `false`).
pub(crate) async fn run(r: &mut Request) -> bool {
    match Way::begin(r) {
        (_, Stop::Ended(finished)) => finished,
        (way, stop) => way.go_on(r, stop).await,
    }
}

/// What is to be done before any phase: what it comes to, or that it must wait.
fn before(r: &mut Request) -> Option<Flow> {
    if r.conn().tls_port.get() {
        match client_cert::objection(r) {
            Objection::None => {}
            Objection::Status(status) => return Some(Flow::Status(status)),
            Objection::Unasked => return Some(Flow::Wait(wait_before)),
        }
    }
    match r.server().core.client_body_early_read.is_empty() {
        true => None,
        false => Some(Flow::Wait(wait_before)),
    }
}

fn wait_before(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async {
        if r.conn().tls_port.get() {
            if let Some(status) = client_cert::objection_after_asking(r).await {
                return Flow::Status(status);
            }
        }
        early::read_body(r).await.unwrap_or(Flow::Declined)
    })
}

/// What is left of a subrequest that has to wait.
pub(crate) struct Left(Way, Stop);

/// A subrequest as far as it goes without waiting: whether its answer is complete.
pub(crate) fn begin_part(r: &mut Request) -> Result<bool, Left> {
    let from = if subrequest::is_again(r) { Phase::Content } else { Phase::ServerRewrite };
    let mut way = Way::new(from, Whose::Engine);
    let step = begin(r, &mut way.at);
    match way.walk(r, step) {
        Stop::Ended(false) => Ok(false),
        Stop::Ended(true) => subrequest::ends_now(r).ok_or(Left(way, Stop::Ended(true))),
        stop => Err(Left(way, stop)),
    }
}

/// Goes on until its answer, with those of its own parts, is complete.
pub(crate) async fn end_part(r: &mut Request, left: Left) -> bool {
    let Left(way, stop) = left;
    if !way.go_on(r, stop).await {
        return false;
    }
    match subrequest::answer_instead(r) {
        Some(Err(_)) => false,
        _ => finish(r).await,
    }
}

/// Goes on after a redirect that the engine made before any phase ran.
pub(crate) async fn run_redirected(r: &mut Request, flow: Flow) -> bool {
    let from = match flow {
        Flow::Named => Phase::Rewrite,
        _ => Phase::ServerRewrite,
    };
    run_from(r, from).await && Box::pin(finish(r)).await
}

/// `post_action`: goes through the phases again, behind the answer. Nothing is put out, and how it
/// ends is of no account. It is done whether or not the answer was complete, and whether or not the
/// client is still there.
pub(crate) async fn post_action(r: &mut Request) {
    let (keepalive, aborted) = (r.flags.keepalive, r.flags.aborted);
    // What was given up behind the header is none of this one's.
    r.values.unknown.take();
    let shared = r.body.shared();
    let body = std::mem::replace(&mut r.body, shared);
    r.parts = None;
    (r.flags.post_action, r.flags.header_sent, r.flags.header_only) = (true, true, true);
    let mut done = None;
    loop {
        let target = r.loc().core.post_action.as_ref().cloned();
        let Some(target) = target.filter(|t| done.as_ref() != Some(t)) else { break };
        let flow = match target.first() {
            Some(b'/') => internal_redirect(r, &target, b""),
            _ => named_location(r, &target),
        };
        let from = match flow {
            Flow::Redirect => Phase::ServerRewrite,
            Flow::Named => Phase::Rewrite,
            _ => break,
        };
        Box::pin(run_from(r, from)).await;
        done = Some(target);
    }
    r.body = body;
    (r.flags.keepalive, r.flags.aborted) = (keepalive, aborted);
}

/// Who waits for the end of a way through the phases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// A client: what the answer's parts and filters still hold goes out as well.
    Client,
    /// Who began it sees to that.
    Engine,
}

/// What a way waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Handler,
    /// The response itself, behind all handlers.
    Response,
    /// The answer's parts, or what filters still hold.
    Parts,
}

/// A request's way through the phases, to its answer.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    at: Walk,
    whose: Whose,
    waits: Waits,
}

/// Where a way has come to.
pub(crate) enum Stop {
    /// The response is complete, or must be broken off (`false`).
    Ended(bool),
    /// This, then [`Way::waited`].
    Wait(WaitFn),
}

impl Way {
    fn new(from: Phase, whose: Whose) -> Way {
        Way { at: Walk::from(from), whose, waits: Waits::Handler }
    }

    /// From the first phase on, as far as it goes without waiting.
    pub(crate) fn begin(r: &mut Request) -> (Way, Stop) {
        let mut way = Way::new(Phase::PostRead, Whose::Client);
        let step = match before(r) {
            Some(Flow::Wait(f)) => Step::Wait(f),
            Some(flow) => Step::Ended(flow),
            None => begin(r, &mut way.at),
        };
        let stop = way.walk(r, step);
        (way, stop)
    }

    /// Goes on to where it must wait.
    fn walk(&mut self, r: &mut Request, mut step: Step) -> Stop {
        loop {
            let mut flow = match step {
                Step::Ended(flow) => flow,
                Step::Wait(f) => return self.wait(Waits::Handler, f),
            };
            if let Flow::Status(status) = flow {
                flow = finalize(r, status);
            }
            self.at = match flow {
                Flow::Redirect => Walk::from(Phase::ServerRewrite),
                Flow::Named => Walk::from(Phase::Rewrite),
                Flow::Close | Flow::Status(_) => match waiting::refusal(r) {
                    None => return Stop::Ended(false),
                    Some(status) => {
                        step = Step::Ended(Flow::Status(status));
                        continue;
                    }
                },
                Flow::Ok | Flow::Declined if r.flags.aborted => return Stop::Ended(false),
                Flow::Ok | Flow::Declined => return self.answered(r),
                Flow::Wait(f) => return self.wait(Waits::Response, f),
            };
            step = begin(r, &mut self.at);
        }
    }

    fn wait(&mut self, what: Waits, f: WaitFn) -> Stop {
        self.waits = what;
        Stop::Wait(f)
    }

    fn answered(&mut self, r: &mut Request) -> Stop {
        match self.whose == Whose::Client && (r.has_parts() || r.holds()) {
            false => Stop::Ended(true),
            true if subrequest::ends_now(r) == Some(true) => Stop::Ended(true),
            true => self.wait(Waits::Parts, wait_for_parts),
        }
    }

    /// Goes on once what it waited for has come to `flow`.
    pub(crate) fn waited(&mut self, r: &mut Request, flow: Flow) -> Stop {
        match (self.waits, flow) {
            (Waits::Handler, flow) => {
                let step = self.at.waited(r, flow);
                self.walk(r, step)
            }
            (_, Flow::Close) => Stop::Ended(false),
            (Waits::Response, _) => self.answered(r),
            (Waits::Parts, _) => Stop::Ended(true),
        }
    }

    /// Goes on to the end, whatever is to be waited for.
    async fn go_on(mut self, r: &mut Request, mut stop: Stop) -> bool {
        loop {
            match stop {
                Stop::Ended(finished) => return finished,
                Stop::Wait(f) => {
                    let flow = f(r).await;
                    stop = self.waited(r, flow);
                }
            }
        }
    }
}

fn wait_for_parts(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async {
        match finish(r).await {
            true => Flow::Ok,
            false => Flow::Close,
        }
    })
}

/// The whole way from that phase on, for who sees to the answer's parts.
async fn run_from(r: &mut Request, from: Phase) -> bool {
    let mut way = Way::new(from, Whose::Engine);
    let step = begin(r, &mut way.at);
    let stop = way.walk(r, step);
    way.go_on(r, stop).await
}

/// Waits for the answer's parts and for what filters still hold. A filter that had waited may want another answer.
async fn finish(r: &mut Request) -> bool {
    let done = subrequest::finish(r).await;
    let Some(status) = waiting::refusal(r) else { return done };
    let mut way = Way::new(Phase::Content, Whose::Client);
    let stop = way.walk(r, Step::Ended(Flow::Status(status)));
    way.go_on(r, stop).await
}

fn begin(r: &mut Request, at: &mut Walk) -> Step {
    match r.match_failed() {
        false => at.walk(r),
        true => Step::Ended(checked(r, Flow::Declined)),
    }
}

fn finalize(r: &mut Request, status: u16) -> Flow {
    let mut status = status;
    if r.has_parts() && !r.flags.header_sent {
        match subrequest::answer_instead(r) {
            Some(Ok(())) => return Flow::Ok,
            Some(Err(_)) => return Flow::Close,
            None => {}
        }
    }
    if status >= 300 && !r.flags.header_sent && subrequest::is_bare(r) {
        (r.err_status, r.out.status) = (status, status);
        return Flow::Close;
    }
    for _ in 0..4 {
        if matches!(status, 408 | 444 | 499) {
            match waiting::refusal(r) {
                None => r.abort(status),
                Some(instead) => {
                    status = instead;
                    continue;
                }
            }
            return Flow::Close;
        }
        if r.flags.error_page && r.err_status != 0 && status < 300 {
            status = r.err_status;
        }
        match special::respond(r, status) {
            Flow::Status(next) => status = next,
            flow => return flow,
        }
    }
    Flow::Close
}
