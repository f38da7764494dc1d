//! Decompression for clients that cannot: nginx's `ngx_http_gunzip_filter_module`.
//!
//! Difference from nginx: `gunzip_buffers` has nothing to do, because buffers here size themselves.

use std::io::{self, Write};

use crate::gzip_ok::gzip_ok;
use crate::util::text_of;
use flate2::write::MultiGzDecoder;
use weir_http::buf::Data;
use weir_http::logger::LogLevel;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::{Buf, Chain, Request};
use weir_module::{
    merge_values, slot, ArgsExt, Arity, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};

#[derive(Default)]
struct GunzipLoc {
    on: Val<bool>,
}

impl ConfType for GunzipLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &GunzipLoc) -> ConfResult {
        merge_values!(self, parent; on = false);
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    name: "ngx_http_gunzip_filter_module",
    rows: &[
        Row::new(
            "gunzip",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Decompresses gzip responses for clients that do not accept gzip.",
            |cf, d| {
                let v = d.flag()?;
                cf.get::<GunzipLoc>().on.once(d, v)
            },
        ),
        Row::new(
            "gunzip_buffers",
            Context::HSL,
            Arity::TWO,
            "32 4k",
            "Number and size of buffers.",
            |_, d| {
                d.num(0)?;
                d.size(1).map(|_| ())
            },
        )
        .note("Buffers here size themselves; the value is checked and not needed."),
    ],
    slots: &[SlotVtable::of::<GunzipLoc>()],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| *slots.get::<GunzipLoc>().on,
        reach: Reach::Part,
    }),
    ..HttpModule::EMPTY
};

/// A response that is being decompressed; it may be of several members.
struct State(MultiGzDecoder<Vec<u8>>);

/// Compressed bytes decompressed at once: what becomes of them stays a moderate buffer.
const IN_BYTES: usize = 8 * 1024;

fn header(r: &mut Request, next: Next) -> FilterResult {
    if !r.out.get(b"Content-Encoding").is_some_and(|v| v.eq_ignore_ascii_case(b"gzip")) {
        return next.header(r);
    }
    r.gzip_vary = true;
    if gzip_ok(r) {
        return next.header(r);
    }
    r.set_ctx(State(MultiGzDecoder::new(Vec::new())));
    r.forms = None;
    r.whole_body = None;
    r.filter_needs_memory = true;
    r.allow_ranges = false;
    r.out.remove(b"Content-Encoding");
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    r.out.weaken_etag();
    next.header(r)
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(mut state) = r.take_ctx::<State>() else { return next.body(r, chain) };
    let mut out = Chain::new();
    let mut last = false;
    for buf in chain {
        last |= buf.last;
        if let Err(e) = state.inflate(&buf, &mut out) {
            r.log(LogLevel::Error, &format!("inflate() failed: {e}"));
            return Err(FilterError::Broken);
        }
        if buf.last || buf.flush {
            out.push(Buf { data: Data::None, last: buf.last, flush: buf.flush });
        }
    }
    if !last {
        r.set_ctx(*state);
    }
    match out.is_empty() {
        true => Ok(()),
        false => next.body(r, out),
    }
}

impl State {
    fn inflate(&mut self, buf: &Buf, out: &mut Chain) -> io::Result<()> {
        for piece in text_of(&buf.data)?.chunks(IN_BYTES) {
            self.0.write_all(piece)?;
            self.0.flush()?;
            self.push(out);
        }
        if buf.last {
            self.0.try_finish()?;
            self.push(out);
        }
        Ok(())
    }

    fn push(&mut self, out: &mut Chain) {
        let text = std::mem::take(self.0.get_mut());
        if !text.is_empty() {
            out.push(Buf::mem(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        z.write_all(text).unwrap();
        z.finish().unwrap()
    }

    fn gunzip(text: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let mut state = State(MultiGzDecoder::new(Vec::new()));
        let mut out = Chain::new();
        for part in text.chunks(piece) {
            state.inflate(&Buf::mem(part.to_vec()), &mut out)?;
        }
        state.inflate(&Buf::last(), &mut out)?;
        Ok(out.iter().flat_map(|b| text_of(&b.data).unwrap().to_vec()).collect())
    }

    #[test]
    fn pieces_and_members() {
        let text: Vec<u8> = (0..50_000u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        let mut whole = gzip(&text);
        whole.extend_from_slice(&gzip(b"and more"));
        let expected = [text.as_slice(), b"and more"].concat();
        for piece in [1, 7, 1000, whole.len()] {
            assert_eq!(gunzip(&whole, piece).unwrap(), expected, "in pieces of {piece}");
        }
        assert_eq!(gunzip(&gzip(b""), 5).unwrap(), b"");
    }

    #[test]
    fn broken() {
        let whole = gzip(b"hello, hello, hello");
        assert!(gunzip(&whole[..whole.len() - 9], 100).is_err());
        assert!(gunzip(b"not compressed", 100).is_err());
    }
}
