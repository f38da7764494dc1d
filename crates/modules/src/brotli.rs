//! Compression by brotli (RFC 7932): the filter of Google's `ngx_brotli`.
//!
//! Differences from it: those of every coding here (`coding`), and that the weights of Accept-Encoding count.

use crate::coding::accept::{is_best, Rank};
use crate::coding::{self, Coding, Wanted, HSLI, OUT_BYTES, SIZED};
use crate::mime::MimeTypes;
use brotli::enc::encode::{
    BrotliEncoderOperation as Operation, BrotliEncoderParameter as Parameter,
    BrotliEncoderStateStruct as Encoder,
};
use brotli::enc::StandardAlloc;
use weir_conf::Directive;
use weir_http::generation::Location;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Reach, VarArg, Variable};
use weir_http::Request;
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};

/// Windows of brotli's, as powers of two: 1 KB to 16 MB.
const WINDOW_BITS: std::ops::RangeInclusive<u32> = 10..=24;

#[derive(Default)]
pub struct Conf {
    wanted: Wanted,
    level: Val<u32>,
    window_bits: Val<u32>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent; level = 6, window_bits = 19);
        self.wanted.merge(&parent.wanted)
    }
}

fn wanted(cf: &mut Cf) -> &mut Wanted {
    &mut cf.get::<Conf>().wanted
}

fn level(d: &Directive) -> ConfResult<u32> {
    match d.num(0)? {
        v @ 0..=11 => Ok(v as u32),
        _ => Err(d.bad(0, "value must be between 0 and 11")),
    }
}

fn window(d: &Directive) -> ConfResult<u32> {
    let bytes = d.size(0)?;
    let bits = bytes.trailing_zeros();
    match bytes.is_power_of_two() && WINDOW_BITS.contains(&bits) {
        true => Ok(bits),
        false => Err(d.error(
            "must be 1k, 2k, 4k, 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m, 4m, 8m or 16m",
        )),
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "brotli",
            HSLI,
            Arity::FLAG,
            "off",
            "Compress responses by brotli.",
            set!(wanted, on, flag),
        )
        .note(
            "Of ngx_brotli. Weights of Accept-Encoding count, and \"*\" stands for brotli where that is not named. \
             Where several codings are on, the client's best is taken: of equals brotli, then zstd, then gzip. What compresses an answer as it comes holds memory \
             (6 MB at level 6) until the client has taken it: a worker has 256 MB for brotli and zstd, beyond which an answer \
             goes out by the next coding that is on, or as it is.",
        ),
        Row::new(
            "brotli_types",
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
            "brotli_comp_level",
            Context::HSL,
            Arity::ONE,
            "6",
            "Compression level, 0 to 11.",
            set!(Cf::get::<Conf>, level, level),
        ),
        Row::new(
            "brotli_min_length",
            Context::HSL,
            Arity::ONE,
            "20",
            "Shortest response to compress, by Content-Length.",
            set!(wanted, min_length, size),
        ),
        Row::new(
            "brotli_window",
            Context::HSL,
            Arity::ONE,
            "512k",
            "How far back the compressor looks, 1k to 16m.",
            set!(Cf::get::<Conf>, window_bits, window),
        ),
        Row::new(
            "brotli_buffers",
            Context::HSL,
            Arity::TWO,
            "32 4k",
            "Number and size of buffers.",
            |_, d| coding::buffers(d),
        )
        .once()
        .note(SIZED),
    ],
    slots: &[SlotVtable::of::<Conf>()],
    variables: &[Variable::new("brotli_ratio", ratio)],
    filter: Some(Filter {
        header: Some(coding::header::<Brotli>),
        body: Some(coding::body::<Brotli>),
        active: |slots| *slots.get::<Conf>().wanted.on,
        reach: Reach::Whole,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

/// How a response is compressed.
#[derive(Clone)]
pub struct Way {
    level: u32,
    /// No more than the response needs.
    window_bits: u32,
    /// As configured: forms of an entity differ by it, and not by what the entity needs of it.
    most_bits: u32,
    /// Of the response, if that is known.
    length: Option<u64>,
}

/// What compresses by it. One that has been used is not used again: the library has no way back.
pub struct Brotli(Box<Encoder<StandardAlloc>>);

impl Brotli {
    fn run(&mut self, what: Operation, text: &[u8], out: &mut Vec<u8>) -> FilterResult {
        let (mut left, mut at) = (text.len(), 0);
        loop {
            let mut had = out.len();
            let mut room = OUT_BYTES.min(left + 512);
            out.resize(had + room, 0);
            let is_ok = self.0.compress_stream(
                what,
                &mut left,
                text,
                &mut at,
                &mut room,
                out,
                &mut had,
                &mut None,
                &mut |_, _, _, _| (),
            );
            out.truncate(had);
            if !is_ok {
                return Err(FilterError::Broken);
            }
            let is_over = match what {
                Operation::BROTLI_OPERATION_FINISH => self.0.is_finished(),
                _ => left == 0 && !self.0.has_more_output(),
            };
            if is_over {
                return Ok(());
            }
        }
    }
}

impl Coding for Brotli {
    const WORD: &'static [u8] = b"br";
    type Way = Way;

    fn wanted(loc: &Location) -> &Wanted {
        &loc.conf::<Conf>().wanted
    }

    fn may(r: &mut Request, loc: &Location) -> bool {
        is_best(r, loc, Rank::Brotli)
    }

    fn way(loc: &Location, length: Option<u64>) -> Way {
        let conf = loc.conf::<Conf>();
        let most_bits = *conf.window_bits;
        let needed = length.filter(|n| *n > 0).map_or(most_bits, bits);
        let window_bits = needed.clamp(*WINDOW_BITS.start(), most_bits);
        Way { level: *conf.level, window_bits, most_bits, length }
    }

    fn form_key(way: &Way) -> Option<u32> {
        Some(1 << 24 | way.most_bits << 8 | way.level)
    }

    fn block_bytes(way: &Way) -> u64 {
        match way.level {
            0 | 1 => 1,
            2 | 3 => 1 << 14,
            4..=8 => 1 << 16,
            _ => 1 << way.window_bits.clamp(16, 18),
        }
    }

    /// Its window twice, its tables, and a block with its commands.
    fn memory_bytes(way: &Way) -> u64 {
        const TABLES: [u64; 12] = [
            128 << 10,
            128 << 10,
            256 << 10,
            512 << 10,
            1 << 20,
            2 << 20,
            4 << 20,
            8 << 20,
            16 << 20,
            32 << 20,
            1 << 20,
            1 << 20,
        ];
        let tables = TABLES.get(way.level as usize).copied().unwrap_or(1 << 20);
        // A tree over the window.
        let tree = if way.level > 9 { 8 << way.window_bits } else { 0 };
        (2 << way.window_bits.max(18)) + tables + tree + (1 << 20)
    }

    fn effort_bytes(way: &Way, bytes: u64, begins: bool) -> u64 {
        // Measured on text, beside gzip's level 1.
        const TIMES: [u64; 12] = [1, 2, 4, 5, 7, 10, 12, 18, 24, 32, 300, 600];
        // Tables to be cleared, an eighth of what compressing as many bytes takes.
        let tables = if way.level < 5 { 256 * 1024 } else { 2 * 1024 * 1024 };
        let begin = if begins { tables.min(1 << (way.window_bits + 2)) / 8 } else { 0 };
        begin + bytes * TIMES.get(way.level as usize).copied().unwrap_or(600)
    }

    fn new(way: &Way) -> Result<Brotli, FilterError> {
        let mut encoder = Box::new(Encoder::new(StandardAlloc::default()));
        let hint = way.length.map_or(0, |n| n.min(1 << 30) as u32);
        for (parameter, value) in [
            (Parameter::BROTLI_PARAM_QUALITY, way.level),
            (Parameter::BROTLI_PARAM_LGWIN, way.window_bits),
            (Parameter::BROTLI_PARAM_SIZE_HINT, hint),
        ] {
            if !encoder.set_parameter(parameter, value) {
                return Err(FilterError::Broken);
            }
        }
        Ok(Brotli(encoder))
    }

    fn again(self, _: &Way) -> Option<(u64, Brotli)> {
        None
    }

    fn spare_key(_: &Way) -> u64 {
        0
    }

    fn compress(&mut self, text: &[u8], out: &mut Vec<u8>) -> FilterResult {
        self.run(Operation::BROTLI_OPERATION_PROCESS, text, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> FilterResult {
        self.run(Operation::BROTLI_OPERATION_FLUSH, &[], out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> FilterResult {
        self.run(Operation::BROTLI_OPERATION_FINISH, &[], out)
    }
}

/// Of the least power of two that is not below.
fn bits(n: u64) -> u32 {
    u64::BITS - (n - 1).leading_zeros()
}

/// `$brotli_ratio`
fn ratio(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    coding::ratio::<Brotli>(r, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(packed: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        brotli::BrotliDecompress(&mut &packed[..], &mut text).unwrap();
        text
    }

    #[test]
    fn every_level_and_window_gives_the_text_again() {
        let text: Vec<u8> = (0..20_000).flat_map(|n| format!("{n} words, ").into_bytes()).collect();
        for level in 0..=11 {
            // The slowest get less, for the test's sake.
            let text = &text[..if level > 9 { 20_000 } else { text.len() }];
            for window_bits in [10, 16, 19, 24] {
                let way = Way { level, window_bits, most_bits: 24, length: None };
                let mut coder = Brotli::new(&way).ok().unwrap();
                let mut out = Vec::new();
                let (first, rest) = text.split_at(text.len() / 3);
                coder.compress(first, &mut out).ok().unwrap();
                coder.flush(&mut out).ok().unwrap();
                assert!(out.len() > 20, "a flush gives out what there was");
                coder.flush(&mut out).ok().unwrap();
                coder.compress(rest, &mut out).ok().unwrap();
                coder.finish(&mut out).ok().unwrap();
                assert!(decoded(&out) == text, "{level} {window_bits}");
                assert!(out.len() < text.len());
            }
        }
    }

    #[test]
    fn nothing_is_an_answer_too() {
        for level in [0, 6, 11] {
            let way = Way { level, window_bits: 10, most_bits: 10, length: Some(0) };
            let mut out = Vec::new();
            Brotli::new(&way).ok().unwrap().finish(&mut out).ok().unwrap();
            assert!(!out.is_empty() && decoded(&out).is_empty());
        }
        assert_eq!([1, 2, 3, 1024, 1025].map(bits), [0, 1, 2, 10, 11]);
    }
}
