//! gRPC's frames of messages, and its `grpc-message` texts.

/// An answer's message is no longer.
pub const ANSWER_MAX_BYTES: usize = 64 << 10;
const HEAD_BYTES: usize = 5;

/// A message with its head; `packed`: it is compressed as the request's `grpc-encoding` says.
pub fn frame(message: &[u8], packed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + message.len());
    out.push(u8::from(packed));
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// The one message of an answer's body, if it is whole, and whether it is packed; an empty body is an empty message.
pub fn message(body: &[u8]) -> Option<(bool, &[u8])> {
    let Some((head, rest)) = body.split_first_chunk::<HEAD_BYTES>() else {
        return body.is_empty().then_some((false, body));
    };
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    (head[0] < 2).then(|| rest.get(..len)).flatten().map(|message| (head[0] == 1, message))
}

/// A `grpc-message`, which is escaped as in URIs.
pub fn text(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = (*byte == b'%').then(|| weir_base::bytes::parse_hex_bytes(behind.get(..2)?));
        match escaped.flatten().as_deref() {
            Some([byte]) => {
                out.push(*byte);
                rest = &behind[2..];
            }
            _ => {
                out.push(*byte);
                rest = behind;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        let bytes = frame(b"abc", false);
        assert_eq!(bytes, b"\0\0\0\0\x03abc");
        assert_eq!(message(&bytes), Some((false, &b"abc"[..])));
        assert_eq!(message(b""), Some((false, &b""[..])));
        for len in 1..bytes.len() {
            assert_eq!(message(&bytes[..len]), None, "{len}");
        }
        assert_eq!(message(&frame(b"abc", true)), Some((true, &b"abc"[..])));
        assert_eq!(message(b"\x02\0\0\0\0"), None);
        assert_eq!(text(b"a%20b%zz%4"), b"a b%zz%4");
    }
}
