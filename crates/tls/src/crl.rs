//! Lists of revoked certificates (RFC 5280, section 5).

use crate::der::{self, Reader};

/// What a list says, borrowed from its bytes.
pub struct Crl<'a> {
    pub(crate) tbs: &'a [u8],
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    pub issuer: &'a [u8],
    /// When the next list will be there, in seconds since 1970.
    pub next: Option<i64>,
    revoked: Reader<'a>,
}

impl<'a> Crl<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Crl<'a>> {
        let mut parts = Reader(bytes).sequence()?;
        let tbs = parts.tagged(der::SEQUENCE)?;
        let algorithm = parts.tagged(der::SEQUENCE)?.body;
        let signature = der::bits(parts.item()?)?;
        let mut r = Reader(tbs.body);
        r.tagged(der::INTEGER);
        r.tagged(der::SEQUENCE)?;
        let issuer = r.tagged(der::SEQUENCE)?.whole;
        der::time(r.item()?)?;
        let next = match r.tagged(der::UTC_TIME).or_else(|| r.tagged(der::GENERALIZED_TIME)) {
            // One that cannot be read must not make a list that holds for ever.
            Some(next) => Some(der::time(next)?),
            None => None,
        };
        let revoked = r.sequence().unwrap_or(Reader(&[]));
        // Extensions; a list that cannot be read as one must not be one that is empty.
        r.tagged(0xa0);
        if !r.is_empty() {
            return None;
        }
        Some(Crl { tbs: tbs.whole, algorithm, signature, issuer, next, revoked })
    }

    /// Whether it names a certificate by its number, in the bytes in which that is encoded.
    pub fn has(&self, serial: &[u8]) -> bool {
        self.revoked.clone().any(|entry| {
            Reader(entry.body).tagged(der::INTEGER).is_some_and(|number| number.body == serial)
        })
    }

    /// Every entry can be read: none hides behind one that cannot.
    fn is_sound(&self) -> bool {
        let mut entries = self.revoked.clone();
        let sound = entries.by_ref().all(|entry| {
            let mut r = Reader(entry.body);
            entry.tag == der::SEQUENCE
                && r.tagged(der::INTEGER).is_some()
                && r.item().and_then(der::time).is_some()
        });
        sound && entries.is_empty()
    }
}

/// Whether bytes are a revocation list, all of it; asked once, when it is loaded.
pub fn is_crl(bytes: &[u8]) -> bool {
    Crl::parse(bytes).is_some_and(|crl| crl.is_sound())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = include_bytes!("../../../fuzz/seeds/revoked.der");

    /// The list with bytes put in the place of others, as long.
    fn with(from: &[u8], to: &[u8]) -> Vec<u8> {
        let at = LIST.windows(from.len()).position(|w| w == from).unwrap();
        let mut bytes = LIST.to_vec();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    }

    #[test]
    fn numbers_on_it() {
        let crl = Crl::parse(LIST).unwrap();
        assert!(is_crl(LIST) && crl.next.is_some());
        assert!(crl.has(&[5]) && crl.has(&[1, 0]) && !crl.has(&[6]));
    }

    #[test]
    fn a_list_whose_end_cannot_be_read_does_not_hold_for_ever() {
        let mut r = Reader(Reader(LIST).sequence().unwrap().sequence().unwrap().0);
        let times = r.by_ref().filter(|i| i.tag == der::UTC_TIME).map(|i| i.whole);
        let times: Vec<&[u8]> = times.collect();
        assert!(!is_crl(&with(times[1], b"\x17\x0d9913")));
        assert!(!is_crl(&with(times[1], b"\x16")));
    }

    #[test]
    fn no_entry_hides_behind_a_bad_one() {
        assert!(is_crl(&with(&[2, 1, 5, 0x17], &[2, 1, 6, 0x17])));
        assert!(!is_crl(&with(&[2, 1, 5, 0x17], &[4, 1, 5, 0x17])));
        assert!(!is_crl(&with(&[2, 1, 5, 0x17], &[2, 0x7f, 5, 0x17])));
    }
}
