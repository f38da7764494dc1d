//! Compression: nginx's `ngx_http_gzip_filter_module`.
//!
//! Differences from nginx: those of every coding here (`coding`); `gzip_buffers`, `gzip_hash`, `gzip_window` and the
//! like size buffers that this implementation does not have, and say so in their rows.

use crate::coding::{self, Coding, Spare, Wanted, HSLI, OUT_BYTES, SIZED};
use crate::gzip_ok::gzip_ok;
use crate::mime::MimeTypes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use weir_conf::Directive;
use weir_core::worker::AtWorker;
use weir_http::generation::Location;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Reach, VarArg, Variable};
use weir_http::Request;
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};

#[derive(Default)]
pub struct Conf {
    wanted: Wanted,
    level: Val<u32>,
    clear_etag: Val<bool>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent; level = 1, clear_etag = false);
        self.wanted.merge(&parent.wanted)
    }
}

fn wanted(cf: &mut Cf) -> &mut Wanted {
    &mut cf.get::<Conf>().wanted
}

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
        Row::new("gzip", HSLI, Arity::FLAG, "off", "Compress responses.", set!(wanted, on, flag))
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
                MimeTypes::read(cf, d, |cf| &mut wanted(cf).types);
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
        .note("Level 1 is quicker than zlib's and makes text about a quarter larger, repetitive text up to twice as large; level 2 \
             makes it about as small as nginx's level 1."),
        Row::new(
            "gzip_min_length",
            Context::HSL,
            Arity::ONE,
            "20",
            "Shortest response to compress, by Content-Length.",
            set!(wanted, min_length, size),
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
            |_, d| coding::buffers(d),
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
        header: Some(coding::header::<Gzip>),
        body: Some(coding::body::<Gzip>),
        active: |slots| *slots.get::<Conf>().wanted.on,
        reach: Reach::Whole,
    }),
    body_on_demand: true,
    at_worker: AtWorker { quiet: Some(Spare::<Gzip>::free), ..AtWorker::NOTHING },
    ..HttpModule::EMPTY
};

/// gzip's header without name and time; 3 is Unix.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];

/// What compresses by it.
pub struct Gzip {
    z: Compress,
    crc: Crc,
    begun: bool,
}

impl Gzip {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(&HEADER);
        }
    }
}

impl Coding for Gzip {
    const WORD: &'static [u8] = b"gzip";
    /// The level.
    type Way = u32;

    fn wanted(loc: &Location) -> &Wanted {
        &loc.conf::<Conf>().wanted
    }

    fn may(r: &mut Request, _: &Location) -> bool {
        gzip_ok(r)
    }

    fn clears_etag(loc: &Location) -> bool {
        *loc.conf::<Conf>().clear_etag
    }

    fn way(loc: &Location, _: Option<u64>) -> u32 {
        *loc.conf::<Conf>().level
    }

    fn form_key(level: &u32) -> Option<u32> {
        Some(*level)
    }

    fn block_bytes(_: &u32) -> u64 {
        1
    }

    fn effort_bytes(level: &u32, bytes: u64, _: bool) -> u64 {
        bytes * u64::from(*level)
    }

    fn new(level: &u32) -> Result<Gzip, FilterError> {
        let z = Compress::new(Compression::new(*level), false);
        Ok(Gzip { z, crc: Crc::new(), begun: false })
    }

    fn again(mut self, level: &u32) -> Option<(u64, Gzip)> {
        self.z.reset();
        Some((u64::from(*level), Gzip { z: self.z, crc: Crc::new(), begun: false }))
    }

    fn spare_key(level: &u32) -> u64 {
        u64::from(*level)
    }

    fn compress(&mut self, text: &[u8], out: &mut Vec<u8>) -> FilterResult {
        self.begin(out);
        self.crc.update(text);
        deflate(&mut self.z, text, FlushCompress::None, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> FilterResult {
        self.begin(out);
        deflate(&mut self.z, &[], FlushCompress::Sync, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> FilterResult {
        self.begin(out);
        deflate(&mut self.z, &[], FlushCompress::Finish, out)?;
        trailer(&self.crc, out);
        Ok(())
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

/// `$gzip_ratio`
fn ratio(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    coding::ratio::<Gzip>(r, out)
}
