//! `xss_get`: answers as a call of the function that the client names, JSONP (OpenResty's xss).
//!
//! What the client names must look like a function's name, so that no other script comes of it.

use std::rc::Rc;
use std::sync::Arc;
use weir_base::escape::{unescape_uri, Unescape};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::core_vars::query_arg;
use weir_http::module::{Filter, FilterResult, HttpModule, Next, Reach};
use weir_http::{Buf, Chain, Request};
use weir_module::first::{bytes, flag};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Val,
};
use weir_wire::http1::request::Method;

const INPUT_TYPE: &[u8] = b"application/json";

#[derive(Default)]
struct XssLoc {
    on: Val<bool>,
    callback_arg: Val<Vec<u8>>,
    check_status: Val<bool>,
    override_status: Val<bool>,
    /// In lower case; `*` is any.
    input_types: Val<Arc<Vec<Vec<u8>>>>,
    output_type: Val<Vec<u8>>,
}

impl ConfType for XssLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &XssLoc) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            callback_arg = Vec::new(),
            check_status = true,
            override_status = true,
            input_types = Arc::new(vec![INPUT_TYPE.to_vec()]),
            output_type = b"application/x-javascript".to_vec(),
        );
        Ok(())
    }
}

const CONTEXTS: Context = Context::HSL.or(Context::LIF);

const ROWS: &[Row] = &[
    Row::new(
        "xss_get",
        CONTEXTS,
        Arity::FLAG,
        "off",
        "Whether answers to GET are made calls of the function that the client names.",
        set!(Cf::get::<XssLoc>, on, flag),
    ),
    Row::new(
        "xss_callback_arg",
        CONTEXTS,
        Arity::ONE,
        "",
        "The argument of the URI that has the function's name.",
        set!(Cf::get::<XssLoc>, callback_arg, bytes),
    ),
    Row::new(
        "xss_check_status",
        CONTEXTS,
        Arity::FLAG,
        "on",
        "Whether only answers with 200 or 201 are made calls.",
        set!(Cf::get::<XssLoc>, check_status, flag),
    ),
    Row::new(
        "xss_override_status",
        CONTEXTS,
        Arity::FLAG,
        "on",
        "Whether a status of 300 and more becomes 200 in such an answer.",
        set!(Cf::get::<XssLoc>, override_status, flag),
    ),
    Row::new(
        "xss_input_types",
        CONTEXTS,
        Arity::ONE_MORE,
        "application/json",
        "MIME types of the answers that are made calls, besides application/json.",
        set_types,
    ),
    Row::new(
        "xss_output_type",
        CONTEXTS,
        Arity::ONE,
        "application/x-javascript",
        "The MIME type of such an answer.",
        set!(Cf::get::<XssLoc>, output_type, bytes),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<XssLoc>()],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| *slots.get::<XssLoc>().on,
        reach: Reach::Main,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

fn set_types(cf: &mut Cf, d: &Directive) -> ConfResult {
    let given = (0..d.args.len()).map(|at| d.arg(at).to_ascii_lowercase());
    let types: Vec<_> = std::iter::once(INPUT_TYPE.to_vec()).chain(given).collect();
    cf.get::<XssLoc>().input_types.once(d, Arc::new(types))
}

/// An answer that becomes a call of this function.
struct Call {
    name: Vec<u8>,
    begun: bool,
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<XssLoc>();
    let Some(name) = callback(r, conf) else { return next.header(r) };
    r.set_ctx(Call { name, begun: false });
    r.whole = None;
    r.out.set_content_type(&conf.output_type);
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    r.flags.allow_ranges = false;
    if *conf.override_status && r.out.status >= 300 {
        r.out.status = 200;
        r.out.clear_status_line();
    }
    next.header(r)
}

/// The function that the answer is to call, if any.
fn callback(r: &Request, conf: &XssLoc) -> Option<Vec<u8>> {
    if r.method != Method::Get || *conf.check_status && !matches!(r.out.status, 200 | 201) {
        return None;
    }
    if conf.callback_arg.is_empty() {
        let text = "xss: xss_get is enabled but no xss_callback_arg specified";
        r.log(LogLevel::Error, text);
        return None;
    }
    let kind = r.out.content_type()?;
    let kind = kind.split(|b| *b == b';').next().unwrap_or_default().trim_ascii_end();
    if !conf.input_types.iter().any(|t| *t == b"*" || t.eq_ignore_ascii_case(kind)) {
        return None;
    }
    let value = query_arg(&r.args, &conf.callback_arg)?;
    let mut name = Vec::new();
    unescape_uri(&mut name, value, Unescape::Plain);
    if !is_function(&name) {
        let shown = String::from_utf8_lossy(&name);
        r.log(LogLevel::Error, &format!("xss: bad callback argument: \"{shown}\""));
        return None;
    }
    Some(name)
}

/// `a`, `a.b` or `a.b[1]`: names with dots between them, and perhaps a number's place at the end.
pub fn is_function(text: &[u8]) -> bool {
    let (names, place) = match text.iter().position(|b| *b == b'[') {
        None => (text, None),
        Some(at) => (&text[..at], Some(&text[at..])),
    };
    let is_letter = |b: &u8| b.is_ascii_alphabetic() || matches!(b, b'$' | b'_');
    let mut names = names.split(|b| *b == b'.');
    let are_names = names.all(|name| {
        name.first().is_some_and(is_letter)
            && name.iter().all(|b| is_letter(b) || b.is_ascii_digit())
    });
    are_names && place.is_none_or(is_place)
}

/// `[12]`, or `[1.5]`.
fn is_place(text: &[u8]) -> bool {
    let number = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]"));
    let Some(number) = number else { return false };
    let point = number.iter().position(|b| *b == b'.');
    let (whole, last) = number.split_at(point.map_or(0, |at| at + 1));
    let whole = whole.strip_suffix(b".").unwrap_or(whole);
    !last.is_empty() && whole.iter().chain(last).all(u8::is_ascii_digit)
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(call) = r.ctx::<Call>() else { return next.body(r, chain) };
    let mut out = Chain::new();
    if !std::mem::replace(&mut call.begun, true) {
        let mut begin = std::mem::take(&mut call.name);
        begin.push(b'(');
        out.push(Buf::mem(begin));
    }
    if r.flags.header_only {
        return next.body(r, chain);
    }
    let is_last = chain.has_last();
    for mut buf in chain {
        buf.last = false;
        if !buf.is_empty() || buf.flush {
            out.push(buf);
        }
    }
    if is_last {
        out.push(Buf::mem(&b");"[..]).and_last());
        r.take_ctx::<Call>();
    }
    next.body(r, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_are_called() {
        for name in
            ["a", "$", "_x1", "a.b", "jQuery.cb", "a[1]", "a.b[12]", "a1$_", "a[.5]", "a[1.25]"]
        {
            assert!(is_function(name.as_bytes()), "{name}");
        }
        for name in [
            "", "1a", "a(", "a;b", "a b", "a.", ".a", "a..b", "a[", "a.1", "a[]", "a[1.]",
            "a[1.2.3]", "a[x]", "a[1]b", "a[1](", "a\n", "a<b", "[1]", "\u{e4}",
        ] {
            assert!(!is_function(name.as_bytes()), "{name}");
        }
    }
}
