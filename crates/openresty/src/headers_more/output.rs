//! Fields of the answer. Those that the server makes itself are kept apart there, and are set apart.

use super::{Command, Field, MoreLoc};
use std::rc::Rc;
use weir_base::units;
use weir_core::eval::with_value;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::{FilterError, FilterResult, Next};
use weir_http::Request;

type Put = fn(&mut Request, &[u8]) -> Result<(), FilterError>;

/// What more is to be done for these than to set the field.
const APART: &[(&[u8], Put)] = &[
    (b"Server", |r, _| {
        r.out.has_server = true;
        Ok(())
    }),
    (b"Date", |r, _| {
        r.out.has_date = true;
        Ok(())
    }),
    (b"Last-Modified", |r, _| {
        r.out.has_last_modified = true;
        Ok(())
    }),
    (b"Accept-Ranges", |r, value| {
        r.flags.allow_ranges &= !value.is_empty();
        Ok(())
    }),
    (b"Location", |r, value| {
        r.flags.own_location |= !value.is_empty();
        Ok(())
    }),
    (b"Content-Length", put_length),
    (b"Content-Type", put_type),
];

/// Others that the documentation counts among them.
const ALSO_BUILTIN: &[&[u8]] = &[
    b"Content-Encoding",
    b"Refresh",
    b"Content-Range",
    b"WWW-Authenticate",
    b"Expires",
    b"ETag",
    b"Cache-Control",
];

pub(super) fn is_builtin(name: &[u8]) -> bool {
    let mut names = APART.iter().map(|(n, _)| *n).chain(ALSO_BUILTIN.iter().copied());
    names.any(|n| n.eq_ignore_ascii_case(name))
}

pub(super) fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    for command in loc.conf::<MoreLoc>().output.iter() {
        if holds(r, command) {
            for field in &command.fields {
                with_value(r, &field.value, |r, value| put(r, field, value))?;
            }
        }
    }
    next.header(r)
}

fn holds(r: &Request, command: &Command) -> bool {
    let of_type = |kind: &[u8]| command.types.iter().any(|t| t == kind);
    (command.types.is_empty() || r.out.content_type().is_some_and(of_type))
        && (command.statuses.is_empty() || command.statuses.contains(&r.out.status))
}

fn put(r: &mut Request, field: &Field, value: &[u8]) -> FilterResult {
    if field.append {
        if !value.is_empty() {
            r.out.add(&field.name, value);
        }
        return Ok(());
    }
    for (name, put) in APART {
        // A pattern that fits what stands apart takes away what of it is in the list.
        if !field.wildcard && field.is_named(name) {
            put(r, value)?;
            if matches!(*name, b"Content-Length" | b"Content-Type") {
                return Ok(());
            }
        }
    }
    match value.is_empty() {
        true => r.out.remove_where(|name| field.is_named(name)),
        false => r.out.put(&field.name, value),
    }
    Ok(())
}

fn put_length(r: &mut Request, value: &[u8]) -> FilterResult {
    if value.is_empty() {
        r.out.clear_content_length();
        return Ok(());
    }
    let Some(bytes) = units::parse_int(value) else {
        let shown = String::from_utf8_lossy(value);
        let text = format!("\"more_set_headers\" has no length in \"Content-Length: {shown}\"");
        r.log(LogLevel::Error, &text);
        return Ok(());
    };
    // What is sent behind another length than the body's must not be taken for the next answer.
    if r.out.content_length != Some(bytes) {
        r.flags.keepalive = false;
    }
    r.out.clear_content_length();
    r.out.content_length = Some(bytes);
    Ok(())
}

fn put_type(r: &mut Request, value: &[u8]) -> FilterResult {
    if value.is_empty() {
        r.out.clear_content_type();
        return Ok(());
    }
    r.out.set_content_type_with(value);
    Ok(())
}
