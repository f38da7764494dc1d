//! Certificates whose names have variables: found when a client's hello is there, loaded by the
//! worker, and kept as `ssl_certificate_cache` says.

use super::conf::{CacheRule, Name, SslSrv};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::conn::Connection;
use weir_http::generation::{Server, WorkerGen};
use weir_http::Request;
use weir_runtime::clock;
use weir_tls::load;
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::server::Certificates;

struct Kept {
    pair: Arc<CertifiedKey>,
    loaded_secs: u64,
    used_secs: u64,
    /// Its place in the order of use.
    used: u64,
}

/// The names of a certificate and its key.
type Names = (Vec<u8>, Vec<u8>);

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
        if all.len() >= (rule.max / 2).max(1) {
            let oldest = all.iter().min_by_key(|(_, k)| k.used).map(|(name, _)| name.clone());
            oldest.and_then(|name| all.remove(&name));
        }
        let now = now_secs();
        all.insert(
            key,
            Kept { pair: Arc::clone(pair), loaded_secs: now, used_secs: now, used: next_use() },
        );
    }

    /// The pair of these names, from what is kept or from the files.
    pub fn load(
        &self,
        names: Names,
        passwords: &[Vec<u8>],
        rule: Option<CacheRule>,
        prefix: &Path,
    ) -> Result<Arc<CertifiedKey>, String> {
        if let Some(pair) = rule.and_then(|rule| self.get(&names, rule)) {
            return Ok(pair);
        }
        let mut read = |name: &[u8]| {
            std::fs::read(prefix.join(String::from_utf8_lossy(name).as_ref())).map(Arc::from)
        };
        let (pair, was_encrypted) = load::opened_pair(&names.0, &names.1, passwords, &mut read)?;
        let pair = Arc::new(pair);
        // What a password protects on disk is not left lying about in memory, as in nginx.
        if let Some(rule) = rule.filter(|_| !was_encrypted) {
            self.put(names, &pair, rule);
        }
        Ok(pair)
    }
}

/// What a name is for this request.
pub fn value(r: &mut Request, name: &Name) -> Vec<u8> {
    match &name.template {
        Some(template) => r.eval(template),
        None => name.text.clone(),
    }
}

/// The certificates of a handshake.
pub fn find(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    server: &Rc<Server>,
) -> Option<Arc<Certificates>> {
    let conf = server.conf::<SslSrv>();
    let mut r = conn.worker.take_request();
    r.begin(Rc::clone(conn), Rc::clone(gen), Rc::clone(server), clock::mono_ms());
    let mut pairs = Vec::new();
    for (certificate, key) in conf.certificates.iter().zip(conf.keys.iter()) {
        let names = (value(&mut r, certificate), value(&mut r, key));
        // Made of names that could not be told; the log says which.
        if r.match_failed() {
            break;
        }
        let prefix = gen.shared.main.get::<super::conf::SslMain>().prefix.clone();
        match conf.loaded.load(names, &conf.passwords, *conf.cache, &prefix) {
            Ok(pair) => pairs.push(pair.into()),
            Err(e) => {
                let text = format!("{e} while SSL handshaking");
                conn.log(LogLevel::Error, text.as_bytes());
                break;
            }
        }
    }
    let is_whole = pairs.len() == conf.certificates.len();
    conn.worker.give_request(r);
    is_whole.then(|| Arc::new(Certificates(pairs)))
}
