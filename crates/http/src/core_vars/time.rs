//! How long a request has taken.

use super::push_seconds;
use crate::module::VarArg;
use crate::request::Request;

pub fn request_time(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push_seconds(out, r.elapsed_ms());
    true
}
