//! The core module's variables, with nginx's values down to what is "not found" and what is empty.
//!
//! Difference from nginx: `$nginx_version` is this program's version.

mod connection;
mod fields;
mod request;
mod response;
mod time;

pub use fields::{cookie_value, query_arg};
pub use response::shown_status;

use crate::flow::{Getter, VarArg, Variable};
use crate::Request;

const fn var(name: &'static str, get: Getter) -> Variable {
    Variable::new(name, get)
}

const fn prefix(name: &'static str, get: Getter) -> Variable {
    Variable::prefixed(name, get)
}

/// Those of requests; [`weir_core::common`] has those of every session.
pub const VARIABLES: &[Variable] = &[
    // The request's header fields; the frequent ones are found by number.
    var("http_host", fields::http_host),
    var("http_user_agent", fields::http_user_agent),
    var("http_referer", fields::http_referer),
    var("http_via", fields::http_via),
    var("http_x_forwarded_for", fields::http_x_forwarded_for),
    var("http_cookie", fields::http_cookie),
    var("content_type", fields::content_type),
    var("content_length", request::content_length),
    prefix("http_", fields::http_any),
    prefix("cookie_", fields::cookie),
    prefix("arg_", fields::arg),
    // The request.
    var("host", request::host),
    var("request", request::request_line),
    var("request_uri", request::request_uri),
    var("request_method", request::request_method),
    var("request_filename", request::request_filename),
    var("request_body", request::request_body),
    var("request_body_file", request::request_body_file),
    var("request_length", request::request_length),
    var("request_id", request::request_id).cached(),
    var("request_port", request::request_port),
    var("is_request_port", request::is_request_port),
    var("uri", request::uri),
    var("document_uri", request::uri),
    var("query_string", request::args),
    var("args", request::args).settable(request::set_args),
    var("is_args", request::is_args),
    var("document_root", request::document_root),
    var("realpath_root", request::realpath_root).cached(),
    var("server_name", request::server_name),
    var("server_protocol", request::server_protocol),
    var("remote_user", request::remote_user),
    var("limit_rate", request::limit_rate).settable(request::set_limit_rate),
    // The response.
    var("status", response::status),
    var("bytes_sent", response::bytes_sent),
    var("body_bytes_sent", response::body_bytes_sent),
    var("request_completion", response::request_completion),
    var("sent_http_content_type", response::content_type),
    var("sent_http_content_length", response::content_length),
    var("sent_http_last_modified", response::last_modified),
    var("sent_http_connection", response::connection),
    var("sent_http_keep_alive", response::keep_alive),
    var("sent_http_transfer_encoding", response::transfer_encoding),
    prefix("sent_http_", response::any_field),
    prefix("sent_trailer_", response::any_trailer),
    // The connection.
    var("scheme", connection::scheme),
    var("https", connection::https),
    var("connection_requests", connection::requests),
    var("pipe", connection::pipe),
    // The server and the clock.
    var("request_time", time::request_time),
];

/// `$host$is_request_port$request_port`: what servers are told as the host.
pub fn host_with_port(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    request::host(r, arg, out)
        && request::is_request_port(r, arg, out)
        && request::request_port(r, arg, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = VARIABLES.iter().map(|v| v.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
