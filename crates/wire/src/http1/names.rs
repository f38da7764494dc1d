//! The header names the server acts on, as small numbers.
//!
//! A name is found by its length, first and last letter and then compared once.

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
    /// The header of this name, letter case apart.
    #[inline]
    pub fn of(name: &[u8]) -> HeaderId {
        REQUEST.find(name)
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
    /// The header of this name, letter case apart.
    #[inline]
    pub fn of(name: &[u8]) -> ResponseHeaderId {
        RESPONSE.find(name)
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

const SLOTS: usize = 64;

/// A table in which every name has a slot of its own, found from its length, first and last
/// letter. The multipliers were searched for; a collision stops the build.
struct Names<Id: 'static> {
    other: Id,
    multipliers: [u8; 3],
    slots: [(Key, Id); SLOTS],
}

impl<Id: Copy> Names<Id> {
    const fn new(other: Id, multipliers: [u8; 3], names: &[(Id, &'static [u8])]) -> Self {
        let mut slots = [(Key::of(b""), other); SLOTS];
        let mut i = 0;
        while i < names.len() {
            let (id, text) = names[i];
            let slot = slot_of(multipliers, text.len(), text[0], text[text.len() - 1]);
            assert!(slots[slot].0.len == 0, "two header names share a slot");
            slots[slot] = (Key::of(text), id);
            i += 1;
        }
        Names { other, multipliers, slots }
    }

    #[inline(always)]
    fn find(&self, name: &[u8]) -> Id {
        let (Some(&first), Some(&last)) = (name.first(), name.last()) else { return self.other };
        let slot = slot_of(self.multipliers, name.len(), first | 0x20, last | 0x20);
        let (key, id) = &self.slots[slot];
        if key.is(name) {
            *id
        } else {
            self.other
        }
    }
}

/// A name of up to 24 bytes as numbers, letter case taken out. A control character would pass
/// for `-` or a digit, but none is ever in a name.
#[derive(Clone, Copy)]
struct Key {
    len: usize,
    words: [u64; 3],
}

impl Key {
    #[inline(always)]
    const fn of(name: &[u8]) -> Key {
        const CASE: u64 = 0x2020_2020_2020_2020;
        let mut words = [0; 3];
        if let (Some(head), Some(tail)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            words[0] = u64::from_le_bytes(*head) | CASE;
            words[1] = u64::from_le_bytes(*tail) | CASE;
            if let (true, Some(head)) = (name.len() > 16, name.first_chunk::<16>()) {
                if let Some(middle) = head.last_chunk::<8>() {
                    words[2] = u64::from_le_bytes(*middle) | CASE;
                }
            }
        } else if let (Some(head), Some(tail)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            let (head, tail) = (u32::from_le_bytes(*head), u32::from_le_bytes(*tail));
            words[0] = (head as u64 | (tail as u64) << 32) | CASE;
        } else {
            let mut i = 0;
            while i < name.len() {
                words[0] = words[0] << 8 | (name[i] | 0x20) as u64;
                i += 1;
            }
        }
        Key { len: name.len(), words }
    }

    /// Word by word: comparing the whole would go through memory and wait there.
    #[inline(always)]
    fn is(&self, name: &[u8]) -> bool {
        if self.len != name.len() {
            return false;
        }
        let other = Key::of(name);
        let [a, b, c] = self.words;
        let [x, y, z] = other.words;
        (a ^ x) | (b ^ y) | (c ^ z) == 0
    }
}

const fn slot_of(multipliers: [u8; 3], len: usize, first: u8, last: u8) -> usize {
    let [by_len, by_first, by_last] = multipliers;
    let sum = len * by_len as usize + first as usize * by_first as usize;
    (sum + last as usize * by_last as usize) % SLOTS
}

static REQUEST: Names<HeaderId> = Names::new(
    HeaderId::Other,
    [9, 28, 10],
    &[
        (HeaderId::Te, b"te"),
        (HeaderId::Via, b"via"),
        (HeaderId::Host, b"host"),
        (HeaderId::Date, b"date"),
        (HeaderId::Range, b"range"),
        (HeaderId::Depth, b"depth"),
        (HeaderId::Accept, b"accept"),
        (HeaderId::Cookie, b"cookie"),
        (HeaderId::Expect, b"expect"),
        (HeaderId::Referer, b"referer"),
        (HeaderId::Upgrade, b"upgrade"),
        (HeaderId::Trailer, b"trailer"),
        (HeaderId::Priority, b"priority"),
        (HeaderId::IfMatch, b"if-match"),
        (HeaderId::IfRange, b"if-range"),
        (HeaderId::XRealIp, b"x-real-ip"),
        (HeaderId::Overwrite, b"overwrite"),
        (HeaderId::Connection, b"connection"),
        (HeaderId::UserAgent, b"user-agent"),
        (HeaderId::KeepAlive, b"keep-alive"),
        (HeaderId::Destination, b"destination"),
        (HeaderId::ContentType, b"content-type"),
        (HeaderId::ContentRange, b"content-range"),
        (HeaderId::IfNoneMatch, b"if-none-match"),
        (HeaderId::Authorization, b"authorization"),
        (HeaderId::ContentLength, b"content-length"),
        (HeaderId::XForwardedFor, b"x-forwarded-for"),
        (HeaderId::AcceptEncoding, b"accept-encoding"),
        (HeaderId::AcceptLanguage, b"accept-language"),
        (HeaderId::ProxyConnection, b"proxy-connection"),
        (HeaderId::IfModifiedSince, b"if-modified-since"),
        (HeaderId::TransferEncoding, b"transfer-encoding"),
        (HeaderId::IfUnmodifiedSince, b"if-unmodified-since"),
        (HeaderId::ProxyAuthorization, b"proxy-authorization"),
    ],
);

static RESPONSE: Names<ResponseHeaderId> = Names::new(
    ResponseHeaderId::Other,
    [3, 31, 3],
    &[
        (ResponseHeaderId::Date, b"date"),
        (ResponseHeaderId::ETag, b"etag"),
        (ResponseHeaderId::Link, b"link"),
        (ResponseHeaderId::Vary, b"vary"),
        (ResponseHeaderId::Status, b"status"),
        (ResponseHeaderId::Server, b"server"),
        (ResponseHeaderId::Pragma, b"pragma"),
        (ResponseHeaderId::Expires, b"expires"),
        (ResponseHeaderId::Refresh, b"refresh"),
        (ResponseHeaderId::Trailer, b"trailer"),
        (ResponseHeaderId::Upgrade, b"upgrade"),
        (ResponseHeaderId::Location, b"location"),
        (ResponseHeaderId::Connection, b"connection"),
        (ResponseHeaderId::KeepAlive, b"keep-alive"),
        (ResponseHeaderId::SetCookie, b"set-cookie"),
        (ResponseHeaderId::ContentType, b"content-type"),
        (ResponseHeaderId::AcceptRanges, b"accept-ranges"),
        (ResponseHeaderId::CacheControl, b"cache-control"),
        (ResponseHeaderId::ContentRange, b"content-range"),
        (ResponseHeaderId::LastModified, b"last-modified"),
        (ResponseHeaderId::ContentLength, b"content-length"),
        (ResponseHeaderId::XAccelExpires, b"x-accel-expires"),
        (ResponseHeaderId::XAccelCharset, b"x-accel-charset"),
        (ResponseHeaderId::ContentEncoding, b"content-encoding"),
        (ResponseHeaderId::WwwAuthenticate, b"www-authenticate"),
        (ResponseHeaderId::XAccelRedirect, b"x-accel-redirect"),
        (ResponseHeaderId::TransferEncoding, b"transfer-encoding"),
        (ResponseHeaderId::XAccelBuffering, b"x-accel-buffering"),
        (ResponseHeaderId::XAccelLimitRate, b"x-accel-limit-rate"),
        (ResponseHeaderId::ContentDisposition, b"content-disposition"),
    ],
);

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
