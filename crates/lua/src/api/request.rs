//! The request: line, arguments, body.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{self, HANDLERS, REQUEST};
use crate::run::{Outcome, WaitFor};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::temp::TempFile;
use weir_core::Session;
use weir_http::body::{self, Making, RequestBody};
use weir_http::Request;
use weir_runtime::paths;
use weir_wire::http1::request::Method;

const BODY: u32 = HANDLERS;

pub(super) const OPS: &[OpRow] = &[
    OpRow::request("method", REQUEST, |r, _, answer| answer.text(r.method_name())),
    OpRow::request("set_method", HANDLERS | context::SET | context::HEADER, set_method),
    OpRow::request("http_version", REQUEST, version),
    OpRow::request(
        "is_internal",
        REQUEST,
        |r, _, _| if r.flags.internal { code::TRUE } else { code::FALSE },
    ),
    OpRow::request("uri_args", REQUEST, |r, args, answer| {
        super::encode::write_args(&r.args, args.i, answer)
    }),
    OpRow::request("set_uri_args", HANDLERS | context::SET | context::HEADER, set_uri_args),
    OpRow::any("set_uri", context::ANY, set_uri),
    OpRow::any("read_body", BODY, read_body),
    OpRow::request("discard_body", BODY, discard_body),
    OpRow::request("body_data", REQUEST & !context::SET, body_data),
    OpRow::request("body_file", REQUEST & !context::SET, body_file),
    OpRow::request("post_args", REQUEST & !context::SET, post_args),
    OpRow::request("set_body_data", BODY | context::BALANCER, set_body_data),
    OpRow::request("set_body_file", BODY | context::BALANCER, set_body_file),
    OpRow::request("init_body", BODY | context::SET, init_body),
    OpRow::request("append_body", BODY | context::SET, append_body),
    OpRow::request("finish_body", BODY | context::SET, finish_body),
];

/// The numbers of `ngx.HTTP_…`.
pub(super) const METHODS: &[(i32, Method)] = &[
    (2, Method::Get),
    (4, Method::Head),
    (8, Method::Post),
    (16, Method::Put),
    (32, Method::Delete),
    (64, Method::Mkcol),
    (128, Method::Copy),
    (256, Method::Move),
    (512, Method::Options),
    (1024, Method::Propfind),
    (2048, Method::Proppatch),
    (4096, Method::Lock),
    (8192, Method::Unlock),
    (16384, Method::Patch),
    (32768, Method::Trace),
];

fn set_method(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    match METHODS.iter().find(|m| m.0 == args.i) {
        Some((_, method)) => {
            r.method = *method;
            code::TRUE
        }
        None => answer.raise(format!("unsupported HTTP method: {}", args.i)),
    }
}

fn version(r: &mut Request, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let number = r.version().0;
    answer.number(f64::from(number / 1000) + f64::from(number % 1000) / 10.0)
}

fn set_uri_args(r: &mut Request, args: &Args<'_>, _: &mut Answer) -> i32 {
    r.args.clear();
    // Nothing that would end the line, or the target in it.
    for (at, part) in args.a.split(|b| *b == b' ').enumerate() {
        if at > 0 {
            r.args.extend_from_slice(b"%20");
        }
        let kind = weir_base::escape::EscapeKind::Controls;
        weir_base::escape::escape_uri(&mut r.args, part, kind);
    }
    r.flags.valid_unparsed_uri = false;
    code::TRUE
}

/// `args.i`: 1 with a jump, 2 of any bytes.
fn set_uri(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let jumps = args.i & 1 != 0;
    if state.run.context & (HANDLERS | context::SET | context::HEADER) == 0 {
        return code::FORBIDDEN_NOW;
    }
    if args.i & 2 == 0 {
        if let Some(bad) = args.a.iter().find(|b| **b < b' ' || **b == 0x7f) {
            let mut shown = Vec::new();
            weir_base::escape::escape_log(&mut shown, args.a);
            let shown = String::from_utf8_lossy(&shown);
            return answer.raise(format!(
                "unsafe byte \"0x{bad:02x}\" in uri \"{shown}\" (maybe you want to set the 'binary' argument?)"
            ));
        }
    }
    if jumps && state.run.context & (context::REWRITE | context::SERVER_REWRITE) == 0 {
        let shown = context::shown(state.run.context);
        return answer.raise(format!("API disabled in the context of {shown}"));
    }
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    r.uri.clear();
    r.uri.extend_from_slice(args.a);
    r.flags.valid_unparsed_uri = false;
    r.flags.internal = true;
    if jumps {
        r.flags.uri_changed = true;
        r.flags.internal = true;
        state.run.outcome = Outcome::Jump;
    }
    code::TRUE
}

fn read_body(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if r.body.complete || r.body.is_none() && !r.body.was_announced() {
        return code::TRUE;
    }
    state.wait(WaitFor::Body, answer)
}

fn discard_body(r: &mut Request, _: &Args<'_>, answer: &mut Answer) -> i32 {
    match body::discard(r) {
        Ok(()) => code::TRUE,
        Err(_) => answer.raise("failed to discard request body"),
    }
}

/// Whether the body is there to be looked at.
fn is_read(r: &Request) -> bool {
    r.body.complete
}

fn body_data(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if r.body.file.is_some() || r.body.memory.is_empty() {
        return code::NIL;
    }
    let max = if args.i > 0 { args.i as usize } else { usize::MAX };
    let text = &r.body.memory;
    answer.text(&text[..text.len().min(max)])
}

fn body_file(r: &mut Request, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(file) = r.body.file.as_ref() else { return code::NIL };
    answer.text(paths::bytes(&file.path).as_ref())
}

fn post_args(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if r.discards_body() {
        return code::TABLE;
    }
    if r.body.file.is_some() {
        return answer.fail("request body in temp file not supported");
    }
    if !is_read(r) && r.body.was_announced() {
        return answer
            .raise("no request body found; maybe you should turn on lua_need_request_body?");
    }
    let text = std::mem::take(&mut r.body.memory);
    let done = super::encode::write_args(&text, args.i, answer);
    r.body.memory = text;
    done
}

/// Gives the request another body.
fn put(r: &mut Request, made: RequestBody) {
    let length = made.length.to_string();
    r.remove_fields_in(|name| name.eq_ignore_ascii_case(b"Transfer-Encoding"));
    r.set_field_in(b"Content-Length", length.as_bytes(), false);
    body::put(r, made);
}

fn set_body_data(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(e) = unread(r) {
        return answer.raise(e);
    }
    put(r, RequestBody::made(args.a.to_vec(), None));
    code::TRUE
}

/// Why the body cannot be replaced.
fn unread(r: &Request) -> Option<&'static str> {
    if r.discards_body() {
        return Some("request body already discarded asynchronously");
    }
    // Who reads it as a socket has it.
    let is_there = is_read(r) || !r.body.was_announced() || super::udp::is_socket(r);
    (!is_there).then_some("request body not read yet")
}

fn set_body_file(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(e) = unread(r) {
        return answer.raise(e);
    }
    let path = paths::path(args.a);
    let opened = std::fs::File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
    match opened {
        Ok((length, file)) => {
            let file = Rc::new(match args.i {
                1 => TempFile::of(file, path.into_owned()),
                _ => TempFile::lent(file, path.into_owned()),
            });
            put(r, RequestBody::made(Vec::new(), Some((file, length))));
            code::TRUE
        }
        Err(e) => {
            let shown = String::from_utf8_lossy(args.a);
            let why = weir_conf::messages::os_error(&e);
            let text = format!("open() \"{shown}\" failed ({why})");
            r.log(LogLevel::Crit, &text);
            answer.raise(text)
        }
    }
}

/// A body that Lua makes piece by piece; `args.i` bytes of it in memory, or as many as are usual.
fn init_body(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(e) = unread(r) {
        return answer.raise(e);
    }
    let made = Making::new(r, u64::try_from(args.i).ok());
    r.set_ctx(made);
    code::TRUE
}

fn append_body(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(mut made) = r.take_ctx::<Making>() else {
        return answer.raise("request_body not initialized");
    };
    match made.append(r, args.a) {
        Ok(()) => {
            r.put_ctx(made);
            code::TRUE
        }
        Err(_) => answer.raise("a temporary file for a request body failed"),
    }
}

fn finish_body(r: &mut Request, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(made) = r.take_ctx::<Making>() else {
        return answer.raise("request_body not initialized");
    };
    match made.finish(r) {
        Ok(made) => {
            put(r, made);
            code::TRUE
        }
        Err(_) => answer.raise("a temporary file for a request body failed"),
    }
}
