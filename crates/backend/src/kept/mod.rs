//! The backends' hook for caches: keys, stale answers, and what becomes of an answer that is kept.
//!
//! `at_once` answers from memory without a future; the rest is asked by `run` at its turns. Where no
//! cache is configured each of them is one look at the configuration or the request's state.

mod keep;

pub(crate) use keep::Keep;

use crate::bits::ignore;
use crate::cache;
use crate::cache::conf::Use;
use crate::cache::fill;
use crate::cache::fresh::{Fresh, Ignored};
use crate::cache::lookup::{self, Looked, State, Status};
use crate::cache::purge;
use crate::cache::standard;
use crate::conf::BackendLoc;
use crate::respond;
use std::rc::Rc;
use std::sync::Arc;
use weir_cache::store::Body as StoredBody;
use weir_cache::{Key, Meta, Stored};
use weir_core::eval::with_scratch;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::lent::Lent;
use weir_http::request::Whole;
use weir_http::{special, Buf, Flow, Request};
use weir_runtime::clock;
use weir_wire::http1::names::ResponseHeaderId as Id;
use weir_wire::http1::response::{ResponseParser, ResponseProgress};

/// Heads that were kept are as long as they were.
const HEAD_MAX_BYTES: usize = usize::MAX;

/// Writes what an answer is kept under.
fn write_key(r: &mut Request, conf: &BackendLoc, key: &mut Vec<u8>) {
    match (&*conf.cache.key, conf.family.key) {
        (Some(template), _) => r.eval_into(template, key),
        (None, Some(write)) => write(r, key),
        (None, None) => {}
    }
}

/// Answers a request from memory, if a fresh answer is there.
#[inline]
pub(crate) fn at_once(r: &mut Request, conf: &BackendLoc) -> Option<Flow> {
    match conf.cache.is_on() {
        true => from_memory(r, conf),
        false => None,
    }
}

#[inline(never)]
fn from_memory(r: &mut Request, conf: &BackendLoc) -> Option<Flow> {
    if !r.body.is_none() || *conf.cache.standard || conf.cache.purge.may_be(r) {
        return None;
    }
    // A store that a variable names is looked for with the rest.
    if matches!(*conf.cache.cache, Use::Vars(_)) {
        return None;
    }
    let stored = with_scratch(|text| {
        write_key(r, conf, text);
        lookup::at_once(r, &conf.cache, text)
    });
    Some(answer(r, conf, &stored?, true))
}

/// What was found.
pub(crate) enum Found {
    /// A server is to be asked.
    Ask,
    Done(Flow),
    /// A stale answer will do, and is to be renewed behind it.
    Renew(Arc<Stored>, Box<State>),
}

/// Looks for an answer.
pub(crate) async fn look(r: &mut Request, conf: &BackendLoc) -> Found {
    let purges = match conf.cache.purge.wanted(r) {
        Ok(purges) => purges,
        Err(flow) => return Found::Done(flow),
    };
    if *conf.cache.standard {
        standard::hear(r);
    }
    if purges.is_none() && r.method.bit() & *conf.cache.methods == 0 {
        if *conf.cache.standard {
            pass_by(r, conf);
        }
        return Found::Ask;
    }
    let store = match lookup::store_of(r, &conf.cache) {
        Ok(Some(store)) => store,
        Ok(None) => return Found::Ask,
        Err(()) => return Found::Done(Flow::Status(500)),
    };
    let mut key_text = Vec::with_capacity(128);
    write_key(r, conf, &mut key_text);
    if r.match_failed() {
        return Found::Done(Flow::Status(500));
    }
    if let Some(how) = purges {
        return Found::Done(purge::run(r, store, key_text, how).await);
    }
    match lookup::look(r, &conf.cache, store, key_text).await {
        Looked::Ask if *conf.cache.standard && standard::wants_kept_only(r) => {
            give_up(r);
            Found::Done(Flow::Status(504))
        }
        Looked::Ask => {
            if *conf.cache.standard && standard::wants_nothing_kept(r) {
                give_up(r);
            }
            Found::Ask
        }
        Looked::Answer(stored, status) => {
            Found::Done(ready(answer(r, conf, &stored, status == Status::Hit), r).await)
        }
        Looked::Part(stored, from, to) => {
            Found::Done(ready(answer_part(r, conf, &stored, from, to), r).await)
        }
        Looked::Error(status) => Found::Done(Flow::Status(status)),
        Looked::Renew(stored, state) => Found::Renew(stored, state),
        Looked::Gone => Found::Done(Flow::Status(499)),
        Looked::Failed => Found::Done(Flow::Status(500)),
    }
}

/// A method whose answers are not kept: what it changes may be.
fn pass_by(r: &mut Request, conf: &BackendLoc) {
    standard::forwards(r, "method");
    if let Ok(Some(store)) = lookup::store_of(r, &conf.cache) {
        let mut key_text = Vec::with_capacity(128);
        write_key(r, conf, &mut key_text);
        standard::may_change(r, store, key_text);
    }
}

/// Answers with what is stale while it is renewed.
pub(crate) async fn answer_stale(r: &mut Request, conf: &BackendLoc, stored: &Arc<Stored>) -> Flow {
    ready(answer(r, conf, stored, false), r).await
}

/// Goes on where an answer itself must wait.
async fn ready(flow: Flow, r: &mut Request) -> Flow {
    match flow {
        Flow::Wait(f) => f(r).await,
        flow => flow,
    }
}

/// Whether the answer to be asked for is kept, and is wanted by somebody even if the client goes. A part is not:
/// who plays a film leaves one behind with every jump.
pub(crate) fn keeps(r: &mut Request, conf: &BackendLoc) -> bool {
    let is_whole = |s: &mut State| s.cacheable && s.part.is_none();
    conf.cache.stores() || conf.cache.is_on() && r.kept::<State>().is_some_and(is_whole)
}

/// Whether the request goes out as one whose answer may be kept, and as GET in place of HEAD.
pub(crate) fn how_asked(r: &mut Request) -> (bool, bool) {
    r.kept::<State>().map_or((false, false), |s| (s.cacheable, s.as_get))
}

pub(crate) fn is_silent(r: &mut Request) -> bool {
    r.kept::<State>().is_some_and(|s| s.silent)
}

pub(crate) fn give_up(r: &mut Request) {
    if let Some(state) = r.kept::<State>() {
        state.give_up();
    }
}

/// What the answer's head says about keeping it.
#[inline]
pub(crate) fn judge(r: &mut Request, conf: &BackendLoc) -> Option<Box<Fresh>> {
    match conf.cache.is_on() && r.kept::<State>().is_some() {
        true => Some(Box::new(judged(r, conf))),
        false => None,
    }
}

#[inline(never)]
fn judged(r: &mut Request, conf: &BackendLoc) -> Fresh {
    let bits = *conf.ignore_headers;
    let ignored = Ignored {
        accel_expires: bits & ignore::EXPIRES != 0,
        expires: bits & ignore::EXPIRES_FIELD != 0,
        cache_control: bits & ignore::CACHE_CONTROL != 0,
        set_cookie: bits & ignore::SET_COOKIE != 0,
        vary: bits & ignore::VARY != 0,
    };
    cache::fill::judge(r, &conf.cache, ignored)
}

/// What the header says of an answer that may be kept besides being passed on.
#[inline]
pub(crate) fn before_header(
    r: &mut Request,
    conf: &BackendLoc,
    fresh: Option<&Fresh>,
    keep: &mut Keep,
) {
    if let Some(fresh) = fresh {
        ready_header(r, conf, fresh, keep);
    } else if conf.cache.stores() && keep.buffering {
        keep.fill = fill::begin_store(r, &conf.cache, &conf.temp_path).map(Box::new);
    }
    if *conf.cache.standard && conf.cache.is_on() {
        let status = r.exchange.head.status;
        standard::tell_of_passed(r, status, keep.fill.is_some());
    }
}

#[inline(never)]
fn ready_header(r: &mut Request, conf: &BackendLoc, fresh: &Fresh, keep: &mut Keep) {
    let cacheable = r.kept::<State>().is_some_and(|s| s.cacheable);
    if cacheable && !*conf.force_ranges && r.out.get(b"Accept-Ranges").is_some() {
        let_ranges(r);
        r.flags.single_range = true;
    }
    r.flags.ignore_conditions = !cacheable;
    // That somebody's copy is still good is nothing to keep for others.
    let about_other =
        r.exchange.head.status == 304 && r.kept::<State>().is_some_and(|s| s.conditions.other);
    if !keep.buffering || r.exchange.head.status == 101 || about_other {
        return give_up(r);
    }
    if *conf.cache.standard {
        // The header says whether it is kept.
        match fill::is_refused(r, &conf.cache) {
            true => give_up(r),
            false => keep.fill = fill::begin(r, &conf.cache, fresh, &conf.temp_path).map(Box::new),
        }
    }
}

/// Ranges of what is kept are this server's to make, which it does for no part.
fn let_ranges(r: &mut Request) {
    r.flags.allow_ranges = true;
    if r.is_part() {
        r.out.remove(b"Accept-Ranges");
    }
}

/// Where the answer is kept whose header has been made. As in nginx `…_no_cache` is asked here: header filters may have
/// said what it is about.
#[inline]
pub(crate) fn begin(r: &mut Request, conf: &BackendLoc, fresh: Option<&Fresh>, keep: &mut Keep) {
    if let Some(fresh) = fresh {
        fill(r, conf, fresh, keep);
    }
}

#[inline(never)]
fn fill(r: &mut Request, conf: &BackendLoc, fresh: &Fresh, keep: &mut Keep) {
    let cacheable = r.kept::<State>().is_some_and(|s| s.cacheable);
    if keep.fill.is_none() && !cacheable {
        give_up(r);
    } else if fill::is_refused(r, &conf.cache) {
        keep.fill = None;
        give_up(r);
    } else if keep.fill.is_none() {
        keep.fill = fill::begin(r, &conf.cache, fresh, &conf.temp_path).map(Box::new);
    }
}

/// An error page of ours takes the answer's place.
pub(crate) fn intercepted(r: &mut Request, conf: &BackendLoc, status: u16) -> Flow {
    if let Some(fresh) = judge(r, conf) {
        let until = fresh.until(&conf.cache, status, clock::wall_secs());
        fill::remember(r, status, until);
    }
    Flow::Status(status)
}

/// No server has answered: a stale answer may do.
pub(crate) async fn failed(
    r: &mut Request,
    conf: &BackendLoc,
    bit: Option<u32>,
    status: u16,
) -> Flow {
    let Some(state) = r.kept::<State>() else { return Flow::Status(status) };
    let stale = state.entry.as_ref().and_then(|e| e.stale.clone());
    let expired = state.status == Some(Status::Expired) && !state.silent;
    if let (Some((_, stored)), Some(bit), true) = (stale, bit, expired) {
        if may_fail(r, conf, &stored, bit, true) {
            take_stale(r);
            return ready(answer(r, conf, &stored, false), r).await;
        }
    }
    let until = match (status, conf.cache.valid_secs(status)) {
        (502 | 504, secs) if secs > 0 => clock::wall_secs() + secs,
        _ => 0,
    };
    fill::remember(r, status, until);
    Flow::Status(status)
}

/// Whether a stale answer will do where a server has failed; `gone`: it has not answered at all.
fn may_fail(r: &mut Request, conf: &BackendLoc, stored: &Stored, bit: u32, gone: bool) -> bool {
    let configured = *conf.cache.use_stale & bit != 0;
    let now = clock::wall_secs();
    if !*conf.cache.standard {
        return configured || gone && stored.meta.stale_error(now);
    }
    let is_error = gone || matches!(r.exchange.head.status, 500 | 502 | 503 | 504);
    (configured || is_error) && standard::may_fail(r, stored, now, configured)
}

/// The stale answer is taken.
fn take_stale(r: &mut Request) {
    if let Some(state) = r.kept::<State>() {
        state.status = Some(Status::Stale);
        state.give_up();
    }
}

/// What was kept takes the place of what a server has answered.
pub(crate) struct Kept {
    key: Key,
    stored: Arc<Stored>,
    /// The server has confirmed it: until when it is fresh now.
    renewed: Option<Meta>,
    /// Its head as the server has changed it.
    head: Option<Vec<u8>>,
}

/// Whether an answer that is in the cache is better than this one.
pub(crate) fn kept_instead(r: &mut Request, conf: &BackendLoc, bit: Option<u32>) -> Option<Kept> {
    let is_304 = r.exchange.head.status == 304;
    let state = r.kept::<State>()?;
    if state.status != Some(Status::Expired) {
        return None;
    }
    let (key, stored) = state.entry.as_ref()?.stale.clone()?;
    let (silent, confirmed) = (state.silent, is_304 && state.is_confirmed());
    if !silent && bit.is_some_and(|bit| may_fail(r, conf, &stored, bit, false)) {
        take_stale(r);
        return Some(Kept { key, stored, renewed: None, head: None });
    }
    if !confirmed {
        return None;
    }
    let (renewed, head) = match *conf.cache.standard {
        true => updated(r, conf, &stored),
        false => (renewed(r, conf, &stored), None),
    };
    if let Some(state) = r.kept::<State>() {
        state.status = Some(Status::Revalidated);
    }
    Some(Kept { key, stored, renewed, head })
}

/// The same by the standards: the head as a 304 has changed it says what it says.
fn updated(
    r: &mut Request,
    conf: &BackendLoc,
    stored: &Arc<Stored>,
) -> (Option<Meta>, Option<Vec<u8>>) {
    if standard::wants_nothing_kept(r) {
        return (None, None);
    }
    let by = r.exchange.head_bytes().get(..r.exchange.head.head_len).unwrap_or_default();
    let head = standard::head::updated(&stored.head, by, clock::wall_secs());
    if read_head(r, conf, &head).is_none() {
        return (None, None);
    }
    let Some(said) = judge(r, conf) else { return (None, None) };
    if said.vary != stored.meta.vary {
        // It belongs under another key, and who else it is for is not known: this client has its answer, and
        // the next one is asked for.
        drop_entry(r);
        return (None, None);
    }
    let head = standard::head::without(head, &said.unkept);
    let now = clock::wall_secs();
    let until = said.until(&conf.cache, stored.meta.status, now);
    let meta = (until != 0 && said.cacheable).then(|| Meta {
        status: stored.meta.status,
        valid_sec: until,
        updating_sec: said.updating_sec,
        error_sec: said.error_sec,
        date: standard::asked_sec(r, now),
        vary: stored.meta.vary.clone(),
        variant: stored.meta.variant,
        ..fill::validators(r)
    });
    (meta, Some(head))
}

/// Removes the stale entry, and the one that leads to it.
fn drop_entry(r: &mut Request) {
    let Some(entry) = r.kept::<State>().and_then(|state| state.entry.as_ref()) else { return };
    if let Some((key, _)) = &entry.stale {
        entry.store.purge(key);
    }
    entry.store.purge(&entry.main);
}

/// Puts a head that has been changed in the place of a server's.
fn read_head(r: &mut Request, conf: &BackendLoc, text: &[u8]) -> Option<()> {
    let x = &mut r.exchange;
    x.reply.clear();
    x.reply.extend_from_slice(text);
    x.head_at = 0;
    x.head.clear();
    let mut parser = ResponseParser::starting(conf.family.start);
    let parsed = parser.parse(text, HEAD_MAX_BYTES, &mut x.head);
    matches!(parsed, Ok(ResponseProgress::Complete)).then_some(())
}

/// The times of an answer that its server has confirmed: what it said now, or said then, or what
/// the configuration says.
fn renewed(r: &mut Request, conf: &BackendLoc, stored: &Arc<Stored>) -> Option<Meta> {
    let now = clock::wall_secs();
    let said = judge(r, conf)?;
    let said = match said.valid_sec {
        0 => {
            load_head(r, conf, stored)?;
            judge(r, conf)?
        }
        _ => said,
    };
    let until = said.until(&conf.cache, stored.meta.status, now);
    (until != 0).then(|| Meta {
        valid_sec: until,
        updating_sec: said.updating_sec,
        error_sec: said.error_sec,
        date: now,
        ..stored.meta.clone()
    })
}

pub(crate) async fn answer_kept(r: &mut Request, conf: &BackendLoc, mut kept: Kept) -> Flow {
    let silent = is_silent(r);
    if let Some(meta) = kept.renewed {
        let store = r.kept::<State>().and_then(|s| Some(Arc::clone(&s.entry.as_ref()?.store)));
        let done = match (store, kept.head) {
            (None, _) => Ok(()),
            (Some(store), None) => store.renew(&kept.key, &kept.stored, meta),
            (Some(store), Some(head)) => {
                let pad = standard::head::padded;
                store.refresh(&kept.key, &kept.stored, meta, head, pad).map(|new| kept.stored = new)
            }
        };
        if let Err(e) = done {
            r.log(LogLevel::Crit, &format!("renewing a cache file failed ({e})"));
        }
    }
    give_up(r);
    match silent {
        true => Flow::Ok,
        false => ready(answer(r, conf, &kept.stored, false), r).await,
    }
}

/// Puts a stored head in the place of a server's.
fn load_head(r: &mut Request, conf: &BackendLoc, stored: &Stored) -> Option<()> {
    let head = match stored.parsed.get() {
        Some(head) => head,
        None => {
            let mut head = weir_wire::http1::response::ResponseHead::default();
            let mut parser = ResponseParser::starting(conf.family.start);
            let parsed = parser.parse(&stored.head, HEAD_MAX_BYTES, &mut head);
            if !matches!(parsed, Ok(ResponseProgress::Complete)) {
                r.log(LogLevel::Crit, "a cache file contains an invalid header");
                return None;
            }
            stored.parsed.get_or_init(|| head)
        }
    };
    let x = &mut r.exchange;
    x.reply.clear();
    x.reply.extend_from_slice(&stored.head);
    x.head_at = 0;
    x.head.copy_from(head);
    x.answered = true;
    Some(())
}

/// Answers with a part of what is kept: whatever becomes of the header, no other bytes leave.
fn answer_part(
    r: &mut Request,
    conf: &BackendLoc,
    stored: &Arc<Stored>,
    from: u64,
    to: u64,
) -> Flow {
    let StoredBody::File { file, start } = &stored.body else { return Flow::Status(500) };
    if load_head(r, conf, stored).is_none() {
        return Flow::Status(500);
    }
    let rate = r.limit_rate;
    if !respond::head(r, conf) {
        // Nothing is passed on unbuffered.
        r.limit_rate = rate;
    }
    standard::tell_of_kept(r, stored, false);
    r.flags.allow_ranges = false;
    r.out.status = 206;
    r.out.clear_status_line();
    r.out.remove(b"Accept-Ranges");
    let text = format!("bytes {from}-{}/{}", to - 1, stored.body_len);
    r.out.set(b"Content-Range", text.as_bytes());
    r.out.content_length = Some(to - from);
    match file.try_clone() {
        Ok(file) => {
            let buf = Buf::file(Rc::new(file), start + from, to - from);
            (r.gen().shared.main.get::<Lent>().send_file)(r, buf.and_last())
        }
        Err(_) => Flow::Status(500),
    }
}

/// Answers with what was kept. `fresh`: its compressed forms are kept too.
fn answer(r: &mut Request, conf: &BackendLoc, stored: &Arc<Stored>, fresh: bool) -> Flow {
    if load_head(r, conf, stored).is_none() {
        return Flow::Status(500);
    }
    cache::counted::answered(r, conf, stored.head.len() as u64 + stored.body_len);
    if let Some(flow) = respond::accel_redirect(r, conf) {
        return flow;
    }
    let rate = r.limit_rate;
    if !respond::head(r, conf) {
        // Nothing is passed on unbuffered.
        r.limit_rate = rate;
    }
    // The whole is here, so that any of its ranges are.
    r.flags.single_range = false;
    r.flags.ignore_conditions = false;
    if *conf.cache.standard {
        let status = r.kept::<State>().and_then(|state| state.status);
        standard::tell_of_kept(r, stored, status == Some(Status::Revalidated));
    }
    let bodiless = matches!(r.out.status, 204 | 304);
    // What came without a length leaves without, as it did at first.
    if r.out.content_length.is_some_and(|said| said != stored.body_len && !bodiless)
        && !r.flags.header_only
    {
        // The answer to a HEAD, asked for by GET: the client must not wait for a body.
        r.flags.keepalive = false;
    }
    let says_ranges = r.exchange.head.has(Id::AcceptRanges);
    if says_ranges && !*conf.force_ranges && r.out.get(b"Accept-Ranges").is_some() {
        let_ranges(r);
    }
    match &stored.body {
        StoredBody::Memory(text) => {
            if fresh {
                let forms = Arc::clone(&stored.forms);
                r.whole = Some(Whole { text: text.clone(), forms });
            }
            special::finish(r, Buf::mem(text.clone()).and_last())
        }
        StoredBody::File { file, start } => match file.try_clone() {
            Ok(file) => {
                let buf = Buf::file(Rc::new(file), *start, stored.body_len);
                (r.gen().shared.main.get::<Lent>().send_file)(r, buf.and_last())
            }
            Err(_) => Flow::Status(500),
        },
    }
}
