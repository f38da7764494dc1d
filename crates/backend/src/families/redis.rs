//! The module ngx_http_redis: answers are values that Redis has.
//!
//! Words go out with their lengths, so that none of their bytes means anything. Each request says again which
//! database it means, and with which password: a kept connection may have been another's before.

use crate::ask::Ask;
use crate::bits::next;
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::link::decoder::Wrapping;
use crate::rows::{self, Rows, PASS};
use crate::run;
use crate::target::Schemes;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::conf::CoreLoc;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::{special, Flow, Request};
use weir_module::first::num;
use weir_module::{
    joined_rows, merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Directive,
    Level, Row, Val,
};
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;
use weir_wire::redis::{self, Decoder};

#[derive(Default)]
pub(crate) struct RedisLoc {
    backend: BackendLoc,
    gzip_flag: Val<u64>,
}

impl BackendConf for RedisLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "redis_";
    const NEXT: &'static Words = NEXT;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for RedisLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RedisLoc) -> ConfResult {
        merge_values!(self, parent; gzip_flag = 0);
        let b = &mut self.backend;
        b.buffering.set(false);
        b.intercept_errors.set(true);
        b.merge(&parent.backend, &FAMILY)?;
        b.intercept_404 = true;
        b.own_body = true;
        b.merge_pass(&parent.backend);
        Ok(())
    }
}

static FAMILY: Family = Family {
    name: "redis",
    ssl: "",
    schemes: Schemes { plain: "redis://", tls: None, required: false, ports: (0, 0), uri: false },
    hidden: &[b"Status"],
    buffers: false,
    write,
    start: Start::Cgi,
    key: None,
    ways: Ways { wrapping: Some(value), ..Ways::PLAIN },
};

const NEXT: &Words = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_response", next::INVALID_HEADER),
    ("not_found", next::HTTP_404),
    ("off", next::OFF),
];

const ROWS: &[Row] = &[
    Row::new(
        "redis_pass",
        PASS,
        Arity::ONE,
        "",
        "Answers with the value that Redis has for $redis_key in the database $redis_db, with the password $redis_auth.",
        set_pass,
    )
    .note(
        "a variable may also name a server that no upstream has; other locations whose requests go over the same \
         kept connections (redis2_pass) find the database selected that was asked last",
    ),
    Row::new(
        "redis_gzip_flag",
        Context::HSL,
        Arity::ONE,
        "0",
        "Whether values are compressed (Content-Encoding: gzip): any number but 0.",
        set!(Cf::get::<RedisLoc>, gzip_flag, num),
    ),
];

/// `redis_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(ROWS, Rows::<RedisLoc>::PEER,),
    variables: VARIABLES,
    ..conf::module::<RedisLoc>()
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    rows::set_pass::<RedisLoc>(cf, d)?;
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

/// What `set` has said.
#[derive(Default)]
struct Vars([Option<Vec<u8>>; 3]);

const KEY: usize = 0;
const DB: usize = 1;
const AUTH: usize = 2;

const VARIABLES: &[Variable] = &[
    Variable::new("redis_key", get_var::<KEY>).settable(set_var::<KEY>),
    Variable::new("redis_db", get_var::<DB>).settable(set_var::<DB>),
    Variable::new("redis_auth", get_var::<AUTH>).settable(set_var::<AUTH>),
];

fn get_var<const N: usize>(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let value = r.kept::<Vars>().and_then(|vars| vars.0[N].as_ref());
    value.inspect(|value| out.extend_from_slice(value)).is_some()
}

fn set_var<const N: usize>(r: &mut Request, _: &VarArg, value: &[u8]) {
    let value = Some(value.to_vec());
    if let Some(vars) = r.kept::<Vars>() {
        vars.0[N] = value;
        return;
    }
    let mut vars = Vars::default();
    vars.0[N] = value;
    r.keep_state(vars);
}

/// A variable that is not empty.
fn var(r: &mut Request, n: usize) -> Option<Vec<u8>> {
    r.kept::<Vars>().and_then(|vars| vars.0[n].clone()).filter(|value| !value.is_empty())
}

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    special::set_content_type(r);
    run::handler::<RedisLoc>(r)
}

/// What the answer's reader is to know of the commands.
struct Asked {
    /// Those before the one for the value.
    before: u8,
    key: Vec<u8>,
}

fn write(r: &mut Request, _: &Ask) -> Result<bool, u16> {
    let Some(text) = var(r, KEY) else {
        r.log(LogLevel::Error, "the \"$redis_key\" variable is not set");
        return Err(500);
    };
    let mut key = Vec::with_capacity(text.len());
    escape_uri(&mut key, &text, EscapeKind::Memcached);
    let db = var(r, DB).unwrap_or_else(|| b"0".to_vec());
    let password = var(r, AUTH);
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    redis::write_get(password.as_deref(), &db, &key, &mut out);
    r.exchange.request = out;
    r.set_ctx(Asked { before: 1 + u8::from(password.is_some()), key });
    Ok(r.method == Method::Head)
}

/// An answer in Redis' replies.
struct Value {
    decoder: Decoder,
    key: Vec<u8>,
    /// What is to be noted has been.
    noted: bool,
}

fn value(r: &Request, _: &[u8]) -> Box<dyn Wrapping> {
    let conf = r.loc().conf::<RedisLoc>();
    let line_max_bytes = usize::try_from(*conf.backend.buffer_size).unwrap_or(usize::MAX);
    let (before, key) =
        r.ctx_ref::<Asked>().map_or((1, Vec::new()), |asked| (asked.before, asked.key.clone()));
    let decoder = Decoder::new(before, *conf.gzip_flag != 0, line_max_bytes);
    Box::new(Value { decoder, key, noted: false })
}

impl Wrapping for Value {
    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        let shown = String::from_utf8_lossy(&self.key);
        self.decoder.decode(buf, from).map_err(|e| format!("{e} for key \"{shown}\""))
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
            return Some((true, "redis sent invalid trailer".to_string()));
        }
        let key = String::from_utf8_lossy(&self.key);
        Some((false, format!("key: \"{key}\" was not found by redis")))
    }
}
