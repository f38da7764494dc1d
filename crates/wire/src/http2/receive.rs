//! The peer's bytes as events, for a server.
//!
//! Frames are judged in the order they come. DATA is handed on as it arrives; every other frame
//! is waited for whole, within a bound. A header block is decoded when it is complete, also for
//! a stream that nobody wants: the tables must stay in step.

use super::budget::Budget;
use super::flow::ReceiveWindow;
use super::frame::{self, u32_at, Head, HEAD_BYTES};
use super::hpack::{Decoder, Fields, HpackLimits};
use super::{
    ErrorCode, Fault, FRAME_DEFAULT_BYTES, FRAME_MAX_BYTES, FRAME_TAKEN_MAX_BYTES, WINDOW_MAX_BYTES,
};
use crate::http1::request::HTTP2_PREFACE;

/// Frames of one header block.
const BLOCK_FRAMES_MAX: u32 = 64;
/// A SETTINGS or PRIORITY_UPDATE frame longer than this is nonsense.
const SMALL_FRAME_MAX_BYTES: usize = 4096;
/// A WINDOW_UPDATE below this costs credit.
const SMALL_UPDATE_BYTES: u32 = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub initial_window: Option<u32>,
    pub max_frame: Option<u32>,
    pub header_table: bool,
}

/// RFC 7540's priority: deprecated, and still sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub on: u32,
    pub exclusive: bool,
    /// 1 to 256.
    pub weight: u16,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of a DATA frame. `flow` is what the frame takes from the windows: told with its
    /// first piece, and 0 with the others. `end`: the last piece of the stream's last frame.
    Data {
        stream: u32,
        bytes: &'a [u8],
        flow: u32,
        end: bool,
    },
    /// The block is in the `Fields` that were handed in; `len` is its length as sent. `fresh`:
    /// the stream's number is higher than any before, so these are no trailers.
    Headers {
        stream: u32,
        len: usize,
        end: bool,
        fresh: bool,
        dependency: Option<Dependency>,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
    },
    Settings(Settings),
    SettingsAck,
    WindowUpdate {
        stream: u32,
        bytes: u32,
    },
    Priority {
        stream: u32,
        dependency: Dependency,
    },
    PriorityUpdate {
        stream: u32,
        value: &'a [u8],
    },
    GoAway,
}

#[derive(Clone, Copy, Debug)]
struct Assembly {
    stream: u32,
    end: bool,
    dependency: Option<Dependency>,
    frames: u32,
}

#[derive(Clone, Copy, Debug)]
struct DataFrame {
    stream: u32,
    left: usize,
    padding: usize,
    end: bool,
}

pub struct Receiver {
    pub budget: Budget,
    pub limits: HpackLimits,
    decoder: Decoder,
    preface_done: bool,
    block: Vec<u8>,
    assembly: Option<Assembly>,
    data: Option<DataFrame>,
    /// Bytes of a frame that nobody reads.
    skip: usize,
    /// The highest stream the peer has opened.
    last_stream: u32,
    window: ReceiveWindow,
    /// A HEADERS frame of this stream has begun and is not all here.
    partial: Option<u32>,
    /// That stream was given up while its block was on the way.
    given_up: Option<u32>,
}

type Step<'a> = Result<(usize, Option<Event<'a>>), Fault>;

const fn protocol(text: &'static str) -> Fault {
    Fault::new(ErrorCode::PROTOCOL_ERROR, text)
}

const fn size(text: &'static str) -> Fault {
    Fault::new(ErrorCode::FRAME_SIZE_ERROR, text)
}

impl Receiver {
    pub fn new(limits: HpackLimits, now_ms: u64) -> Receiver {
        Receiver {
            budget: Budget::new(now_ms),
            limits,
            decoder: Decoder::default(),
            preface_done: false,
            block: Vec::new(),
            assembly: None,
            data: None,
            skip: 0,
            last_stream: 0,
            window: ReceiveWindow::new(WINDOW_MAX_BYTES),
            partial: None,
            given_up: None,
        }
    }

    pub fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// Whether a stream has not been opened: no frame but HEADERS and PRIORITY may come for it
    /// (RFC 9113 section 5.1). Streams with even numbers would be this side's, and it opens none.
    pub fn is_idle(&self, stream: u32) -> bool {
        stream > self.last_stream || stream.is_multiple_of(2)
    }

    /// The stream whose header block has begun and is not complete.
    pub fn partial_headers(&self) -> Option<u32> {
        let stream = self.assembly.map(|a| a.stream).or(self.partial);
        stream.filter(|s| self.given_up != Some(*s))
    }

    /// The rest of that block came too late: it is decoded and no event is made of it.
    pub fn give_up_partial(&mut self) {
        self.given_up = self.partial_headers().or(self.given_up);
        self.last_stream = self.last_stream.max(self.given_up.unwrap_or(0));
    }

    /// Whether the peer is in the middle of something.
    pub fn is_between_frames(&self) -> bool {
        self.assembly.is_none() && self.data.is_none() && self.skip == 0 && self.partial.is_none()
    }

    /// Judges the beginning of `input`: how much of it is used up, and what it means. Without
    /// use there is too little of it. A header block is put into `fields`; what can be answered
    /// at once is written to `out`.
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
    ) -> Step<'a> {
        if self.data.is_some() {
            return Ok(self.data_piece(input, 0, 0));
        }
        if self.skip > 0 {
            let n = self.skip.min(input.len());
            self.skip -= n;
            return Ok((n, None));
        }
        if !self.preface_done {
            return self.preface(input);
        }
        let Some(head) = Head::parse(input) else { return Ok((0, None)) };
        if head.len > FRAME_TAKEN_MAX_BYTES as usize {
            return Err(size("client sent frame larger than SETTINGS_MAX_FRAME_SIZE"));
        }
        if let Some(a) = self.assembly {
            if head.kind != frame::CONTINUATION || head.stream != a.stream {
                return Err(protocol(
                    "client sent inappropriate frame while CONTINUATION was expected",
                ));
            }
        }
        match head.kind {
            frame::DATA => return self.data(head, input, out),
            frame::PUSH_PROMISE => return Err(protocol("client sent PUSH_PROMISE frame")),
            frame::CONTINUATION if self.assembly.is_none() => {
                return Err(protocol("client sent unexpected CONTINUATION frame"))
            }
            frame::HEADERS => self.check_headers(head)?,
            _ => check_len(head)?,
        }
        if !is_known(head.kind) || (head.kind == frame::PRIORITY_UPDATE && is_long(head)) {
            self.budget.spend_control(1)?;
            self.skip = head.len;
            return Ok((HEAD_BYTES, None));
        }
        let block_max = self.block_max_bytes();
        if is_block(head.kind) && self.block.len() + head.len > block_max {
            return Err(Fault::new(ErrorCode::ENHANCE_YOUR_CALM, "client sent too large header"));
        }
        let Some(payload) = input.get(HEAD_BYTES..HEAD_BYTES + head.len) else {
            self.partial = (head.kind == frame::HEADERS).then_some(head.stream);
            return Ok((0, None));
        };
        self.partial = None;
        let event = match head.kind {
            frame::HEADERS => self.headers(head, payload, fields)?,
            frame::CONTINUATION => self.continuation(head, payload, fields)?,
            _ => self.small(head, payload, out)?,
        };
        Ok((HEAD_BYTES + head.len, event))
    }

    fn preface<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        let n = input.len().min(HTTP2_PREFACE.len());
        if input.get(..n) != HTTP2_PREFACE.get(..n) {
            return Err(protocol("invalid connection preface"));
        }
        if n < HTTP2_PREFACE.len() {
            return Ok((0, None));
        }
        self.preface_done = true;
        Ok((n, None))
    }

    /// Coded text may be longer than what it stands for; a bound all the same.
    fn block_max_bytes(&self) -> usize {
        self.limits.block_max_bytes.saturating_mul(2).saturating_add(1024)
    }

    fn data<'a>(&mut self, head: Head, input: &'a [u8], out: &mut Vec<u8>) -> Step<'a> {
        let mut used = HEAD_BYTES;
        let mut padding = 0;
        if head.has(frame::PADDED) {
            if head.len == 0 {
                return Err(size("client sent padded DATA frame with incorrect length"));
            }
            let Some(pad) = input.get(HEAD_BYTES) else { return Ok((0, None)) };
            padding = usize::from(*pad);
            used += 1;
            if padding >= head.len {
                return Err(protocol("client sent padded DATA frame with incorrect length"));
            }
        }
        if head.stream == 0 {
            return Err(protocol("client sent DATA frame with incorrect identifier"));
        }
        let flow = head.len as u32;
        self.window.take(flow).map_err(|_| {
            Fault::new(ErrorCode::FLOW_CONTROL_ERROR, "client violated connection flow control")
        })?;
        if self.window.left() < WINDOW_MAX_BYTES / 4 {
            let more = self.window.open_to(WINDOW_MAX_BYTES);
            frame::window_update(0, more, out);
        }
        let left = head.len - (used - HEAD_BYTES) - padding;
        let end = head.has(frame::END_STREAM);
        if left == 0 && !end {
            self.budget.spend_control(1)?;
        }
        self.data = Some(DataFrame { stream: head.stream, left, padding, end });
        let rest = input.get(used..).unwrap_or_default();
        Ok(self.data_piece(rest, used, flow))
    }

    fn data_piece<'a>(
        &mut self,
        input: &'a [u8],
        used: usize,
        flow: u32,
    ) -> (usize, Option<Event<'a>>) {
        let Some(d) = &mut self.data else { return (used, None) };
        let n = d.left.min(input.len());
        if n == 0 && d.left > 0 && flow == 0 {
            return (used, None);
        }
        d.left -= n;
        let (stream, end) = (d.stream, d.end && d.left == 0);
        if d.left == 0 {
            self.skip = d.padding;
            self.data = None;
        }
        self.budget.payload(n as u64);
        let bytes = input.get(..n).unwrap_or_default();
        (used + n, Some(Event::Data { stream, bytes, flow, end }))
    }

    fn check_headers(&self, head: Head) -> Result<(), Fault> {
        let mut least = 0;
        if head.has(frame::PADDED) {
            least += 1;
        }
        if head.has(frame::HAS_PRIORITY) {
            least += 5;
        }
        if head.len <= least {
            return Err(size("client sent HEADERS frame with incorrect length"));
        }
        if head.stream.is_multiple_of(2) {
            return Err(protocol("client sent HEADERS frame with incorrect identifier"));
        }
        Ok(())
    }

    fn headers<'a>(&mut self, head: Head, payload: &[u8], fields: &mut Fields) -> EventOr<'a> {
        let mut payload = payload;
        let mut padding = 0;
        if head.has(frame::PADDED) {
            padding = payload.first().map_or(0, |n| usize::from(*n));
            payload = payload.get(1..).unwrap_or_default();
        }
        let mut dependency = None;
        if head.has(frame::HAS_PRIORITY) {
            dependency = Some(dependency_of(head.stream, payload)?);
            payload = payload.get(5..).unwrap_or_default();
        }
        let Some(len) = payload.len().checked_sub(padding) else {
            return Err(protocol("client sent padded HEADERS frame with incorrect length"));
        };
        let payload = payload.get(..len).unwrap_or_default();
        let end = head.has(frame::END_STREAM);
        let a = Assembly { stream: head.stream, end, dependency, frames: 1 };
        if head.has(frame::END_HEADERS) {
            return self.complete(a, payload, fields);
        }
        self.block.clear();
        self.block.extend_from_slice(payload);
        self.assembly = Some(a);
        Ok(None)
    }

    fn continuation<'a>(&mut self, head: Head, payload: &[u8], fields: &mut Fields) -> EventOr<'a> {
        let Some(a) = &mut self.assembly else { return Ok(None) };
        a.frames += 1;
        if a.frames > BLOCK_FRAMES_MAX {
            let text = "client sent too many CONTINUATION frames";
            return Err(Fault::new(ErrorCode::ENHANCE_YOUR_CALM, text));
        }
        let a = *a;
        self.budget.spend_control(1)?;
        self.block.extend_from_slice(payload);
        if !head.has(frame::END_HEADERS) {
            return Ok(None);
        }
        self.assembly = None;
        let block = std::mem::take(&mut self.block);
        let event = self.complete(a, &block, fields);
        self.block = block;
        self.block.clear();
        event
    }

    fn complete<'a>(&mut self, a: Assembly, block: &[u8], fields: &mut Fields) -> EventOr<'a> {
        let fresh = a.stream > self.last_stream;
        self.last_stream = self.last_stream.max(a.stream);
        self.decoder
            .decode(block, &self.limits, fields)
            .map_err(|e| Fault::new(e.code(), e.text()))?;
        if self.given_up == Some(a.stream) {
            self.given_up = None;
            return Ok(None);
        }
        Ok(Some(Event::Headers {
            stream: a.stream,
            len: block.len(),
            end: a.end,
            fresh,
            dependency: a.dependency,
        }))
    }

    /// The frames that are small and of one piece.
    fn small<'a>(&mut self, head: Head, payload: &'a [u8], out: &mut Vec<u8>) -> EventOr<'a> {
        let stream = head.stream;
        Ok(Some(match head.kind {
            frame::PRIORITY => {
                self.budget.spend_control(1)?;
                Event::Priority { stream, dependency: dependency_of(stream, payload)? }
            }
            frame::RST_STREAM => {
                self.budget.spend_control(1)?;
                Event::Reset { stream, code: ErrorCode(u32_at(payload, 0)) }
            }
            frame::SETTINGS if head.has(frame::ACK) => Event::SettingsAck,
            frame::SETTINGS => {
                self.budget.spend_control(10)?;
                Event::Settings(settings(payload)?)
            }
            frame::PING => {
                self.budget.spend_control(1)?;
                if !head.has(frame::ACK) {
                    frame::ping(frame::ACK, payload, out);
                }
                return Ok(None);
            }
            frame::WINDOW_UPDATE => {
                let bytes = u32_at(payload, 0) & 0x7fff_ffff;
                if bytes == 0 {
                    return Err(protocol(
                        "client sent WINDOW_UPDATE frame with incorrect window increment 0",
                    ));
                }
                if bytes < SMALL_UPDATE_BYTES {
                    self.budget.spend_control(1)?;
                }
                Event::WindowUpdate { stream, bytes }
            }
            frame::PRIORITY_UPDATE => {
                self.budget.spend_control(1)?;
                let value = payload.get(4..).unwrap_or_default();
                Event::PriorityUpdate { stream: u32_at(payload, 0) & 0x7fff_ffff, value }
            }
            _ => {
                self.budget.spend_control(1)?;
                Event::GoAway
            }
        }))
    }
}

type EventOr<'a> = Result<Option<Event<'a>>, Fault>;

fn is_block(kind: u8) -> bool {
    matches!(kind, frame::HEADERS | frame::CONTINUATION)
}

fn is_known(kind: u8) -> bool {
    kind <= frame::CONTINUATION || kind == frame::PRIORITY_UPDATE
}

fn is_long(head: Head) -> bool {
    head.len > SMALL_FRAME_MAX_BYTES
}

/// The rules about length and stream of the frames that have a fixed form.
fn check_len(head: Head) -> Result<(), Fault> {
    let stream = head.stream != 0;
    match head.kind {
        frame::PRIORITY if head.len != 5 => {
            Err(size("client sent PRIORITY frame with incorrect length"))
        }
        frame::RST_STREAM if head.len != 4 => {
            Err(size("client sent RST_STREAM frame with incorrect length"))
        }
        frame::PING if head.len != 8 => Err(size("client sent PING frame with incorrect length")),
        frame::GOAWAY if head.len < 8 || is_long(head) => {
            Err(size("client sent GOAWAY frame with incorrect length"))
        }
        frame::WINDOW_UPDATE if head.len != 4 => {
            Err(size("client sent WINDOW_UPDATE frame with incorrect length"))
        }
        frame::SETTINGS if stream => {
            Err(protocol("client sent SETTINGS frame with incorrect identifier"))
        }
        frame::SETTINGS if head.has(frame::ACK) && head.len != 0 => {
            Err(size("client sent SETTINGS frame with the ACK flag and nonzero length"))
        }
        frame::SETTINGS if !head.len.is_multiple_of(6) || is_long(head) => {
            Err(size("client sent SETTINGS frame with incorrect length"))
        }
        frame::PRIORITY_UPDATE if head.len < 4 => {
            Err(size("client sent PRIORITY_UPDATE frame with incorrect length"))
        }
        frame::PRIORITY | frame::RST_STREAM if !stream => {
            Err(protocol("client sent frame with incorrect identifier"))
        }
        frame::PING | frame::GOAWAY | frame::PRIORITY_UPDATE if stream => {
            Err(protocol("client sent frame with incorrect identifier"))
        }
        _ => Ok(()),
    }
}

fn dependency_of(stream: u32, payload: &[u8]) -> Result<Dependency, Fault> {
    let word = u32_at(payload, 0);
    let on = word & 0x7fff_ffff;
    if on == stream {
        return Err(protocol("client sent frame with incorrect dependency"));
    }
    let weight = u16::from(payload.get(4).copied().unwrap_or(15)) + 1;
    Ok(Dependency { on, exclusive: word >> 31 != 0, weight })
}

fn settings(payload: &[u8]) -> Result<Settings, Fault> {
    let mut s = Settings::default();
    for pair in payload.chunks_exact(6) {
        let id = u16::from_be_bytes([pair[0], pair[1]]);
        let value = u32_at(pair, 2);
        match id {
            frame::SETTING_INITIAL_WINDOW_SIZE if value > WINDOW_MAX_BYTES => {
                return Err(Fault::new(
                    ErrorCode::FLOW_CONTROL_ERROR,
                    "client sent SETTINGS frame with incorrect INITIAL_WINDOW_SIZE value",
                ))
            }
            frame::SETTING_INITIAL_WINDOW_SIZE => s.initial_window = Some(value),
            frame::SETTING_MAX_FRAME_SIZE => {
                if !(FRAME_DEFAULT_BYTES..=FRAME_MAX_BYTES).contains(&value) {
                    return Err(protocol(
                        "client sent SETTINGS frame with incorrect MAX_FRAME_SIZE value",
                    ));
                }
                s.max_frame = Some(value);
            }
            frame::SETTING_ENABLE_PUSH if value > 1 => {
                return Err(protocol("client sent SETTINGS frame with incorrect ENABLE_PUSH value"))
            }
            frame::SETTING_HEADER_TABLE_SIZE => s.header_table = true,
            _ => {}
        }
    }
    Ok(s)
}
