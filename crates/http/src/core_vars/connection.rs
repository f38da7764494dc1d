//! How a request came by its connection.

use crate::flow::VarArg;
use crate::request::Request;
use weir_core::common::{number, some};

pub(super) fn scheme(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.conn().is_tls() { b"https" } else { b"http" })
}

pub(super) fn https(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.conn().is_tls() { b"on" } else { b"" })
}

pub(super) fn requests(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, u64::from(r.number))
}

/// Whether the request came while the one before was being answered.
pub(super) fn pipe(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.flags.pipelined { b"p" } else { b"." })
}
