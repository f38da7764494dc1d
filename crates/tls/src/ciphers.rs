//! OpenSSL's cipher strings (`HIGH:!aNULL:!MD5:@STRENGTH`) on the suites that rustls has for TLS
//! 1.2, and the names of curves and of TLS 1.3 suites. The suites rustls has not (static RSA, DHE,
//! CBC, 3DES, RC4) match nothing, as in an OpenSSL built without them.

use rustls::crypto::ring::{cipher_suite, kx_group};
use rustls::crypto::SupportedKxGroup;
use rustls::{CipherSuite, SupportedCipherSuite};

/// A suite and the words it goes by.
struct Suite {
    suite: SupportedCipherSuite,
    name: &'static str,
    words: &'static [&'static str],
    strength: u16,
}

const COMMON: [&str; 9] =
    ["ALL", "DEFAULT", "COMPLEMENTOFALL", "HIGH", "TLSv1.2", "AEAD", "kEECDH", "kECDHE", "ECDHE"];

/// In OpenSSL's order of preference.
const SUITES: [Suite; 6] = [
    Suite {
        suite: cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        words: &["aECDSA", "ECDSA", "AES", "AES256", "AESGCM", "SHA384", "SUITEB192"],
        strength: 256,
    },
    Suite {
        suite: cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        words: &["aRSA", "RSA", "AES", "AES256", "AESGCM", "SHA384"],
        strength: 256,
    },
    Suite {
        suite: cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        words: &["aECDSA", "ECDSA", "CHACHA20", "SHA256"],
        strength: 256,
    },
    Suite {
        suite: cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        words: &["aRSA", "RSA", "CHACHA20", "SHA256"],
        strength: 256,
    },
    Suite {
        suite: cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        words: &["aECDSA", "ECDSA", "AES", "AES128", "AESGCM", "SHA256", "SUITEB128"],
        strength: 128,
    },
    Suite {
        suite: cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        words: &["aRSA", "RSA", "AES", "AES128", "AESGCM", "SHA256"],
        strength: 128,
    },
];

const TLS13: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
];

impl Suite {
    fn is_called(&self, word: &str) -> bool {
        let standard = format!("{:?}", self.suite.suite());
        self.name == word
            || standard == word
            || COMMON.contains(&word) && word != "COMPLEMENTOFALL"
            || word == "EECDH"
            || self.words.contains(&word)
    }

    /// `ECDHE+AESGCM`: all the words. `RSA` alone means static key exchange, which is not there.
    fn matches(&self, words: &str) -> bool {
        words != "RSA" && words.split('+').all(|w| self.is_called(w))
    }
}

/// The suites that a cipher string selects, in its order; none when nothing is left of it.
pub fn select(text: &str) -> Vec<SupportedCipherSuite> {
    let mut chosen: Vec<usize> = Vec::new();
    let mut killed = [false; SUITES.len()];
    for token in text.split([':', ',', ' ', ';']).filter(|t| !t.is_empty()) {
        if token.starts_with('@') {
            if token == "@STRENGTH" {
                chosen.sort_by_key(|i| std::cmp::Reverse(SUITES[*i].strength));
            }
            continue;
        }
        let (rule, words) = match token.as_bytes()[0] {
            rule @ (b'!' | b'-' | b'+') => (rule, &token[1..]),
            _ => (0, token),
        };
        let hits = (0..SUITES.len()).filter(|i| SUITES[*i].matches(words));
        match rule {
            b'!' => hits.for_each(|i| {
                killed[i] = true;
                chosen.retain(|c| *c != i);
            }),
            b'-' => hits.for_each(|i| chosen.retain(|c| *c != i)),
            b'+' => {
                let (moved, mut rest): (Vec<usize>, Vec<usize>) =
                    chosen.iter().partition(|c| SUITES[**c].matches(words));
                rest.extend(moved);
                chosen = rest;
            }
            _ => hits.for_each(|i| {
                if !killed[i] && !chosen.contains(&i) {
                    chosen.push(i);
                }
            }),
        }
    }
    chosen.iter().map(|i| SUITES[*i].suite).collect()
}

/// The words of a cipher string that ask for suites and find none here, but for those that the
/// string itself takes away again.
pub fn left_out(text: &str) -> Vec<&str> {
    let tokens = || text.split([':', ',', ' ', ';']).filter(|t| !t.is_empty());
    let taken_away: Vec<&str> = tokens().filter_map(|t| t.strip_prefix(['!', '-'])).collect();
    let is_wanted = |t: &&str| {
        let parts = || t.split(['-', '+']).chain([*t]);
        // The suites of TLS 1.3 are there whatever this string says.
        !t.starts_with(['!', '-', '+', '@'])
            && !t.starts_with("TLS_AES_")
            && !t.starts_with("TLS_CHACHA20_")
            && !parts().any(|part| taken_away.contains(&part))
    };
    let mut found: Vec<&str> =
        tokens().filter(is_wanted).filter(|t| !SUITES.iter().any(|s| s.matches(t))).collect();
    let mut seen = std::collections::HashSet::new();
    found.retain(|t| seen.insert(*t));
    found
}

/// The TLS 1.3 suites of OpenSSL's `Ciphersuites`, or the first name that there is not.
pub fn select_tls13(text: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let find = |name: &str| {
        let found = TLS13.iter().find(|s| tls13_name(s.suite()) == name);
        found.copied().ok_or_else(|| name.to_string())
    };
    text.split(':').filter(|t| !t.is_empty()).map(find).collect()
}

pub fn all_tls13() -> Vec<SupportedCipherSuite> {
    TLS13.to_vec()
}

fn tls13_name(suite: CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

/// A suite's name as OpenSSL has it; the number where it has none.
pub fn name(suite: CipherSuite) -> String {
    if let Some(s) = SUITES.iter().find(|s| s.suite.suite() == suite) {
        return s.name.to_string();
    }
    // Suites of static RSA, by their numbers, which are all that rustls knows of them.
    let old = match u16::from(suite) {
        0x002f => "AES128-SHA",
        0x0035 => "AES256-SHA",
        0x003c => "AES128-SHA256",
        0x003d => "AES256-SHA256",
        0x009c => "AES128-GCM-SHA256",
        0x009d => "AES256-GCM-SHA384",
        0x009e => "DHE-RSA-AES128-GCM-SHA256",
        0x009f => "DHE-RSA-AES256-GCM-SHA384",
        0x00ff => "TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
        _ => "",
    };
    if !old.is_empty() {
        return old.to_string();
    }
    let text = tls13_name(suite);
    match text.strip_prefix("TLS_").filter(|_| TLS13.iter().all(|s| s.suite() != suite)) {
        None if text.starts_with("TLS_") => text,
        None => format!("0x{:04x}", u16::from(suite)),
        Some(rest) => old_name(rest).unwrap_or_else(|| format!("0x{:04x}", u16::from(suite))),
    }
}

/// `ECDHE_RSA_WITH_AES_128_CBC_SHA` in OpenSSL's spelling, `ECDHE-RSA-AES128-SHA`.
fn old_name(text: &str) -> Option<String> {
    let (exchange, cipher) = text.split_once("_WITH_")?;
    let exchange = match exchange {
        "RSA" => String::new(),
        other => format!("{}-", other.replace('_', "-")),
    };
    let cipher = cipher
        .replace("AES_128_", "AES128_")
        .replace("AES_256_", "AES256_")
        .replace("CAMELLIA_128_", "CAMELLIA128_")
        .replace("CAMELLIA_256_", "CAMELLIA256_")
        .replace("_CBC_", "_");
    let cipher = match cipher.as_str() {
        "3DES_EDE_SHA" => "DES_CBC3_SHA".to_string(),
        c if c.starts_with("CAMELLIA") || !c.contains("CAMELLIA") => cipher,
        _ => return None,
    };
    Some(format!("{exchange}{}", cipher.replace('_', "-")))
}

/// A curve by any of its names.
fn group(name: &str) -> Option<&'static dyn SupportedKxGroup> {
    Some(match name.to_ascii_lowercase().as_str() {
        "x25519" => kx_group::X25519,
        "prime256v1" | "p-256" | "secp256r1" => kx_group::SECP256R1,
        "secp384r1" | "p-384" => kx_group::SECP384R1,
        _ => return None,
    })
}

const OTHER_GROUPS: [&str; 14] = [
    "secp521r1",
    "p-521",
    "x448",
    "ffdhe2048",
    "ffdhe3072",
    "ffdhe4096",
    "ffdhe6144",
    "ffdhe8192",
    "x25519mlkem768",
    "secp256r1mlkem768",
    "x25519kyber768draft00",
    "brainpoolp256r1",
    "brainpoolp384r1",
    "secp256k1",
];

/// The curves of a list, and those that OpenSSL has and rustls has not; an error is a name that
/// nobody has.
pub fn groups(text: &str) -> Result<(Vec<&'static dyn SupportedKxGroup>, Vec<String>), String> {
    if text == "auto" {
        return Ok((rustls::crypto::ring::ALL_KX_GROUPS.to_vec(), Vec::new()));
    }
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for name in text.split([':', '/']).filter(|n| !n.is_empty()) {
        let bare = name.trim_start_matches(['*', '?']);
        match group(bare) {
            Some(g) => found.push(g),
            None if OTHER_GROUPS.contains(&bare.to_ascii_lowercase().as_str()) => {
                left_out.push(bare.to_string());
            }
            None if name.starts_with('?') => {}
            None => return Err(name.to_string()),
        }
    }
    Ok((found, left_out))
}

/// A curve's name as OpenSSL has it.
pub fn group_name(group: rustls::NamedGroup) -> String {
    use rustls::NamedGroup as G;
    let name = match group {
        G::secp256r1 => "prime256v1",
        G::secp384r1 => "secp384r1",
        G::secp521r1 => "secp521r1",
        G::X25519 => "X25519",
        G::X448 => "X448",
        G::X25519MLKEM768 => "X25519MLKEM768",
        G::FFDHE2048 => "ffdhe2048",
        G::FFDHE3072 => "ffdhe3072",
        G::FFDHE4096 => "ffdhe4096",
        G::FFDHE6144 => "ffdhe6144",
        G::FFDHE8192 => "ffdhe8192",
        other => return format!("0x{:04x}", u16::from(other)),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> String {
        let list: Vec<String> = select(text).iter().map(|s| name(s.suite())).collect();
        list.join(":")
    }

    #[test]
    fn cipher_strings() {
        assert_eq!(select("HIGH:!aNULL:!MD5").len(), 6);
        assert_eq!(select("DEFAULT:ECCdraft").len(), 6);
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE+AESGCM:!aECDSA:DHE-RSA-AES128-SHA"),
            "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"
        );
        assert_eq!(names("ALL:!AES:-aRSA"), "ECDHE-ECDSA-CHACHA20-POLY1305");
        assert_eq!(
            names("aRSA:+AES256:!CHACHA20"),
            "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"
        );
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES256-GCM-SHA384 @STRENGTH"),
            "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256"
        );
        assert_eq!(names("RSA:kRSA:AES128-SHA:nothing"), "");
        assert_eq!(names("!ALL:ECDHE"), "");
    }

    #[test]
    fn what_is_left_out() {
        assert!(left_out("HIGH:!aNULL:!MD5").is_empty());
        assert!(left_out("ECDHE+AESGCM:TLS_AES_128_GCM_SHA256:@SECLEVEL=2").is_empty());
        let mixed = "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:AES128-SHA:kEDH+AESGCM";
        assert_eq!(left_out(mixed), ["DHE-RSA-AES128-GCM-SHA256", "AES128-SHA", "kEDH+AESGCM"]);
        assert!(left_out("ECDHE:DHE-RSA-AES256-SHA:!DHE").is_empty());
    }

    #[test]
    fn other_names() {
        assert_eq!(name(CipherSuite::TLS13_AES_128_GCM_SHA256), "TLS_AES_128_GCM_SHA256");
        assert_eq!(name(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA), "ECDHE-RSA-AES128-SHA");
        assert_eq!(name(CipherSuite::TLS_RSA_WITH_AES_256_GCM_SHA384), "AES256-GCM-SHA384");
        assert_eq!(select_tls13("TLS_AES_128_GCM_SHA256").map(|s| s.len()), Ok(1));
        assert_eq!(select_tls13("TLS_X"), Err("TLS_X".to_string()));
        assert_eq!(groups("auto").unwrap().0.len(), 3);
        assert_eq!(groups("X25519:P-521").unwrap().1, ["P-521"]);
        assert!(groups("nonsense").is_err());
    }
}
