//! A line taken apart, and the request that it is, if it is one.

use super::time;
use crate::event::{Event, Method, Moment, Protocol};
use memchr::{memchr, memrchr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a place in a line may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Field {
    /// Nothing that is wanted.
    Skipped,
    Address,
    /// `10/Oct/2026:13:55:36 +0000`
    TimeLocal,
    TimeIso,
    /// Seconds since 1970.
    TimeUnix,
    /// `2026-10-10` alone
    Date,
    /// `13:55:36` alone
    Clock,
    /// `GET /path HTTP/1.1`
    Request,
    Method,
    Uri,
    Args,
    Protocol,
    Status,
    Bytes,
    Referrer,
    Agent,
    Host,
    Seconds,
    Milliseconds,
    Microseconds,
}

pub const FIELDS: usize = Field::Microseconds as usize + 1;

/// Why a line is no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// It has not the form that was expected.
    Form,
    Address,
    Time,
    Request,
    Status,
    TooLong,
}

impl Invalid {
    pub const ALL: [Invalid; 6] = [
        Invalid::Form,
        Invalid::Address,
        Invalid::Time,
        Invalid::Request,
        Invalid::Status,
        Invalid::TooLong,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Invalid::Form => "another form than the format's",
            Invalid::Address => "no address of a client",
            Invalid::Time => "no time",
            Invalid::Request => "no request",
            Invalid::Status => "no status from 100 to 599",
            Invalid::TooLong => "longer than a line may be",
        }
    }
}

/// Of a request that shows nothing.
const NOTHING: &[u8] = b"-";

/// The texts of a line, each by its field.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>([&'a [u8]; FIELDS]);

impl Default for Raw<'_> {
    fn default() -> Self {
        Raw([b""; FIELDS])
    }
}

impl<'a> Raw<'a> {
    /// What is written twice is what was written first, if that says anything.
    #[inline]
    pub fn set(&mut self, field: Field, text: &'a [u8]) {
        let place = &mut self.0[field as usize];
        if place.is_empty() || *place == b"-" {
            // A line without a byte is what scanners of ports send: a request all the same.
            *place = if text.is_empty() && field == Field::Request { NOTHING } else { text };
        }
    }

    fn get(&self, field: Field) -> &'a [u8] {
        self.0[field as usize]
    }

    fn known(&self, field: Field) -> &'a [u8] {
        match self.get(field) {
            b"-" => b"",
            text => text,
        }
    }

    /// `uri` is for one that is in two parts.
    pub fn event(
        &self,
        local: &mut time::Local,
        uri: &'a mut Vec<u8>,
    ) -> Result<Event<'a>, Invalid> {
        let address = address(self.get(Field::Address)).ok_or(Invalid::Address)?;
        let time = self.time(local).ok_or(Invalid::Time)?;
        let status = self.status()?;
        let (method, uri, protocol) = match self.get(Field::Request) {
            b"" => self.parted(uri)?,
            line => request(line),
        };
        Ok(Event {
            address,
            time,
            method,
            protocol,
            uri,
            status,
            bytes: number(self.get(Field::Bytes)).unwrap_or(0),
            referrer: self.known(Field::Referrer),
            agent: self.get(Field::Agent),
            host: self.known(Field::Host),
            time_us: self.duration(),
        })
    }

    fn time(&self, local: &mut time::Local) -> Option<Moment> {
        if let text @ [_, ..] = self.get(Field::TimeLocal) {
            return local.read(text).or_else(|| time::iso(text));
        }
        if let text @ [_, ..] = self.get(Field::TimeIso) {
            // JSON's writers call all ways the same.
            return time::iso(text).or_else(|| time::unix(text)).or_else(|| local.read(text));
        }
        if let text @ [_, ..] = self.get(Field::TimeUnix) {
            return time::unix(text);
        }
        let day = time::iso_date(self.get(Field::Date))?;
        Some(Moment { day, second: time::clock(self.get(Field::Clock))? })
    }

    /// 0 where a format has none.
    fn status(&self) -> Result<u16, Invalid> {
        match self.get(Field::Status) {
            b"" => Ok(0),
            [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                let digit = |b: &u8| u16::from(b - b'0');
                Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
            }
            _ => Err(Invalid::Status),
        }
    }

    fn parted(&self, whole: &'a mut Vec<u8>) -> Result<(Method, &'a [u8], Protocol), Invalid> {
        let uri = self.known(Field::Uri);
        if uri.is_empty() {
            return Err(Invalid::Request);
        }
        let method = match self.known(Field::Method) {
            b"" => Method::None,
            word => Method::of(word).unwrap_or(Method::Other),
        };
        let protocol = match self.known(Field::Protocol) {
            b"" => Protocol::None,
            word => Protocol::of(word).unwrap_or(Protocol::Other),
        };
        let args = self.known(Field::Args);
        if args.is_empty() {
            return Ok((method, uri, protocol));
        }
        whole.clear();
        whole.extend_from_slice(uri);
        if args[0] != b'?' {
            whole.push(b'?');
        }
        whole.extend_from_slice(args);
        Ok((method, whole, protocol))
    }

    fn duration(&self) -> Option<u32> {
        let thousand = |field: Field, us: u64| fixed(self.get(field), us);
        let us = thousand(Field::Seconds, 1_000_000)
            .or_else(|| thousand(Field::Milliseconds, 1000))
            .or_else(|| thousand(Field::Microseconds, 1))?;
        Some(u32::try_from(us).unwrap_or(u32::MAX))
    }
}

/// `GET /path HTTP/1.1`. A line that begins with no method is all there is to show; one that has a method and no
/// protocol shows nothing.
fn request(line: &[u8]) -> (Method, &[u8], Protocol) {
    let Some(space) = memchr(b' ', line) else { return (Method::None, line, Protocol::None) };
    let Some(method) = Method::of(&line[..space]) else {
        return (Method::None, line, Protocol::None);
    };
    let rest = &line[space + 1..];
    let Some(last) = memrchr(b' ', rest) else { return (method, NOTHING, Protocol::None) };
    match Protocol::of(&rest[last + 1..]) {
        Some(protocol) if last > 0 => (method, &rest[..last], protocol),
        _ => (method, NOTHING, Protocol::None),
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |n, b| match b {
        b'0'..=b'9' => Some(n * 10 + u64::from(b - b'0')),
        _ => None,
    })
}

/// A decimal fraction, times `unit`.
fn fixed(text: &[u8], unit: u64) -> Option<u64> {
    let dot = memchr(b'.', text).unwrap_or(text.len());
    let whole = number(&text[..dot])?.checked_mul(unit)?;
    let (mut worth, mut part) = (unit, 0);
    for b in text.get(dot + 1..).unwrap_or_default() {
        worth /= 10;
        match b {
            b'0'..=b'9' => part += u64::from(b - b'0') * worth,
            // Very small and very large ones of JSON's writers.
            b'e' | b'E' => return (text[dot..].contains(&b'-')).then_some(0),
            _ => return None,
        }
    }
    whole.checked_add(part)
}

/// Of a client: also in brackets, also with its port, also `unix:`.
pub fn address(text: &[u8]) -> Option<IpAddr> {
    if let Some(v4) = ipv4(text) {
        return Some(IpAddr::V4(v4));
    }
    match text {
        b"unix:" | b"unix" => return Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        [b'[', rest @ ..] => {
            let end = memchr(b']', rest)?;
            return ipv6(&rest[..end]);
        }
        _ => {}
    }
    if let Some(v6) = ipv6(text) {
        return Some(v6);
    }
    let colon = memrchr(b':', text)?;
    number(&text[colon + 1..])?;
    ipv4(&text[..colon]).map(IpAddr::V4)
}

fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    if text.len() < 7 || text.len() > 15 {
        return None;
    }
    let (mut bits, mut part, mut digits, mut dots) = (0_u32, 0_u32, 0, 0);
    for b in text {
        match b {
            b'0'..=b'9' => {
                // inet_pton takes no zeros in front.
                if digits == 3 || (digits > 0 && part == 0) {
                    return None;
                }
                part = part * 10 + u32::from(b - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && dots < 3 && part < 256 => {
                bits = bits << 8 | part;
                (part, digits) = (0, 0);
                dots += 1;
            }
            _ => return None,
        }
    }
    (dots == 3 && digits > 0 && part < 256).then(|| Ipv4Addr::from(bits << 8 | part))
}

fn ipv6(text: &[u8]) -> Option<IpAddr> {
    if text.len() > 45 {
        return None;
    }
    let v6: Ipv6Addr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(IpAddr::V6(v6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, wanted) in [
            ("127.0.0.1", Some("127.0.0.1")),
            ("255.255.255.255", Some("255.255.255.255")),
            ("::1", Some("::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("10.1.2.3:5000", Some("10.1.2.3")),
            ("unix:", Some("0.0.0.0")),
            ("256.1.1.1", None),
            ("01.1.1.1", None),
            ("1.1.1", None),
            ("1.1.1.1.", None),
            ("1..1.1", None),
            ("1.1.1.1x", None),
            ("", None),
            ("-", None),
            ("host.example", None),
        ] {
            assert_eq!(address(text.as_bytes()), wanted.map(|w| w.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn requests() {
        assert_eq!(request(b"GET / HTTP/1.1"), (Method::Get, &b"/"[..], Protocol::Http11));
        assert_eq!(request(b"GET /a b HTTP/2.0"), (Method::Get, &b"/a b"[..], Protocol::Http2));
        assert_eq!(request(b"GET /"), (Method::Get, &b"-"[..], Protocol::None));
        assert_eq!(request(b"GET HTTP/1.1"), (Method::Get, &b"-"[..], Protocol::None));
        assert_eq!(request(b"\\x16\\x03"), (Method::None, &b"\\x16\\x03"[..], Protocol::None));
        assert_eq!(request(b"FOO / HTTP/1.1").0, Method::None);
    }

    #[test]
    fn numbers() {
        assert_eq!(fixed(b"0.123", 1_000_000), Some(123_000));
        assert_eq!(fixed(b"12", 1000), Some(12_000));
        assert_eq!(fixed(b"0.0000015", 1_000_000), Some(1));
        assert_eq!(fixed(b"1.5e-05", 1_000_000), Some(0));
        assert_eq!(fixed(b"-", 1), None);
        assert_eq!(fixed(b"1.x", 1000), None);
        assert_eq!(
            (number(b""), number(b"99999999999999999999"), number(b"7")),
            (None, None, Some(7))
        );
    }
}
