//! Server side includes: nginx's `ngx_http_ssi_filter_module`.
//!
//! The filter reads the text as it passes ([`weir_script::ssi`]) and carries out the commands in
//! it. An include starts a subrequest, whose answer stands where the command stood; the text behind
//! it is read on at once, so that parts run side by side. Only `wait` and `set` stop the reading,
//! and so does [`RUNNING_MAX`]: what comes meanwhile is kept as input (and counted as output that
//! waits), and is read on from the callback of the part's end. A few commands can make a thousand
//! times as much of a page: it is read no further than there is room for what becomes of it, and on
//! once the client has taken that.
//!
//! Variables, blocks and captures belong to the page: the main request and its parts share them.
//! What `echo encoding`, `config` and `if` set belongs to one document.
//!
//! Differences from nginx: text goes from memory always; a page with thousands of includes runs so
//! many at a time, where nginx starts all; a block's commands keep their quotes; an `include` that
//! gives nothing but commands without output is replaced by its `stub`.

mod commands;
mod conditions;
mod include;
mod page;
mod strings;

use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::buf::Data;
use weir_http::module::{
    Filter, FilterError, FilterResult, HttpModule, Next, Reach, VarArg, Variable,
};
use weir_http::{subrequest, Buf, Chain, Request};
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable,
    Slots, Val,
};
use weir_runtime::{clock, tz};
use weir_script::ssi::{Event, Parser, OPENING};

use crate::made::Made;
use crate::mime::MimeTypes;
use crate::util::text_of;
use page::PageRef;

/// Parts of one document that run at a time.
const RUNNING_MAX: usize = 200;

/// How much text of a document may wait for the client.
const AHEAD_BYTES: u64 = 128 * 1024;
/// What is passed on at once.
const PIECE_BYTES: usize = 32 * 1024;

const TIME_FORMAT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";
const ERROR_TEXT: &[u8] = b"[an error occurred while processing the directive]";

#[derive(Default)]
struct SsiLoc {
    on: Val<bool>,
    silent_errors: Val<bool>,
    ignore_recycled_buffers: Val<bool>,
    last_modified: Val<bool>,
    min_file_chunk: Val<u64>,
    value_length: Val<u64>,
    types: Val<Arc<MimeTypes>>,
}

impl ConfType for SsiLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SsiLoc) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            silent_errors = false,
            ignore_recycled_buffers = false,
            last_modified = false,
            min_file_chunk = 1024,
            value_length = 255,
            types = MimeTypes::of(&["text/html"]),
        );
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "ssi",
        Context::HSL.or(Context::LIF),
        Arity::FLAG,
        "off",
        "Carries out the commands (server side includes) in responses.",
        set!(Cf::get::<SsiLoc>, on, flag),
    )
    .note(
        "A page has up to 4096 parts, up to 1000 of them within themselves or over four deep. nginx \
         bounds the depth alone, at 50, as is done here too.",
    ),
    Row::new(
        "ssi_silent_errors",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Puts no text in the place of a command that fails.",
        set!(Cf::get::<SsiLoc>, silent_errors, flag),
    ),
    Row::new(
        "ssi_types",
        Context::HSL,
        Arity::ONE_MORE,
        "text/html",
        "MIME types to carry out commands in besides text/html.",
        |cf, d| {
            MimeTypes::read(cf, d, |cf| &mut cf.get::<SsiLoc>().types);
            Ok(())
        },
    ),
    Row::new(
        "ssi_last_modified",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Keeps Last-Modified of responses whose commands are carried out.",
        set!(Cf::get::<SsiLoc>, last_modified, flag),
    ),
    Row::new(
        "ssi_value_length",
        Context::HSL,
        Arity::ONE,
        "256",
        "The longest value of a command's parameter.",
        set!(Cf::get::<SsiLoc>, value_length, size),
    )
    .note("255 unless set, as in nginx, whose documentation says 256."),
    Row::new(
        "ssi_min_file_chunk",
        Context::HSL,
        Arity::ONE,
        "1k",
        "The shortest text that is sent with sendfile.",
        set!(Cf::get::<SsiLoc>, min_file_chunk, size),
    )
    .note("Text that was searched for commands goes from memory; the value is checked."),
    Row::new(
        "ssi_ignore_recycled_buffers",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Does not flush for buffers that are to be used again.",
        set!(Cf::get::<SsiLoc>, ignore_recycled_buffers, flag),
    )
    .note("No buffer that waits for its use is flushed early; the value is checked."),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<SsiLoc>()],
    variables: &[Variable::new("date_local", date_local), Variable::new("date_gmt", date_gmt)],
    filter: Some(Filter { header: Some(header), body: Some(body), active, reach: Reach::Part }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    *slots.get::<SsiLoc>().on
}

/// What `config timefmt` has set in this document.
struct TimeFormat(Vec<u8>);

fn date_local(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    date(r, false, out)
}

fn date_gmt(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    date(r, true, out)
}

fn date(r: &mut Request, gmt: bool, out: &mut Vec<u8>) -> bool {
    let format = r.ctx::<TimeFormat>().map_or(TIME_FORMAT, |f| f.0.as_slice());
    let secs = clock::wall_secs();
    if format == b"%s" {
        weir_base::bytes::fmt_u64(out, secs as u64);
        return true;
    }
    match tz::strftime(secs, gmt, format) {
        Some(text) => out.extend_from_slice(&text),
        None => return false,
    }
    true
}

/// How `echo` writes values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    None,
    Url,
    Entity,
}

/// Which `if` the text is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Branch {
    None,
    If,
    Else,
}

/// Why nothing is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    No,
    /// Until the part with `wait` or `set` has ended.
    Wait,
    /// Until any part has ended: there are too many.
    Room,
}

/// One document that is being read.
struct Reader {
    parser: Parser,
    input: VecDeque<Buf>,
    /// The piece that is being read, and how far.
    piece: Bytes,
    at: usize,
    state: State,
}

impl Reader {
    fn new(conf: &SsiLoc, page: PageRef) -> Reader {
        Reader {
            parser: Parser::new(*conf.value_length as usize),
            input: VecDeque::new(),
            piece: Bytes::new(),
            at: 0,
            state: State::new(page),
        }
    }

    fn has_more(&self) -> bool {
        self.at < self.piece.len() || !self.input.is_empty()
    }

    fn waiting_bytes(&self) -> u64 {
        let rest = (self.piece.len() - self.at) as u64;
        rest + self.input.iter().map(Buf::len).sum::<u64>()
    }
}

/// What the commands of a document have led to.
struct State {
    out: Made,
    stopped: Stopped,
    /// Something was handed on, or somebody else may have put something out: there may be no room.
    room_unknown: bool,
    /// Text is put out: it is in no block and in no branch that was not chosen.
    shown: bool,
    in_block: bool,
    branch: Branch,
    /// A branch of the present `if` has been chosen.
    chosen: bool,
    encoding: Encoding,
    error_text: Bytes,
    page: PageRef,
}

impl State {
    fn new(page: PageRef) -> State {
        State {
            out: Made::default(),
            stopped: Stopped::No,
            room_unknown: true,
            shown: true,
            in_block: false,
            branch: Branch::None,
            chosen: false,
            encoding: Encoding::Entity,
            error_text: Bytes::from_static(ERROR_TEXT),
            page,
        }
    }

    /// Text of the document.
    fn text(&mut self, piece: &Bytes, range: Range<usize>) {
        if !self.shown {
            return self.hidden(&piece[range]);
        }
        self.out.part(piece, range);
    }

    /// Of what began as a command, what earlier pieces ended with.
    fn held_text(&mut self, held: usize) {
        let text = &OPENING[..held];
        match self.shown {
            true => self.out.copy(text),
            false => self.hidden(text),
        }
    }

    fn hidden(&mut self, text: &[u8]) {
        if self.in_block {
            self.page.borrow_mut().add_to_block(text);
        }
    }
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SsiLoc>();
    if r.out.content_length == Some(0) || !conf.types.match_response(r) {
        return next.header(r);
    }
    let page = page_of(r);
    r.set_ctx(Reader::new(conf, page));
    r.flags.filter_needs_memory = true;
    r.whole = None;
    if !r.is_part() {
        r.out.clear_content_length();
        r.out.remove(b"Accept-Ranges");
        r.flags.allow_ranges = false;
        if *conf.last_modified {
            r.out.weaken_etag();
        } else {
            r.out.clear_last_modified();
            r.out.clear_etag();
        }
    }
    next.header(r)
}

/// What belongs to the whole page: made by its first document with commands.
fn page_of(r: &mut Request) -> PageRef {
    if let Some(page) = r.kept::<PageRef>() {
        return Rc::clone(page);
    }
    let page = PageRef::default();
    r.keep_state(Rc::clone(&page));
    page
}

/// Lets a part of another module's making share the page's variables and blocks.
pub fn share_page(r: &mut Request, part: &mut Request) {
    part.keep_state(page_of(r));
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(mut reader) = r.take_ctx::<Reader>() else { return next.body(r, chain) };
    reader.input.extend(chain);
    go_on(r, reader, next)
}

/// There is room again.
fn resume(r: &mut Request, next: Next) -> FilterResult {
    match r.take_ctx::<Reader>() {
        Some(reader) => go_on(r, reader, next),
        None => Ok(()),
    }
}

/// Reads what there is, as far as nothing stops it, and hands the result on.
fn go_on(r: &mut Request, mut reader: Box<Reader>, next: Next) -> FilterResult {
    reader.state.room_unknown = true;
    let read = read(r, &mut reader, next);
    let sent = read.and_then(|()| send(r, &mut reader.state, next));
    let is_stopped = reader.state.stopped != Stopped::No;
    subrequest::keep_back(r, if is_stopped { reader.waiting_bytes() } else { 0 });
    r.put_ctx(reader);
    sent
}

fn send(r: &mut Request, state: &mut State, next: Next) -> FilterResult {
    let out = state.out.take();
    state.room_unknown = true;
    match out.is_empty() {
        true => Ok(()),
        false => next.body(r, out),
    }
}

fn read(r: &mut Request, reader: &mut Reader, next: Next) -> FilterResult {
    while reader.state.stopped == Stopped::No && reader.has_more() {
        if reader.state.out.bytes() >= PIECE_BYTES {
            send(r, &mut reader.state, next)?;
        }
        if reader.state.room_unknown {
            if !r.has_own_room(next, AHEAD_BYTES) {
                r.hold(next, AHEAD_BYTES, resume);
                return Ok(());
            }
            reader.state.room_unknown = false;
        }
        match reader.at < reader.piece.len() {
            true => read_piece(r, reader, next)?,
            false => next_piece(reader)?,
        }
    }
    Ok(())
}

/// Reads up to the next command, or one.
fn read_piece(r: &mut Request, reader: &mut Reader, next: Next) -> FilterResult {
    let Reader { parser, piece, at, state, .. } = reader;
    match parser.next(piece, at) {
        Event::Text { held, range } => {
            if held > 0 {
                state.held_text(held);
            }
            state.text(piece, range);
        }
        Event::Command(command) => commands::run(r, state, &command, next)?,
        Event::Error(text) => {
            r.log_bytes(LogLevel::Error, text);
            commands::fail(r, state);
        }
        Event::More => {}
    }
    Ok(())
}

/// Takes from the input what is to be read next.
fn next_piece(reader: &mut Reader) -> FilterResult {
    let Some(buf) = reader.input.pop_front() else { return Ok(()) };
    if !matches!(buf.data, Data::None) {
        reader.piece = text_of(&buf.data).map_err(|_| FilterError::Broken)?;
        reader.at = 0;
    }
    // Its end comes behind what is in it.
    if !buf.is_empty() && (buf.last || buf.flush) {
        let (last, flush) = (buf.last, buf.flush);
        reader.input.push_front(Buf { data: Data::None, last, flush });
    } else if buf.last || buf.flush {
        if buf.last {
            let held = reader.parser.finish();
            reader.state.held_text(held);
        }
        reader.state.out.push(buf);
    }
    Ok(())
}
