//! How long a request has taken.

use crate::flow::VarArg;
use crate::request::Request;
use weir_core::common::push_seconds;

pub(super) fn request_time(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_seconds(out, r.elapsed_ms());
    true
}
