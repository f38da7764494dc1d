//! The way of a request through nginx's phases, and how it ends.

use crate::client_cert::{self, Objection};
use crate::conf::Satisfy;
use crate::early;
use crate::flow::{Flow, Handler, Phase, WaitFn};
use crate::keepalive;
use crate::location::{self, Found};
use crate::matching::checked;
use crate::redirect::{internal_redirect, named_location};
use crate::request::Request;
use crate::special;
use crate::subrequest;
use std::rc::Rc;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::Session;

/// The handlers of one phase. Only a handler that waits makes this a future of its own.
macro_rules! phase {
    ($r:expr, $phase:expr) => {{
        let mut i = 0;
        match run_ready($r, $phase, &mut i) {
            Flow::Wait(f) => wait_in($r, $phase, i, f).await,
            flow => flow,
        }
    }};
}

/// Runs a request until its response is complete (or must be broken off: `false`).
pub(crate) async fn run(r: &mut Request) -> bool {
    if r.conn().tls_port.get() {
        let objection = match client_cert::objection(r) {
            Objection::None => None,
            Objection::Status(status) => Some(status),
            Objection::Unasked => Box::pin(client_cert::objection_after_asking(r)).await,
        };
        if let Some(status) = objection {
            return run_from(r, Phase::PostRead, Some(Flow::Status(status))).await;
        }
    }
    if !r.server().core.client_body_early_read.is_empty() {
        if let Some(flow) = Box::pin(early::read_body(r)).await {
            return run_from(r, Phase::PostRead, Some(flow)).await;
        }
    }
    let done = run_from(r, Phase::PostRead, None).await;
    match r.has_parts() || r.holds() {
        false => done,
        true => done && Box::pin(subrequest::finish(r)).await,
    }
}

/// Runs a subrequest until its answer, with those of its own parts, is complete.
pub(crate) async fn run_part(r: &mut Request) -> bool {
    let from = if subrequest::is_again(r) { Phase::Content } else { Phase::ServerRewrite };
    if !run_from(r, from, None).await {
        return false;
    }
    match subrequest::answer_instead(r) {
        Some(Err(_)) => false,
        _ => subrequest::finish(r).await,
    }
}

/// Goes on after a redirect that the engine made before any phase ran.
pub(crate) async fn run_redirected(r: &mut Request, flow: Flow) -> bool {
    let from = match flow {
        Flow::Named => Phase::Rewrite,
        _ => Phase::ServerRewrite,
    };
    run_from(r, from, None).await && Box::pin(subrequest::finish(r)).await
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
        Box::pin(run_from(r, from, None)).await;
        done = Some(target);
    }
    r.body = body;
    (r.flags.keepalive, r.flags.aborted) = (keepalive, aborted);
}

/// `ended` is how it went before any phase.
async fn run_from(r: &mut Request, from: Phase, mut ended: Option<Flow>) -> bool {
    let mut from = from;
    loop {
        let mut flow = match ended.take() {
            Some(flow) => flow,
            None if r.match_failed() => checked(r, Flow::Declined),
            None => run_phases(r, from).await,
        };
        if let Flow::Status(status) = flow {
            flow = finalize(r, status);
        }
        match flow {
            Flow::Redirect => from = Phase::ServerRewrite,
            Flow::Named => from = Phase::Rewrite,
            Flow::Close => return false,
            Flow::Status(_) => return false,
            Flow::Wait(f) => {
                // A response that itself must wait.
                if matches!(f(r).await, Flow::Close) {
                    return false;
                }
                return true;
            }
            Flow::Ok | Flow::Declined => return !r.flags.aborted,
        }
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
    for _ in 0..4 {
        if matches!(status, 408 | 444 | 499) {
            r.abort(status);
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

async fn run_phases(r: &mut Request, from: Phase) -> Flow {
    if from <= Phase::PostRead {
        match phase!(r, Phase::PostRead) {
            Flow::Declined | Flow::Ok => {}
            flow => return flow,
        }
    }
    if from == Phase::Content {
        return content(r).await;
    }
    let mut from = from;
    loop {
        if from <= Phase::ServerRewrite {
            match phase!(r, Phase::ServerRewrite) {
                Flow::Declined => {}
                // Also `Ok`: the rewrite phases' handlers may answer themselves (`return`).
                flow => return flow,
            }
            r.flags.uri_changed = false;
            if let Some(flow) = find_config(r) {
                return flow;
            }
        }
        match phase!(r, Phase::Rewrite) {
            Flow::Declined => {}
            flow => return flow,
        }
        if !r.flags.uri_changed {
            break;
        }
        r.flags.uri_changed = false;
        if !spend_redirect(r) {
            return Flow::Status(500);
        }
        let server = r.server().location;
        r.set_location(server);
        if let Some(flow) = find_config(r) {
            return flow;
        }
        from = Phase::Rewrite;
    }
    match guarded(r).await {
        Flow::Declined | Flow::Ok => content(r).await,
        flow => flow,
    }
}

/// Preaccess, access and precontent.
async fn guarded(r: &mut Request) -> Flow {
    match phase!(r, Phase::Preaccess) {
        Flow::Declined | Flow::Ok => {}
        flow => return flow,
    }
    if has_handlers(r, Phase::Access) && !r.is_part() {
        match access(r).await {
            Flow::Declined | Flow::Ok => {}
            flow => return flow,
        }
    }
    phase!(r, Phase::Precontent)
}

/// Goes on in a phase whose handler before `i` waits.
async fn wait_in(r: &mut Request, phase: Phase, mut i: usize, mut f: WaitFn) -> Flow {
    loop {
        let flow = f(r).await;
        let flow = match checked(r, flow) {
            Flow::Declined => run_ready(r, phase, &mut i),
            decided => decided,
        };
        match flow {
            Flow::Wait(next) => f = next,
            decided => return decided,
        }
    }
}

/// The handlers of one phase from `i` on, until one decides or waits.
fn run_ready(r: &mut Request, phase: Phase, i: &mut usize) -> Flow {
    while let Some(handler) = nth(r, phase, *i) {
        *i += 1;
        let flow = handler(r);
        match checked(r, flow) {
            Flow::Declined => {}
            flow => return flow,
        }
    }
    Flow::Declined
}

fn has_handlers(r: &Request, phase: Phase) -> bool {
    !r.loc().plan.phases[phase as usize].is_empty()
}

fn nth(r: &Request, phase: Phase, i: usize) -> Option<Handler> {
    r.loc().plan.phases[phase as usize].get(i).copied()
}

async fn call(r: &mut Request, handler: Handler) -> Flow {
    let flow = match handler(r) {
        Flow::Wait(f) => f(r).await,
        flow => flow,
    };
    checked(r, flow)
}

async fn access(r: &mut Request) -> Flow {
    let any = *r.loc().core.satisfy == Satisfy::Any;
    let mut refused = 0;
    let mut i = 0;
    while let Some(handler) = nth(r, Phase::Access, i) {
        i += 1;
        match call(r, handler).await {
            Flow::Declined => {}
            Flow::Ok if any => {
                r.out.remove(b"WWW-Authenticate");
                return Flow::Declined;
            }
            Flow::Ok => {}
            Flow::Status(401) if !any => return delayed(r).await,
            Flow::Status(code @ (401 | 403)) if any => {
                if refused != 401 {
                    refused = code;
                }
            }
            flow => return flow,
        }
    }
    match refused {
        0 => Flow::Declined,
        401 => delayed(r).await,
        code => {
            if code == 403 {
                r.log(LogLevel::Error, "access forbidden by rule");
            }
            Flow::Status(code)
        }
    }
}

/// `auth_delay`: an unauthorized request is answered late, which slows guessing down.
async fn delayed(r: &mut Request) -> Flow {
    let delay = *r.loc().core.auth_delay;
    if delay > 0 && r.sleep_while_open(delay).await.is_err() {
        return Flow::Status(499);
    }
    Flow::Status(401)
}

async fn content(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    if let Some(handler) = loc.core.handler {
        return call(r, handler).await;
    }
    let mut i = 0;
    while let Some(handler) = nth(r, Phase::Content, i) {
        match call(r, handler).await {
            Flow::Declined => i += 1,
            flow => return flow,
        }
    }
    if r.uri.last() == Some(&b'/') {
        let path = location::map_uri(r, &r.uri.clone());
        let text = format!("directory index of \"{}\" is forbidden", path.display());
        r.log(LogLevel::Error, &text);
        return Flow::Status(403);
    }
    r.log(LogLevel::Error, "no handler found");
    Flow::Status(404)
}

/// Finds the location for the URI; `Some` ends the request here.
fn find_config(r: &mut Request) -> Option<Flow> {
    match location::find(r) {
        Found::Redirect(path) => {
            let mut target = Vec::with_capacity(path.len() + 16);
            escape_uri(&mut target, &path, EscapeKind::Uri);
            if !r.args.is_empty() {
                target.push(b'?');
                target.extend_from_slice(&r.args);
            }
            return Some(special::redirect(r, 301, &target));
        }
        Found::Here if r.match_failed() => return Some(checked(r, Flow::Declined)),
        Found::Here => {}
    }
    let loc = r.loc();
    if *loc.core.internal && !r.flags.internal {
        return Some(Flow::Status(404));
    }
    if let Some((allowed, id)) = loc.limit_except {
        if r.method.bit() & allowed == 0 {
            r.set_location(id);
        }
    }
    let max = *r.loc().core.client_max_body_size;
    if let Some(n) = r.body.announced() {
        if max != 0 && n > max && !r.body.too_large_ok {
            let text = format!("client intended to send too large body: {n} bytes");
            r.log(LogLevel::Error, &text);
            r.body.expect_continue = false;
            r.body.too_large_ok = true;
            return Some(Flow::Status(413));
        }
    }
    if r.flags.keepalive {
        r.flags.keepalive = keepalive::is_allowed(r);
    }
    None
}

fn spend_redirect(r: &mut Request) -> bool {
    r.redirects_left -= 1;
    if r.redirects_left == 0 {
        let uri = String::from_utf8_lossy(&r.uri).into_owned();
        let text = format!("rewrite or internal redirection cycle while processing \"{uri}\"");
        r.log(LogLevel::Error, &text);
        return false;
    }
    true
}
