//! nginx's `ngx_http_memcached_module`: answers are values that memcached has.
//!
//! Difference from nginx: `memcached_pass` may contain variables.

use crate::conf::{next, BackendConf, BackendLoc};
use crate::family::{self, conf_of, Family, Wire};
use crate::rows::{self, PASS};
use crate::run::Ask;
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
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    Val,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;
use weir_wire::memcached;

#[derive(Default)]
pub struct MemcachedLoc {
    pub(crate) backend: BackendLoc,
    /// `$memcached_key`
    key: Val<Option<Arc<Template>>>,
    pub gzip_flag: Val<u64>,
}

impl BackendConf for MemcachedLoc {
    const FAMILY: &'static Family = &FAMILY;

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

pub static FAMILY: Family = Family {
    name: "memcached",
    ssl: "",
    wire: Wire::Memcached,
    schemes: Schemes {
        plain: "memcached://",
        tls: None,
        required: false,
        ports: (0, 0),
        uri: false,
    },
    hidden: &[b"Status"],
    buffers: false,
    conf: conf_of::<MemcachedLoc>,
    write,
    key: family::no_key,
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
        |cf, d| {
            let v = d.num(0)?;
            cf.get::<MemcachedLoc>().gzip_flag.once(d, v)
        },
    ),
];

pub const MODULE: HttpModule = HttpModule {
    name: "memcached",
    rows: ROWS,
    slots: &[family::slot::<MemcachedLoc>()],
    build: Some(crate::conf::build::<MemcachedLoc>),
    ..HttpModule::EMPTY
};

/// What it has in common with other backends.
pub const COMMON: [HttpModule; 1] =
    [family::rows_of("memcached", peer_rows!(MemcachedLoc, "memcached_", NEXT))];

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
    family::handler::<MemcachedLoc>(r)
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

/// The key that the request in the exchange asks for.
pub fn asked_key(request: &[u8]) -> &[u8] {
    let key = request.strip_prefix(b"get ").unwrap_or_default();
    key.strip_suffix(b"\r\n").unwrap_or_default()
}
