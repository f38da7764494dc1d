//! The core module's variables, with nginx's values down to what is "not found" and what is empty.
//!
//! Difference from nginx: `$nginx_version` is this program's version.

mod connection;
mod fields;
mod request;
mod response;
mod time;

pub use fields::{cookie_value, query_arg};
pub use request::basic_credentials;
pub use response::shown_status;
pub use time::{push_msec, push_time_iso8601, push_time_local};

use crate::module::{VarArg, Variable};
use crate::Request;
use weir_base::bytes::fmt_u64;

const fn var(name: &'static str, get: crate::module::Getter) -> Variable {
    Variable::new(name, get)
}

const fn prefix(name: &'static str, get: crate::module::Getter) -> Variable {
    Variable::prefixed(name, get)
}

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
    var("remote_addr", connection::remote_addr),
    var("remote_port", connection::remote_port),
    var("binary_remote_addr", connection::binary_remote_addr),
    var("server_addr", connection::server_addr),
    var("server_port", connection::server_port),
    var("scheme", connection::scheme),
    var("https", connection::https),
    var("proxy_protocol_addr", connection::proxy_protocol_addr),
    var("proxy_protocol_port", connection::proxy_protocol_port),
    var("proxy_protocol_server_addr", connection::proxy_protocol_server_addr),
    var("proxy_protocol_server_port", connection::proxy_protocol_server_port),
    prefix("proxy_protocol_tlv_", connection::proxy_protocol_tlv),
    var("connection", connection::serial),
    var("connection_requests", connection::requests),
    var("connection_time", connection::age),
    var("pipe", connection::pipe),
    var("tcpinfo_rtt", connection::tcpinfo_rtt),
    var("tcpinfo_rttvar", connection::tcpinfo_rttvar),
    var("tcpinfo_snd_cwnd", connection::tcpinfo_snd_cwnd),
    var("tcpinfo_rcv_space", connection::tcpinfo_rcv_space),
    // The server and the clock.
    var("request_time", time::request_time),
    var("msec", time::msec),
    var("time_iso8601", time::time_iso8601),
    var("time_local", time::time_local),
    var("pid", time::pid),
    var("hostname", time::hostname),
    var("nginx_version", time::version),
];

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
fn some(out: &mut Vec<u8>, value: &[u8]) -> bool {
    out.extend_from_slice(value);
    true
}

/// A value that counts as missing when it is empty.
fn some_if_any(out: &mut Vec<u8>, value: &[u8]) -> bool {
    out.extend_from_slice(value);
    !value.is_empty()
}

fn number(out: &mut Vec<u8>, value: u64) -> bool {
    fmt_u64(out, value);
    true
}

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
    fn durations() {
        for (ms, text) in [(0, "0.000"), (45, "0.045"), (1234, "1.234"), (60_007, "60.007")] {
            let mut out = Vec::new();
            push_seconds(&mut out, ms);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = VARIABLES.iter().map(|v| v.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
