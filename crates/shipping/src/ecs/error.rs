//! A line of the error log.

use super::{number, text, Tail};
use crate::event::Severity;

/// A line as it would have been written, and what it is made of.
#[derive(Clone, Copy, Debug)]
pub struct ErrorLine<'a> {
    /// `2026-01-31T23:59:59.123Z`
    pub stamp: &'a [u8],
    /// nginx's name of it.
    pub level: &'a str,
    pub pid: u32,
    pub connection: Option<u64>,
    pub message: &'a [u8],
}

impl ErrorLine<'_> {
    /// All of it.
    pub fn write(&self, tail: &Tail, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"@timestamp\":\"");
        out.extend_from_slice(self.stamp);
        out.extend_from_slice(
            b"\",\"event\":{\"kind\":\"event\",\"category\":[\"web\"],\"type\":[\"error\"],\
              \"module\":\"nginx\",\"dataset\":\"nginx.error\"}",
        );
        text(out, b",\"log\":{\"level\":", self.level.as_bytes());
        text(out, b"},\"message\":", self.message);
        number(out, b",\"process\":{\"pid\":", self.pid.into());
        out.push(b'}');
        if let Some(connection) = self.connection {
            number(out, b",\"nginx\":{\"error\":{\"connection_id\":", connection);
            out.extend_from_slice(b"}}");
        }
        tail.push(out);
    }
}

/// Syslog's number of one of nginx's levels.
pub fn severity(level: &str) -> Severity {
    match level {
        "emerg" => Severity::Emergency,
        "alert" => Severity::Alert,
        "crit" => Severity::Critical,
        "error" => Severity::Error,
        "warn" => Severity::Warning,
        "notice" => Severity::Notice,
        "info" => Severity::Info,
        _ => Severity::Debug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    #[test]
    fn a_line_is_a_document() {
        let line = ErrorLine {
            stamp: b"2026-11-23T05:30:00.123Z",
            level: "warn",
            pid: 7,
            connection: Some(9),
            message: b"a \"b\"\xff",
        };
        let mut out = Vec::new();
        line.write(&Tail::new("logs", "nginx.error", "default", "web1"), &mut out);
        let doc: Value = serde_json::from_slice(&out).unwrap();
        crate::ecs::page::agrees(&doc);
        assert_eq!(doc["log"], json!({"level": "warn"}));
        assert_eq!(doc["message"], "a \"b\"\u{fffd}");
        assert_eq!(doc["process"], json!({"pid": 7}));
        assert_eq!(doc["nginx"]["error"]["connection_id"], 9);
        assert_eq!(severity("crit"), Severity::Critical);
    }
}
