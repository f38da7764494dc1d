//! Variables of Tengine's core: parts of the time, what others come to when they are encoded, times of a request.
//!
//! Their names are short, and configurations for nginx use them for variables of their own: those come first.

use crate::server_info::url;
use md5::{Digest as _, Md5};
use weir_base::bytes::{fmt_i64, push_hex};
use weir_base::date::{self, Civil};
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::common::{number, some};
use weir_core::eval::{guarded, with_scratch};
use weir_core::variables::{VarArg, Variable};
use weir_core::Session;
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_runtime::{clock, process, tz};

type Var = Variable<Request>;

pub const MODULE: HttpModule = HttpModule {
    variables: &[
        Var::new("dollar", |_, _, out| some(out, b"$")).weak(),
        Var::new("host_comment", host_comment).weak(),
        Var::new("unix_time", |_, _, out| {
            fmt_i64(out, clock::wall_secs());
            true
        })
        .weak(),
        Var::new("year", |_, _, out| padded(out, now().year, 4)).weak(),
        Var::new("year2", |_, _, out| padded(out, now().year % 100, 2)).weak(),
        Var::new("month", |_, _, out| padded(out, now().month, 2)).weak(),
        Var::new("day", |_, _, out| padded(out, now().day, 2)).weak(),
        Var::new("hour", |_, _, out| padded(out, now().hour, 2)).weak(),
        Var::new("hour12", |_, _, out| padded(out, (now().hour + 11) % 12 + 1, 2)).weak(),
        Var::new("minute", |_, _, out| padded(out, now().min, 2)).weak(),
        Var::new("second", |_, _, out| padded(out, now().sec, 2)).weak(),
        Var::new("time_http", |_, _, out| some(out, &date::http_time(clock::wall_secs()))).weak(),
        Var::prefixed("base64_decode_", base64_decode).weak(),
        Var::prefixed("md5_encode_", md5_encode).weak(),
        Var::prefixed("escape_uri_", escaped).weak(),
        Var::prefixed("ascii_", ascii).weak(),
        Var::prefixed("sent_cookie_", sent_cookie).weak(),
        Var::new("full_request", |r, _, out| some(out, &url(r))).weak(),
        Var::new("normalized_request", normalized_request).weak(),
        Var::new("raw_uri", raw_uri).weak(),
        Var::new("request_time_msec", |r, _, out| number(out, r.elapsed_ms())).weak(),
        Var::new("request_time_usec", |r, _, out| number(out, r.elapsed_ms() * 1000)).weak(),
        Var::new("server_rt", |r, _, out| number(out, r.elapsed_ms())).weak(),
        Var::new("request_start_time", start_time).weak(),
        Var::new("request_recv_start_time", |r, _, out| number(out, wall_ms(r.elapsed_ms())))
            .weak(),
        Var::new("response_send_finish_time", sent_time).weak(),
    ],
    ..HttpModule::EMPTY
};

/// Local time.
fn now() -> Civil {
    let secs = clock::wall_secs();
    Civil::from_unix(secs + i64::from(tz::offset_minutes(secs)) * 60)
}

fn padded(out: &mut Vec<u8>, value: u32, width: usize) -> bool {
    out.extend_from_slice(format!("{value:0width$}").as_bytes());
    true
}

/// The moment that long ago, in milliseconds since 1970.
fn wall_ms(ago_ms: u64) -> u64 {
    let (secs, ms) = clock::wall();
    let now = u64::try_from(secs).unwrap_or(0) * 1000 + u64::from(ms);
    now.saturating_sub(ago_ms)
}

fn host_comment(_: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(b"<!-- ");
    out.extend_from_slice(process::hostname().to_ascii_lowercase().as_bytes());
    out.push(b' ');
    out.extend_from_slice(&date::http_time(clock::wall_secs()));
    out.extend_from_slice(b" -->\r\n");
    true
}

/// What is made of the value of the variable that the name ends with; none where that has none.
fn made_of(
    r: &mut Request,
    arg: &VarArg,
    out: &mut Vec<u8>,
    make: fn(&[u8], &mut Vec<u8>),
) -> bool {
    with_scratch(|value| {
        let found = guarded(r, &arg.name, |r| r.var_named(&arg.name, value));
        if found {
            make(value, out);
        }
        found
    })
}

/// What is no base64 stays as it is.
fn base64_decode(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    made_of(r, arg, out, |value, out| match weir_base::base64::decode(value) {
        Some(decoded) => out.extend_from_slice(&decoded),
        None => out.extend_from_slice(value),
    })
}

fn md5_encode(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    made_of(r, arg, out, |value, out| {
        push_hex(out, &Md5::digest(value));
    })
}

fn escaped(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    made_of(r, arg, out, |value, out| escape_uri(out, value, EscapeKind::Uri))
}

/// The byte with that number, which may be hexadecimal.
fn ascii(_: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let Ok(name) = std::str::from_utf8(&arg.name) else { return false };
    let number = match name.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16),
        None => name.parse(),
    };
    out.extend(number.iter());
    number.is_ok()
}

fn sent_cookie(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let fields = r.out.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"Set-Cookie"));
    let value = fields.filter_map(|(_, value)| cookie(value, &arg.name)).next();
    value.is_some_and(|value| some(out, value))
}

/// The value in a `Set-Cookie` field, if it sets that cookie.
fn cookie<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = field.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b"=").filter(|_| head.eq_ignore_ascii_case(name))?;
    value.split(|b| *b == b';').next()
}

/// The URL, up to a fragment, with the digits of escapes in upper case.
fn normalized_request(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let url = url(r);
    let end = url.iter().position(|b| *b == b'#').unwrap_or(url.len());
    out.extend_from_slice(&url[..end]);
    let text = &mut out[start..];
    for at in 0..text.len() {
        let escape = match text[at] {
            b'%' => text.get_mut(at + 1..at + 3),
            _ => None,
        };
        if let Some(digits) = escape.filter(|d| d.iter().all(u8::is_ascii_hexdigit)) {
            digits.make_ascii_uppercase();
        }
    }
    true
}

/// The path of the request line as the client wrote it.
fn raw_uri(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let uri = r.unparsed_uri();
    let end = uri.iter().position(|b| *b == b'?').unwrap_or(uri.len());
    some(out, &uri[..end])
}

/// `$time_local` of the request's beginning.
fn start_time(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let secs = (wall_ms(r.elapsed_ms()) / 1000) as i64;
    some(out, &date::format_clf(secs, tz::offset_minutes(secs)))
}

/// In the log, when all of the answer has left: now.
fn sent_time(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    r.flags.header_sent && number(out, wall_ms(0))
}

#[cfg(test)]
mod tests {
    use super::cookie;

    #[test]
    fn cookies() {
        for (field, expected) in [
            ("a=1; path=/", Some("1")),
            ("A=2", Some("2")),
            ("a=", Some("")),
            ("ab=1", None),
            ("a", None),
        ] {
            let found = cookie(field.as_bytes(), b"a");
            assert_eq!(found, expected.map(str::as_bytes), "{field}");
        }
    }
}
