//! `mp4` (nginx's `ngx_http_mp4_module`): a film from a time on, and up to one, with an index of its own.
//!
//! The index is read and cut by a thread. Differences from nginx: samples that are all of one size are cut where
//! they are asked for, too; runs of chunks that are alike are one entry of their table.

mod atoms;
mod cut;
mod track;

use crate::static_files;
use atoms::{head, Bad, Head, HEAD_MAX_BYTES};
use bytes::Bytes;
use cut::{cut, Film, Part};
use std::fs::File;
use std::io;
use weir_core::logger::LogLevel;
use weir_core::{os_text, LocalFuture, Session};
use weir_http::conf::CoreLoc;
use weir_http::core_vars::query_arg;
use weir_http::module::{Flow, HttpModule};
use weir_http::{special, Request};
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::files;
use weir_runtime::threads::in_thread;

#[derive(Default)]
struct Mp4Loc {
    buffer_size: Val<u64>,
    max_buffer_size: Val<u64>,
    start_key_frame: Val<bool>,
}

impl ConfType for Mp4Loc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &Mp4Loc) -> ConfResult {
        merge_values!(self, parent;
            buffer_size = 512 * 1024,
            max_buffer_size = 10 * 1024 * 1024,
            start_key_frame = false,
        );
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "mp4",
            Context::LOCATION,
            Arity::NONE,
            "",
            "Files are films (MP4) that can be asked for in parts (?start=, ?end=, in seconds).",
            set_mp4,
        )
        .note("samples of one size are cut where they are asked for, too; nginx sends the whole chunk they begin in"),
        Row::new(
            "mp4_buffer_size",
            Context::HSL,
            Arity::ONE,
            "512k",
            "The most of a film's index that is read at once.",
            set!(Cf::get::<Mp4Loc>, buffer_size, size),
        ),
        Row::new(
            "mp4_max_buffer_size",
            Context::HSL,
            Arity::ONE,
            "10m",
            "The largest index (moov) of a film; others are answered with 500.",
            set!(Cf::get::<Mp4Loc>, max_buffer_size, size),
        ),
        Row::new(
            "mp4_start_key_frame",
            Context::HSL,
            Arity::FLAG,
            "off",
            "A part begins with a key frame, whose samples before the start are not shown.",
            set!(Cf::get::<Mp4Loc>, start_key_frame, flag),
        ),
    ],
    slots: &[SlotVtable::of::<Mp4Loc>()],
    ..HttpModule::EMPTY
};

fn set_mp4(cf: &mut Cf, _: &Directive) -> ConfResult {
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    if let Err(flow) = static_files::accept(r) {
        return flow;
    }
    match wanted(r) {
        Some(_) => Flow::Wait(wait),
        None => whole(r),
    }
}

fn whole(r: &mut Request) -> Flow {
    let (path, entry) = match static_files::find(r) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    special::set_content_type(r);
    static_files::describe(r, &entry);
    static_files::send_body(r, &path, &entry)
}

/// The part that is asked for, if one is.
fn wanted(r: &Request) -> Option<Part> {
    let time = |name: &[u8]| query_arg(&r.args, name).and_then(milliseconds);
    let end = time(b"end").filter(|end| *end > 0);
    let start = match (time(b"start"), end) {
        (None, None) => return None,
        (start, _) => start.unwrap_or(0),
    };
    let length_ms = end.map_or(0, |end| end.saturating_sub(start));
    let key_frames = *r.loc().conf::<Mp4Loc>().start_key_frame;
    Some(Part { start_ms: start, length_ms, key_frames })
}

/// Seconds with any number of decimals, of which three count.
fn milliseconds(text: &[u8]) -> Option<u64> {
    let (whole, decimals) = match text.iter().position(|b| *b == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    let is_number =
        !text.is_empty() && [whole, decimals].iter().all(|t| t.iter().all(u8::is_ascii_digit));
    let mut digits = whole.iter().chain(decimals.iter().chain(b"000").take(3));
    let add = |ms: u64, digit: &u8| ms.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    // As nginx's: what does not fit into 31 bits is no time.
    let ms = is_number.then(|| digits.try_fold(0, add))?;
    ms.filter(|ms| i32::try_from(*ms).is_ok())
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(send_part(r))
}

async fn send_part(r: &mut Request) -> Flow {
    let (path, entry) = match static_files::find(r) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let (Some(part), Ok(file)) = (wanted(r), entry.open(&path)) else { return whole(r) };
    let conf = r.loc().conf::<Mp4Loc>();
    let bounds =
        Bounds { piece: *conf.buffer_size, index: *conf.max_buffer_size, file: entry.stamp.size };
    let own = match file.try_clone() {
        Ok(own) => own,
        Err(e) => return static_files::open_error(r, &path, &e),
    };
    let film = match in_thread(move || read_part(&own, &bounds, &part)).await {
        Ok(Ok(Some(film))) => film,
        Ok(Ok(None)) => return whole(r),
        Ok(Err(failure)) => return failed(r, &path, failure),
        Err(_) => return Flow::Status(500),
    };
    special::set_content_type(r);
    static_files::describe(r, &entry);
    let Film { text, from, to } = film;
    r.out.content_length = Some(text.len() as u64 + to - from);
    static_files::send_part(r, Some(Bytes::from(text)), file, from..to)
}

enum Failure {
    Bad(Bad),
    /// So many bytes.
    IndexTooLarge(u64),
    Io(io::Error),
}

fn failed(r: &mut Request, path: &[u8], failure: Failure) -> Flow {
    let shown = String::from_utf8_lossy(path);
    let text = match failure {
        Failure::Bad(Bad(text)) => format!("{text} in \"{shown}\""),
        Failure::IndexTooLarge(bytes) => format!(
            "\"{shown}\" mp4 moov atom is too large:{bytes}, you may want to increase mp4_max_buffer_size"
        ),
        Failure::Io(e) => {
            r.log(LogLevel::Crit, &format!("read() \"{shown}\" failed ({})", os_text(&e)));
            return Flow::Status(500);
        }
    };
    r.log(LogLevel::Error, &text);
    Flow::Status(500)
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Io(e)
    }
}

impl From<Bad> for Failure {
    fn from(bad: Bad) -> Failure {
        Failure::Bad(bad)
    }
}

/// In bytes.
struct Bounds {
    piece: u64,
    index: u64,
    file: u64,
}

/// The longest `ftyp`, and how many atoms are looked at, as films have a handful.
const FTYP_MAX_BYTES: u64 = 1024;
const ATOMS_MAX: usize = 10_000;

/// Reads the index of a file and cuts it; `None`: the file is what is asked for as it is.
fn read_part(file: &File, bounds: &Bounds, part: &Part) -> Result<Option<Film>, Failure> {
    let (mut ftyp, mut moov, mut data) = (Vec::new(), None, None);
    let mut at = 0;
    for _ in 0..ATOMS_MAX {
        if at >= bounds.file || moov.is_some() && data.is_some() {
            break;
        }
        let (Head { name, len, size }, end) = atom_at(file, at, bounds.file)?;
        match &name {
            b"ftyp" if size > FTYP_MAX_BYTES => {
                return Err(Bad("mp4 ftyp atom is too large").into())
            }
            b"ftyp" => ftyp = read(file, at, size, bounds.piece)?,
            b"moov" if data.is_none() && part.start_ms == 0 && part.length_ms == 0 => {
                return Ok(None)
            }
            b"moov" if size > bounds.index => return Err(Failure::IndexTooLarge(size)),
            b"moov" => moov = Some(read(file, at + len, size - len, bounds.piece)?),
            b"mdat" => data = data.or(Some((at + len, end))),
            _ => {}
        }
        at = end;
    }
    let moov = moov.ok_or(Bad("no mp4 moov atom was found"))?;
    let data = data.ok_or(Bad("no mp4 mdat atom was found"))?;
    Ok(Some(cut(&ftyp, &moov, data, part)?))
}

/// The atom that begins there, its size known, and where it ends.
fn atom_at(file: &File, at: u64, file_bytes: u64) -> Result<(Head, u64), Failure> {
    let mut buf = [0; HEAD_MAX_BYTES];
    let there = (file_bytes - at).min(HEAD_MAX_BYTES as u64) as usize;
    files::read_exact_at(file, &mut buf[..there], at)?;
    let mut found = head(&buf[..there]).ok_or(Bad("an atom is cut short"))?;
    if found.size == 0 {
        found.size = file_bytes - at;
    }
    let end =
        at.checked_add(found.size).filter(|end| *end <= file_bytes && found.size >= found.len);
    Ok((found, end.ok_or(Bad("an atom is too small or too large"))?))
}

fn read(file: &File, at: u64, size: u64, piece: u64) -> io::Result<Vec<u8>> {
    let mut text = vec![0; size as usize];
    let pieces = text.chunks_mut(piece.clamp(1, 1 << 30) as usize);
    pieces
        .scan(at, |at, piece| {
            let from = *at;
            *at += piece.len() as u64;
            Some(files::read_exact_at(file, piece, from))
        })
        .collect::<io::Result<()>>()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn times() {
        for (text, ms) in [
            ("1", Some(1000)),
            ("1.5", Some(1500)),
            ("0.0009", Some(0)),
            ("12.3456789", Some(12_345)),
            (".5", Some(500)),
            ("", None),
            ("-1", None),
            ("1.5.5", None),
            ("9999999", None),
        ] {
            assert_eq!(milliseconds(text.as_bytes()), ms, "{text}");
        }
    }
}
