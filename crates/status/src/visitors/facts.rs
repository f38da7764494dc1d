//! What is to be known of a request that has been answered.

use std::net::IpAddr;
use weir_analytics::event::{Method, Protocol};
use weir_analytics::gather::Facts;
use weir_http::core_vars::shown_status;
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Version;

#[inline]
pub(super) fn of(r: &Request) -> Facts<'_> {
    let (family, address) = match r.client().ip() {
        None => (0, 0),
        Some(IpAddr::V4(ip)) => (4, u128::from(ip.to_bits())),
        Some(IpAddr::V6(ip)) => (6, ip.to_bits()),
    };
    let (now_ms, secs) = clock::mono_ms_and_wall_secs();
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
        secs,
        bytes: r.body_bytes_sent(),
        took_ms: r.is_timed().then(|| {
            let ms = now_ms.saturating_sub(r.started_us() / 1000);
            u32::try_from(ms).unwrap_or(u32::MAX)
        }),
    }
}

#[inline]
fn protocol(r: &Request) -> Protocol {
    const PLAIN_BYTES: usize = b"HTTP/1.1".len();
    match r.version() {
        Version::HTTP_11 if r.head.protocol.len() == PLAIN_BYTES => Protocol::Http11,
        _ => Protocol::of(r.bytes(r.head.protocol)).unwrap_or(Protocol::None),
    }
}
