//! What the logs of each protocol have of their own.

use super::format::{Logged, Own};
use super::COMBINED;
use weir_base::bytes::fmt_u64;
use weir_conf::messages::os_error;
use weir_core::common::push_seconds;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::core_vars::shown_status;
use weir_http::location::map_uri;
use weir_http::Request;
use weir_module::Context;

impl Logged for Request {
    const LOG_LEVELS: Context = Self::LEVELS.or(Context::LIF).or(Context::LMT);
    const DEFAULTS: (&'static str, &'static str) = ("combined \"...\"", "logs/access.log combined");
    const DEFAULT_FORMAT: Option<&'static [u8]> = Some(COMBINED);

    fn own_op(name: &[u8]) -> Option<Own> {
        Some(match name {
            b"pipe" => Own::Pipe,
            b"request_time" => Own::RequestTime,
            b"status" => Own::Status,
            b"bytes_sent" => Own::BytesSent,
            b"body_bytes_sent" => Own::BodyBytesSent,
            b"request_length" => Own::RequestLength,
            _ => return None,
        })
    }

    #[inline]
    fn write_own(&mut self, own: Own, out: &mut Vec<u8>) {
        match own {
            Own::Pipe => out.push(if self.flags.pipelined { b'p' } else { b'.' }),
            Own::RequestTime => push_seconds(out, self.elapsed_ms()),
            Own::Status => push_status(out, shown_status(self)),
            Own::BytesSent => fmt_u64(out, self.bytes_sent()),
            Own::BodyBytesSent => fmt_u64(out, self.body_bytes_sent()),
            Own::RequestLength => fmt_u64(out, self.received),
        }
    }

    /// It is only written for sites that exist.
    fn may_write_named(&mut self) -> bool {
        let root = map_uri(self, b"");
        let why = match std::fs::metadata(&root) {
            Ok(meta) if meta.is_dir() => return true,
            Ok(_) => "20: Not a directory".to_string(),
            Err(e) => os_error(&e),
        };
        let text = format!("testing \"{}\" existence failed ({why})", root.display());
        self.log(LogLevel::Error, &text);
        false
    }
}

impl Logged for weir_stream::Session {
    const LOG_LEVELS: Context = Self::LEVELS;
    const DEFAULTS: (&'static str, &'static str) = ("", "off");
    const DEFAULT_FORMAT: Option<&'static [u8]> = None;

    fn own_op(_: &[u8]) -> Option<Own> {
        None
    }

    /// No format of stream's has one.
    fn write_own(&mut self, _: Own, _: &mut Vec<u8>) {}

    fn may_write_named(&mut self) -> bool {
        true
    }
}

fn push_status(out: &mut Vec<u8>, status: u16) {
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status)]);
}
