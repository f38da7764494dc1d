//! Numbers, dates, addresses, escapes.

use super::Target;
use crate::random::Random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_base::addr::{self, Cidr, EndpointOptions};
use weir_base::{base64, bytes, date, escape, units};

pub const UNITS: Target = Target {
    name: "units",
    seeds: &[
        b"0",
        b"10k",
        b"1M",
        b"2g",
        b"1d 2h 3m",
        b"1y6M2w",
        b"500ms",
        b"10.25",
        b"ff",
        b"on",
        b"9223372036854775807",
    ],
    pieces: &[
        b"0",
        b"9",
        b"k",
        b"m",
        b"g",
        b"s",
        b"ms",
        b"y",
        b"M",
        b"w",
        b"d",
        b"h",
        b" ",
        b".",
        b"-",
        b"off",
        b"99999999",
    ],
    check: |text, _| check_units(text),
};

fn check_units(text: &[u8]) {
    if let Some(n) = units::parse_int(text) {
        let mut out = Vec::new();
        bytes::fmt_u64(&mut out, n);
        assert_eq!(units::parse_int(&out), Some(n));
        assert_eq!(units::parse_size(text), Some(n));
    }
    if let Some(n) = units::parse_size(text) {
        assert_eq!(units::parse_offset(text), Some(n));
    }
    if let (Some(sec), Some(msec)) = (units::parse_sec(text), units::parse_msec(text)) {
        assert_eq!(sec, msec / 1000);
    }
    let _ = (units::parse_hex(text), units::parse_flag(text));
    for point in 0..4 {
        let _ = units::parse_fixed(text, point);
    }
}

pub const DATES: Target = Target {
    name: "dates",
    seeds: &[
        b"Tue, 10 Dec 2002 23:50:13 GMT",
        b"Tuesday, 10-Dec-02 23:50:13 GMT",
        b"Tue Dec 10 23:50:13 2002",
        b"Thu, 29 Feb 2024 00:00:00 GMT",
        b"Fri, 31 Dec 9999 23:59:59 GMT",
    ],
    pieces: &[
        b" ", b",", b"-", b":", b"0", b"9", b"Jan", b"Feb", b"Ju", b"GMT", b"29", b"60", b"1970",
        b"0000",
    ],
    check: check_dates,
};

fn check_dates(text: &[u8], random: &mut Random) {
    if let Some(secs) = date::parse_http_time(text).filter(|secs| *secs >= 0) {
        assert_eq!(date::parse_http_time(&date::http_time(secs)), Some(secs));
    }
    let secs = (random.next() % 253_402_300_800) as i64;
    assert_eq!(date::parse_http_time(&date::http_time(secs)), Some(secs));
    let offset = random.below(28 * 60) as i32 - 14 * 60;
    let _ = (date::format_clf(secs, offset), date::format_iso8601(secs, offset));
    let _ = (date::format_errlog(secs, offset), date::format_syslog(secs, offset));
    date::cookie_time(&mut Vec::new(), secs);
}

pub const ADDRESSES: Target = Target {
    name: "addresses",
    seeds: &[
        b"127.0.0.1:80",
        b"10.0.0.0/8",
        b"[::1]:8080",
        b"2001:db8::/32",
        b"::ffff:1.2.3.4",
        b"unix:/a:b",
        b"*:80",
        b"example.com:81-90",
    ],
    pieces: &[
        b":", b"::", b".", b"/", b"[", b"]", b"0", b"255", b"256", b"ffff", b"*", b"unix:", b"-",
        b"32",
    ],
    check: |text, _| check_addresses(text),
};

fn check_addresses(text: &[u8]) {
    let (v4, v6) = (addr::parse_ipv4(text), addr::parse_ipv6(text));
    let words = std::str::from_utf8(text).unwrap_or_default();
    if let Ok(expected) = words.parse::<Ipv4Addr>() {
        assert_eq!(v4, Some(expected));
    }
    if let Ok(expected) = words.parse::<Ipv6Addr>() {
        assert_eq!(v6, Some(expected));
    }
    if let Some((cidr, _)) = Cidr::parse(text) {
        // As in nginx, an address that is mapped is matched as the IPv4 address it carries.
        let is_mapped = addr::unmapped(cidr.base()) != cidr.base();
        assert!(is_mapped || cidr.matches(cidr.base()));
        let most = if cidr.base().is_ipv4() { 32 } else { 128 };
        assert!(cidr.prefix() <= most);
    }
    let _ = v4.map(|a| addr::unmapped(IpAddr::V4(a)));
    let _ = addr::parse_endpoint(text, EndpointOptions::default());
}

pub const ESCAPES: Target = Target {
    name: "escapes",
    seeds: &[
        b"a b%20c?d&e=f#g",
        b"<a href=\"x\">'&",
        b"\x00\x1f\x7f\xff\xc3\xa9",
        b"dXNlcjpwYXNz",
        b"/a/../b",
    ],
    pieces: &[b"%", b"%zz", b"%41", b"\\", b"\"", b"=", b"==", b"\r\n", b"+", b"-", b"_"],
    check: |text, _| check_escapes(text),
};

fn check_escapes(text: &[u8]) {
    let mut out = Vec::new();
    base64::encode(&mut out, text);
    assert_eq!(base64::decode(&out).as_deref(), Some(text));
    let _ = (base64::decode(text), base64::decode_url(text));
    out.clear();
    bytes::push_hex(&mut out, text);
    assert_eq!(bytes::parse_hex_bytes(&out).as_deref(), Some(text));
    out.clear();
    escape::escape_log(&mut out, text);
    assert!(!out.iter().any(u8::is_ascii_control));
    out.clear();
    escape::escape_json(&mut out, text);
    assert!(!out.iter().any(|byte| *byte < b' '));
    out.clear();
    escape::escape_html(&mut out, text);
    assert!(!out.contains(&b'<') && !out.contains(&b'"'));
}
