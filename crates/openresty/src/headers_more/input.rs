//! Fields of the request.

use super::{Command, Field, MoreLoc};
use std::rc::Rc;
use weir_base::line;
use weir_base::units;
use weir_core::eval::with_value;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::body;
use weir_http::module::Flow;
use weir_http::Request;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Version;

pub(super) fn handler(r: &mut Request) -> Flow {
    if r.version() < Version::HTTP_10 {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    for command in &loc.conf::<MoreLoc>().input {
        if !holds(r, command) {
            continue;
        }
        for field in &command.fields {
            if let Err(flow) = with_value(r, &field.value, |r, value| put(r, command, field, value))
            {
                return flow;
            }
        }
    }
    Flow::Declined
}

fn holds(r: &Request, command: &Command) -> bool {
    let of_type = |kind: &[u8]| command.types.iter().any(|t| t == kind);
    command.types.is_empty() || r.header(HeaderId::ContentType).is_some_and(of_type)
}

fn put(r: &mut Request, command: &Command, field: &Field, value: &[u8]) -> Result<(), Flow> {
    let id = HeaderId::of(&field.name);
    if value.is_empty() {
        let had_length = r.head.has(HeaderId::ContentLength);
        r.remove_fields_in(|name| field.is_named(name));
        return match had_length && !r.head.has(HeaderId::ContentLength) {
            true => body::discard(r),
            false => Ok(()),
        };
    }
    if id == HeaderId::ContentLength && units::parse_int(value).is_none() {
        return Err(refuse(r, field, value));
    }
    // Nothing else on the way of a request's field to a server keeps it in its line.
    let value = line::one_line(value);
    let is_taken = r.set_field_in(&field.name, &value, command.replace);
    if is_taken {
        Ok(())
    } else {
        Err(refuse(r, field, &value))
    }
}

fn refuse(r: &mut Request, field: &Field, value: &[u8]) -> Flow {
    let parts = [
        b"\"more_set_input_headers\" has no valid value in \"",
        &field.name[..],
        b": ",
        value,
        b"\"",
    ];
    r.log_bytes(LogLevel::Error, &parts.concat());
    Flow::Status(400)
}
