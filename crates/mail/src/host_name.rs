//! The name of an SMTP client's host: what its address resolves to, if that resolves to the address.

use crate::Session;
use std::net::IpAddr;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::{ClientAddr, Session as _};
use weir_resolve::message::{error_text, NXDOMAIN};
use weir_resolve::{Failed, Question};
use weir_wire::mail::smtp::{is_host_name, TEMPUNAVAIL, UNAVAILABLE};

/// The name, or the word for why there is none.
pub(crate) async fn of_client(s: &mut Session) -> Vec<u8> {
    let base = Arc::clone(s.base());
    let Some(resolver) = &base.resolver else { return UNAVAILABLE.to_vec() };
    let ClientAddr::Ip(addr) = s.client() else { return TEMPUNAVAIL.to_vec() };
    weir_core::resolver::log_to(resolver, &base.error_log);
    s.doing = "in resolving client address";
    let found = resolver.resolve(Question::Address(addr.ip()), base.resolver_timeout_ms).await;
    let client = String::from_utf8_lossy(s.client_text()).into_owned();
    let name = match found {
        Ok(found) => found.targets.into_iter().next().map(|t| t.name).unwrap_or_default(),
        Err(failed) => return failed_to(s, &client, failed),
    };
    if !is_host_name(name.as_bytes()) {
        let text = format!("{client} resolved to invalid host name \"{name}\"");
        s.log(LogLevel::Error, &text);
        return TEMPUNAVAIL.to_vec();
    }
    s.doing = "in resolving client hostname";
    match resolver.resolve(Question::Name(&name), base.resolver_timeout_ms).await {
        Ok(found) if found.targets.iter().any(|t| is_same(t.ip, addr.ip())) => name.into_bytes(),
        Ok(_) => UNAVAILABLE.to_vec(),
        Err(failed) => failed_to(s, &format!("\"{name}\""), failed),
    }
}

fn is_same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

fn failed_to(s: &Session, what: &str, Failed { code, .. }: Failed) -> Vec<u8> {
    let text = format!("{what} could not be resolved ({code}: {})", error_text(code));
    s.log(LogLevel::Error, &text);
    match code == u16::from(NXDOMAIN) {
        true => UNAVAILABLE.to_vec(),
        false => TEMPUNAVAIL.to_vec(),
    }
}
