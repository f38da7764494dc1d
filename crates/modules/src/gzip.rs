//! Compression: nginx's `ngx_http_gzip_filter_module`.
//!
//! Differences from nginx: an entity that is kept in memory is compressed once per level and its
//! form kept, with its length known; what takes long is compressed by a thread while others are served; `gzip_buffers`, `gzip_hash`, `gzip_window` and the like size
//! buffers that this implementation does not have, and say so in their rows.

use crate::mime::MimeTypes;
use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_conf::Directive;
use weir_core::forms::Forms;
use weir_core::worker::AtWorker;
use weir_http::buf::Data;
use weir_http::module::{
    Filter, FilterError, FilterResult, HttpModule, Next, Reach, VarArg, Variable,
};
use weir_http::request::Whole;
use weir_http::{Buf, Chain, Request};
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::threads::in_thread;

#[derive(Default)]
pub struct Conf {
    on: Val<bool>,
    types: Val<Arc<MimeTypes>>,
    level: Val<u32>,
    min_length: Val<u64>,
    clear_etag: Val<bool>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            types = MimeTypes::of(&["text/html"]),
            level = 1,
            min_length = 20,
            clear_etag = false,
        );
        Ok(())
    }
}

const HSLI: Context = Context::HSL.or(Context::LIF);
const SIZED: &str = "Buffers here size themselves; the value is checked and not needed.";

/// Sizes that zlib has: powers of two from 512 bytes.
fn power_of_two(d: &Directive, max_bytes: u64, what: &'static str) -> ConfResult {
    let size = d.size(0)?;
    match size.is_power_of_two() && (512..=max_bytes).contains(&size) {
        true => Ok(()),
        false => Err(d.error(what)),
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "gzip",
            HSLI,
            Arity::FLAG,
            "off",
            "Compress responses.",
            set!(Cf::get::<Conf>, on, flag),
        )
        .note(
            "What a backend sends in pieces is passed on when it pauses, so that events arrive at \
             once: each pause costs some bytes of compression and a chunk, and so does each piece \
             under proxy_buffering off, as in nginx. Where many small pieces come with pauses and \
             may arrive late, have the program gather them, or leave gzip off there.",
        ),
        Row::new(
            "gzip_types",
            Context::HSL,
            Arity::ONE_MORE,
            "text/html",
            "MIME types to compress besides text/html.",
            |cf, d| {
                MimeTypes::read(cf, d, |cf| &mut cf.get::<Conf>().types);
                Ok(())
            },
        ),
        Row::new(
            "gzip_comp_level",
            Context::HSL,
            Arity::ONE,
            "1",
            "Compression level, 1 to 9.",
            |cf, d| {
                let v = d.num(0)?;
                if !(1..=9).contains(&v) {
                    return Err(d.bad(0, "value must be between 1 and 9"));
                }
                cf.get::<Conf>().level.once(d, v as u32)
            },
        )
        .note("Level 1 is quicker than zlib's and compresses less."),
        Row::new(
            "gzip_min_length",
            Context::HSL,
            Arity::ONE,
            "20",
            "Shortest response to compress, by Content-Length.",
            set!(Cf::get::<Conf>, min_length, size),
        ),
        Row::new(
            "gzip_clear_etag",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Whether what is compressed has no ETag; otherwise it has a weak one.",
            set!(Cf::get::<Conf>, clear_etag, flag),
        )
        .note("Tengine's; its default is what its program does, not what its page says."),
        Row::new(
            "gzip_buffers",
            Context::HSL,
            Arity::TWO,
            "32 4k",
            "Number and size of buffers.",
            |_, d| {
                d.num(0)?;
                d.size(1).map(|_| ())
            },
        )
        .once()
        .note(SIZED),
        Row::new("gzip_window", Context::HSL, Arity::ONE, "", "Size of the window.", |_, d| {
            power_of_two(d, 32 * 1024, "must be 512, 1k, 2k, 4k, 8k, 16k, or 32k")
        })
        .once()
        .note(SIZED),
        Row::new("gzip_hash", Context::HSL, Arity::ONE, "", "Size of the hash.", |_, d| {
            power_of_two(d, 128 * 1024, "must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k")
        })
        .once()
        .note(SIZED),
        Row::new(
            "postpone_gzipping",
            Context::HSL,
            Arity::ONE,
            "0",
            "Gather this much before compressing.",
            |_, d| d.size(0).map(|_| ()),
        )
        .once()
        .note(SIZED),
        Row::new(
            "gzip_no_buffer",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Send compressed data at once.",
            |_, d| d.flag().map(|_| ()),
        )
        .once()
        .note(SIZED),
    ],
    slots: &[SlotVtable::of::<Conf>()],
    variables: &[Variable::new("gzip_ratio", ratio)],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| *slots.get::<Conf>().on,
        reach: Reach::Whole,
    }),
    body_on_demand: true,
    at_worker: AtWorker { quiet: Some(Spare::free), ..AtWorker::NOTHING },
    ..HttpModule::EMPTY
};

/// gzip's header without name and time; 3 is Unix.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
/// Room given to the compressor at once.
const OUT_BYTES: usize = 16 * 1024;
/// Less than this waits for more, or for a flush: small pieces of an answer made as many chunks, with
/// five bytes around each.
const HOLD_BYTES: usize = 4096;
/// So much at level 1, and less as levels take longer, is compressed by a thread: the worker would be some
/// milliseconds at it.
const THREAD_MIN_BYTES: u64 = 512 * 1024;
/// Compressors kept per worker and level.
const SPARE_MAX: usize = 16;

/// Compressors that have been used and are ready for another response.
#[derive(Default)]
struct Spare(RefCell<HashMap<u32, Vec<Compress>>>);

impl Spare {
    /// Each takes some 270 KB, and a burst leaves as many as were at work at once.
    fn free(worker: &weir_core::Worker) {
        worker.local::<Spare>().0.take();
    }

    fn take(&self, level: u32) -> Compress {
        let kept = self.0.borrow_mut().get_mut(&level).and_then(Vec::pop);
        kept.unwrap_or_else(|| Compress::new(Compression::new(level), false))
    }

    fn give(&self, level: u32, mut z: Compress) {
        z.reset();
        let mut all = self.0.borrow_mut();
        let list = all.entry(level).or_default();
        if list.len() < SPARE_MAX {
            list.push(z);
        }
    }
}

/// A response that is being compressed.
struct State {
    level: u32,
    /// None before the first piece, behind the last, and while a thread has it.
    work: Option<Work>,
    is_over: bool,
    bytes_in: u64,
    bytes_out: u64,
    /// The finished form that replaces the body.
    form: Option<Bytes>,
}

/// What compresses it.
struct Work {
    z: Compress,
    crc: Crc,
    begun: bool,
    /// Compressed, and too little for a chunk of its own unless it is asked for.
    held: Vec<u8>,
}

/// A piece of a response.
struct Piece {
    texts: Vec<Bytes>,
    flush: bool,
    last: bool,
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    let candidate = matches!(r.out.status, 200 | 403 | 404)
        && r.out.get(b"Content-Encoding").is_none_or(<[u8]>::is_empty)
        && r.out.content_length.is_none_or(|n| n >= *conf.min_length)
        && conf.types.match_response(r)
        && !r.flags.header_only;
    if !candidate {
        return next.header(r);
    }
    r.flags.gzip_vary = true;
    if !crate::gzip_ok::gzip_ok(r) {
        return next.header(r);
    }
    let level = *conf.level;
    let whole = r.whole.take();
    r.out.add(b"Content-Encoding", b"gzip");
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    match *conf.clear_etag {
        true => r.out.clear_etag(),
        false => r.out.weaken_etag(),
    }
    r.flags.allow_ranges = false;
    r.flags.filter_needs_memory = true;
    let bytes_in = whole.as_ref().map_or(0, |w| w.text.len() as u64);
    r.set_ctx(State { level, work: None, is_over: false, bytes_in, bytes_out: 0, form: None });
    let Some(Whole { text, forms }) = whole else { return next.header(r) };
    if let Some(form) = forms.find(level) {
        return with_form(r, Some(form), next);
    }
    if is_long(text.len() as u64, level) {
        return r.wait_in_header(next, make_form(forms, level, text), with_form);
    }
    let spare = r.conn().worker.local::<Spare>();
    let mut z = spare.take(level);
    let form = compress_whole(&mut z, &text);
    spare.give(level, z);
    form.iter().for_each(|form| forms.keep(level, form));
    with_form(r, form, next)
}

/// Whether the worker would have others wait for too long.
fn is_long(bytes: u64, level: u32) -> bool {
    bytes * u64::from(level) >= THREAD_MIN_BYTES
}

/// The header, with the length of a form that is there.
fn with_form(r: &mut Request, form: Option<Bytes>, next: Next) -> FilterResult {
    r.out.content_length = form.as_ref().map(|f| f.len() as u64);
    if let Some(state) = r.ctx::<State>() {
        state.form = form;
    }
    next.header(r)
}

/// Has a thread compress an entity, once for all requests that wait for the same.
async fn make_form(forms: Arc<Forms>, level: u32, text: Bytes) -> Option<Bytes> {
    let _turn = forms.turn().await;
    if let Some(form) = forms.find(level) {
        return Some(form);
    }
    let made = in_thread(move || {
        compress_whole(&mut Compress::new(Compression::new(level), false), &text)
    });
    let form = made.await.ok().flatten()?;
    forms.keep(level, &form);
    Some(form)
}

fn compress_whole(z: &mut Compress, text: &[u8]) -> Option<Bytes> {
    let mut out = Vec::with_capacity(text.len() / 2 + 64);
    out.extend_from_slice(&HEADER);
    let mut crc = Crc::new();
    crc.update(text);
    deflate(z, text, FlushCompress::Finish, &mut out).ok()?;
    trailer(&crc, &mut out);
    Some(Bytes::from(out))
}

impl Work {
    fn new(z: Compress) -> Work {
        Work { z, crc: Crc::new(), begun: false, held: Vec::new() }
    }

    /// What is to be sent of what has been compressed.
    fn compress(&mut self, piece: &Piece) -> Result<Vec<u8>, FilterError> {
        let mut out = std::mem::take(&mut self.held);
        let len: usize = piece.texts.iter().map(Bytes::len).sum();
        out.reserve(OUT_BYTES.min(len / 2 + 256));
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(&HEADER);
        }
        for text in &piece.texts {
            self.crc.update(text);
            deflate(&mut self.z, text, FlushCompress::None, &mut out)?;
        }
        if piece.last {
            deflate(&mut self.z, &[], FlushCompress::Finish, &mut out)?;
            trailer(&self.crc, &mut out);
        } else if piece.flush {
            deflate(&mut self.z, &[], FlushCompress::Sync, &mut out)?;
        } else if out.len() < HOLD_BYTES {
            self.held = std::mem::take(&mut out);
        }
        Ok(out)
    }
}

fn deflate(
    z: &mut Compress,
    mut text: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> FilterResult {
    loop {
        out.reserve(OUT_BYTES.min(text.len() + 512));
        let (before_in, before_out) = (z.total_in(), out.len());
        let status = z.compress_vec(text, out, flush).map_err(|_| FilterError::Broken)?;
        let used = (z.total_in() - before_in) as usize;
        text = &text[used..];
        let full = out.len() == out.capacity();
        match status {
            Status::StreamEnd => return Ok(()),
            _ if text.is_empty() && !full && !matches!(flush, FlushCompress::Finish) => {
                return Ok(())
            }
            Status::BufError if used == 0 && out.len() == before_out && !full => return Ok(()),
            _ => {}
        }
    }
}

fn trailer(crc: &Crc, out: &mut Vec<u8>) {
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    if !r.has_ctx::<State>() {
        return next.body(r, chain);
    }
    let Some(chain) = r.keep_while_waiting(chain, next) else { return Ok(()) };
    let worker = Rc::clone(&r.conn().worker);
    let Some(state) = r.ctx::<State>() else { return Ok(()) };
    if let Some(form) = state.form.take() {
        state.is_over = true;
        state.bytes_out = form.len() as u64;
        return next.body(r, Chain::one(Buf::mem(form).and_last()));
    }
    if state.is_over {
        return Ok(());
    }
    let piece = Piece::of(chain);
    let len = piece.texts.iter().map(|t| t.len() as u64).sum();
    state.bytes_in += len;
    let work = state.work.take();
    let mut work = work.unwrap_or_else(|| Work::new(worker.local::<Spare>().take(state.level)));
    if is_long(len, state.level) {
        let working = in_thread(move || {
            let out = work.compress(&piece);
            (work, piece, out)
        });
        r.wait_in_body(next, working, |r, done, next| match done {
            Ok((work, piece, out)) => put(r, work, &piece, out?, next),
            Err(_) => Err(FilterError::Broken),
        });
        return Ok(());
    }
    let out = work.compress(&piece)?;
    put(r, work, &piece, out, next)
}

impl Piece {
    fn of(chain: Chain) -> Piece {
        let mut piece = Piece { texts: Vec::new(), flush: false, last: false };
        for buf in chain {
            piece.flush |= buf.flush;
            piece.last |= buf.last;
            if let Data::Mem(text) = buf.data {
                piece.texts.push(text);
            }
        }
        piece
    }
}

/// Passes on what was made of a piece.
fn put(r: &mut Request, work: Work, piece: &Piece, out: Vec<u8>, next: Next) -> FilterResult {
    let spare = r.conn().worker.local::<Spare>();
    let Some(state) = r.ctx::<State>() else { return Ok(()) };
    match piece.last {
        true => {
            state.is_over = true;
            spare.give(state.level, work.z);
        }
        false => state.work = Some(work),
    }
    if out.is_empty() && !piece.last && !piece.flush {
        return Ok(());
    }
    state.bytes_out += out.len() as u64;
    let mut buf = Buf::mem(out);
    buf.last = piece.last;
    buf.flush = piece.flush;
    next.body(r, Chain::one(buf))
}

/// `$gzip_ratio`: original over compressed size, two decimals, rounded as nginx rounds it.
fn ratio(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(s) = r.ctx::<State>() else { return false };
    if s.bytes_out == 0 {
        return false;
    }
    let (mut whole, part) = (s.bytes_in / s.bytes_out, s.bytes_in * 1000 / s.bytes_out % 1000);
    let mut part = (part + 5) / 10;
    if part > 99 {
        whole += 1;
        part = 0;
    }
    fmt_u64(out, whole);
    out.push(b'.');
    out.extend_from_slice(format!("{part:02}").as_bytes());
    true
}
