//! What is configured of a cache: stores at the main level, their use in locations.

use crate::bits::next;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use weir_base::addr::Cidr;
use weir_cache::store::Params;
use weir_cache::Store;
use weir_conf::Position;
use weir_core::zones;
use weir_module::{merge_values, slot, ConfResult, ConfType, Diagnostic, Level, Val};
use weir_script::template::Template;

/// One `…_cache_path`.
pub(crate) struct CachePath {
    pub(crate) name: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) dir: PathBuf,
    pub(crate) levels: [u8; 3],
    pub(crate) params: Params,
    pub(crate) store: Option<Arc<Store>>,
}

#[derive(Default)]
pub(crate) struct CacheMain {
    pub(crate) paths: Vec<CachePath>,
    pub(crate) by_name: HashMap<Vec<u8>, usize, foldhash::fast::RandomState>,
    /// What names a store: given it once all are known.
    pub(crate) named: Vec<Arc<Named>>,
    /// `cache_purge_…`
    pub(crate) purge_legacy_status: Val<bool>,
    pub(crate) purge_vary_aware: Val<bool>,
}

impl ConfType for CacheMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

impl CacheMain {
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<Store>> {
        self.by_name.get(name).and_then(|at| self.paths[*at].store.as_ref())
    }
}

/// A store as a directive names it.
pub(crate) struct Named {
    directive: &'static str,
    name: Vec<u8>,
    store: OnceLock<Arc<Store>>,
}

impl Named {
    pub(crate) fn new(directive: &'static str, name: Vec<u8>) -> Named {
        Named { directive, name, store: OnceLock::new() }
    }

    /// Of a generation that has been built there is one.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }
}

/// `…_cache`
#[derive(Clone)]
pub(crate) enum Use {
    Off,
    Zone(Arc<Named>),
    Vars(Arc<Template>),
}

/// `…_cache_purge`
#[derive(Default)]
pub(crate) enum Purge {
    #[default]
    Off,
    /// Where one of the strings is neither empty nor `0`.
    If(Vec<Template>),
    ByMethod(ByMethod),
    /// The location does nothing else.
    Entry {
        zone: Use,
        key: Template,
    },
}

/// Requests of a method, by whom it is allowed to.
pub(crate) struct ByMethod {
    pub(crate) method: Vec<u8>,
    /// The whole store is emptied.
    pub(crate) all: bool,
    /// Everybody, if there is no list.
    pub(crate) from: Option<Vec<Cidr>>,
}

/// `…_store`
#[derive(Clone)]
pub(crate) enum StoreTo {
    Off,
    /// Where the URI leads under `root` or `alias`.
    Mapped,
    Path(Arc<Template>),
}

/// A location's part; a field of the asking module's own configuration.
#[derive(Default)]
pub(crate) struct CacheConf {
    pub(crate) cache: Val<Use>,
    /// Where it is said; inherited with it.
    pub(crate) cache_at: Option<Position>,
    pub(crate) key: Val<Option<Arc<Template>>>,
    /// Status (0 for any) and seconds, in order.
    pub(crate) valid: Val<Arc<Vec<(u16, i64)>>>,
    pub(crate) bypass: Val<Arc<Vec<Template>>>,
    pub(crate) no_cache: Val<Arc<Vec<Template>>>,
    pub(crate) purge: Val<Arc<Purge>>,
    pub(crate) methods: Val<u32>,
    pub(crate) min_uses: Val<u32>,
    pub(crate) lock: Val<bool>,
    pub(crate) lock_timeout_ms: Val<u64>,
    pub(crate) lock_age_ms: Val<u64>,
    pub(crate) use_stale: Val<u32>,
    pub(crate) background_update: Val<bool>,
    pub(crate) revalidate: Val<bool>,
    pub(crate) convert_head: Val<bool>,
    /// The standards are kept to, where nginx reads them its own way.
    pub(crate) standard: Val<bool>,
    /// Parts of answers are asked for and kept: the standards are kept to, and no range is configured. Said by the
    /// family, which knows what its requests have.
    pub(crate) takes_parts: bool,
    pub(crate) max_range_offset: Val<u64>,
    pub(crate) store: Val<StoreTo>,
    pub(crate) store_access: Val<u32>,
}

impl CacheConf {
    /// Whether answers here may be kept.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(*self.cache, Use::Off)
    }

    pub(crate) fn stores(&self) -> bool {
        !matches!(*self.store, StoreTo::Off)
    }

    /// For how many seconds an answer of that status is fresh when it does not say itself.
    pub(crate) fn valid_secs(&self, status: u16) -> i64 {
        let fits = |(s, _): &&(u16, i64)| *s == 0 || *s == status;
        self.valid.iter().find(fits).map_or(0, |(_, secs)| *secs)
    }

    pub(crate) fn merge(&mut self, parent: &CacheConf) {
        use weir_wire::http1::request::Method;
        merge_values!(self, parent;
            key = None,
            valid = Arc::default(),
            bypass = Arc::default(),
            no_cache = Arc::default(),
            purge = Arc::default(),
            methods = 0,
            min_uses = 1,
            lock = false,
            lock_timeout_ms = 5000,
            lock_age_ms = 5000,
            use_stale = next::OFF,
            background_update = false,
            revalidate = false,
            convert_head = true,
            standard = false,
            max_range_offset = u64::MAX,
            store_access = 0o600,
        );
        // The two exclude each other, so either at this level ends the other's inheritance.
        let (cached, stored) = (self.cache.is_set(), self.store.is_set());
        let stored_here = stored && self.stores();
        let cached_here = cached && self.is_on();
        self.cache.merge(&parent.cache, || Use::Off);
        self.cache_at = self.cache_at.or(parent.cache_at.filter(|_| !cached));
        self.store.merge(&parent.store, || StoreTo::Off);
        if stored_here && !cached {
            self.cache.set(Use::Off);
        }
        if cached_here && !stored {
            self.store.set(StoreTo::Off);
        }
        self.methods.set(*self.methods | Method::Get.bit() | Method::Head.bit());
        let mut stale = *self.use_stale;
        if stale & next::OFF != 0 {
            stale = next::OFF;
        }
        if stale & next::ERROR != 0 {
            stale |= next::NO_LIVE;
        }
        self.use_stale.set(stale);
    }
}

/// Makes the stores, or finds those that live on from the generation before.
pub(crate) fn build(b: &mut weir_http::build::Build) -> ConfResult {
    let main = b.main.get_mut::<CacheMain>();
    for flag in [&mut main.purge_legacy_status, &mut main.purge_vary_aware] {
        if !flag.is_set() {
            flag.set(true);
        }
    }
    for path in &mut main.paths {
        weir_core::paths::make_temp_dir(&path.dir, b.cf.mode)?;
        let (name, size, dir, levels) = (&path.name, path.size, &path.dir, path.levels);
        let same = |known: &Store| check_same(known, path);
        let make = || Store::new(name, size, dir, levels, path.params.clone());
        path.store = Some(zones::attach("cache", name, size, same, make)?);
    }
    main.named.iter().try_for_each(|named| {
        let Some(store) = main.find(&named.name) else {
            let (directive, shown) = (named.directive, String::from_utf8_lossy(&named.name));
            return Err(Diagnostic::emerg(format!("\"{directive}\" zone \"{shown}\" is unknown")));
        };
        named.store.get_or_init(|| Arc::clone(store));
        Ok(())
    })
}

fn check_same(known: &Store, path: &CachePath) -> ConfResult {
    let name = String::from_utf8_lossy(&path.name);
    if known.dir != path.dir {
        return Err(Diagnostic::emerg(format!(
            "cache \"{name}\" uses the \"{}\" cache path while previously it used the \"{}\" \
             cache path",
            path.dir.display(),
            known.dir.display()
        )));
    }
    if known.levels != path.levels {
        return Err(Diagnostic::emerg(format!("cache \"{name}\" had previously different levels")));
    }
    Ok(())
}
