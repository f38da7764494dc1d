//! Signatures (RFC 7518, section 3; RFC 8037).

use p521::ecdsa::signature::Verifier;
use p521::ecdsa::{Signature, VerifyingKey};
use ring::hmac;
use ring::signature::{self as sig, EcdsaVerificationAlgorithm, RsaParameters, UnparsedPublicKey};

use crate::keys::Material;

const NAMES: [&str; 13] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "ES512", "EdDSA",
];

/// `none` and Ed448 are not.
pub fn is_known(alg: &str) -> bool {
    NAMES.contains(&alg)
}

/// Whether what was said was signed by that key, in that algorithm: each goes with one kind of key.
pub fn holds(alg: &str, key: &Material, said: &[u8], signature: &[u8]) -> bool {
    match key {
        Material::Secret(secret) => match mac(alg) {
            Some(mac) => hmac::verify(&hmac::Key::new(mac, secret), said, signature).is_ok(),
            None => false,
        },
        Material::Rsa { n, e } => match rsa(alg) {
            Some(of) => sig::RsaPublicKeyComponents { n, e }.verify(of, said, signature).is_ok(),
            None => false,
        },
        Material::Ec { curve, point } => elliptic(alg, curve, point, said, signature),
        Material::Ed25519(key) if alg == "EdDSA" => {
            UnparsedPublicKey::new(&sig::ED25519, key).verify(said, signature).is_ok()
        }
        Material::Ed25519(_) | Material::Other => false,
    }
}

fn mac(alg: &str) -> Option<hmac::Algorithm> {
    Some(match alg {
        "HS256" => hmac::HMAC_SHA256,
        "HS384" => hmac::HMAC_SHA384,
        "HS512" => hmac::HMAC_SHA512,
        _ => return None,
    })
}

fn rsa(alg: &str) -> Option<&'static RsaParameters> {
    Some(match alg {
        "RS256" => &sig::RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &sig::RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &sig::RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &sig::RSA_PSS_2048_8192_SHA256,
        "PS384" => &sig::RSA_PSS_2048_8192_SHA384,
        "PS512" => &sig::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn elliptic(alg: &str, curve: &str, point: &[u8], said: &[u8], signature: &[u8]) -> bool {
    let of: &EcdsaVerificationAlgorithm = match (alg, curve) {
        ("ES256", "P-256") => &sig::ECDSA_P256_SHA256_FIXED,
        ("ES384", "P-384") => &sig::ECDSA_P384_SHA384_FIXED,
        ("ES512", "P-521") => return p521(point, said, signature),
        _ => return false,
    };
    UnparsedPublicKey::new(of, point).verify(said, signature).is_ok()
}

fn p521(point: &[u8], said: &[u8], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) =
        (VerifyingKey::from_sec1_bytes(point), Signature::from_slice(signature))
    else {
        return false;
    };
    key.verify(said, &signature).is_ok()
}
