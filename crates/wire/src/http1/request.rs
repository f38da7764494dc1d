//! The head of a request: what was sent, and the parser that finds it.
//!
//! Limits are nginx's, and so is the way they are met: the head is read into one first buffer
//! and then into large ones, an unfinished line moves to a fresh large buffer, and the request
//! is refused when a line fills a whole buffer or no buffer is left. Here the buffers are only
//! counted; the caller's real one may be of any shape.

pub use super::request_error::ParseError;

use super::field::{Field, FieldEvent, FieldRules, Fields};
use super::framing::{self, Host};
use super::names::HeaderId;
use super::request_line::{Line, LineEvent};
use crate::scan::Range32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    #[default]
    Other,
    Get,
    Head,
    Post,
    Put,
    Delete,
    Mkcol,
    Copy,
    Move,
    Options,
    Propfind,
    Proppatch,
    Lock,
    Unlock,
    Patch,
    Trace,
    Connect,
}

impl Method {
    /// Methods are case-sensitive.
    pub fn from_bytes(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"MKCOL" => Method::Mkcol,
            b"COPY" => Method::Copy,
            b"MOVE" => Method::Move,
            b"OPTIONS" => Method::Options,
            b"PROPFIND" => Method::Propfind,
            b"PROPPATCH" => Method::Proppatch,
            b"LOCK" => Method::Lock,
            b"UNLOCK" => Method::Unlock,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// One bit per method, for sets such as `limit_except` keeps.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Major times 1000 plus minor; a request line without a version is 0.9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    pub const HTTP_09: Version = Version(9);
    pub const HTTP_10: Version = Version(1000);
    pub const HTTP_11: Version = Version(1001);
    pub const HTTP_20: Version = Version(2000);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderField {
    pub name: Range32,
    pub value: Range32,
    pub id: HeaderId,
}

/// What the `Connection` headers ask for; the last that says either wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    #[default]
    Unsaid,
    Close,
    KeepAlive,
}

/// A request head, as spans of the buffer it was parsed from. Reused from request to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    pub method: Method,
    pub method_span: Range32,
    /// Without its line end; begins the request, after any blank lines.
    pub request_line: Range32,
    /// Of a target in absolute form.
    pub scheme: Option<Range32>,
    /// Host and port of a target in absolute or authority form, as written.
    pub authority: Option<Range32>,
    /// What `$request_uri` shows: path and arguments, without scheme and host.
    pub target: Range32,
    /// The path as written, up to `?` or `#`. The bare `/` nginx supplies is a span as well.
    pub path: Range32,
    /// After the `?`, up to `#`; `Some` of nothing for a bare `?`.
    pub args: Option<Range32>,
    /// The path holds `%`, `//`, `/.` or ends in `#`: it must go through `uri::normalize`.
    pub complex_uri: bool,
    /// The path holds `%`.
    pub quoted_uri: bool,
    /// The path holds `+`.
    pub plus_in_uri: bool,
    /// An absolute target without a path: the target cannot be passed on as it is.
    pub empty_path_in_uri: bool,
    pub version: Version,
    /// `HTTP/1.1` as written, with any spaces that follow; empty for HTTP/0.9.
    pub protocol: Range32,
    pub headers: Vec<HeaderField>,
    /// Lines dropped for their name, for the log.
    pub ignored: Vec<Range32>,
    /// The [`HeaderId::bit`]s of the headers that came.
    pub seen: u64,
    pub connection: Connection,
    /// From the request line or else from `Host`, each checked as it comes.
    pub host: Option<Host>,
    /// Where the body begins in the buffer.
    pub head_len: usize,
}

impl RequestHead {
    /// Forgets the request and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        let RequestHead {
            method,
            method_span,
            request_line,
            scheme,
            authority,
            target,
            path,
            args,
            complex_uri,
            quoted_uri,
            plus_in_uri,
            empty_path_in_uri,
            version,
            protocol,
            headers,
            ignored,
            seen,
            connection,
            host,
            head_len,
        } = self;
        *method = Method::default();
        *method_span = Range32::default();
        *request_line = Range32::default();
        *scheme = None;
        *authority = None;
        *target = Range32::default();
        *path = Range32::default();
        *args = None;
        *complex_uri = false;
        *quoted_uri = false;
        *plus_in_uri = false;
        *empty_path_in_uri = false;
        *version = Version::default();
        *protocol = Range32::default();
        headers.clear();
        ignored.clear();
        *seen = 0;
        *connection = Connection::default();
        *host = None;
        *head_len = 0;
    }

    #[inline]
    pub fn has(&self, id: HeaderId) -> bool {
        self.seen & id.bit() != 0
    }

    /// The first header with this id.
    #[inline]
    pub fn get(&self, id: HeaderId) -> Option<&HeaderField> {
        if !self.has(id) {
            return None;
        }
        self.headers.iter().find(|h| h.id == id)
    }

    pub fn get_all(&self, id: HeaderId) -> impl Iterator<Item = &HeaderField> {
        self.headers.iter().filter(move |h| h.id == id)
    }

    /// The first header's value.
    pub fn value<'b>(&self, id: HeaderId, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.get(id).map(|h| h.value.of(buf))
    }

    /// What nginx calls `$request_length` before the body.
    pub fn len(&self) -> usize {
        self.head_len.saturating_sub(self.request_line.start as usize)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a field that came by another way than a header line, with the same checks.
    pub fn add_field(
        &mut self,
        buf: &[u8],
        field: Field,
        limits: &Limits,
    ) -> Result<(), ParseError> {
        add_field(buf, field, id_of(buf, &field), limits, self)
    }

    /// Takes a target that came by another way than a request line; `false`: it is no path.
    pub fn take_target(&mut self, buf: &[u8], target: Range32) -> bool {
        super::request_line::take_target(self, buf, target)
    }

    fn note_connection(&mut self, value: &[u8]) {
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.connection = Connection::KeepAlive;
        } else if crate::scan::contains_ignoring_case(value, b"close") {
            self.connection = Connection::Close;
        } else if crate::scan::contains_ignoring_case(value, b"keep-alive") {
            self.connection = Connection::KeepAlive;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `client_header_buffer_size`.
    pub first_buffer_bytes: usize,
    /// `large_client_header_buffers`: size of each and how many.
    pub large_buffer_bytes: usize,
    pub large_buffers: u32,
    /// `max_headers`.
    pub max_headers: usize,
    pub ignore_invalid_headers: bool,
    pub underscores_in_headers: bool,
}

impl Limits {
    /// No request head is ever longer than this; blank lines before it do not count.
    pub fn total_max_bytes(&self) -> usize {
        let large = self.large_buffer_bytes.saturating_mul(self.large_buffers as usize);
        self.first_buffer_bytes.saturating_add(large)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            first_buffer_bytes: 1024,
            large_buffer_bytes: 8192,
            large_buffers: 4,
            max_headers: 1000,
            ignore_invalid_headers: true,
            underscores_in_headers: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Complete,
    NeedMore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Line,
    Fields,
    Done,
}

/// Reads one request head; `reset` before the next.
#[derive(Clone, Debug)]
pub struct Parser {
    stage: Stage,
    line: Line,
    fields: Fields,
    /// Where nginx's current buffer would end.
    window: usize,
    large_used: u32,
}

impl Default for Parser {
    fn default() -> Self {
        Parser {
            stage: Stage::Line,
            line: Line::default(),
            fields: Fields::default(),
            window: 0,
            large_used: 0,
        }
    }
}

impl Parser {
    pub fn new() -> Self {
        Parser::default()
    }

    #[inline]
    pub fn reset(&mut self) {
        self.stage = Stage::Line;
        self.line.reset();
        self.window = 0;
        self.large_used = 0;
    }

    /// Whether any byte of a request, blank lines aside, has been seen.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Line || !self.line.is_blank()
    }

    /// Whether the request line has been read.
    pub fn has_line(&self) -> bool {
        self.stage != Stage::Line
    }

    /// Of a line that was not understood: what there is of it, as far as nginx's buffer goes.
    pub fn line_as_read(&self, buf: &[u8]) -> Range32 {
        let start = if self.line.is_blank() { self.line.read_to() } else { self.line.start() };
        let end = self.window.min(buf.len()).max(start);
        let line = buf.get(start..end).unwrap_or_default();
        let len = line.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(line.len());
        Range32::new(start, start + len)
    }

    /// How far the head has been read in whole lines.
    pub fn whole_lines(&self) -> usize {
        match self.stage {
            Stage::Line => self.line.start(),
            _ if self.fields.between_lines() => self.fields.position(),
            _ => self.fields.line_start(),
        }
    }

    /// Reads on. `buf` begins where the request does and holds at least what it held before;
    /// `head` is the same each time. Until `has_begun`, the caller may instead drop what it
    /// has and `reset`: only blank lines came.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        head: &mut RequestHead,
    ) -> Result<Progress, ParseError> {
        if self.window == 0 {
            head.clear();
            self.window = limits.first_buffer_bytes.max(1);
        }
        loop {
            let window = self.window.min(buf.len());
            let view = buf.get(..window).unwrap_or(buf);
            if self.run(view, limits, head)? == Progress::Complete {
                return Ok(Progress::Complete);
            }
            if window < self.window {
                return Ok(Progress::NeedMore);
            }
            self.next_buffer(limits)?;
        }
    }

    fn run(
        &mut self,
        view: &[u8],
        limits: &Limits,
        head: &mut RequestHead,
    ) -> Result<Progress, ParseError> {
        if self.stage == Stage::Line {
            match self.line.read(view, head)? {
                LineEvent::NeedMore => return Ok(Progress::NeedMore),
                LineEvent::End { next } => {
                    self.fields = Fields::at(next);
                    self.stage = Stage::Fields;
                    if head.version < Version::HTTP_10 {
                        return Ok(self.finish(next, head));
                    }
                }
            }
        }
        if self.stage == Stage::Done {
            return Ok(Progress::Complete);
        }
        let rules = FieldRules { underscores: limits.underscores_in_headers, upstream: false };
        loop {
            let add = |field, id| add_field(view, field, id, limits, head);
            self.fields.plain_lines(view, HeaderId::of, add)?;
            if self.fields.end_of_block(view) {
                return Ok(self.finish(self.fields.position(), head));
            }
            match self.fields.next(view, rules).map_err(ParseError::InvalidHeaderLine)? {
                FieldEvent::Field(field) => {
                    add_field(view, field, id_of(view, &field), limits, head)?;
                }
                FieldEvent::NeedMore => return Ok(Progress::NeedMore),
                FieldEvent::End => return Ok(self.finish(self.fields.position(), head)),
            }
        }
    }

    fn finish(&mut self, head_len: usize, head: &mut RequestHead) -> Progress {
        self.stage = Stage::Done;
        head.head_len = head_len;
        Progress::Complete
    }

    /// nginx's buffer is full and the line in it unfinished: take another or refuse.
    #[cold]
    fn next_buffer(&mut self, limits: &Limits) -> Result<(), ParseError> {
        let (start, between, error) = match self.stage {
            Stage::Line if self.line.is_blank() => {
                self.window += limits.first_buffer_bytes.max(1);
                return Ok(());
            }
            Stage::Line => (self.line.start(), false, ParseError::UriTooLong),
            _ => {
                let between = self.fields.between_lines();
                let line = self.fields.line_start();
                let start = if between { self.window } else { line };
                let (from, end) = (line as u32, self.window as u32);
                (start, between, ParseError::HeaderTooLarge { start: from, end })
            }
        };
        let fills_a_buffer = !between && self.window - start >= limits.large_buffer_bytes;
        if fills_a_buffer || self.large_used >= limits.large_buffers {
            return Err(error);
        }
        self.large_used += 1;
        self.window = start + limits.large_buffer_bytes.max(1);
        Ok(())
    }
}

fn id_of(buf: &[u8], field: &Field) -> HeaderId {
    match field.invalid {
        true => HeaderId::Other,
        false => HeaderId::of(field.name.of(buf)),
    }
}

#[inline(always)]
fn add_field(
    buf: &[u8],
    field: Field,
    id: HeaderId,
    limits: &Limits,
    head: &mut RequestHead,
) -> Result<(), ParseError> {
    if field.invalid && limits.ignore_invalid_headers {
        head.ignored.push(Range32 { start: field.name.start, end: field.value.end });
        return Ok(());
    }
    if head.headers.len() >= limits.max_headers {
        return Err(ParseError::TooManyHeaders);
    }
    head.headers.push(HeaderField { name: field.name, value: field.value, id });
    if id == HeaderId::Other {
        return Ok(());
    }
    if head.has(id) && id.is_unique() {
        return Err(ParseError::DuplicateHeader((head.headers.len() - 1) as u32));
    }
    head.seen |= id.bit();
    match id {
        HeaderId::Connection => head.note_connection(field.value.of(buf)),
        HeaderId::Host => {
            let named = framing::host_in(field.value, buf).ok_or(ParseError::InvalidHost)?;
            head.host.get_or_insert(named);
        }
        _ => {}
    }
    Ok(())
}

/// What an HTTP/2 client with prior knowledge sends first.
pub const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preface {
    Http2,
    Http1,
    /// Too short to tell.
    NeedMore,
}

/// Which protocol the first bytes of a connection speak.
pub fn preface(buf: &[u8]) -> Preface {
    let n = buf.len().min(HTTP2_PREFACE.len());
    match (buf.get(..n) == HTTP2_PREFACE.get(..n), n == HTTP2_PREFACE.len()) {
        (false, _) => Preface::Http1,
        (true, true) => Preface::Http2,
        (true, false) => Preface::NeedMore,
    }
}
