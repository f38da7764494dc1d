//! An answer on its way into a file: an entry of a cache, or a plain one (`…_store`).

use super::conf::{CacheConf, StoreTo};
use super::counted;
use super::fresh::{Fresh, Ignored};
use super::lookup::{any_true, State, Status};
use super::standard;
use super::standard::parts::{self, Part};
use super::vary;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use weir_cache::entry::{self, ETAG_MAX_BYTES};
use weir_cache::spool::MakeTemp;
use weir_cache::{Filling, Handle, Key, Meta, NewPart, PartFill, Resumable, Spool, Store};
use weir_core::logger::LogLevel;
use weir_core::paths::TempPath;
use weir_core::temp::{Life, TempFile};
use weir_core::Session;
use weir_http::location::map_uri;
use weir_http::Request;
use weir_runtime::clock;
use weir_runtime::{files, paths};
use weir_wire::http1::names::ResponseHeaderId as Id;

enum To {
    Entry(Box<Entry>, Spool),
    Part { store: Arc<Store>, handle: Handle, filling: Filling, part: Box<PartFill> },
    File { path: PathBuf, access: u32, modified: Option<i64>, length: Option<u64>, spool: Spool },
}

/// What an entry is to be.
struct Entry {
    store: Arc<Store>,
    handle: Handle,
    meta: Meta,
    filling: Filling,
    head: Vec<u8>,
    /// The header has room for a list of parts, should it be cut off.
    cut: Option<Resumable>,
    /// As what the request is counted.
    status: Option<Status>,
}

/// Takes an answer's body.
pub(crate) struct Fill {
    to: To,
    failed: bool,
}

impl Fill {
    pub(crate) fn write(&mut self, r: &Request, bytes: &[u8]) {
        if self.failed || bytes.is_empty() {
            return;
        }
        let written = match &mut self.to {
            To::Entry(_, spool) | To::File { spool, .. } => spool.write(bytes),
            To::Part { part, .. } => part.write(bytes),
        };
        if let Err(e) = written {
            self.failed = true;
            r.log(LogLevel::Crit, &format!("a cache's temporary file failed ({e})"));
        }
    }

    pub(crate) fn is_part(&self) -> bool {
        matches!(self.to, To::Part { .. })
    }

    /// The whole body has come: the file gets its name.
    pub(crate) fn finish(self, r: &Request) {
        self.end(r, true);
    }

    /// It was cut off: where it can be gone on with, what has come is kept.
    pub(crate) fn cut(self, r: &Request) {
        self.end(r, false);
    }

    fn end(self, r: &Request, is_whole: bool) {
        if self.failed {
            return;
        }
        let done = match self.to {
            To::Entry(entry, spool) => entry.end(r, spool, is_whole),
            To::Part { store, handle, filling, part } => store.commit_part(handle, &filling, *part),
            To::File { .. } if !is_whole => return,
            To::File { path, access, modified, length, spool } => {
                if length.is_some_and(|n| n != spool.written) {
                    return;
                }
                save(spool, &path, access, modified)
            }
        };
        if let Err(e) = done {
            r.log(LogLevel::Crit, &format!("rename() of a kept answer failed ({e})"));
        }
    }
}

impl Entry {
    fn end(self, r: &Request, spool: Spool, is_whole: bool) -> io::Result<()> {
        let Entry { store, handle, meta, filling, head, cut, status } = self;
        let bytes = spool.written;
        let done = match (cut, is_whole) {
            (None, false) => Ok(()),
            (Some(of), false) => store.commit_cut(handle, &meta, &filling, &head, spool, of),
            (None, true) => store.commit(handle, meta, &filling, &head, spool),
            (Some(of), true) => {
                let head = of.roomy(&head).ok_or(io::ErrorKind::InvalidData)?;
                store.commit(handle, meta, &filling, &head, spool)
            }
        };
        if let (Some(status), true) = (status, is_whole && done.is_ok()) {
            counted::written(&store, &r.conn().worker, status, bytes);
        }
        done
    }
}

fn save(
    spool: Spool,
    path: &std::path::Path,
    access: u32,
    modified: Option<i64>,
) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        // Whoever may read a file may enter its directory.
        let mode = access | (access & 0o444) >> 2;
        files::make_dirs(dir, mode)?;
    }
    let finish = |file: &File| {
        files::set_mode(file, access)?;
        match modified.and_then(|secs| u64::try_from(secs).ok()) {
            Some(secs) => {
                file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs))
            }
            None => Ok(()),
        }
    };
    spool.rename(path, finish).map(drop)
}

/// What the answer's head says about keeping it; the request's state follows it.
pub(crate) fn judge(r: &mut Request, conf: &CacheConf, ignored: Ignored) -> Fresh {
    let now = clock::wall_secs();
    let fresh = match *conf.standard {
        true => standard::judged(r, ignored, now),
        false => Fresh::of(&r.exchange.head, r.exchange.head_bytes(), ignored, now),
    };
    if let Some(state) = r.kept::<State>() {
        state.cacheable &= fresh.cacheable;
    }
    fresh
}

/// `…_no_cache`. Behind the header nothing can be said any more of what cannot be told: it is not kept.
pub(crate) fn is_refused(r: &mut Request, conf: &CacheConf) -> bool {
    if !r.flags.header_sent || conf.no_cache.is_empty() {
        return any_true(r, &conf.no_cache);
    }
    let (refused, is_sure) = r.certain(|r| any_true(r, &conf.no_cache));
    refused || !is_sure
}

/// Where the answer that begins now is to be kept, if anywhere.
pub(crate) fn begin(
    r: &mut Request,
    conf: &CacheConf,
    fresh: &Fresh,
    temp: &Arc<TempPath>,
) -> Option<Fill> {
    let state = r.kept::<State>()?;
    let part = state.part.take();
    let status = kept_status(r, conf, part.is_some());
    let now = clock::wall_secs();
    let until = status.map_or(0, |status| fresh.until(conf, status, now));
    let state = r.kept::<State>()?;
    if !state.cacheable || until == 0 {
        state.give_up();
        return None;
    }
    let place = place(r, conf, fresh)?;
    let meta = Meta {
        status: status?,
        valid_sec: until,
        updating_sec: fresh.updating_sec,
        error_sec: fresh.error_sec,
        date: if *conf.standard { standard::asked_sec(r, now) } else { now },
        vary: fresh.vary.clone(),
        variant: place.variant,
        ..validators(r)
    };
    match part.filter(|_| r.exchange.head.status == 206) {
        Some(part) => begin_part(r, place, meta, fresh, &part),
        None => begin_whole(r, conf, place, meta, fresh, temp),
    }
}

/// The status that the answer would be kept with, if it may be: nothing but parts is asked for as parts.
fn kept_status(r: &Request, conf: &CacheConf, is_part: bool) -> Option<u16> {
    match r.exchange.head.status {
        206 if is_part => Some(200),
        206 if conf.takes_parts => None,
        status if is_part && status != 200 => None,
        status => Some(status),
    }
}

/// The entry that an answer belongs to.
struct Place {
    store: Arc<Store>,
    handle: Handle,
    filling: Filling,
    variant: Option<Key>,
    /// As what the request is counted.
    status: Option<Status>,
}

fn place(r: &mut Request, conf: &CacheConf, fresh: &Fresh) -> Option<Place> {
    let state = r.kept::<State>()?;
    let status = state.status;
    let bypassed = status == Some(Status::Bypass);
    let entry = state.entry.as_mut()?;
    let (store, main) = (Arc::clone(&entry.store), entry.main);
    let filling = entry.filling.take()?;
    let mut handle = entry.handle.take();
    if bypassed {
        handle = store.enter(main, 1);
    }
    let mut handle = handle?;
    let variant =
        (!fresh.vary.is_empty()).then(|| vary::variant(r, &main, &fresh.vary, *conf.standard));
    if handle.key() != main && variant != Some(handle.key()) {
        // It no longer is a variant, or varies by something else: it replaces the whole.
        handle = store.enter(main, 1)?;
    }
    Some(Place { store, handle, filling, variant, status })
}

fn begin_whole(
    r: &Request,
    conf: &CacheConf,
    place: Place,
    meta: Meta,
    fresh: &Fresh,
    temp: &Arc<TempPath>,
) -> Option<Fill> {
    let Place { store, handle, filling, status, .. } = place;
    let head = r.exchange.head_bytes().get(..r.exchange.head.head_len)?;
    let head = match *conf.standard {
        true => standard::head::kept(head, &fresh.unkept, clock::wall_secs()),
        false => head.to_vec(),
    };
    let cut = if conf.takes_parts { parts::resumable(r) } else { None };
    let header = match cut {
        Some(cut) => entry::encode(&meta, filling.key_text(), &cut.roomy(&head)?, 0),
        None => entry::encode(&meta, filling.key_text(), &head, 0),
    };
    let make = match store.params().use_temp_path {
        true => temp_maker(temp),
        false => store.temp_beside(&handle.key()),
    };
    let entry = Entry { store, handle, meta, filling, head, cut, status };
    Some(Fill { to: To::Entry(Box::new(entry), Spool::new(header, make)), failed: false })
}

fn begin_part(r: &Request, place: Place, meta: Meta, fresh: &Fresh, asked: &Part) -> Option<Fill> {
    let Place { store, handle, filling, .. } = place;
    let (from, to, body_len) = parts::place(r)?;
    let head = r.exchange.head_bytes().get(..r.exchange.head.head_len)?;
    let head = standard::head::of_whole(head, body_len);
    let new = NewPart {
        key: handle.key(),
        meta,
        key_text: filling.key_text(),
        head: standard::head::kept(&head, &fresh.unkept, clock::wall_secs()),
        from,
        to,
        body_len,
        old: asked.old.as_ref(),
        pad: standard::head::padded,
    };
    let part = store.begin_part(new);
    if let Err(e) = &part {
        r.log(LogLevel::Crit, &format!("a part of an answer is not kept ({e})"));
    }
    let part = Box::new(part.ok()??);
    Some(Fill { to: To::Part { store, handle, filling, part }, failed: false })
}

/// What a full answer can be confirmed by.
pub(crate) fn validators(r: &Request) -> Meta {
    let head = &r.exchange.head;
    if !matches!(head.status, 200 | 206) {
        return Meta::default();
    }
    let value = |id| head.value(id, r.exchange.head_bytes());
    let etag = value(Id::ETag).filter(|e| e.len() <= ETAG_MAX_BYTES);
    Meta {
        last_modified: value(Id::LastModified).and_then(weir_base::date::parse_http_time),
        etag: etag.map(<[u8]>::to_vec).unwrap_or_default(),
        ..Meta::default()
    }
}

fn temp_maker(temp: &Arc<TempPath>) -> MakeTemp {
    let temp = Arc::clone(temp);
    Box::new(move || {
        let file = TempFile::create(&temp, Life::Kept)?;
        Ok((file.file.try_clone()?, file.path.clone()))
    })
}

/// `…_store`: an answer that is whole and well is saved as a plain file.
pub(crate) fn begin_store(r: &mut Request, conf: &CacheConf, temp: &Arc<TempPath>) -> Option<Fill> {
    if r.exchange.head.status != 200 {
        return None;
    }
    let path = match &*conf.store {
        StoreTo::Off => return None,
        StoreTo::Mapped => {
            let uri = r.uri.clone();
            map_uri(r, &uri)
        }
        StoreTo::Path(template) => paths::path(&r.eval(template)).into_owned(),
    };
    if path.as_os_str().is_empty() {
        return None;
    }
    let head = &r.exchange.head;
    let modified = head.value(Id::LastModified, r.exchange.head_bytes());
    let to = To::File {
        path,
        access: *conf.store_access,
        modified: modified.and_then(weir_base::date::parse_http_time),
        length: head.content_length.filter(|_| !head.chunked),
        spool: Spool::new(Vec::new(), temp_maker(temp)),
    };
    Some(Fill { to, failed: false })
}

/// An error that is answered by a page of ours is remembered instead of kept.
pub(crate) fn remember(r: &mut Request, status: u16, until: i64) {
    let Some(state) = r.kept::<State>() else { return };
    if state.cacheable && until != 0 && state.part.is_none() {
        let entry = state.entry.as_mut();
        let entry = entry.filter(|e| !e.filling.as_ref().is_some_and(Filling::is_purged));
        if let Some(handle) = entry.and_then(|e| e.handle.as_mut()) {
            handle.remember_error(status, until);
        }
    }
    state.give_up();
}
