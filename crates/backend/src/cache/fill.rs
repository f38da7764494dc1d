//! An answer on its way into a file: an entry of a cache, or a plain one (`…_store`).

use super::conf::{CacheConf, StoreTo};
use super::counted;
use super::fresh::{Fresh, Ignored};
use super::lookup::{any_true, State, Status};
use super::standard;
use super::vary;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use weir_cache::entry::{self, ETAG_MAX_BYTES};
use weir_cache::spool::MakeTemp;
use weir_cache::{Filling, Handle, Meta, Spool, Store};
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
    Entry {
        store: Arc<Store>,
        handle: Box<Handle>,
        meta: Meta,
        filling: Filling,
        head: Vec<u8>,
        status: Option<Status>,
    },
    File {
        path: PathBuf,
        access: u32,
        modified: Option<i64>,
        length: Option<u64>,
    },
}

/// Takes an answer's body.
pub(crate) struct Fill {
    spool: Spool,
    to: To,
    failed: bool,
}

impl Fill {
    pub(crate) fn write(&mut self, r: &Request, bytes: &[u8]) {
        if self.failed || bytes.is_empty() {
            return;
        }
        if let Err(e) = self.spool.write(bytes) {
            self.failed = true;
            r.log(LogLevel::Crit, &format!("a cache's temporary file failed ({e})"));
        }
    }

    /// The whole body has come: the file gets its name.
    pub(crate) fn finish(self, r: &Request) {
        if self.failed {
            return;
        }
        let done = match self.to {
            To::Entry { store, handle, meta, filling, head, status } => {
                let bytes = self.spool.written;
                let done = store.commit(*handle, meta, &filling, &head, self.spool);
                if let (Some(status), true) = (status, done.is_ok()) {
                    counted::written(&store, &r.conn().worker, status, bytes);
                }
                done
            }
            To::File { path, access, modified, length } => {
                if length.is_some_and(|n| n != self.spool.written) {
                    return;
                }
                save(self.spool, &path, access, modified)
            }
        };
        if let Err(e) = done {
            r.log(LogLevel::Crit, &format!("rename() of a kept answer failed ({e})"));
        }
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

/// Where the answer that begins now is to be kept, if anywhere.
pub(crate) fn begin(
    r: &mut Request,
    conf: &CacheConf,
    fresh: &Fresh,
    temp: &Arc<TempPath>,
) -> Option<Fill> {
    let refused = any_true(r, &conf.no_cache);
    let status = r.exchange.head.status;
    let now = clock::wall_secs();
    let until = fresh.until(conf, status, now);
    let state = r.kept::<State>()?;
    if !state.cacheable || refused || until == 0 {
        state.give_up();
        return None;
    }
    let bypassed = state.status == Some(Status::Bypass);
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
    let meta = Meta {
        status,
        valid_sec: until,
        updating_sec: fresh.updating_sec,
        error_sec: fresh.error_sec,
        date: if *conf.standard { standard::asked_sec(r, now) } else { now },
        vary: fresh.vary.clone(),
        variant,
        ..validators(r)
    };
    let head = r.exchange.head_bytes().get(..r.exchange.head.head_len)?;
    let head = match *conf.standard {
        true => standard::head::kept(head, &fresh.unkept, now),
        false => head.to_vec(),
    };
    let header = entry::encode(&meta, filling.key_text(), &head, 0);
    let make = match store.params().use_temp_path {
        true => temp_maker(temp),
        false => store.temp_beside(&handle.key()),
    };
    let status = r.kept::<State>().and_then(|state| state.status);
    let to = To::Entry { store, handle: Box::new(handle), meta, filling, head, status };
    Some(Fill { spool: Spool::new(header, make), to, failed: false })
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
    };
    Some(Fill { spool: Spool::new(Vec::new(), temp_maker(temp)), to, failed: false })
}

/// An error that is answered by a page of ours is remembered instead of kept.
pub(crate) fn remember(r: &mut Request, status: u16, until: i64) {
    let Some(state) = r.kept::<State>() else { return };
    if state.cacheable && until != 0 {
        let entry = state.entry.as_mut();
        let entry = entry.filter(|e| !e.filling.as_ref().is_some_and(Filling::is_purged));
        if let Some(handle) = entry.and_then(|e| e.handle.as_mut()) {
            handle.remember_error(status, until);
        }
    }
    state.give_up();
}
