//! How an answer begins: its status line, `Server` and `Date`, made once a second for each status.

use crate::conf::ServerTokens;
use crate::{date, names};
use std::cell::RefCell;
use weir_core::{SERVER_NAME, SERVER_VERSION};
use weir_runtime::clock;

/// Beginnings kept: as many as there are statuses, but for unusual ones, with few servers' tokens.
const STARTS_MAX: usize = 16;

struct Start {
    status: u16,
    tokens: ServerTokens,
    text: Vec<u8>,
    /// Where the status line ends in it.
    line_end: usize,
}

impl Start {
    /// Whether that is what stands behind the version.
    fn says(&self, line: &[u8]) -> bool {
        self.text.get(VERSION.len()..self.line_end) == Some(line)
    }
}

const VERSION: &[u8] = b"HTTP/1.1 ";

struct Ready {
    /// Of this second.
    secs: i64,
    starts: Vec<Start>,
}

thread_local! {
    static READY: RefCell<Ready> = const { RefCell::new(Ready { secs: 0, starts: Vec::new() }) };
}

/// Writes the beginning of an answer with a status line of the server's own, or with the same words of an
/// upstream; `false`: they are others.
#[inline]
pub(super) fn write_start(
    status: u16,
    line: Option<&[u8]>,
    tokens: ServerTokens,
    out: &mut Vec<u8>,
) -> bool {
    READY.with_borrow_mut(|ready| {
        let now = clock::wall_secs();
        if ready.secs != now {
            ready.secs = now;
            ready.starts.clear();
        }
        let known = ready.starts.iter().find(|s| s.status == status && s.tokens == tokens);
        let Some(start) = known else { return ready.make(status, line, tokens, out) };
        let is_same = line.is_none_or(|line| start.says(line));
        if is_same {
            out.extend_from_slice(&start.text);
        }
        is_same
    })
}

impl Ready {
    #[cold]
    fn make(
        &mut self,
        status: u16,
        line: Option<&[u8]>,
        tokens: ServerTokens,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut text = Vec::with_capacity(128);
        text.extend_from_slice(VERSION);
        write_status(status, &mut text);
        let line_end = text.len() - 2;
        write_server(tokens, &mut text);
        write_date(&mut text);
        let start = Start { status, tokens, text, line_end };
        let is_same = line.is_none_or(|line| start.says(line));
        if is_same {
            out.extend_from_slice(&start.text);
        }
        if self.starts.len() < STARTS_MAX {
            self.starts.push(start);
        }
        is_same
    }
}

/// What of the status line is behind the version.
pub(super) fn write_status(status: u16, text: &mut Vec<u8>) {
    match names::status_line(status) {
        Some(line) => text.extend_from_slice(line.as_bytes()),
        None => text.extend_from_slice(format!("{status:03} ").as_bytes()),
    }
    text.extend_from_slice(b"\r\n");
}

pub(super) fn write_server(tokens: ServerTokens, text: &mut Vec<u8>) {
    text.extend_from_slice(b"Server: ");
    text.extend_from_slice(match tokens {
        ServerTokens::On | ServerTokens::Build => SERVER_VERSION.as_bytes(),
        ServerTokens::Off => SERVER_NAME.as_bytes(),
    });
    text.extend_from_slice(b"\r\n");
}

pub(super) fn write_date(text: &mut Vec<u8>) {
    text.extend_from_slice(b"Date: ");
    text.extend_from_slice(&date::now());
    text.extend_from_slice(b"\r\n");
}
