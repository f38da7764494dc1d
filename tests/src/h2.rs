//! A small HTTP/2 client: it says what a test tells it to, right or wrong, and reads frames.

use crate::client::Client;
use crate::{message, Server};
use std::collections::VecDeque;
use std::time::Duration;
use weir_wire::http2::frame::{self, Head, HEAD_BYTES};
use weir_wire::http2::hpack::{Decoder, Fields, HpackLimits};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
    /// Of a HEADERS frame.
    pub fields: Vec<(String, String)>,
}

impl Frame {
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, frame::DATA | frame::HEADERS) && self.flags & frame::END_STREAM != 0
    }

    /// The error code of a RST_STREAM or GOAWAY, the bytes of a WINDOW_UPDATE.
    pub fn code(&self) -> u32 {
        let at = if self.kind == frame::GOAWAY { 4 } else { 0 };
        frame::u32_at(&self.payload, at)
    }
}

/// What became of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The code of the RST_STREAM that ended it.
    pub reset: Option<u32>,
    /// How many DATA frames.
    pub frames: usize,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn text(&self) -> String {
        message::latin1(&self.body)
    }
}

pub struct H2 {
    pub raw: Client,
    decoder: Decoder,
    next_stream: u32,
    /// Frames read while another stream's were looked for.
    kept: VecDeque<Frame>,
    /// What is read is given back to the windows at once.
    pub opens_windows: bool,
}

impl H2 {
    /// A connection to the server's first port, with its settings read and acknowledged.
    #[track_caller]
    pub fn connect(server: &Server) -> H2 {
        let mut h2 = H2::over(server.on(0).connect());
        h2.greet(&[]);
        h2
    }

    /// Nothing is sent or read yet.
    pub fn over(raw: Client) -> H2 {
        let decoder = Decoder::default();
        H2 { raw, decoder, next_stream: 1, kept: VecDeque::new(), opens_windows: true }
    }

    #[track_caller]
    pub fn greet(&mut self, settings: &[(u16, u32)]) {
        let mut out = PREFACE.to_vec();
        frame::settings(settings, &mut out);
        self.raw.send(&out);
        self.expect(frame::SETTINGS);
        let mut ack = Vec::new();
        frame::settings_ack(&mut ack);
        self.raw.send(&ack);
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let head = frame::head(payload.len(), kind, flags, stream);
        self.raw.send(&[&head[..], payload].concat());
    }

    /// The number of a new stream.
    pub fn number(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    /// Sends a HEADERS frame for a new stream; its number.
    pub fn open(&mut self, fields: &[(&str, &str)], end: bool) -> u32 {
        let stream = self.number();
        let flags = frame::END_HEADERS | if end { frame::END_STREAM } else { 0 };
        self.send(frame::HEADERS, flags, stream, &block(fields));
        stream
    }

    /// A GET for `localhost`.
    pub fn get(&mut self, path: &str) -> u32 {
        self.open(&request("GET", path), true)
    }

    /// A request with a body of one DATA frame.
    pub fn post(&mut self, path: &str, body: &str) -> u32 {
        let stream = self.open(&request("POST", path), false);
        self.send(frame::DATA, frame::END_STREAM, stream, body.as_bytes());
        stream
    }

    pub fn widen(&mut self, stream: u32, bytes: u32) {
        self.send(frame::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    pub fn reset(&mut self, stream: u32) {
        self.send(frame::RST_STREAM, 0, stream, &8u32.to_be_bytes());
    }

    /// The next frame, or nothing at the end of the connection.
    #[track_caller]
    pub fn frame(&mut self) -> Option<Frame> {
        if let Some(frame) = self.kept.pop_front() {
            return Some(frame);
        }
        self.read_frame()
    }

    #[track_caller]
    fn read_frame(&mut self) -> Option<Frame> {
        let head = self.raw.read_exactly(HEAD_BYTES)?;
        let head = Head::parse(&head)?;
        let mut frame = Frame {
            kind: head.kind,
            flags: head.flags,
            stream: head.stream,
            payload: self.raw.read_exactly(head.len)?,
            fields: Vec::new(),
        };
        if head.kind == frame::HEADERS {
            let mut flags = head.flags;
            while flags & frame::END_HEADERS == 0 {
                let more = self.raw.read_exactly(HEAD_BYTES)?;
                let more = Head::parse(&more)?;
                assert_eq!((more.kind, more.stream), (frame::CONTINUATION, head.stream));
                frame.payload.extend(self.raw.read_exactly(more.len)?);
                flags = more.flags;
            }
            frame.fields = self.decode(&frame.payload);
        }
        if head.kind == frame::DATA && self.opens_windows && head.len > 0 {
            self.widen(0, head.len as u32);
            if frame.flags & frame::END_STREAM == 0 {
                self.widen(head.stream, head.len as u32);
            }
        }
        Some(frame)
    }

    fn decode(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let limits = HpackLimits { string_max_bytes: 1 << 20, block_max_bytes: 1 << 20 };
        let mut fields = Fields::default();
        self.decoder.decode(block, &limits, &mut fields).expect("a header block");
        fields.iter().map(|(n, v)| (message::latin1(n), message::latin1(v))).collect()
    }

    /// The next frame of that kind; others are passed over.
    #[track_caller]
    pub fn expect(&mut self, kind: u8) -> Frame {
        while let Some(frame) = self.frame() {
            if frame.kind == kind {
                return frame;
            }
        }
        panic!("closed before a frame of type {kind}");
    }

    /// The code of the GOAWAY that comes, and that the connection then ends.
    #[track_caller]
    pub fn goaway(&mut self) -> u32 {
        let code = self.expect(frame::GOAWAY).code();
        self.raw.shutdown_write();
        while self.frame().is_some() {}
        code
    }

    /// Reads until that stream has ended; frames of other streams are kept.
    #[track_caller]
    pub fn answer(&mut self, stream: u32) -> Answer {
        let mut answer = Answer::default();
        let mut others = VecDeque::new();
        loop {
            let Some(frame) = self.frame() else { panic!("closed; so far {answer:?}") };
            if frame.stream != stream {
                others.push_back(frame);
                continue;
            }
            let end = frame.ends_stream();
            match frame.kind {
                frame::HEADERS if answer.status == 0 => {
                    answer.status = frame.fields[0].1.parse().expect(":status comes first");
                    answer.fields = frame.fields;
                }
                frame::HEADERS => answer.trailers = frame.fields,
                frame::DATA => {
                    answer.frames += 1;
                    answer.body.extend(frame.payload);
                }
                frame::RST_STREAM => answer.reset = Some(frame.code()),
                _ => {}
            }
            if end || answer.reset.is_some() {
                others.append(&mut self.kept);
                self.kept = others;
                return answer;
            }
        }
    }

    #[track_caller]
    pub fn fetch(&mut self, path: &str) -> Answer {
        let stream = self.get(path);
        self.answer(stream)
    }

    /// Whether nothing comes for so long.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.kept.is_empty() && self.raw.is_silent(time)
    }
}

pub fn request<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")]
}

/// A header block of literals that are neither indexed nor coded.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        string(name, &mut out);
        string(value, &mut out);
    }
    out
}

pub fn string(text: &str, out: &mut Vec<u8>) {
    match text.len() {
        n @ ..127 => out.push(n as u8),
        n => {
            out.push(127);
            let mut rest = n - 127;
            while rest >= 128 {
                out.push(rest as u8 | 128);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
    out.extend_from_slice(text.as_bytes());
}
