//! The life of one request with an entry: looked up, waited for, or to be filled.

use super::conf::{CacheConf, CacheMain, Use};
use super::standard::parts::{self, Part, Turn};
use super::standard::{self, Verdict};
use super::vary;
use crate::bits::next;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::date::http_time;
use weir_cache::known;
use weir_cache::store::Request as Wanted;
use weir_cache::zone::Lock;
use weir_cache::{Filling, Handle, Key, Opened, Store, Stored};
use weir_core::eval::{is_true, with_value};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::client_watch::unless_client_goes;
use weir_http::marks::Mark;
use weir_http::Request;
use weir_runtime::{clock, timer};
use weir_script::template::Template;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

/// `$upstream_cache_status`, in the order of `weir_http::status_zone::CACHED`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Miss,
    Bypass,
    Expired,
    Stale,
    Updating,
    Revalidated,
    Hit,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Miss => "MISS",
            Status::Bypass => "BYPASS",
            Status::Expired => "EXPIRED",
            Status::Stale => "STALE",
            Status::Updating => "UPDATING",
            Status::Revalidated => "REVALIDATED",
            Status::Hit => "HIT",
        }
    }
}

/// A request was answered from memory, for which it has no [`State`].
static WAS_HIT: Mark = Mark::new();

/// What became of a request's looking in a cache, if it did.
pub(crate) fn status_of(r: &mut Request) -> Option<Status> {
    match r.kept::<State>() {
        Some(state) => state.status,
        None => r.has_mark(&WAS_HIT).then_some(Status::Hit),
    }
}

/// What a request has to do with an entry; kept with it to its end.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) status: Option<Status>,
    /// The answer may be kept, as far as is known yet.
    pub(crate) cacheable: bool,
    /// HEAD is asked for by GET.
    pub(crate) as_get: bool,
    /// A stale answer may be confirmed by its server.
    pub(crate) revalidate: bool,
    /// A background update: nobody waits for the answer.
    pub(crate) silent: bool,
    /// What a 304 would be the answer to.
    pub(crate) conditions: Conditions,
    /// The server is asked for a part.
    pub(crate) part: Option<Box<Part>>,
    pub(crate) entry: Option<Box<Entry>>,
}

/// The conditions that the server was asked with.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// Those of the answer that is kept.
    pub(crate) own: bool,
    /// Others: the configuration passes on the client's.
    pub(crate) other: bool,
}

/// A condition that goes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Etag,
    LastModified,
}

impl Condition {
    /// By the field's name in lower case, `_` for `-`.
    pub(crate) fn of(name: &[u8]) -> Option<Condition> {
        match name {
            b"if_none_match" => Some(Condition::Etag),
            b"if_modified_since" => Some(Condition::LastModified),
            _ => None,
        }
    }

    /// Notes that it was sent with that value. Only a 304 that is about what is kept renews it.
    pub(crate) fn sent(self, r: &mut Request, value: &[u8]) {
        let Some(state) = r.kept::<State>().filter(|_| !value.is_empty()) else { return };
        let meta = state.to_validate().map(|stored| &stored.meta);
        let is_own = meta.is_some_and(|meta| match self {
            Condition::Etag => meta.etag == value,
            Condition::LastModified => {
                meta.last_modified.is_some_and(|secs| http_time(secs)[..] == *value)
            }
        });
        match is_own {
            true => state.conditions.own = true,
            false => state.conditions.other = true,
        }
    }
}

/// The entry a request would fill.
pub(crate) struct Entry {
    pub(crate) store: Arc<Store>,
    pub(crate) key_text: Vec<u8>,
    pub(crate) main: Key,
    pub(crate) handle: Option<Handle>,
    /// Where the server is asked for an answer to keep.
    pub(crate) filling: Option<Filling>,
    pub(crate) min_uses: u32,
    /// What is there already, and under which key.
    pub(crate) stale: Option<(Key, Arc<Stored>)>,
}

impl State {
    /// The stale answer whose server is to be asked whether it still holds.
    pub(crate) fn to_validate(&self) -> Option<&Arc<Stored>> {
        let asks = self.revalidate && self.status == Some(Status::Expired);
        self.entry.as_ref().filter(|_| asks)?.stale.as_ref().map(|(_, stored)| stored)
    }

    /// Whether a 304 says that what is kept still holds, and nothing else.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.revalidate && self.conditions == Conditions { own: true, other: false }
    }

    /// Lets go of the entry: the answer will not be kept.
    pub(crate) fn give_up(&mut self) {
        self.cacheable = false;
        if let Some(entry) = &mut self.entry {
            entry.handle = None;
            entry.filling = None;
        }
    }
}

impl Entry {
    /// The server is about to be asked: from now on a purge counts for its answer too.
    fn begin(&mut self) {
        self.filling = Some(self.store.fills.begin(&self.key_text));
    }
}

/// What follows from looking.
pub(crate) enum Looked {
    /// This is the answer.
    Answer(Arc<Stored>, Status),
    /// These of its bytes are.
    Part(Arc<Stored>, u64, u64),
    /// An error that is remembered.
    Error(u16),
    /// The server is to be asked; the state says what becomes of its answer.
    Ask,
    /// This is the answer, and the entry is to be renewed behind it.
    Renew(Arc<Stored>, Box<State>),
    /// The client has gone while waiting.
    Gone,
    Failed,
}

/// Whether one of the strings is neither empty nor `0`.
pub(crate) fn any_true(r: &mut Request, list: &[Template]) -> bool {
    list.iter().any(|t| with_value(r, t, |_, value| is_true(value)))
}

/// The store that serves a request. `Err`: there is none of that name.
pub(crate) fn store_of(r: &mut Request, conf: &CacheConf) -> Result<Option<Arc<Store>>, ()> {
    store_named(r, &conf.cache)
}

/// The store that a directive names for a request.
pub(crate) fn store_named(r: &mut Request, named: &Use) -> Result<Option<Arc<Store>>, ()> {
    let gen = Rc::clone(r.gen());
    let main = gen.shared.main.get::<CacheMain>();
    match named {
        Use::Off => Ok(None),
        Use::Zone(named) => Ok(named.store().cloned()),
        Use::Vars(template) => {
            let name = r.eval(template);
            if name.is_empty() || name == b"off" {
                return Ok(None);
            }
            let store = main.find(&name).cloned();
            if store.is_none() {
                let shown = String::from_utf8_lossy(&name);
                r.log(LogLevel::Error, &format!("cache \"{shown}\" not found"));
            }
            store.map(Some).ok_or(())
        }
    }
}

/// A fresh answer from memory, without waiting for anything.
pub(crate) fn at_once(r: &mut Request, conf: &CacheConf, key_text: &[u8]) -> Option<Arc<Stored>> {
    let Use::Zone(named) = &*conf.cache else { return None };
    if r.method.bit() & *conf.methods == 0 || any_true(r, &conf.bypass) {
        return None;
    }
    let store = named.store()?;
    let key = known::key_of(key_text);
    let request: &Request = r;
    let hit = store.hit(&Wanted {
        key,
        key_text,
        min_uses: 1,
        parts: false,
        variant: &|vary| vary::variant(request, &key, vary, false),
        log: &|_, _| {},
    });
    let (_, stored) = hit?;
    match r.kept::<State>() {
        // An answer from elsewhere has led here.
        Some(state) => {
            *state = State { status: Some(Status::Hit), cacheable: true, ..State::default() };
        }
        None => r.mark(&WAS_HIT),
    }
    Some(stored)
}

fn open(r: &Request, conf: &CacheConf, entry: &Entry) -> std::io::Result<(Opened, Option<Handle>)> {
    let log = |level: &str, text: &str| {
        let level = match level {
            "alert" => LogLevel::Alert,
            "info" => LogLevel::Info,
            _ => LogLevel::Crit,
        };
        r.log(level, text);
    };
    entry.store.open(&Wanted {
        key: entry.main,
        key_text: &entry.key_text,
        min_uses: entry.min_uses,
        parts: conf.takes_parts,
        variant: &|vary| vary::variant(r, &entry.main, vary, *conf.standard),
        log: &log,
    })
}

/// Looks an entry up, waiting for who is filling it where the configuration says so.
pub(crate) async fn look(
    r: &mut Request,
    conf: &CacheConf,
    store: Arc<Store>,
    key_text: Vec<u8>,
) -> Looked {
    let mut state = State {
        cacheable: true,
        as_get: r.method == Method::Head && *conf.convert_head,
        revalidate: *conf.revalidate || *conf.standard,
        ..State::default()
    };
    let main = known::key_of(&key_text);
    let min_uses = *conf.min_uses;
    let (handle, filling, stale) = (None, None, None);
    let mut entry = Box::new(Entry { store, key_text, main, handle, filling, min_uses, stale });
    if any_true(r, &conf.bypass) {
        state.status = Some(Status::Bypass);
        note_why(r, conf, "bypass");
        entry.begin();
        state.entry = Some(entry);
        r.keep_state(state);
        return Looked::Ask;
    }
    state.status = Some(Status::Miss);
    let mut deadline = 0;
    loop {
        let Ok((opened, handle)) = open(r, conf, &entry) else { return Looked::Failed };
        let turn = in_parts(r, conf, &opened);
        if turn != Turn::Whole {
            return by_parts(r, conf, state, entry, (opened, handle), turn);
        }
        let (mut handle, renewed) = match (opened, handle) {
            (Opened::Missing | Opened::Incomplete(_), Some(handle)) => (handle, None),
            (opened, Some(handle)) if *conf.standard && is_awaited(r, &opened) => {
                let Some(renewed) = handle.renewed_elsewhere() else { continue };
                (handle, Some(renewed))
            }
            (opened, handle) => return found(r, conf, state, entry, opened, handle),
        };
        let now = clock::mono_ms();
        let wait = match renewed {
            Some(filled) => Lock::Wait { filled, until_ms: u64::MAX },
            None if *conf.lock || *conf.standard => handle.lock(now, *conf.lock_age_ms),
            None => Lock::Owned,
        };
        let Lock::Wait { mut filled, until_ms } = wait else {
            return fills(r, conf, state, entry, handle);
        };
        if deadline == 0 {
            deadline = now + *conf.lock_timeout_ms;
        }
        if now >= deadline {
            // Asked, and not kept: who fills it is still at it.
            return found(r, conf, state, entry, Opened::Scarce, None);
        }
        let most_ms = deadline.min(until_ms).saturating_sub(now);
        let waiting = async {
            // Whether it is filled, or the time is over, is looked at behind it.
            let _ = timer::within_ms(most_ms, filled.changed()).await;
        };
        let gone = client_gone(r, Box::pin(waiting)).await;
        entry.store.waited(&r.conn().worker, clock::mono_ms().saturating_sub(now));
        if gone {
            return Looked::Gone;
        }
        note_wait(r, conf);
        drop(handle);
    }
}

/// A server is asked for what is not there.
fn fills(
    r: &mut Request,
    conf: &CacheConf,
    mut state: State,
    mut entry: Box<Entry>,
    handle: Handle,
) -> Looked {
    let varies = handle.key() != entry.main;
    note_why(r, conf, if varies { "vary-miss" } else { "uri-miss" });
    entry.handle = Some(handle);
    entry.begin();
    state.cacheable = range_is_kept(r, conf);
    state.entry = Some(entry);
    r.keep_state(state);
    Looked::Ask
}

/// What becomes of a request where parts are kept, or may be.
fn in_parts(r: &mut Request, conf: &CacheConf, opened: &Opened) -> Turn {
    match opened {
        Opened::Incomplete(stored) => parts::turn(r, stored),
        // It begins too late to ask for all.
        Opened::Missing if conf.takes_parts && !range_is_kept(r, conf) && parts::is_for_part(r) => {
            Turn::Ask
        }
        _ => Turn::Whole,
    }
}

fn by_parts(
    r: &mut Request,
    conf: &CacheConf,
    mut state: State,
    entry: Box<Entry>,
    (opened, handle): (Opened, Option<Handle>),
    turn: Turn,
) -> Looked {
    let stored = match opened {
        Opened::Incomplete(stored) => Some(stored),
        _ => None,
    };
    match (turn, stored, handle) {
        (Turn::Serve(from, to), Some(stored), _) => {
            state.status = Some(Status::Hit);
            r.keep_state(state);
            Looked::Part(stored, from, to)
        }
        (Turn::Ask, stored, Some(handle)) => asks_part(r, conf, state, entry, handle, stored),
        _ => found(r, conf, state, entry, Opened::Scarce, None),
    }
}

/// A server is asked for a part, which is kept unless another request is adding one.
fn asks_part(
    r: &mut Request,
    conf: &CacheConf,
    mut state: State,
    mut entry: Box<Entry>,
    mut handle: Handle,
    old: Option<Arc<Stored>>,
) -> Looked {
    let varies = handle.key() != entry.main;
    note_why(r, conf, if varies { "vary-miss" } else { "uri-miss" });
    if let Lock::Wait { .. } = handle.lock(clock::mono_ms(), *conf.lock_age_ms) {
        return found(r, conf, state, entry, Opened::Scarce, None);
    }
    entry.handle = Some(handle);
    entry.begin();
    state.part = Some(Box::new(parts::asked(r, old)));
    state.entry = Some(entry);
    r.keep_state(state);
    Looked::Ask
}

/// By the standards, whether an answer that another request renews is as good to wait for as one that is
/// not there.
fn is_awaited(r: &mut Request, opened: &Opened) -> bool {
    let Opened::Stale { stored, elsewhere: true } = opened else { return false };
    let verdict = standard::verdict(r, stored, clock::wall_secs());
    verdict == Verdict::Ask && !standard::insists(r)
}

/// Why a server is asked, for who tells it on.
fn note_why(r: &mut Request, conf: &CacheConf, why: &'static str) {
    if *conf.standard {
        standard::forwards(r, why);
    }
}

fn note_wait(r: &mut Request, conf: &CacheConf) {
    if *conf.standard {
        standard::collapses(r);
    }
}

async fn client_gone(r: &Request, waiting: impl Future<Output = ()>) -> bool {
    unless_client_goes(r, false, waiting).await.is_none()
}

/// What the standards say of an opened entry: an answer that this request cannot have is as good as stale.
fn judged(
    r: &mut Request,
    opened: Opened,
    handle: Option<&mut Handle>,
) -> (Opened, Option<Verdict>) {
    let (stored, is_fresh) = match &opened {
        Opened::Fresh(stored) => (stored, true),
        Opened::Stale { stored, .. } => (stored, false),
        _ => return (opened, None),
    };
    let verdict = standard::verdict(r, stored, clock::wall_secs());
    if !is_fresh || verdict != Verdict::Ask {
        return (opened, Some(verdict));
    }
    let elsewhere = handle.is_none_or(|handle| !handle.begin_update());
    (Opened::Stale { stored: Arc::clone(stored), elsewhere }, Some(verdict))
}

/// What an opened entry means for the request.
fn found(
    r: &mut Request,
    conf: &CacheConf,
    mut state: State,
    mut entry: Box<Entry>,
    opened: Opened,
    mut handle: Option<Handle>,
) -> Looked {
    let (opened, verdict) = match *conf.standard {
        true => judged(r, opened, handle.as_mut()),
        false => (opened, None),
    };
    match opened {
        Opened::Fresh(stored) => {
            state.status = Some(Status::Hit);
            r.keep_state(state);
            Looked::Answer(stored, Status::Hit)
        }
        Opened::Error(status) => {
            state.status = Some(Status::Hit);
            r.keep_state(state);
            Looked::Error(status)
        }
        Opened::Stale { stored, elsewhere } => {
            let key = handle.as_ref().map_or(entry.main, Handle::key);
            let now = clock::wall_secs();
            let will_do = match verdict {
                None => *conf.use_stale & next::UPDATING != 0 || stored.meta.stale_updating(now),
                Some(Verdict::Use) => {
                    // As stale as it is: the client has said so.
                    state.status = Some(Status::Stale);
                    r.keep_state(state);
                    return Looked::Answer(stored, Status::Stale);
                }
                Some(verdict) => verdict == Verdict::UseAndRenew,
            };
            entry.handle = handle;
            entry.stale = Some((key, Arc::clone(&stored)));
            if will_do && elsewhere {
                state.status = Some(Status::Updating);
                r.keep_state(state);
                return Looked::Answer(stored, Status::Updating);
            }
            let renew = will_do && (*conf.background_update || verdict.is_some());
            state.cacheable = renew || range_is_kept(r, conf);
            state.status = Some(Status::Expired);
            entry.begin();
            state.entry = Some(entry);
            if renew {
                state.silent = true;
                r.keep_state(State { status: Some(Status::Stale), ..State::default() });
                return Looked::Renew(stored, Box::new(state));
            }
            r.keep_state(state);
            Looked::Ask
        }
        Opened::Scarce | Opened::Missing | Opened::Incomplete(_) => {
            state.cacheable = false;
            r.keep_state(state);
            Looked::Ask
        }
    }
}

/// `…_cache_max_range_offset`
fn range_is_kept(r: &Request, conf: &CacheConf) -> bool {
    let max = *conf.max_range_offset;
    let Some(range) = r.header(HeaderId::Range).filter(|_| max != u64::MAX) else { return true };
    if max == 0 {
        return false;
    }
    if range.len() < 7 || !range[..6].eq_ignore_ascii_case(b"bytes=") {
        return true;
    }
    let range = range[6..].trim_ascii_start();
    if range.first() == Some(&b'-') {
        return false;
    }
    let digits = range.iter().take_while(|b| b.is_ascii_digit()).count();
    weir_base::units::parse_int(&range[..digits]).is_some_and(|offset| offset < max)
}
