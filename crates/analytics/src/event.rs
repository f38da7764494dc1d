//! One request, as a log or a server knows it.

use std::net::IpAddr;

pub const DAY_SECS: u32 = 86_400;

/// When: by the clock of whoever wrote it, which is also what days and hours are counted by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    /// Since 1 January 1970.
    pub day: i32,
    /// Of that day.
    pub second: u32,
}

impl Moment {
    /// From seconds since 1970.
    pub fn from_unix(secs: i64) -> Moment {
        let day_secs = i64::from(DAY_SECS);
        let day = secs.div_euclid(day_secs).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        Moment { day, second: secs.rem_euclid(day_secs) as u32 }
    }
}

/// What was asked, and what came of it. A text that is not known is empty.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub address: IpAddr,
    pub time: Moment,
    pub method: Method,
    pub protocol: Protocol,
    /// As it was sent: with its query, escaped; or the whole line of a request that is none.
    pub uri: &'a [u8],
    /// 0: not known.
    pub status: u16,
    /// Sent, by whatever the log counts.
    pub bytes: u64,
    pub referrer: &'a [u8],
    pub agent: &'a [u8],
    /// The site it was sent to.
    pub host: &'a [u8],
    /// In microseconds.
    pub time_us: Option<u32>,
}

macro_rules! names {
    ($(#[$about:meta])* $kind:ident: $($id:ident = $text:literal),+ $(,)?) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $kind { $($id),+ }

        impl $kind {
            pub const ALL: &'static [$kind] = &[$($kind::$id),+];

            pub fn name(self) -> &'static str {
                match self { $($kind::$id => $text),+ }
            }
        }
    };
}

names! {
    /// Of a request; `None` is of a line that begins with none of the others.
    Method:
    None = "-", Get = "GET", Head = "HEAD", Post = "POST", Put = "PUT", Delete = "DELETE", Options = "OPTIONS",
    Patch = "PATCH", Connect = "CONNECT", Trace = "TRACE", Propfind = "PROPFIND", Proppatch = "PROPPATCH",
    Mkcol = "MKCOL", Copy = "COPY", Move = "MOVE", Lock = "LOCK", Unlock = "UNLOCK", Report = "REPORT",
    Search = "SEARCH", Purge = "PURGE", Other = "other",
}

names! {
    /// By its larger part: HTTP/2.0 is HTTP/2.
    Protocol: None = "-", Http09 = "HTTP/0.9", Http10 = "HTTP/1.0", Http11 = "HTTP/1.1", Http2 = "HTTP/2",
    Http3 = "HTTP/3", Other = "other",
}

impl Method {
    /// `None` where it is no method's name.
    #[inline]
    pub fn of(word: &[u8]) -> Option<Method> {
        match word {
            b"GET" => Some(Method::Get),
            b"POST" => Some(Method::Post),
            _ => Method::of_others(word),
        }
    }

    fn of_others(word: &[u8]) -> Option<Method> {
        let is_it = |m: &&Method| m.name().as_bytes().eq_ignore_ascii_case(word);
        Method::ALL[1..Method::Other as usize].iter().find(is_it).copied()
    }
}

impl Protocol {
    pub fn of(word: &[u8]) -> Option<Protocol> {
        match word {
            b"HTTP/1.1" => return Some(Protocol::Http11),
            b"HTTP/2.0" | b"HTTP/2" | b"h2" | b"h2c" => return Some(Protocol::Http2),
            b"HTTP/3.0" | b"HTTP/3" | b"h3" => return Some(Protocol::Http3),
            b"HTTP/1.0" => return Some(Protocol::Http10),
            b"HTTP/0.9" => return Some(Protocol::Http09),
            _ => {}
        }
        let starts = |name: &str| {
            word.get(..name.len()).is_some_and(|w| w.eq_ignore_ascii_case(name.as_bytes()))
        };
        let known = [Protocol::Http10, Protocol::Http11, Protocol::Http2, Protocol::Http3];
        known.into_iter().find(|p| starts(p.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert_eq!(Method::of(b"get"), Some(Method::Get));
        assert_eq!(Method::of(b"PROPFIND"), Some(Method::Propfind));
        assert_eq!((Method::of(b"other"), Method::of(b"-"), Method::of(b"")), (None, None, None));
        assert_eq!(Protocol::of(b"http/1.1"), Some(Protocol::Http11));
        assert_eq!(Protocol::of(b"HTTP/2.0"), Some(Protocol::Http2));
        assert_eq!(Protocol::of(b"HTTP/4"), None);
    }

    #[test]
    fn moments() {
        assert_eq!(Moment::from_unix(86_401), Moment { day: 1, second: 1 });
        assert_eq!(Moment::from_unix(-1), Moment { day: -1, second: 86_399 });
        assert_eq!(Moment::from_unix(i64::MIN).day, i32::MIN);
    }
}
