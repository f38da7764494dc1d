//! gRPC's health protocol, as far as one question and its answer go: `grpc.health.v1.Health/Check`. A message is
//! one field (protobuf's wire format), and a frame around it (gRPC over HTTP/2: a flag, four bytes of length).

use super::Grpc;

/// What is asked for.
pub(super) const HEAD: &[u8] = b"POST /grpc.health.v1.Health/Check HTTP/1.0\r\n\
    Content-Type: application/grpc\r\nTE: trailers\r\nUser-Agent: weir\r\n\r\n";

/// A string in field 1.
const SERVICE: u8 = 0x0a;
/// A number in field 1.
const STATUS: u8 = 0x08;
/// `SERVING`
const SERVING: u8 = 1;

const FRAME_HEAD_BYTES: usize = 5;

/// A service's name is shorter, so that its length is one byte.
pub(super) const SERVICE_MAX_BYTES: usize = 127;

/// The body of a question.
pub(super) fn question(service: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.extend_from_slice(&[SERVICE, service.len() as u8]);
        message.extend_from_slice(service);
    }
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// Judges an answer by its body and its `grpc-status`.
pub(super) fn judge(
    wanted: &Grpc,
    body: &[u8],
    status: Option<&[u8]>,
) -> Result<&'static str, &'static str> {
    let status = status.and_then(weir_base::units::parse_int);
    match wanted.status {
        Some(code) if status == Some(code) => Ok("checking gRPC status"),
        None if status == Some(0) && is_serving(body) => Ok("checking gRPC status"),
        _ => Err("checking gRPC status"),
    }
}

fn is_serving(body: &[u8]) -> bool {
    body.get(FRAME_HEAD_BYTES..).is_some_and(|message| message == [STATUS, SERVING])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers() {
        assert_eq!(question(b""), [0, 0, 0, 0, 0]);
        assert_eq!(question(b"ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let any = Grpc::default();
        assert!(judge(&any, &[0, 0, 0, 0, 2, 8, 1], Some(b"0")).is_ok());
        assert!(judge(&any, &[0, 0, 0, 0, 2, 8, 2], Some(b"0")).is_err());
        assert!(judge(&any, &[0, 0, 0, 0, 2, 8, 1], None).is_err());
        assert!(judge(&any, b"", Some(b"12")).is_err());
        let none = Grpc { status: Some(12), ..Grpc::default() };
        assert!(judge(&none, b"", Some(b"12")).is_ok());
        assert!(judge(&none, &[0, 0, 0, 0, 2, 8, 1], Some(b"0")).is_err());
    }
}
