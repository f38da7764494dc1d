//! The directives of caches, once for every family that has them.

use super::conf::{CacheConf, CacheMain, CachePath, Named, StoreTo, Use};
use super::purge::set_purge;
use crate::bits::next;
use crate::conf::BackendConf;
use crate::rows::Rows;
use crate::rows::{add_bits, pick};
use std::sync::Arc;
use weir_base::units;
use weir_cache::store::{Pace, Params};
use weir_core::paths::access;
use weir_core::zones;
use weir_http::vars::template;
use weir_module::first::{flag, msec, offset};
use weir_module::{name, set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_script::template::Template;
use weir_wire::http1::request::Method;

const PAGE_BYTES: u64 = 4096;
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;

const HSL: Context = Context::HSL;

fn cache<T: BackendConf>(cf: &mut Cf) -> &mut CacheConf {
    &mut pick::<T>(cf).cache
}

impl<T: BackendConf> Rows<T> {
    /// About stores and files, for a family whose answers may be kept.
    pub(crate) const CACHE: &'static [Row] = &[
        Row::new(name!("cache"), HSL, Arity::ONE, "off", "Keeps answers in this zone.", set_cache::<T>).note("HTTP/0.9 answers are not kept"),
        Row::new(name!("cache_path"), Context::HTTP, Arity::TWO_MORE, "", "A store of answers: directory and parameters.", set_path)
            .note("the file format is our own; memory=SIZE (32m) bounds what is also kept in memory: answers up to 256k and \
                   their compressed forms (0 for none), each compared with its file at most once a second, so that files removed by hand (rm -rf) are missed within a second; what is in memory is noted every minute and at a graceful end (QUIT), and read \
                   first after a start; the loader begins at once; \
                   purger=on: purges that are not finished when the process ends are by the next one, and hold from its first request on; the time of inactive passes \
                   whatever the system's date is set to"),
        Row::new(name!("cache_key"), HSL, Arity::ONE, T::KEY, "What an answer is kept under.", set_key::<T>),
        Row::new(name!("cache_valid"), HSL, Arity::ONE_MORE, "", "How long answers that do not say so are fresh.", set_valid::<T>),
        Row::new(name!("cache_bypass"), HSL, Arity::ONE_MORE, "", "When answers are not taken from the cache.", set_bypass::<T>),
        Row::new(name!("no_cache"), HSL, Arity::ONE_MORE, "", "When answers are not kept.", set_no_cache::<T>),
        Row::new(name!("cache_purge"), HSL, Arity::ONE_MORE, "", "When a request purges its key: strings, or on|METHOD [purge_all] [from all|NETWORK...], or in a location of its own ZONE KEY; a final * purges all that begin so.", set_purge::<T>)
            .note("strings as in NGINX Plus (204, or 404 when there was nothing), the rest as in ngx_cache_purge (200 with a page, 412, 403 for other networks); a word without a variable is a method; \
                   strings purge variants with their key; a wildcard's files are removed in a thread before the answer, or behind it with purger=on; an answer that is still being fetched is not kept"),
        Row::new(name!("cache_methods"), HSL, Arity::ONE_MORE, "GET HEAD", "Methods whose answers are kept.", set_methods::<T>),
        Row::new(name!("cache_min_uses"), HSL, Arity::ONE, "1", "Requests before an answer is kept.", set!(cache::<T>, min_uses, |d| d.num(0).map(|n| u32::try_from(n).unwrap_or(u32::MAX)))),
        Row::new(name!("cache_lock"), HSL, Arity::FLAG, "off", "One request at a time fills an entry.", set!(cache::<T>, lock, flag))
            .note("those that wait are woken when it is filled"),
        Row::new(name!("cache_lock_timeout"), HSL, Arity::ONE, "5s", "Longest wait for it; then asked, not kept.", set!(cache::<T>, lock_timeout_ms, msec)),
        Row::new(name!("cache_lock_age"), HSL, Arity::ONE, "5s", "When another request may fill it.", set!(cache::<T>, lock_age_ms, msec)),
        Row::new(name!("cache_use_stale"), HSL, Arity::ONE_MORE, "off", "When an answer that is no longer fresh will do.", set_use_stale::<T>),
        Row::new(name!("cache_background_update"), HSL, Arity::FLAG, "off", "Renews behind a stale answer.", set!(cache::<T>, background_update, flag)),
        Row::new(name!("cache_revalidate"), HSL, Arity::FLAG, "off", "Asks whether a stale answer still holds.", set!(cache::<T>, revalidate, flag)).note("A 304 renews only when the server was asked by the validators of what is kept, and by no others: nginx takes any, also the one for a client whose condition the configuration passes on."),
        Row::new(name!("cache_standard"), HSL, Arity::FLAG, "off", "A shared cache as RFC 9111, 5861, 9213 and 9211 have it.", set!(cache::<T>, standard, flag))
            .note("not in nginx. on: Age, Cache-Status and CDN-Cache-Control; requests' Cache-Control; one request at a time fills or renews an entry; stale answers are confirmed, and \
                   renewed behind what is sent where their server allows it; a 304 changes what is kept; unsafe methods remove it. X-Accel-Expires goes before all, Set-Cookie still keeps an \
                   answer from being kept, and hits are looked up without the short way. Parts: where a range begins behind _cache_max_range_offset, or parts of its answer are \
                   kept already, the client's one range is asked for, and its 206 kept if it has a strong validator and says how long the whole is; so is an answer of more than 64k that is cut off. \
                   Parts of one representation are joined, a range that is there is answered, and all of them are the answer; at most 32 that do not touch; who wants all where parts are kept has all asked for; files beside their places whatever \
                   use_temp_path says. Ranges that the configuration asks for itself (slices) are kept as they are"),
        Row::new(name!("cache_max_range_offset"), HSL, Arity::ONE, "", "Ranges that begin later are not kept.", set!(cache::<T>, max_range_offset, offset))
            .note("with _cache_standard they are kept as parts"),
        Row::new(name!("store"), HSL, Arity::ONE, "off", "Saves answers as plain files.", set_store::<T>),
        Row::new(name!("store_access"), HSL, Arity::ONE_TO_THREE, "user:rw", "Rights of such files.", set_store_access::<T>),
    ];
}

fn set_cache<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let conf = cache::<T>(cf);
    if conf.cache.is_set() {
        return Err(d.error("is duplicate"));
    }
    if d.arg(0) == b"off" {
        conf.cache.set(Use::Off);
        return Ok(());
    }
    if conf.store.as_option().is_some_and(|s| !matches!(s, StoreTo::Off)) {
        return Err(d.error(&format!("is incompatible with \"{}\"", name!("store"))));
    }
    let template = template(cf, d, 0)?;
    let used = match template.as_constant() {
        Some(name) => {
            let name = name.to_vec();
            let named = Arc::new(Named::new(name!("cache"), name));
            cf.get::<CacheMain>().named.push(Arc::clone(&named));
            Use::Zone(named)
        }
        None => Use::Vars(Arc::new(template)),
    };
    let conf = cache::<T>(cf);
    conf.cache_at = Some(d.position());
    conf.cache.set(used);
    Ok(())
}

fn set_key<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let key = Arc::new(template(cf, d, 0)?);
    cache::<T>(cf).key.once(d, Some(key))
}

/// Appends to a list of this level.
fn extend<T: Clone>(list: &mut Val<Arc<Vec<T>>>, items: Vec<T>) {
    let mut all = list.as_option().map(|l| l.to_vec()).unwrap_or_default();
    all.extend(items);
    list.set(Arc::new(all));
}

fn templates(cf: &mut Cf, d: &Directive) -> ConfResult<Vec<Template>> {
    (0..d.args.len()).map(|i| template(cf, d, i)).collect()
}

fn set_bypass<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let list = templates(cf, d)?;
    extend(&mut cache::<T>(cf).bypass, list);
    Ok(())
}

fn set_no_cache<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let list = templates(cf, d)?;
    extend(&mut cache::<T>(cf).no_cache, list);
    Ok(())
}

fn set_valid<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let last = d.args.len() - 1;
    let shown = |i: usize| String::from_utf8_lossy(d.arg(i)).into_owned();
    let secs = units::parse_sec(d.arg(last))
        .ok_or_else(|| d.bad(last, format!("invalid time value \"{}\"", shown(last))))?;
    let secs = i64::try_from(secs).unwrap_or(i64::MAX);
    let mut list = Vec::new();
    if last == 0 {
        list.extend([200, 301, 302].map(|status| (status, secs)));
    }
    for i in 0..last {
        let status = match d.arg(i) {
            b"any" => 0,
            text => units::parse_int(text)
                .filter(|n| (100..=599).contains(n))
                .ok_or_else(|| d.bad(i, format!("invalid status \"{}\"", shown(i))))?,
        };
        list.push((status as u16, secs));
    }
    extend(&mut cache::<T>(cf).valid, list);
    Ok(())
}

fn set_methods<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let words: Vec<(&str, u32)> = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("MKCOL", Method::Mkcol),
        ("COPY", Method::Copy),
        ("MOVE", Method::Move),
        ("OPTIONS", Method::Options),
        ("PROPFIND", Method::Propfind),
        ("PROPPATCH", Method::Proppatch),
        ("LOCK", Method::Lock),
        ("UNLOCK", Method::Unlock),
        ("PATCH", Method::Patch),
    ]
    .map(|(name, method)| (name, method.bit()))
    .to_vec();
    let mut bits = 0;
    for i in 0..d.args.len() {
        bits |= d.choice(i, &words)?;
    }
    add_bits(&mut cache::<T>(cf).methods, bits);
    Ok(())
}

const STALE: &[(&str, u32)] = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_header", next::INVALID_HEADER),
    ("updating", next::UPDATING),
    ("http_500", next::HTTP_500),
    ("http_502", next::HTTP_502),
    ("http_503", next::HTTP_503),
    ("http_504", next::HTTP_504),
    ("http_403", next::HTTP_403),
    ("http_404", next::HTTP_404),
    ("http_429", next::HTTP_429),
    ("non_idempotent", next::NON_IDEMPOTENT),
    ("off", next::OFF),
];

fn set_use_stale<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut bits = 0;
    for i in 0..d.args.len() {
        let bit = d.choice(i, STALE)?;
        if bits & bit != 0 {
            let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
            cf.warn(d, format!("duplicate value \"{shown}\""));
        }
        bits |= bit;
    }
    add_bits(&mut cache::<T>(cf).use_stale, bits);
    Ok(())
}

fn set_store<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let conf = cache::<T>(cf);
    if conf.store.is_set() {
        return Err(d.error("is duplicate"));
    }
    if d.arg(0) == b"off" {
        conf.store.set(StoreTo::Off);
        return Ok(());
    }
    if d.arg(0).is_empty() {
        return Err(d.bad(0, "empty path"));
    }
    if conf.cache.as_option().is_some_and(|c| !matches!(c, Use::Off)) {
        return Err(d.error(&format!("is incompatible with \"{}\"", name!("cache"))));
    }
    let to = match d.arg(0) {
        b"on" => StoreTo::Mapped,
        _ => StoreTo::Path(Arc::new(template(cf, d, 0)?)),
    };
    cache::<T>(cf).store.set(to);
    Ok(())
}

fn set_store_access<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mode = access(d)?;
    cache::<T>(cf).store_access.once(d, mode)
}

/// `…_cache_path`
pub(crate) fn set_path(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut dir = d.arg(0);
    while dir.len() > 1 && dir.last() == Some(&b'/') {
        dir = &dir[..dir.len() - 1];
    }
    let mut path = CachePath {
        name: Vec::new(),
        size: 0,
        dir: cf.full_path(dir),
        levels: [0; 3],
        params: Params {
            use_temp_path: true,
            inactive_secs: 600,
            max_bytes: u64::MAX,
            min_free_bytes: 0,
            memory_bytes: MEMORY_BYTES,
            manager: Pace { files: 100, sleep_ms: 50, threshold_ms: 200 },
            loader: Pace { files: 100, sleep_ms: 50, threshold_ms: 200 },
            purger: None,
        },
        store: None,
    };
    let mut purger = (false, Pace { files: 10, sleep_ms: 50, threshold_ms: 50 });
    for i in 1..d.args.len() {
        parameter(d, i, &mut path, &mut purger)?;
    }
    path.params.purger = purger.0.then_some(purger.1);
    if path.size == 0 {
        let name = d.name();
        return Err(d.fail(format!("\"{name}\" must have \"keys_zone\" parameter")));
    }
    if cf.get::<CacheMain>().by_name.contains_key(&path.name) {
        let shown = String::from_utf8_lossy(&path.name).into_owned();
        return Err(d.fail(format!("duplicate zone \"{shown}\"")));
    }
    zones::declare(cf, d, 0, &path.name, "cache", path.size)?;
    let main = cf.get::<CacheMain>();
    main.by_name.insert(path.name.clone(), main.paths.len());
    main.paths.push(path);
    Ok(())
}

/// Reads one parameter; `purger`: whether there is to be one, and its pace.
fn parameter(
    d: &Directive,
    i: usize,
    path: &mut CachePath,
    purger: &mut (bool, Pace),
) -> ConfResult {
    let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
    let Some((key, value)) = weir_base::bytes::split_once(d.arg(i), b'=') else {
        return Err(d.bad(i, format!("invalid parameter \"{shown}\"")));
    };
    let invalid = |name: &str| d.bad(i, format!("invalid {name} value \"{shown}\""));
    let name = String::from_utf8_lossy(key).into_owned();
    let need = |n: Option<u64>| n.ok_or_else(|| invalid(&name));
    let p = &mut path.params;
    match key {
        b"levels" => {
            path.levels =
                levels(value).ok_or_else(|| d.bad(i, format!("invalid \"levels\" \"{shown}\"")))?;
        }
        b"use_temp_path" => {
            p.use_temp_path = on_or_off(d, i, "use_temp_path", value)?;
        }
        b"keys_zone" => return keys_zone(d, i, value, path),
        b"inactive" => p.inactive_secs = need(units::parse_sec(value))?,
        b"max_size" => p.max_bytes = need(units::parse_offset(value))?,
        b"min_free" => p.min_free_bytes = need(units::parse_offset(value))?,
        b"memory" => p.memory_bytes = need(units::parse_size(value))?,
        b"manager_files" => p.manager.files = need(units::parse_int(value))?,
        b"manager_sleep" => p.manager.sleep_ms = need(units::parse_msec(value))?,
        b"manager_threshold" => p.manager.threshold_ms = need(units::parse_msec(value))?,
        b"loader_files" => p.loader.files = need(units::parse_int(value))?,
        b"loader_sleep" => p.loader.sleep_ms = need(units::parse_msec(value))?,
        b"loader_threshold" => p.loader.threshold_ms = need(units::parse_msec(value))?,
        b"purger" => purger.0 = on_or_off(d, i, "purger", value)?,
        b"purger_files" => purger.1.files = need(units::parse_int(value))?,
        b"purger_sleep" => purger.1.sleep_ms = need(units::parse_msec(value))?,
        b"purger_threshold" => purger.1.threshold_ms = need(units::parse_msec(value))?,
        _ => return Err(d.bad(i, format!("invalid parameter \"{shown}\""))),
    }
    Ok(())
}

fn on_or_off(d: &Directive, i: usize, name: &str, value: &[u8]) -> ConfResult<bool> {
    units::parse_flag(value).ok_or_else(|| {
        let shown = String::from_utf8_lossy(d.arg(i));
        let text = "it must be \"on\" or \"off\"";
        d.bad(i, format!("invalid {name} value \"{shown}\", {text}"))
    })
}

fn levels(text: &[u8]) -> Option<[u8; 3]> {
    let mut levels = [0; 3];
    for (i, part) in text.split(|b| *b == b':').enumerate() {
        *levels.get_mut(i)? = match part {
            b"1" => 1,
            b"2" => 2,
            _ => return None,
        };
    }
    Some(levels)
}

fn keys_zone(d: &Directive, i: usize, value: &[u8], path: &mut CachePath) -> ConfResult {
    let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
    let invalid = || d.bad(i, format!("invalid keys zone size \"{shown}\""));
    let (name, size) = weir_base::bytes::split_once(value, b':').ok_or_else(invalid)?;
    let size = units::parse_size(size).ok_or_else(invalid)?;
    if size < 2 * PAGE_BYTES {
        return Err(d.bad(i, format!("keys zone \"{shown}\" is too small")));
    }
    path.name = name.to_vec();
    path.size = size;
    Ok(())
}
