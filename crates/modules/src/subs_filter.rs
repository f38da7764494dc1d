//! `subs_filter`: the directives of ngx_http_substitutions_filter_module. Replaces strings and
//! expressions in the body, line by line, one pair after the other in what the one before has made.
//!
//! Differences from that module: a line longer than `LINE_MAX_BYTES` is searched in pieces of that
//! length, where it takes memory for all of it; `subs_filter` in a nested level replaces the outer
//! ones as all other lists do, and a pattern that is empty is refused.

mod line;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::buf::Data;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::{template, template_of};
use weir_http::{Buf, Chain, Request};
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Slots, Val,
};
use weir_runtime::turns;
use weir_script::regex::{Regex, RegexOptions};
use weir_script::template::Template;

use crate::made::Made;
use crate::mime::MimeTypes;
use crate::util::text_of;
use line::{Lines, Pair, Search};

/// How much text may wait for the client.
const AHEAD_BYTES: u64 = 128 * 1024;
/// What is passed on at once.
const PIECE_BYTES: usize = 32 * 1024;
/// A line up to this is searched as a whole; it is held in memory until its end has come.
const LINE_MAX_BYTES: usize = 1024 * 1024;

#[derive(Default)]
struct SubsLoc {
    pairs: Option<Arc<Vec<Pair>>>,
    types: Val<Arc<MimeTypes>>,
    bypass: Val<Arc<Vec<Template>>>,
}

impl ConfType for SubsLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SubsLoc) -> ConfResult {
        merge_values!(self, parent;
            types = MimeTypes::of(&["text/html"]),
            bypass = Arc::default(),
        );
        if self.pairs.is_none() {
            self.pairs.clone_from(&parent.pairs);
        }
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "subs_filter",
        Context::HSL,
        Arity::TWO_THREE,
        "",
        "Replaces a string, or with r an expression, in the lines of responses; flags g, i, o and r.",
        set_pair,
    )
    .note("A line longer than 1 MB is searched in pieces of that length."),
    Row::new(
        "subs_filter_types",
        Context::HSL,
        Arity::ONE_MORE,
        "text/html",
        "MIME types to replace in besides text/html.",
        |cf, d| {
            MimeTypes::read(cf, d, |cf| &mut cf.get::<SubsLoc>().types);
            Ok(())
        },
    ),
    Row::new(
        "subs_filter_bypass",
        Context::HSL,
        Arity::ONE_MORE,
        "",
        "Strings of which none may be true (neither empty nor 0) for a response to be searched.",
        set_bypass,
    ),
    Row::new(
        "subs_line_buffer_size",
        Context::HSL,
        Arity::ONE,
        "",
        "The first size of the buffer for a line: it sizes itself.",
        |_, d| d.size(0).map(|_| ()),
    ),
    Row::new(
        "subs_buffers",
        Context::HSL,
        Arity::TWO,
        "",
        "Buffers for what has been made: they size themselves.",
        |_, d| d.num(0).and_then(|_| d.size(1)).map(|_| ()),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<SubsLoc>()],
    filter: Some(Filter { header: Some(header), body: Some(body), active, reach: Reach::Part }),
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    slots.get::<SubsLoc>().pairs.is_some()
}

fn set_bypass(cf: &mut Cf, d: &Directive) -> ConfResult {
    let list = (0..d.args.len()).map(|i| template(cf, d, i)).collect::<ConfResult<Vec<_>>>()?;
    cf.get::<SubsLoc>().bypass.once(d, Arc::new(list))
}

fn set_pair(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.arg(0).is_empty() {
        return Err(d.bad(0, "empty search pattern"));
    }
    let (mut once, mut caseless, mut is_regex) = (false, false, false);
    for flag in d.args.get(2).map_or(&b""[..], |a| &a.text) {
        match flag.to_ascii_lowercase() {
            b'g' => once = false,
            b'i' => caseless = true,
            b'o' => once = true,
            b'r' => is_regex = true,
            other => {
                let text = format!("unknown flag \"{}\"", char::from(other));
                return Err(d.bad(2, text).hint("the flags are g, i, o and r".to_string()));
            }
        }
    }
    let search = match is_regex {
        true => {
            let options = RegexOptions { caseless, ..RegexOptions::default() };
            let regex = Regex::new(d.arg(0), options).map_err(|e| d.bad(0, e.to_string()))?;
            Search::Regex(regex)
        }
        false => Search::of(template_of(cf, d, 0, d.arg(0))?, caseless),
    };
    let value = template(cf, d, 1)?;
    let pairs = cf.get::<SubsLoc>().pairs.get_or_insert_with(Arc::default);
    if let Some(pairs) = Arc::get_mut(pairs) {
        pairs.push(Pair { search, value, once });
    }
    Ok(())
}

/// A response that is being searched.
struct State {
    lines: Lines,
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// What is not searched yet.
    input: VecDeque<Buf>,
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SubsLoc>();
    let Some(pairs) = &conf.pairs else { return next.header(r) };
    let is_empty = r.flags.header_only || r.out.content_length == Some(0);
    if is_empty || !conf.types.match_response(r) || conf.bypass.iter().any(|t| r.is_true(t)) {
        return next.header(r);
    }
    let coding = r.out.get(b"Content-Encoding").filter(|c| !c.is_empty());
    if coding.is_some_and(|c| !c.eq_ignore_ascii_case(b"identity")) {
        let text = "subs_filter leaves a compressed response as it is; proxy_set_header Accept-Encoding \"\" \
                    asks for one that is not";
        r.log(LogLevel::Warn, text);
        return next.header(r);
    }
    let lines = Lines::new(r, pairs);
    r.set_ctx(State { lines, held: Vec::new(), input: VecDeque::new() });
    r.whole = None;
    r.flags.filter_needs_memory = true;
    r.flags.allow_ranges = false;
    r.out.remove(b"Accept-Ranges");
    r.out.clear_content_length();
    r.out.clear_last_modified();
    r.out.clear_etag();
    next.header(r)
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
    let Some(pairs) = &loc.conf::<SubsLoc>().pairs else { return Ok(()) };
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
        let rest = turns::work(|| search(r, pairs, &mut state, text, buf.last, &mut out))?;
        if !rest.is_empty() {
            buf.data = Data::Mem(rest);
            state.input.push_front(buf);
            continue;
        }
        if buf.last || buf.flush {
            out.push(Buf { data: Data::None, last: buf.last, flush: buf.flush });
        }
    }
    r.put_ctx(state);
    let chain = out.take();
    match chain.is_empty() {
        true => Ok(()),
        false => next.body(r, chain),
    }
}

/// Searches the text's lines; answers what of it is left for when there is room.
fn search(
    r: &mut Request,
    pairs: &[Pair],
    state: &mut State,
    text: Bytes,
    last: bool,
    out: &mut Made,
) -> Result<Bytes, FilterError> {
    let room = LINE_MAX_BYTES.saturating_sub(state.held.len());
    if !last && text.len() < room && memchr::memchr(b'\n', &text).is_none() {
        // The line goes on: what is held of it is neither copied nor looked at again.
        state.held.extend_from_slice(&text);
        return Ok(Bytes::new());
    }
    let text = match state.held.is_empty() {
        true => text,
        false => {
            let mut whole = std::mem::take(&mut state.held);
            whole.extend_from_slice(&text);
            Bytes::from(whole)
        }
    };
    // Lines that stay as they are leave together.
    let (mut plain, mut at) = (0, 0);
    while at < text.len() {
        let made = out.bytes() + (at - plain);
        if made >= PIECE_BYTES {
            out.part(&text, plain..at);
            return Ok(text.slice(at..));
        }
        let end = match memchr::memchr(b'\n', &text[at..]) {
            Some(n) => at + n + 1,
            None if last || text.len() - at >= LINE_MAX_BYTES => text.len(),
            None => {
                state.held.extend_from_slice(&text[at..]);
                break;
            }
        };
        let end = end.min(at + LINE_MAX_BYTES);
        if let Some(line) = state.lines.replace(r, pairs, &text[at..end])? {
            out.part(&text, plain..at);
            out.whole(&line.into());
            plain = end;
        }
        at = end;
    }
    out.part(&text, plain..at);
    Ok(Bytes::new())
}
