//! Answers kept for later: nginx's `ngx_http_file_cache` as the directive family of a module that asks
//! servers (`proxy_cache…`; `fastcgi_cache…` is one line more).
//!
//! Role: configuration, the life of one request with an entry ([`State`]), and the decisions of
//! RFC 9111 as nginx makes them. What is kept and how is `weir_cache`'s; what is asked of a server
//! and how its answer is passed on is the asking module's.
//!
//! Differences from nginx, each in its row: a memory tier; waiting requests are woken; a cached
//! answer of unknown length gets its length; HTTP/0.9 answers are not kept; `…_cache_purge` is there.

pub(crate) mod conf;
pub(crate) mod counted;
pub(crate) mod fill;
pub(crate) mod fresh;
pub(crate) mod lookup;
pub(crate) mod purge;
pub(crate) mod rows;
pub(crate) mod standard;
pub(crate) mod vars;
pub(crate) mod vary;

use std::path::PathBuf;
use std::sync::Arc;
use weir_core::figures::{Figures, Report, Served};
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::worker::AtWorker;
use weir_core::{zones, Worker};
use weir_http::generation::HttpConf;
use weir_http::HttpModule;
use weir_module::{SlotVtable, Slots};

/// The stores that families keep answers in, and `$upstream_cache_…`.
pub const MODULE: HttpModule = HttpModule {
    rows: purge::ROWS,
    slots: &[SlotVtable::of::<conf::CacheMain>(), SlotVtable::of::<purge::PurgeLoc>()],
    variables: vars::VARIABLES,
    build: Some(conf::build),
    start: Some(start),
    at_worker: AtWorker {
        quiet: Some(|_| weir_cache::known::forget()),
        ends: Some(ends),
        ..AtWorker::NOTHING
    },
    dirs: Some(dirs),
    reports: &[Report { path: "caches", put: report }, Report { path: "/slabs", put: report_keys }],
    ..HttpModule::EMPTY
};

/// Gives the stores their parameters and starts their threads: for the serving process alone.
fn start(gen: &Arc<Generation>, http: &HttpConf) {
    let main = http.main.get::<conf::CacheMain>();
    if !main.paths.is_empty() {
        weir_http::status_zone::count_cached(|r| {
            lookup::status_of(r).map(|status| status as usize)
        });
    }
    let error_log = Arc::clone(&gen.error_log);
    let log: weir_cache::manager::Log = Arc::new(move |level, text| {
        let level = if level == "warn" { LogLevel::Warn } else { LogLevel::Notice };
        error_log.log(level, None, text.as_bytes());
    });
    for path in &main.paths {
        let Some(store) = &path.store else { continue };
        store.set_params(&path.params);
        if let Err(e) = weir_cache::manager::start(store, &log) {
            let text = format!("starting a cache's manager failed: {e}");
            gen.error_log.log(LogLevel::Alert, None, text.as_bytes());
        }
    }
}

/// What is in memory is noted for the next process: the first worker to end has it as it was.
fn ends(worker: &Worker) {
    let gen = worker.generation();
    let Some(http) = gen.shared.part::<HttpConf>() else { return };
    let stores = http.main.get::<conf::CacheMain>().paths.iter().filter_map(|p| p.store.as_ref());
    for store in stores {
        if let Err(e) = store.note_memory() {
            let text = format!("noting what is in a cache's memory failed ({e})");
            gen.shared.error_log.log(LogLevel::Warn, None, text.as_bytes());
        }
    }
}

/// A larger size is none that somebody has said.
const BOUND_MAX: u64 = i64::MAX as u64 - 1;
fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    let stores = main.get::<conf::CacheMain>().paths.iter();
    for (path, store) in stores.filter_map(|p| Some((p, p.store.as_ref()?))) {
        let figures = figures.entry(&path.name);
        figures.put("size", store.zone.file_bytes());
        // Without a bound there is nothing to be shown.
        if let max @ 1..=BOUND_MAX = store.params().max_bytes {
            figures.put("max_size", max);
        }
        figures.put("cold", store.is_cold());
        counted::put(store, figures);
        figures.put_all(&[
            ("entries", store.zone.entries() as u64),
            ("entries_max", store.zone.entries_max() as u64),
            ("memory_bytes", store.budget.used()),
            ("memory_bytes_max", store.budget.limit()),
        ]);
    }
}

/// Pages of the keys, as those of other zones.
fn report_keys(_: &Served, main: &Slots, figures: &mut Figures) {
    let stores = main.get::<conf::CacheMain>().paths.iter();
    for (path, store) in stores.filter_map(|p| Some((p, p.store.as_ref()?))) {
        let (used, size) = store.key_bytes();
        zones::put_pages(&path.name, size, used, figures);
    }
}

/// The stores' directories, to be given to the workers' user.
fn dirs(http: &HttpConf) -> Vec<PathBuf> {
    let main = http.main.get::<conf::CacheMain>();
    main.paths.iter().map(|p| p.dir.clone()).collect()
}
