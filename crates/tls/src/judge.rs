//! By what a server judges its clients' certificates. Servers that judge alike have the same mark,
//! also over a reload, so that a verdict can be kept for all of them.

use crate::server::algorithms;
use crate::x509::chain::{self, ChainError, Purpose, Trust};
use ring::digest::{Context, SHA256};
use rustls::pki_types::CertificateDer;

/// Two judges have the same one if their verdicts are the same.
pub type Mark = [u8; 32];

#[derive(Debug)]
pub struct Judge {
    trust: Trust,
    mark: Mark,
}

impl Judge {
    /// `status` says how revocation is asked about; nothing if it is not.
    pub fn new(trust: Trust, status: &[u8]) -> Judge {
        let mut all = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            all.update(&part.len().to_be_bytes());
            all.update(part);
        };
        add(&trust.depth.to_be_bytes());
        add(status);
        add(&trust.roots.len().to_be_bytes());
        trust.roots.iter().for_each(|c| add(c));
        trust.crls.iter().for_each(|c| add(c));
        let mark = all.finish().as_ref().try_into().unwrap_or([0; 32]);
        Judge { trust, mark }
    }

    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Judges what a client has shown, its own certificate first.
    pub fn verdict(&self, chain: &[CertificateDer<'_>], now: i64) -> Result<(), ChainError> {
        chain::verify(chain, &self.trust, Purpose::Client, now, &algorithms())
    }

    /// By which certificates a client's was found good, its own first.
    pub fn path(&self, chain: &[CertificateDer<'_>]) -> Vec<CertificateDer<'static>> {
        chain::path(chain, &self.trust, &algorithms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_the_same_for_the_same_trust() {
        let of = |roots: &[&'static [u8]], crls: &[&[u8]], depth, status: &[u8]| {
            let roots = roots.iter().map(|c| CertificateDer::from(*c)).collect();
            let crls = crls.iter().map(|c| c.to_vec()).collect();
            *Judge::new(Trust { roots, crls, depth }, status).mark()
        };
        let one = of(&[b"ab"], &[b"c"], 1, b"");
        assert_eq!(one, of(&[b"ab"], &[b"c"], 1, b""));
        for other in [
            of(&[b"a", b"b"], &[b"c"], 1, b""),
            of(&[b"ab", b"c"], &[], 1, b""),
            of(&[b"ab"], &[], 1, b""),
            of(&[b"ab"], &[b"c"], 2, b""),
            of(&[b"ab"], &[b"c"], 1, b"leaf"),
        ] {
            assert_ne!(one, other);
        }
    }
}
