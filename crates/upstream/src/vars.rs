//! `$upstream_*`: what was asked of which server, and how long it took. A protocol takes those that
//! nginx has for it, under nginx's names.

use crate::asks::Asks;
use std::marker::PhantomData;
use weir_base::bytes::fmt_u64;
use weir_core::timing::UpstreamState;
use weir_core::variables::{VarArg, Variable};

/// The variables of a protocol's sessions.
pub struct Variables<S>(PhantomData<fn(S)>);

impl<S: Asks> Variables<S> {
    /// `$upstream_addr`
    pub const ADDR: Variable<S> = Variable::new("upstream_addr", |s, _, out| {
        each(s, out, |state, out| out.extend_from_slice(&state.peer))
    });

    /// `$upstream_connect_time`
    pub const CONNECT_TIME: Variable<S> = Variable::new("upstream_connect_time", |s, _, out| {
        each(s, out, |state, out| time(state.connect_us, out))
    });

    /// `$upstream_queue_time`, NGINX Plus's; a minus for who has not waited.
    pub const QUEUE_TIME: Variable<S> = Variable::new("upstream_queue_time", |s, _, out| {
        each(s, out, |state, out| {
            let waited = (state.queue_ms > 0).then_some(u64::from(state.queue_ms) * 1000);
            time(waited, out);
        })
    })
    .weak();

    /// `$upstream_bytes_received`
    pub const BYTES_RECEIVED: Variable<S> =
        Variable::new("upstream_bytes_received", |s, _, out| {
            each(s, out, |state, out| fmt_u64(out, state.bytes_received))
        });

    /// `$upstream_bytes_sent`
    pub const BYTES_SENT: Variable<S> = Variable::new("upstream_bytes_sent", |s, _, out| {
        each(s, out, |state, out| fmt_u64(out, state.bytes_sent))
    });

    /// `$upstream_status`; a minus for a server that has not answered.
    pub const STATUS: Variable<S> = Variable::new("upstream_status", |s, _, out| {
        each(s, out, |state, out| match state.status {
            0 => out.push(b'-'),
            n => fmt_u64(out, u64::from(n)),
        })
    });

    /// `$upstream_response_length`
    pub const RESPONSE_LENGTH: Variable<S> =
        Variable::new("upstream_response_length", |s, _, out| {
            each(s, out, |state, out| fmt_u64(out, state.response_length))
        });

    /// The time until an answer's head, or its first byte where there are no heads, by the name that
    /// the protocol has for it.
    pub const fn header_time(name: &'static str) -> Variable<S> {
        Variable::new(name, header_time)
    }

    /// The time until all was over, by the name that the protocol has for it.
    pub const fn response_time(name: &'static str) -> Variable<S> {
        Variable::new(name, response_time)
    }
}

fn header_time<S: Asks>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    each(s, out, |state, out| time(state.header_us, out))
}

fn response_time<S: Asks>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    each(s, out, |state, out| time(state.response_us, out))
}

/// Values of one group of tries are joined by `", "`, groups by `" : "`. For nginx a try that has come to no server is
/// no more than the end of a group, unless it is the first.
fn each<S: Asks>(s: &S, out: &mut Vec<u8>, f: impl Fn(&UpstreamState, &mut Vec<u8>)) -> bool {
    let asked = s.asked();
    let mut before = &b""[..];
    for (i, state) in asked.iter().enumerate() {
        let is_none = i > 0 && state.peer.is_empty();
        out.extend_from_slice(if is_none || state.new_group && i > 0 { b" : " } else { before });
        before = if is_none { b"" } else { b", " };
        if !is_none {
            f(state, out);
        }
    }
    !asked.is_empty()
}

fn time(us: Option<u64>, out: &mut Vec<u8>) {
    let Some(ms) = us.map(|us| us / 1000) else { return out.push(b'-') };
    fmt_u64(out, ms / 1000);
    out.push(b'.');
    let rest = ms % 1000;
    out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|d| b'0' + d as u8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_behind_the_point() {
        let mut out = Vec::new();
        time(Some(12_034_999), &mut out);
        time(None, &mut out);
        assert_eq!(out, b"12.034-");
    }
}
