//! The `error_log` directive, which stands in every protocol's blocks.

use crate::logger::{self, ErrorLog, LogLevel, LogSink};
use crate::os_text;
use crate::rollback::log_path;
use std::sync::Arc;
use weir_module::{ArgsExt, Cf, ConfResult, Directive, Val};

/// One `error_log` destination and its level.
pub fn error_log_sink(cf: &mut Cf, d: &Directive) -> ConfResult<(LogSink, LogLevel)> {
    let mut level = LogLevel::Error;
    if d.args.len() > 1 {
        level = d.choice(1, &LogLevel::NAMES).map_err(|mut e| {
            let shown = String::from_utf8_lossy(d.arg(1)).into_owned();
            e.message = format!("invalid log level \"{shown}\"");
            e
        })?;
    }
    let sink = match d.arg(0) {
        b"stderr" => LogSink::Stderr,
        a if a.starts_with(b"syslog:") => {
            let s = crate::syslog::Syslog::parse(&a[7..]).map_err(|e| d.bad(0, e))?;
            LogSink::Syslog(Arc::new(s))
        }
        a if a.starts_with(b"memory:") => {
            let mut e = d.bad(0, "nginx was built without debug support");
            e.hint = Some("log to a file or to stderr instead".into());
            return Err(e);
        }
        a => {
            let path = log_path(cf, d, a)?;
            let file = logger::log_file_for(cf.mode, &path).map_err(|e| {
                d.bad(0, format!("open() \"{}\" failed ({})", path.display(), os_text(&e)))
            })?;
            LogSink::File(file)
        }
    };
    Ok((sink, level))
}

/// Adds a destination to a level's own logs.
pub fn push_log(logs: &mut Val<Arc<ErrorLog>>, sink: (LogSink, LogLevel)) {
    if !logs.is_set() {
        logs.set(Arc::default());
    }
    if let Some(log) = logs.as_mut().and_then(Arc::get_mut) {
        log.sinks.push(sink);
    }
}
