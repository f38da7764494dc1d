//! What is counted of a store's answers, by `$upstream_cache_status`.

use super::conf::Use;
use super::lookup::{store_of, State, Status};
use crate::conf::BackendLoc;
use weir_cache::{Served, Store, EVICTED};
use weir_core::figures::Figures;
use weir_core::Worker;
use weir_http::Request;

/// Those that answer from what is kept, and those that ask a server; NGINX Plus's names.
const KEPT: [(Status, &str); 4] = [
    (Status::Hit, "hit"),
    (Status::Stale, "stale"),
    (Status::Updating, "updating"),
    (Status::Revalidated, "revalidated"),
];
const ASKED: [(Status, &str); 3] =
    [(Status::Miss, "miss"), (Status::Expired, "expired"), (Status::Bypass, "bypass")];

fn count(store: &Store, worker: &Worker, status: Status, f: impl FnOnce(&Served)) {
    if let Some(part) = store.served.part(worker) {
        f(&part.by_status[status as usize]);
    }
}

/// A request is answered with what is kept, which is so long.
pub(crate) fn answered(r: &mut Request, conf: &BackendLoc, bytes: u64) {
    let (mut status, mut store) = (Status::Hit, None);
    if let Some(state) = r.kept::<State>() {
        status = state.status.unwrap_or(Status::Hit);
        store = state.entry.as_ref().map(|entry| std::sync::Arc::clone(&entry.store));
    }
    let add = |served: &Served| {
        served.responses.add(1);
        served.bytes.add(bytes);
    };
    if let Some(store) = store {
        return count(&store, &r.conn().worker, status, add);
    }
    match &*conf.cache.cache {
        Use::Zone(named) => {
            if let Some(store) = named.store() {
                count(store, &r.conn().worker, status, add);
            }
        }
        _ => {
            if let Ok(Some(store)) = store_of(r, &conf.cache) {
                count(&store, &r.conn().worker, status, add);
            }
        }
    }
}

/// A server has answered a request that was looked for.
#[inline(never)]
pub(crate) fn asked(r: &mut Request) {
    let bytes = r.upstream.last().map_or(0, |state| state.bytes_received);
    let worker = std::rc::Rc::clone(&r.conn().worker);
    let Some(state) = r.kept::<State>() else { return };
    let (Some(status), Some(entry)) = (state.status, &state.entry) else { return };
    if ASKED.iter().any(|(asked, _)| *asked == status) {
        count(&entry.store, &worker, status, |served| {
            served.responses.add(1);
            served.bytes.add(bytes);
        });
    }
}

/// An answer has been kept, which is so long.
pub(crate) fn written(store: &Store, worker: &Worker, status: Status, bytes: u64) {
    count(store, worker, status, |served| {
        served.written.add(1);
        served.bytes_written.add(bytes);
    });
}

/// Notes all of it.
pub(crate) fn put(store: &Store, figures: &mut Figures) {
    let all = store.served.all();
    let evictions = figures.group("evictions");
    for (n, name) in EVICTED.into_iter().enumerate() {
        evictions.put(name, store.evicted(n));
    }
    figures.put("lock_waits", all.times(|part| &part.lock_waits));
    for (status, name) in KEPT.into_iter().chain(ASKED) {
        let of = |pick: fn(&Served) -> u64| all.sum(|part| pick(&part.by_status[status as usize]));
        let group = figures.group(name);
        group.put("responses", of(|s| s.responses.get()));
        group.put("bytes", of(|s| s.bytes.get()));
        if ASKED.iter().any(|(asked, _)| *asked == status) {
            group.put("responses_written", of(|s| s.written.get()));
            group.put("bytes_written", of(|s| s.bytes_written.get()));
        }
    }
}
