//! OpenResty's redis2 module: commands for Redis, whose replies are the answer as they come.
//!
//! Words of `redis2_query` go out with their lengths, so that none of their bytes means anything. What a
//! configuration writes itself (`redis2_raw_query`) is counted as Redis would: a connection on which more, or
//! less, is answered than is waited for carries no further request.

use crate::ask::Ask;
use crate::bits::next;
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::link::decoder::Wrapping;
use crate::rows::{self, Rows, PASS};
use crate::run;
use crate::target::Schemes;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::conf::CoreLoc;
use weir_http::module::HttpModule;
use weir_http::vars::template;
use weir_http::{special, Flow, Request};
use weir_module::{
    joined_rows, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Directive, Level, Row,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;
use weir_wire::resp::{self, Replies};

/// What a location asks.
#[derive(Clone)]
enum Query {
    /// `redis2_query`, once or more.
    Words(Vec<Vec<Template>>),
    /// `redis2_raw_query`
    Raw(Template),
    /// `redis2_raw_queries`
    Several(Template, Template),
    /// `redis2_literal_raw_query`
    Literal(Vec<u8>),
}

#[derive(Default)]
pub(crate) struct Redis2Loc {
    backend: BackendLoc,
    query: Option<Arc<Query>>,
}

impl BackendConf for Redis2Loc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "redis2_";
    const NEXT: &'static Words = NEXT;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for Redis2Loc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &Redis2Loc) -> ConfResult {
        if self.query.is_none() {
            self.query.clone_from(&parent.query);
        }
        let b = &mut self.backend;
        b.buffering.set(false);
        b.merge(&parent.backend, &FAMILY)?;
        b.own_body = true;
        b.merge_pass(&parent.backend);
        Ok(())
    }
}

static FAMILY: Family = Family {
    name: "redis2",
    ssl: "",
    schemes: Schemes { plain: "redis2://", tls: None, required: false, ports: (0, 0), uri: false },
    hidden: &[b"Status"],
    buffers: false,
    write,
    start: Start::Cgi,
    key: None,
    ways: Ways { wrapping: Some(answer), ..Ways::PLAIN },
};

const NEXT: &Words = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_response", next::INVALID_HEADER),
    ("off", next::OFF),
];

const ROWS: &[Row] = &[
    Row::new(
        "redis2_pass",
        PASS,
        Arity::ONE,
        "",
        "Answers with what Redis replies, as it comes.",
        set_pass,
    )
    .note("a variable may also name a server that no upstream has"),
    Row::new(
        "redis2_query",
        PASS,
        Arity::ONE_MORE,
        "",
        "A command by its words; several are sent at once.",
        set_query,
    ),
    Row::new(
        "redis2_raw_query",
        PASS,
        Arity::ONE,
        "",
        "One command as Redis is to read it.",
        set_raw,
    )
    .note("text that is more than one command, or none that is whole, is refused with 400"),
    Row::new(
        "redis2_raw_queries",
        PASS,
        Arity::TWO,
        "",
        "A number of commands as Redis is to read them.",
        set_several,
    )
    .note(
        "a last command that is not whole, or more commands than the number says, are refused with 400; \
         with fewer the connection is used for nothing else",
    ),
    Row::new(
        "redis2_literal_raw_query",
        PASS,
        Arity::ONE,
        "",
        "One command as Redis is to read it, in which $ is nothing special.",
        set_literal,
    ),
];

/// `redis2_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(ROWS, Rows::<Redis2Loc>::PEER,),
    ..conf::module::<Redis2Loc>()
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    rows::set_pass::<Redis2Loc>(cf, d)?;
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn set_query(cf: &mut Cf, d: &Directive) -> ConfResult {
    let words = (0..d.args.len()).map(|i| template(cf, d, i)).collect::<ConfResult<Vec<_>>>()?;
    let query = &mut cf.get::<Redis2Loc>().query;
    match query.as_mut().map(Arc::make_mut) {
        Some(Query::Words(all)) => all.push(words),
        Some(_) => return Err(d.error("does not go with a raw query")),
        None => *query = Some(Arc::new(Query::Words(vec![words]))),
    }
    Ok(())
}

fn say(cf: &mut Cf, d: &Directive, query: Query) -> ConfResult {
    let conf = cf.get::<Redis2Loc>();
    if conf.query.is_some() {
        return Err(d.error("is duplicate, or there is another query"));
    }
    conf.query = Some(Arc::new(query));
    Ok(())
}

fn set_raw(cf: &mut Cf, d: &Directive) -> ConfResult {
    let query = Query::Raw(template(cf, d, 0)?);
    say(cf, d, query)
}

fn set_several(cf: &mut Cf, d: &Directive) -> ConfResult {
    let query = Query::Several(template(cf, d, 0)?, template(cf, d, 1)?);
    say(cf, d, query)
}

fn set_literal(cf: &mut Cf, d: &Directive) -> ConfResult {
    if resp::commands(d.arg(0)).is_none_or(|found| found.count != 1) {
        return Err(d.bad(0, "it must be one whole command"));
    }
    say(cf, d, Query::Literal(d.arg(0).to_vec()))
}

/// What the answer's reader is to know of the commands.
struct Asked {
    replies: u64,
    /// Nothing else will come.
    keeps: bool,
}

fn handler(r: &mut Request) -> Flow {
    if r.loc().conf::<Redis2Loc>().query.is_none() {
        r.log(LogLevel::Error, "no redis2 query is configured for the location");
        return Flow::Status(500);
    }
    special::set_content_type(r);
    run::handler::<Redis2Loc>(r)
}

fn write(r: &mut Request, _: &Ask) -> Result<bool, u16> {
    let loc = Rc::clone(r.loc());
    let Some(query) = loc.conf::<Redis2Loc>().query.as_deref() else { return Err(500) };
    let mut out = Vec::with_capacity(128);
    let asked = match query {
        Query::Words(all) => {
            for words in all {
                let words: Vec<Vec<u8>> = words.iter().map(|w| r.eval(w).to_vec()).collect();
                resp::write_command(words.iter().map(Vec::as_slice), &mut out);
            }
            let found = resp::commands(&out).unwrap_or_default();
            Asked { replies: all.len() as u64, keeps: !found.subscribes }
        }
        Query::Raw(text) => {
            out = r.eval(text).to_vec();
            counted(r, &out, 1)?
        }
        Query::Several(number, text) => {
            let number = r.eval(number);
            let number = weir_base::units::parse_int(&number).filter(|n| *n > 0);
            out = r.eval(text).to_vec();
            counted(r, &out, number.unwrap_or(0))?
        }
        Query::Literal(text) => {
            out.extend_from_slice(text);
            counted(r, text, 1)?
        }
    };
    r.set_ctx(asked);
    r.exchange.request = out;
    Ok(r.method == Method::Head)
}

/// Whether a text is as many commands as are to be answered, or fewer that go on answering.
fn counted(r: &Request, text: &[u8], replies: u64) -> Result<Asked, u16> {
    let found = resp::commands(text).filter(|found| (1..=replies).contains(&found.count));
    match found {
        Some(found) => Ok(Asked { replies, keeps: found.count == replies && !found.subscribes }),
        None => {
            let text = format!("a redis2 query that is not {replies} whole command(s) is refused");
            r.log(LogLevel::Error, &text);
            Err(400)
        }
    }
}

/// Replies as they come, behind a head of ours.
struct Answer {
    replies: Replies,
    keeps: bool,
    begun: bool,
    excess: bool,
}

fn answer(r: &Request, _: &[u8]) -> Box<dyn Wrapping> {
    let (replies, keeps) = r.ctx_ref::<Asked>().map_or((1, false), |a| (a.replies, a.keeps));
    Box::new(Answer { replies: Replies::new(replies), keeps, begun: false, excess: false })
}

impl Wrapping for Answer {
    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        let taken = self.replies.take(&buf[from..]);
        let Ok(taken) = taken else {
            let shown = String::from_utf8_lossy(&buf[from..buf.len().min(from + 64)]).into_owned();
            buf.truncate(from);
            return Err(format!("Redis server returned invalid response near \"{shown}\""));
        };
        self.excess |= from + taken < buf.len();
        buf.truncate(from + taken);
        if !self.begun && taken > 0 {
            self.begun = true;
            buf.splice(from..from, *b"Status: 200\r\n\r\n");
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.replies.have_ended()
    }

    fn may_go_on(&self) -> bool {
        self.replies.have_ended() && self.keeps && !self.excess
    }
}
