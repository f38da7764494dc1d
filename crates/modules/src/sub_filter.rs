//! `sub_filter`: nginx's `ngx_http_sub_filter_module`. Replaces strings in the body, the case of
//! letters not counting, also where they stretch over buffers.
//!
//! Replacements can make a thousand times as much of a text: no more of it is searched than there is
//! room for what becomes of it, the rest waits until the client has taken that.
//!
//! Difference from nginx: never more is held back than what may be the beginning of a string.

mod matcher;

use bytes::Bytes;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;

use crate::made::Made;
use crate::mime::MimeTypes;
use crate::util::text_of;
use matcher::{Found, Matcher};
use weir_http::buf::Data;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::{template, template_of};
use weir_http::{Buf, Chain, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Slots, Val,
};
use weir_script::template::Template;

/// How much text may wait for the client.
const AHEAD_BYTES: u64 = 128 * 1024;
/// What is passed on at once.
const PIECE_BYTES: usize = 32 * 1024;

/// What is searched for, in lower case, and what replaces it.
struct Pair {
    pattern: Template,
    value: Template,
}

#[derive(Default)]
struct SubLoc {
    pairs: Option<Arc<Vec<Pair>>>,
    /// Ready when no pattern has variables.
    matcher: Option<Arc<Matcher>>,
    once: Val<bool>,
    last_modified: Val<bool>,
    types: Val<Arc<MimeTypes>>,
}

impl ConfType for SubLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SubLoc) -> ConfResult {
        merge_values!(self, parent;
            once = true,
            last_modified = false,
            types = MimeTypes::of(&["text/html"]),
        );
        if self.pairs.is_none() {
            self.pairs.clone_from(&parent.pairs);
            self.matcher.clone_from(&parent.matcher);
        }
        if let (Some(pairs), None) = (&self.pairs, &self.matcher) {
            let constants: Option<Vec<Vec<u8>>> =
                pairs.iter().map(|p| p.pattern.as_constant().map(<[u8]>::to_vec)).collect();
            self.matcher = constants.and_then(Matcher::new).map(Arc::new);
        }
        Ok(())
    }
}

/// As in nginx, whose tables number patterns by a byte.
const PATTERNS_MAX: usize = 255;

const ROWS: &[Row] = &[
    Row::new(
        "sub_filter",
        Context::HSL,
        Arity::TWO,
        "",
        "Replaces a string in responses by another; both may hold variables.",
        set_pair,
    ),
    Row::new(
        "sub_filter_types",
        Context::HSL,
        Arity::ONE_MORE,
        "text/html",
        "MIME types to replace in besides text/html.",
        |cf, d| {
            MimeTypes::read(cf, d, |cf| &mut cf.get::<SubLoc>().types);
            Ok(())
        },
    ),
    Row::new(
        "sub_filter_once",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Replaces each string at its first place alone.",
        set!(Cf::get::<SubLoc>, once, flag),
    ),
    Row::new(
        "sub_filter_last_modified",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Keeps Last-Modified of responses that are searched.",
        set!(Cf::get::<SubLoc>, last_modified, flag),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<SubLoc>()],
    filter: Some(Filter { header: Some(header), body: Some(body), active, reach: Reach::Part }),
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    slots.get::<SubLoc>().pairs.is_some()
}

fn set_pair(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.arg(0).is_empty() {
        return Err(d.bad(0, "empty search pattern"));
    }
    let count = cf.get::<SubLoc>().pairs.as_ref().map_or(0, |p| p.len());
    if count == PATTERNS_MAX {
        return Err(d.fail(format!("number of search patterns exceeds {PATTERNS_MAX}")));
    }
    let pattern = template_of(cf, d, 0, &d.arg(0).to_ascii_lowercase())?;
    let value = template(cf, d, 1)?;
    let pairs = cf.get::<SubLoc>().pairs.get_or_insert_with(Arc::default);
    if let Some(pairs) = Arc::get_mut(pairs) {
        pairs.push(Pair { pattern, value });
    }
    Ok(())
}

/// A response that is being searched.
struct State {
    /// Of patterns with variables, made for this response; else the location's is used.
    own: Option<Box<Matcher>>,
    /// For each pattern, which pair it is of (an empty pattern is left out), and the replacement
    /// once it has been evaluated.
    pairs: Vec<usize>,
    values: Vec<Option<Bytes>>,
    /// Patterns that have been replaced and are not searched for again.
    used: Vec<bool>,
    applied: usize,
    /// Bytes that may be the beginning of a pattern.
    held: Vec<u8>,
    /// What is not searched yet.
    input: VecDeque<Buf>,
}

impl State {
    fn new(own: Option<Box<Matcher>>, pairs: Vec<usize>) -> State {
        let n = pairs.len();
        let (values, used) = (vec![None; n], vec![false; n]);
        State { own, pairs, values, used, applied: 0, held: Vec::new(), input: VecDeque::new() }
    }

    fn is_over(&self, once: bool) -> bool {
        once && self.applied == self.pairs.len()
    }
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SubLoc>();
    let Some(pairs) = &conf.pairs else { return next.header(r) };
    if r.out.content_length == Some(0) || !conf.types.match_response(r) {
        return next.header(r);
    }
    let state = match &conf.matcher {
        Some(_) => Some(State::new(None, (0..pairs.len()).collect())),
        None => evaluate(r, pairs),
    };
    let Some(state) = state else { return next.header(r) };
    r.set_ctx(state);
    r.whole = None;
    r.flags.filter_needs_memory = true;
    r.out.clear_content_length();
    if *conf.last_modified {
        r.out.weaken_etag();
    } else {
        r.out.clear_last_modified();
        r.out.clear_etag();
    }
    next.header(r)
}

/// Patterns with variables; those that are empty now are not searched for.
fn evaluate(r: &mut Request, pairs: &[Pair]) -> Option<State> {
    let mut patterns = Vec::with_capacity(pairs.len());
    let mut numbers = Vec::with_capacity(pairs.len());
    for (n, pair) in pairs.iter().enumerate() {
        let pattern = r.eval(&pair.pattern).to_ascii_lowercase();
        if !pattern.is_empty() {
            patterns.push(pattern);
            numbers.push(n);
        }
    }
    Some(State::new(Some(Box::new(Matcher::new(patterns)?)), numbers))
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(state) = r.ctx::<State>() else { return next.body(r, chain) };
    state.input.extend(chain);
    go_on(r, next)
}

/// Searches as much of the input as there is room for what becomes of it.
fn go_on(r: &mut Request, next: Next) -> FilterResult {
    let Some(mut state) = r.take_ctx::<State>() else { return Ok(()) };
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SubLoc>();
    let own = state.own.take();
    let Some(matcher) = own.as_deref().or(conf.matcher.as_deref()) else { return Ok(()) };
    let mut out = Made::default();
    while let Some(mut buf) = state.input.pop_front() {
        if out.bytes() >= PIECE_BYTES {
            next.body(r, out.take())?;
        }
        if !r.has_room(next, AHEAD_BYTES) {
            state.input.push_front(buf);
            r.hold(next, AHEAD_BYTES, go_on);
            break;
        }
        let text = text_of(&buf.data).map_err(|_| FilterError::Broken)?;
        if state.is_over(*conf.once) {
            out.whole(&text);
        } else if let Some(rest) = search(r, conf, matcher, &mut state, text, buf.last, &mut out) {
            buf.data = Data::Mem(rest);
            state.input.push_front(buf);
            continue;
        }
        if buf.last || buf.flush {
            out.push(Buf { data: Data::None, last: buf.last, flush: buf.flush });
        }
    }
    state.own = own;
    r.put_ctx(state);
    let chain = out.take();
    match chain.is_empty() {
        true => Ok(()),
        false => next.body(r, chain),
    }
}

/// Searches the text; answers what of it is left for when there is room.
fn search(
    r: &mut Request,
    conf: &SubLoc,
    matcher: &Matcher,
    state: &mut State,
    text: Bytes,
    last: bool,
    out: &mut Made,
) -> Option<Bytes> {
    let text = match state.held.is_empty() {
        true => text,
        false => {
            let mut whole = std::mem::take(&mut state.held);
            whole.extend_from_slice(&text);
            Bytes::from(whole)
        }
    };
    let mut at = 0;
    while !state.is_over(*conf.once) {
        if out.bytes() >= PIECE_BYTES {
            return Some(text.slice(at..));
        }
        match matcher.find(&text[at..], &state.used) {
            Found::Match { start, pattern } => {
                out.part(&text, at..at + start);
                out.whole(replacement(r, conf, state, pattern));
                at += start + matcher.pattern_len(pattern);
                state.applied += 1;
                state.used[pattern] = *conf.once;
            }
            Found::Partial { start } if !last => {
                out.part(&text, at..at + start);
                state.held.extend_from_slice(&text[at + start..]);
                return None;
            }
            Found::Partial { .. } | Found::None => break,
        }
    }
    out.part(&text, at..text.len());
    None
}

fn replacement<'s>(
    r: &mut Request,
    conf: &SubLoc,
    state: &'s mut State,
    pattern: usize,
) -> &'s Bytes {
    let State { pairs, values, .. } = state;
    values[pattern].get_or_insert_with(|| {
        let pair = conf.pairs.as_ref().and_then(|all| all.get(pairs[pattern]));
        pair.map(|pair| Bytes::from(r.eval(&pair.value))).unwrap_or_default()
    })
}
