//! nginx's phases as a walk from handler to handler. It never waits itself: it says what is to be waited
//! for, and goes on with what that came to.

use crate::body;
use crate::conf::Satisfy;
use crate::credentials;
use crate::flow::{Flow, Handler, Phase, WaitFn};
use crate::keepalive;
use crate::location::{self, Found};
use crate::matching::checked;
use crate::request::Request;
use crate::special;
use crate::trace;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_wire::http1::request::Method;

/// What comes next.
pub(crate) enum Step {
    /// This, then [`Walk::waited`].
    Wait(WaitFn),
    /// Nothing: that is how it ends.
    Ended(Flow),
}

/// How far a request has come.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    phase: Phase,
    /// The handler of the phase that is called next.
    next: u32,
    /// `satisfy any`: the status that the client gets if nobody lets it in; 0 for none yet.
    refused: u16,
    /// Whatever is waited for says how it ends.
    last: bool,
}

impl Walk {
    pub(crate) fn from(phase: Phase) -> Walk {
        Walk { phase, next: 0, refused: 0, last: false }
    }

    /// Calls handlers until one decides, or must wait.
    pub(crate) fn walk(&mut self, r: &mut Request) -> Step {
        match r.flags.traced {
            false => self.walk_with(r, |r, handler, _| handler(r)),
            true => self.walk_with(r, trace::call),
        }
    }

    #[inline(always)]
    fn walk_with(
        &mut self,
        r: &mut Request,
        call: impl Fn(&mut Request, Handler, Phase) -> Flow,
    ) -> Step {
        loop {
            let decided = match self.handler(r) {
                None => self.leave(r),
                Some(handler) => {
                    self.next += 1;
                    let flow = call(r, handler, self.phase);
                    match checked(r, flow) {
                        Flow::Wait(f) => return Step::Wait(f),
                        flow => self.judge(r, flow),
                    }
                }
            };
            if let Some(flow) = decided {
                return self.end(flow);
            }
        }
    }

    /// Goes on once what it waited for has come to `flow`.
    pub(crate) fn waited(&mut self, r: &mut Request, flow: Flow) -> Step {
        if r.flags.traced {
            trace::waited(r);
        }
        match (checked(r, flow), self.phase) {
            (flow, phase) if self.last && !is_left(&flow, phase) => Step::Ended(flow),
            // Behind these a response waits itself.
            (Flow::Wait(f), phase) if phase != Phase::Access && phase != Phase::Content => {
                Step::Wait(f)
            }
            (flow, _) => match self.judge(r, flow) {
                Some(flow) => self.end(flow),
                None => self.walk(r),
            },
        }
    }

    fn end(&self, flow: Flow) -> Step {
        match flow {
            Flow::Wait(f) if self.last => Step::Wait(f),
            flow => Step::Ended(flow),
        }
    }

    #[inline]
    fn handler(&mut self, r: &Request) -> Option<Handler> {
        let loc = r.loc();
        let mut next = self.next as usize;
        if self.phase == Phase::Content && loc.core.handler.is_some() {
            if next == 0 {
                self.last = true;
                return loc.core.handler;
            }
            // The location's own comes before them all.
            next -= 1;
        }
        loc.plan.phases.get(self.phase as usize)?.get(next).copied()
    }

    /// Goes on with that phase, or with the next one in which something is done.
    #[inline]
    fn enter(&mut self, r: &Request, phase: Phase) {
        let plan = &r.loc().plan;
        self.next = 0;
        self.phase = match plan.from(phase) {
            // It is the main request that was let in.
            Phase::Access if r.is_part() => plan.from(Phase::Precontent),
            phase => phase,
        };
    }

    /// What a handler's decision means in its phase: `None` is to go on.
    fn judge(&mut self, r: &mut Request, flow: Flow) -> Option<Flow> {
        match (self.phase, flow) {
            (Phase::Content, Flow::Declined) if self.last => {
                // A location's handler leaves it to those that there are anyway.
                self.last = false;
                None
            }
            (_, flow) if self.last => Some(flow),
            // An answer that was kept has taken the content's place.
            (Phase::Access | Phase::Precontent, Flow::Ok) if r.flags.header_sent => Some(Flow::Ok),
            (Phase::Access, flow) => self.judge_access(r, flow),
            (_, Flow::Declined) => None,
            (Phase::PostRead | Phase::Preaccess | Phase::Precontent, Flow::Ok) => {
                // The others of the phase are not asked.
                self.next = u32::MAX;
                None
            }
            // Also `Ok`: the rewrite phases' handlers may answer themselves (`return`).
            (_, flow) => Some(flow),
        }
    }

    fn judge_access(&mut self, r: &mut Request, flow: Flow) -> Option<Flow> {
        let any = *r.loc().core.satisfy == Satisfy::Any;
        match flow {
            Flow::Declined => None,
            Flow::Ok if any => {
                r.out.remove(credentials::challenge(r).0);
                self.enter(r, Phase::Precontent);
                None
            }
            Flow::Ok => None,
            Flow::Status(code @ (401 | 403 | 407)) if any => {
                if !matches!(self.refused, 401 | 407) {
                    self.refused = code;
                }
                None
            }
            Flow::Status(401 | 407) => Some(self.unauthorized(r)),
            flow => Some(flow),
        }
    }

    fn unauthorized(&mut self, r: &Request) -> Flow {
        match *r.loc().core.auth_delay {
            0 => Flow::Status(credentials::challenge(r).1),
            _ => {
                self.last = true;
                Flow::Wait(delay)
            }
        }
    }

    /// The phase is over; a flow ends the request.
    fn leave(&mut self, r: &mut Request) -> Option<Flow> {
        let next = match self.phase {
            Phase::PostRead if r.loc().plan.from(Phase::ServerRewrite) == Phase::ServerRewrite => {
                Phase::ServerRewrite
            }
            Phase::PostRead | Phase::ServerRewrite => return self.place(r),
            Phase::Rewrite if r.flags.uri_changed => {
                r.flags.uri_changed = false;
                if !spend_redirect(r) {
                    return Some(Flow::Status(500));
                }
                let server = r.server().location;
                r.set_location(server);
                return self.place(r);
            }
            Phase::Rewrite => Phase::Preaccess,
            Phase::Preaccess => Phase::Access,
            Phase::Access => match self.refused {
                0 => Phase::Precontent,
                401 | 407 => return Some(self.unauthorized(r)),
                code => {
                    if code == 403 {
                        r.log(LogLevel::Error, "access forbidden by rule");
                    }
                    return Some(Flow::Status(code));
                }
            },
            Phase::Precontent => Phase::Content,
            Phase::Content | Phase::Log => return Some(unanswered(r)),
        };
        self.enter(r, next);
        None
    }

    /// Finds the location, whose rewrite phase is next.
    fn place(&mut self, r: &mut Request) -> Option<Flow> {
        r.flags.uri_changed = false;
        let ends = find_config(r);
        self.enter(r, Phase::Rewrite);
        ends
    }
}

/// A location's handler has waited and has nothing to say.
fn is_left(flow: &Flow, phase: Phase) -> bool {
    phase == Phase::Content && matches!(flow, Flow::Declined)
}

/// `auth_delay`: an unauthorized request is answered late, which slows guessing down.
fn delay(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async {
        let ms = *r.loc().core.auth_delay;
        match r.sleep_while_open(ms, r.is_half_closed()).await {
            Ok(()) => Flow::Status(credentials::challenge(r).1),
            Err(_) => Flow::Status(499),
        }
    })
}

/// No content handler has answered.
fn unanswered(r: &mut Request) -> Flow {
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
    if r.method == Method::Connect && r.server().core.keeps_connect {
        let own = r.server().location;
        r.set_location(own);
        return None;
    }
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
            body::refuse(r);
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
