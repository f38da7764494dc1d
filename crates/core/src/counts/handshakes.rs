//! TLS handshakes, by what became of them.

use super::{Count, Counted, Few, Fields, Histogram, Part};
use crate::figures::Figures;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use weir_tls::rustls::{
    AlertDescription as Alert, CipherSuite, CommonState, Error, HandshakeKind, PeerIncompatible,
};
use weir_tls::{ciphers, TlsError};

/// Counted by one thread.
#[derive(Debug, Default)]
pub struct Handshakes {
    done: Count,
    failed: Count,
    reused: Count,
    no_protocol: Count,
    no_cipher: Count,
    late: Count,
    rejected: Count,
    unverified: [Count; 5],
    /// Of those that succeeded: by versions and by cipher suites, both by the numbers that they have in TLS.
    versions: Few,
    suites: Few,
    /// Of those that succeeded.
    took: Histogram,
}

/// A worker's part where nothing else is counted.
#[derive(Debug, Default)]
pub struct OfTls(pub OnceLock<Box<Handshakes>>);

impl OfTls {
    /// From the first on.
    pub fn get(&self) -> &Handshakes {
        self.0.get_or_init(Box::default)
    }
}

impl Part for OfTls {
    fn each(&self, fields: &mut Fields<'_>) {
        match fields {
            Fields::Read(_) => self.0.get().into_iter().for_each(|all| all.each(fields)),
            Fields::Add(_) => self.get().each(fields),
        }
    }
}

/// Why a peer's certificate was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// It has shown none.
    NoCert,
    /// Its time is over.
    Expired,
    /// Its issuer has taken it back.
    Revoked,
    /// It is another host's.
    OtherHost,
    /// Anything else.
    Other,
}

impl Unverified {
    /// By the number that OpenSSL has for it.
    pub fn of_number(number: u32) -> Unverified {
        match number {
            10 => Unverified::Expired,
            23 => Unverified::Revoked,
            62 => Unverified::OtherHost,
            _ => Unverified::Other,
        }
    }
}

impl Handshakes {
    /// One has succeeded.
    pub fn succeeded(&self, tls: &CommonState, took_us: u64) {
        let reused = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        let version = tls.protocol_version().map_or(0, u16::from);
        let suite = tls.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into());
        for (few, number) in [(&self.versions, version), (&self.suites, suite)] {
            if number != 0 {
                few.add(number, 1);
            }
        }
        self.done.add(1);
        self.reused.add(reused.into());
        self.took.add(took_us);
    }

    /// One has failed.
    pub fn failed(&self, why: Option<&TlsError>) {
        self.failed.add(1);
        if let Some(TlsError::Tls(e)) = why {
            self.count(e);
        }
    }

    /// One was not through in time.
    pub fn timed_out(&self) {
        self.failed.add(1);
        self.late.add(1);
    }

    /// One was through, and the certificate was not taken.
    pub fn unverified(&self, why: Unverified) {
        self.unverified[why as usize].add(1);
    }

    fn count(&self, e: &Error) {
        use PeerIncompatible as P;
        match e {
            Error::AlertReceived(Alert::ProtocolVersion)
            | Error::PeerIncompatible(
                P::SupportedVersionsExtensionRequired
                | P::Tls12NotOffered
                | P::Tls12NotOfferedOrEnabled
                | P::Tls13RequiredForQuic
                | P::ServerDoesNotSupportTls12Or13
                | P::ServerTlsVersionIsDisabledByOurConfig,
            ) => self.no_protocol.add(1),
            Error::AlertReceived(Alert::HandshakeFailure)
            | Error::PeerIncompatible(
                P::NoCipherSuitesInCommon | P::NoKxGroupsInCommon | P::NoSignatureSchemesInCommon,
            ) => self.no_cipher.add(1),
            Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA,
            ) => self.rejected.add(1),
            _ => {}
        }
    }

    /// As [`Part::each`].
    pub fn each(&self, fields: &mut Fields<'_>) {
        for (name, count) in [
            ("handshakes", &self.done),
            ("handshakes_failed", &self.failed),
            ("session_reuses", &self.reused),
            ("no_common_protocol", &self.no_protocol),
            ("no_common_cipher", &self.no_cipher),
            ("handshake_timeout", &self.late),
            ("peer_rejected_cert", &self.rejected),
        ] {
            fields.count(name, count);
        }
        fields.counts("verify_failures", &self.unverified);
        fields.few("protocols", &self.versions);
        fields.few("ciphers", &self.suites);
        fields.times("handshake_time", &self.took);
    }

    /// Begins anew.
    pub fn reset(&self) {
        let counts = [
            &self.done,
            &self.failed,
            &self.reused,
            &self.no_protocol,
            &self.no_cipher,
            &self.late,
            &self.rejected,
        ];
        counts.into_iter().chain(&self.unverified).for_each(Count::reset);
        self.versions.reset();
        self.suites.reset();
        self.took.reset();
    }

    /// As [`Handshakes::put`], below that name, if there were any.
    pub fn put_if_any<T: Part>(
        all: &Counted<T>,
        of: impl Fn(&T) -> &OnceLock<Box<Handshakes>>,
        figures: &mut Figures,
        name: &'static str,
    ) {
        if all.parts().iter().any(|(_, part)| of(part).get().is_some()) {
            Handshakes::put(all, of, figures.group(name));
        }
    }

    /// Notes all workers' as NGINX Plus does, and how long they took.
    pub fn put<T: Part>(
        counted: &Counted<T>,
        of: impl Fn(&T) -> &OnceLock<Box<Handshakes>>,
        figures: &mut Figures,
    ) {
        let sum = |pick: &dyn Fn(&Handshakes) -> u64| {
            counted.sum(|part| of(part).get().map_or(0, |handshakes| pick(handshakes)))
        };
        figures.put("handshakes", sum(&|h| h.done.get()));
        figures.put("handshakes_failed", sum(&|h| h.failed.get()));
        figures.put("session_reuses", sum(&|h| h.reused.get()));
        figures.put("no_common_protocol", sum(&|h| h.no_protocol.get()));
        figures.put("no_common_cipher", sum(&|h| h.no_cipher.get()));
        figures.put("handshake_timeout", sum(&|h| h.late.get()));
        figures.put("peer_rejected_cert", sum(&|h| h.rejected.get()));
        const WHY: [&str; 5] =
            ["no_cert", "expired_cert", "revoked_cert", "hostname_mismatch", "other"];
        let failures = figures.group("verify_failures");
        for (n, why) in WHY.into_iter().enumerate() {
            failures.put(why, sum(&|h| h.unverified[n].get()));
        }
        let few = |pick: fn(&Handshakes) -> &Few| {
            let mut all = BTreeMap::<u16, u64>::new();
            for (_, part) in counted.parts() {
                let few = of(&part).get().map(|handshakes| pick(handshakes).all());
                few.into_iter()
                    .flatten()
                    .for_each(|(n, count)| *all.entry(n).or_default() += count);
            }
            all
        };
        let (versions, suites) = (few(|h| &h.versions), few(|h| &h.suites));
        let group = figures.group("protocols");
        versions.into_iter().for_each(|(number, count)| group.put(version_name(number), count));
        let group = figures.group("ciphers");
        for (number, count) in suites {
            group.put(ciphers::name(CipherSuite::from(number)), count);
        }
        let mut took = super::Times::default();
        for (_, part) in counted.parts() {
            of(&part).get().into_iter().for_each(|handshakes| took.add(&handshakes.took));
        }
        figures.put("handshake_time", took);
    }
}

/// As `$ssl_protocol` has it.
fn version_name(number: u16) -> &'static str {
    match number {
        0x0303 => "TLSv1.2",
        0x0304 => "TLSv1.3",
        _ => "other",
    }
}
