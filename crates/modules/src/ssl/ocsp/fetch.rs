//! One question over HTTP/1.0, to one address after the other until there is an answer.

use super::Responder;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_resolve::Resolver;
use weir_runtime::timer;
use weir_wire::http1::names::ResponseHeaderId;
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress};

/// Longest answer, head and body.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// For one address.
const PATIENCE_MS: u64 = 60_000;
const CONTENT_TYPE: &[u8] = b"application/ocsp-response";
const INVALID: &str = "OCSP responder sent invalid response";

/// What the responder answers to a question; what goes wrong is logged.
pub async fn ask<L: Fn(LogLevel, &str)>(
    responder: &Responder,
    resolver: Option<(&Arc<Resolver>, u64)>,
    question: &[u8],
    log: &L,
) -> Option<Vec<u8>> {
    let host = &responder.host;
    let tell = |level: LogLevel, text: &str, peer: &str| {
        log(level, &format!("{text} while requesting certificate status, responder: {host}{peer}"));
    };
    let (resolver, wait_ms) = resolver.map_or((None, 0), |(r, ms)| (Some(r), ms));
    let addrs = responder.addresses(resolver, wait_ms, &|level, text| tell(level, text, "")).await;
    let request: Arc<[u8]> = responder.request(question).into();
    for addr in addrs {
        let done = timer::within_ms(PATIENCE_MS, beside(addr, &request)).await;
        let late = || Err("OCSP responder timed out (110: Connection timed out)".to_string());
        match done.unwrap_or_else(late) {
            Ok(answer) => return Some(answer),
            Err(text) => tell(LogLevel::Error, &text, &format!(", peer: {addr}")),
        }
    }
    None
}

/// The exchange, in the resolver's thread whatever thread asks; it ends when nobody waits for it any more.
async fn beside(addr: SocketAddr, request: &Arc<[u8]>) -> Result<Vec<u8>, String> {
    const NO_THREAD: &str = "no thread is there to ask the OCSP responder";
    let handle = weir_resolve::client::handle().ok_or(NO_THREAD)?;
    let request = Arc::clone(request);
    let mut tasks = JoinSet::new();
    tasks.spawn_on(async move { exchange(addr, &request).await }, handle);
    let done = tasks.join_next().await.and_then(Result::ok);
    done.unwrap_or_else(|| Err(NO_THREAD.to_string()))
}

async fn exchange(addr: SocketAddr, request: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |what: &str, e: std::io::Error| format!("{what}() failed ({})", os_text(&e));
    let mut stream = TcpStream::connect(addr).await.map_err(|e| failed("connect", e))?;
    stream.write_all(request).await.map_err(|e| failed("send", e))?;
    let mut bytes = Vec::new();
    loop {
        let n = stream.read_buf(&mut bytes).await.map_err(|e| failed("recv", e))?;
        if let Some(answer) = body(&bytes, n == 0)? {
            return Ok(answer.to_vec());
        }
        if n == 0 {
            return Err("OCSP responder prematurely closed connection".to_string());
        }
        if bytes.len() > ANSWER_MAX_BYTES {
            return Err(INVALID.to_string());
        }
    }
}

/// The body of a response that is whole.
fn body(bytes: &[u8], ended: bool) -> Result<Option<&[u8]>, String> {
    let mut head = ResponseHead::default();
    match ResponseParser::new().parse(bytes, ANSWER_MAX_BYTES, &mut head) {
        Ok(ResponseProgress::Complete) => {}
        Ok(ResponseProgress::NeedMore) => return Ok(None),
        Ok(ResponseProgress::Http09) | Err(_) => return Err(INVALID.to_string()),
    }
    if head.status != 200 {
        return Err(format!("OCSP responder sent status {}", head.status));
    }
    let kind = head.value(ResponseHeaderId::ContentType, bytes);
    if let Some(kind) = kind.filter(|k| !k.eq_ignore_ascii_case(CONTENT_TYPE)) {
        let kind = String::from_utf8_lossy(kind);
        return Err(format!("OCSP responder sent invalid \"Content-Type\" header: \"{kind}\""));
    }
    // Nobody who speaks HTTP/1.0 has asked for that.
    if head.chunked {
        return Err(INVALID.to_string());
    }
    let body = &bytes[head.head_len..];
    match head.content_length.map(|n| usize::try_from(n).unwrap_or(usize::MAX)) {
        Some(n) => Ok(body.get(..n)),
        None => Ok(ended.then_some(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let with = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n0123");
        let kind = "Content-Type: application/OCSP-response\r\n";
        assert_eq!(body(with(kind).as_bytes(), false), Ok(None));
        assert_eq!(body(with(kind).as_bytes(), true), Ok(Some(&b"0123"[..])));
        let long = with("Content-Length: 3\r\n");
        assert_eq!(body(long.as_bytes(), false), Ok(Some(&b"012"[..])));
        assert_eq!(body(with("Content-Length: 5\r\n").as_bytes(), true), Ok(None));
        assert_eq!(body(b"HTTP/1.1 200", true), Ok(None));
        let wrong = |text: &str| body(text.as_bytes(), true).unwrap_err();
        assert_eq!(wrong("<html>"), INVALID);
        assert_eq!(wrong("HTTP/1.1 404 x\r\n\r\n"), "OCSP responder sent status 404");
        assert!(wrong(&with("Content-Type: text/html\r\n")).ends_with(": \"text/html\""));
        assert_eq!(wrong(&with("Transfer-Encoding: chunked\r\n")), INVALID);
    }
}
