//! Clocks, and what never changes while the server runs.

use super::{number, push_fraction, some};
use crate::session::Session;
use crate::variables::VarArg;
use crate::SERVER_VERSION;
use std::cell::Cell;
use std::sync::OnceLock;
use weir_base::bytes::fmt_i64;
use weir_base::date;
use weir_runtime::{clock, tz};

/// The second's texts, made once per second and thread.
#[derive(Clone, Copy)]
struct Texts {
    secs: i64,
    local: [u8; 26],
    iso8601: [u8; 25],
}

thread_local! {
    static TEXTS: Cell<Texts> =
        const { Cell::new(Texts { secs: i64::MIN, local: [0; 26], iso8601: [0; 25] }) };
}

fn texts() -> Texts {
    let secs = clock::wall_secs();
    let known = TEXTS.get();
    if known.secs == secs {
        return known;
    }
    let offset = tz::offset_minutes(secs);
    let fresh = Texts {
        secs,
        local: date::format_clf(secs, offset),
        iso8601: date::format_iso8601(secs, offset),
    };
    TEXTS.set(fresh);
    fresh
}

/// `28/Sep/1970:12:00:00 +0600`
pub fn push_time_local(out: &mut Vec<u8>) {
    out.extend_from_slice(&texts().local);
}

/// `1970-09-28T12:00:00+06:00`
pub fn push_time_iso8601(out: &mut Vec<u8>) {
    out.extend_from_slice(&texts().iso8601);
}

/// `1234567890.123`
pub fn push_msec(out: &mut Vec<u8>) {
    let (secs, ms) = clock::wall();
    fmt_i64(out, secs);
    push_fraction(out, ms);
}

pub(crate) fn time_local<S: Session>(_: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_time_local(out);
    true
}

pub(crate) fn time_iso8601<S: Session>(_: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_time_iso8601(out);
    true
}

pub(crate) fn msec<S: Session>(_: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_msec(out);
    true
}

pub(crate) fn pid<S: Session>(_: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, u64::from(std::process::id()))
}

pub(crate) fn hostname<S: Session>(_: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    static NAME: OnceLock<String> = OnceLock::new();
    some(
        out,
        NAME.get_or_init(|| weir_runtime::process::hostname().to_ascii_lowercase()).as_bytes(),
    )
}

pub(crate) fn version<S: Session>(_: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let version = SERVER_VERSION.split_once('/').map_or(SERVER_VERSION, |(_, v)| v);
    some(out, version.as_bytes())
}
