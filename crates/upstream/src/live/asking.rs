//! Names are asked for: of the name servers for as long as they are there, of the system until they are found.

use super::hosts::{Host, Watch};
use super::{Current, Live};
use std::sync::{Arc, Weak};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_resolve::message::{error_text, NXDOMAIN};
use weir_resolve::{client, Found, Question, Resolver};
use weir_runtime::{clock, timer};

/// The system's resolver is asked again so often for a name that it has not found.
pub(super) const SYSTEM_RETRY_MS: u64 = 3000;
/// The least wait after a failure of the name servers, and after an answer that is not to be kept.
const RETRY_MIN_MS: u64 = 1000;

impl Live {
    /// Asks for what is not asked for yet, and no more for what is gone, once this serves.
    pub(super) fn watch(&self, current: &mut Current) {
        let Some(log) = self.log.get() else { return };
        let Current { hosts, watches, shape, .. } = current;
        watches.retain(|id, _| hosts.iter().any(|n| n.id == *id));
        let new: Vec<u64> =
            hosts.iter().map(|n| n.id).filter(|id| !watches.contains_key(id)).collect();
        let (Some(tie), false) = (&shape.tie, new.is_empty()) else { return };
        let Some(handle) = client::handle() else {
            return log.log(LogLevel::Alert, None, b"the resolver thread could not be started");
        };
        if let Some((resolver, _)) = self.resolver.get() {
            weir_core::resolver::log_to(resolver, log);
        }
        for id in new {
            let task = handle.spawn(watch(tie.live.clone(), id, Arc::clone(log)));
            watches.insert(id, Watch(task.abort_handle()));
        }
    }

    /// A name, and when it is to be asked for.
    fn named(&self, id: u64) -> Option<(Arc<Host>, u64)> {
        let current = self.lock();
        let named = current.hosts.iter().find(|n| n.id == id)?;
        Some((Arc::clone(&named.host), named.until_ms))
    }
}

/// Asks for a host as long as its upstream lives.
async fn watch(live: Weak<Live>, id: u64, log: Arc<ErrorLog>) {
    let Some((_, until_ms)) = live.upgrade().and_then(|l| l.named(id)) else { return };
    let mut wait_ms = until_ms.saturating_sub(clock::mono_ms());
    loop {
        timer::sleep_ms(wait_ms).await;
        let asked = live.upgrade().map(|l| l.resolver.get().cloned());
        let next = match asked {
            None => return,
            Some(Some((resolver, timeout_ms))) => ask(&live, id, &resolver, timeout_ms, &log).await,
            Some(None) => ask_system(&live, id, &log).await,
        };
        match next {
            Some(ms) => wait_ms = ms,
            None => return,
        }
    }
}

/// Asks the name servers; when to ask again, or `None` for never.
async fn ask(
    live: &Weak<Live>,
    id: u64,
    resolver: &Arc<Resolver>,
    timeout_ms: u64,
    log: &ErrorLog,
) -> Option<u64> {
    let (host, _) = live.upgrade()?.named(id)?;
    let (name, service) = (&host.name, &host.service);
    let question = match service {
        None => Question::Name(name),
        Some(service) => Question::Service { service, name },
    };
    let outcome = resolver.resolve(question, timeout_ms).await;
    let live = live.upgrade()?;
    let (found, until_ms) = match outcome {
        Ok(Found { targets, until_ms }) => (targets, until_ms),
        Err(failed) => {
            let what = match service {
                None => name.clone(),
                Some(service) => format!("service {service} of {name}"),
            };
            let (code, text) = (failed.code, error_text(failed.code));
            let line = format!("{what} could not be resolved ({code}: {text})");
            log.log(LogLevel::Error, None, line.as_bytes());
            if let Some(fallback) = host.fallback {
                if !fallback.stale {
                    live.apply(id, &[], failed.until_ms);
                }
                return Some(fallback.fail_timeout_ms.max(RETRY_MIN_MS));
            }
            if code != u16::from(NXDOMAIN) {
                return Some(timeout_ms.max(RETRY_MIN_MS));
            }
            (Vec::new(), failed.until_ms)
        }
    };
    // Only what is said to be resolved may lose all its servers.
    if host.resolve || !found.is_empty() {
        live.apply(id, &found, until_ms);
    }
    // In whole seconds and one more, as nginx has it: the cache has then run out for certain.
    Some((until_ms.saturating_sub(clock::mono_ms()) / 1000 + 1) * 1000)
}

/// Asks the system, until it has found the name.
pub(super) async fn ask_system(live: &Weak<Live>, id: u64, log: &ErrorLog) -> Option<u64> {
    let name = live.upgrade()?.named(id)?.0.name.clone();
    let found = client::system(name.clone()).await;
    if found.targets.is_empty() {
        return Some(SYSTEM_RETRY_MS);
    }
    live.upgrade()?.apply(id, &found.targets, 0);
    let line = format!("host \"{name}\" was found, its upstream is in use");
    log.log(LogLevel::Notice, None, line.as_bytes());
    None
}
