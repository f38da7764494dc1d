//! What a token says: its times, and variables.

use serde_json::{Map, Value};

use std::rc::Rc;
use weir_core::variables::{VarArg, Variable};
use weir_http::Request;

use crate::rows::JwtMain;
use crate::token::Token;
use crate::Held;

pub const VARIABLES: &[Variable<Request>] = &[
    Variable::new("jwt_payload", payload),
    Variable::prefixed("jwt_claim_", |r, arg, out| named(r, arg, out, |t| &t.claims)),
    Variable::prefixed("jwt_header_", |r, arg, out| named(r, arg, out, |t| &t.header)),
];

type Part = fn(&Token) -> &Map<String, Value>;

/// Whether it is valid now (RFC 7519, sections 4.1.4 and 4.1.5).
///
/// # Errors
///
/// Why it is not.
pub fn check_times(
    claims: &Map<String, Value>,
    now_secs: i64,
    leeway_msec: u64,
) -> Result<(), String> {
    let (now, leeway) = (now_secs as f64, leeway_msec as f64 / 1000.0);
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(secs) => Ok(Some(secs)),
            None => Err(format!("its \"{name}\" is no number")),
        },
    };
    if time("exp")?.is_some_and(|exp| now >= exp + leeway) {
        return Err("it has expired".into());
    }
    if time("nbf")?.is_some_and(|nbf| now + leeway < nbf) {
        return Err("it is not valid yet".into());
    }
    Ok(())
}

fn held(r: &mut Request) -> Option<&Token> {
    if r.kept::<Held>().is_none() {
        crate::look(r);
    }
    r.kept::<Held>()?.token()
}

fn payload(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match held(r).filter(|token| !token.payload.is_empty()) {
        Some(token) => {
            out.extend_from_slice(&token.payload);
            true
        }
        None => false,
    }
}

fn named(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>, part: Part) -> bool {
    let name = String::from_utf8_lossy(&arg.name);
    let Some(token) = held(r) else { return false };
    // Variables' names are in lower case, claims' need not be.
    let part = part(token);
    let value = part.get(&*name).or_else(|| {
        part.iter().find(|(own, _)| own.eq_ignore_ascii_case(&name)).map(|(_, value)| value)
    });
    value.is_some_and(|value| write(value, out))
}

pub fn claim_at(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    at(r, arg.data, out, |t| &t.claims)
}

pub fn header_at(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    at(r, arg.data, out, |t| &t.header)
}

fn at(r: &mut Request, n: usize, out: &mut Vec<u8>, part: Part) -> bool {
    let gen = Rc::clone(r.gen());
    let Some(path) = gen.shared.main.get::<JwtMain>().names.get(n) else { return false };
    let Some(token) = held(r) else { return false };
    let mut objects = Some(part(token));
    let mut value = None;
    for name in path {
        value = objects.and_then(|object| object.get(&*String::from_utf8_lossy(name)));
        objects = value.and_then(Value::as_object);
    }
    value.is_some_and(|value| write(value, out))
}

/// A string as it is, a list by commas, everything else as JSON.
fn write(value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Null => return false,
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(list) => {
            for (n, value) in list.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                match value {
                    Value::String(text) => out.extend_from_slice(text.as_bytes()),
                    other => out.extend_from_slice(other.to_string().as_bytes()),
                }
            }
        }
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |text: &str, now| {
            check_times(
                serde_json::from_str::<Value>(text).unwrap().as_object().unwrap(),
                now,
                2000,
            )
        };
        assert!(check(r#"{"exp":100}"#, 101).is_ok());
        assert!(check(r#"{"exp":100}"#, 102).is_err());
        assert!(check(r#"{"nbf":100}"#, 98).is_ok());
        assert!(check(r#"{"nbf":100.5}"#, 98).is_err());
        assert!(check(r#"{"exp":"100"}"#, 1).is_err());
        assert!(check(r#"{"exp":null}"#, 1).is_err());
        assert!(check("{}", 1).is_ok());
    }
}
