//! The `resolver` directive, which stands in `http` and its blocks as well as in `upstream`.

use crate::figures::Figures;
use crate::logger::{ErrorLog, LogLevel};
use crate::{os_text, zones};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use weir_module::{ArgsExt, Cf, ConfResult, Diagnostic, Directive};
use weir_resolve::{Resolver, ResolverConf, Stats};

/// What the rows say of `status_zone=`.
pub const NOTE: &str = "One cache for all workers; names of more than 255 octets do not exist, as \
    in RFC 1035; status_zone= counts questions, by how they ended, also those that the cache has answered.";

const KIND: &str = "status zone of a resolver";

/// What to do about a name that the system does not find, in messages.
pub const NAME_HINT: &str =
    "it is looked up when the configuration is read: mend the name, or give an address";

/// Reads the directive; its name servers are looked up when the configuration is built.
pub fn parse(d: &Directive) -> ConfResult<Arc<Resolver>> {
    let args: Vec<&[u8]> = d.args.iter().map(|w| &*w.text).collect();
    let conf = ResolverConf::parse(&args).map_err(|text| d.fail(text))?;
    let mut resolver = Resolver::new(conf);
    if let Some(zone) = &resolver.conf.status_zone {
        // Those of one name are counted together, and a reload counts on.
        resolver.stats = zones::attach(KIND, zone.as_bytes(), 0, |_| Ok(()), Stats::default)?;
    }
    Ok(Arc::new(resolver))
}

/// Notes what was asked of the resolvers that have a `status_zone=`, and how that ended.
pub fn put(figures: &mut Figures) {
    for (name, stats) in zones::named::<Stats>(KIND) {
        let figures = figures.entry(&name);
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let requests = [
            ("name", get(&stats.names)),
            ("srv", get(&stats.services)),
            ("addr", get(&stats.addresses)),
        ];
        figures.group("requests").put_all(&requests);
        const CODES: [&str; 6] =
            ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused"];
        let responses = figures.group("responses");
        for (name, count) in CODES.into_iter().zip(&stats.codes) {
            responses.put(name, get(count));
        }
        responses.put("timedout", get(&stats.timed_out));
        responses.put("unknown", get(&stats.codes[CODES.len()]));
    }
}

/// Reads the name servers of a file such as `/etc/resolv.conf`, which the directive names; it is read again with
/// the configuration.
pub fn parse_file(cf: &mut Cf, d: &Directive) -> ConfResult<Arc<Resolver>> {
    let path = cf.full_conf_path(d.arg(0));
    let text = cf
        .read_file(&path)
        .map_err(|e| d.bad(0, format!("open() \"{}\" failed ({})", path.display(), os_text(&e))))?;
    let servers: Vec<Vec<u8>> = servers_of(&text).collect();
    let args: Vec<&[u8]> = servers.iter().map(Vec::as_slice).collect();
    let conf = ResolverConf::parse(&args).map_err(|text| d.fail(text))?;
    Ok(Arc::new(Resolver::new(conf)))
}

/// The addresses behind `nameserver`, as a configuration has them.
fn servers_of(text: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    text.split(|b| *b == b'\n').filter_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let address =
            words.next().filter(|word| word == b"nameserver").and_then(|_| words.next())?;
        let text = std::str::from_utf8(address).unwrap_or_default();
        Some(match text.parse::<Ipv6Addr>() {
            Ok(_) => [b"[", address, b"]"].concat(),
            Err(_) => address.to_vec(),
        })
    })
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

#[cfg(test)]
mod tests {
    use super::servers_of;

    #[test]
    fn files_name_servers() {
        let text = b"# nameserver 9.9.9.9\nnameserver 127.0.0.1\n search a\n nameserver\t::1 # x\nnameserver\n";
        let found: Vec<_> = servers_of(text).collect();
        assert_eq!(found, [&b"127.0.0.1"[..], b"[::1]"]);
    }
}
