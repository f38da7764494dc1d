//! The `resolver` directive, which stands in `http` and its blocks as well as in `upstream`.

use crate::logger::{ErrorLog, LogLevel};
use std::sync::Arc;
use weir_module::{ArgsExt, ConfResult, Diagnostic, Directive};
use weir_resolve::{Resolver, ResolverConf};

/// What the rows say of `status_zone=`.
pub const NOTE: &str = "One cache for all workers; names of more than 255 octets do not exist, as \
    in RFC 1035; status_zone= counts, and nothing shows it yet.";

/// What to do about a name that the system does not find, in messages.
pub const NAME_HINT: &str =
    "it is looked up when the configuration is read: mend the name, or give an address";

/// Reads the directive; its name servers are looked up when the configuration is built.
pub fn parse(d: &Directive) -> ConfResult<Arc<Resolver>> {
    let args: Vec<&[u8]> = d.args.iter().map(|w| &*w.text).collect();
    let conf = ResolverConf::parse(&args).map_err(|text| d.fail(text))?;
    Ok(Arc::new(Resolver::new(conf)))
}

/// Looks up its name servers.
///
/// # Errors
///
/// One of them has no address.
pub fn look_up(resolver: &Resolver) -> ConfResult {
    resolver.build().map_err(|name| {
        let text = format!("host not found in resolver \"{name}\"");
        Diagnostic::emerg(text).hint(NAME_HINT.to_string())
    })
}

/// Lines about its name servers go to this log, unless they have one already.
pub fn log_to(resolver: &Resolver, log: &Arc<ErrorLog>) {
    resolver.log_to(|| {
        let log = Arc::clone(log);
        Box::new(move |text| log.log(LogLevel::Error, None, text.as_bytes()))
    });
}
