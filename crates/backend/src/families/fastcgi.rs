//! nginx's `ngx_http_fastcgi_module`: requests are passed to FastCGI servers (PHP-FPM and others).
//!
//! Differences from nginx: an answer is complete with the record that ends it, also where it is not
//! buffered; a kept connection is used again only when nothing but that answer has come on it.

use crate::ask::Ask;
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::family::{Aside, Family, Ways, HIDDEN_CGI};
use crate::link::decoder::{self, Wrapping};
use crate::params::{set_param, Params};
use crate::rows::Rows;
use crate::rows::{self, push, NEXT_CGI, PASS};
use crate::target::Schemes;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::Request;
use weir_module::first::{bytes, flag};
use weir_module::{
    joined_rows, merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level,
    Row, Val,
};
use weir_script::regex::{Captures, Regex, RegexOptions};
use weir_wire::fastcgi::{self, RequestWriter, TooBig};
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;

#[derive(Default)]
pub(crate) struct FastcgiLoc {
    backend: BackendLoc,
    params: Params,
    /// What a script's name ending in `/` is completed by.
    index: Val<Vec<u8>>,
    split: Val<Option<Arc<Regex>>>,
    catch_stderr: Val<Arc<Vec<Vec<u8>>>>,
    keep_conn: Val<bool>,
}

impl BackendConf for FastcgiLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "fastcgi_";
    const NEXT: &'static Words = NEXT_CGI;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for FastcgiLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &FastcgiLoc) -> ConfResult {
        merge_values!(self, parent;
            index = Vec::new(),
            split = None,
            catch_stderr = Arc::default(),
            keep_conn = false,
        );
        self.backend.merge(&parent.backend, &FAMILY)?;
        self.backend.streams_unmeasured = true;
        self.backend.own_body = !*self.backend.pass_request_body;
        self.backend.merge_pass(&parent.backend);
        self.params.merge(&parent.params, &mut self.backend.cache);
        Ok(())
    }
}

pub(crate) static FAMILY: Family = Family {
    name: "fastcgi",
    ssl: "",
    schemes: Schemes { plain: "fastcgi://", tls: None, required: false, ports: (0, 0), uri: false },
    hidden: HIDDEN_CGI,
    buffers: true,
    write,
    start: Start::Cgi,
    key: None,
    ways: Ways {
        wrapping: Some(records),
        aside: Some(Aside { log: log_stderr, is_fatal: catches }),
        frame: Some(write_stdin),
        ..Ways::PLAIN
    },
};

const HSL: Context = Context::HSL;

const ROWS: &[Row] = &[
    Row::new(
        "fastcgi_pass",
        PASS,
        Arity::ONE,
        "",
        "Passes requests to a FastCGI server.",
        rows::set_pass::<FastcgiLoc>,
    )
    .note("a host that is not found is a warning, and a 502 until it is found"),
    Row::new(
        "fastcgi_param",
        HSL,
        Arity::TWO_THREE,
        "",
        "A parameter of requests; if_not_empty leaves it out when it is empty.",
        |cf, d| set_param(cf, d, |cf| &mut cf.get::<FastcgiLoc>().params),
    ),
    Row::new(
        "fastcgi_index",
        HSL,
        Arity::ONE,
        "",
        "Completes a script's name that ends in a slash.",
        set!(Cf::get::<FastcgiLoc>, index, bytes),
    ),
    Row::new(
        "fastcgi_split_path_info",
        HSL,
        Arity::ONE,
        "",
        "An expression whose groups are the script's name and the path behind it.",
        |cf, d| {
            let regex = Regex::new(d.arg(0), RegexOptions::default())
                .map_err(|e| d.bad(0, e.to_string()))?;
            if regex.captures_len() != 3 {
                let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
                return Err(d.bad(0, format!("pattern \"{shown}\" must have 2 captures")));
            }
            cf.get::<FastcgiLoc>().split.set(Some(Arc::new(regex)));
            Ok(())
        },
    )
    .note("A match that is given up at a limit ends the request with 500; nginx passes empty names on."),
    Row::new(
        "fastcgi_catch_stderr",
        HSL,
        Arity::ONE,
        "",
        "A text on standard error that makes the answer invalid.",
        |cf, d| {
            push(&mut cf.get::<FastcgiLoc>().catch_stderr, d.arg(0).to_vec());
            Ok(())
        },
    )
    .note(
        "Standard error of several lines is one line of the error log, with \\x0A for each line's \
         end, so that a program cannot write lines that seem to be the server's; nginx writes the \
         ends as they are.",
    ),
    Row::new(
        "fastcgi_keep_conn",
        HSL,
        Arity::FLAG,
        "off",
        "Asks the server to leave the connection open.",
        set!(Cf::get::<FastcgiLoc>, keep_conn, flag),
    ),
    Row::new(
        "fastcgi_send_lowat",
        HSL,
        Arity::ONE,
        "0",
        "Least free send buffer for the request.",
        |_, d| d.size(0).map(drop),
    ).once()
    .note("Linux has no SO_SNDLOWAT; nginx ignores it there too"),
];

static VARIABLES: &[Variable] = &[
    Variable::new("fastcgi_script_name", script_name),
    Variable::new("fastcgi_path_info", path_info),
];

/// `fastcgi_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        ROWS,
        Rows::<FastcgiLoc>::PEER,
        Rows::<FastcgiLoc>::TENGINE,
        Rows::<FastcgiLoc>::SOCKET,
        Rows::<FastcgiLoc>::HEADER,
        Rows::<FastcgiLoc>::BUFFER,
        Rows::<FastcgiLoc>::CACHE,
    ),
    variables: VARIABLES,
    ..conf::module::<FastcgiLoc>()
};

fn write(r: &mut Request, ask: &Ask) -> Result<bool, u16> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<FastcgiLoc>();
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    let mut writer = RequestWriter::new(&mut out, *conf.keep_conn);
    let fields = *conf.backend.pass_request_headers;
    conf.params.plan(ask.cached).write(r, fields, |name, value| writer.param(name, value));
    let written = writer.finish();
    r.exchange.request = out;
    match written {
        Ok(()) => Ok(r.method == Method::Head),
        Err(TooBig(len)) => {
            let text = format!("fastcgi request record is too big: {len}");
            r.log(LogLevel::Alert, &text);
            Err(500)
        }
    }
}

/// The script's name and the path behind it, as parts of the URI.
fn split(r: &Request) -> (&[u8], &[u8]) {
    let Some(regex) = &*r.loc().conf::<FastcgiLoc>().split else { return (&r.uri, b"") };
    let mut found = Captures::default();
    let hit = regex.exec(&r.uri, &mut found);
    if !matches!(r.judge_match(hit, regex, &r.uri), Ok(true)) {
        return (&r.uri, b"");
    }
    let part = |n| found.range(n).and_then(|range| r.uri.get(range)).unwrap_or_default();
    (part(1), part(2))
}

fn script_name(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let (name, _) = split(r);
    out.extend_from_slice(name);
    if name.last() == Some(&b'/') {
        out.extend_from_slice(&r.loc().conf::<FastcgiLoc>().index);
    }
    true
}

fn path_info(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(split(r).1);
    true
}

/// An answer in records.
struct Records {
    decoder: fastcgi::Decoder,
    /// The connection is to be kept.
    keep: bool,
}

fn records(r: &Request, _: &[u8]) -> Box<dyn Wrapping> {
    let keep = *r.loc().conf::<FastcgiLoc>().keep_conn;
    Box::new(Records { decoder: fastcgi::Decoder::default(), keep })
}

impl Wrapping for Records {
    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        self.decoder.decode(buf, from).map_err(|e| e.to_string())
    }

    fn holds_process(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        self.decoder.ended
    }

    fn may_go_on(&self) -> bool {
        self.keep && self.decoder.ended && !self.decoder.excess
    }

    fn keeps(&self) -> bool {
        self.keep
    }

    fn ended_early(&self) -> Option<&'static str> {
        match &self.decoder {
            d if d.closed => Some("upstream prematurely closed FastCGI stdout"),
            d if d.ending => Some("upstream sent unexpected FastCGI record: 3"),
            _ => None,
        }
    }

    fn take_aside(&mut self) -> decoder::Aside {
        std::mem::take(&mut self.decoder.errors)
    }
}

/// A piece of a body as records of standard input.
fn write_stdin(bytes: &[u8], last: bool, out: &mut Vec<u8>) {
    fastcgi::write_stdin(bytes, out);
    if last {
        fastcgi::write_stdin_end(out);
    }
}

fn log_stderr(r: &Request, text: &[u8], doing: &str) {
    let mut line = b"FastCGI sent in stderr: \"".to_vec();
    line.extend_from_slice(trimmed(text));
    line.extend_from_slice(b"\" while ");
    line.extend_from_slice(doing.as_bytes());
    r.log_bytes(LogLevel::Error, &line);
}

/// What a server wrote on standard error, without the end of its last line.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| !matches!(b, b'\r' | b'\n' | b'.' | b' '));
    &text[..end.map_or(1.min(text.len()), |at| at + 1)]
}

/// Whether `fastcgi_catch_stderr` names a part of this.
fn catches(r: &Request, text: &[u8]) -> bool {
    let text = trimmed(text);
    let patterns = &r.loc().conf::<FastcgiLoc>().catch_stderr;
    patterns.iter().any(|p| memchr::memmem::find(text, p).is_some())
}
