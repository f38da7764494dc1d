//! `…_bind`: the local address that connections to servers are made from.

use crate::logger::LogLevel;
use crate::registry::template;
use crate::session::Session;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_script::template::Template;

/// What the directive says.
#[derive(Clone, Debug)]
pub struct Bind {
    from: BindAddr,
    /// The address need not be this machine's.
    pub transparent: bool,
}

/// An address, or a text that is one.
#[derive(Clone, Debug)]
enum BindAddr {
    Addr(SocketAddr),
    Vars(Arc<Template>),
}

/// `ADDRESS[:PORT] [transparent]`, or `off`.
///
/// # Errors
///
/// The argument is no address.
pub fn parse<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult<Option<Bind>> {
    let transparent = match d.args.get(1).map(|w| &*w.text) {
        None => false,
        Some(b"transparent") => true,
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            return Err(d.bad(1, format!("invalid parameter \"{shown}\"")));
        }
    };
    let from = match d.arg(0) {
        b"off" => return Ok(None),
        text if memchr::memchr(b'$', text).is_some() => {
            BindAddr::Vars(Arc::new(template::<S>(cf, d, 0)?))
        }
        text => {
            let shown = String::from_utf8_lossy(text);
            let addr = parse_local(text)
                .ok_or_else(|| d.bad(0, format!("invalid address \"{shown}\"")))?;
            BindAddr::Addr(addr)
        }
    };
    Ok(Some(Bind { from, transparent }))
}

/// The address for a session; an empty value binds nothing.
pub fn address<S: Session>(s: &mut S, bind: &Bind) -> Option<SocketAddr> {
    let template = match &bind.from {
        BindAddr::Addr(addr) => return Some(*addr),
        BindAddr::Vars(template) => template,
    };
    let text = s.eval(template);
    if text.is_empty() {
        return None;
    }
    let addr = parse_local(&text);
    if addr.is_none() {
        let shown = String::from_utf8_lossy(&text).into_owned();
        s.log(LogLevel::Error, &format!("invalid local address \"{shown}\""));
    }
    addr
}

/// An address with or without a port.
fn parse_local(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Some(addr);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses() {
        assert_eq!(parse_local(b"127.0.0.2"), Some(([127, 0, 0, 2], 0).into()));
        assert_eq!(parse_local(b"127.0.0.2:99"), Some(([127, 0, 0, 2], 99).into()));
        assert!(parse_local(b"[::1]").is_some() && parse_local(b"localhost").is_none());
    }
}
