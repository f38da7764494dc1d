//! What is to be known of a request that has been answered.

use std::net::IpAddr;
use weir_analytics::event::{Method, Protocol};
use weir_analytics::gather::{Facts, Head, Once};
use weir_http::core_vars::shown_status;
use weir_http::request::HeadText;
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Version;

#[inline]
fn client(r: &Request) -> (u8, u128) {
    match r.client().ip() {
        None => (0, 0),
        Some(IpAddr::V4(ip)) => (4, u128::from(ip.to_bits())),
        Some(IpAddr::V6(ip)) => (6, ip.to_bits()),
    }
}

#[inline]
pub(super) fn once(r: &Request) -> Once {
    let (now_ms, secs) = clock::mono_ms_and_wall_secs();
    Once {
        secs,
        bytes: r.body_bytes_sent(),
        took_ms: r.is_timed().then(|| {
            let ms = now_ms.saturating_sub(r.started_us() / 1000);
            u32::try_from(ms).unwrap_or(u32::MAX)
        }),
    }
}

/// What is enough to tell that it is like an earlier one, if it is: all that [`of`] tells follows from it.
#[inline]
pub(super) fn head(r: &Request) -> Option<Head<'_>> {
    Some(head_of(r, &r.head_text()?))
}

/// The same for what is to be compared with.
pub(super) fn whole_head(r: &Request) -> Option<Head<'_>> {
    Some(head_of(r, &r.whole_head_text()?))
}

#[inline]
fn head_of<'a>(r: &Request, head: &HeadText<'a>) -> Head<'a> {
    let (family, address) = client(r);
    let kind = u64::from(shown_status(r))
        | (r.method as u64) << 16
        | u64::from(family) << 24
        | u64::from(r.host().is_empty()) << 32;
    let HeadText { text, target_end, fields } = *head;
    Head { text, target_end, fields, address, kind }
}

pub(super) fn of<'a>(r: &'a Request, once: &Once) -> Facts<'a> {
    let (family, address) = client(r);
    let header = |id| r.header(id).unwrap_or_default();
    Facts {
        family,
        address,
        method: Method::of(r.method_name()).unwrap_or(Method::Other),
        protocol: protocol(r),
        status: shown_status(r),
        uri: r.unparsed_uri(),
        referrer: header(HeaderId::Referer),
        agent: header(HeaderId::UserAgent),
        host: r.host(),
        secs: once.secs,
        bytes: once.bytes,
        took_ms: once.took_ms,
    }
}

fn protocol(r: &Request) -> Protocol {
    const PLAIN_BYTES: usize = b"HTTP/1.1".len();
    match r.version() {
        Version::HTTP_11 if r.head.protocol.len() == PLAIN_BYTES => Protocol::Http11,
        _ => Protocol::of(r.bytes(r.head.protocol)).unwrap_or(Protocol::None),
    }
}
