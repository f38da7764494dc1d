//! `ngx.location.capture`: subrequests whose answers are kept.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{ACCESS, CONTENT, PRECONTENT, REWRITE};
use crate::run::{Asked, Reply, WaitFor};
use crate::watch::Seat;
use std::rc::Rc;
use weir_core::session::Part;
use weir_core::variables::Named;
use weir_core::{LocalFuture, Session};
use weir_http::body::RequestBody;
use weir_http::subrequest::{self, Begun};
use weir_http::{special, Request};
use weir_runtime::event_loop;
use weir_wire::http1::request::Method;
use weir_wire::http1::uri::unsafe_uri;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("capture_allowed", CONTEXTS, |_, _, _| code::TRUE),
    OpRow::any("capture_begin", CONTEXTS, begin),
    OpRow::any("capture_body", CONTEXTS, |state, args, _| {
        state.run.given.body = Some(args.a.to_vec());
        code::NIL
    }),
    OpRow::any("capture_var", CONTEXTS, |state, args, _| {
        state.run.given.vars.push((args.a.to_vec(), args.b.to_vec()));
        code::NIL
    }),
    OpRow::any("capture_context", CONTEXTS, |state, _, answer| {
        answer.number(state.run.given.context as f64)
    }),
    OpRow::any("capture_wait", CONTEXTS, wait),
    OpRow::any("capture_take", CONTEXTS, take),
];

const CONTEXTS: u32 = REWRITE | ACCESS | CONTENT | PRECONTENT;

/// One in so many waits for its turn, so that others are served beside code that asks for one after the other.
const TURN: u32 = 64;

/// What the next subrequest is given, and the number of the last one's context.
#[derive(Default)]
pub(crate) struct Given {
    body: Option<Vec<u8>>,
    vars: Vec<(Vec<u8>, Vec<u8>)>,
    context: u64,
}

/// What `args.x` is a sum of.
mod with {
    pub(super) const COPY_VARS: u32 = 2;
    pub(super) const SHARE_VARS: u32 = 4;
    /// The request's own body, whatever the method.
    pub(super) const OWN_BODY: u32 = 8;
    /// It is waited for at once.
    pub(super) const AT_ONCE: u32 = 16;
    /// It has a context that code has made.
    pub(super) const CONTEXT: u32 = 32;
}

/// `a`: the target, `b`: arguments, `i`: the method's number, `x`: [`with`]. What it has answered, or the number of what
/// is to be waited for.
fn begin(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let given = std::mem::take(&mut state.run.given);
    let query = args.b;
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    let mut path = Vec::new();
    let Ok(own) = unsafe_uri(args.a, &mut path) else {
        return answer.raise("unsafe uri in argument #1");
    };
    let parts = [own.unwrap_or_default(), query];
    let all = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'&');
    let options = args.x as u32;
    let Some(mut part) = subrequest::of_code(r, &path, &all) else {
        return answer.raise("failed to issue subrequest: -1");
    };
    subrequest::without_pages(&mut part);
    subrequest::capture(&mut part);
    // `subrequest_output_buffer_size` is not about these.
    subrequest::keep_up_to(&mut part, state.vm.text_max_bytes() as u64);
    if options & (with::COPY_VARS | with::SHARE_VARS) == 0 {
        part.values.clear();
        part.values.is_computed = true;
    }
    let method = super::request::METHODS.iter().find(|m| m.0 == args.i).map(|m| m.1);
    let Some(method) = method else {
        return answer.raise(format!("unsupported HTTP method: {}", args.i));
    };
    part.method = method;
    part.flags.header_only = method == Method::Head;
    set_body(&mut part, options, given.body);
    for (name, value) in &given.vars {
        if let Err(why) = set_var(&mut part, name, value) {
            return answer.raise(why);
        }
    }
    if options & with::CONTEXT != 0 {
        let number = state.vm.next_context();
        super::control::number(&mut part, number, &state.run.vm);
        state.run.given.context = number;
    }
    let shares = options & with::SHARE_VARS != 0;
    state.run.captures = state.run.captures.wrapping_add(1);
    let others_first = state.run.captures.is_multiple_of(TURN);
    // Several are begun before the first of them is waited for, and other threads go on meanwhile; a context is given
    // first.
    let at_once = options & (with::AT_ONCE | with::CONTEXT) == with::AT_ONCE
        && !(others_first || state.run.is_scheduled)
        && state.vm.main().is_some_and(|main| !main.has_own_states);
    let future = match at_once {
        true => match apart_from_caller(|| subrequest::begin(part)) {
            Begun::Ended(part, ok) => return answered(state, answer, shares, part, ok),
            Begun::Waits(future) => future,
        },
        false => Box::pin(async move {
            if others_first {
                event_loop::yield_now().await;
            }
            let ok = subrequest::run(&mut part).await;
            (part, ok)
        }),
    };
    await_part(state, answer, shares, future)
}

/// The number of what is to be waited for.
fn await_part(
    state: &mut State<'_>,
    answer: &mut Answer,
    shares: bool,
    future: LocalFuture<'static, (Box<Request>, bool)>,
) -> i32 {
    let asked = Asked { part: Rc::default(), shares };
    let place = Rc::clone(&asked.part);
    let future = Box::pin(async move {
        let ended = future.await;
        *place.borrow_mut() = Some(ended);
        Reply::ok()
    });
    let id = state.run.wait(state.vm, WaitFor::Future(future));
    state.run.parts.push((id, asked));
    answer.number(id as f64)
}

/// How long a subrequest works is no time of the code's that has asked for it.
fn apart_from_caller<T>(work: impl FnOnce() -> T) -> T {
    let seat = Seat::of_thread();
    let caller = seat.leave();
    let done = work();
    seat.come_back(caller);
    done
}

/// Until the subrequest of that number has ended.
fn wait(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let early = &mut state.run.early;
    match early.iter().position(|id| *id == args.id) {
        Some(at) => {
            early.swap_remove(at);
            code::TRUE
        }
        None => {
            answer.x = args.id as f64;
            code::WAITS
        }
    }
}

fn set_body(part: &mut Request, options: u32, given: Option<Vec<u8>>) {
    let takes_own =
        matches!(part.method, Method::Post | Method::Put) || options & with::OWN_BODY != 0;
    let is_given = given.is_some();
    if let Some(text) = given {
        part.body = RequestBody::made(text, None);
    } else if !takes_own {
        // None, which is more than an empty one: a server is told of no length.
        part.body.nothing();
    }
    let is_of_length = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"Transfer-Encoding")
            || name.eq_ignore_ascii_case(b"Content-Length")
    };
    part.remove_fields_in(is_of_length);
    let length = part.body.length;
    if is_given || takes_own && length > 0 {
        part.set_field_in(b"Content-Length", length.to_string().as_bytes(), false);
    }
}

fn set_var(part: &mut Request, name: &[u8], value: &[u8]) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    let shown = String::from_utf8_lossy(name);
    let gen = Rc::clone(part.gen());
    let vars = gen.registry();
    match vars.find(&lower) {
        Some(Named::Number(id)) if vars.is_changeable(&lower) => {
            part.set_var(id, value);
            Ok(())
        }
        Some(Named::Number(_) | Named::Getter(..)) => {
            Err(format!("variable \"{shown}\" not changeable"))
        }
        None => Err(format!(
            "variable \"{shown}\" cannot be assigned a value (maybe you forgot to define it first?) "
        )),
    }
}

/// What the subrequest of that wait has answered: status, whether it is cut off, body, fields.
fn take(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let parts = &mut state.run.parts;
    let Some(at) = parts.iter().position(|(id, _)| *id == args.id) else { return code::NIL };
    let (_, asked) = parts.swap_remove(at);
    let Some((part, ok)) = asked.part.borrow_mut().take() else { return code::NIL };
    answered(state, answer, asked.shares, part, ok)
}

/// What a subrequest has answered, which is given back.
fn answered(
    state: &mut State<'_>,
    answer: &mut Answer,
    shares: bool,
    mut part: Box<Request>,
    ok: bool,
) -> i32 {
    if let Some(r) = state.r.as_deref_mut().filter(|_| shares) {
        r.values.copy_from(&part.values);
        r.values.is_computed = true;
    }
    let body = part.kept_body();
    let mut status = match part.error_status() {
        0 => part.out.status,
        status => status,
    };
    let is_broken = !ok || part.is_broken_part();
    // An end has not been seen either where there is no body.
    let is_cut = is_broken || part.method == Method::Head;
    if status == 0 {
        status = if is_broken { 500 } else { 200 };
    }
    if is_broken && body.is_empty() {
        // A page of an error that has not been made would have had one.
        special::set_content_type(&mut part);
        if part.error_status() != 0 {
            // The length is that of an answer which has been given up.
            part.out.content_length = None;
        }
    }
    let mut list = answer.list();
    list.number(f64::from(status)).boolean(is_cut).text(&body).table();
    if let Some(kind) = part.out.content_type_parts() {
        list.text(b"Content-Type").text(&kind.concat());
    }
    if let Some(length) = part.out.content_length {
        list.text(b"Content-Length").text(length.to_string().as_bytes());
    }
    if let Some(secs) = part.out.last_modified.filter(|_| !part.out.has_last_modified) {
        list.text(b"Last-Modified").text(&weir_base::date::http_time(secs));
    }
    for (name, value) in part.out.iter() {
        list.text(name).text(value);
    }
    subrequest::give_back(part);
    code::LIST
}
