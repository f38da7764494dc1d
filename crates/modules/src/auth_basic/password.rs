//! Password hashes of user files.

use md5::{Digest, Md5};
use sha1::Sha1;
use sha_crypt::{PasswordVerifier, ShaCrypt};
use weir_base::base64::{decode as decode_base64, encode as encode_base64};

const SHA1_BYTES: usize = 20;
/// crypt's own alphabet.
const ITOA64: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Salts of the MD5 hashes end here at the latest.
const MD5_SALT_MAX_BYTES: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Plain,
    Sha,
    SaltedSha,
    /// `$apr1$` or `$1$`, which differ in nothing else.
    Md5(&'static [u8]),
    ShaCrypt,
    Bcrypt,
}

impl Kind {
    /// What made the hash; `None` for what this program cannot check.
    pub fn of(hash: &[u8]) -> Option<Kind> {
        let kinds: [(&[u8], Kind); 10] = [
            (b"{PLAIN}", Kind::Plain),
            (b"{SHA}", Kind::Sha),
            (b"{SSHA}", Kind::SaltedSha),
            (b"$apr1$", Kind::Md5(b"$apr1$")),
            (b"$1$", Kind::Md5(b"$1$")),
            (b"$5$", Kind::ShaCrypt),
            (b"$6$", Kind::ShaCrypt),
            (b"$2a$", Kind::Bcrypt),
            (b"$2b$", Kind::Bcrypt),
            (b"$2y$", Kind::Bcrypt),
        ];
        kinds.iter().find(|(prefix, _)| hash.starts_with(prefix)).map(|(_, kind)| *kind)
    }

    /// Made to take long: not for the worker's own thread.
    pub fn is_slow(self) -> bool {
        matches!(self, Kind::ShaCrypt | Kind::Bcrypt)
    }

    pub fn verify(self, password: &[u8], hash: &[u8]) -> bool {
        let text = std::str::from_utf8(hash);
        match self {
            Kind::Plain => same(password, hash.strip_prefix(b"{PLAIN}").unwrap_or_default()),
            Kind::Sha => {
                let wanted = hash.strip_prefix(b"{SHA}");
                wanted.is_some_and(|wanted| same(&in_base64(&Sha1::digest(password)), wanted))
            }
            Kind::SaltedSha => salted_sha(password, hash.strip_prefix(b"{SSHA}")),
            Kind::Md5(magic) => md5_crypt(password, hash, magic),
            Kind::ShaCrypt => text.is_ok_and(|hash| sha_crypt(password, hash)),
            Kind::Bcrypt => text.is_ok_and(|h| bcrypt::verify(password, h).unwrap_or(false)),
        }
    }
}

/// Takes equally long wherever the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

fn salted_sha(password: &[u8], encoded: Option<&[u8]>) -> bool {
    let Some(encoded) = encoded else { return false };
    let Some(decoded) = decode_base64(encoded) else { return false };
    let Some((_, salt)) = decoded.split_at_checked(SHA1_BYTES) else { return false };
    let mut sha = Sha1::new();
    sha.update(password);
    sha.update(salt);
    let made = [sha.finalize().as_slice(), salt].concat();
    same(&in_base64(&made), encoded)
}

/// As nginx, which compares texts: a hash that is written otherwise (without padding) fits nobody.
fn in_base64(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    encode_base64(&mut text, bytes);
    text
}

/// A hash that does not say its rounds has 5000.
fn sha_crypt(password: &[u8], hash: &str) -> bool {
    let explicit = match hash.split_at_checked(3) {
        Some((id, rest)) if !rest.starts_with("rounds=") => format!("{id}rounds=5000${rest}"),
        _ => hash.to_owned(),
    };
    ShaCrypt::default().verify_password(password, explicit.as_str()).is_ok()
}

/// Poul-Henning Kamp's MD5 crypt, and Apache's variant of it.
fn md5_crypt(password: &[u8], hash: &[u8], magic: &[u8]) -> bool {
    let rest = hash.strip_prefix(magic).unwrap_or_default();
    let salt_len = rest.iter().take(MD5_SALT_MAX_BYTES).take_while(|b| **b != b'$').count();
    let (salt, rest) = rest.split_at(salt_len);
    let Some(wanted) = rest.strip_prefix(b"$") else { return false };
    let digest = md5_rounds(password, salt, magic);
    same(&encode(&digest), wanted)
}

fn md5_rounds(password: &[u8], salt: &[u8], magic: &[u8]) -> [u8; 16] {
    let hash = |parts: &[&[u8]]| -> [u8; 16] {
        let mut md5 = Md5::new();
        parts.iter().for_each(|part| md5.update(part));
        md5.finalize().into()
    };
    let inner = hash(&[password, salt, password]);
    let mut first = [password, magic, salt].concat();
    first.extend(inner.iter().cycle().take(password.len()));
    let mut left = password.len();
    while left > 0 {
        first.push(if left & 1 == 1 { 0 } else { password[0] });
        left >>= 1;
    }
    let mut digest = hash(&[&first]);
    for round in 0..1000 {
        let (odd, previous) = (round & 1 == 1, digest);
        let before: &[u8] = if odd { password } else { &previous };
        let after: &[u8] = if odd { &previous } else { password };
        let salt: &[u8] = if round % 3 != 0 { salt } else { b"" };
        let again: &[u8] = if round % 7 != 0 { password } else { b"" };
        digest = hash(&[before, salt, again, after]);
    }
    digest
}

/// The digest in crypt's alphabet, its bytes in crypt's order.
fn encode(d: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(22);
    let mut push = |value: u32, digits: u32| {
        (0..digits).for_each(|i| out.push(ITOA64[(value >> (6 * i)) as usize & 63]));
    };
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        push(u32::from(d[a]) << 16 | u32::from(d[b]) << 8 | u32::from(d[c]), 4);
    }
    push(u32::from(d[11]), 2);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(password: &str, hash: &str) -> bool {
        let kind = Kind::of(hash.as_bytes());
        kind.is_some_and(|k| k.verify(password.as_bytes(), hash.as_bytes()))
    }

    #[test]
    fn hashes() {
        for hash in [
            "{PLAIN}password",
            "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0",
            "$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.",
            "$1$salt$qJH7.N4xYta3aEG/dfqo/0",
            "$5$salt$Gcm6FsVtF/Qa77ZKD.iwsJlCVPY0XSMgLJL0Hnww/c1",
            "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.",
        ] {
            assert!(right("password", hash), "{hash}");
            assert!(!right("passwore", hash), "{hash}");
            assert!(!right("", hash), "{hash}");
        }
        let made = bcrypt::hash("password", 4).unwrap();
        assert!(right("password", &made) && !right("other", &made));
    }

    #[test]
    fn broken_hashes() {
        for hash in [
            "$1$",
            "$apr1$",
            "$6$",
            "$6$x",
            "$2y$",
            "{SSHA}_____wQadOA1e+/f+T+H3eCQQhRzYWx0",
            "{SSHA}Zm9vCg==",
            "{SHA}_____Mm5Pz8GgiULbPgzG37mj9g=",
            "{SHA}Zm9vCg==",
        ] {
            assert!(!right("password", hash), "{hash}");
        }
        assert_eq!(Kind::of(b"saXNOqHqOQJb6"), None);
    }
}
