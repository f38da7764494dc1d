//! HTTP/2 on a connection to a server, shown to its users as what they know from HTTP/1: a head in
//! text and the body's own bytes behind it. Framing, windows and the peer's questions stay here.
//!
//! One request at a time, as in nginx; a kept connection's next request is its next stream. What is
//! left of a request when its answer begins is sent while the answer is read.

use std::io;
use weir_http::names;
use weir_wire::http2::client::{Client, Event};

/// Framed and not sent yet, at most.
const OUT_MAX_BYTES: usize = 64 * 1024;

/// Puts the next piece of a body into the empty buffer; whether it was the last.
pub(crate) type Source = Box<dyn FnMut(&mut Vec<u8>) -> io::Result<bool>>;

/// What is left of a request's body.
pub(crate) struct Rest {
    pub bytes: Vec<u8>,
    pub source: Option<Source>,
    /// This is not its end.
    pub more: bool,
}

pub(crate) struct H2 {
    pub client: Client,
    rest: Option<Rest>,
    /// How much of the rest's bytes has been framed.
    at: usize,
    /// What was wrong behind a head that came whole.
    broken: Option<String>,
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Nothing can be sent any more; what has come can still be read.
    mute: bool,
}

impl Default for H2 {
    fn default() -> Self {
        H2 {
            client: Client::new(),
            rest: None,
            at: 0,
            broken: None,
            trailers: Vec::new(),
            mute: false,
        }
    }
}

/// Fields that belong to a connection and have no place in HTTP/2 (RFC 9113 section 8.2.2).
pub(crate) fn is_of_connection(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] =
        [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"];
    NAMES.iter().any(|n| n.eq_ignore_ascii_case(name))
}

impl H2 {
    /// Begins a request; see [`Client::request`]. `head_max_bytes` is of the answer's head.
    pub(crate) fn begin(
        &mut self,
        end: bool,
        head_max_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.rest = None;
        self.at = 0;
        self.broken = None;
        self.trailers.clear();
        self.client.head_max_bytes = head_max_bytes;
        self.client.request(end, write);
    }

    /// Takes over what is left of the request.
    pub(crate) fn finish_later(&mut self, rest: Rest) {
        self.at = 0;
        self.rest = Some(rest);
    }

    /// More of the request's body can be taken over.
    pub(crate) fn wants_more(&self) -> bool {
        self.rest.is_none() && !self.mute && !self.client.is_closed() && !self.client.is_reset()
    }

    /// There is something that the socket has not taken.
    pub(crate) fn has_output(&self) -> bool {
        !self.client.out.is_empty()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.client.has_ended() && self.broken.is_none()
    }

    /// Another request may follow.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.mute && self.broken.is_none() && self.rest.is_none() && self.client.may_go_on()
    }

    /// Frames some of these bytes, as far as windows allow; `last`: the body ends with them.
    pub(crate) fn frame(&mut self, bytes: &[u8], last: bool) -> usize {
        let space = OUT_MAX_BYTES.saturating_sub(self.client.out.len());
        let n = bytes.len().min(space).min(self.client.room());
        let end = last && n == bytes.len() && !self.client.is_closed() && !self.client.is_reset();
        if n > 0 || end {
            self.client.send_data(&bytes[..n], end);
        }
        n
    }

    /// Frames what is left of the body, as far as windows allow.
    pub(crate) fn pump(&mut self) {
        while let Some(rest) = &mut self.rest {
            if self.at == rest.bytes.len() {
                if let Some(source) = &mut rest.source {
                    rest.bytes.clear();
                    self.at = 0;
                    match source(&mut rest.bytes) {
                        Ok(true) => rest.source = None,
                        Ok(false) => {}
                        // The server waits in vain, and the connection is not used again.
                        Err(_) => return self.be_mute(),
                    }
                }
            }
            let Some(rest) = self.rest.take() else { return };
            let last = rest.source.is_none() && !rest.more;
            let n = self.frame(&rest.bytes[self.at..], last);
            self.at += n;
            let sent = self.at == rest.bytes.len() && rest.source.is_none() && rest.more;
            if self.client.is_closed() || sent {
                return;
            }
            self.rest = Some(rest);
            if n == 0 {
                return;
            }
        }
    }

    /// The server takes nothing more.
    pub(crate) fn be_mute(&mut self) {
        self.mute = true;
        self.rest = None;
        self.client.out.clear();
    }

    pub(crate) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// Takes apart what was read, onto `buf`. What is wrong behind a whole head is told next time.
    pub(crate) fn decode(&mut self, buf: &mut Vec<u8>) -> Result<(), String> {
        let start = buf.len();
        let mut head_end = None;
        loop {
            match self.client.advance() {
                Ok(Event::More) => return Ok(()),
                Ok(Event::Head { .. }) => {
                    if self.write_head(buf)? >= 200 {
                        head_end = Some(buf.len());
                    }
                }
                Ok(Event::Data(range)) => buf.extend_from_slice(&self.client.input[range]),
                Ok(Event::End) => {}
                Ok(Event::Trailers) => {
                    let fields = self.client.fields.iter();
                    self.trailers = fields.map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
                }
                Err(text) => {
                    buf.truncate(head_end.unwrap_or(start));
                    if head_end.is_none() {
                        return Err(text);
                    }
                    self.broken = Some(text);
                    return Ok(());
                }
            }
        }
    }

    /// The head as HTTP/1 text; its names and values have been found free of line ends.
    fn write_head(&self, buf: &mut Vec<u8>) -> Result<u16, String> {
        let status = self.client.status()?;
        buf.extend_from_slice(b"HTTP/1.1 ");
        match names::status_line(status) {
            Some(line) => buf.extend_from_slice(line.as_bytes()),
            None => buf.extend_from_slice(format!("{status} ").as_bytes()),
        }
        buf.extend_from_slice(b"\r\n");
        for (name, value) in self.client.fields.iter() {
            if !name.starts_with(b":") && !is_of_connection(name) {
                for text in [name, b": ", value, b"\r\n"] {
                    buf.extend_from_slice(text);
                }
            }
        }
        buf.extend_from_slice(b"\r\n");
        Ok(status)
    }
}
