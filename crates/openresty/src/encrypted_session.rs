//! `set_encrypt_session` and `set_decrypt_session`: values that clients keep and cannot read (OpenResty's
//! encrypted-session).
//!
//! A session is the MD5 of what is encrypted and that, by AES-256 in CBC mode: the value and, in eight bytes, when it
//! expires in Unix seconds (0 for never). Key and initial vector are the configuration's, so that sessions of other
//! servers are read that have the same.

use crate::set_misc::{append_one, Value};
use aes::Aes256;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use md5::{Digest, Md5};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_module::first::sec;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};
use weir_modules::rewrite::{Failed, CONTEXTS};
use weir_runtime::clock;

const KEY_BYTES: usize = 32;
const IV_BYTES: usize = 16;
const DIGEST_BYTES: usize = 16;
const TIME_BYTES: usize = 8;
const DAY_SECS: u64 = 24 * 60 * 60;

type Iv = [u8; IV_BYTES];

#[derive(Default)]
struct SessionLoc {
    key: Val<Option<[u8; KEY_BYTES]>>,
    iv: Val<Iv>,
    expires_secs: Val<u64>,
}

impl ConfType for SessionLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SessionLoc) -> ConfResult {
        merge_values!(self, parent; key = None, iv = *b"deadbeefdeadbeef", expires_secs = DAY_SECS);
        Ok(())
    }
}

const SETTINGS: Context = Context::HTTP.or(CONTEXTS);

const ROWS: &[Row] = &[
    Row::new(
        "encrypted_session_key",
        SETTINGS,
        Arity::ONE,
        "",
        "The key of sessions, 32 bytes.",
        |cf, d| {
            let Ok(key) = <[u8; KEY_BYTES]>::try_from(d.arg(0)) else {
                return Err(
                    d.bad(0, format!("{}: the key must be of {KEY_BYTES} bytes long", d.name()))
                );
            };
            cf.get::<SessionLoc>().key.once(d, Some(key))
        },
    ),
    Row::new(
        "encrypted_session_iv",
        SETTINGS,
        Arity::ONE,
        "deadbeefdeadbeef",
        "The initial vector of sessions, 16 bytes at most.",
        |cf, d| {
            let mut iv = Iv::default();
            let Some(begin) = iv.get_mut(..d.arg(0).len()) else {
                let text = format!(
                    "{}: the init vector must not be longer than {IV_BYTES} bytes",
                    d.name()
                );
                return Err(d.bad(0, text));
            };
            begin.copy_from_slice(d.arg(0));
            cf.get::<SessionLoc>().iv.once(d, iv)
        },
    ),
    Row::new(
        "encrypted_session_expires",
        SETTINGS,
        Arity::ONE,
        "1d",
        "For how long a session is good; 0 for ever.",
        set!(Cf::get::<SessionLoc>, expires_secs, sec),
    ),
    Row::new(
        "set_encrypt_session",
        CONTEXTS,
        Arity::ONE_TWO,
        "",
        "Encrypts a value, in raw bytes.",
        |cf, d| append_one(cf, d, Value::In(encrypt)),
    )
    .note("Without encrypted_session_key the request ends with 500."),
    Row::new(
        "set_decrypt_session",
        CONTEXTS,
        Arity::ONE_TWO,
        "",
        "Decrypts a session; one that is not good, or no more, gives an empty value.",
        |cf, d| append_one(cf, d, Value::In(decrypt)),
    )
    .note("Without encrypted_session_key the request ends with 500."),
];

pub const MODULE: HttpModule =
    HttpModule { rows: ROWS, slots: &[SlotVtable::of::<SessionLoc>()], ..HttpModule::EMPTY };

/// The function of a directive.
pub(crate) fn value_named(name: &[u8]) -> Option<Value> {
    match name {
        b"set_encrypt_session" => Some(Value::In(encrypt)),
        b"set_decrypt_session" => Some(Value::In(decrypt)),
        _ => None,
    }
}

fn no_key(r: &Request) -> Failed {
    let text =
        "encrypted_session: a key is required to be defined by the encrypted_session_key directive";
    r.log(LogLevel::Error, text);
    Failed
}

fn encrypt(r: &mut Request, value: &[u8], out: &mut Vec<u8>) -> Result<(), Failed> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SessionLoc>();
    let key = conf.key.as_ref().ok_or_else(|| no_key(r))?;
    let expires = match *conf.expires_secs {
        0 => 0,
        secs => now().saturating_add(secs),
    };
    seal(key, &conf.iv, value, expires, out);
    Ok(())
}

fn decrypt(r: &mut Request, session: &[u8], out: &mut Vec<u8>) -> Result<(), Failed> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SessionLoc>();
    let key = conf.key.as_ref().ok_or_else(|| no_key(r))?;
    if let Some((value, expires)) = open(key, &conf.iv, session) {
        if expires == 0 || expires > now() {
            out.extend_from_slice(&value);
        }
    }
    Ok(())
}

/// In Unix seconds.
fn now() -> u64 {
    u64::try_from(clock::wall_secs()).unwrap_or_default()
}

/// Appends a session with this value, which expires then (Unix seconds).
pub fn seal(key: &[u8; KEY_BYTES], iv: &Iv, value: &[u8], expires: u64, out: &mut Vec<u8>) {
    let text = [value, &expires.to_be_bytes()].concat();
    out.extend_from_slice(&Md5::digest(&text));
    let cipher = cbc::Encryptor::<Aes256>::new(key.into(), iv.into());
    out.extend_from_slice(&cipher.encrypt_padded_vec::<Pkcs7>(&text));
}

/// The value and when it expires, of a session by this key.
pub fn open(key: &[u8; KEY_BYTES], iv: &Iv, session: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (digest, sealed) = session.split_at_checked(DIGEST_BYTES)?;
    let cipher = cbc::Decryptor::<Aes256>::new(key.into(), iv.into());
    let mut text = cipher.decrypt_padded_vec::<Pkcs7>(sealed).ok()?;
    let at = text.len().checked_sub(TIME_BYTES)?;
    // Where it differs first tells nothing to who has no key: it is compared as a whole.
    let differs = Md5::digest(&text).iter().zip(digest).fold(0, |all, (a, b)| all | (a ^ b));
    let time = text.split_off(at);
    let expires = u64::from_be_bytes(time.try_into().ok()?);
    (differs == 0).then_some((text, expires))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8; KEY_BYTES] = b"abcdefghijklmnopqrstuvwxyz123456";

    #[test]
    fn sessions_are_opened_by_whom_they_are_for() {
        let iv = *b"deadbeefdeadbeef";
        let mut session = Vec::new();
        seal(KEY, &iv, b"value", 17, &mut session);
        assert_eq!(open(KEY, &iv, &session), Some((b"value".to_vec(), 17)));
        assert_eq!(open(KEY, &Iv::default(), &session), None);
        assert_eq!(open(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ123456", &iv, &session), None);
        for end in 0..session.len() {
            assert_eq!(open(KEY, &iv, &session[..end]), None, "{end}");
        }
        for at in 0..session.len() {
            let mut other = session.clone();
            other[at] ^= 1;
            assert_eq!(open(KEY, &iv, &other), None, "{at}");
        }
    }
}
