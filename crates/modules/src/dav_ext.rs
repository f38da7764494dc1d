//! `dav_ext_methods` (nginx-dav-ext-module): what WebDAV (RFC 4918) has besides `dav_methods`: PROPFIND, OPTIONS,
//! LOCK and UNLOCK, with exclusive write locks.
//!
//! Differences from that module: locks are of files, whatever URI leads there; `If` is looked at as a whole, its
//! entity tags included; a lock tells who asked for it; shared locks are refused; properties that there are not are
//! listed with 404, and `getetag` is there.

mod condition;
mod locks;
mod propfind;
mod xml;

use bytes::Bytes;
use locks::{Change, Lock, NoLock, Zone};
use propfind::{Depth, NoAnswer, Question};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use weir_core::logger::LogLevel;
use weir_core::{os_text, zones, LocalFuture, Session};
use weir_http::body::{self, BodyError};
use weir_http::buf::Buf;
use weir_http::build::Build;
use weir_http::client_watch::unless_client_goes;
use weir_http::location::map_uri;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::{special, Request};
use weir_module::{
    distinct, merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive,
    Level, Row, SlotVtable, Slots, Val,
};
use weir_runtime::threads::in_thread;
use weir_runtime::{files, paths};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;
use weir_wire::http1::uri;

use crate::dav::destination;

/// The longest body of a PROPFIND or LOCK.
const BODY_MAX_BYTES: u64 = 64 * 1024;
/// Of an owner, which is said again for every file that a lock holds for.
const OWNER_MAX_BYTES: usize = 1024;

const KIND: &str = "dav_ext_lock";

/// `dav_ext_lock_zone`
struct ZoneConf {
    name: Vec<u8>,
    size: u64,
    timeout_ms: u64,
}

#[derive(Default)]
struct DavExtMain {
    zones: Vec<ZoneConf>,
}

impl ConfType for DavExtMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// `dav_ext_lock`
#[derive(Clone)]
struct Locks {
    name: Vec<u8>,
    /// There after the build, with the longest time of a lock.
    zone: OnceLock<(Arc<Zone>, u64)>,
}

#[derive(Default)]
struct DavExtLoc {
    methods: Val<u8>,
    locks: Val<Option<Locks>>,
}

impl ConfType for DavExtLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &DavExtLoc) -> ConfResult {
        merge_values!(self, parent; methods = 0, locks = None);
        Ok(())
    }
}

impl DavExtLoc {
    fn zone(&self) -> Option<&(Arc<Zone>, u64)> {
        self.locks.as_ref().and_then(|locks| locks.zone.get())
    }
}

const OFF: u8 = 1;
const PROPFIND: u8 = 1 << 1;
const OPTIONS: u8 = 1 << 2;
const LOCK: u8 = 1 << 3;
const UNLOCK: u8 = 1 << 4;

const METHODS: &[(&str, u8)] = &[
    ("off", OFF),
    ("propfind", PROPFIND),
    ("options", OPTIONS),
    ("lock", LOCK),
    ("unlock", UNLOCK),
];

const ROWS: &[Row] = &[
    Row::new(
        "dav_ext_methods",
        Context::HSL,
        Arity::ONE_MORE,
        "off",
        "Which of PROPFIND, OPTIONS, LOCK and UNLOCK are answered here.",
        set_methods,
    )
    .note(
        "of nginx-dav-ext-module. A PROPFIND whose answer would be longer than 16 MB is refused with 507, with 503 \
         where all answers together have 64 MB; names that begin with a dot are not listed",
    ),
    Row::new(
        "dav_ext_lock_zone",
        Context::HTTP,
        Arity::ONE_TWO,
        "",
        "A zone for locks (zone=NAME:SIZE), and how long one lasts (timeout=TIME, one minute).",
        set_zone,
    )
    .note("of nginx-dav-ext-module. A client may ask for less time than that"),
    Row::new(
        "dav_ext_lock",
        Context::HSL,
        Arity::ONE,
        "",
        "Where locks are kept (zone=NAME), which PUT, DELETE, MKCOL, COPY and MOVE then heed.",
        set_lock,
    )
    .note("of nginx-dav-ext-module. Exclusive locks alone; \"If\" is looked at as RFC 4918 has it"),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<DavExtMain>(), SlotVtable::of::<DavExtLoc>()],
    phases: &[
        PhaseHandler { phase: Phase::Precontent, handler: check, active: locks },
        PhaseHandler { phase: Phase::Content, handler, active },
    ],
    build: Some(bind),
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    !matches!(*slots.get::<DavExtLoc>().methods, 0 | OFF)
}

fn locks(slots: &Slots) -> bool {
    slots.get::<DavExtLoc>().locks.is_some()
}

fn set_methods(cf: &mut Cf, d: &Directive) -> ConfResult {
    for i in 0..d.args.len() {
        let method = d.choice(i, METHODS)?;
        let methods = &mut cf.get::<DavExtLoc>().methods;
        methods.set(methods.as_option().copied().unwrap_or(0) | method);
    }
    Ok(())
}

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut timeout_ms = 60_000;
    let mut zone = None;
    for i in 0..d.args.len() {
        if let Some(text) = d.keyed(i, "timeout") {
            timeout_ms = weir_base::units::parse_msec(text)
                .filter(|ms| *ms > 0)
                .ok_or_else(|| d.invalid(i))?;
        } else {
            zone = Some((i, zones::name_and_size(d, i)?.ok_or_else(|| d.invalid(i))?));
        }
    }
    let (i, (name, size)) = zone.ok_or_else(|| d.error("must have \"zone\" parameter"))?;
    if zones::is_declared(cf, &name, KIND) {
        return Err(d.bad(i, format!("\"{}\" is already declared", String::from_utf8_lossy(&name))));
    }
    zones::declare(cf, d, i, &name, KIND, size)?;
    cf.get::<DavExtMain>().zones.push(ZoneConf { name, size, timeout_ms });
    Ok(())
}

fn set_lock(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.keyed(0, "zone").ok_or_else(|| d.invalid(0))?.to_vec();
    zones::declare(cf, d, 0, &name, KIND, 0)?;
    cf.get::<DavExtLoc>().locks.once(d, Some(Locks { name, zone: OnceLock::new() }))
}

/// Finds or makes the zones that locations name.
fn bind(b: &mut Build) -> ConfResult {
    let main = b.main.get::<DavExtMain>();
    for conf in distinct::<DavExtLoc>(b.locations) {
        let Some(locks) = &*conf.locks else { continue };
        let declared = main.zones.iter().find(|z| z.name == locks.name);
        let ZoneConf { name, size, timeout_ms } =
            declared.ok_or_else(|| zones::undeclared(&locks.name))?;
        let zone = zones::attach(KIND, name, *size, |_: &Zone| Ok(()), || Zone::new(*size))?;
        // Several locations may share what is the same.
        let _ = locks.zone.set((zone, *timeout_ms));
    }
    Ok(())
}

/// A file as locks know it.
struct Known {
    /// Whatever links lead to it, also where folders on the way are yet to be made; a link that it is itself is what
    /// is locked.
    path: Vec<u8>,
    /// The collection that has or gets it, or the first of the folders to be made.
    collection: Vec<u8>,
}

fn known(path: &Path) -> Known {
    let Known { path, collection } = known_here(path);
    Known { path: paths::comparable(path), collection: paths::comparable(collection) }
}

fn known_here(path: &Path) -> Known {
    let plain: PathBuf = path.components().collect();
    for dir in plain.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (paths::real(dir), plain.strip_prefix(dir)) {
            let path = paths::bytes(&real.join(rest)).to_vec();
            return Known { path, collection: paths::bytes(&real).to_vec() };
        }
    }
    Known { path: paths::bytes(&plain).to_vec(), collection: Vec::new() }
}

fn key(path: &Path) -> Vec<u8> {
    known(path).path
}

fn own_path(r: &mut Request) -> PathBuf {
    let uri = std::mem::take(&mut r.uri);
    let path = map_uri(r, &uri);
    r.uri = uri;
    path
}

/// What `If` says, with where its URLs lead.
struct If {
    lists: Vec<(PathBuf, Vec<(bool, Asked)>)>,
    tokens: Vec<Vec<u8>>,
    /// The request's own file, whose entity tag alone is compared: of others it may not be asked.
    own: PathBuf,
}

enum Asked {
    Token(Vec<u8>),
    Etag(Vec<u8>),
}

/// `None`: it is no such field.
fn read_if(r: &mut Request) -> Option<If> {
    let field = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"if"));
    let Some(text) = field.map(|(_, value)| value.to_vec()) else {
        return Some(If { lists: Vec::new(), tokens: Vec::new(), own: PathBuf::new() });
    };
    let parsed = condition::parse(&text)?;
    let tokens = condition::tokens(&parsed);
    let own = own_path(r);
    let mut lists = Vec::with_capacity(parsed.len());
    for list in parsed {
        let path = match list.resource {
            None => own.clone(),
            Some(url) => {
                let path = destination::path_of(url)?;
                let mut uri = Vec::new();
                uri::unsafe_uri(path, &mut uri).ok()?;
                map_uri(r, &uri)
            }
        };
        let asked = |c: condition::Condition<'_>| match c.what {
            condition::What::Token(token) => (c.negated, Asked::Token(token.to_vec())),
            condition::What::Etag(etag) => (c.negated, Asked::Etag(etag.to_vec())),
        };
        lists.push((path, list.conditions.into_iter().map(asked).collect()));
    }
    Some(If { lists, tokens, own })
}

impl If {
    /// Whether one of its lists holds; without any, nothing is asked.
    fn holds(&self, zone: &Zone) -> bool {
        let is_true = |path: &Path, asked: &Asked| match asked {
            Asked::Token(token) => zone.has(&key(path), token),
            Asked::Etag(etag) => {
                let strong = etag.strip_prefix(b"W/").unwrap_or(etag);
                let found = (path == self.own).then(|| fs::metadata(path).ok()).flatten();
                found.is_some_and(|m| propfind::etag(&m).as_bytes() == strong)
            }
        };
        let list_holds = |(path, conditions): &(PathBuf, Vec<(bool, Asked)>)| {
            conditions.iter().all(|(negated, asked)| is_true(path, asked) != *negated)
        };
        self.lists.is_empty() || self.lists.iter().any(list_holds)
    }
}

/// Lets a change pass if its client holds the locks that it touches.
fn check(r: &mut Request) -> Flow {
    let changes = [Method::Put, Method::Delete, Method::Mkcol, Method::Copy, Method::Move];
    if !changes.contains(&r.method) {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    let Some((zone, _)) = loc.conf::<DavExtLoc>().zone() else { return Flow::Declined };
    let Some(said) = read_if(r) else { return Flow::Status(400) };
    if !said.holds(zone) {
        return Flow::Status(412);
    }
    let path = own_path(r);
    let (whole, is_new) = (matches!(r.method, Method::Delete | Method::Move), !path.exists());
    let at = known(&path);
    let comes_or_goes = whole || is_new;
    let own = Change { path: &at.path, whole, of: comes_or_goes.then_some(&*at.collection) };
    let mut is_locked = r.method != Method::Copy && zone.hinders(&own, &said.tokens);
    if matches!(r.method, Method::Copy | Method::Move) {
        if let Some(uri) = r.header(HeaderId::Destination).and_then(destination::uri_of) {
            let to = map_uri(r, &uri);
            let at = known(&to);
            let of = (!to.exists()).then_some(&*at.collection);
            let change = Change { path: &at.path, whole: true, of };
            is_locked |= zone.hinders(&change, &said.tokens);
        }
    }
    if is_locked {
        return Flow::Status(423);
    }
    Flow::Declined
}

/// A file or a tree has gone, and its locks go with it.
pub(crate) fn has_gone(r: &mut Request) {
    let loc = Rc::clone(r.loc());
    if let Some((zone, _)) = loc.conf::<DavExtLoc>().zone() {
        zone.forget(&key(&own_path(r)));
    }
}

/// Whether a lock has come meanwhile that the client does not hold.
pub(crate) fn is_locked(r: &mut Request) -> bool {
    matches!(check(r), Flow::Status(_))
}

fn handler(r: &mut Request) -> Flow {
    let conf = *r.loc().conf::<DavExtLoc>().methods;
    match r.method {
        Method::Propfind if conf & PROPFIND != 0 => Flow::Wait(|r| Box::pin(find(r))),
        Method::Options if conf & OPTIONS != 0 => options(r),
        Method::Lock if conf & LOCK != 0 => Flow::Wait(wait_lock),
        Method::Unlock if conf & UNLOCK != 0 => unlock(r),
        _ => Flow::Declined,
    }
}

fn wait_lock(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(lock(r))
}

fn options(r: &mut Request) -> Flow {
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let class: &[u8] = match r.loc().conf::<DavExtLoc>().zone() {
        Some(_) => b"1, 2",
        None => b"1",
    };
    r.out.status = 200;
    r.out.content_length = Some(0);
    r.out.add(b"DAV", class);
    r.out.add(
        b"Allow",
        b"GET, HEAD, PUT, DELETE, MKCOL, COPY, MOVE, PROPFIND, OPTIONS, LOCK, UNLOCK",
    );
    special::finish(r, Buf::last())
}

/// A small body as a whole.
async fn small_body(r: &mut Request) -> Result<Vec<u8>, Flow> {
    let too_large = |n: u64| n > BODY_MAX_BYTES;
    if r.body.announced().is_some_and(too_large) {
        return Err(Flow::Status(413));
    }
    match body::read_all(r).await {
        Ok(()) if too_large(r.body.length) => return Err(Flow::Status(413)),
        Ok(()) => {}
        Err(BodyError::Status(status)) => return Err(Flow::Status(status)),
        Err(BodyError::Closed) => return Err(Flow::Status(499)),
    }
    let Some(file) = r.body.file.clone() else { return Ok(r.body.memory.clone()) };
    let mut text = vec![0; r.body.length as usize];
    match files::read_exact_at(&file.file, &mut text, 0) {
        Ok(()) => Ok(text),
        Err(e) => Err(failed(r, "read", &file.path, &e)),
    }
}

fn failed(r: &Request, call: &str, path: &Path, e: &io::Error) -> Flow {
    use io::ErrorKind as K;
    let (level, status) = match e.kind() {
        K::NotFound | K::NotADirectory | K::InvalidFilename => (LogLevel::Error, 404),
        K::PermissionDenied => (LogLevel::Error, 403),
        _ => (LogLevel::Crit, 500),
    };
    r.log(level, &format!("{call}() \"{}\" failed ({})", path.display(), os_text(e)));
    Flow::Status(status)
}

fn invalid_depth(r: &Request) -> Flow {
    r.log(LogLevel::Error, "client sent invalid \"Depth\" header");
    Flow::Status(400)
}

async fn find(r: &mut Request) -> Flow {
    let text = match small_body(r).await {
        Ok(text) => text,
        Err(flow) => return flow,
    };
    let Ok(wanted) = xml::propfind(&text) else {
        r.log(LogLevel::Error, "client sent invalid PROPFIND body");
        return Flow::Status(400);
    };
    let depth = match r.header(HeaderId::Depth) {
        Some(b"0") => Depth::Zero,
        Some(b"1") => Depth::One,
        None | Some(b"infinity") => Depth::Infinity,
        Some(_) => return invalid_depth(r),
    };
    let zone = r.loc().conf::<DavExtLoc>().zone().map(|(zone, _)| Arc::clone(zone));
    let path = own_path(r);
    let supports_locks = zone.is_some();
    // Set when this is given up, because the client has gone.
    let off = Off(Arc::default());
    let question = Question {
        path: path.clone(),
        uri: r.uri.clone(),
        depth,
        wanted,
        zone,
        supports_locks,
        is_off: Arc::clone(&off.0),
    };
    let finding = in_thread(move || propfind::answer(&question));
    let Some(found) = unless_client_goes(r, false, finding).await else {
        r.log(LogLevel::Info, "client prematurely closed connection");
        return Flow::Status(499);
    };
    match found {
        Ok(Ok(answer)) => send_xml(r, 207, Bytes::from_owner(answer)),
        Ok(Err(NoAnswer::Busy)) => {
            r.log(LogLevel::Error, "answers to PROPFIND take all the memory there is for them");
            Flow::Status(503)
        }
        Ok(Err(NoAnswer::ClientGone)) => Flow::Status(499),
        Ok(Err(NoAnswer::Failed(e))) => failed(r, "stat", &path, &e),
        Ok(Err(NoAnswer::TooLong)) => {
            r.log(LogLevel::Error, "a PROPFIND of so many files is refused");
            Flow::Status(507)
        }
        Err(_) => Flow::Status(500),
    }
}

/// Tells a thread, when it is dropped, that nobody waits for what it does.
struct Off(Arc<AtomicBool>);

impl Drop for Off {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn send_xml(r: &mut Request, status: u16, text: Bytes) -> Flow {
    r.out.status = status;
    if status == 207 {
        r.out.set_status_line(b"207 Multi-Status");
    }
    r.out.set_content_type(b"text/xml");
    r.out.set_charset(b"utf-8");
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text).and_last())
}

async fn lock(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let Some((zone, most_ms)) = loc.conf::<DavExtLoc>().zone() else { return Flow::Status(405) };
    let text = match small_body(r).await {
        Ok(text) => text,
        Err(flow) => return flow,
    };
    let infinite = match r.header(HeaderId::Depth) {
        None | Some(b"infinity") => true,
        Some(b"0") => false,
        Some(_) => return invalid_depth(r),
    };
    let Some(said) = read_if(r) else { return Flow::Status(400) };
    let time_ms = wanted_ms(r).map_or(*most_ms, |ms| ms.min(*most_ms));
    let path = own_path(r);
    let Known { path: at, collection } = known(&path);
    let info = match xml::lockinfo(&text) {
        Ok(Some(info)) => info,
        Ok(None) => {
            return match zone.refresh(&at, &said.tokens, time_ms) {
                Some(lock) => granted(r, 200, &lock),
                None => Flow::Status(412),
            };
        }
        Err(_) => {
            r.log(LogLevel::Error, "client sent invalid LOCK body");
            return Flow::Status(400);
        }
    };
    if info.owner_xml().len() > OWNER_MAX_BYTES {
        r.log(LogLevel::Error, "client sent too long an owner of a lock");
        return Flow::Status(413);
    }
    if info.shared || !info.write {
        r.log(LogLevel::Error, "client asked for another lock than an exclusive one for writing");
        return Flow::Status(403);
    }
    if !said.holds(zone) {
        return Flow::Status(412);
    }
    // What is not there yet becomes a member of its collection (RFC 4918, section 7.4).
    let change = Change { path: &at, whole: false, of: Some(&collection) };
    if !path.exists() && zone.hinders(&change, &said.tokens) {
        return Flow::Status(423);
    }
    let mut root = Vec::new();
    weir_base::escape::escape_uri(&mut root, &r.uri, weir_base::escape::EscapeKind::Uri);
    let lock = match zone.lock(&at, root, info.owner_xml(), infinite, time_ms) {
        Ok(lock) => lock,
        Err(NoLock::Locked) => return Flow::Status(423),
        Err(NoLock::Full) => {
            r.log(LogLevel::Alert, "could not allocate a lock: the zone of dav_ext_lock is full");
            return Flow::Status(507);
        }
    };
    match make_file(r, &path).await {
        Ok(is_new) => granted(r, if is_new { 201 } else { 200 }, &lock),
        Err(flow) => {
            zone.unlock(&at, lock.token.as_bytes());
            flow
        }
    }
}

/// What is locked and is not there yet becomes an empty file (RFC 4918, section 7.3); whether it did.
async fn make_file(r: &mut Request, path: &Path) -> Result<bool, Flow> {
    if path.exists() {
        return Ok(false);
    }
    if r.uri.last() == Some(&b'/') {
        return Err(Flow::Status(409));
    }
    let new = path.to_path_buf();
    let make =
        move || files::private(File::options().write(true).create_new(true)).open(&new).map(drop);
    match in_thread(make).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(e)) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Ok(Err(e)) if e.kind() == io::ErrorKind::NotFound => {
            r.log(
                LogLevel::Error,
                &format!("open() \"{}\" failed ({})", path.display(), os_text(&e)),
            );
            Err(Flow::Status(409))
        }
        Ok(Err(e)) => Err(failed(r, "open", path, &e)),
        Err(_) => Err(Flow::Status(500)),
    }
}

/// `Timeout: Second-…` (RFC 4918, section 10.7), the first that is a number.
fn wanted_ms(r: &Request) -> Option<u64> {
    let (_, value) = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"timeout"))?;
    let secs = value.split(|b| *b == b',').find_map(|part| {
        let digits = std::str::from_utf8(part.trim_ascii().strip_prefix(b"Second-")?).ok()?;
        digits.parse::<u64>().ok()
    })?;
    Some(secs.max(1).saturating_mul(1000))
}

fn granted(r: &mut Request, status: u16, lock: &Lock) -> Flow {
    let mut text =
        b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\">\n<D:lockdiscovery>\n".to_vec();
    propfind::active_lock(&mut text, lock);
    text.extend_from_slice(b"</D:lockdiscovery>\n</D:prop>\n");
    r.out.add(b"Lock-Token", format!("<{}>", lock.token).as_bytes());
    send_xml(r, status, Bytes::from(text))
}

fn unlock(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let Some((zone, _)) = loc.conf::<DavExtLoc>().zone() else { return Flow::Status(405) };
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let field = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"lock-token"));
    let token = field.and_then(|(_, v)| v.trim_ascii().strip_prefix(b"<")?.strip_suffix(b">"));
    let Some(token) = token.map(<[u8]>::to_vec) else {
        r.log(LogLevel::Error, "client sent no valid \"Lock-Token\" header");
        return Flow::Status(400);
    };
    let path = own_path(r);
    match zone.unlock(&key(&path), &token) {
        true => Flow::Status(204),
        false => Flow::Status(409),
    }
}
