//! What is read: files, parts of them, what is compressed, standard input.

use crate::conf::LogFormats;
use crate::gzip::Gzip;
use crate::shown;
use crate::stop::Patient;
use memchr::memchr;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use weir_analytics::format::{detect, Format, LINE_MAX_BYTES};
use weir_analytics::report;
use weir_runtime::{files, paths};
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// So much of a log's beginning is looked at.
const SAMPLE_BYTES: usize = 128 * 1024;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

pub struct Source {
    pub path: Vec<u8>,
    /// `None`: nothing is there yet to tell by.
    pub format: Option<Format>,
    pub kind: Kind,
    sample: Vec<u8>,
}

pub enum Kind {
    /// A file of lines, as long as it was.
    Plain { file: File, len: u64 },
    /// To be read from its beginning to its end, by whoever takes it.
    Stream(Mutex<Option<Box<dyn Read + Send>>>),
}

impl Source {
    /// A file that is to be followed is read up to its last whole line.
    /// `known` may say more where no format fits.
    pub fn open(
        path: &[u8],
        format: Option<Format>,
        is_followed: bool,
        known: Option<&LogFormats>,
    ) -> Result<Source, String> {
        let failed = |e: io::Error| format!("{}: {e}", shown(path));
        let (kind, sample) = open(path, is_followed).map_err(failed)?;
        let source = Source { path: path.to_vec(), format, kind, sample };
        source.with_format(known)
    }

    #[cfg(test)]
    pub fn of_kind(kind: Kind) -> Source {
        Source { path: Vec::new(), format: None, kind, sample: Vec::new() }
    }

    fn with_format(mut self, known: Option<&LogFormats>) -> Result<Source, String> {
        if self.format.is_none() {
            self.format = detect(&self.sample);
        }
        let is_empty = self.sample.iter().all(u8::is_ascii_whitespace);
        match self.format.is_none() && !is_empty {
            true => Err(match known {
                Some(formats) => formats.unknown(&self.path),
                None => format!(
                    "{}: its lines have no format that is known; --format or --conf says which it is",
                    shown(&self.path)
                ),
            }),
            false => Ok(self),
        }
    }

    /// As much of it as was looked at.
    pub fn first_line(&self) -> &[u8] {
        self.sample.split(|b| *b == b'\n').next().unwrap_or_default()
    }

    /// How much is to be read, where that is known.
    pub fn len(&self) -> Option<u64> {
        match &self.kind {
            Kind::Plain { len, .. } => Some(*len),
            Kind::Stream(_) => None,
        }
    }

    /// The site that files such as style sheets are asked for from, mostly, by clients that have asked for that page
    /// before: its own. A picture that is shown by others' pages says nothing.
    pub fn likely_site(&self) -> Option<Vec<u8>> {
        let mut scanner = self.format.as_ref()?.scanner();
        let (mut counts, mut pages) =
            (HashMap::<Vec<u8>, usize>::new(), HashSet::<(IpAddr, Vec<u8>)>::new());
        for line in self.sample.split(|b| *b == b'\n') {
            let Some(Ok(event)) = scanner.scan(line) else { continue };
            if !event.host.is_empty() {
                return None;
            }
            if !report::is_static(event.uri) {
                pages.insert((event.address, event.uri.to_vec()));
                continue;
            }
            let site = report::site(event.referrer);
            let page = page(event.referrer, site);
            if !site.is_empty() && pages.contains(&(event.address, page.to_vec())) {
                *counts.entry(site.to_vec()).or_default() += 1;
            }
        }
        let most = counts.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        most.map(|(site, _)| site)
    }
}

/// What was asked for at the site that a referrer names.
fn page<'a>(referrer: &'a [u8], site: &[u8]) -> &'a [u8] {
    let behind = memchr::memmem::find(referrer, site).map(|at| &referrer[at + site.len()..]);
    behind.filter(|page| !page.is_empty()).unwrap_or(b"/")
}

fn open(path: &[u8], is_followed: bool) -> io::Result<(Kind, Vec<u8>)> {
    if path == b"-" {
        return stream(Box::new(Patient(files::standard_input()?)));
    }
    let mut file = File::open(paths::path(path))?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(files::is_a_directory());
    }
    if !meta.is_file() {
        return stream(Box::new(Patient(file)));
    }
    let sample = beginning(&file)?;
    if sample.starts_with(GZIP) || sample.starts_with(ZSTD) {
        // Windows goes on from where was read, whoever said where.
        file.rewind()?;
        return stream(Box::new(file));
    }
    let mut len = meta.len();
    if is_followed {
        len = last_line_end(&file, len)?;
    }
    Ok((Kind::Plain { file, len }, sample))
}

fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut sample = vec![0; SAMPLE_BYTES];
    let n = read_some(&mut |buf, at| files::read_at(file, buf, at), &mut sample)?;
    sample.truncate(n);
    Ok(sample)
}

fn read_some(
    read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>,
    buf: &mut [u8],
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match read(&mut buf[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Decompresses what is compressed, and keeps the beginning for a look. What was looked at is read again.
fn stream(mut raw: Box<dyn Read + Send>) -> io::Result<(Kind, Vec<u8>)> {
    let mut magic = [0; 4];
    let n = read_some(&mut |buf, _| raw.read(buf), &mut magic)?;
    let whole = Cursor::new(magic[..n].to_vec()).chain(raw);
    let mut plain: Box<dyn Read + Send> = match &magic[..n] {
        m if m.starts_with(GZIP) => {
            Box::new(Gzip::new(io::BufReader::with_capacity(1 << 16, whole)))
        }
        m if m.starts_with(ZSTD) => Box::new(Zstd::new(whole)?),
        _ => Box::new(whole),
    };
    // A pipe gives what it has: no more is waited for than its first line.
    let mut sample = vec![0; SAMPLE_BYTES];
    let mut filled = 0;
    while filled < sample.len() && memchr(b'\n', &sample[..filled]).is_none() {
        match plain.read(&mut sample[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    sample.truncate(filled);
    let again = Cursor::new(sample.clone()).chain(plain);
    Ok((Kind::Stream(Mutex::new(Some(Box::new(again)))), sample))
}

/// Behind the last one; what is behind that is a line still being written.
fn last_line_end(file: &File, len: u64) -> io::Result<u64> {
    let mut buf = vec![0; LINE_MAX_BYTES];
    let mut end = len;
    while end > 0 {
        let from = end.saturating_sub(LINE_MAX_BYTES as u64);
        let part = &mut buf[..(end - from) as usize];
        files::read_exact_at(file, part, from)?;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// The lines of a file that begin in a part of it.
pub struct Part<'a> {
    file: &'a File,
    at: u64,
    to: u64,
    len: u64,
    /// Before the first line that begins in it.
    is_before: bool,
    /// The last byte that was given.
    last: u8,
    done: &'a AtomicU64,
}

impl<'a> Part<'a> {
    pub fn new(
        file: &'a File,
        range: std::ops::Range<u64>,
        len: u64,
        done: &'a AtomicU64,
    ) -> Part<'a> {
        let is_before = range.start > 0;
        // The byte before says whether a line begins here.
        let at = range.start.saturating_sub(1);
        Part { file, at, to: range.end, len, is_before, last: b'\n', done }
    }
}

impl Read for Part<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        const TAIL_BYTES: u64 = 4096;
        loop {
            let is_tail = self.at >= self.to;
            if (is_tail && (self.last == b'\n' || self.is_before)) || self.at >= self.len {
                return Ok(0);
            }
            let until = if is_tail { self.len.min(self.at + TAIL_BYTES) } else { self.to };
            let most = buf.len().min(usize::try_from(until - self.at).unwrap_or(usize::MAX));
            let mut n = files::read_at(self.file, &mut buf[..most], self.at)?;
            if n == 0 {
                return Ok(0);
            }
            self.done.fetch_add(n as u64, Ordering::Relaxed);
            if is_tail {
                n = memchr(b'\n', &buf[..n]).map_or(n, |end| end + 1);
            }
            self.at += n as u64;
            let mut start = 0;
            if self.is_before {
                match memchr(b'\n', &buf[..n]) {
                    Some(end) => (start, self.is_before) = (end + 1, false),
                    None => continue,
                }
                if start == n {
                    continue;
                }
                buf.copy_within(start..n, 0);
            }
            self.last = buf[n - start - 1];
            return Ok(n - start);
        }
    }
}

/// zstd, with the windows that its command takes without being asked for more (128 MB).
struct Zstd<R> {
    from: R,
    context: DCtx<'static>,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// Between frames.
    is_whole: bool,
}

impl<R: Read> Zstd<R> {
    fn new(from: R) -> io::Result<Zstd<R>> {
        let context = DCtx::try_create().ok_or_else(|| io::Error::other("no memory for zstd"))?;
        let input = vec![0; DCtx::in_size()].into();
        Ok(Zstd { from, context, input, start: 0, end: 0, is_whole: true })
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            let is_dry = self.start == self.end;
            if is_dry {
                (self.start, self.end) = (0, self.from.read(&mut self.input)?);
                if self.end == 0 && self.is_whole {
                    return Ok(0);
                }
            }
            let mut input = InBuffer::around(&self.input[self.start..self.end]);
            let mut output = OutBuffer::around(&mut *buf);
            let hint = self.context.decompress_stream(&mut output, &mut input);
            let hint = hint.map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
            let (taken, given) = (input.pos(), output.pos());
            self.start += taken;
            self.is_whole = hint == 0;
            if given > 0 {
                return Ok(given);
            }
            if self.end == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
