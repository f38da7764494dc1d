//! Logs that name their columns in a line `#Fields:` (W3C's extended format): IIS, and CloudFront, which has tabs
//! between them.

use super::raw::{Field, Raw};
use memchr::memchr;

#[derive(Clone, Debug)]
pub struct Table {
    columns: Box<[Field]>,
    separator: u8,
}

impl Table {
    /// Of a log's beginning.
    pub fn find(sample: &[u8]) -> Option<Table> {
        let mut lines = sample.split(|b| *b == b'\n').take(20);
        let names = lines.find_map(|line| line.strip_prefix(b"#Fields:"))?;
        let is_cloudfront = memchr::memmem::find(names, b"x-edge-").is_some();
        let separator = if is_cloudfront { b'\t' } else { b' ' };
        let words = names.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        let columns: Box<[Field]> = words.map(|name| column(name, is_cloudfront)).collect();
        let has = |field| columns.contains(&field);
        let is_one =
            has(Field::Address) && has(Field::Date) && has(Field::Clock) && has(Field::Uri);
        is_one.then_some(Table { columns, separator })
    }

    pub fn split<'a>(&self, line: &'a [u8]) -> Option<Raw<'a>> {
        let mut raw = Raw::default();
        let mut rest = line;
        for (n, field) in self.columns.iter().enumerate() {
            let end = memchr(self.separator, rest);
            let value = &rest[..end.unwrap_or(rest.len())];
            if *field != Field::Skipped {
                raw.set(*field, value);
            }
            match end {
                Some(end) => rest = &rest[end + 1..],
                None if n + 1 == self.columns.len() => {}
                None => return None,
            }
        }
        Some(raw)
    }
}

fn column(name: &[u8], is_cloudfront: bool) -> Field {
    match name {
        b"date" => Field::Date,
        b"time" => Field::Clock,
        b"c-ip" => Field::Address,
        b"cs-method" => Field::Method,
        b"cs-uri-stem" | b"cs-uri" => Field::Uri,
        b"cs-uri-query" => Field::Args,
        b"cs-version" | b"cs-protocol-version" => Field::Protocol,
        b"sc-status" => Field::Status,
        b"sc-bytes" => Field::Bytes,
        b"cs(Referer)" => Field::Referrer,
        b"cs(User-Agent)" => Field::Agent,
        b"cs-host" | b"cs(Host)" | b"x-host-header" => Field::Host,
        b"time-taken" if is_cloudfront => Field::Seconds,
        b"time-taken" => Field::Milliseconds,
        _ => Field::Skipped,
    }
}
