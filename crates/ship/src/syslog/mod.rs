//! syslog over UDP, TCP and TLS (RFC 5424, 5426, 6587, 5425).
//!
//! Syslog acknowledges nothing. Over TCP and TLS a batch has a connection of its own, whose sending half is closed behind
//! it: who then closes the other half has read all of it, and otherwise the batch is sent again. So an event arrives at
//! least once, and twice where a connection broke late; its id stands in the structured data. A receiver that does not
//! close is believed after a while. Over UDP an event arrives at most once, as nobody hears of what is lost.

mod conf;
#[cfg(test)]
mod tests;

pub use conf::{KIND, ROWS};

use crate::common::Address;
use crate::line::{dial, words, Line};
use crate::receiver::{Batch, Client, Entry, Ground, Outcome, Target};
use conf::Settings;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use weir_core::logger::LogLevel;
use weir_shipping::syslog::{Framing, Head, Message, DATAGRAM_MAX_BYTES};

/// A receiver that has closed nothing by then does not do so.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// What a receiver says, though it has nothing to say.
const SAID_MAX_BYTES: u64 = 64 * 1024;
/// After so many datagrams the receiver is given time to take them out of its buffer.
const DATAGRAMS_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);
/// What is before or behind a message on a stream.
const FRAME_MAX_BYTES: usize = 12;

/// Events that are not sent, by their places in the batch, and why.
type Refused = Vec<(usize, String)>;

/// What a block has said.
pub struct Syslog(Arc<Settings>);

impl Target for Syslog {
    fn client(&self, ground: Ground) -> Box<dyn Client> {
        // The process that serves, which need not be the one that has read the configuration.
        let head = Head { process: std::process::id().to_string(), ..self.0.head.clone() };
        let s = Arc::clone(&self.0);
        Box::new(Sender { s, head, ground, turn: 0, udp: None, closes: true })
    }
}

struct Sender {
    s: Arc<Settings>,
    head: Head,
    ground: Ground,
    /// Which of the addresses is taken.
    turn: usize,
    udp: Option<UdpSocket>,
    /// The receiver closes what we have closed, as far as is known.
    closes: bool,
}

impl Client for Sender {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome {
        let address = self.s.addresses[self.turn % self.s.addresses.len()].clone();
        let outcome = match address.scheme.as_str() {
            "udp" => self.datagrams(&address, &batch.entries),
            _ => match self.stream(&address, &batch.entries) {
                Ok(refused) if refused.is_empty() => Outcome::All,
                Ok(refused) => {
                    let mut done = vec![true; batch.entries.len()];
                    refused.iter().for_each(|(n, _)| done[*n] = false);
                    Outcome::Some { done, refused, again_after: None }
                }
                Err(why) => Outcome::Later { why, after: None },
            },
        };
        if !matches!(outcome, Outcome::All) {
            self.turn += 1;
            self.udp = None;
        }
        outcome
    }
}

impl Sender {
    /// Which ones are not to be sent, as they are too long.
    fn stream(&mut self, to: &Address, entries: &[Entry<'_>]) -> Result<Refused, String> {
        let s = Arc::clone(&self.s);
        let framing = if to.scheme == "tls" { Framing::Counted } else { s.framing };
        let tls = s.tls.as_ref().filter(|_| to.scheme == "tls");
        let mut line = dial(&to.host, to.port, tls, s.timeout, &self.ground.stop)?;
        line.begin(s.timeout);
        let mut out = Vec::with_capacity(entries.iter().map(|e| e.json.len() + 200).sum());
        let mut refused = Refused::new();
        for (n, entry) in entries.iter().enumerate() {
            let id = entry.id.to_string();
            let from = out.len();
            self.head.frame(message(entry, &id), s.message_max, framing, &mut out);
            if out.len() - from > s.message_max + FRAME_MAX_BYTES {
                out.truncate(from);
                refused.push((n, too_long(s.message_max)));
            }
        }
        let failed = |e: io::Error| format!("{}:{}: {}", to.host, to.port, words(&e));
        line.write_all(&out).map_err(failed)?;
        line.flush().map_err(failed)?;
        line.end().map_err(failed)?;
        if !self.closes {
            return Ok(refused);
        }
        line.begin(CLOSE_MAX.min(s.timeout));
        match until_closed(&mut line) {
            Ok(()) => Ok(refused),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                self.closes = false;
                let (host, port) = (&to.host, to.port);
                let line = format!(
                    "{host}:{port} does not close connections that we have closed: from now on what it is sent is taken \
                     for received once it has left"
                );
                (self.ground.say)(LogLevel::Warn, &line);
                Ok(refused)
            }
            Err(e) => Err(failed(e)),
        }
    }

    fn datagrams(&mut self, to: &Address, entries: &[Entry<'_>]) -> Outcome {
        let failed = |e: &io::Error| format!("{}:{}: {}", to.host, to.port, words(e));
        let socket = match self.udp.take().map_or_else(|| open(to), Ok) {
            Ok(socket) => socket,
            Err(e) => return Outcome::Later { why: failed(&e), after: None },
        };
        let mut done = vec![false; entries.len()];
        let mut refused = Refused::new();
        for (n, entry) in entries.iter().enumerate() {
            if n % DATAGRAMS_AT_ONCE == DATAGRAMS_AT_ONCE - 1 {
                thread::sleep(PAUSE);
            }
            if self.ground.stop.is_set() {
                break;
            }
            let id = entry.id.to_string();
            let mut out = Vec::with_capacity(entry.json.len() + 200);
            let most = self.s.message_max.min(DATAGRAM_MAX_BYTES);
            self.head.write(message(entry, &id), most, &mut out);
            if out.len() > most {
                refused.push((n, too_long(most)));
                continue;
            }
            match send(&socket, &out) {
                Ok(()) => done[n] = true,
                Err(e) if n == 0 => return Outcome::Later { why: failed(&e), after: None },
                Err(e) => {
                    (self.ground.say)(LogLevel::Warn, &failed(&e));
                    break;
                }
            }
        }
        self.udp = Some(socket);
        match refused.is_empty() && done.iter().all(|d| *d) {
            true => Outcome::All,
            false => Outcome::Some { done, refused, again_after: None },
        }
    }
}

/// Its values are cut already.
fn too_long(most: usize) -> String {
    format!("without its long values it has more than {most} bytes (\"message_size\")")
}

fn message<'a>(entry: &Entry<'a>, id: &'a str) -> Message<'a> {
    let (time_ms, severity) = (entry.time_ms, entry.severity as u8);
    Message { severity, time_ms, kind: entry.kind.name(), id, text: entry.json }
}

fn open(to: &Address) -> io::Result<UdpSocket> {
    let bare = to.host.trim_matches(['[', ']']);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in (bare, to.port).to_socket_addrs()? {
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        match UdpSocket::bind(local).and_then(|s| s.connect(address).map(|()| s)) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// An error that is about an earlier datagram is told once, and this one has not left.
fn send(socket: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
    socket.send(bytes).map(|_| ())
}

/// Waits for the end of what the receiver says.
fn until_closed(line: &mut Line) -> io::Result<()> {
    let said = match io::copy(&mut line.take(SAID_MAX_BYTES), &mut io::sink()) {
        // Closed without TLS's word for it, as many do. Who had not read all would have reset the connection.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        said => said?,
    };
    match said < SAID_MAX_BYTES {
        true => Ok(()),
        false => Err(io::Error::other("it sends what nobody has asked for")),
    }
}
