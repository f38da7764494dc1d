//! OpenResty's memc module: memcached's commands by variables, or by the request's method.
//!
//! Keys go out as URIs do, so that none of their bytes ends a line, and numbers are looked at before they
//! do: what a client says is never a command of its own.

use crate::ask::Ask;
use crate::bits::next;
use crate::conf::{self, conf_of, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::link::decoder::Wrapping;
use crate::link::Link;
use crate::rows::{self, pick, Rows, PASS};
use crate::run;
use crate::target::Schemes;
use crate::upload::OwnBody;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::conf::CoreLoc;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::{special, Flow, Request};
use weir_module::first::flag;
use weir_module::{
    joined_rows, merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context,
    Directive, Level, Row, Val,
};
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;
use weir_wire::memc::{Command, Reply, KEY_MAX_BYTES};
use weir_wire::memcached::{Decoder, FLAGS_FIELD};

#[derive(Default)]
pub(crate) struct MemcLoc {
    backend: BackendLoc,
    /// `memc_cmds_allowed`; all where it is not said.
    allowed: Val<Option<Arc<Vec<Command>>>>,
    flags_to_last_modified: Val<bool>,
}

impl BackendConf for MemcLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "memc_";
    const NEXT: &'static Words = NEXT;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for MemcLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &MemcLoc) -> ConfResult {
        merge_values!(self, parent; allowed = None, flags_to_last_modified = false);
        let b = &mut self.backend;
        b.buffering.set(false);
        b.intercept_errors.set(true);
        b.merge(&parent.backend, &FAMILY)?;
        b.intercept_404 = true;
        b.compares_conditions = *self.flags_to_last_modified;
        b.merge_pass(&parent.backend);
        Ok(())
    }
}

static FAMILY: Family = Family {
    name: "memc",
    ssl: "",
    schemes: Schemes {
        plain: "memcached://",
        tls: None,
        required: false,
        ports: (0, 0),
        uri: false,
    },
    hidden: &[b"Status", FLAGS_FIELD],
    buffers: false,
    write,
    start: Start::Cgi,
    key: None,
    ways: Ways {
        wrapping: Some(answer),
        frame: Some(end_of_command),
        frames_end_only: true,
        head_came: Some(head_came),
        ..Ways::PLAIN
    },
};

const NEXT: &Words = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_response", next::INVALID_HEADER),
    ("not_found", next::HTTP_404),
    ("off", next::OFF),
];

const HSLI: Context = Context::HSL.or(Context::LIF);

const ROWS: &[Row] = &[
    Row::new(
        "memc_pass",
        PASS,
        Arity::ONE,
        "",
        "Has memcached do what $memc_cmd says, with $memc_key, $memc_value, $memc_flags and $memc_exptime.",
        set_pass,
    )
    .note(
        "a key that memcached would refuse for its length (over 250 bytes once escaped) is refused here with 400; \
         a variable may also name a server that no upstream has",
    ),
    Row::new(
        "memc_cmds_allowed",
        HSLI,
        Arity::ONE_MORE,
        "",
        "The commands that may be given; others are answered with 403.",
        set_allowed,
    ),
    Row::new(
        "memc_flags_to_last_modified",
        HSLI,
        Arity::FLAG,
        "off",
        "A value's flags are when it was last modified.",
        set!(Cf::get::<MemcLoc>, flags_to_last_modified, flag),
    ),
    Row::new(
        "memc_ignore_client_abort",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Lets memcached finish when the client goes.",
        set!(pick::<MemcLoc>, ignore_client_abort, flag),
    ),
];

/// `memc_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(ROWS, Rows::<MemcLoc>::PEER,),
    variables: VARIABLES,
    ..conf::module::<MemcLoc>()
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    rows::set_pass::<MemcLoc>(cf, d)?;
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn set_allowed(cf: &mut Cf, d: &Directive) -> ConfResult {
    let known = |i: usize| Command::of(d.arg(i)).ok_or_else(|| d.invalid(i));
    let allowed = (0..d.args.len()).map(known).collect::<ConfResult<Vec<_>>>()?;
    cf.get::<MemcLoc>().allowed.once(d, Some(Arc::new(allowed)))
}

/// What `set` has said of a command, or an answer of its value.
#[derive(Default)]
struct Vars([Option<Vec<u8>>; 5]);

const CMD: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
const FLAGS: usize = 3;
const EXPTIME: usize = 4;

const VARIABLES: &[Variable] = &[
    Variable::new("memc_cmd", get_var::<CMD>).settable(set_var::<CMD>),
    Variable::new("memc_key", get_var::<KEY>).settable(set_var::<KEY>),
    Variable::new("memc_value", get_var::<VALUE>).settable(set_var::<VALUE>),
    Variable::new("memc_flags", get_var::<FLAGS>).settable(set_var::<FLAGS>),
    Variable::new("memc_exptime", get_var::<EXPTIME>).settable(set_var::<EXPTIME>),
];

fn get_var<const N: usize>(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let value = r.kept::<Vars>().and_then(|vars| vars.0[N].as_ref());
    value.inspect(|value| out.extend_from_slice(value)).is_some()
}

fn set_var<const N: usize>(r: &mut Request, _: &VarArg, value: &[u8]) {
    note(r, N, value.to_vec());
}

fn note(r: &mut Request, n: usize, value: Vec<u8>) {
    if let Some(vars) = r.kept::<Vars>() {
        vars.0[n] = Some(value);
        return;
    }
    let mut vars = Vars::default();
    vars.0[n] = Some(value);
    r.keep_state(vars);
}

fn var(r: &mut Request, n: usize) -> Option<Vec<u8>> {
    r.kept::<Vars>().and_then(|vars| vars.0[n].clone())
}

/// The same where an empty one counts as none.
fn some_var(r: &mut Request, n: usize) -> Option<Vec<u8>> {
    var(r, n).filter(|value| !value.is_empty())
}

fn refuse(r: &Request, text: &str, status: u16) -> u16 {
    r.log(LogLevel::Error, text);
    status
}

/// What is to be done.
fn command(r: &mut Request) -> Result<Command, u16> {
    if let Some(name) = some_var(r, CMD) {
        return Command::of(&name).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&name);
            refuse(r, &format!("unknown $memc_cmd \"{shown}\""), 400)
        });
    }
    Ok(match r.method {
        Method::Get | Method::Head => Command::Get,
        Method::Post => Command::Add,
        Method::Put => Command::Set,
        Method::Delete => Command::Delete,
        _ => return Err(refuse(r, "$memc_cmd is not set, and the method says nothing", 400)),
    })
}

fn handler(r: &mut Request) -> Flow {
    let command = match command(r) {
        Ok(command) => command,
        Err(status) => return Flow::Status(status),
    };
    let loc = Rc::clone(r.loc());
    let allowed = &loc.conf::<MemcLoc>().allowed;
    if allowed.as_ref().is_some_and(|list| !list.contains(&command)) {
        let text = format!("memcached command \"{}\" not allowed", command.name());
        return Flow::Status(refuse(r, &text, 403));
    }
    if !command.stores() || var(r, VALUE).is_some() {
        r.set_ctx(OwnBody);
    }
    special::set_content_type(r);
    run::handler::<MemcLoc>(r)
}

/// The key as memcached is told it.
fn key(r: &mut Request) -> Result<Vec<u8>, u16> {
    let Some(text) = some_var(r, KEY) else {
        return Err(refuse(r, "the \"$memc_key\" variable is not set", 500));
    };
    let mut key = Vec::with_capacity(text.len());
    escape_uri(&mut key, &text, EscapeKind::Memcached);
    match key.len() <= KEY_MAX_BYTES && key.iter().all(|b| !b.is_ascii_control() && *b != b' ') {
        true => Ok(key),
        false => Err(refuse(r, "\"$memc_key\" is longer than memcached's keys may be", 400)),
    }
}

/// A variable that is a number of so many bits.
fn number<N: std::str::FromStr>(
    r: &mut Request,
    n: usize,
    name: &str,
) -> Result<Option<Vec<u8>>, u16> {
    let Some(text) = some_var(r, n) else { return Ok(None) };
    let digits = text.iter().all(u8::is_ascii_digit);
    let fits = std::str::from_utf8(&text).is_ok_and(|t| t.parse::<N>().is_ok());
    match digits && fits {
        true => Ok(Some(text)),
        false => {
            let shown = String::from_utf8_lossy(&text);
            let text = format!("variable \"${name}\" takes invalid value: {shown}");
            Err(refuse(r, &text, 400))
        }
    }
}

/// Writes all but the end of the last line, which [`end_of_command`] adds behind the body.
fn write(r: &mut Request, _: &Ask) -> Result<bool, u16> {
    let command = command(r)?;
    let mut out = command.name().as_bytes().to_vec();
    let mut word = |text: &[u8]| {
        out.push(b' ');
        out.extend_from_slice(text);
    };
    if command.has_key() {
        word(&key(r)?);
    }
    if command.stores() {
        let flags = number::<u32>(r, FLAGS, "memc_flags")?;
        let exptime = number::<u32>(r, EXPTIME, "memc_exptime")?;
        word(flags.as_deref().unwrap_or(b"0"));
        word(exptime.as_deref().unwrap_or(b"0"));
        let value = var(r, VALUE);
        let length = match &value {
            Some(value) => value.len() as u64,
            None if r.body.is_none() => {
                let text = "neither the \"$memc_value\" variable nor the request body is available";
                return Err(refuse(r, text, 500));
            }
            None => r.body.length,
        };
        word(length.to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    } else if command.counts() {
        let by = number::<u64>(r, VALUE, "memc_value")?;
        let text = "the \"$memc_value\" variable is required to count";
        word(&by.ok_or_else(|| refuse(r, text, 400))?);
    } else if matches!(command, Command::Delete | Command::FlushAll) {
        if let Some(exptime) = number::<u32>(r, EXPTIME, "memc_exptime")? {
            word(&exptime);
        }
    }
    r.exchange.request = out;
    Ok(r.method == Method::Head && command == Command::Get)
}

fn end_of_command(bytes: &[u8], ended: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    if ended {
        out.extend_from_slice(b"\r\n");
    }
}

/// An answer in memcached's lines.
enum Answer {
    Value { decoder: Box<Decoder>, noted: bool },
    Lines(Reply),
}

fn answer(r: &Request, request: &[u8]) -> Box<dyn Wrapping> {
    let conf = r.loc().conf::<MemcLoc>();
    let most_bytes =
        usize::try_from(*conf_of::<MemcLoc>(r.loc()).buffer_size).unwrap_or(usize::MAX);
    let mut words = request.split(|b| *b == b' ');
    let name = words.next().unwrap_or_default();
    Box::new(match Command::of(name).unwrap_or(Command::Get) {
        Command::Get => {
            let mut decoder = Decoder::new(words.next().unwrap_or_default(), 0, most_bytes);
            decoder.tells_flags = true;
            decoder.flags_are_time = *conf.flags_to_last_modified;
            Answer::Value { decoder: Box::new(decoder), noted: false }
        }
        command => Answer::Lines(Reply::new(command, most_bytes)),
    })
}

impl Wrapping for Answer {
    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        match self {
            Answer::Value { decoder, .. } => decoder.decode(buf, from).map_err(|e| e.to_string()),
            Answer::Lines(reply) => reply.decode(buf, from).map_err(|e| e.to_string()),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Answer::Value { decoder, .. } => decoder.has_ended(),
            Answer::Lines(reply) => reply.done,
        }
    }

    fn may_go_on(&self) -> bool {
        match self {
            Answer::Value { decoder: d, .. } => d.has_ended() && !d.bad_end && !d.excess,
            Answer::Lines(reply) => reply.done && !reply.refused && !reply.excess,
        }
    }

    fn take_note(&mut self) -> Option<(bool, String)> {
        let Answer::Value { decoder, noted } = self else { return None };
        if !(decoder.missing || decoder.bad_end) || std::mem::replace(noted, true) {
            return None;
        }
        if decoder.bad_end {
            return Some((true, "memcached sent invalid trailer".to_string()));
        }
        let key = String::from_utf8_lossy(&decoder.key);
        Some((false, format!("key: \"{key}\" was not found by memcached")))
    }
}

/// `$memc_flags` are those of the value.
fn head_came(r: &mut Request, _: &Link) {
    let bytes = r.exchange.head_bytes();
    let field = r.exchange.head.headers.iter().find(|f| f.name.of(bytes) == FLAGS_FIELD);
    if let Some(flags) = field.map(|f| f.value.of(bytes).to_vec()) {
        note(r, FLAGS, flags);
    }
}
