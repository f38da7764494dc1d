//! Buffered logs: every worker gathers lines of its own and writes them at once.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Arc;

use super::format::{Format, Logged};
use super::Sink;
use flate2::write::GzEncoder;
use flate2::Compression;
use weir_base::units;
use weir_module::{ArgsExt, ConfResult, Directive};
use weir_runtime::timer;

/// `gzip` without `buffer=`.
const GZIP_BUFFER_BYTES: u64 = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffering {
    pub size_bytes: u64,
    pub flush_ms: Option<u64>,
    pub gzip_level: Option<u32>,
}

/// The parameters of one `access_log` as they are read.
#[derive(Default)]
pub struct Options {
    size: Option<u64>,
    flush: Option<u64>,
    gzip: Option<u32>,
}

impl Options {
    /// Takes one argument; `false` when it is not about buffering.
    pub fn read(&mut self, d: &Directive, i: usize) -> ConfResult<bool> {
        let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        if let Some(text) = d.keyed(i, "buffer") {
            let size = units::parse_size(text).filter(|n| *n > 0);
            let invalid = || d.bad(i, format!("invalid buffer size \"{}\"", shown(text)));
            self.size = Some(size.ok_or_else(invalid)?);
        } else if let Some(text) = d.keyed(i, "flush") {
            let flush = units::parse_msec(text).filter(|n| *n > 0);
            let invalid = || d.bad(i, format!("invalid flush time \"{}\"", shown(text)));
            self.flush = Some(flush.ok_or_else(invalid)?);
        } else if d.arg(i) == b"gzip" {
            self.gzip = Some(1);
        } else if let Some(text) = d.keyed(i, "gzip") {
            let level = units::parse_int(text).filter(|n| (1..=9).contains(n));
            let invalid = || d.bad(i, format!("invalid compression level \"{}\"", shown(text)));
            self.gzip = Some(level.ok_or_else(invalid)? as u32);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    pub fn finish(self, d: &Directive) -> ConfResult<Option<Buffering>> {
        let size = self.size.or(self.gzip.map(|_| GZIP_BUFFER_BYTES));
        let Some(size_bytes) = size else {
            if self.flush.is_some() {
                let path = String::from_utf8_lossy(d.arg(0)).into_owned();
                let text = format!("no buffer is defined for access_log \"{path}\"");
                return Err(d.fail(text));
            }
            return Ok(None);
        };
        Ok(Some(Buffering { size_bytes, flush_ms: self.flush, gzip_level: self.gzip }))
    }
}

/// What one worker has gathered for one file. Written out when dropped, so nothing is lost when
/// the worker's thread ends.
struct Gathered {
    sink: Arc<Sink>,
    text: Vec<u8>,
    /// A timer will write it out.
    armed: bool,
    /// Writing it has failed since the last line was added.
    failed: Option<io::Error>,
}

thread_local! {
    static GATHERED: RefCell<Vec<Gathered>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // A log that cannot be written must not stop the server.
        let _ = self.flush();
    }
}

impl Gathered {
    fn flush(&mut self) -> io::Result<()> {
        let written = match self.text.is_empty() {
            true => Ok(()),
            false => put(&self.sink, &self.text),
        };
        self.text.clear();
        written
    }
}

impl Gathered {
    /// What went wrong is told with the next session's line: there is nobody to tell it to now.
    fn flush_and_note(&mut self) {
        if let Err(e) = self.flush() {
            self.failed = Some(e);
        }
    }
}

fn put(sink: &Sink, text: &[u8]) -> io::Result<()> {
    let written = put_now(sink, text);
    if let Err(e) = &written {
        sink.health.note(e);
    }
    written
}

fn put_now(sink: &Sink, text: &[u8]) -> io::Result<()> {
    match sink.buffering.and_then(|b| b.gzip_level) {
        Some(level) => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::new(level));
            packed.write_all(text)?;
            sink.file.write(&packed.finish()?)
        }
        None => sink.file.write(text),
    }
}

/// Adds the session's line; writes what was gathered before it when it does not fit.
pub fn append<S: Logged>(s: &mut S, sink: &Arc<Sink>, format: &Format) {
    // The buffer leaves its place while the line is made, for variables may run anything.
    let mut text = take(sink);
    let before = text.len();
    format.write(s, &mut text);
    text.push(b'\n');
    let size = sink.buffering.map_or(0, |b| b.size_bytes) as usize;
    let mut written = take_failure(sink);
    if text.len() > size {
        if before > 0 {
            written = written.and(put(sink, &text[..before]));
            text.drain(..before);
        }
        if text.len() > size {
            written = written.and(put(sink, &text));
            text.clear();
        }
    }
    give_back(sink, text);
    if let Err(e) = written {
        super::tell_failure(s, &sink.health, &sink.file.path, &e);
    }
    super::tell_loss(s, &sink.file);
}

fn take(sink: &Arc<Sink>) -> Vec<u8> {
    GATHERED.with_borrow_mut(|all| {
        if let Some(g) = all.iter_mut().find(|g| Arc::ptr_eq(&g.sink.file, &sink.file)) {
            if !Arc::ptr_eq(&g.sink, sink) {
                // A new configuration, perhaps with another size: the old one's lines go first.
                g.flush_and_note();
                g.sink = Arc::clone(sink);
            }
            return std::mem::take(&mut g.text);
        }
        // Logs of a configuration that is gone are written out and forgotten.
        all.retain(|g| Arc::strong_count(&g.sink) > 1);
        all.push(Gathered { sink: Arc::clone(sink), text: Vec::new(), armed: false, failed: None });
        let size = sink.buffering.map_or(0, |b| b.size_bytes) as usize;
        Vec::with_capacity(size.min(1 << 20))
    })
}

/// What has failed since the last line.
fn take_failure(sink: &Arc<Sink>) -> io::Result<()> {
    GATHERED.with_borrow_mut(|all| {
        let g = all.iter_mut().find(|g| Arc::ptr_eq(&g.sink, sink));
        g.and_then(|g| g.failed.take()).map_or(Ok(()), Err)
    })
}

fn give_back(sink: &Arc<Sink>, text: Vec<u8>) {
    let arm = GATHERED.with_borrow_mut(|all| {
        let g = all.iter_mut().find(|g| Arc::ptr_eq(&g.sink, sink))?;
        g.text = text;
        let flush_ms = sink.buffering.and_then(|b| b.flush_ms)?;
        let wanted = !g.armed && !g.text.is_empty();
        g.armed |= wanted;
        wanted.then_some(flush_ms)
    });
    if let Some(ms) = arm {
        let sink = Arc::clone(sink);
        weir_runtime::event_loop::spawn(async move {
            timer::sleep_ms(ms).await;
            flush_one(&sink);
        });
    }
}

fn flush_one(sink: &Arc<Sink>) {
    GATHERED.with_borrow_mut(|all| {
        if let Some(g) = all.iter_mut().find(|g| Arc::ptr_eq(&g.sink.file, &sink.file)) {
            g.armed = false;
            g.flush_and_note();
        }
    });
}

/// Writes out everything this worker has gathered.
pub fn flush_all() {
    GATHERED.with_borrow_mut(|all| {
        all.iter_mut().for_each(Gathered::flush_and_note);
        all.retain(|g| g.armed || Arc::strong_count(&g.sink) > 1);
    });
}
