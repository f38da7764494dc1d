//! Formats of logs: from the text of a `log_format` of nginx or a `LogFormat` of Apache, by a name, or found by
//! looking at lines; and the scanners that take lines apart by them without copying.

mod apache;
mod detect;
mod json;
mod nginx;
mod raw;
mod table;
mod text;
pub mod time;

pub use detect::{detect, NAMED};
pub use raw::{address, Field, Invalid};

use crate::event::Event;
use raw::Raw;
use std::sync::Arc;

/// A line may be so long; what is longer is none.
pub const LINE_MAX_BYTES: usize = 64 * 1024;

/// How values are escaped (`log_format … escape=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Escape {
    /// `\x22`; other programs' `\"` too.
    Default,
    /// `\"`
    Json,
    /// Not at all.
    None,
}

/// A format, compiled.
#[derive(Clone, Debug)]
pub struct Format {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Text(Arc<text::Text>),
    Table(Arc<table::Table>),
    Json,
}

impl Format {
    /// Of `log_format`'s texts, put together.
    ///
    /// # Errors
    ///
    /// What is wrong with it: variables that cannot be told apart, or no address, time or request in it.
    pub fn nginx(text: &[u8], escape: Escape) -> Result<Format, String> {
        let text = nginx::compile(text, escape)?;
        Ok(Format { name: "nginx".to_owned(), kind: Kind::Text(Arc::new(text)) })
    }

    /// Of a person: a name ([`NAMED`]), or a text with `$` of nginx or `%` of Apache.
    ///
    /// # Errors
    ///
    /// As with [`Format::nginx`], or there is no such name.
    pub fn given(text: &[u8]) -> Result<Format, String> {
        if let Some(found) = detect::named(text) {
            return Ok(found);
        }
        if text.contains(&b'$') {
            return Format::nginx(text, Escape::Default);
        }
        if text.contains(&b'%') {
            let text = apache::compile(text)?;
            return Ok(Format { name: "apache".to_owned(), kind: Kind::Text(Arc::new(text)) });
        }
        let shown = String::from_utf8_lossy(text);
        Err(format!("no format is called \"{shown}\"; there are {}", NAMED.join(", ")))
    }

    fn json() -> Format {
        Format { name: "json".to_owned(), kind: Kind::Json }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// One for each thread.
    pub fn scanner(&self) -> Scanner {
        Scanner {
            kind: self.kind.clone(),
            local: time::Local::default(),
            uri: Vec::new(),
            json: Vec::new(),
        }
    }
}

/// Takes lines apart.
pub struct Scanner {
    kind: Kind,
    local: time::Local,
    uri: Vec<u8>,
    json: Vec<u8>,
}

impl Scanner {
    /// What a line says, which is without its end; `None` if it is empty or a comment.
    pub fn scan<'a>(&'a mut self, line: &'a [u8]) -> Option<Result<Event<'a>, Invalid>> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if matches!(line.first(), None | Some(b'#')) {
            return None;
        }
        if line.len() > LINE_MAX_BYTES {
            return Some(Err(Invalid::TooLong));
        }
        let raw: Option<Raw<'a>> = match &self.kind {
            Kind::Text(text) => text.split(line),
            Kind::Table(table) => table.split(line),
            Kind::Json => json::split(line, &mut self.json),
        };
        let Some(raw) = raw else { return Some(Err(Invalid::Form)) };
        Some(raw.event(&mut self.local, &mut self.uri))
    }
}

#[cfg(test)]
mod tests;
