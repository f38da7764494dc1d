//! Signing in: SASL's PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677) with SHA-256 and SHA-512, the client's side.
//!
//! Names and passwords are taken as they are: what only differs after SASLprep is not made equal. Channels are not bound, as
//! Kafka has no such mechanism.

use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;
use weir_base::base64;

/// A server that asks for more rounds is not given them: they are its way to cost us time.
const ROUNDS_MAX: u32 = 1_000_000;
/// RFC 7677 wants as many at least.
const ROUNDS_MIN: u32 = 4096;

/// PLAIN's one message.
pub fn plain(user: &str, password: &str) -> Vec<u8> {
    [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha512,
}

/// A conversation: [`Scram::first`], then [`Scram::answer`] to the server's first, then [`Scram::check`] of its last.
pub struct Scram {
    hash: Hash,
    password: String,
    /// Without the header that says that no channel is bound.
    first: String,
    nonce: String,
    /// The server's key, and what it has to sign.
    expected: Option<(Vec<u8>, String)>,
}

const NO_CHANNEL: &str = "n,,";
/// The same in base64.
const NO_CHANNEL_BASE64: &str = "biws";

impl Scram {
    /// `nonce` is random and printable, without commas.
    pub fn new(hash: Hash, user: &str, password: &str, nonce: &str) -> Scram {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Scram {
            hash,
            password: password.to_owned(),
            first: format!("n={user},r={nonce}"),
            nonce: nonce.to_owned(),
            expected: None,
        }
    }

    pub fn first(&self) -> Vec<u8> {
        format!("{NO_CHANNEL}{}", self.first).into_bytes()
    }

    /// What is said to the server's first message.
    pub fn answer(&mut self, server: &[u8]) -> Result<Vec<u8>, &'static str> {
        const BAD: &str = "the server's first SCRAM message cannot be understood";
        let server = std::str::from_utf8(server).map_err(|_| BAD)?;
        let (mut nonce, mut salt, mut rounds) = (None, None, None);
        for part in server.split(',') {
            match part.split_once('=') {
                Some(("r", value)) => nonce = Some(value),
                Some(("s", value)) => salt = base64::decode(value.as_bytes()),
                // `parse` takes a sign, too.
                Some(("i", value)) if value.starts_with(|c: char| c.is_ascii_digit()) => {
                    rounds = value.parse::<u32>().ok();
                }
                Some(("m", _)) => return Err("the server demands an extension of SCRAM"),
                _ => {}
            }
        }
        let (nonce, salt, rounds) = (nonce.ok_or(BAD)?, salt.ok_or(BAD)?, rounds.ok_or(BAD)?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the server's SCRAM nonce does not go on with ours");
        }
        if !(ROUNDS_MIN..=ROUNDS_MAX).contains(&rounds) {
            return Err(
                "the server asks for fewer than 4096 SCRAM iterations, or more than a million",
            );
        }
        let rounds = NonZeroU32::new(rounds).ok_or(BAD)?;
        let salted = self.salted(&salt, rounds);
        let unsigned = format!("c={NO_CHANNEL_BASE64},r={nonce}");
        let signed = format!("{},{server},{unsigned}", self.first);
        let client_key = self.mac(&salted, b"Client Key");
        let stored_key = digest::digest(self.digest(), &client_key);
        let signature = self.mac(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        self.expected = Some((self.mac(&salted, b"Server Key"), signed));
        let mut message = format!("{unsigned},p=").into_bytes();
        base64::encode(&mut message, &proof);
        Ok(message)
    }

    /// Whether the server's last message shows that it knows the password too.
    pub fn check(&self, server: &[u8]) -> Result<(), &'static str> {
        const BAD: &str = "the server did not prove by SCRAM that it knows the password";
        let proof = server.strip_prefix(b"v=").and_then(|text| {
            let end = text.iter().position(|b| *b == b',').unwrap_or(text.len());
            base64::decode(&text[..end])
        });
        let ((key, signed), proof) = self.expected.as_ref().zip(proof).ok_or(BAD)?;
        hmac::verify(&self.key(key), signed.as_bytes(), &proof).map_err(|_| BAD)
    }

    fn digest(&self) -> &'static digest::Algorithm {
        match self.hash {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn key(&self, key: &[u8]) -> hmac::Key {
        let algorithm = match self.hash {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, key)
    }

    fn mac(&self, key: &[u8], text: &[u8]) -> Vec<u8> {
        hmac::sign(&self.key(key), text).as_ref().to_vec()
    }

    fn salted(&self, salt: &[u8], rounds: NonZeroU32) -> Vec<u8> {
        let algorithm = match self.hash {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut out = vec![0; self.digest().output_len()];
        pbkdf2::derive(algorithm, rounds, salt, self.password.as_bytes(), &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample of RFC 7677, section 3.
    #[test]
    fn the_sample_of_the_standard() {
        let mut scram = Scram::new(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(scram.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let answer = scram.answer(server).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
        assert_eq!(scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert!(scram.check(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_err());
        assert!(scram.check(b"e=other-error").is_err());
    }

    #[test]
    fn servers_that_cheat() {
        let mut scram = Scram::new(Hash::Sha512, "a=b,c", "p", "abc");
        assert_eq!(scram.first(), b"n,,n=a=3Db=2Cc,r=abc");
        for server in [
            &b"r=abc,s=AAAA,i=4096"[..],
            b"r=xyz1,s=AAAA,i=4096",
            b"r=abc1,s=AAAA,i=1",
            b"r=abc1,s=AAAA,i=4294967295",
            b"r=abc1,i=4096",
            b"r=abc1,s=AAAA,i=+4096",
            b"m=x,r=abc1,s=AAAA,i=4096",
            b"\xff",
            b"",
        ] {
            assert!(scram.answer(server).is_err(), "{}", server.escape_ascii());
            assert!(scram.check(b"v=").is_err(), "nothing was said that could be proven");
        }
    }
}
