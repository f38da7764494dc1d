//! The core module's variables.

use crate::Session;
use weir_core::common::{number, push_seconds, some};
use weir_core::variables::{VarArg, Variable};
use weir_runtime::clock;

pub(crate) const VARIABLES: &[Variable<Session>] = &[
    Variable::new("server_name", server_name),
    Variable::new("bytes_sent", bytes_sent),
    Variable::new("bytes_received", bytes_received),
    Variable::new("session_time", session_time),
    Variable::new("status", status),
    Variable::new("protocol", protocol),
];

fn server_name(s: &mut Session, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, s.server_name())
}

fn bytes_sent(s: &mut Session, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, s.sent)
}

fn bytes_received(s: &mut Session, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, s.received)
}

fn session_time(s: &mut Session, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_seconds(out, clock::mono_ms().saturating_sub(s.conn().start_ms));
    true
}

/// Three digits; `000` while the session has not ended.
fn status(s: &mut Session, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, format!("{:03}", s.status).as_bytes())
}

fn protocol(s: &mut Session, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if s.conn().is_udp() { b"UDP" } else { b"TCP" })
}
