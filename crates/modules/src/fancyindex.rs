//! `fancyindex`: the directives of ngx-fancyindex, listings of directories with a table that can be
//! sorted, and with a head and a foot of one's own.
//!
//! Differences from that module: the page's own style is another; what a subrequest for the head or
//! the foot is answered with stands there whatever its status; the request's path is escaped where it
//! is the page's title.

mod page;
mod sorting;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::module::{FilterError, Flow, HttpModule, PhaseHandler};
use weir_http::subrequest::{self, Output};
use weir_http::{body, Buf, Chain, Phase, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic,
    Directive, Level, Row, SlotVtable, Val,
};
use weir_runtime::threads::in_thread;
use weir_script::regex::{Regex, RegexOptions};
use weir_wire::http1::request::Method;

use crate::directory::{self, Entry, Reading};
use page::{Look, Page};
use sorting::{Order, Sorting, ORDERS};

/// What stands before or behind a listing.
#[derive(Clone)]
enum Part {
    BuiltIn,
    /// The answer to a subrequest; a path without a slash in front is the directory's.
    Uri(Vec<u8>),
    /// A file's text as it was when the configuration was read.
    Local(Bytes),
}

#[derive(Default)]
struct Conf {
    on: Val<bool>,
    order: Val<Order>,
    case_sensitive: Val<bool>,
    directories_first: Val<bool>,
    show_dotfiles: Val<bool>,
    hide_symlinks: Val<bool>,
    header: Val<Part>,
    footer: Val<Part>,
    ignore: Val<Arc<Vec<Regex>>>,
    exact_size: Val<bool>,
    localtime: Val<bool>,
    show_path: Val<bool>,
    hide_parent: Val<bool>,
    time_format: Val<Vec<u8>>,
    css_href: Val<Vec<u8>>,
    /// The same as a page that a thread makes has it.
    look: Arc<Look>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            order = Order::NAME,
            case_sensitive = true,
            directories_first = true,
            show_dotfiles = false,
            hide_symlinks = false,
            header = Part::BuiltIn,
            footer = Part::BuiltIn,
            ignore = Arc::default(),
            exact_size = true,
            localtime = false,
            show_path = true,
            hide_parent = false,
            time_format = b"%Y-%b-%d %H:%M".to_vec(),
            css_href = Vec::new(),
        );
        if !*self.show_path && matches!(*self.header, Part::BuiltIn) {
            let text = "fancyindex_show_path can be off only with a head of one's own; add fancyindex_header";
            return Err(Diagnostic::emerg(text.to_string()));
        }
        self.look = Arc::new(Look {
            exact_size: *self.exact_size,
            localtime: *self.localtime,
            show_path: *self.show_path,
            hide_parent: *self.hide_parent,
            time_format: (*self.time_format).clone(),
            css_href: (*self.css_href).clone(),
        });
        Ok(())
    }
}

const fn row(name: &'static str, default: &'static str, says: &'static str, set: SetFn) -> Row {
    Row::new(name, Context::HSL, Arity::FLAG, default, says, set)
}

type SetFn = fn(&mut Cf, &Directive) -> ConfResult;

const ROWS: &[Row] = &[
    row(
        "fancyindex",
        "off",
        "Lists a directory in a table that can be sorted.",
        set!(Cf::get::<Conf>, on, flag),
    ),
    row(
        "fancyindex_case_sensitive",
        "on",
        "Sorts capital letters before small ones.",
        set!(Cf::get::<Conf>, case_sensitive, flag),
    ),
    row(
        "fancyindex_directories_first",
        "on",
        "Lists directories before files.",
        set!(Cf::get::<Conf>, directories_first, flag),
    ),
    row(
        "fancyindex_exact_size",
        "on",
        "Sizes in bytes instead of rounded ones.",
        set!(Cf::get::<Conf>, exact_size, flag),
    ),
    row(
        "fancyindex_localtime",
        "off",
        "Times in the server's time zone.",
        set!(Cf::get::<Conf>, localtime, flag),
    ),
    row(
        "fancyindex_show_path",
        "on",
        "Writes the path, and the end of the headline, behind the head.",
        set!(Cf::get::<Conf>, show_path, flag),
    ),
    row(
        "fancyindex_show_dotfiles",
        "off",
        "Lists names that begin with a dot.",
        set!(Cf::get::<Conf>, show_dotfiles, flag),
    ),
    row(
        "fancyindex_hide_symlinks",
        "off",
        "Leaves out symbolic links.",
        set!(Cf::get::<Conf>, hide_symlinks, flag),
    ),
    row(
        "fancyindex_hide_parent_dir",
        "off",
        "Leaves out the directory above.",
        set!(Cf::get::<Conf>, hide_parent, flag),
    ),
    Row::new(
        "fancyindex_default_sort",
        Context::HSL,
        Arity::ONE,
        "name",
        "The order without one in the request: name, size or date, or these with _desc.",
        |cf, d| {
            let order = d.choice(0, ORDERS)?;
            cf.get::<Conf>().order.once(d, order)
        },
    ),
    Row::new(
        "fancyindex_css_href",
        Context::HSL,
        Arity::ONE,
        "",
        "The address of a style sheet that the built-in head names behind its own style.",
        |cf, d| cf.get::<Conf>().css_href.once(d, d.arg(0).to_vec()),
    ),
    Row::new(
        "fancyindex_time_format",
        Context::HSL,
        Arity::ONE,
        "%Y-%b-%d %H:%M",
        "How times are written, in strftime's words.",
        |cf, d| cf.get::<Conf>().time_format.once(d, d.arg(0).to_vec()),
    ),
    Row::new(
        "fancyindex_header",
        Context::HSL,
        Arity::ONE_TWO,
        "",
        "What stands before the listing: a URI (subrequest) or a file that is read once (local).",
        |cf, d| {
            let part = part(cf, d)?;
            cf.get::<Conf>().header.once(d, part)
        },
    ),
    Row::new(
        "fancyindex_footer",
        Context::HSL,
        Arity::ONE_TWO,
        "",
        "What stands behind the listing: a URI (subrequest) or a file that is read once (local).",
        |cf, d| {
            let part = part(cf, d)?;
            cf.get::<Conf>().footer.once(d, part)
        },
    ),
    Row::new(
        "fancyindex_ignore",
        Context::HSL,
        Arity::ONE_MORE,
        "",
        "Regular expressions of names that are not listed.",
        set_ignore,
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

fn part(cf: &mut Cf, d: &Directive) -> ConfResult<Part> {
    let is_local = d.args.len() == 2 && d.choice(1, &[("subrequest", false), ("local", true)])?;
    if d.arg(0).is_empty() {
        return Ok(Part::BuiltIn);
    }
    if !is_local {
        return Ok(Part::Uri(d.arg(0).to_vec()));
    }
    let path = cf.full_path(d.arg(0));
    match cf.read_file(&path) {
        Ok(text) => Ok(Part::Local(Bytes::from_owner(text))),
        Err(e) => Err(
            d.bad(0, format!("open() \"{}\" failed ({})", path.display(), weir_core::os_text(&e)))
        ),
    }
}

fn set_ignore(cf: &mut Cf, d: &Directive) -> ConfResult {
    let compile = |i: usize| {
        Regex::new(d.arg(i), RegexOptions::default()).map_err(|e| d.bad(i, e.to_string()))
    };
    let more = (0..d.args.len()).map(compile).collect::<ConfResult<Vec<_>>>()?;
    let list = &mut cf.get::<Conf>().ignore;
    if !list.is_set() {
        list.set(Arc::default());
    }
    if let Some(list) = list.as_mut().and_then(Arc::get_mut) {
        list.extend(more);
    }
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    if r.uri.last() != Some(&b'/') || !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Declined;
    }
    list(r).unwrap_or_else(|flow| flow)
}

fn list(r: &mut Request) -> Result<Flow, Flow> {
    body::discard(r)?;
    let loc = Rc::clone(r.loc());
    let mut reading = directory::open(r)?;
    reading.with_dot_files = *loc.conf::<Conf>().show_dotfiles;
    if !reading.read_some() {
        r.set_ctx(reading);
        return Ok(Flow::Wait(list_large));
    }
    let (entries, page) = prepare(r, reading)?;
    send_header(r)?;
    send(r, page, |page| page.text(entries))
}

/// A directory that is too large for the worker to read it, and to make a page of it, at once.
fn list_large(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(reading) = r.take_ctx::<Reading>() else { return Flow::Status(500) };
        in_threads(r, *reading).await.unwrap_or_else(|flow| flow)
    })
}

async fn in_threads(r: &mut Request, mut reading: Reading) -> Result<Flow, Flow> {
    let turn = directory::turn(r).await?;
    let read = in_thread(move || {
        reading.read_all();
        (reading, turn)
    });
    let (reading, turn) = directory::unless_gone(r, read).await?;
    let (entries, page) = prepare(r, reading)?;
    send_header(r)?;
    let made = in_thread(move || {
        // A page that nobody waits for any more has its turn to the end.
        let _turn = turn;
        let mut text = page.text(entries);
        // As long as the client takes it it is there.
        text.shrink_to_fit();
        (text, page)
    });
    let (text, page) = made.await.map_err(|_| Flow::Close)?;
    send(r, page, |_| text)
}

/// What is listed, and how.
fn prepare(r: &mut Request, reading: Reading) -> Result<(Vec<Entry>, Page), Flow> {
    let mut entries = reading.finish(r)?;
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    entries.retain(|e| !(*conf.hide_symlinks && e.is_link));
    for regex in conf.ignore.iter() {
        let mut failed = false;
        entries.retain(|e| {
            let found = r.judge_match(regex.is_match(&e.name), regex, &e.name);
            failed |= found.is_err();
            !found.unwrap_or(true)
        });
        if failed {
            return Err(Flow::Status(500));
        }
    }
    let sorting = Sorting {
        case_sensitive: *conf.case_sensitive,
        directories_first: *conf.directories_first,
        default: *conf.order,
        asked: sorting::asked(&r.args),
    };
    let page = Page { uri: r.uri.clone(), look: Arc::clone(&conf.look), sorting };
    Ok((entries, page))
}

fn send_header(r: &mut Request) -> Result<(), Flow> {
    r.out.status = 200;
    r.out.set_content_type(b"text/html");
    match r.send_header() {
        Ok(()) => Ok(()),
        Err(FilterError::Status(s)) if !r.flags.header_sent => Err(Flow::Status(s)),
        Err(_) => Err(Flow::Close),
    }
}

/// Head, listing and foot, in their order.
fn send(r: &mut Request, page: Page, text: impl FnOnce(&Page) -> Vec<u8>) -> Result<Flow, Flow> {
    if r.flags.header_only {
        return Ok(Flow::Ok);
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    match &*conf.header {
        Part::BuiltIn => put(r, Buf::mem(page.head()))?,
        part => put_part(r, part)?,
    }
    put(r, Buf::mem(text(&page)))?;
    match &*conf.footer {
        Part::BuiltIn => put(r, Buf::mem(page::FOOT))?,
        part => put_part(r, part)?,
    }
    put(r, Buf::last())?;
    Ok(Flow::Ok)
}

fn put(r: &mut Request, buf: Buf) -> Result<(), Flow> {
    r.output(Chain::one(buf)).map_err(|_| Flow::Close)
}

fn put_part(r: &mut Request, part: &Part) -> Result<(), Flow> {
    let uri = match part {
        Part::BuiltIn => return Ok(()),
        Part::Local(text) if text.is_empty() => return Ok(()),
        Part::Local(text) => return put(r, Buf::mem(text.clone())),
        Part::Uri(uri) if uri.first() == Some(&b'/') => uri.clone(),
        Part::Uri(name) => [&r.uri[..], name].concat(),
    };
    let Some(part) = subrequest::new(r, &uri, b"", Output::Place) else {
        r.log(LogLevel::Error, "fancyindex: too many subrequests within one another");
        return Err(Flow::Close);
    };
    subrequest::start(r, part, None);
    Ok(())
}
