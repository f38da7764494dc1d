//! Compression by zstd (RFC 8878): the filter of `zstd-nginx-module`.
//!
//! Differences from it: those of every coding here (`coding`), and that the weights of Accept-Encoding count. Windows
//! are at most 8 MB, because no client has to take more (RFC 9659).

use crate::coding::accept::{is_best, Rank};
use crate::coding::{self, Coding, Spare, Wanted, HSLI, OUT_BYTES, SIZED};
use crate::mime::MimeTypes;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use weir_base::bytes::fmt_u64;
use weir_core::os_text;
use weir_core::worker::AtWorker;
use weir_http::generation::Location;
use weir_http::module::{
    Build, Filter, FilterError, FilterResult, HttpModule, Reach, VarArg, Variable,
};
use weir_http::Request;
use weir_module::first::{flag, size};
use weir_module::{
    distinct, merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context,
    Diagnostic, Directive, Level, Row, SlotVtable, Val,
};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// Of the library; what is below 1 is quick and compresses little.
const LEVELS: std::ops::RangeInclusive<i64> = -131_072..=22;
/// The largest window that every client has to take, and the least there is, as powers of two.
const WINDOW_MAX_BITS: u32 = 23;
const WINDOW_MIN_BITS: u32 = 10;
/// From this level on the library's windows are larger than that.
const WIDE_LEVEL: i32 = 20;

#[derive(Default)]
pub struct Conf {
    wanted: Wanted,
    level: Val<i32>,
    /// Put there by the build step.
    dictionary: OnceLock<Arc<[u8]>>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent; level = 1);
        self.wanted.merge(&parent.wanted)
    }
}

#[derive(Default)]
struct Main {
    dictionary: Val<PathBuf>,
}

impl ConfType for Main {
    const LEVEL: Level = Level::Main;
    slot!();
}

fn wanted(cf: &mut Cf) -> &mut Wanted {
    &mut cf.get::<Conf>().wanted
}

fn level(d: &Directive) -> ConfResult<i32> {
    let text = d.arg(0);
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_number);
    let number = number.ok_or_else(|| d.error("invalid number"))?.parse().unwrap_or(i64::MAX);
    match LEVELS.contains(&number) && number != 0 {
        true => Ok(number as i32),
        false => Err(d.fail("zstd compress level must between -131072 and 22 excluding 0")),
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "zstd",
            HSLI,
            Arity::FLAG,
            "off",
            "Compress responses by zstd.",
            set!(wanted, on, flag),
        )
        .note(
            "Of zstd-nginx-module. Weights of Accept-Encoding count, and \"*\" stands for zstd where that is not \
             named. Where several codings are on, the client's best is taken: of equals brotli, then zstd, then gzip. \
             What its compressors hold is bounded together with brotli's.",
        ),
        Row::new(
            "zstd_types",
            Context::HSL,
            Arity::ONE_MORE,
            "text/html",
            "MIME types to compress besides text/html.",
            |cf, d| {
                MimeTypes::read(cf, d, |cf| &mut wanted(cf).types);
                Ok(())
            },
        ),
        Row::new(
            "zstd_comp_level",
            Context::HSL,
            Arity::ONE,
            "1",
            "Compression level, 1 to 22, or below 0 for less.",
            set!(Cf::get::<Conf>, level, level),
        )
        .note("From level 20 on the window is 8 MB, which every client takes; the module's is larger."),
        Row::new(
            "zstd_min_length",
            Context::HSL,
            Arity::ONE,
            "20",
            "Shortest response to compress, by Content-Length.",
            set!(wanted, min_length, size),
        ),
        Row::new(
            "zstd_buffers",
            Context::HSL,
            Arity::TWO,
            "32 4k",
            "Number and size of buffers.",
            |_, d| coding::buffers(d),
        )
        .once()
        .note(SIZED),
        Row::new(
            "zstd_dict_file",
            Context::HTTP,
            Arity::ONE,
            "",
            "A dictionary, which the clients must have too.",
            |cf, d| {
                let path = cf.full_conf_path(d.arg(0));
                cf.get::<Main>().dictionary.once(d, path)
            },
        ),
    ],
    slots: &[SlotVtable::of::<Conf>(), SlotVtable::of::<Main>()],
    variables: &[Variable::new("zstd_ratio", ratio)],
    filter: Some(Filter {
        header: Some(coding::header::<Zstd>),
        body: Some(coding::body::<Zstd>),
        active: |slots| *slots.get::<Conf>().wanted.on,
        reach: Reach::Whole,
    }),
    body_on_demand: true,
    build: Some(build),
    at_worker: AtWorker { quiet: Some(Spare::<Zstd>::free), ..AtWorker::NOTHING },
    ..HttpModule::EMPTY
};

fn build(b: &mut Build) -> ConfResult {
    let Some(path) = b.main.get::<Main>().dictionary.as_option() else { return Ok(()) };
    let text = b.cf.read_file(path).map_err(|e| {
        let shown = path.display();
        Diagnostic::emerg(format!("open() \"{shown}\" failed ({})", os_text(&e)))
    })?;
    for conf in distinct::<Conf>(b.locations) {
        if *conf.wanted.on {
            let _ = conf.dictionary.set(Arc::clone(&text));
        }
    }
    Ok(())
}

/// How a response is compressed.
#[derive(Clone)]
pub struct Way {
    level: i32,
    /// Where it is not the level's own.
    window_bits: Option<u32>,
    dictionary: Option<Arc<[u8]>>,
}

/// What compresses by it.
pub struct Zstd(CCtx<'static>);

fn failed(_: usize) -> FilterError {
    FilterError::Broken
}

impl Zstd {
    /// Calls a step until it says that nothing is left.
    fn drain(
        &mut self,
        out: &mut Vec<u8>,
        step: impl Fn(&mut CCtx<'static>, &mut OutBuffer<'_, Vec<u8>>) -> Result<usize, usize>,
    ) -> FilterResult {
        loop {
            let had = out.len();
            out.reserve(OUT_BYTES);
            let left = step(&mut self.0, &mut OutBuffer::around_pos(out, had)).map_err(failed)?;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

impl Coding for Zstd {
    const WORD: &'static [u8] = b"zstd";
    type Way = Way;

    fn wanted(loc: &Location) -> &Wanted {
        &loc.conf::<Conf>().wanted
    }

    fn may(r: &mut Request, loc: &Location) -> bool {
        is_best(r, loc, Rank::Zstd)
    }

    fn way(loc: &Location, length: Option<u64>) -> Way {
        let conf = loc.conf::<Conf>();
        let level = *conf.level;
        // A smaller one than a level's own has smaller tables; what is longer has no use for that.
        let needed = length.map(|n| (n.max(2) - 1).ilog2() + 1).filter(|bits| *bits < 19);
        let widest = (level >= WIDE_LEVEL).then_some(WINDOW_MAX_BITS);
        let window_bits = needed.map(|bits| bits.max(WINDOW_MIN_BITS)).or(widest);
        Way { level, window_bits, dictionary: conf.dictionary.get().cloned() }
    }

    /// What is made with a dictionary is for those who have it, and another configuration may have another.
    fn form_key(way: &Way) -> Option<u32> {
        let level = (way.level - *LEVELS.start() as i32) as u32;
        way.dictionary.is_none().then_some(2 << 24 | level)
    }

    fn block_bytes(way: &Way) -> u64 {
        1 << way.window_bits.unwrap_or(17).min(17)
    }

    /// Its window, tables and blocks; what a level's parameters come to, rounded up.
    fn memory_bytes(way: &Way) -> u64 {
        let most = match way.level {
            ..=2 => 2 << 20,
            3..=4 => 4 << 20,
            5..=8 => 8 << 20,
            9..=12 => 32 << 20,
            13..=15 => 48 << 20,
            _ => 96 << 20,
        };
        let needed = way.window_bits.map_or(most, |bits| most.min((16 << bits) + (1 << 20)));
        needed + way.dictionary.as_ref().map_or(0, |d| d.len() as u64)
    }

    fn effort_bytes(way: &Way, bytes: u64, begins: bool) -> u64 {
        // Measured on text, beside gzip's level 1; tables to be cleared in bytes.
        let (times, tables) = match way.level {
            ..=2 => (1, 512 * 1024),
            3..=4 => (2, 1 << 20),
            5..=8 => (5, 4 << 20),
            9..=12 => (10, 16 << 20),
            13..=15 => (40, 32 << 20),
            _ => (150, 64 << 20),
        };
        let tables = way.window_bits.map_or(tables, |bits| tables.min(16 << bits));
        let dictionary = way.dictionary.as_ref().map_or(0, |d| d.len() as u64);
        let begin = if begins { tables / 8 + dictionary * times } else { 0 };
        begin + bytes * times
    }

    fn new(way: &Way) -> Result<Zstd, FilterError> {
        let mut context = CCtx::try_create().ok_or(FilterError::Broken)?;
        context.set_parameter(CParameter::CompressionLevel(way.level)).map_err(failed)?;
        if let Some(bits) = way.window_bits {
            context.set_parameter(CParameter::WindowLog(bits)).map_err(failed)?;
        }
        if let Some(dictionary) = &way.dictionary {
            context.load_dictionary(dictionary).map_err(failed)?;
        }
        Ok(Zstd(context))
    }

    fn again(mut self, way: &Way) -> Option<(u64, Zstd)> {
        // Large tables are not worth keeping, nor is a dictionary of a configuration that may be gone.
        if way.level > 4 || way.dictionary.is_some() {
            return None;
        }
        self.0.reset(ResetDirective::SessionOnly).ok()?;
        Some((Self::spare_key(way), self))
    }

    fn spare_key(way: &Way) -> u64 {
        if way.dictionary.is_some() {
            return u64::MAX;
        }
        let level = (i64::from(way.level) - LEVELS.start()) as u64;
        level << 8 | u64::from(way.window_bits.unwrap_or(0))
    }

    fn compress(&mut self, text: &[u8], out: &mut Vec<u8>) -> FilterResult {
        let mut input = InBuffer::around(text);
        while input.pos() < text.len() {
            let had = out.len();
            out.reserve(OUT_BYTES.min(text.len() - input.pos() + 512));
            let mut output = OutBuffer::around_pos(out, had);
            self.0.compress_stream(&mut output, &mut input).map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> FilterResult {
        self.drain(out, |context, out| context.flush_stream(out))
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> FilterResult {
        self.drain(out, |context, out| context.end_stream(out))
    }
}

/// `$zstd_ratio`, which has three decimals and is known once the answer has ended.
fn ratio(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(thousandths) = coding::thousandths::<Zstd>(r, true) else { return false };
    fmt_u64(out, thousandths / 1000);
    out.extend_from_slice(format!(".{:03}", thousandths % 1000).as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(packed: &[u8], dictionary: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(1 << 20);
        let mut context = zstd_safe::DCtx::create();
        context.decompress_using_dict(&mut text, packed, dictionary).unwrap();
        text
    }

    #[test]
    fn every_level_and_window_gives_the_text_again() {
        let text: Vec<u8> = (0..20_000).flat_map(|n| format!("{n} words, ").into_bytes()).collect();
        for level in [-131_072, -1, 1, 3, 6, 12, 19, 22] {
            for window_bits in [Some(10), Some(18), Some(23), None] {
                let dictionary: Option<Arc<[u8]>> =
                    (window_bits == Some(18)).then(|| b"100 words, 101 words, ".as_slice().into());
                let way = Way { level, window_bits, dictionary };
                let mut coder = Zstd::new(&way).ok().unwrap();
                let mut out = Vec::new();
                let (first, rest) = text.split_at(text.len() / 3);
                coder.compress(first, &mut out).ok().unwrap();
                coder.flush(&mut out).ok().unwrap();
                assert!(out.len() > 20, "a flush gives out what there was");
                coder.flush(&mut out).ok().unwrap();
                coder.compress(rest, &mut out).ok().unwrap();
                coder.finish(&mut out).ok().unwrap();
                let dictionary = way.dictionary.as_deref().unwrap_or_default();
                assert!(decoded(&out, dictionary) == text, "{level} {window_bits:?}");
                let Some((_, mut again)) = coder.again(&way) else { continue };
                let mut second = Vec::new();
                again.compress(b"another", &mut second).ok().unwrap();
                again.finish(&mut second).ok().unwrap();
                assert_eq!(decoded(&second, b""), b"another");
            }
        }
    }
}
