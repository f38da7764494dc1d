//! What a request goes through, and when: handlers by phases, waits, parts, servers that were asked. `weir trace` shows it
//! of one request, `$request_phase_times` the sums of each.
//!
//! A request is traced that shows a word which the server has given to who may ask it ([`offer`]; it is good for one
//! request, and for a minute), or whose configuration names the variable. For all others a number is looked at when they
//! begin, and a flag where they enter the phases and where they end.
//!
//! Handlers are noted by their addresses: who shows the trace knows names for them. Times are microseconds of the
//! monotonic clock, read at each call.

mod told;

pub use told::{Name, Span, Told};

use crate::flow::{Flow, Handler, Phase, VarArg, Variable};
use crate::module::{Build, HttpModule};
use crate::request::Request;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_core::Session;
use weir_module::{slot, ConfResult, ConfType, Level, SlotVtable};
use weir_runtime::clock;

/// The field that a request shows its word in.
pub const FIELD: &str = "Weir-Trace";
/// So many words are good at once, or wait to be asked for what came of them.
const OFFERS_MAX: usize = 16;
/// For so long.
const OFFER_MS: u64 = 60_000;
/// Spans of a request with its parts; what is more is counted.
const SPANS_MAX: usize = 1000;
/// Of a part's URI that is shown.
const URI_MAX_BYTES: usize = 200;

/// How many words are good now, and in [`PHASES`] whether a configuration names the variable.
static WANTED: AtomicUsize = AtomicUsize::new(0);
const PHASES: usize = 1 << 20;

/// A word that was given away.
struct Offer {
    word: String,
    until_ms: u64,
    is_used: bool,
    told: Option<Told>,
}

static OFFERS: Mutex<Vec<Offer>> = Mutex::new(Vec::new());

fn offers() -> MutexGuard<'static, Vec<Offer>> {
    let mut offers = OFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    let now_ms = clock::mono_ms();
    offers.retain(|offer| {
        let stays = now_ms < offer.until_ms;
        if !stays && !offer.is_used {
            WANTED.fetch_sub(1, Ordering::Relaxed);
        }
        stays
    });
    offers
}

/// Makes the request traced that shows this word, which nobody can guess; nothing if too many are good already.
pub fn offer(word: String) -> Option<()> {
    let mut offers = offers();
    if offers.len() >= OFFERS_MAX {
        return None;
    }
    let until_ms = clock::mono_ms() + OFFER_MS;
    offers.push(Offer { word, until_ms, is_used: false, told: None });
    WANTED.fetch_add(1, Ordering::Relaxed);
    Some(())
}

/// What has come of a word: `None` while nobody has shown it, or it is none.
pub fn take(word: &str) -> Option<Told> {
    let mut offers = offers();
    let at = offers.iter().position(|offer| offer.word == word && offer.told.is_some())?;
    offers.swap_remove(at).told
}

/// Whether any request may be one to be traced.
#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// What is noted of a request and its parts.
#[derive(Default)]
struct Notes {
    /// For whom; empty where only phases count.
    word: String,
    begun_us: u64,
    spans: Vec<Span>,
    left_out: usize,
    /// Microseconds in each phase, of the main request.
    phases: [u64; Phase::COUNT],
}

/// A request's own place in them.
struct Traced {
    notes: Rc<RefCell<Notes>>,
    /// 0 for the main request.
    depth: u8,
    begun_us: u64,
    /// When its last handler of the content began.
    content_us: u64,
    /// What waits: since when, its span if that is noted, its phase.
    waits: Option<(u64, Option<usize>, Phase)>,
}

/// A client's request begins, and somebody wants to know of one.
#[cold]
pub(crate) fn begins(r: &mut Request) {
    let shown = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(FIELD.as_bytes()));
    let word = shown.and_then(|(_, word)| std::str::from_utf8(word).ok()).map(str::to_owned);
    let word = word.filter(|word| use_up(word)).unwrap_or_default();
    if word.is_empty() && !r.gen().shared.main.get::<TraceMain>().0 {
        return;
    }
    let begun_us = clock::now_us();
    let notes = Notes { word, begun_us, ..Notes::default() };
    let notes = Rc::new(RefCell::new(notes));
    r.keep_state(Traced { notes, depth: 0, begun_us, content_us: 0, waits: None });
    r.flags.traced = true;
}

fn use_up(word: &str) -> bool {
    let mut offers = offers();
    let found = offers.iter_mut().find(|offer| !offer.is_used && offer.word == word);
    let is_one = found.map(|offer| offer.is_used = true).is_some();
    if is_one {
        WANTED.fetch_sub(1, Ordering::Relaxed);
    }
    is_one
}

/// A part or a copy of a request that is traced.
pub(crate) fn copy(from: &Request, to: &mut Request) {
    let Some(traced) = from.kept_ref::<Traced>() else { return };
    let (notes, depth) = (Rc::clone(&traced.notes), traced.depth.saturating_add(1));
    to.keep_state(Traced { notes, depth, begun_us: clock::now_us(), content_us: 0, waits: None });
    to.flags.traced = true;
}

/// Calls a handler.
#[cold]
pub(crate) fn call(r: &mut Request, handler: Handler, phase: Phase) -> Flow {
    let begun_us = clock::now_us();
    let flow = handler(r);
    let ended_us = clock::now_us();
    let waits = matches!(flow, Flow::Wait(_));
    let Some(traced) = r.kept::<Traced>() else { return flow };
    if matches!(phase, Phase::Content) {
        traced.content_us = begun_us;
    }
    let mut notes = traced.notes.borrow_mut();
    if traced.depth == 0 {
        notes.phases[phase as usize] += ended_us - begun_us;
    }
    let name = Name::Handler(handler as *const () as usize);
    let span = Span::new(phase_name(phase), name, traced.depth, begun_us, ended_us);
    let at = notes.add(span);
    traced.waits = waits.then_some((ended_us, at, phase));
    flow
}

/// The handler that had to wait goes on.
#[cold]
pub(crate) fn waited(r: &mut Request) {
    let Some(traced) = r.kept::<Traced>() else { return };
    let Some((since_us, at, phase)) = traced.waits.take() else { return };
    let mut notes = traced.notes.borrow_mut();
    let now_us = clock::now_us();
    let waited_us = now_us.saturating_sub(since_us);
    if let Some(span) = at.and_then(|at| notes.spans.get_mut(at)) {
        span.waited_us += waited_us;
        span.end_us = now_us;
    }
    if traced.depth == 0 {
        notes.phases[phase as usize] += waited_us;
    }
}

impl Notes {
    fn add(&mut self, span: Span) -> Option<usize> {
        if self.word.is_empty() || self.spans.len() >= SPANS_MAX {
            self.left_out += 1;
            return None;
        }
        self.spans.push(span);
        Some(self.spans.len() - 1)
    }
}

/// A part has come to its end.
#[cold]
pub(crate) fn part_ends(r: &mut Request) {
    let shown = &r.uri[..r.uri.len().min(URI_MAX_BYTES)];
    let uri = String::from_utf8_lossy(shown).into_owned();
    asked(r);
    let Some(traced) = r.kept::<Traced>() else { return };
    let now_us = clock::now_us();
    let span = Span::new("subrequest", Name::Text(uri), traced.depth, traced.begun_us, now_us);
    traced.notes.borrow_mut().add(span);
}

/// Notes the servers that were asked, and where an answer was looked for.
fn asked(r: &mut Request) {
    let cache = value(r, b"upstream_cache_status");
    let tries: Vec<_> = r.upstream.iter().map(told::of_try).collect();
    let Some(traced) = r.kept::<Traced>() else { return };
    let mut notes = traced.notes.borrow_mut();
    if let Some(status) = cache {
        let mut span = Span::new("cache", Name::Text(status), traced.depth, 0, 0);
        (span.begin_us, span.end_us) = (traced.begun_us, traced.begun_us);
        notes.add(span);
    }
    for mut span in tries {
        span.depth = traced.depth;
        // By the clock of the worker's turn, which is behind, it would begin before its cause.
        if span.end_us > traced.content_us {
            span.begin_later(traced.content_us);
        }
        notes.add(span);
    }
}

fn value(r: &mut Request, name: &[u8]) -> Option<String> {
    let mut value = Vec::new();
    let found = r.var_named(name, &mut value) && !value.is_empty();
    value.truncate(1000);
    found.then(|| String::from_utf8_lossy(&value).into_owned())
}

/// A request is over. Its notes are given to who has asked.
#[cold]
pub(crate) fn ends(r: &mut Request) {
    let is_asked =
        r.kept_ref::<Traced>().is_some_and(|t| t.depth == 0 && !t.notes.borrow().word.is_empty());
    if !is_asked || r.is_part() {
        return;
    }
    asked(r);
    let about = told::about(r, value);
    let handshake_us = told::handshake_us(r);
    let Some(traced) = r.kept::<Traced>() else { return };
    let mut notes = traced.notes.borrow_mut();
    let (begun_us, end_us) = (notes.begun_us, clock::now_us());
    let mut spans = std::mem::take(&mut notes.spans);
    if handshake_us > 0 {
        let name = Name::Text("handshake".into());
        spans.push(Span::new("tls", name, 0, begun_us.saturating_sub(handshake_us), begun_us));
    }
    // Of what begins at once a part comes before its handlers, and they come as they were called.
    spans.sort_by_key(|span| {
        let rank = match (&span.name, span.kind) {
            (_, "tls" | "subrequest") => 0,
            (Name::Handler(_), _) => 1,
            _ => 2,
        };
        (span.begin_us, span.depth, rank)
    });
    let told = Told { about, spans, begun_us, end_us, left_out: notes.left_out };
    let mut offers = offers();
    if let Some(offer) = offers.iter_mut().find(|offer| offer.word == notes.word) {
        offer.told = Some(told);
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::PostRead => "post_read",
        Phase::ServerRewrite => "server_rewrite",
        Phase::Rewrite => "rewrite",
        Phase::Preaccess => "preaccess",
        Phase::Access => "access",
        Phase::Precontent => "precontent",
        Phase::Content => "content",
        Phase::Log => "log",
    }
}

/// Whether `$request_phase_times` is named.
#[derive(Default)]
pub(crate) struct TraceMain(bool);

impl ConfType for TraceMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// `$request_phase_times`
pub const MODULE: HttpModule = HttpModule {
    slots: &[SlotVtable::of::<TraceMain>()],
    variables: &[Variable::new(PHASE_TIMES, phase_times).weak()],
    build: Some(build),
    ..HttpModule::EMPTY
};

const PHASE_TIMES: &str = "request_phase_times";

fn build(b: &mut Build) -> ConfResult {
    if b.names_variable(PHASE_TIMES) {
        b.main.get_mut::<TraceMain>().0 = true;
        WANTED.fetch_or(PHASES, Ordering::Relaxed);
    }
    Ok(())
}

/// `rewrite=0.000 access=0.002 content=0.130`: seconds in the phases that had something to do, waits with them.
fn phase_times(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(traced) = r.kept_ref::<Traced>() else { return false };
    let notes = traced.notes.borrow();
    let phases = Phase::BEFORE_CONTENT.into_iter().chain([Phase::Content]);
    let before = out.len();
    for phase in phases {
        let us = notes.phases[phase as usize];
        if us == 0 {
            continue;
        }
        if out.len() > before {
            out.push(b' ');
        }
        out.extend_from_slice(phase_name(phase).as_bytes());
        out.push(b'=');
        weir_core::common::push_seconds(out, us / 1000);
    }
    out.len() > before
}
