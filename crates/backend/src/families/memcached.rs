//! nginx's `ngx_http_memcached_module`: answers are values that memcached has.
//!
//! Difference from nginx: `memcached_pass` may contain variables.

use crate::ask::Ask;
use crate::bits::next;
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::link::decoder::Wrapping;
use crate::rows::Rows;
use crate::rows::{self, PASS};
use crate::run;
use crate::target::Schemes;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::conf::CoreLoc;
use weir_http::module::HttpModule;
use weir_http::vars::template_of;
use weir_http::{special, Flow, Request};
use weir_module::first::num;
use weir_module::{
    joined_rows, merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Directive,
    Level, Row, Val,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;
use weir_wire::memcached;

#[derive(Default)]
pub(crate) struct MemcachedLoc {
    backend: BackendLoc,
    /// `$memcached_key`
    key: Val<Option<Arc<Template>>>,
    gzip_flag: Val<u64>,
}

impl BackendConf for MemcachedLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "memcached_";
    const NEXT: &'static Words = NEXT;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for MemcachedLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &MemcachedLoc) -> ConfResult {
        merge_values!(self, parent; key = None, gzip_flag = 0);
        let b = &mut self.backend;
        b.buffering.set(false);
        b.force_ranges.set(true);
        b.intercept_errors.set(true);
        b.merge(&parent.backend, &FAMILY)?;
        b.intercept_404 = true;
        b.own_body = true;
        b.merge_pass(&parent.backend);
        Ok(())
    }
}

pub(crate) static FAMILY: Family = Family {
    name: "memcached",
    ssl: "",
    schemes: Schemes {
        plain: "memcached://",
        tls: None,
        required: false,
        ports: (0, 0),
        uri: false,
    },
    hidden: &[b"Status"],
    buffers: false,
    write,
    start: Start::Cgi,
    key: None,
    ways: Ways { wrapping: Some(value), ..Ways::PLAIN },
};

const NEXT: &[(&str, u32)] = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_response", next::INVALID_HEADER),
    ("not_found", next::HTTP_404),
    ("off", next::OFF),
];

const ROWS: &[Row] = &[
    Row::new(
        "memcached_pass",
        PASS,
        Arity::ONE,
        "",
        "Answers with the value that memcached has for $memcached_key.",
        set_pass,
    )
    .note(
        "may contain variables; a host that is not found is a warning, and a 502 until it is found",
    ),
    Row::new(
        "memcached_gzip_flag",
        Context::HSL,
        Arity::ONE,
        "0",
        "The bit of a value's flags that says it is compressed.",
        set!(Cf::get::<MemcachedLoc>, gzip_flag, num),
    ),
];

/// `memcached_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(ROWS, Rows::<MemcachedLoc>::PEER, Rows::<MemcachedLoc>::TENGINE),
    ..conf::module::<MemcachedLoc>()
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    rows::set_pass::<MemcachedLoc>(cf, d)?;
    let core = cf.get::<CoreLoc>();
    core.handler = Some(handler);
    let key = Some(Arc::new(template_of(cf, d, 0, b"$memcached_key")?));
    cf.get::<MemcachedLoc>().key.set(key);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    special::set_content_type(r);
    run::handler::<MemcachedLoc>(r)
}

/// The key as memcached is asked for it.
fn key(r: &mut Request) -> Vec<u8> {
    let loc = Rc::clone(r.loc());
    let text = loc.conf::<MemcachedLoc>().key.as_ref().map(|t| r.eval(t)).unwrap_or_default();
    let mut key = Vec::with_capacity(text.len());
    escape_uri(&mut key, &text, EscapeKind::Memcached);
    key
}

fn write(r: &mut Request, _: &Ask) -> Result<bool, u16> {
    let key = key(r);
    if key.is_empty() {
        r.log(LogLevel::Error, "the \"$memcached_key\" variable is not set");
        return Err(500);
    }
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    memcached::write_get(&key, &mut out);
    r.exchange.request = out;
    Ok(r.method == Method::Head)
}

/// An answer in memcached's lines.
struct Value {
    decoder: memcached::Decoder,
    /// What is to be noted has been.
    noted: bool,
}

fn value(r: &Request, request: &[u8]) -> Box<dyn Wrapping> {
    let conf = r.loc().conf::<MemcachedLoc>();
    let line_max_bytes = usize::try_from(*conf.backend.buffer_size).unwrap_or(usize::MAX);
    let decoder = memcached::Decoder::new(asked_key(request), *conf.gzip_flag, line_max_bytes);
    Box::new(Value { decoder, noted: false })
}

impl Wrapping for Value {
    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        self.decoder.decode(buf, from).map_err(|e| e.to_string())
    }

    fn has_ended(&self) -> bool {
        self.decoder.has_ended()
    }

    fn may_go_on(&self) -> bool {
        self.decoder.has_ended() && !self.decoder.bad_end && !self.decoder.excess
    }

    fn take_note(&mut self) -> Option<(bool, String)> {
        let is_any = self.decoder.missing || self.decoder.bad_end;
        if !is_any || std::mem::replace(&mut self.noted, true) {
            return None;
        }
        if self.decoder.bad_end {
            return Some((true, "memcached sent invalid trailer".to_string()));
        }
        let key = String::from_utf8_lossy(&self.decoder.key);
        Some((false, format!("key: \"{key}\" was not found by memcached")))
    }
}

/// The key that the request asks for.
fn asked_key(request: &[u8]) -> &[u8] {
    let key = request.strip_prefix(b"get ").unwrap_or_default();
    key.strip_suffix(b"\r\n").unwrap_or_default()
}
