//! Protocol versions, suites and curves from the words of a configuration, the same for servers and
//! for connections to upstreams.

use crate::{ciphers, server};
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::SupportedProtocolVersion;
use std::sync::Arc;

const TLS12_BIT: u8 = 1 << 4;
const TLS13_BIT: u8 = 1 << 5;
const WORDS: [(&str, u8); 6] = [
    ("SSLv2", 1),
    ("SSLv3", 1 << 1),
    ("TLSv1", 1 << 2),
    ("TLSv1.1", 1 << 3),
    ("TLSv1.2", TLS12_BIT),
    ("TLSv1.3", TLS13_BIT),
];

/// `ssl_protocols` as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols(pub u8);

impl Default for Protocols {
    fn default() -> Self {
        Protocols(TLS12_BIT | TLS13_BIT)
    }
}

impl Protocols {
    pub fn bit(word: &str) -> Option<u8> {
        WORDS.iter().find(|(w, _)| w.eq_ignore_ascii_case(word)).map(|(_, bit)| *bit)
    }

    /// Whether that version is one of them.
    pub fn has(self, version: &SupportedProtocolVersion) -> bool {
        let bit = match version.version {
            rustls::ProtocolVersion::TLSv1_2 => TLS12_BIT,
            rustls::ProtocolVersion::TLSv1_3 => TLS13_BIT,
            _ => 0,
        };
        self.0 & bit != 0
    }

    fn has_any(self) -> bool {
        self.0 & (TLS12_BIT | TLS13_BIT) != 0
    }

    /// The words that stand for versions nobody should speak any more.
    pub fn old(self) -> Vec<&'static str> {
        let old = |(_, bit): &&(&'static str, u8)| self.0 & bit != 0 && *bit < TLS12_BIT;
        WORDS.iter().filter(old).map(|(w, _)| *w).collect()
    }
}

/// What the configuration says.
#[derive(Clone, Debug, Default)]
pub struct Words {
    pub protocols: Protocols,
    pub ciphers: String,
    pub prefer_own: bool,
    pub curves: String,
    /// `ssl_conf_command` pairs.
    pub commands: Vec<(String, String)>,
}

/// What it comes to.
pub struct Offer {
    pub provider: Arc<CryptoProvider>,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub prefer_own: bool,
    pub tickets: Option<bool>,
    /// A certificate or key in place of the configured.
    pub certificate: Option<String>,
    pub key: Option<String>,
    /// What is left out without harm.
    pub notes: Vec<Note>,
}

/// The directives whose values may be taken in part, by what follows their prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Protocols,
    Ciphers,
    Curves,
    Dhparam,
    /// `ssl_conf_command` has said it in their place.
    Command,
}

impl About {
    pub const COUNT: usize = 5;

    pub fn suffix(self) -> &'static str {
        match self {
            About::Protocols => "protocols",
            About::Ciphers => "ciphers",
            About::Curves => "ecdh_curve",
            About::Dhparam => "dhparam",
            About::Command => "conf_command",
        }
    }
}

/// What is left out of a directive's value.
#[derive(Debug)]
pub struct Note {
    pub about: About,
    pub text: String,
}

/// Why a configuration cannot be: the message, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub text: String,
    pub hint: &'static str,
}

fn refuse<T>(text: String, hint: &'static str) -> Result<T, Refusal> {
    Err(Refusal { text, hint })
}

impl Words {
    pub fn resolve(mut self) -> Result<Offer, Refusal> {
        let mut offer = Offer {
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            versions: Vec::new(),
            prefer_own: self.prefer_own,
            tickets: None,
            certificate: None,
            key: None,
            notes: Vec::new(),
        };
        let mut suites13 = ciphers::all_tls13();
        let by_command = self.by_command();
        for (name, value) in std::mem::take(&mut self.commands) {
            self.command(&name, &value, &mut offer, &mut suites13)?;
        }
        let shown: Vec<&str> = self.protocols.old();
        if !self.protocols.has_any() {
            let text = format!("no usable TLS version among \"{}\"", shown.join(" "));
            return refuse(text, "Weir speaks TLSv1.2 and TLSv1.3; name one of them");
        }
        if !shown.is_empty() {
            let text = format!("{} left out: Weir speaks TLSv1.2 and TLSv1.3", shown.join(" "));
            offer.notes.push(Note { about: About::Protocols, text });
        }
        let mut suites = suites13;
        let suites12 = ciphers::select(&self.ciphers);
        if self.protocols.0 & TLS12_BIT != 0 && suites12.is_empty() {
            let text = format!(
                "SSL_CTX_set_cipher_list(\"{}\") failed (SSL: error:0A0000B9:SSL routines::no \
                 cipher match)",
                self.ciphers
            );
            return refuse(text, "none of these is an ECDHE suite with AES-GCM or ChaCha20");
        }
        if self.protocols.0 & TLS13_BIT != 0 {
            offer.versions.push(&TLS13);
        } else {
            suites.clear();
        }
        if self.protocols.0 & TLS12_BIT != 0 {
            offer.versions.push(&TLS12);
            suites.extend(suites12);
            let left_out = ciphers::left_out(&self.ciphers);
            if !left_out.is_empty() {
                let text = format!(
                    "{} left out: Weir has ECDHE with AES-GCM or ChaCha20",
                    left_out.join(" ")
                );
                offer.notes.push(Note { about: by_command.0, text });
            }
        }
        let groups = self.groups(&mut offer, by_command.1)?;
        offer.provider = server::provider(suites, groups);
        Ok(offer)
    }

    /// Who has the last word on suites and curves: their directives, or a command.
    fn by_command(&self) -> (About, About) {
        let any = |names: [&str; 2]| {
            self.commands
                .iter()
                .any(|(n, _)| names.iter().any(|known| n.eq_ignore_ascii_case(known)))
        };
        let of = |named, usual| if named { About::Command } else { usual };
        (
            of(any(["ciphers", "cipherstring"]), About::Ciphers),
            of(any(["groups", "curves"]), About::Curves),
        )
    }

    fn groups(
        &self,
        offer: &mut Offer,
        about: About,
    ) -> Result<Vec<&'static dyn rustls::crypto::SupportedKxGroup>, Refusal> {
        let failed = format!("SSL_CTX_set1_curves_list(\"{}\") failed", self.curves);
        let Ok((groups, left_out)) = ciphers::groups(&self.curves) else {
            return refuse(failed, "there is no such curve");
        };
        if groups.is_empty() {
            return refuse(failed, "Weir has X25519, prime256v1 and secp384r1");
        }
        if !left_out.is_empty() {
            let text = format!(
                "{} left out: Weir has X25519, prime256v1 and secp384r1",
                left_out.join(" ")
            );
            offer.notes.push(Note { about, text });
        }
        Ok(groups)
    }

    /// The commands of OpenSSL's configuration that have a meaning here.
    fn command(
        &mut self,
        name: &str,
        value: &str,
        offer: &mut Offer,
        suites13: &mut Vec<rustls::SupportedCipherSuite>,
    ) -> Result<(), Refusal> {
        let failed = format!("SSL_CONF_cmd(\"{name}\", \"{value}\") failed");
        match name.to_ascii_lowercase().as_str() {
            "certificate" => offer.certificate = Some(value.to_string()),
            "privatekey" => offer.key = Some(value.to_string()),
            "ciphers" | "cipherstring" => self.ciphers = value.to_string(),
            "ciphersuites" => match ciphers::select_tls13(value) {
                Ok(list) if !list.is_empty() => *suites13 = list,
                _ => return refuse(failed, "Weir has the three suites that RFC 8446 recommends"),
            },
            "groups" | "curves" => self.curves = value.to_string(),
            "minprotocol" | "maxprotocol" => {
                let Some(bit) = Protocols::bit(value) else {
                    return refuse(failed, "there is no such version");
                };
                let below = bit - 1;
                self.protocols.0 &= match name.to_ascii_lowercase().starts_with("min") {
                    true => !below,
                    false => below | bit,
                };
            }
            "options" => {
                for word in value.split(',').map(str::trim) {
                    self.option(word, offer).ok_or_else(|| Refusal {
                        text: failed.clone(),
                        hint:
                            "of OpenSSL's options SessionTicket, ServerPreference and those that \
                               rustls always keeps to have a meaning here",
                    })?;
                }
            }
            _ => {
                return refuse(failed, "this OpenSSL command has no meaning with rustls; remove it")
            }
        }
        Ok(())
    }

    fn option(&mut self, word: &str, offer: &mut Offer) -> Option<()> {
        let (bare, on) = match word.strip_prefix('-') {
            Some(bare) => (bare, false),
            None => (word.strip_prefix('+').unwrap_or(word), true),
        };
        match bare {
            "SessionTicket" => offer.tickets = Some(on),
            "ServerPreference" => offer.prefer_own = on,
            // rustls always does so, or never does what the option would allow.
            "NoRenegotiation" | "NoCompression" | "AntiReplay" | "PrioritizeChaCha" if on => {}
            "Compression" | "UnsafeLegacyRenegotiation" | "KTLS" | "AllowNoDHEKEX" if !on => {}
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(protocols: u8, ciphers: &str) -> Words {
        let (ciphers, curves) = (ciphers.to_string(), "auto".to_string());
        Words { protocols: Protocols(protocols), ciphers, curves, ..Words::default() }
    }

    #[test]
    fn versions_and_suites() {
        let offer = words(0x3c, "HIGH:!aNULL:!MD5").resolve().ok().unwrap();
        assert_eq!((offer.versions.len(), offer.notes.len()), (2, 1));
        let mixed = words(0x30, "ECDHE+AESGCM:DHE-RSA-AES128-GCM-SHA256").resolve().ok().unwrap();
        assert!(mixed.notes[0].about == About::Ciphers, "{:?}", mixed.notes);
        assert!(words(0x0c, "HIGH").resolve().is_err());
        assert!(words(0x30, "AES128-SHA").resolve().is_err());
        assert!(words(0x20, "AES128-SHA").resolve().is_ok());
    }

    #[test]
    fn commands() {
        let with = |name: &str, value: &str| {
            let mut w = words(0x30, "HIGH");
            w.commands.push((name.into(), value.into()));
            w.resolve()
        };
        assert_eq!(with("MinProtocol", "TLSv1.3").ok().unwrap().versions.len(), 1);
        assert_eq!(
            with("Ciphersuites", "TLS_AES_128_GCM_SHA256")
                .ok()
                .unwrap()
                .provider
                .cipher_suites
                .len(),
            7
        );
        assert_eq!(
            with("Options", "-SessionTicket,ServerPreference").ok().unwrap().tickets,
            Some(false)
        );
        assert!(with("Options", "KTLS").is_err() && with("Dance", "on").is_err());
    }
}
