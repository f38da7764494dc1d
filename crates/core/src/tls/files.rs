//! Certificates and keys as directives name them, for servers and towards servers alike; those
//! whose names have variables are loaded beside the worker's event loop, and kept as `…ssl_certificate_cache` says.

use super::reading;
use crate::registry::template;
use crate::Session;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_base::units;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_runtime::{clock, files};
use weir_script::template::Template;
use weir_tls::load;
use weir_tls::rustls::sign::CertifiedKey;

/// A certificate or key whose name a client has had a part in is never larger: chains have a few KB, and the
/// name may lead to what has no end.
const FOUND_FILE_MAX_BYTES: u64 = 1024 * 1024;

/// A file's name, and the same compiled when it has variables.
#[derive(Clone)]
pub struct Name {
    /// As it stands; relative names start at the configuration's directory.
    pub text: Vec<u8>,
    /// Evaluated for each handshake.
    pub template: Option<Arc<Template>>,
}

impl Name {
    /// The argument `i`.
    ///
    /// # Errors
    ///
    /// A variable in it is not known.
    pub fn of<S: Session>(cf: &mut Cf, d: &Directive, i: usize) -> ConfResult<Name> {
        let text = d.arg(i).to_vec();
        // What stands in the configuration itself is taken as it is.
        let template = match text.contains(&b'$') {
            true => Some(Arc::new(template::<S>(cf, d, i)?)),
            false => None,
        };
        Ok(Name { text, template })
    }
}

/// `ssl_certificate_cache`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// Certificates and keys together.
    pub max: usize,
    /// Unused for so long, one is forgotten.
    pub inactive_secs: u64,
    /// After so long its file is read again.
    pub valid_secs: u64,
}

/// `max=N [inactive=TIME] [valid=TIME]` or `off`, for servers and upstreams alike.
pub fn cache_rule(d: &Directive) -> ConfResult<Option<CacheRule>> {
    let mut rule = CacheRule { max: 0, inactive_secs: 10, valid_secs: 60 };
    for i in 0..d.args.len() {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        let bad = || d.bad(i, format!("invalid parameter \"{shown}\""));
        if d.arg(i) == b"off" {
            return Ok(None);
        }
        if let Some(v) = d.keyed(i, "max") {
            rule.max = units::parse_int(v).filter(|n| *n > 0).ok_or_else(bad)? as usize;
        } else if let Some(v) = d.keyed(i, "inactive") {
            rule.inactive_secs = units::parse_sec(v).ok_or_else(bad)?;
        } else if let Some(v) = d.keyed(i, "valid") {
            rule.valid_secs = units::parse_sec(v).ok_or_else(bad)?;
        } else {
            return Err(bad());
        }
    }
    match rule.max {
        0 => Err(d.error("must have the \"max\" parameter")),
        _ => Ok(Some(rule)),
    }
}

/// The passwords of a file, one on a line.
pub fn read_passwords(cf: &mut Cf, d: &Directive) -> ConfResult<Arc<Vec<Vec<u8>>>> {
    let path = cf.full_conf_path(d.arg(0));
    let text = cf.read_file(&path).map_err(|e| {
        let why = crate::os_text(&e);
        d.bad(0, format!("open() \"{}\" failed ({why})", path.display()))
    })?;
    Ok(Arc::new(weir_tls::pem::passwords(&text)))
}

/// Reads files for the loader, from the configuration's directory.
pub fn reader(cf: &mut Cf) -> impl FnMut(&[u8]) -> std::io::Result<Arc<[u8]>> + '_ {
    |name| {
        let path = cf.full_conf_path(name);
        cf.read_file(&path)
    }
}

struct Kept {
    pair: Arc<CertifiedKey>,
    loaded_secs: u64,
    used_secs: u64,
    /// Its place in the order of use.
    used: u64,
}

/// The names of a certificate and its key.
pub type Names = (Vec<u8>, Vec<u8>);

/// Certificates by their names.
#[derive(Default)]
pub struct Loaded(Mutex<HashMap<Names, Kept>>);

fn next_use() -> u64 {
    static USES: AtomicU64 = AtomicU64::new(0);
    USES.fetch_add(1, Ordering::Relaxed)
}

fn now_secs() -> u64 {
    clock::mono_secs()
}

impl Loaded {
    fn get(&self, key: &Names, rule: CacheRule) -> Option<Arc<CertifiedKey>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now_secs();
        all.retain(|_, k| now.saturating_sub(k.used_secs) < rule.inactive_secs.max(1));
        let kept = all.get_mut(key)?;
        if now.saturating_sub(kept.loaded_secs) >= rule.valid_secs {
            all.remove(key);
            return None;
        }
        kept.used_secs = now;
        kept.used = next_use();
        Some(Arc::clone(&kept.pair))
    }

    fn put(&self, key: Names, pair: &Arc<CertifiedKey>, rule: CacheRule) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // nginx counts certificate and key each.
        if !all.contains_key(&key) && all.len() >= (rule.max / 2).max(1) {
            let oldest = all.iter().min_by_key(|(_, k)| k.used).map(|(name, _)| name.clone());
            oldest.and_then(|name| all.remove(&name));
        }
        let now = now_secs();
        all.insert(
            key,
            Kept { pair: Arc::clone(pair), loaded_secs: now, used_secs: now, used: next_use() },
        );
    }
}

/// A certificate and its key whose names variables have made.
pub struct Sought {
    /// Of their files, or their text itself.
    pub names: Names,
    /// For the key.
    pub passwords: Arc<Vec<Vec<u8>>>,
    /// The directive of the level that names them.
    pub rule: Option<CacheRule>,
    /// Where relative names start.
    pub prefix: PathBuf,
    /// What the level has kept.
    pub loaded: Arc<Loaded>,
}

impl Sought {
    /// The pair, unless a file is to be read for it.
    pub fn at_once(&self) -> Option<Result<Arc<CertifiedKey>, String>> {
        if let Some(pair) = self.kept() {
            return Some(Ok(pair));
        }
        let is_here = |name: &[u8]| name.starts_with(b"data:");
        (is_here(&self.names.0) && is_here(&self.names.1)).then(|| self.load())
    }

    /// The pair from its files, which may be slow: they are read beside the event loop.
    ///
    /// # Errors
    ///
    /// In words for the log.
    pub async fn read(self: Arc<Self>) -> Result<Arc<CertifiedKey>, String> {
        let files = (self.prefix.clone(), self.names.clone(), Arc::clone(&self.passwords));
        let here = Arc::clone(&self);
        let read = reading::read(files, move || here.open()).await;
        // The thread may have read them for another level.
        let (pair, was_encrypted) = read?;
        self.keep(&pair, was_encrypted);
        Ok(pair)
    }

    fn kept(&self) -> Option<Arc<CertifiedKey>> {
        self.rule.and_then(|rule| self.loaded.get(&self.names, rule))
    }

    fn load(&self) -> Result<Arc<CertifiedKey>, String> {
        self.open().map(|(pair, _)| pair)
    }

    fn open(&self) -> reading::Outcome {
        let mut read = |name: &[u8]| {
            let file = weir_runtime::paths::within(&self.prefix, name);
            files::read_at_most(&file, FOUND_FILE_MAX_BYTES).map(Arc::from)
        };
        let (certificate, key) = &self.names;
        let (pair, was_encrypted) =
            load::opened_pair(certificate, key, &self.passwords, &mut read)?;
        let pair = Arc::new(pair);
        self.keep(&pair, was_encrypted);
        Ok((pair, was_encrypted))
    }

    fn keep(&self, pair: &Arc<CertifiedKey>, was_encrypted: bool) {
        // What a password protects on disk is not left lying about in memory, as in nginx.
        let Some(rule) = self.rule.filter(|_| !was_encrypted) else { return };
        if self.kept().is_none() {
            self.loaded.put(self.names.clone(), pair, rule);
        }
    }
}

/// What a name is for this request.
pub fn value<S: Session>(r: &mut S, name: &Name) -> Vec<u8> {
    match &name.template {
        Some(template) => r.eval(template),
        None => name.text.clone(),
    }
}
