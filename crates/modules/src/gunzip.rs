//! Decompression for clients that cannot: nginx's `ngx_http_gunzip_filter_module`.
//!
//! A small input can become a thousand times as much: no more of it is decompressed than fits into
//! `gunzip_buffers`, the rest waits until the client has taken that.
//!
//! Difference from nginx: `gunzip_buffers` is one amount of memory, not a number of pieces.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;
use weir_core::Session;

use crate::gzip_ok::gzip_ok;
use crate::util::text_of;
use flate2::write::MultiGzDecoder;
use weir_core::logger::LogLevel;
use weir_http::buf::Data;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::{Buf, Chain, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};

#[derive(Default)]
struct GunzipLoc {
    on: Val<bool>,
    /// How much decompressed text may wait for the client.
    ahead_bytes: Val<u64>,
}

impl ConfType for GunzipLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &GunzipLoc) -> ConfResult {
        merge_values!(self, parent; on = false, ahead_bytes = AHEAD_BYTES);
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "gunzip",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Decompresses gzip responses for clients that do not accept gzip.",
            set!(Cf::get::<GunzipLoc>, on, flag),
        ),
        Row::new(
            "gunzip_buffers",
            Context::HSL,
            Arity::TWO,
            "32 4k",
            "Number and size of buffers.",
            |cf, d| {
                let total = d.num(0)?.saturating_mul(d.size(1)?);
                cf.get::<GunzipLoc>().ahead_bytes.once(d, total)
            },
        )
        .note(
            "How much decompressed text may wait for the client: number times size, and up to 64k \
             more, as pieces here have sizes of their own.",
        ),
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

/// `32 4k`.
const AHEAD_BYTES: u64 = 128 * 1024;
/// Decompressed text that is passed on at once.
const PIECE_BYTES: usize = 32 * 1024;

/// A response that is being decompressed; it may be of several members.
struct State {
    z: MultiGzDecoder<Vec<u8>>,
    input: VecDeque<Buf>,
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    if !r.out.get(b"Content-Encoding").is_some_and(|v| v.eq_ignore_ascii_case(b"gzip")) {
        return next.header(r);
    }
    r.flags.gzip_vary = true;
    if gzip_ok(r) {
        return next.header(r);
    }
    r.set_ctx(State::new());
    r.whole = None;
    r.flags.filter_needs_memory = true;
    r.flags.allow_ranges = false;
    r.out.remove(b"Content-Encoding");
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    r.out.weaken_etag();
    next.header(r)
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(state) = r.ctx::<State>() else { return next.body(r, chain) };
    state.input.extend(chain);
    go_on(r, next)
}

/// Decompresses as much as there is room for.
fn go_on(r: &mut Request, next: Next) -> FilterResult {
    let Some(mut state) = r.take_ctx::<State>() else { return Ok(()) };
    let ahead = *Rc::clone(r.loc()).conf::<GunzipLoc>().ahead_bytes;
    while !state.input.is_empty() {
        if !r.has_room(next, ahead) {
            r.hold(next, ahead, go_on);
            break;
        }
        let (out, last) = state.piece().map_err(|e| {
            r.log(LogLevel::Error, &format!("inflate() failed: {e}"));
            FilterError::Broken
        })?;
        if !out.is_empty() {
            next.body(r, out)?;
        }
        if last {
            return Ok(());
        }
    }
    r.set_ctx(*state);
    Ok(())
}

impl State {
    fn new() -> State {
        State { z: MultiGzDecoder::new(Vec::new()), input: VecDeque::new() }
    }

    /// Decompresses a piece, or all there is; whether that was the last.
    fn piece(&mut self) -> io::Result<(Chain, bool)> {
        let mut out = Chain::new();
        while let Some(buf) = self.input.pop_front() {
            let mut text = text_of(&buf.data)?;
            // One call makes at most one buffer of the decoder's.
            while !text.is_empty() && self.z.get_ref().len() < PIECE_BYTES {
                match self.z.write(&text)? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    n => drop(text.split_to(n)),
                }
            }
            if !text.is_empty() {
                self.input.push_front(Buf { data: Data::Mem(text), ..buf });
                break;
            }
            if buf.last {
                self.z.try_finish()?;
            } else {
                self.z.flush()?;
            }
            if buf.last || buf.flush {
                self.push(&mut out);
                out.push(Buf { data: Data::None, last: buf.last, flush: buf.flush });
                return Ok((out, buf.last));
            }
        }
        self.push(&mut out);
        Ok((out, false))
    }

    fn push(&mut self, out: &mut Chain) {
        let text = std::mem::take(self.z.get_mut());
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
        let mut state = State::new();
        state.input.extend(text.chunks(piece).map(|part| Buf::mem(part.to_vec())));
        state.input.push_back(Buf::last());
        let mut text = Vec::new();
        loop {
            let (out, last) = state.piece()?;
            assert!(out.len() <= 2 * PIECE_BYTES as u64 + 8192, "a piece of {}", out.len());
            out.iter().for_each(|b| text.extend_from_slice(&text_of(&b.data).unwrap()));
            if last {
                return Ok(text);
            }
        }
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
        let zeroes = vec![0; 5_000_000];
        assert!(gunzip(&gzip(&zeroes), 100_000).unwrap() == zeroes);
    }

    #[test]
    fn broken() {
        let whole = gzip(b"hello, hello, hello");
        assert!(gunzip(&whole[..whole.len() - 9], 100).is_err());
        assert!(gunzip(b"not compressed", 100).is_err());
    }
}
