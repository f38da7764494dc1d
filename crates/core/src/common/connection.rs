//! Who is connected, and how.

use super::{number, push_seconds, some};
use crate::logger::LogLevel;
use crate::variables::VarArg;
use crate::ClientAddr;
use crate::Session;
use std::io::Write;
use std::net::IpAddr;
use weir_runtime::clock;
use weir_wire::proxy_protocol::{self, Proxied, TlvError};

pub(crate) fn remote_addr<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, s.client_text())
}

pub(crate) fn remote_port<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    port(out, s.client().port())
}

/// Nothing for a port that is 0 or does not exist, which still is a value.
fn port(out: &mut Vec<u8>, port: Option<u16>) -> bool {
    match port {
        Some(p) if p > 0 => number(out, u64::from(p)),
        _ => true,
    }
}

pub(crate) fn binary_remote_addr<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match s.client() {
        ClientAddr::Ip(a) => match a.ip() {
            IpAddr::V4(ip) => some(out, &ip.octets()),
            IpAddr::V6(ip) => some(out, &ip.octets()),
        },
        ClientAddr::Unix => some(out, s.client_text()),
    }
}

pub(crate) fn server_addr<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match s.conn().local_addr() {
        Some(a) => {
            // Writing into a Vec cannot fail.
            let _ = write!(out, "{}", a.ip());
        }
        None => {
            out.extend_from_slice(b"unix:");
            if let Some(path) = s.conn().stream.local_path() {
                out.extend_from_slice(weir_runtime::paths::bytes(&path));
            }
        }
    }
    true
}

pub(crate) fn server_port<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    port(out, s.conn().local_addr().map(|a| a.port()))
}

fn proxied<S: Session>(
    s: &S,
    out: &mut Vec<u8>,
    f: impl FnOnce(&Proxied, &mut Vec<u8>) -> bool,
) -> bool {
    s.conn().proxied.borrow().as_ref().is_some_and(|p| f(p, out))
}

pub(crate) fn proxy_protocol_addr<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    proxied(s, out, |p, out| some(out, p.source.as_bytes()))
}

pub(crate) fn proxy_protocol_port<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    proxied(s, out, |p, out| port(out, Some(p.source_port)))
}

pub(crate) fn proxy_protocol_server_addr<S: Session>(
    s: &mut S,
    _: &VarArg,
    out: &mut Vec<u8>,
) -> bool {
    proxied(s, out, |p, out| some(out, p.destination.as_bytes()))
}

pub(crate) fn proxy_protocol_server_port<S: Session>(
    s: &mut S,
    _: &VarArg,
    out: &mut Vec<u8>,
) -> bool {
    proxied(s, out, |p, out| port(out, Some(p.destination_port)))
}

pub(crate) fn proxy_protocol_tlv<S: Session>(s: &mut S, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let name = String::from_utf8_lossy(&arg.name).into_owned();
    let found = match s.conn().proxied.borrow().as_ref() {
        Some(p) => proxy_protocol::tlv(&p.tlvs, &name),
        None => return false,
    };
    match found {
        Ok(Some(value)) => some(out, &value),
        Ok(None) => false,
        Err(TlvError::Broken) => {
            s.log(LogLevel::Error, "broken PROXY protocol TLV");
            false
        }
        Err(TlvError::UnknownName) => {
            s.log(LogLevel::Error, &format!("unknown PROXY protocol TLV \"{name}\""));
            false
        }
    }
}

pub(crate) fn serial<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, s.conn().serial)
}

pub(crate) fn age<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_seconds(out, clock::mono_ms().saturating_sub(s.conn().start_ms));
    true
}

fn tcpinfo<S: Session>(s: &S, n: usize, out: &mut Vec<u8>) -> bool {
    match s.conn().stream.tcp_info() {
        Some(info) => number(out, u64::from(info[n])),
        None => false,
    }
}

pub(crate) fn tcpinfo_rtt<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(s, 0, out)
}

pub(crate) fn tcpinfo_rttvar<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(s, 1, out)
}

pub(crate) fn tcpinfo_snd_cwnd<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(s, 2, out)
}

pub(crate) fn tcpinfo_rcv_space<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(s, 3, out)
}
