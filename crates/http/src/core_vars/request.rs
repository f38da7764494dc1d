//! What the request says and where it leads.

use super::fields::non_empty;
use super::fields::some_if_any;
use crate::credentials;
use crate::flow::VarArg;
use crate::location::map_uri_into;
use crate::request::Request;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use weir_base::bytes::{fmt_u64, push_hex};
use weir_base::units;
use weir_core::common::{number, some};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_runtime::paths;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;

pub(super) fn host(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if r.host.is_empty() {
        return some(out, &r.server().core.reached.primary_name);
    }
    some(out, &r.host)
}

/// As it was sent, also when it could not be parsed.
pub(super) fn request_line(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, r.request_line())
}

pub(super) fn request_uri(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some_if_any(out, r.unparsed_uri())
}

pub(crate) fn request_method(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    // A subrequest tells of the client's.
    let name = if r.is_part() { r.bytes(r.head.method_span) } else { r.method_name() };
    some_if_any(out, name)
}

pub(crate) fn request_filename(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, out);
    r.uri = uri;
    true
}

/// Only while all of it is in memory.
pub(super) fn request_body(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    r.body.file.is_none() && some_if_any(out, &r.body.memory)
}

pub(crate) fn request_body_file(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match &r.body.file {
        Some(file) => some(out, paths::bytes(&file.path)),
        None => false,
    }
}

pub(super) fn request_length(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, r.received)
}

thread_local! {
    /// Keys from the operating system and a counter: ids that cannot be guessed and cost no call.
    static IDS: (RandomState, Cell<u64>) = (RandomState::new(), const { Cell::new(0) });
}

pub(super) fn request_id(_: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    IDS.with(|(keys, counter)| {
        for _ in 0..2 {
            counter.set(counter.get() + 1);
            push_hex(out, &keys.hash_one(counter.get()).to_be_bytes());
        }
    });
    true
}

/// The port of the request line or else of `Host`; 0 if there is none.
fn named_port(r: &Request) -> u16 {
    match framing::host(&r.head, &r.buf) {
        Ok(Some(host)) => host.port,
        _ => 0,
    }
}

pub(crate) fn request_port(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match named_port(r) {
        0 => true,
        port => number(out, u64::from(port)),
    }
}

pub(crate) fn is_request_port(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if named_port(r) == 0 { b"" } else { b":" })
}

/// Of a URI that was refused: empty. Without any: missing.
pub(super) fn uri(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, &r.uri) && !(r.uri.is_empty() && r.method_name().is_empty())
}

pub(super) fn args(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some_if_any(out, &r.args)
}

pub(crate) fn set_args(r: &mut Request, _: &VarArg, value: &[u8]) {
    r.args.clear();
    r.args.extend_from_slice(value);
    r.flags.valid_unparsed_uri = false;
}

pub(crate) fn is_args(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.args.is_empty() { b"" } else { b"?" })
}

pub(crate) fn document_root(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let loc = std::rc::Rc::clone(r.loc());
    loc.core.root_into(r, out);
    true
}

pub(crate) fn realpath_root(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let mut root = Vec::new();
    document_root(r, arg, &mut root);
    let path = paths::path(&root);
    match paths::real(&path) {
        Ok(real) => some(out, paths::bytes(&real)),
        Err(e) => {
            let why = weir_conf::messages::os_error(&e);
            let text = format!("realpath() \"{}\" failed ({why})", path.display());
            r.log(LogLevel::Crit, &text);
            false
        }
    }
}

pub(crate) fn server_name(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, &r.server().core.reached.primary_name)
}

pub(crate) fn server_protocol(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    // Of one that was cut off: empty. Without any: missing.
    some(out, r.bytes(r.head.protocol)) && r.head.protocol.end > 0
}

/// The header's value, or the length of a chunked body that has been read. None for who answers instead when
/// the body was thrown away: servers are told by it what to wait for.
pub(super) fn content_length(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if r.flags.internal && !r.is_answered() && r.body.was_announced() && r.body.is_none() {
        return false;
    }
    if let Some(value) = r.header(HeaderId::ContentLength) {
        return some(out, value);
    }
    if r.body.is_chunked() && r.body.complete {
        fmt_u64(out, r.body.length);
        return true;
    }
    false
}

pub(super) fn remote_user(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let user = r.header(credentials::field(r)).and_then(credentials::basic);
    non_empty(out, user.as_ref().map(|(name, _)| name.as_slice()))
}

pub(super) fn limit_rate(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, r.limit_rate.unwrap_or(0))
}

pub(super) fn set_limit_rate(r: &mut Request, _: &VarArg, value: &[u8]) {
    match units::parse_size(value) {
        Some(rate) => r.limit_rate = Some(rate),
        None => {
            let text = format!("invalid $limit_rate \"{}\"", String::from_utf8_lossy(value));
            r.log(LogLevel::Error, &text);
        }
    }
}
