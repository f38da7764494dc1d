//! Directory listings: nginx's `ngx_http_autoindex_module`.
//!
//! Difference from nginx: the directory is read before the header is sent, so that one that
//! cannot be read is answered with an error page instead of a broken response.

mod render;

use crate::directory::{self, Entry, Reading};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::core_vars::query_arg;
use weir_http::module::{FilterError, Flow, HttpModule, PhaseHandler};
use weir_http::{body, Buf, Chain, Phase, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::threads::in_thread;
use weir_runtime::{clock, tz};
use weir_wire::http1::request::Method;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Html,
    Json,
    Jsonp,
    Xml,
}

#[derive(Default)]
struct Conf {
    on: Val<bool>,
    format: Val<Format>,
    localtime: Val<bool>,
    exact_size: Val<bool>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            format = Format::Html,
            localtime = false,
            exact_size = true,
        );
        Ok(())
    }
}

const FORMATS: &[(&str, Format)] = &[
    ("html", Format::Html),
    ("json", Format::Json),
    ("jsonp", Format::Jsonp),
    ("xml", Format::Xml),
];

const ROWS: &[Row] = &[
    Row::new(
        "autoindex",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Lists a directory that has no index file.",
        set!(Cf::get::<Conf>, on, flag),
    ),
    Row::new(
        "autoindex_format",
        Context::HSL,
        Arity::ONE,
        "html",
        "The listing's format: html, xml, json or jsonp.",
        |cf, d| {
            let v = d.choice(0, FORMATS)?;
            cf.get::<Conf>().format.once(d, v)
        },
    ),
    Row::new(
        "autoindex_localtime",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Times in the server's time zone in HTML listings.",
        set!(Cf::get::<Conf>, localtime, flag),
    ),
    Row::new(
        "autoindex_exact_size",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Sizes in bytes in HTML listings, instead of rounded ones.",
        set!(Cf::get::<Conf>, exact_size, flag),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<Conf>()],
    phases: &[PhaseHandler {
        phase: Phase::Content,
        handler,
        active: |slots| *slots.get::<Conf>().on,
    }],
    ..HttpModule::EMPTY
};

fn handler(r: &mut Request) -> Flow {
    if r.uri.last() != Some(&b'/') || !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Declined;
    }
    list(r).unwrap_or_else(|flow| flow)
}

/// A listing that is asked for.
struct Listing {
    reading: Reading,
    format: Format,
    callback: Option<Vec<u8>>,
}

/// What makes text of entries, once the header has gone through its filters.
struct Page {
    format: Format,
    callback: Option<Vec<u8>>,
    uri: Vec<u8>,
    style: render::HtmlStyle,
}

fn list(r: &mut Request) -> Result<Flow, Flow> {
    let loc = Rc::clone(r.loc());
    body::discard(r)?;
    let mut format = *loc.conf::<Conf>().format;
    let callback = match format {
        Format::Jsonp => callback(r)?,
        _ => None,
    };
    if format == Format::Jsonp && callback.is_none() {
        format = Format::Json;
    }
    let mut reading = directory::open(r)?;
    if !reading.read_some() {
        r.set_ctx(Listing { reading, format, callback });
        return Ok(Flow::Wait(list_large));
    }
    let mut entries = reading.finish(r)?;
    sort(&mut entries);
    match begin(r, format, callback)? {
        Some(page) => send(r, page.text(&entries)),
        None => Ok(Flow::Ok),
    }
}

/// A directory that is too large for the worker to read it, and to make a page of it, at once.
fn list_large(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(listing) = r.take_ctx::<Listing>() else { return Flow::Status(500) };
        in_threads(r, *listing).await.unwrap_or_else(|flow| flow)
    })
}

async fn in_threads(r: &mut Request, listing: Listing) -> Result<Flow, Flow> {
    let Listing { mut reading, format, callback } = listing;
    let turn = directory::turn(r).await?;
    let read = in_thread(move || {
        reading.read_all();
        sort(&mut reading.entries);
        (reading, turn)
    });
    let (reading, turn) = directory::unless_gone(r, read).await?;
    let entries = reading.finish(r)?;
    let Some(page) = begin(r, format, callback)? else { return Ok(Flow::Ok) };
    let made = in_thread(move || {
        // A page that nobody waits for any more has its turn to the end.
        let _turn = turn;
        let mut text = page.text(&entries);
        // As long as the client takes it it is there.
        text.shrink_to_fit();
        text
    });
    let text = made.await.map_err(|_| Flow::Close)?;
    send(r, text)
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| b.kind.is_dir().cmp(&a.kind.is_dir()).then_with(|| a.name.cmp(&b.name)));
}

/// Sends the header; what makes the page, if there is to be one.
fn begin(r: &mut Request, format: Format, callback: Option<Vec<u8>>) -> Result<Option<Page>, Flow> {
    send_header(r, format)?;
    if r.flags.header_only {
        return Ok(None);
    }
    Ok(Some(Page { format, callback, uri: r.uri.clone(), style: style(r) }))
}

impl Page {
    fn text(&self, entries: &[Entry]) -> Vec<u8> {
        match self.format {
            Format::Html => render::html(&self.uri, entries, &self.style),
            Format::Xml => render::xml(entries),
            Format::Json | Format::Jsonp => render::json(entries, self.callback.as_deref()),
        }
    }
}

fn send(r: &mut Request, text: Vec<u8>) -> Result<Flow, Flow> {
    match r.output(Chain::one(Buf::mem(text).and_last())) {
        Ok(()) => Ok(Flow::Ok),
        Err(_) => Err(Flow::Close),
    }
}

/// The charset that the header filters chose says how names are counted.
fn style(r: &Request) -> render::HtmlStyle {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    let is_utf8 = r.out.charset().is_some_and(|c| c.eq_ignore_ascii_case(b"utf-8"));
    let offset_secs = match *conf.localtime {
        true => i64::from(tz::offset_minutes(clock::wall_secs())) * 60,
        false => 0,
    };
    render::HtmlStyle { is_utf8, offset_secs, exact_size: *conf.exact_size }
}

fn send_header(r: &mut Request, format: Format) -> Result<(), Flow> {
    r.out.status = 200;
    let kind: &[u8] = match format {
        Format::Json => b"application/json",
        Format::Jsonp => b"application/javascript",
        Format::Xml => b"text/xml",
        Format::Html => b"text/html",
    };
    r.out.set_content_type(kind);
    if format == Format::Xml {
        r.out.set_charset(b"utf-8");
    }
    match r.send_header() {
        Ok(()) => Ok(()),
        Err(FilterError::Status(s)) if !r.flags.header_sent => Err(Flow::Status(s)),
        Err(_) => Err(Flow::Close),
    }
}

/// The name of the function that JSON is wrapped in; it must be one that cannot hold a script.
fn callback(r: &mut Request) -> Result<Option<Vec<u8>>, Flow> {
    let Some(name) = query_arg(&r.args, b"callback").filter(|n| !n.is_empty()) else {
        return Ok(None);
    };
    let name = name.to_vec();
    let problem = match name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')) {
        _ if name.len() > 128 => "too long",
        true => return Ok(Some(name)),
        false => "invalid",
    };
    let shown = String::from_utf8_lossy(&name);
    r.log(LogLevel::Info, &format!("client sent {problem} callback name: \"{shown}\""));
    Err(Flow::Status(400))
}
