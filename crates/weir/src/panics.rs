//! Panics are errors of this program. One in a connection's task ends that connection alone; its words go to
//! the error log too, because nobody reads a server's standard error.

use std::panic::PanicHookInfo;
use std::sync::{Arc, Once, RwLock};
use weir_core::logger::{ErrorLog, LogLevel};

static LOG: RwLock<Option<Arc<ErrorLog>>> = RwLock::new(None);
static HOOK: Once = Once::new();

/// From now on they are told there.
pub fn log_to(log: &Arc<ErrorLog>) {
    *LOG.write().unwrap_or_else(|e| e.into_inner()) = Some(Arc::clone(log));
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            tell(info);
        }));
    });
}

fn tell(info: &PanicHookInfo) {
    // Who panics while this is written must not wait for itself.
    let Ok(log) = LOG.try_read() else { return };
    let Some(log) = &*log else { return };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?");
    let place = info.location().map(|l| format!(" at {l}")).unwrap_or_default();
    let payload = info.payload();
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    let why = formatted.or_else(|| payload.downcast_ref::<&str>().copied());
    let why = why.unwrap_or("no words").replace(['\n', '\r'], " ");
    let text = format!("internal error: thread \"{name}\" panicked{place}: {why}");
    log.log(LogLevel::Alert, None, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::logger::{log_file, LogSink};

    #[test]
    fn what_a_panic_says_is_logged() {
        let path = std::env::temp_dir().join(format!("weir-panics-{}", std::process::id()));
        let file = log_file(&path).expect("a file");
        log_to(&Arc::new(ErrorLog { sinks: vec![(LogSink::File(file), LogLevel::Error)] }));
        let panics = std::thread::Builder::new().name("worker 7".into());
        let ended = panics.spawn(|| panic!("two\nlines")).map(std::thread::JoinHandle::join);
        assert!(ended.is_ok_and(|e| e.is_err()));
        let told = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        assert!(told.contains("[alert]") && told.ends_with(": two lines\n"), "{told}");
        assert!(told.contains("thread \"worker 7\" panicked at "), "{told}");
    }
}
