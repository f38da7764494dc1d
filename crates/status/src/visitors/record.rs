//! A request on its way from a worker to whoever counts it: a few numbers, and texts with their lengths.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_analytics::event::{Event, Method, Moment, Protocol};
use weir_http::core_vars::shown_status;
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::http1::names::HeaderId;

/// Longer texts are cut: URIs, then links, user agents and hosts.
const URI_MAX_BYTES: usize = 1024;
const TEXT_MAX_BYTES: usize = 512;
/// All that is not text.
const HEAD_BYTES: usize = 8 + 1 + 16 + 1 + 1 + 2 + 8 + 4 + 4 * 2;
/// No record is longer.
pub(super) const MAX_BYTES: usize = HEAD_BYTES + URI_MAX_BYTES + 3 * TEXT_MAX_BYTES;
/// As a time: none.
const UNTIMED: u32 = u32::MAX;

/// Appends what is to be known of a request that has been answered.
pub(super) fn write(r: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(&clock::wall_secs().to_le_bytes());
    let (family, bits) = match r.client().ip() {
        None => (0, 0),
        Some(IpAddr::V4(ip)) => (4, u128::from(ip.to_bits())),
        Some(IpAddr::V6(ip)) => (6, ip.to_bits()),
    };
    out.push(family);
    out.extend_from_slice(&bits.to_le_bytes());
    out.push(Method::of(r.method_name()).unwrap_or(Method::Other) as u8);
    out.push(Protocol::of(r.bytes(r.head.protocol)).unwrap_or(Protocol::None) as u8);
    out.extend_from_slice(&shown_status(r).to_le_bytes());
    out.extend_from_slice(&r.body_bytes_sent().to_le_bytes());
    let took_us = match r.is_timed() {
        true => u32::try_from(r.elapsed_ms().saturating_mul(1000)).unwrap_or(UNTIMED - 1),
        false => UNTIMED,
    };
    out.extend_from_slice(&took_us.to_le_bytes());
    let header = |id| r.header(id).unwrap_or_default();
    let uri = r.unparsed_uri();
    let texts = [
        &uri[..uri.len().min(URI_MAX_BYTES)],
        short(header(HeaderId::Referer)),
        short(header(HeaderId::UserAgent)),
        short(r.host()),
    ];
    for text in texts {
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    }
    for text in texts {
        out.extend_from_slice(text);
    }
}

fn short(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_MAX_BYTES)]
}

/// Reads the first record; what is behind it. `None`: there is none.
pub(super) fn read<'a>(
    from: &'a [u8],
    mut offset_secs: impl FnMut(i64) -> i64,
) -> Option<(Event<'a>, &'a [u8])> {
    let (head, mut rest) = from.split_first_chunk::<HEAD_BYTES>()?;
    let secs = i64::from_le_bytes(part(head, 0));
    let bits = u128::from_le_bytes(part(head, 9));
    let address = match head[8] {
        6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        // A Unix socket's clients are this machine's.
        0 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
    };
    let took_us = u32::from_le_bytes(part(head, 37));
    let mut texts = [&b""[..]; 4];
    for (n, text) in texts.iter_mut().enumerate() {
        let len = u16::from_le_bytes(part(head, 41 + 2 * n));
        (*text, rest) = rest.split_at_checked(usize::from(len))?;
    }
    let event = Event {
        address,
        time: Moment::from_unix(secs + offset_secs(secs)),
        method: Method::ALL.get(usize::from(head[25])).copied().unwrap_or(Method::Other),
        protocol: Protocol::ALL.get(usize::from(head[26])).copied().unwrap_or(Protocol::Other),
        status: u16::from_le_bytes(part(head, 27)),
        bytes: u64::from_le_bytes(part(head, 29)),
        time_us: (took_us != UNTIMED).then_some(took_us),
        uri: texts[0],
        referrer: texts[1],
        agent: texts[2],
        host: texts[3],
    };
    Some((event, rest))
}

fn part<const N: usize>(head: &[u8; HEAD_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&head[at..at + N]);
    out
}
