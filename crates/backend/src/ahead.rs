//! What has been read ahead of a slow client: the temporary file of an answer.
//!
//! It stands in front of the filters, as in nginx, so that the server's connection is free as soon
//! as the server has said all, whatever becomes of its answer. Where the filters do not look at the
//! bytes the file's ranges themselves go to the client. The file's beginning is never used again:
//! its pages may still be on their way.

use crate::conf::BackendLoc;
use crate::fault::Fault;
use std::fs::File;
use std::io;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::temp::{Life, TempFile};
use weir_core::Session;
use weir_http::module::FilterResult;
use weir_http::{Buf, Chain, Request};
use weir_runtime::files;
use weir_runtime::turns::{self, Pause};

/// Handed to filters at once: what they make of it stays a moderate buffer.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

struct Spill {
    file: Rc<File>,
    /// Deletes it at the end.
    _temp: TempFile,
    written: u64,
    /// So much has gone to the filters.
    passed: u64,
}

pub(crate) struct Ahead<'a> {
    conf: &'a BackendLoc,
    spill: Option<Spill>,
    /// `…_limit_rate`, bytes a second; 0 for no limit.
    pub(crate) rate: u64,
}

impl<'a> Ahead<'a> {
    pub(crate) fn new(conf: &'a BackendLoc) -> Ahead<'a> {
        Ahead { conf, spill: None, rate: 0 }
    }

    /// Nothing waits here for the filters.
    pub(crate) fn is_empty(&self) -> bool {
        self.spill.as_ref().is_none_or(|s| s.passed == s.written)
    }

    /// There is room in the file.
    pub(crate) fn has_room(&self) -> bool {
        self.spill.as_ref().map_or(0, |s| s.written) < self.conf.max_temp_bytes()
    }

    pub(crate) fn put(&mut self, r: &Request, bytes: &[u8]) -> Result<(), Fault> {
        if self.spill.is_none() {
            self.spill = Some(create(r, self.conf).map_err(Fault::File)?);
        }
        let Some(spill) = &mut self.spill else { return Ok(()) };
        files::write_all_at(&spill.file, bytes, spill.written).map_err(Fault::File)?;
        spill.written += bytes.len() as u64;
        Ok(())
    }

    /// Hands on all that waits, as it is.
    pub(crate) fn pass(&mut self, r: &mut Request, ended: bool) -> Result<(), Fault> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let left = spill.written - spill.passed;
        let mut buf = Buf::file(Rc::clone(&spill.file), spill.passed, left);
        spill.passed = spill.written;
        buf.last = ended;
        filtered(r.output(Chain::one(buf)))
    }

    /// Hands on what waits until the client has enough to take, or the filters have worked for long enough;
    /// `ended`: the body ends with it.
    pub(crate) fn feed(&mut self, r: &mut Request, ended: bool) -> Result<(), Fault> {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        while spill.passed < spill.written && !is_full(r, self.conf.buffers_bytes()) {
            if turns::is_spent() {
                break;
            }
            let left = spill.written - spill.passed;
            let mut buf = match r.flags.filter_needs_memory {
                false => Buf::file(Rc::clone(&spill.file), spill.passed, left),
                true => {
                    let mut bytes = vec![0; left.min(PIECE_BYTES as u64) as usize];
                    files::read_exact_at(&spill.file, &mut bytes, spill.passed)
                        .map_err(Fault::File)?;
                    Buf::mem(bytes)
                }
            };
            spill.passed += buf.len();
            buf.last = ended && spill.passed == spill.written;
            filtered(turns::work(|| r.output(Chain::one(buf))))?;
        }
        Ok(())
    }

    /// Hands on what is left, now that nothing more will come.
    pub(crate) async fn finish(&mut self, r: &mut Request, ended: bool) -> Result<(), Fault> {
        while !self.is_empty() {
            self.feed(r, ended)?;
            let leave = self.leave();
            r.drain(leave).await.map_err(|_| Fault::ClientGone)?;
            if turns::is_spent() {
                Pause::default().await;
            }
        }
        Ok(())
    }

    /// How much may be left with the client when more of it is handed on.
    pub(crate) fn leave(&self) -> u64 {
        self.conf.buffers_bytes() / 2
    }
}

fn create(r: &Request, conf: &BackendLoc) -> io::Result<Spill> {
    let temp = TempFile::create(&conf.temp_path, Life::Nameless)?;
    let path = temp.path.display().to_string();
    let text = format!(
        "an upstream response is buffered to a temporary file {path} while reading upstream"
    );
    r.log(LogLevel::Warn, &text);
    let file = Rc::clone(&temp.file);
    Ok(Spill { file, _temp: temp, written: 0, passed: 0 })
}

/// The client has enough to take, or a filter has: one that keeps input waits for room.
pub(crate) fn is_full(r: &Request, max: u64) -> bool {
    r.queued() >= max || r.holds()
}

pub(crate) fn filtered(result: FilterResult) -> Result<(), Fault> {
    result.map_err(|_| Fault::Filter)
}
