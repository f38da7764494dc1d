//! Content codings that answers are compressed by: what `gzip`, `brotli` and `zstd` have in common. Each of them
//! brings its directives and a [`Coding`], and has a filter of its own here.
//!
//! An entity that is kept in memory is compressed once per coding and level and its form kept, with its length
//! known. What takes long is compressed by a thread while others are served.

pub mod accept;

use crate::mime::MimeTypes;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_conf::Directive;
use weir_core::forms::Forms;
use weir_core::logger::LogLevel;
use weir_core::{Session as _, Worker};
use weir_http::buf::Data;
use weir_http::generation::Location;
use weir_http::module::{FilterError, FilterResult, Next};
use weir_http::request::Whole;
use weir_http::{Buf, Chain, Request};
use weir_module::{merge_values, ArgsExt, ConfResult, Context, Val};
use weir_runtime::threads::in_thread;

/// Where a coding's switch stands.
pub const HSLI: Context = Context::HSL.or(Context::LIF);
/// Of directives that size buffers.
pub const SIZED: &str = "Buffers here size themselves; the value is checked and not needed.";

/// What is compressed, as every coding's directives say it.
#[derive(Default)]
pub struct Wanted {
    pub on: Val<bool>,
    pub types: Val<Arc<MimeTypes>>,
    /// Bytes.
    pub min_length: Val<u64>,
}

impl Wanted {
    /// Takes over what the outer level says.
    ///
    /// # Errors
    ///
    /// None.
    pub fn merge(&mut self, parent: &Wanted) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            types = MimeTypes::of(&["text/html"]),
            min_length = 20,
        );
        Ok(())
    }

    /// Whether a response is one to be compressed.
    #[inline]
    pub fn has(&self, r: &Request) -> bool {
        matches!(r.out.status, 200 | 403 | 404)
            && r.out.get(b"Content-Encoding").is_none_or(<[u8]>::is_empty)
            && r.out.content_length.is_none_or(|n| n >= *self.min_length)
            && self.types.match_response(r)
            && !r.flags.header_only
    }
}

/// `…_buffers number size`, which are checked and not needed.
///
/// # Errors
///
/// They are no number and no size.
pub fn buffers(d: &Directive) -> ConfResult {
    d.num(0)?;
    d.size(1).map(|_| ())
}

/// One coding: what its directives say, and what compresses by it.
pub trait Coding: Send + Sized + 'static {
    /// The word of Content-Encoding.
    const WORD: &'static [u8];
    /// How a compressor works: level, window.
    type Way: Clone + Send + 'static;

    fn wanted(loc: &Location) -> &Wanted;
    /// Whether the client takes it, and nothing else that is on better.
    fn may(r: &mut Request, loc: &Location) -> bool;
    /// Whether a response loses its ETag, which is weakened otherwise.
    fn clears_etag(_: &Location) -> bool {
        false
    }
    /// For a response of so many bytes, if that is known.
    fn way(loc: &Location, length: Option<u64>) -> Self::Way;
    /// By which its form of an entity is kept; none if it is not to be.
    fn form_key(way: &Self::Way) -> Option<u32>;
    /// A compressor gathers so many bytes before it does anything with them.
    fn block_bytes(way: &Self::Way) -> u64;
    /// Memory that a compressor at work holds; 0 where nobody counts it.
    fn memory_bytes(_: &Self::Way) -> u64 {
        0
    }
    /// What so many bytes take, told in bytes at gzip's level 1.
    fn effort_bytes(way: &Self::Way, bytes: u64, begins: bool) -> u64;

    /// # Errors
    ///
    /// There is no compressor to be had.
    fn new(way: &Self::Way) -> Result<Self, FilterError>;
    /// Ready for another response of the same way; none if it is not to be used again. It is kept by the number.
    fn again(self, way: &Self::Way) -> Option<(u64, Self)>;
    /// The number that one of this way is kept by.
    fn spare_key(way: &Self::Way) -> u64;

    /// # Errors
    ///
    /// The compressor has failed, here and below.
    fn compress(&mut self, text: &[u8], out: &mut Vec<u8>) -> FilterResult;
    /// What has been compressed so far leaves.
    fn flush(&mut self, out: &mut Vec<u8>) -> FilterResult;
    fn finish(&mut self, out: &mut Vec<u8>) -> FilterResult;
}

/// What the compressors of a worker's responses may hold at once, those that nobody counts left out. A client that
/// takes nothing keeps its response's as long as send_timeout lets it.
const MEMORY_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// What they hold.
#[derive(Default)]
struct Held(Cell<u64>);

/// A response's part of it.
struct Share {
    of: Rc<Held>,
    bytes: u64,
}

impl Share {
    /// None if there is no room.
    fn take(r: &Request, bytes: u64) -> Option<Share> {
        let of = r.conn().worker.local::<Held>();
        let held = of.0.get() + bytes;
        (bytes == 0 || held <= MEMORY_MAX_BYTES).then(|| {
            of.0.set(held);
            Share { of, bytes }
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.set(self.of.0.get() - self.bytes);
    }
}

/// A response for which a coding had no memory: the next best is asked.
struct Lacking(Vec<accept::Rank>);

/// Room given to a compressor at once.
pub const OUT_BYTES: usize = 16 * 1024;
/// Less than this waits for more, or for a flush: small pieces of an answer made as many chunks, with
/// five bytes around each.
const HOLD_BYTES: usize = 4096;
/// So much at gzip's level 1, and less as levels take longer, is compressed by a thread: the worker would be some
/// milliseconds at it.
const THREAD_MIN_BYTES: u64 = 512 * 1024;
/// Compressors kept per worker and way.
const SPARE_MAX: usize = 16;

/// Compressors that have been used and are ready for another response.
pub struct Spare<C>(RefCell<HashMap<u64, Vec<C>>>);

impl<C> Default for Spare<C> {
    fn default() -> Spare<C> {
        Spare(RefCell::default())
    }
}

impl<C: Coding> Spare<C> {
    /// Each takes some hundred KB, and a burst leaves as many as were at work at once.
    pub fn free(worker: &Worker) {
        worker.local::<Spare<C>>().0.take();
    }

    fn take(&self, way: &C::Way) -> Result<C, FilterError> {
        let kept = self.0.borrow_mut().get_mut(&C::spare_key(way)).and_then(Vec::pop);
        kept.map_or_else(|| C::new(way), Ok)
    }

    fn give(&self, way: &C::Way, coder: C) {
        let Some((key, coder)) = coder.again(way) else { return };
        let mut all = self.0.borrow_mut();
        let list = all.entry(key).or_default();
        if list.len() < SPARE_MAX {
            list.push(coder);
        }
    }
}

/// A response that is being compressed.
struct State<C: Coding> {
    way: C::Way,
    /// Until all is compressed.
    share: Option<Share>,
    /// None before the first piece, behind the last, and while a thread has it.
    work: Option<Work<C>>,
    is_over: bool,
    bytes_in: u64,
    bytes_out: u64,
    /// The finished form that replaces the body.
    form: Option<Bytes>,
}

/// What compresses it.
struct Work<C> {
    coder: C,
    /// Bytes that the coder has and has done nothing with.
    gathered_bytes: u64,
    /// Nothing has been compressed yet: its tables are still to be made.
    is_new: bool,
    /// Compressed, and too little for a chunk of its own unless it is asked for.
    held: Vec<u8>,
}

/// A piece of a response.
struct Piece {
    texts: Vec<Bytes>,
    flush: bool,
    last: bool,
}

/// The header filter.
pub fn header<C: Coding>(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    if !C::wanted(&loc).has(r) {
        return next.header(r);
    }
    r.flags.gzip_vary = true;
    if !C::may(r, &loc) {
        return next.header(r);
    }
    let way = C::way(&loc, r.out.content_length);
    let is_kept = r.whole.is_some() && C::form_key(&way).is_some();
    let share = match is_kept {
        true => None,
        false => match Share::take(r, C::memory_bytes(&way)) {
            None => return lacks_memory::<C>(r, next),
            share => share,
        },
    };
    let whole = r.whole.take();
    r.out.add(b"Content-Encoding", C::WORD);
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    match C::clears_etag(&loc) {
        true => r.out.clear_etag(),
        false => r.out.weaken_etag(),
    }
    r.flags.allow_ranges = false;
    r.flags.filter_needs_memory = true;
    let key = C::form_key(&way);
    let Some((Whole { text, forms }, key)) = whole.zip(key) else {
        r.set_ctx(State::<C> { share, ..State::new(way, 0) });
        return next.header(r);
    };
    r.set_ctx(State::<C>::new(way.clone(), text.len() as u64));
    if let Some(form) = forms.find(key) {
        return with_form::<C>(r, Some(form), next);
    }
    if is_long::<C>(&way, text.len() as u64, true) {
        return r.wait_in_header(next, make_form::<C>(forms, key, way, text), with_form::<C>);
    }
    let spare = r.conn().worker.local::<Spare<C>>();
    let mut coder = spare.take(&way)?;
    let form = compress_whole(&mut coder, &text);
    spare.give(&way, coder);
    form.iter().for_each(|form| forms.keep(key, form));
    with_form::<C>(r, form, next)
}

/// Another coding does it, or none.
#[cold]
fn lacks_memory<C: Coding>(r: &mut Request, next: Next) -> FilterResult {
    r.log(LogLevel::Info, "there is no memory for a further compressor, the next coding is taken");
    if let Some(rank) = accept::Rank::ALL.into_iter().find(|rank| rank.word() == C::WORD) {
        let mut lacking = r.kept::<Lacking>().map_or_else(Vec::new, |l| l.0.clone());
        lacking.push(rank);
        r.keep_state(Lacking(lacking));
    }
    next.header(r)
}

/// Whether the worker would have others wait for too long.
fn is_long<C: Coding>(way: &C::Way, bytes: u64, begins: bool) -> bool {
    C::effort_bytes(way, bytes, begins) >= THREAD_MIN_BYTES
}

/// The header, with the length of a form that is there.
fn with_form<C: Coding>(r: &mut Request, form: Option<Bytes>, next: Next) -> FilterResult {
    r.out.content_length = form.as_ref().map(|f| f.len() as u64);
    if let Some(state) = r.ctx::<State<C>>() {
        match form {
            Some(form) => state.form = Some(form),
            // It is compressed as it comes, and counted then.
            None => state.bytes_in = 0,
        }
    }
    next.header(r)
}

/// Has a thread compress an entity, once for all requests that wait for the same.
async fn make_form<C: Coding>(
    forms: Arc<Forms>,
    key: u32,
    way: C::Way,
    text: Bytes,
) -> Option<Bytes> {
    let _turn = forms.turn().await;
    if let Some(form) = forms.find(key) {
        return Some(form);
    }
    let made = in_thread(move || compress_whole(&mut C::new(&way).ok()?, &text));
    let form = made.await.ok().flatten()?;
    forms.keep(key, &form);
    Some(form)
}

fn compress_whole<C: Coding>(coder: &mut C, text: &[u8]) -> Option<Bytes> {
    let mut out = Vec::with_capacity(text.len() / 2 + 64);
    coder.compress(text, &mut out).ok()?;
    coder.finish(&mut out).ok()?;
    Some(Bytes::from(out))
}

impl<C: Coding> State<C> {
    fn new(way: C::Way, bytes_in: u64) -> State<C> {
        State { way, share: None, work: None, is_over: false, bytes_in, bytes_out: 0, form: None }
    }
}

impl<C: Coding> Work<C> {
    fn new(coder: C) -> Work<C> {
        Work { coder, gathered_bytes: 0, is_new: true, held: Vec::new() }
    }

    /// Whether the worker would be at this piece for too long: with none of its bytes, or also with what came before.
    fn is_long(&mut self, way: &C::Way, piece: &Piece, len: u64) -> bool {
        let all = self.gathered_bytes + len;
        self.gathered_bytes = match piece.flush || piece.last {
            true => 0,
            false => all % C::block_bytes(way),
        };
        let due_bytes = all - self.gathered_bytes;
        let is_long = is_long::<C>(way, due_bytes, self.is_new);
        self.is_new &= due_bytes == 0;
        is_long
    }

    /// What is to be sent of what has been compressed.
    fn compress(&mut self, piece: &Piece) -> Result<Vec<u8>, FilterError> {
        let mut out = std::mem::take(&mut self.held);
        let len: usize = piece.texts.iter().map(Bytes::len).sum();
        out.reserve(OUT_BYTES.min(len / 2 + 256));
        for text in &piece.texts {
            self.coder.compress(text, &mut out)?;
        }
        if piece.last {
            self.coder.finish(&mut out)?;
        } else if piece.flush {
            self.coder.flush(&mut out)?;
        } else if out.len() < HOLD_BYTES {
            self.held = std::mem::take(&mut out);
        }
        Ok(out)
    }
}

/// The body filter.
pub fn body<C: Coding>(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    if !r.has_ctx::<State<C>>() {
        return next.body(r, chain);
    }
    let Some(chain) = r.keep_while_waiting(chain, next) else { return Ok(()) };
    let worker = Rc::clone(&r.conn().worker);
    let Some(state) = r.ctx::<State<C>>() else { return Ok(()) };
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
    let mut work = match state.work.take() {
        Some(work) => work,
        None => Work::new(worker.local::<Spare<C>>().take(&state.way)?),
    };
    if work.is_long(&state.way, &piece, len) {
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
fn put<C: Coding>(
    r: &mut Request,
    work: Work<C>,
    piece: &Piece,
    out: Vec<u8>,
    next: Next,
) -> FilterResult {
    let spare = r.conn().worker.local::<Spare<C>>();
    let Some(state) = r.ctx::<State<C>>() else { return Ok(()) };
    match piece.last {
        true => {
            state.is_over = true;
            state.share = None;
            spare.give(&state.way, work.coder);
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

/// Original over compressed size, with two decimals that are rounded as nginx rounds them.
pub fn ratio<C: Coding>(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(thousandths) = thousandths::<C>(r, false) else { return false };
    let hundredths = (thousandths + 5) / 10;
    fmt_u64(out, hundredths / 100);
    out.extend_from_slice(format!(".{:02}", hundredths % 100).as_bytes());
    true
}

/// The same in thousandths, cut off; `ended`: only of an answer that has ended.
pub fn thousandths<C: Coding>(r: &mut Request, ended: bool) -> Option<u64> {
    let s = r.ctx::<State<C>>()?;
    let known = s.bytes_out > 0 && (s.is_over || !ended);
    known.then(|| s.bytes_in.saturating_mul(1000) / s.bytes_out)
}
