//! The variables that every protocol's sessions have: who is connected and how, clocks, the server.
//!
//! Difference from nginx: `$nginx_version` is this program's version.

mod connection;
mod time;

pub use time::{push_msec, push_time_iso8601, push_time_local};

use crate::session::Session;
use crate::variables::Variable;
use std::marker::PhantomData;
use weir_base::bytes::fmt_u64;

/// The variables, as those of sessions `S`.
pub struct Common<S>(PhantomData<S>);

impl<S: Session> Common<S> {
    /// For a module of each protocol.
    pub const VARIABLES: &'static [Variable<S>] = &[
        Variable::new("remote_addr", connection::remote_addr),
        Variable::new("remote_port", connection::remote_port),
        Variable::new("binary_remote_addr", connection::binary_remote_addr),
        Variable::new("server_addr", connection::server_addr),
        Variable::new("server_port", connection::server_port),
        Variable::new("proxy_protocol_addr", connection::proxy_protocol_addr),
        Variable::new("proxy_protocol_port", connection::proxy_protocol_port),
        Variable::new("proxy_protocol_server_addr", connection::proxy_protocol_server_addr),
        Variable::new("proxy_protocol_server_port", connection::proxy_protocol_server_port),
        Variable::prefixed("proxy_protocol_tlv_", connection::proxy_protocol_tlv),
        Variable::new("connection", connection::serial),
        Variable::new("connection_time", connection::age),
        Variable::new("tcpinfo_rtt", connection::tcpinfo_rtt),
        Variable::new("tcpinfo_rttvar", connection::tcpinfo_rttvar),
        Variable::new("tcpinfo_snd_cwnd", connection::tcpinfo_snd_cwnd),
        Variable::new("tcpinfo_rcv_space", connection::tcpinfo_rcv_space),
        Variable::new("msec", time::msec),
        Variable::new("time_iso8601", time::time_iso8601),
        Variable::new("time_local", time::time_local),
        Variable::new("pid", time::pid),
        Variable::new("hostname", time::hostname),
        Variable::new("nginx_version", time::version),
    ];
}

/// `1.234`: seconds with three decimals, as nginx writes durations.
pub fn push_seconds(out: &mut Vec<u8>, ms: u64) {
    fmt_u64(out, ms / 1000);
    push_fraction(out, (ms % 1000) as u32);
}

/// `.045`
fn push_fraction(out: &mut Vec<u8>, ms: u32) {
    let digit = |n: u32| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[b'.', digit(ms / 100), digit(ms / 10), digit(ms)]);
}

/// A value that is always there.
pub fn some(out: &mut Vec<u8>, value: &[u8]) -> bool {
    out.extend_from_slice(value);
    true
}

/// A number in decimal digits.
pub fn number(out: &mut Vec<u8>, value: u64) -> bool {
    fmt_u64(out, value);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (ms, text) in [(0, "0.000"), (45, "0.045"), (1234, "1.234"), (60_007, "60.007")] {
            let mut out = Vec::new();
            push_seconds(&mut out, ms);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}
