//! Sets of keys (RFC 7517), of the kinds that RFC 7518 and RFC 8037 name.

use serde_json::{Map, Value};

/// What a set may hold: each is tried where a token does not say which.
const KEYS_MAX: usize = 256;

/// A key and what it is for, where it says so.
pub struct Key {
    pub id: Option<String>,
    alg: Option<String>,
    usage: Option<String>,
    pub material: Material,
}

pub enum Material {
    /// `oct`
    Secret(Vec<u8>),
    /// `RSA`, big-endian without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// `EC`: the curve's name, and the point as it is uncompressed (SEC 1, section 2.3.3).
    Ec { curve: String, point: Vec<u8> },
    /// `OKP` with the curve Ed25519.
    Ed25519(Vec<u8>),
    /// A kind that is not known here, which RFC 7517 has passed over.
    Other,
}

#[derive(Default)]
pub struct KeySet {
    pub keys: Vec<Key>,
}

impl KeySet {
    /// # Errors
    ///
    /// Why the text is no set of keys.
    pub fn parse(text: &[u8]) -> Result<KeySet, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let list = match &value {
            Value::Object(set) => set.get("keys").and_then(Value::as_array),
            _ => None,
        };
        let list = list.ok_or("it has no list \"keys\"")?;
        if list.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let mut keys = Vec::with_capacity(list.len());
        for (n, key) in list.iter().enumerate() {
            let key = key.as_object().ok_or_else(|| format!("key {n} is no object"))?;
            keys.push(Key::parse(key).map_err(|why| format!("key {n}: {why}"))?);
        }
        Ok(KeySet { keys })
    }
}

fn text<'k>(key: &'k Map<String, Value>, name: &str) -> Option<&'k str> {
    key.get(name).and_then(Value::as_str)
}

fn bytes(key: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let text = text(key, name).ok_or_else(|| format!("no \"{name}\""))?;
    let decoded = crate::token::decode(text.as_bytes()).filter(|bytes| !bytes.is_empty());
    decoded.ok_or_else(|| format!("\"{name}\" is not base64url"))
}

impl Key {
    fn parse(key: &Map<String, Value>) -> Result<Key, String> {
        let own = |name| text(key, name).map(str::to_string);
        let material = match text(key, "kty").ok_or("no \"kty\"")? {
            "oct" => Material::Secret(bytes(key, "k")?),
            "RSA" => Material::Rsa { n: number(key, "n")?, e: number(key, "e")? },
            "EC" => ec(key)?,
            "OKP" if text(key, "crv") == Some("Ed25519") => Material::Ed25519(bytes(key, "x")?),
            _ => Material::Other,
        };
        Ok(Key { id: own("kid"), alg: own("alg"), usage: own("use"), material })
    }

    /// Whether it may be the one that a token's header speaks of. A key without a name may be any.
    pub fn may_be(&self, id: Option<&str>, alg: &str, usage: &str) -> bool {
        let named = match (self.id.as_deref(), id) {
            (Some(own), Some(id)) => own == id,
            _ => true,
        };
        named
            && self.alg.as_deref().is_none_or(|own| own == alg)
            && self.usage.as_deref().is_none_or(|own| own == usage)
    }
}

fn number(key: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let bytes = bytes(key, name)?;
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    Ok(bytes[zeros..].to_vec())
}

fn ec(key: &Map<String, Value>) -> Result<Material, String> {
    let curve = text(key, "crv").ok_or("no \"crv\"")?;
    let len = match curve {
        "P-256" => 32,
        "P-384" => 48,
        "P-521" => 66,
        _ => return Ok(Material::Other),
    };
    let (x, y) = (bytes(key, "x")?, bytes(key, "y")?);
    if x.len() != len || y.len() != len {
        return Err(format!("\"x\" and \"y\" of {curve} have {len} bytes"));
    }
    Ok(Material::Ec { curve: curve.to_string(), point: [&[4], &x[..], &y].concat() })
}
