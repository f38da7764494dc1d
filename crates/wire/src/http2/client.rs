//! The side of HTTP/2 that asks, one request at a time (RFC 9113): the peer's bytes in, events
//! and bytes to send out. Whoever drives it owns the socket.
//!
//! The bytes that came stand in [`Client::input`]; [`Client::advance`] takes them apart until it
//! needs more. What is to be sent gathers in [`Client::out`], answers to SETTINGS and PING among
//! it. A header block ends up in [`Client::fields`]. Texts of faults are nginx's.
//!
//! The windows that the peer may fill are as large as they can be, since one answer at a time is
//! held back by the connection itself, and the peer is asked to keep no table of fields.
//!
//! Differences from nginx: what still comes for an earlier stream of a kept connection is passed
//! over where it does no harm, and a peer that shrinks its table is told so with the next block.

use super::flow::{Overflow, ReceiveWindow, SendWindow};
use super::frame::{self, Head, HEAD_BYTES};
use super::hpack::{self, Decoder, Fields, HpackError, HpackLimits};
use super::{ErrorCode, FRAME_DEFAULT_BYTES, WINDOW_DEFAULT_BYTES, WINDOW_MAX_BYTES};
use std::ops::Range;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_BYTES: usize = FRAME_DEFAULT_BYTES as usize;
/// Of the frames that ask for an answer, during one request.
const ASKING_MAX: u32 = 1000;
/// Of frames in a row that carry nothing.
const IDLE_MAX: u32 = 10_000;
/// Of frames that go on with one header block.
const CONTINUATIONS_MAX: u32 = 1000;
const TABLE_DEFAULT_BYTES: u32 = 4096;
/// Another connection is better than the last of the streams.
const ID_MAX: u32 = WINDOW_MAX_BYTES - 1000;

/// What the peer's bytes mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed.
    More,
    /// A head has come, be it an interim one; whether the stream ends with it.
    Head { end: bool },
    /// A part of the body, as a range of [`Client::input`].
    Data(Range<usize>),
    /// The fields behind the body, which has ended.
    Trailers,
    /// The body has ended.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Body,
    Done,
}

/// A DATA frame that is being read.
#[derive(Clone, Copy, Debug)]
struct Data {
    left: usize,
    padding: usize,
    /// The byte that says how long the padding is has not come.
    padded: bool,
    end: bool,
}

/// A header block that is being read.
#[derive(Clone, Copy, Debug)]
struct Block {
    end_stream: bool,
    continuations: u32,
}

pub struct Client {
    pub input: Vec<u8>,
    /// Where the bytes begin that were not looked at.
    at: usize,
    pub out: Vec<u8>,
    pub fields: Fields,
    /// Names and values of one head are no longer than this.
    pub head_max_bytes: usize,
    decoder: Decoder,
    block_text: Vec<u8>,
    block: Option<Block>,
    data: Option<Data>,
    phase: Phase,
    /// 0 before the first request.
    id: u32,
    initial_window: u32,
    connection_window: SendWindow,
    stream_window: SendWindow,
    receive_connection: ReceiveWindow,
    receive_stream: ReceiveWindow,
    /// The request has been written to its end.
    closed: bool,
    reset: bool,
    goaway: bool,
    announce_table: bool,
    asked: u32,
    /// Frames in a row that carry nothing, while nothing was sent either.
    idle: u32,
}

impl Default for Client {
    fn default() -> Self {
        Client::new()
    }
}

impl Client {
    /// A fresh connection; what it begins with is ready to be sent.
    pub fn new() -> Client {
        let mut out = PREFACE.to_vec();
        let settings = [
            (frame::SETTING_HEADER_TABLE_SIZE, 0),
            (frame::SETTING_ENABLE_PUSH, 0),
            (frame::SETTING_INITIAL_WINDOW_SIZE, WINDOW_MAX_BYTES),
        ];
        frame::settings(&settings, &mut out);
        frame::window_update(0, WINDOW_MAX_BYTES - WINDOW_DEFAULT_BYTES, &mut out);
        Client {
            input: Vec::new(),
            at: 0,
            out,
            fields: Fields::default(),
            head_max_bytes: FRAME_BYTES,
            decoder: Decoder::without_table(),
            block_text: Vec::new(),
            block: None,
            data: None,
            phase: Phase::Done,
            id: 0,
            initial_window: WINDOW_DEFAULT_BYTES,
            connection_window: SendWindow::new(WINDOW_DEFAULT_BYTES),
            stream_window: SendWindow::new(WINDOW_DEFAULT_BYTES),
            receive_connection: ReceiveWindow::new(WINDOW_MAX_BYTES),
            receive_stream: ReceiveWindow::new(WINDOW_MAX_BYTES),
            closed: true,
            reset: false,
            goaway: false,
            announce_table: false,
            asked: 0,
            idle: 0,
        }
    }

    /// Begins a request; `write` writes its fields. `end`: there is no body.
    pub fn request(&mut self, end: bool, write: impl FnOnce(&mut Vec<u8>)) {
        self.id = if self.id == 0 { 1 } else { self.id + 2 };
        self.phase = Phase::Head;
        self.stream_window = SendWindow::new(self.initial_window);
        self.receive_stream = ReceiveWindow::new(WINDOW_MAX_BYTES);
        self.closed = end;
        self.reset = false;
        self.asked = 0;
        self.idle = 0;
        let at = self.out.len();
        self.out.extend_from_slice(&[0; HEAD_BYTES]);
        if std::mem::take(&mut self.announce_table) {
            self.out.push(hpack::EMPTY_TABLE);
        }
        write(&mut self.out);
        let flags = if end { frame::END_STREAM } else { 0 };
        frame::finish_block(&mut self.out, at, self.id, flags, FRAME_BYTES);
    }

    /// So much of the body may be sent now.
    pub fn room(&self) -> usize {
        if self.closed || self.reset {
            return 0;
        }
        self.stream_window.available().min(self.connection_window.available()) as usize
    }

    /// Writes some of the body, no more than there is room for. `end`: that was all.
    pub fn send_data(&mut self, bytes: &[u8], end: bool) {
        let frames = bytes.len().div_ceil(FRAME_BYTES).max(usize::from(end));
        for i in 0..frames {
            let from = i * FRAME_BYTES;
            let piece = &bytes[from..bytes.len().min(from + FRAME_BYTES)];
            let flags = if end && i + 1 == frames { frame::END_STREAM } else { 0 };
            let head = frame::head(piece.len(), frame::DATA, flags, self.id);
            self.out.extend_from_slice(&head);
            self.out.extend_from_slice(piece);
        }
        self.idle = 0;
        self.stream_window.take(bytes.len() as u64);
        self.connection_window.take(bytes.len() as u64);
        self.closed |= end;
    }

    /// The request has been written to its end.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The peer wants no more of the request.
    pub fn is_reset(&self) -> bool {
        self.reset
    }

    /// The answer has come to its end.
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Nothing is left of the request and its answer, and another may follow.
    pub fn may_go_on(&self) -> bool {
        let at_rest = self.input.len() == self.at && self.data.is_none() && self.block.is_none();
        let done = self.closed && self.has_ended() && self.out.is_empty();
        at_rest && done && !self.goaway && self.id < ID_MAX
    }

    /// Looks at what came. An error is of the connection, in words for the log.
    pub fn advance(&mut self) -> Result<Event, String> {
        loop {
            if let Some(data) = self.data {
                return match self.go_on_with(data)? {
                    Some(event) => Ok(event),
                    None => continue,
                };
            }
            let rest = &self.input[self.at..];
            let Some(head) = Head::parse(rest) else { return Ok(self.more()) };
            if head.len > FRAME_BYTES {
                return Err(format!("upstream sent too large http2 frame: {}", head.len));
            }
            self.expect(head)?;
            if head.kind == frame::DATA {
                self.at += HEAD_BYTES;
                self.begin_data(head)?;
                continue;
            }
            if rest.len() < HEAD_BYTES + head.len {
                return Ok(self.more());
            }
            let from = self.at + HEAD_BYTES;
            self.at = from + head.len;
            if let Some(event) = self.frame(head, from..self.at)? {
                return Ok(event);
            }
        }
    }

    /// Forgets what has been looked at.
    fn more(&mut self) -> Event {
        self.input.drain(..self.at);
        self.at = 0;
        Event::More
    }

    /// Whether a frame may come now.
    fn expect(&self, head: Head) -> Result<(), String> {
        let in_block = self.block.is_some();
        let early = head.kind == frame::DATA && self.phase == Phase::Head;
        if early || (head.kind == frame::CONTINUATION) != in_block {
            return Err(format!("upstream sent unexpected http2 frame: {}", head.kind));
        }
        if head.stream == 0 {
            return match head.kind {
                frame::DATA | frame::HEADERS | frame::CONTINUATION | frame::RST_STREAM => {
                    Err("upstream sent frame for unknown stream 0".to_string())
                }
                _ => Ok(()),
            };
        }
        let harmless =
            matches!(head.kind, frame::RST_STREAM | frame::WINDOW_UPDATE | frame::PRIORITY);
        let earlier = head.stream % 2 == 1 && head.stream < self.id;
        if head.stream != self.id && !(earlier && harmless) {
            return Err(format!("upstream sent frame for unknown stream {}", head.stream));
        }
        if self.phase == Phase::Done && !harmless {
            return Err(format!("upstream sent frame for closed stream {}", head.stream));
        }
        Ok(())
    }

    fn begin_data(&mut self, head: Head) -> Result<(), String> {
        let violated = |whose: &str, window: ReceiveWindow| {
            let left = window.left();
            format!(
                "upstream violated {whose} flow control, received {} data frame with window {left}",
                head.len
            )
        };
        // A frame is never longer than FRAME_BYTES.
        let len = head.len as u32;
        self.receive_stream
            .take(len)
            .map_err(|Overflow| violated("stream", self.receive_stream))?;
        self.receive_connection
            .take(len)
            .map_err(|Overflow| violated("connection", self.receive_connection))?;
        let more = self.receive_connection.open_to(WINDOW_MAX_BYTES);
        if more > 0 {
            frame::window_update(0, more, &mut self.out);
        }
        let more = self.receive_stream.open_to(WINDOW_MAX_BYTES);
        if more > 0 {
            frame::window_update(self.id, more, &mut self.out);
        }
        let padded = head.has(frame::PADDED);
        if padded && head.len == 0 {
            return Err("upstream sent too short http2 frame".to_string());
        }
        let end = head.has(frame::END_STREAM);
        if head.len == 0 {
            self.carries_nothing()?;
        }
        self.data = Some(Data { left: head.len, padding: 0, padded, end });
        Ok(())
    }

    /// `None`: the frame has ended, or its beginning has been read.
    fn go_on_with(&mut self, mut data: Data) -> Result<Option<Event>, String> {
        let have = self.input.len() - self.at;
        if data.padded {
            let Some(&padding) = self.input.get(self.at) else { return Ok(Some(self.more())) };
            self.at += 1;
            data.left -= 1;
            data.padding = usize::from(padding);
            data.padded = false;
            check_padding(data.padding, data.left)?;
            if data.padding == data.left {
                self.carries_nothing()?;
            }
            self.data = Some(data);
            return Ok(None);
        }
        if data.left == 0 {
            self.data = None;
            if data.end {
                self.phase = Phase::Done;
            }
            return Ok(data.end.then_some(Event::End));
        }
        if have == 0 {
            return Ok(Some(self.more()));
        }
        let text = data.left - data.padding;
        let from = self.at;
        let take = if text > 0 { text.min(have) } else { data.left.min(have) };
        self.at += take;
        data.left -= take;
        if text == 0 {
            data.padding = data.left;
        }
        self.data = Some(data);
        if text > 0 {
            self.idle = 0;
        }
        Ok((text > 0).then_some(Event::Data(from..self.at)))
    }

    /// A whole frame.
    fn frame(&mut self, head: Head, payload: Range<usize>) -> Result<Option<Event>, String> {
        match head.kind {
            frame::HEADERS | frame::CONTINUATION => self.fields(head, payload),
            frame::RST_STREAM => self.reset(head, &payload).map(|()| None),
            frame::SETTINGS => self.settings(head, payload).map(|()| None),
            frame::PING => self.ping(head, payload).map(|()| None),
            frame::GOAWAY => self.goaway(head, &payload).map(|()| None),
            frame::WINDOW_UPDATE => self
                .window_update(head, &payload)
                .and_then(|()| self.carries_nothing())
                .map(|()| None),
            frame::PUSH_PROMISE => Err("upstream sent unexpected push promise frame".to_string()),
            _ => self.carries_nothing().map(|()| None),
        }
    }

    /// A window is opened for what was sent, a frame of data has bytes: more than some of these
    /// without either only keep this side busy.
    fn carries_nothing(&mut self) -> Result<(), String> {
        self.idle += 1;
        match self.idle > IDLE_MAX {
            true => Err("upstream sent too many frames that carry nothing".to_string()),
            false => Ok(()),
        }
    }

    fn fields(&mut self, head: Head, payload: Range<usize>) -> Result<Option<Event>, String> {
        let block = match &mut self.block {
            Some(block) => {
                block.continuations += 1;
                if block.continuations > CONTINUATIONS_MAX {
                    return Err("upstream sent too many continuation frames".to_string());
                }
                self.block_text.extend_from_slice(&self.input[payload]);
                *block
            }
            None => {
                let text = fragment(head, &self.input[payload])?;
                self.block_text.clear();
                self.block_text.extend_from_slice(text);
                Block { end_stream: head.has(frame::END_STREAM), continuations: 0 }
            }
        };
        if self.block_text.len() > 2 * self.head_max_bytes + FRAME_BYTES {
            return Err("upstream sent too large http2 header".to_string());
        }
        if !head.has(frame::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        self.block = None;
        let limits = HpackLimits {
            string_max_bytes: self.head_max_bytes,
            block_max_bytes: self.head_max_bytes,
        };
        self.decoder
            .decode(&self.block_text, &limits, &mut self.fields)
            .map_err(|e| hpack_text(e).to_string())?;
        self.check_fields()?;
        self.block_complete(block.end_stream).map(Some)
    }

    fn check_fields(&self) -> Result<(), String> {
        for (name, value) in self.fields.iter() {
            let bad_name = name.iter().enumerate().any(|(i, b)| match b {
                b':' => i > 0,
                b => b.is_ascii_uppercase() || *b <= b' ' || *b == 0x7f,
            });
            let bad_value = value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'));
            if bad_name || bad_value {
                return Err(format!("upstream sent invalid header: \"{}\"", shown(name, value)));
            }
        }
        Ok(())
    }

    fn block_complete(&mut self, end: bool) -> Result<Event, String> {
        if self.phase == Phase::Head {
            let interim = self.status()? < 200;
            if interim && end {
                return Err("upstream prematurely closed stream".to_string());
            }
            if !interim {
                self.phase = if end { Phase::Done } else { Phase::Body };
            }
            return Ok(Event::Head { end });
        }
        if let Some((name, value)) = self.fields.iter().find(|(name, _)| name.starts_with(b":")) {
            return Err(format!("upstream sent invalid trailer \"{}\"", shown(name, value)));
        }
        if !end {
            return Err("upstream sent trailer without end stream flag".to_string());
        }
        self.phase = Phase::Done;
        Ok(Event::Trailers)
    }

    /// The `:status` of the head in [`Client::fields`], which comes before all else.
    pub fn status(&self) -> Result<u16, String> {
        let mut status = None;
        for (name, value) in self.fields.iter() {
            if !name.starts_with(b":") {
                if status.is_none() {
                    break;
                }
                continue;
            }
            if name != b":status" {
                return Err(format!("upstream sent invalid header \"{}\"", shown(name, value)));
            }
            if status.is_some() {
                return Err("upstream sent duplicate :status header".to_string());
            }
            let text = String::from_utf8_lossy(value);
            let digits = value.len() == 3 && value.iter().all(u8::is_ascii_digit);
            let code: u16 = match text.parse() {
                Ok(code) if digits => code,
                _ => return Err(format!("upstream sent invalid :status \"{text}\"")),
            };
            if code < 100 || code == 101 {
                return Err(format!("upstream sent unexpected :status \"{text}\""));
            }
            status = Some(code);
        }
        status.ok_or_else(|| "upstream sent no :status header".to_string())
    }

    fn reset(&mut self, head: Head, payload: &Range<usize>) -> Result<(), String> {
        check_len(payload, 4, "rst stream")?;
        if head.stream != self.id {
            return Ok(());
        }
        let code = frame::u32_at(&self.input, payload.start);
        if self.reset && code == ErrorCode::STREAM_CLOSED.0 {
            // Said of what came of the request when the peer wanted no more of it (RFC 9113, section 5.1).
            return self.carries_nothing();
        }
        if code != ErrorCode::NO_ERROR.0 || self.phase != Phase::Done {
            return Err(format!("upstream rejected request with error {code}"));
        }
        if self.reset {
            return Err(format!("upstream sent frame for closed stream {}", head.stream));
        }
        self.reset = true;
        Ok(())
    }

    fn asks(&mut self, what: &str) -> Result<(), String> {
        self.asked += 1;
        match self.asked > ASKING_MAX {
            true => Err(format!("upstream sent too many {what} frames")),
            false => Ok(()),
        }
    }

    fn settings(&mut self, head: Head, payload: Range<usize>) -> Result<(), String> {
        let len = payload.len();
        if head.stream != 0 {
            let text = "upstream sent settings frame with non-zero stream id: ";
            return Err(format!("{text}{}", head.stream));
        }
        if head.has(frame::ACK) {
            return match len {
                0 => Ok(()),
                _ => {
                    let text = "upstream sent settings frame with ack flag and non-zero length: ";
                    Err(format!("{text}{len}"))
                }
            };
        }
        if !len.is_multiple_of(6) {
            return Err(format!("upstream sent settings frame with invalid length: {len}"));
        }
        self.asks("settings")?;
        for at in payload.step_by(6) {
            let id = u16::from_be_bytes([self.input[at], self.input[at + 1]]);
            let value = frame::u32_at(&self.input, at + 2);
            match id {
                frame::SETTING_INITIAL_WINDOW_SIZE => self.new_window(value)?,
                frame::SETTING_HEADER_TABLE_SIZE if value < TABLE_DEFAULT_BYTES => {
                    self.announce_table = true;
                }
                _ => {}
            }
        }
        frame::settings_ack(&mut self.out);
        Ok(())
    }

    fn new_window(&mut self, bytes: u32) -> Result<(), String> {
        let too_large = || {
            let text = "upstream sent settings frame with too large initial window size: ";
            format!("{text}{bytes}")
        };
        if bytes > WINDOW_MAX_BYTES {
            return Err(too_large());
        }
        let by = i64::from(bytes) - i64::from(self.initial_window);
        self.initial_window = bytes;
        self.stream_window.widen(by).map_err(|Overflow| too_large())
    }

    fn ping(&mut self, head: Head, payload: Range<usize>) -> Result<(), String> {
        if head.stream != 0 {
            let text = "upstream sent ping frame with non-zero stream id: ";
            return Err(format!("{text}{}", head.stream));
        }
        check_len(&payload, 8, "ping")?;
        if head.has(frame::ACK) {
            return Err("upstream sent ping frame with ack flag".to_string());
        }
        self.asks("ping")?;
        frame::ping(frame::ACK, &self.input[payload], &mut self.out);
        Ok(())
    }

    fn goaway(&mut self, head: Head, payload: &Range<usize>) -> Result<(), String> {
        if head.stream != 0 {
            let text = "upstream sent goaway frame with non-zero stream id: ";
            return Err(format!("{text}{}", head.stream));
        }
        if payload.len() < 8 {
            let len = payload.len();
            return Err(format!("upstream sent goaway frame with invalid length: {len}"));
        }
        let last = frame::u32_at(&self.input, payload.start) & WINDOW_MAX_BYTES;
        if last < self.id {
            let code = frame::u32_at(&self.input, payload.start + 4);
            return Err(format!("upstream sent goaway with error {code}"));
        }
        self.goaway = true;
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &Range<usize>) -> Result<(), String> {
        check_len(payload, 4, "window update")?;
        let bytes = frame::u32_at(&self.input, payload.start) & WINDOW_MAX_BYTES;
        if bytes == 0 {
            return Err("upstream sent zero window update".to_string());
        }
        let window = match head.stream {
            0 => &mut self.connection_window,
            id if id == self.id => &mut self.stream_window,
            _ => return Ok(()),
        };
        window
            .widen(i64::from(bytes))
            .map_err(|Overflow| "upstream sent too large window update".to_string())
    }
}

fn shown(name: &[u8], value: &[u8]) -> String {
    format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
}

fn check_len(payload: &Range<usize>, wanted: usize, what: &str) -> Result<(), String> {
    match payload.len() {
        len if len == wanted => Ok(()),
        len => Err(format!("upstream sent {what} frame with invalid length: {len}")),
    }
}

fn check_padding(padding: usize, left: usize) -> Result<(), String> {
    match padding > left {
        true => Err(format!(
            "upstream sent http2 frame with too long padding: {padding} in frame {left}"
        )),
        false => Ok(()),
    }
}

/// The part of a HEADERS frame that belongs to the block.
fn fragment(head: Head, payload: &[u8]) -> Result<&[u8], String> {
    let padded = head.has(frame::PADDED);
    let skip = usize::from(padded) + if head.has(frame::HAS_PRIORITY) { 5 } else { 0 };
    let Some(rest) = payload.get(skip..) else {
        let len = payload.len();
        return Err(format!("upstream sent headers frame with invalid length: {len}"));
    };
    let padding = if padded { usize::from(payload[0]) } else { 0 };
    check_padding(padding, rest.len())?;
    Ok(&rest[..rest.len() - padding])
}

fn hpack_text(e: HpackError) -> &'static str {
    match e {
        HpackError::Truncated => "upstream sent truncated http2 header",
        HpackError::IntegerTooLong => "upstream sent too large http2 header length",
        HpackError::BadIndex => "upstream sent invalid http2 table index",
        HpackError::BadTableSize => "upstream sent invalid http2 dynamic table size update",
        HpackError::BadHuffman => "upstream sent invalid encoded header",
        HpackError::EmptyName => "upstream sent zero http2 header name length",
        HpackError::StringTooLarge | HpackError::BlockTooLarge => {
            "upstream sent too large http2 header"
        }
    }
}

#[cfg(test)]
mod tests;
