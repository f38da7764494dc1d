//! Who is connected, and how.

use super::{number, push_seconds, some};
use crate::module::VarArg;
use crate::request::Request;
use std::io::Write;
use std::net::IpAddr;
use weir_core::logger::LogLevel;
use weir_core::ClientAddr;
use weir_core::Session;
use weir_runtime::clock;
use weir_wire::proxy_protocol::{self, Proxied, TlvError};

pub fn remote_addr(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, r.client_text())
}

pub fn remote_port(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    port(out, r.client().port())
}

/// Nothing for a port that is 0 or does not exist, which still is a value.
fn port(out: &mut Vec<u8>, port: Option<u16>) -> bool {
    match port {
        Some(p) if p > 0 => number(out, u64::from(p)),
        _ => true,
    }
}

pub fn binary_remote_addr(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match r.client() {
        ClientAddr::Ip(a) => match a.ip() {
            IpAddr::V4(ip) => some(out, &ip.octets()),
            IpAddr::V6(ip) => some(out, &ip.octets()),
        },
        ClientAddr::Unix => some(out, r.client_text()),
    }
}

pub fn server_addr(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match r.conn().local_addr() {
        Some(a) => {
            // Writing into a Vec cannot fail.
            let _ = write!(out, "{}", a.ip());
        }
        None => {
            out.extend_from_slice(b"unix:");
            #[cfg(unix)]
            if let Some(path) = r.conn().stream.local_path() {
                out.extend_from_slice(path.as_os_str().as_encoded_bytes());
            }
        }
    }
    true
}

pub fn server_port(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    port(out, r.conn().local_addr().map(|a| a.port()))
}

pub fn scheme(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.conn().is_tls() { b"https" } else { b"http" })
}

pub fn https(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.conn().is_tls() { b"on" } else { b"" })
}

fn proxied(r: &Request, out: &mut Vec<u8>, f: impl FnOnce(&Proxied, &mut Vec<u8>) -> bool) -> bool {
    r.conn().proxied.borrow().as_ref().is_some_and(|p| f(p, out))
}

pub fn proxy_protocol_addr(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    proxied(r, out, |p, out| some(out, p.source.as_bytes()))
}

pub fn proxy_protocol_port(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    proxied(r, out, |p, out| port(out, Some(p.source_port)))
}

pub fn proxy_protocol_server_addr(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    proxied(r, out, |p, out| some(out, p.destination.as_bytes()))
}

pub fn proxy_protocol_server_port(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    proxied(r, out, |p, out| port(out, Some(p.destination_port)))
}

pub fn proxy_protocol_tlv(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let name = String::from_utf8_lossy(&arg.name).into_owned();
    let found = match r.conn().proxied.borrow().as_ref() {
        Some(p) => proxy_protocol::tlv(&p.tlvs, &name),
        None => return false,
    };
    match found {
        Ok(Some(value)) => some(out, &value),
        Ok(None) => false,
        Err(TlvError::Broken) => {
            r.log(LogLevel::Error, "broken PROXY protocol TLV");
            false
        }
        Err(TlvError::UnknownName) => {
            r.log(LogLevel::Error, &format!("unknown PROXY protocol TLV \"{name}\""));
            false
        }
    }
}

pub fn serial(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, r.conn().serial)
}

pub fn requests(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, u64::from(r.number))
}

pub fn age(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_seconds(out, clock::mono_ms().saturating_sub(r.conn().start_ms));
    true
}

/// Whether the request came while the one before was being answered.
pub fn pipe(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.pipelined { b"p" } else { b"." })
}

#[cfg(target_os = "linux")]
fn tcpinfo(r: &Request, n: usize, out: &mut Vec<u8>) -> bool {
    match r.conn().stream.tcp_info() {
        Some(info) => number(out, u64::from(info[n])),
        None => false,
    }
}

#[cfg(not(target_os = "linux"))]
fn tcpinfo(_: &Request, _: usize, _: &mut Vec<u8>) -> bool {
    false
}

pub fn tcpinfo_rtt(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(r, 0, out)
}

pub fn tcpinfo_rttvar(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(r, 1, out)
}

pub fn tcpinfo_snd_cwnd(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(r, 2, out)
}

pub fn tcpinfo_rcv_space(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    tcpinfo(r, 3, out)
}
