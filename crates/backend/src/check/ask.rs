//! One question and its answer, by each protocol.

use super::{Check, CheckMain, Kind, BODY_MAX_BYTES};
use crate::link::reply::BodyReader;
use std::any::Any;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::Worker;
use weir_http::generation::HttpConf;
use weir_runtime::{clock, timer};
use weir_upstream::health::{begin, Asker, Asking, Ill};
use weir_upstream::{Link, Peer, PeerAddr, SocketOptions};
use weir_wire::fastcgi;
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress, Start};

/// Read at once, and the longest head.
const ROOM_BYTES: usize = 4096;
const HEAD_MAX_BYTES: usize = 16 * 1024;

/// Later than the whole question is over.
const FAR_MS: u64 = 24 * 60 * 60 * 1000;

const CONNECTING: &str = "connecting to upstream";
const SENDING: &str = "sending request to upstream";
const READING: &str = "reading response from upstream";
const CHECKING: &str = "checking response";

/// AJP 1.3: CPing, and CPong.
pub(super) const AJP_PING: &[u8] = &[0x12, 0x34, 0, 1, 10];
const AJP_PONG: &[u8] = &[b'A', b'B', 0, 1, 9];

/// A worker's part of the checks begins: of so many workers each has some.
pub(super) fn serves(worker: &Rc<Worker>, workers: usize) {
    let gen = worker.generation();
    let Some(http) = gen.shared.part::<HttpConf>() else { return };
    let checks = http.main.get::<CheckMain>().checks.iter().enumerate();
    for (_, check) in checks.filter(|(i, _)| i % workers.max(1) == worker.id) {
        let asker = Asks { worker: Rc::clone(worker), check: Arc::clone(check) };
        begin(&check.board, Rc::new(asker), &gen.shared.error_log, worker);
    }
}

struct Asks {
    worker: Rc<Worker>,
    check: Arc<Check>,
}

/// A connection that waits for the next question, and how many it has carried.
struct Waiting(Box<Link>, u64);

type Asked = Result<&'static str, &'static str>;

impl Asker for Asks {
    fn ask<'a>(&'a self, peer: &'a Peer, kept: &'a mut Option<Box<dyn Any>>) -> Asking<'a> {
        Box::pin(async move {
            let asked = self.talk(peer, kept);
            let answer = timer::within_ms(self.check.how.timeout_ms, asked).await;
            answer.unwrap_or(Err("waiting for its answer in time")).map_err(Ill::while_doing)
        })
    }
}

impl Asks {
    async fn talk(&self, peer: &Peer, kept: &mut Option<Box<dyn Any>>) -> Asked {
        let waiting = kept.take().and_then(|kept| kept.downcast::<Waiting>().ok());
        let waiting = waiting.filter(|w| w.0.is_surely_quiet());
        let (mut link, carried) = match waiting.map(|w| *w) {
            Some(Waiting(link, carried)) => (link, carried),
            None => (self.connect(peer).await?, 0),
        };
        self.send(&mut link).await?;
        let check = &self.check;
        let goes_on = match check.how.kind {
            Kind::Tcp => is_open(&link).map(|()| true),
            Kind::Http => http(&mut link, check, carried + 1 < check.requests).await,
            Kind::Fastcgi => by_fastcgi(&mut link, check).await,
            Kind::SslHello => begins_with(&mut link, is_server_hello).await,
            Kind::Mysql => begins_with(&mut link, is_greeting).await,
            Kind::Ajp => begins_with(&mut link, is_pong).await,
        }?;
        if goes_on && carried + 1 < check.requests {
            *kept = Some(Box::new(Waiting(link, carried + 1)));
        }
        Ok(CHECKING)
    }

    async fn connect(&self, peer: &Peer) -> Result<Box<Link>, &'static str> {
        let how = &self.check.how;
        let addr = match (&peer.addr, how.port) {
            (PeerAddr::Ip(addr), Some(port)) => PeerAddr::Ip((addr.ip(), port).into()),
            (addr, _) => addr.clone(),
        };
        let options = SocketOptions::default();
        let linked = Link::connect(&addr, &options, how.timeout_ms, &self.worker).await;
        linked.map_err(|_| CONNECTING)
    }

    async fn send(&self, link: &mut Link) -> Result<(), &'static str> {
        let text = &self.check.send;
        let (mut sent, mut deadline) = (0, 0);
        while sent < text.len() {
            let left = [IoSlice::new(&text[sent..])];
            let timeout_ms = self.check.how.timeout_ms;
            let some = poll_fn(|cx| link.poll_send(cx, &left, &mut deadline, timeout_ms)).await;
            sent += some.map_err(|_| SENDING)?;
        }
        Ok(())
    }
}

/// Nobody has hung up yet.
fn is_open(link: &Link) -> Result<(), &'static str> {
    match link.stream.peek_now() {
        Ok(n) if n > 0 => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(CONNECTING),
    }
}

/// Reads some more; the end is an error.
async fn read(link: &mut Link, got: &mut Vec<u8>) -> Result<(), &'static str> {
    // The time is that of the whole question.
    let mut deadline = clock::mono_ms() + FAR_MS;
    match poll_fn(|cx| link.poll_read(cx, got, ROOM_BYTES, &mut deadline, 0)).await {
        Ok(0) | Err(_) => Err(READING),
        Ok(_) => Ok(()),
    }
}

/// What the first bytes are, as far as can be told: `None` for more of them.
type Judge = fn(&[u8]) -> Option<bool>;

async fn begins_with(link: &mut Link, judge: Judge) -> Result<bool, &'static str> {
    let mut got = Vec::new();
    loop {
        read(link, &mut got).await?;
        match judge(&got) {
            Some(true) => return Ok(false),
            Some(false) => return Err(CHECKING),
            None => {}
        }
    }
}

/// RFC 8446, sections 5.1 and 4: a record of handshake whose first message is a server's hello.
fn is_server_hello(got: &[u8]) -> Option<bool> {
    const HANDSHAKE: u8 = 22;
    const SERVER_HELLO: u8 = 2;
    if got.first().is_some_and(|kind| *kind != HANDSHAKE) {
        return Some(false);
    }
    got.get(5).map(|message| *message == SERVER_HELLO)
}

/// MySQL's protocol: the first packet of a connection (number 0), the handshake of version 10.
fn is_greeting(got: &[u8]) -> Option<bool> {
    got.get(3..5).map(|packet| packet == [0, 10])
}

fn is_pong(got: &[u8]) -> Option<bool> {
    let len = got.len().min(AJP_PONG.len());
    match got[..len] == AJP_PONG[..len] {
        true => (len == AJP_PONG.len()).then_some(true),
        false => Some(false),
    }
}

fn is_alive(check: &Check, status: u16) -> Result<(), &'static str> {
    match check.alive.contains(&(status / 100)) {
        true => Ok(()),
        false => Err("checking status code"),
    }
}

/// Whether the connection can carry another question, which it is to if `again`.
async fn http(link: &mut Link, check: &Check, again: bool) -> Result<bool, &'static str> {
    let (mut got, mut head) = (Vec::new(), ResponseHead::default());
    let mut parser = ResponseParser::new();
    loop {
        read(link, &mut got).await?;
        match parser.parse(&got, HEAD_MAX_BYTES, &mut head) {
            Ok(ResponseProgress::Complete) => break,
            Ok(ResponseProgress::NeedMore) => {}
            Ok(ResponseProgress::Http09) | Err(_) => return Err(CHECKING),
        }
    }
    is_alive(check, head.status)?;
    if !again || head.connection_close {
        return Ok(false);
    }
    let mut reader = BodyReader::new(&head, check.send.starts_with(b"HEAD "));
    let mut body = got.split_off(head.head_len);
    let mut total = body.len();
    loop {
        reader.feed(&mut body, 0).map_err(|_| READING)?;
        if reader.done || total > BODY_MAX_BYTES || reader.ends_with_connection() {
            return Ok(reader.done && !reader.excess);
        }
        body.clear();
        read(link, &mut body).await?;
        total += body.len();
    }
}

async fn by_fastcgi(link: &mut Link, check: &Check) -> Result<bool, &'static str> {
    let (mut got, mut head) = (Vec::new(), ResponseHead::default());
    let (mut parser, mut decoder) =
        (ResponseParser::starting(Start::Cgi), fastcgi::Decoder::default());
    loop {
        let from = got.len();
        read(link, &mut got).await?;
        decoder.decode(&mut got, from).map_err(|_| CHECKING)?;
        decoder.errors.clear();
        match parser.parse(&got, HEAD_MAX_BYTES, &mut head) {
            Ok(ResponseProgress::Complete) => break,
            Ok(ResponseProgress::NeedMore) if !decoder.ended => {}
            _ => return Err(CHECKING),
        }
    }
    is_alive(check, head.status)?;
    Ok(false)
}

/// A hello of TLS 1.2 and 1.3 with what every server knows (RFC 8446, section 4.1.2), which goes no further:
/// its random bytes need not be any.
pub(super) fn hello() -> Vec<u8> {
    let list = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |number: u16, data: &[u8]| [&number.to_be_bytes()[..], &list(data)].concat();
    let ciphers = [
        0x13, 0x01, 0x13, 0x02, 0x13, 0x03, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30, 0xcc,
        0xa9, 0xcc, 0xa8, 0xc0, 0x13, 0xc0, 0x14, 0x00, 0x9c, 0x00, 0x2f, 0x00, 0x35,
    ];
    let groups = list(&[0x00, 0x17, 0x00, 0x18]);
    let signatures = list(&[4, 3, 8, 4, 4, 1, 5, 3, 8, 5, 5, 1, 8, 6, 6, 1, 2, 1]);
    // TLS 1.3 may ask for another key share (a hello again), which is a server's hello too.
    let versions = [4, 3, 4, 3, 3];
    let extensions = [
        extension(10, &groups),
        extension(11, &[1, 0]),
        extension(13, &signatures),
        extension(43, &versions),
        extension(51, &[0, 0]),
    ]
    .concat();
    let body =
        [&[3, 3][..], &[0x5a; 32], &[0], &list(&ciphers), &[1, 0], &list(&extensions)].concat();
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &list(&message)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_are_judged_however_they_come() {
        assert_eq!(
            [b"".as_slice(), b"A", b"AB\0\x01\x09", b"AC"].map(is_pong),
            [None, None, Some(true), Some(false)]
        );
        assert_eq!(is_greeting(&[74, 0, 0, 0]), None);
        assert_eq!(is_greeting(&[74, 0, 0, 0, 10]), Some(true));
        assert_eq!(is_greeting(&[74, 0, 0, 0, 255]), Some(false));
        assert_eq!(is_server_hello(&[22, 3, 3, 0, 50]), None);
        assert_eq!(is_server_hello(&[22, 3, 3, 0, 50, 2]), Some(true));
        assert_eq!(is_server_hello(&[21]), Some(false));
    }
}
