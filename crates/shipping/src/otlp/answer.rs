//! What a receiver answers to an export.

use super::proto::{Field, Fields};
use crate::loki::shown;

/// What an answer means for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All are there, and perhaps something is to be told.
    Taken(Option<String>),
    /// So many were refused for good; the others are there. The protocol does not say which.
    Refused(u64, String),
    /// It was too much at once.
    TooLarge(String),
    /// The same again later.
    Later(String),
}

/// Judges an HTTP answer. Only the codes that the specification calls retryable, and those that another configuration
/// mends, are tried again; what is wrong with the request itself stays wrong.
pub fn http(status: u16, body: &[u8]) -> Verdict {
    match status {
        200..=299 => partial(body),
        413 => Verdict::TooLarge(format!("answered {status}: {}", shown(body))),
        400 | 422 => {
            let why = message(body).unwrap_or_else(|| shown(body));
            Verdict::Refused(u64::MAX, format!("answered {status}: {why}"))
        }
        _ => {
            let why = message(body).unwrap_or_else(|| shown(body));
            Verdict::Later(format!("answered {status}: {why}"))
        }
    }
}

/// Judges a gRPC call by its status and message.
pub fn grpc(status: u32, text: &[u8], body: &[u8]) -> Verdict {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let name = NAMES.get(status as usize).copied().unwrap_or("an unknown status");
    let why = || format!("answered {name} ({status}): {}", shown(text));
    match status {
        0 => partial(body),
        // What is wrong with the request stays wrong.
        3 | 11 => Verdict::Refused(u64::MAX, why()),
        // The same status stands for quotas, too; these are the words of gRPC's libraries.
        8 if why().contains("larger than max") => Verdict::TooLarge(why()),
        _ => Verdict::Later(why()),
    }
}

/// `partial_success` of an export's response: number of what was rejected, and a message.
fn partial(body: &[u8]) -> Verdict {
    let (mut rejected, mut why) = (0, None);
    for (_, partial) in Fields::of(body).filter(|(n, _)| *n == 1) {
        let Field::Bytes(partial) = partial else { continue };
        for field in Fields::of(partial) {
            match field {
                (1, Field::Number(n)) => rejected = n,
                (2, Field::Bytes(text)) => why = Some(shown(text)).filter(|w| !w.is_empty()),
                _ => {}
            }
        }
    }
    match rejected {
        0 => Verdict::Taken(why),
        n => Verdict::Refused(n, why.unwrap_or_else(|| "without a reason".into())),
    }
}

/// For how many ms a gRPC receiver asks to be left alone: `RetryInfo` in the details of its status, in base64.
pub fn retry_ms(details: &[u8]) -> Option<u64> {
    let status = weir_base::base64::decode(details)?;
    let field = |bytes: &[u8], wanted: u32| {
        Fields::of(bytes).find_map(|(n, field)| match field {
            Field::Bytes(bytes) if n == wanted => Some(bytes.to_vec()),
            _ => None,
        })
    };
    let number = |bytes: &[u8], wanted: u32| {
        Fields::of(bytes).find_map(|(n, field)| match field {
            Field::Number(number) if n == wanted => Some(number),
            _ => None,
        })
    };
    let details = Fields::of(&status).filter_map(|(n, field)| match field {
        Field::Bytes(bytes) if n == 3 => Some(bytes),
        _ => None,
    });
    let is_retry =
        |any: &&[u8]| field(any, 1).is_some_and(|t| t.ends_with(b"google.rpc.RetryInfo"));
    let delay = details.filter(is_retry).find_map(|any| field(&field(any, 2)?, 1))?;
    let (secs, nanos) = (number(&delay, 1).unwrap_or(0), number(&delay, 2).unwrap_or(0));
    secs.checked_mul(1000)?.checked_add(nanos / 1_000_000)
}

/// The message of a `google.rpc.Status`.
fn message(body: &[u8]) -> Option<String> {
    let text = Fields::of(body).find_map(|field| match field {
        (2, Field::Bytes(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    });
    text.map(|t| shown(t.as_bytes())).filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::proto::Message;
    use super::*;

    fn partial_success(rejected: u64, why: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Message::new(&mut out).message(1, |m| {
            m.number(1, rejected);
            m.text(2, why);
        });
        out
    }

    #[test]
    fn over_http() {
        assert_eq!(http(200, b""), Verdict::Taken(None));
        assert_eq!(http(200, &partial_success(0, "hm")), Verdict::Taken(Some("hm".into())));
        let refused = Verdict::Refused(3, "too old".into());
        assert_eq!(http(200, &partial_success(3, "too old")), refused);
        let mut status = Vec::new();
        Message::new(&mut status).text(2, "bad\nthing");
        assert_eq!(
            http(400, &status),
            Verdict::Refused(u64::MAX, "answered 400: bad thing".into())
        );
        for code in [301, 401, 404, 408, 429, 500, 502, 503, 504] {
            assert!(
                matches!(http(code, b"no"), Verdict::Later(why) if why.ends_with("no")),
                "{code}"
            );
        }
    }

    #[test]
    fn when_to_come_again() {
        let mut status = Vec::new();
        let mut m = Message::new(&mut status);
        m.number(1, 14);
        m.message(3, |any| any.text(1, "type.googleapis.com/google.rpc.ErrorInfo"));
        m.message(3, |any| {
            any.text(1, "type.googleapis.com/google.rpc.RetryInfo");
            any.message(2, |retry| {
                retry.message(1, |delay| {
                    delay.number(1, 2);
                    delay.number(2, 500_000_000);
                });
            });
        });
        let mut text = Vec::new();
        weir_base::base64::encode(&mut text, &status);
        assert_eq!(retry_ms(&text), Some(2500));
        assert_eq!(retry_ms(b""), None);
        assert_eq!(retry_ms(b"!"), None);
    }

    #[test]
    fn over_grpc() {
        assert_eq!(grpc(0, b"", b""), Verdict::Taken(None));
        assert_eq!(grpc(0, b"", &partial_success(1, "x")), Verdict::Refused(1, "x".into()));
        let later = Verdict::Later("answered UNAVAILABLE (14): gone".into());
        assert_eq!(grpc(14, b"gone", b""), later);
        assert!(matches!(grpc(3, b"", b""), Verdict::Refused(u64::MAX, _)));
        assert!(matches!(grpc(99, b"", b""), Verdict::Later(_)));
        let words = b"grpc: received message larger than max (5 vs. 4)";
        assert!(matches!(grpc(8, words, b""), Verdict::TooLarge(_)));
        assert!(matches!(grpc(8, b"quota", b""), Verdict::Later(_)));
        assert!(matches!(http(413, b""), Verdict::TooLarge(_)));
    }
}
