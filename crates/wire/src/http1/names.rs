//! The header names the server acts on, as small numbers.
//!
//! A name is found by its length and first letter and then compared once or twice, which is
//! cheaper than hashing for names this short.

/// A request header the server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum HeaderId {
    #[default]
    Other,
    Host,
    Connection,
    ProxyConnection,
    IfModifiedSince,
    IfUnmodifiedSince,
    IfMatch,
    IfNoneMatch,
    UserAgent,
    Referer,
    ContentLength,
    ContentRange,
    ContentType,
    Range,
    IfRange,
    TransferEncoding,
    Te,
    Expect,
    Upgrade,
    AcceptEncoding,
    Via,
    Authorization,
    ProxyAuthorization,
    KeepAlive,
    XForwardedFor,
    XRealIp,
    Accept,
    AcceptLanguage,
    Depth,
    Destination,
    Overwrite,
    Date,
    Cookie,
    Trailer,
    Priority,
}

impl HeaderId {
    pub fn of(name: &[u8]) -> HeaderId {
        use HeaderId as H;
        let Some(&first) = name.first() else { return H::Other };
        let (id, text): (HeaderId, &[u8]) = match (name.len(), first | 0x20) {
            (2, b't') => (H::Te, b"te"),
            (3, b'v') => (H::Via, b"via"),
            (4, b'h') => (H::Host, b"host"),
            (4, b'd') => (H::Date, b"date"),
            (5, b'r') => (H::Range, b"range"),
            (5, b'd') => (H::Depth, b"depth"),
            (6, b'a') => (H::Accept, b"accept"),
            (6, b'c') => (H::Cookie, b"cookie"),
            (6, b'e') => (H::Expect, b"expect"),
            (7, b'r') => (H::Referer, b"referer"),
            (7, b'u') => (H::Upgrade, b"upgrade"),
            (7, b't') => (H::Trailer, b"trailer"),
            (8, b'p') => (H::Priority, b"priority"),
            (8, b'i') if at(name, 3) == b'm' => (H::IfMatch, b"if-match"),
            (8, b'i') => (H::IfRange, b"if-range"),
            (9, b'x') => (H::XRealIp, b"x-real-ip"),
            (9, b'o') => (H::Overwrite, b"overwrite"),
            (10, b'c') => (H::Connection, b"connection"),
            (10, b'u') => (H::UserAgent, b"user-agent"),
            (10, b'k') => (H::KeepAlive, b"keep-alive"),
            (11, b'd') => (H::Destination, b"destination"),
            (12, b'c') => (H::ContentType, b"content-type"),
            (13, b'c') => (H::ContentRange, b"content-range"),
            (13, b'i') => (H::IfNoneMatch, b"if-none-match"),
            (13, b'a') => (H::Authorization, b"authorization"),
            (14, b'c') => (H::ContentLength, b"content-length"),
            (15, b'x') => (H::XForwardedFor, b"x-forwarded-for"),
            (15, b'a') if at(name, 7) == b'e' => (H::AcceptEncoding, b"accept-encoding"),
            (15, b'a') => (H::AcceptLanguage, b"accept-language"),
            (16, b'p') => (H::ProxyConnection, b"proxy-connection"),
            (17, b'i') => (H::IfModifiedSince, b"if-modified-since"),
            (17, b't') => (H::TransferEncoding, b"transfer-encoding"),
            (19, b'i') => (H::IfUnmodifiedSince, b"if-unmodified-since"),
            (19, b'p') => (H::ProxyAuthorization, b"proxy-authorization"),
            _ => return H::Other,
        };
        if name.eq_ignore_ascii_case(text) {
            id
        } else {
            H::Other
        }
    }

    /// This header's bit in [`super::request::RequestHead::seen`].
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// Whether a second one in the same request is refused.
    pub(crate) const fn is_unique(self) -> bool {
        const UNIQUE: u64 = HeaderId::Host.bit()
            | HeaderId::IfModifiedSince.bit()
            | HeaderId::IfUnmodifiedSince.bit()
            | HeaderId::IfMatch.bit()
            | HeaderId::IfNoneMatch.bit()
            | HeaderId::ContentLength.bit()
            | HeaderId::ContentRange.bit()
            | HeaderId::IfRange.bit()
            | HeaderId::TransferEncoding.bit()
            | HeaderId::Expect.bit()
            | HeaderId::Authorization.bit()
            | HeaderId::ProxyAuthorization.bit();
        self.bit() & UNIQUE != 0
    }
}

/// A response header the proxy acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ResponseHeaderId {
    #[default]
    Other,
    Status,
    ContentType,
    ContentLength,
    TransferEncoding,
    Connection,
    Date,
    Server,
    Location,
    Refresh,
    SetCookie,
    LastModified,
    ETag,
    CacheControl,
    Expires,
    Vary,
    WwwAuthenticate,
    Link,
    XAccelRedirect,
    XAccelExpires,
    XAccelLimitRate,
    XAccelBuffering,
    XAccelCharset,
    Upgrade,
    AcceptRanges,
    ContentRange,
    ContentEncoding,
    ContentDisposition,
    KeepAlive,
    Pragma,
    Trailer,
}

impl ResponseHeaderId {
    pub fn of(name: &[u8]) -> ResponseHeaderId {
        use ResponseHeaderId as R;
        let Some(&first) = name.first() else { return R::Other };
        let (id, text): (ResponseHeaderId, &[u8]) = match (name.len(), first | 0x20) {
            (4, b'd') => (R::Date, b"date"),
            (4, b'e') => (R::ETag, b"etag"),
            (4, b'l') => (R::Link, b"link"),
            (4, b'v') => (R::Vary, b"vary"),
            (6, b's') if at(name, 1) == b't' => (R::Status, b"status"),
            (6, b's') => (R::Server, b"server"),
            (6, b'p') => (R::Pragma, b"pragma"),
            (7, b'e') => (R::Expires, b"expires"),
            (7, b'r') => (R::Refresh, b"refresh"),
            (7, b't') => (R::Trailer, b"trailer"),
            (7, b'u') => (R::Upgrade, b"upgrade"),
            (8, b'l') => (R::Location, b"location"),
            (10, b'c') => (R::Connection, b"connection"),
            (10, b'k') => (R::KeepAlive, b"keep-alive"),
            (10, b's') => (R::SetCookie, b"set-cookie"),
            (12, b'c') => (R::ContentType, b"content-type"),
            (13, b'a') => (R::AcceptRanges, b"accept-ranges"),
            (13, b'c') if at(name, 1) == b'a' => (R::CacheControl, b"cache-control"),
            (13, b'c') => (R::ContentRange, b"content-range"),
            (13, b'l') => (R::LastModified, b"last-modified"),
            (14, b'c') => (R::ContentLength, b"content-length"),
            (15, b'x') if at(name, 8) == b'e' => (R::XAccelExpires, b"x-accel-expires"),
            (15, b'x') => (R::XAccelCharset, b"x-accel-charset"),
            (16, b'c') => (R::ContentEncoding, b"content-encoding"),
            (16, b'w') => (R::WwwAuthenticate, b"www-authenticate"),
            (16, b'x') => (R::XAccelRedirect, b"x-accel-redirect"),
            (17, b't') => (R::TransferEncoding, b"transfer-encoding"),
            (17, b'x') => (R::XAccelBuffering, b"x-accel-buffering"),
            (18, b'x') => (R::XAccelLimitRate, b"x-accel-limit-rate"),
            (19, b'c') => (R::ContentDisposition, b"content-disposition"),
            _ => return R::Other,
        };
        if name.eq_ignore_ascii_case(text) {
            id
        } else {
            R::Other
        }
    }

    /// This header's bit in [`super::response::ResponseHead::seen`].
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// Whether only the first one counts and later ones are dropped.
    pub(crate) const fn first_only(self) -> bool {
        use ResponseHeaderId as R;
        matches!(
            self,
            R::Status
                | R::ContentType
                | R::Date
                | R::Server
                | R::Location
                | R::Refresh
                | R::LastModified
                | R::ETag
                | R::Expires
                | R::XAccelRedirect
                | R::XAccelExpires
                | R::XAccelLimitRate
        )
    }
}

fn at(name: &[u8], i: usize) -> u8 {
    name.get(i).map_or(0, |b| b | 0x20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whatever_their_case() {
        for (name, id) in [
            ("Host", HeaderId::Host),
            ("hOST", HeaderId::Host),
            ("IF-MATCH", HeaderId::IfMatch),
            ("If-Range", HeaderId::IfRange),
            ("accept-Encoding", HeaderId::AcceptEncoding),
            ("accept-language", HeaderId::AcceptLanguage),
            ("Proxy-Authorization", HeaderId::ProxyAuthorization),
            ("If-Unmodified-Since", HeaderId::IfUnmodifiedSince),
            ("Hosts", HeaderId::Other),
            ("Hast", HeaderId::Other),
            ("", HeaderId::Other),
        ] {
            assert_eq!(HeaderId::of(name.as_bytes()), id, "{name}");
        }
        for (name, id) in [
            ("server", ResponseHeaderId::Server),
            ("STATUS", ResponseHeaderId::Status),
            ("x-accel-charset", ResponseHeaderId::XAccelCharset),
            ("X-Accel-Expires", ResponseHeaderId::XAccelExpires),
            ("X-Accel-Limit-Rate", ResponseHeaderId::XAccelLimitRate),
            ("Content-Range", ResponseHeaderId::ContentRange),
            ("Cache-Control", ResponseHeaderId::CacheControl),
            ("X-Other", ResponseHeaderId::Other),
        ] {
            assert_eq!(ResponseHeaderId::of(name.as_bytes()), id, "{name}");
        }
    }
}
