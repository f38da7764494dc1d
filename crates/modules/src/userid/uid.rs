//! The number in a cookie: sixteen bytes, shown as four words in the order of a little-endian
//! machine, which is what nginx's logs have on one.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use weir_base::base64;
use weir_runtime::clock;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uid([u32; 4]);

/// The last word is a sequence number, whose lowest byte says the version and is never 0.
static NEXT_V1: AtomicU32 = AtomicU32::new(1);
static NEXT_V2: AtomicU32 = AtomicU32::new(FIRST_V2);
const FIRST_V2: u32 = 0x0303_0302;
const STEP: u32 = 0x100;

/// Differs from process to process and from start to start.
fn start_value() -> u32 {
    static START: OnceLock<u32> = OnceLock::new();
    *START.get_or_init(|| {
        let (_, ms) = clock::wall();
        (ms * 1000 / 20) << 16 | std::process::id()
    })
}

impl Uid {
    pub fn new_v1(service: u32, now: u32) -> Uid {
        let number = NEXT_V1.fetch_add(STEP, Ordering::Relaxed);
        Uid([service, now, start_value(), number])
    }

    /// Words in network order; without a service number, the first is the server's address.
    pub fn new_v2(service: Option<u32>, local: Option<IpAddr>, now: u32) -> Uid {
        let first = match (service, local) {
            (Some(n), _) => n,
            (None, Some(IpAddr::V4(a))) => u32::from(a),
            (None, Some(IpAddr::V6(a))) => u128::from(a) as u32,
            (None, None) => 0,
        };
        let next = |n: u32| Some(n.wrapping_add(STEP).max(FIRST_V2));
        let number =
            NEXT_V2.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(FIRST_V2);
        Uid([first, now, start_value(), number].map(u32::swap_bytes))
    }

    /// Reads a cookie; what stands behind the first 22 characters is padding and does not count.
    /// A number that cannot have been given out is none.
    pub fn decode(cookie: &[u8]) -> Result<Option<Uid>, &'static str> {
        let text = cookie.get(..22).ok_or("too short")?;
        let bytes = base64::decode(text).ok_or("invalid")?;
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(Some(Uid(words)).filter(|uid| uid.0[3] != 0))
    }

    /// The cookie's text, with a mark in its padding.
    pub fn encode(&self, mark: Option<u8>) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        base64::encode(&mut out, &bytes);
        if let (Some(mark), Some(place)) = (mark, out.get_mut(22)) {
            *place = mark;
        }
        out
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:08X}{b:08X}{c:08X}{d:08X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let uid = Uid::new_v2(None, Some("127.0.0.1".parse().unwrap()), 1);
        assert!(uid.to_string().starts_with("0100007F01000000"), "{uid}");
        let text = uid.encode(None);
        assert!(text.len() == 24 && text.ends_with(b"=="));
        assert_eq!(Uid::decode(&text), Ok(Some(uid)));
        let marked = uid.encode(Some(b'x'));
        assert_eq!(&marked[22..], b"x=");
        assert_eq!(Uid::decode(&marked), Ok(Some(uid)));
    }

    #[test]
    fn sequence() {
        let (a, b) = (Uid::new_v1(7, 1), Uid::new_v1(7, 1));
        assert_ne!(a, b);
        assert!(a.to_string().starts_with("0000000700000001"));
        assert_ne!(Uid::new_v2(Some(1), None, 1), Uid::new_v2(Some(1), None, 1));
    }

    #[test]
    fn refused() {
        assert_eq!(Uid::decode(b"short"), Err("too short"));
        assert_eq!(Uid::decode(b"!!!!!!!!!!!!!!!!!!!!!!!!"), Err("invalid"));
        assert_eq!(Uid::decode(b"AAAAAAAAAAAAAAAAAAAAAA=="), Ok(None));
        assert_eq!(Uid::decode(b"AAAA=AAAAAAAAAAAAAAAAAAA"), Ok(None));
    }
}
