//! A gRPC call with one message in each direction, over HTTP/2 with or without TLS.

use crate::common::Address;
use crate::line::tls::Tls;
use crate::line::{dial, words, Line};
use crate::receiver::Stop;
use flate2::read::GzDecoder;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_shipping::otlp::grpc;
use weir_wire::http2::client::{Client, Event};
use weir_wire::http2::hpack;

/// What is read at once.
const READ_BYTES: usize = 16 * 1024;
/// That a connection was closed before is known by then.
const CLOSED_SHOWS_WITHIN: Duration = Duration::from_secs(1);
/// More than that nobody has to say on an idle connection.
const IDLE_READS_MAX: usize = 16;
/// What an idle connection is answered is written within it.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// An answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// `grpc-status`.
    pub status: u32,
    /// `grpc-message`, unescaped.
    pub text: Vec<u8>,
    /// `grpc-status-details-bin`, in base64.
    pub details: Vec<u8>,
    /// The one message.
    pub message: Vec<u8>,
}

/// Who is called, and how.
pub struct Caller {
    pub address: Address,
    pub tls: Option<Tls>,
    pub timeout: Duration,
    /// Further fields of requests; names in small letters.
    pub fields: Vec<(String, String)>,
    /// Messages are packed with gzip by who calls.
    pub packed: bool,
    pub stop: Arc<Stop>,
    pub open: Option<Open>,
}

/// A connection that is there.
pub struct Open {
    line: Line,
    http: Client,
    /// The answer has begun.
    is_heard: bool,
}

impl Caller {
    /// Calls `path` with a message. An error says that nothing is known of what became of it.
    pub fn call(&mut self, path: &str, message: &[u8]) -> Result<Reply, String> {
        let body = grpc::frame(message, self.packed);
        let begun = Instant::now();
        let kept = self.open.take().and_then(Open::rested);
        let last = kept.map(|open| self.call_by(open, path, &body));
        let reply = match last {
            Some(Ok(reply)) => Ok(reply),
            // A connection that was kept may be closed just now, which shows at once: as with HTTP/1, what was sent by
            // it is sent once more.
            Some(Err((_, false))) if begun.elapsed() <= CLOSED_SHOWS_WITHIN => {
                let open = self.connect()?;
                self.call_by(open, path, &body)
            }
            Some(Err(failed)) => Err(failed),
            None => {
                let open = self.connect()?;
                self.call_by(open, path, &body)
            }
        };
        reply.map_err(|(why, _)| format!("{}:{}: {why}", self.address.host, self.address.port))
    }

    /// Between calls: takes what the peer has to say, answers it, and lets go of a connection that is closed.
    pub fn look(&mut self) {
        self.open = self.open.take().and_then(Open::rested);
    }

    /// An error comes with whether the answer had begun.
    fn call_by(
        &mut self,
        mut open: Open,
        path: &str,
        body: &[u8],
    ) -> Result<Reply, (String, bool)> {
        open.line.begin(self.timeout);
        open.is_heard = false;
        self.ask(&mut open.http, path);
        let reply = open.exchange(body).map_err(|why| (why, open.is_heard))?;
        // What HTTP/2 has to say besides goes now, so that the connection is at rest.
        self.open = open.flush().is_ok().then_some(open);
        Ok(reply)
    }

    fn connect(&self) -> Result<Open, String> {
        let Address { host, port, .. } = &self.address;
        let line = dial(host, *port, self.tls.as_ref(), self.timeout, &self.stop)?;
        if self.tls.is_some() && line.protocol() != Some(b"h2") {
            return Err(format!("{host}:{port}: no HTTP/2 (ALPN), which gRPC needs"));
        }
        Ok(Open { line, http: Client::new(), is_heard: false })
    }

    fn ask(&self, http: &mut Client, path: &str) {
        let authority = format!("{}:{}", self.address.host, self.address.port);
        http.request(false, |out| {
            let tls = self.tls.is_some();
            hpack::request_line(b"POST", tls, path.as_bytes(), Some(authority.as_bytes()), out);
            let timeout = format!("{}m", self.timeout.as_millis().min(99_999_999));
            let mut field = |name: &str, value: &str| {
                hpack::literal_lower(name.as_bytes(), value.as_bytes(), out);
            };
            field("content-type", "application/grpc");
            field("te", "trailers");
            field("user-agent", "weir");
            field("grpc-timeout", &timeout);
            if self.packed {
                field("grpc-encoding", "gzip");
            }
            field("grpc-accept-encoding", "identity, gzip");
            for (name, value) in &self.fields {
                field(name, value);
            }
        });
    }
}

impl Open {
    /// A connection that may be used again: what has come meanwhile is taken and answered. `None` if it is closed, or is
    /// to be, or what came is not to be understood.
    fn rested(mut self) -> Option<Open> {
        let mut reads = 0;
        loop {
            // Some may have come with the last answer. Who never stops talking has nothing to say, and each PING of it
            // leaves an answer that waits here.
            if self.http.advance() != Ok(Event::More) || reads > IDLE_READS_MAX {
                return None;
            }
            reads += 1;
            let at = self.http.input.len();
            self.http.input.resize(at + READ_BYTES, 0);
            let read = self.line.read_now(&mut self.http.input[at..]);
            self.http.input.truncate(at + read.as_ref().map_or(0, |n| *n));
            match read {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        self.line.begin(ANSWER_WITHIN);
        self.flush().ok()?;
        self.http.may_go_on().then_some(self)
    }

    /// Sends the body as the peer lets us, and takes the answer.
    fn exchange(&mut self, body: &[u8]) -> Result<Reply, String> {
        let mut reply = Reply::default();
        let (mut answer, mut status) = (Vec::new(), None);
        let mut sent = 0;
        loop {
            match self.http.advance()? {
                Event::More => {
                    // What has come may have opened a window.
                    let room = self.http.room().min(body.len() - sent);
                    if room > 0 {
                        self.http.send_data(&body[sent..sent + room], sent + room == body.len());
                        sent += room;
                    }
                    let is_waiting = self.http.out.is_empty();
                    self.flush().map_err(|e| words(&e))?;
                    if is_waiting {
                        self.read().map_err(|e| words(&e))?;
                    }
                }
                Event::Data(range) => {
                    answer.extend_from_slice(&self.http.input[range]);
                    if answer.len() > grpc::ANSWER_MAX_BYTES {
                        return Err("the answer is too long".into());
                    }
                }
                Event::Head { end } => {
                    self.is_heard = true;
                    let code = self.http.status()?;
                    if (100..200).contains(&code) {
                        continue;
                    }
                    if code != 200 {
                        return Err(format!("answered {code} in place of gRPC"));
                    }
                    status = self.take_status(&mut reply);
                    if end {
                        break;
                    }
                }
                Event::Trailers => {
                    status = self.take_status(&mut reply).or(status);
                    break;
                }
                Event::End => break,
            }
        }
        reply.status = status.ok_or("an answer without grpc-status")?;
        const ODD: &str = "an answer that is no gRPC message";
        let (is_packed, message) = grpc::message(&answer).ok_or(ODD)?;
        // Who is sent what is packed answers so, too.
        match is_packed {
            true => {
                let most = grpc::ANSWER_MAX_BYTES as u64;
                let unpacked = GzDecoder::new(message).take(most).read_to_end(&mut reply.message);
                unpacked.map_err(|_| ODD)?;
            }
            false => reply.message = message.to_vec(),
        }
        Ok(reply)
    }

    /// What a head or trailers say of the call's end.
    fn take_status(&self, reply: &mut Reply) -> Option<u32> {
        let mut status = None;
        for (name, value) in self.http.fields.iter() {
            match name {
                b"grpc-status" => status = std::str::from_utf8(value).ok()?.parse().ok(),
                b"grpc-message" => reply.text = grpc::text(value),
                b"grpc-status-details-bin" => reply.details = value.to_vec(),
                _ => {}
            }
        }
        status
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.http.out.is_empty() {
            self.line.write_all(&self.http.out)?;
            self.line.flush()?;
            self.http.out.clear();
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let at = self.http.input.len();
        self.http.input.resize(at + READ_BYTES, 0);
        let read = self.line.read(&mut self.http.input[at..]);
        self.http.input.truncate(at + read.as_ref().map_or(0, |n| *n));
        match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
