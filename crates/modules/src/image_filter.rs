//! Pictures tested, measured, made smaller, turned and cut out: nginx's `ngx_http_image_filter_module`.
//!
//! The header waits until the picture is there and has been made. A picture is looked at for its size before it is
//! decoded; threads decode, few at a time, so that the worker serves others meanwhile.
//!
//! Differences from nginx: pictures with a palette become PNGs without one; a GIF's or WebP's further frames are gone,
//! as nginx's are; PNG is not interlaced.

use crate::mime::without_params;
use bytes::Bytes;
use std::future::ready;
use std::sync::Arc;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use weir_conf::Directive;
use weir_core::eval::with_value;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::buf::Data;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::template;
use weir_http::{Buf, Chain, Request};
use weir_images::{Change, Kind, Part, Size, Wanted};
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::threads::in_thread;
use weir_script::template::Template;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Off,
    Test,
    Size,
    Resize,
    Crop,
    Rotate,
}

/// A number, or what makes one.
#[derive(Clone)]
enum Number {
    Is(u32),
    From(Arc<Template>),
}

/// Which part of a side stays, or what makes the word for it.
#[derive(Clone)]
enum Stays {
    Is(Part),
    From(Arc<Template>),
}

/// What the directives of one level say together.
#[derive(Clone)]
struct Doing {
    mode: Mode,
    width: Number,
    height: Number,
    angle: Number,
}

impl Default for Doing {
    fn default() -> Doing {
        let none = Number::Is(0);
        Doing { mode: Mode::Off, width: none.clone(), height: none.clone(), angle: none }
    }
}

#[derive(Default)]
pub struct Conf {
    doing: Val<Doing>,
    buffer_bytes: Val<u64>,
    jpeg_quality: Val<Number>,
    webp_quality: Val<Number>,
    sharpen: Val<Number>,
    /// Across and down.
    stays: Val<[Stays; 2]>,
    transparency: Val<bool>,
    interlace: Val<bool>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent;
            doing = Doing::default(),
            buffer_bytes = 1024 * 1024,
            jpeg_quality = Number::Is(75),
            webp_quality = Number::Is(80),
            sharpen = Number::Is(0),
            stays = [Stays::Is(Part::Middle), Stays::Is(Part::Middle)],
            transparency = true,
            interlace = false,
        );
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "image_filter",
            Context::LOCATION,
            Arity::ONE_TO_THREE,
            "off",
            "What is done to pictures: off, test, size, rotate, resize or crop.",
            set_filter,
        )
        .note(
            "A picture of more than 32 million pixels (WebP: 16) is refused with 415, and four are made at a time. Pictures \
             with a palette become PNGs without one. WebP's alpha is kept.",
        ),
        Row::new(
            "image_filter_buffer",
            Context::HSL,
            Arity::ONE,
            "1m",
            "The largest file of a picture.",
            set!(Cf::get::<Conf>, buffer_bytes, size),
        ),
        Row::new(
            "image_filter_jpeg_quality",
            Context::HSL,
            Arity::ONE,
            "75",
            "Quality of JPEG, 1 to 100.",
            |cf, d| set_number(cf, d, 1, |conf| &mut conf.jpeg_quality),
        ),
        Row::new(
            "image_filter_webp_quality",
            Context::HSL,
            Arity::ONE,
            "80",
            "Quality of WebP, 1 to 100.",
            |cf, d| set_number(cf, d, 1, |conf| &mut conf.webp_quality),
        ),
        Row::new(
            "image_filter_sharpen",
            Context::HSL,
            Arity::ONE,
            "0",
            "Make pictures sharper, in per cent.",
            |cf, d| set_number(cf, d, 0, |conf| &mut conf.sharpen),
        ),
        Row::new(
            "image_filter_crop_offset",
            Context::HSL,
            Arity::TWO,
            "center center",
            "What stays of a picture that is cut: left, center or right; top, center or bottom.",
            set_stays,
        )
        .note("It is Tengine's, which takes any other word for right or bottom. One that a variable has is center here."),
        Row::new(
            "image_filter_transparency",
            Context::HSL,
            Arity::FLAG,
            "on",
            "Keep what is seen through in GIF and in PNG with a palette.",
            set!(Cf::get::<Conf>, transparency, flag),
        ),
        Row::new(
            "image_filter_interlace",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Interlace pictures; JPEG becomes progressive.",
            set!(Cf::get::<Conf>, interlace, flag),
        )
        .note("PNG is not interlaced: it would be larger."),
    ],
    slots: &[SlotVtable::of::<Conf>()],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| slots.get::<Conf>().doing.mode != Mode::Off,
        reach: Reach::Part,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

/// As nginx reads it: `-` is no limit, what is no number is 0.
fn number(text: &[u8]) -> u32 {
    match weir_base::units::parse_int(text) {
        _ if text == b"-" => u32::MAX,
        Some(n) => u32::try_from(n).unwrap_or(u32::MAX),
        None => 0,
    }
}

fn read_number(cf: &mut Cf, d: &Directive, i: usize) -> ConfResult<Number> {
    let made = template(cf, d, i)?;
    Ok(match made.as_constant() {
        Some(text) => Number::Is(number(text)),
        None => Number::From(Arc::new(made)),
    })
}

fn set_number(
    cf: &mut Cf,
    d: &Directive,
    least: u32,
    field: fn(&mut Conf) -> &mut Val<Number>,
) -> ConfResult {
    let value = read_number(cf, d, 0)?;
    if matches!(value, Number::Is(n) if n < least) {
        return Err(d.invalid(0));
    }
    field(cf.get::<Conf>()).set(value);
    Ok(())
}

/// The words for a side's parts.
const WORDS: [[&[u8]; 3]; 2] = [[b"left", b"center", b"right"], [b"top", b"center", b"bottom"]];

fn part(side: usize, text: &[u8]) -> Option<Part> {
    let at = WORDS[side].iter().position(|word| *word == text)?;
    Some([Part::Begin, Part::Middle, Part::End][at])
}

fn set_stays(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut read = |side: usize| {
        let made = template(cf, d, side)?;
        Ok(match made.as_constant() {
            Some(text) => Stays::Is(part(side, text).ok_or_else(|| d.invalid(side))?),
            None => Stays::From(Arc::new(made)),
        })
    };
    let stays = [read(0)?, read(1)?];
    cf.get::<Conf>().stays.once(d, stays)
}

fn set_filter(cf: &mut Cf, d: &Directive) -> ConfResult {
    let invalid = |i: usize| {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        d.bad(i, format!("invalid parameter \"{shown}\""))
    };
    let mut doing = cf.get::<Conf>().doing.as_option().cloned().unwrap_or_default();
    match (d.arg(0), d.args.len()) {
        (b"off", 1) => doing.mode = Mode::Off,
        (b"test", 1) => doing.mode = Mode::Test,
        (b"size", 1) => doing.mode = Mode::Size,
        (b"rotate", 2) => {
            if !matches!(doing.mode, Mode::Resize | Mode::Crop) {
                doing.mode = Mode::Rotate;
            }
            doing.angle = read_number(cf, d, 1)?;
            if matches!(doing.angle, Number::Is(n) if !matches!(n, 90 | 180 | 270)) {
                return Err(invalid(1));
            }
        }
        (b"resize", 3) | (b"crop", 3) => {
            doing.mode = if d.arg(0) == b"crop" { Mode::Crop } else { Mode::Resize };
            doing.width = read_number(cf, d, 1)?;
            doing.height = read_number(cf, d, 2)?;
            for (i, side) in [(1, &doing.width), (2, &doing.height)] {
                if matches!(side, Number::Is(0)) {
                    return Err(invalid(i));
                }
            }
        }
        _ => return Err(invalid(0)),
    }
    cf.get::<Conf>().doing.set(doing);
    Ok(())
}

/// Pictures that are decoded at the same time, in the whole process.
static TURNS: Semaphore = Semaphore::const_new(4);
/// And the memory that they may take together; a picture that may take more than all has it alone.
static MEMORY: Semaphore = Semaphore::const_new(MEMORY_MIB as usize);
const MEMORY_MIB: u32 = 512;
/// Files that wait for their turn, together: who finds no room is not read before there is.
static FILES: Semaphore = Semaphore::const_new(256);
/// Of which one has so many for every MiB.
const MIB: u64 = 1024 * 1024;
/// What tells the kinds apart.
const HEAD_BYTES: usize = 16;

/// An answer that may be a picture.
struct State {
    header: Next,
    most_bytes: u64,
    file: Vec<u8>,
    kind: Option<Kind>,
    phase: Phase,
    /// Of [`FILES`].
    room: Option<SemaphorePermit<'static>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Read,
    /// What comes goes on as it is.
    Pass,
    /// All has been said.
    Over,
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    // The answer that tells of a refusal.
    if r.out.status == 304 || r.take_ctx::<State>().is_some() {
        return next.header(r);
    }
    let kind = r.out.content_type().unwrap_or_default();
    if without_params(kind).eq_ignore_ascii_case(b"multipart/x-mixed-replace") {
        r.log(LogLevel::Error, "image filter: multipart/x-mixed-replace response");
        return Err(FilterError::Broken);
    }
    let most_bytes = *r.loc().conf::<Conf>().buffer_bytes;
    let length = r.out.content_length;
    let phase = Phase::Read;
    r.set_ctx(State { header: next, most_bytes, file: Vec::new(), kind: None, phase, room: None });
    if let Some(length) = length.filter(|length| *length > most_bytes) {
        r.log(LogLevel::Error, &format!("image filter: too big response: {length}"));
        r.out.clear();
        return Err(FilterError::Status(415));
    }
    r.out.remove(b"Refresh");
    r.whole = None;
    r.flags.allow_ranges = false;
    r.flags.filter_needs_memory = true;
    if r.loc().conf::<Conf>().doing.mode == Mode::Test {
        return Ok(());
    }
    let wanted = length.unwrap_or(most_bytes).div_ceil(MIB).clamp(1, 256) as u32;
    match FILES.try_acquire_many(wanted) {
        Ok(room) => has_room(r, Ok(room), next),
        Err(_) => r.wait_in_header(next, FILES.acquire_many(wanted), has_room),
    }
}

/// Its file may be read.
fn has_room(
    r: &mut Request,
    room: Result<SemaphorePermit<'static>, AcquireError>,
    _: Next,
) -> FilterResult {
    let length = r.out.content_length.unwrap_or(0);
    if let Some(state) = r.ctx::<State>() {
        state.room = room.ok();
        // Not twice as much, as a file that grows would take; who promises and sends nothing touches none of it.
        state.file.reserve_exact(length.min(state.most_bytes) as usize);
    }
    Ok(())
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    if !r.has_ctx::<State>() {
        return next.body(r, chain);
    }
    let Some(chain) = r.keep_while_waiting(chain, next) else { return Ok(()) };
    let Some(state) = r.ctx::<State>() else { return Ok(()) };
    match state.phase {
        Phase::Read => {}
        Phase::Pass => return next.body(r, chain),
        Phase::Over => return Ok(()),
    }
    let mut last = false;
    for buf in chain {
        last |= buf.last;
        if let Data::Mem(text) = buf.data {
            state.file.extend_from_slice(&text);
        }
    }
    if state.file.len() as u64 > state.most_bytes {
        r.log(LogLevel::Error, "image filter: too big response");
        return refuse(r, next);
    }
    if !last && state.file.len() < HEAD_BYTES {
        return Ok(());
    }
    let kind = Kind::of(&state.file);
    state.kind = kind;
    let mode = r.loc().conf::<Conf>().doing.mode;
    match (kind, mode) {
        (None, Mode::Size) => send_json(r, None, next),
        (None, _) => refuse(r, next),
        (Some(kind), Mode::Test) => pass(r, kind, last, next),
        (Some(kind), _) if last => make(r, kind, mode, next),
        _ => Ok(()),
    }
}

/// 415 instead, without the fields of what is refused. A body filter is heard with a status of its own only when it has waited.
fn refuse(r: &mut Request, next: Next) -> FilterResult {
    if let Some(state) = r.ctx::<State>() {
        state.file = Vec::new();
    }
    r.out.clear();
    r.wait_in_body(next, ready(()), |_, (), _| Err(FilterError::Status(415)));
    Ok(())
}

/// Sends what has come, and what will.
fn pass(r: &mut Request, kind: Kind, last: bool, next: Next) -> FilterResult {
    r.out.set_content_type(kind.mime().as_bytes());
    let Some(state) = r.ctx::<State>() else { return Ok(()) };
    state.phase = Phase::Pass;
    let mut buf = Buf::mem(std::mem::take(&mut state.file));
    buf.last = last;
    let header = state.header;
    header.header(r)?;
    match r.flags.header_only {
        true => Ok(()),
        false => next.body(r, Chain::one(buf)),
    }
}

/// Sends all there is, with its length.
fn send(r: &mut Request, text: Bytes, next: Next) -> FilterResult {
    r.out.clear_content_length();
    r.out.content_length = Some(text.len() as u64);
    let Some(state) = r.ctx::<State>() else { return Ok(()) };
    state.phase = Phase::Over;
    let header = state.header;
    header.header(r)?;
    match r.flags.header_only {
        true => Ok(()),
        false => next.body(r, Chain::one(Buf::mem(text).and_last())),
    }
}

fn send_json(r: &mut Request, found: Option<(Kind, Size)>, next: Next) -> FilterResult {
    let text = match found {
        None => "{}\r\n".to_string(),
        Some((kind, size)) => format!(
            "{{ \"img\" : {{ \"width\": {}, \"height\": {}, \"type\": \"{}\" }} }}\r\n",
            size.width,
            size.height,
            kind.mime().trim_start_matches("image/")
        ),
    };
    r.out.clear();
    r.out.status = 200;
    r.out.set_content_type(b"application/json");
    send(r, text.into(), next)
}

fn value(r: &mut Request, number_of: &Number) -> u32 {
    match number_of {
        Number::Is(n) => *n,
        Number::From(made) => with_value(r, made, |_, text| number(text)),
    }
}

/// The whole picture is there.
fn make(r: &mut Request, kind: Kind, mode: Mode, next: Next) -> FilterResult {
    let Some(state) = r.ctx::<State>() else { return Ok(()) };
    let file = Bytes::from(std::mem::take(&mut state.file));
    let room = state.room.take();
    let size = weir_images::size(kind, &file);
    if mode == Mode::Size {
        return send_json(r, size.map(|size| (kind, size)), next);
    }
    r.out.set_content_type(kind.mime().as_bytes());
    let Some(wanted) = wanted(r, kind, mode) else { return refuse(r, next) };
    if fits(size, &wanted) {
        return send(r, file, next);
    }
    let cost_mib = weir_images::cost_bytes(kind, size).div_ceil(1024 * 1024);
    let share = u32::try_from(cost_mib).unwrap_or(MEMORY_MIB).min(MEMORY_MIB);
    let working = async move {
        // In the order in which they came; who leaves is not waited for.
        let turn = (TURNS.acquire().await, MEMORY.acquire_many(share).await);
        let making = in_thread(move || {
            // A picture that nobody waits for any more has its turn to the end.
            let _turn = turn;
            let made = weir_images::change(kind, &file, &wanted, size);
            (made, file, room)
        });
        making.await
    };
    r.wait_in_body(next, working, |r, done, next| match done {
        Ok((Ok(Some(made)), ..)) => {
            r.out.weaken_etag();
            send(r, made.into(), next)
        }
        Ok((Ok(None), file, _)) => send(r, file, next),
        Ok((Err(e), ..)) => {
            r.log(LogLevel::Error, &format!("image filter: {e}"));
            r.out.clear();
            Err(FilterError::Status(415))
        }
        Err(e) => {
            r.log(LogLevel::Error, &format!("image filter: {e}"));
            r.out.clear();
            Err(FilterError::Status(415))
        }
    });
    Ok(())
}

/// Whether a picture is sent as it is, by what its head says.
fn fits(size: Option<Size>, wanted: &Wanted) -> bool {
    let (Change::Resize { width, height } | Change::Crop { width, height }) = wanted.change else {
        return false;
    };
    let is_small = |size: Size| size.width <= width && size.height <= height && !size.is_padded;
    wanted.angle == 0 && size.is_some_and(is_small)
}

/// What is to be made of it, if the numbers make sense.
fn wanted(r: &mut Request, kind: Kind, mode: Mode) -> Option<Wanted> {
    let loc = std::rc::Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    let angle = value(r, &conf.doing.angle);
    let (width, height) = (value(r, &conf.doing.width), value(r, &conf.doing.height));
    let change = match mode {
        Mode::Rotate if !matches!(angle, 90 | 180 | 270) => return None,
        Mode::Rotate => Change::Turn,
        _ if width == 0 || height == 0 => return None,
        Mode::Crop => Change::Crop { width, height },
        _ => Change::Resize { width, height },
    };
    let mut stays = [Part::Middle; 2];
    for (side, which) in conf.stays.iter().enumerate() {
        stays[side] = match which {
            Stays::Is(part) => *part,
            Stays::From(made) => {
                with_value(r, made, |_, text| part(side, text)).unwrap_or_default()
            }
        };
    }
    // Of a kind that is not written it does not matter.
    let mut quality = |of: Kind, number: &Number| match of == kind {
        true => Some(value(r, number)).filter(|n| *n > 0).map(|n| n.min(100) as u8),
        false => Some(100),
    };
    let jpeg_quality = quality(Kind::Jpeg, &conf.jpeg_quality)?;
    let webp_quality = quality(Kind::Webp, &conf.webp_quality)?;
    Some(Wanted {
        change,
        angle,
        jpeg_quality,
        webp_quality,
        sharpen: value(r, &conf.sharpen),
        transparency: *conf.transparency,
        interlace: *conf.interlace,
        stays,
    })
}
