//! Keeps what variables bring along inside its header field.
//!
//! The header as a whole is looked through, at the one place where it leaves, and only if a variable
//! was evaluated for this request: nothing else here can bring a line end into it.
//!
//! Difference from nginx, which sends them.

use crate::request::Request;
use weir_base::line;
use weir_core::logger::LogLevel;
use weir_core::Session;

/// Mends the fields of the header that is about to leave.
#[inline]
pub(crate) fn check(r: &mut Request) {
    if r.values.is_computed && r.out.is_broken() {
        mend(r);
    }
}

#[cold]
fn mend(r: &mut Request) {
    let location = r.out.get(b"Location").filter(|v| line::is_broken(v)).map(line::encoded);
    let is_broken = |(_, value): &(&[u8], &[u8])| line::is_broken(value);
    let names: Vec<Vec<u8>> = r.out.iter().filter(is_broken).map(|(n, _)| n.to_vec()).collect();
    if let Some(location) = location {
        r.out.replace(b"Location", &location);
    }
    r.out.blank_breaks();
    for name in names {
        log(r, &name, makers(&name));
    }
}

/// A trailer field's value.
pub(crate) fn trailer<'v>(r: &Request, name: &[u8], value: &'v [u8]) -> std::borrow::Cow<'v, [u8]> {
    if line::is_broken(value) {
        log(r, name, "\"add_trailer\"");
    }
    line::one_line(value)
}

/// What makes a field of that name from variables.
fn makers(name: &[u8]) -> &'static str {
    match name.to_ascii_lowercase().as_slice() {
        b"location" => {
            "\"return\", \"rewrite\", \"error_page\", \"proxy_redirect\" or \"add_header\""
        }
        b"www-authenticate" => "\"auth_basic\" or \"add_header\"",
        b"set-cookie" => {
            "\"proxy_cookie_path\", \"proxy_cookie_domain\", \"sticky\" or \"add_header\""
        }
        b"refresh" => "\"proxy_redirect\" or \"add_header\"",
        _ => "\"add_header\" or \"more_set_headers\"",
    }
}

fn log(r: &Request, name: &[u8], by: &str) {
    let name = String::from_utf8_lossy(name);
    let text = format!("a variable in {by} held line ends, which were taken out of \"{name}\"");
    r.log(LogLevel::Error, &text);
}
