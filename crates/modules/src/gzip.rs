//! Compression: nginx's `ngx_http_gzip_filter_module`.
//!
//! Differences from nginx: an entity that is kept in memory is compressed once per level and its
//! form kept, with its length known; `gzip_buffers`, `gzip_hash`, `gzip_window` and the like size
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

#[derive(Default)]
pub struct Conf {
    on: Val<bool>,
    types: Val<Arc<MimeTypes>>,
    level: Val<u32>,
    min_length: Val<u64>,
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
        .note(SIZED),
        Row::new("gzip_window", Context::HSL, Arity::ONE, "", "Size of the window.", |_, d| {
            power_of_two(d, 32 * 1024, "must be 512, 1k, 2k, 4k, 8k, 16k, or 32k")
        })
        .note(SIZED),
        Row::new("gzip_hash", Context::HSL, Arity::ONE, "", "Size of the hash.", |_, d| {
            power_of_two(d, 128 * 1024, "must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k")
        })
        .note(SIZED),
        Row::new(
            "postpone_gzipping",
            Context::HSL,
            Arity::ONE,
            "0",
            "Gather this much before compressing.",
            |_, d| d.size(0).map(|_| ()),
        )
        .note(SIZED),
        Row::new(
            "gzip_no_buffer",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Send compressed data at once.",
            |_, d| d.flag().map(|_| ()),
        )
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
    quiet: Some(Spare::free),
    ..HttpModule::EMPTY
};

/// gzip's header without name and time; 3 is Unix.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
/// Room given to the compressor at once.
const OUT_BYTES: usize = 16 * 1024;
/// Less than this waits for more, or for a flush: small pieces of an answer made as many chunks, with
/// five bytes around each.
const HOLD_BYTES: usize = 4096;
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
    z: Option<Compress>,
    crc: Crc,
    begun: bool,
    bytes_in: u64,
    bytes_out: u64,
    /// Compressed, and too little for a chunk of its own unless it is asked for.
    held: Vec<u8>,
    /// The finished form that replaces the body.
    form: Option<Bytes>,
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
    r.out.weaken_etag();
    r.flags.allow_ranges = false;
    r.flags.filter_needs_memory = true;
    let mut state = State {
        level,
        z: None,
        crc: Crc::new(),
        begun: false,
        bytes_in: 0,
        bytes_out: 0,
        held: Vec::new(),
        form: None,
    };
    if let Some(Whole { text, forms }) = whole {
        let spare = r.conn().worker.local::<Spare>();
        state.form = forms.get(level, || compress_whole(&spare, level, &text));
        state.bytes_in = text.len() as u64;
        r.out.content_length = state.form.as_ref().map(|f| f.len() as u64);
    }
    r.set_ctx(state);
    next.header(r)
}

fn compress_whole(spare: &Spare, level: u32, text: &[u8]) -> Option<Bytes> {
    let mut z = spare.take(level);
    let mut out = Vec::with_capacity(text.len() / 2 + 64);
    out.extend_from_slice(&HEADER);
    let mut crc = Crc::new();
    crc.update(text);
    deflate(&mut z, text, FlushCompress::Finish, &mut out).ok()?;
    trailer(&crc, &mut out);
    spare.give(level, z);
    Some(Bytes::from(out))
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
    let worker = Rc::clone(&r.conn().worker);
    let Some(state) = r.ctx::<State>() else { return next.body(r, chain) };
    if let Some(form) = state.form.take() {
        state.bytes_out = form.len() as u64;
        return next.body(r, Chain::one(Buf::mem(form).and_last()));
    }
    if state.bytes_out > 0 && state.z.is_none() && state.begun {
        return Ok(());
    }
    let spare = worker.local::<Spare>();
    let level = state.level;
    let mut z = state.z.take().unwrap_or_else(|| spare.take(level));
    let mut out = std::mem::take(&mut state.held);
    out.reserve(OUT_BYTES.min(chain.len() as usize / 2 + 256));
    if !std::mem::replace(&mut state.begun, true) {
        out.extend_from_slice(&HEADER);
    }
    let last = chain.has_last();
    let flush = chain.iter().any(|b| b.flush);
    for b in chain {
        if let Data::Mem(text) = &b.data {
            state.crc.update(text);
            state.bytes_in += text.len() as u64;
            deflate(&mut z, text, FlushCompress::None, &mut out)?;
        }
    }
    if last {
        deflate(&mut z, &[], FlushCompress::Finish, &mut out)?;
        trailer(&state.crc, &mut out);
        spare.give(level, z);
    } else {
        if flush {
            deflate(&mut z, &[], FlushCompress::Sync, &mut out)?;
        }
        state.z = Some(z);
    }
    if out.len() < HOLD_BYTES && !last && !flush {
        state.held = out;
        return Ok(());
    }
    state.bytes_out += out.len() as u64;
    let mut buf = Buf::mem(out);
    buf.last = last;
    buf.flush = flush;
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
