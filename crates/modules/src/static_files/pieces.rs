//! Files that are read instead of being sent by sendfile: piece by piece, into as many buffers of
//! that size as `output_buffers` says, which are used again once the client has taken them.

use bytes::{Bytes, BytesMut};
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use weir_http::buf::Data;
use weir_http::conf::{Aio, CoreLoc};
use weir_http::Chain;
use weir_runtime::threads::in_thread;
use weir_runtime::{direct, files};

enum Source {
    Here(Rc<File>),
    /// In another thread (`aio threads`).
    Thread(Arc<File>),
    /// In another thread, past the page cache (`directio`), at offsets of that alignment.
    Direct(Arc<File>, usize),
}

/// Reads the parts of one file.
pub struct Reader {
    source: Source,
    /// Whole buffers, of which the client may still have pieces to take.
    buffers: Vec<Bytes>,
    buffers_max: usize,
    /// The longest piece.
    piece_bytes: usize,
    /// A buffer's length: a piece, and what alignment needs.
    buffer_bytes: usize,
}

impl Reader {
    /// For the file that the chain has parts of; `None`: it has none.
    pub fn new(core: &CoreLoc, chain: &Chain, past_cache: bool) -> io::Result<Option<Reader>> {
        let files = || chain.iter().filter(|b| matches!(b.data, Data::File { .. }));
        let longest = files().map(|b| b.len()).max().unwrap_or(0);
        let Some(Data::File { file, .. }) = files().next().map(|b| &b.data) else {
            return Ok(None);
        };
        let (number, size) = *core.output_buffers;
        let piece_bytes = (size as usize).min(usize::try_from(longest).unwrap_or(usize::MAX));
        let source = match *core.aio {
            // A file system that cannot read past the page cache reads as usual.
            _ if past_cache => match direct::reopen(file) {
                Ok(again) => {
                    let align = direct::alignment(*core.directio_alignment);
                    Source::Direct(Arc::new(again), align)
                }
                Err(_) => Source::Thread(Arc::new(file.try_clone()?)),
            },
            Aio::Threads => Source::Thread(Arc::new(file.try_clone()?)),
            _ => Source::Here(Rc::clone(file)),
        };
        let buffer_bytes = match &source {
            Source::Direct(_, align) => direct::buffer_bytes(piece_bytes, *align),
            _ => piece_bytes,
        };
        let buffers_max = number as usize;
        Ok(Some(Reader { source, buffers: Vec::new(), buffers_max, piece_bytes, buffer_bytes }))
    }

    /// Whether a piece is waited for.
    pub fn waits(&self) -> bool {
        !matches!(self.source, Source::Here(_))
    }

    /// Reads a piece of what is left there; an empty one at the file's end.
    pub async fn read(&mut self, at: u64, left: u64) -> io::Result<Bytes> {
        let mut buf = self.free_buffer();
        let len = self.piece_bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        let (buf, range) = match &self.source {
            Source::Here(file) => {
                let got = files::read_at(file, &mut buf[..len], at)?;
                (buf, 0..got)
            }
            Source::Thread(file) => {
                let file = Arc::clone(file);
                in_thread(move || {
                    files::read_at(&file, &mut buf[..len], at).map(|got| (buf, 0..got))
                })
                .await??
            }
            Source::Direct(file, align) => {
                let (file, align) = (Arc::clone(file), *align);
                in_thread(move || {
                    direct::read(&file, &mut buf, at, len, align).map(|range| (buf, range))
                })
                .await??
            }
        };
        let whole = buf.freeze();
        let piece = whole.slice(range);
        if self.buffers.len() < self.buffers_max {
            self.buffers.push(whole);
        }
        Ok(piece)
    }

    /// A buffer that nobody uses any more, or a new one.
    fn free_buffer(&mut self) -> BytesMut {
        let free = self.buffers.iter().position(Bytes::is_unique);
        let free = free.map(|n| self.buffers.swap_remove(n).try_into_mut());
        match free {
            Some(Ok(buf)) => buf,
            _ => BytesMut::zeroed(self.buffer_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn buffers_are_used_again() {
        let path = std::env::temp_dir().join(format!("weir-pieces-{}", std::process::id()));
        std::fs::write(&path, [b'a'; 100]).unwrap();
        let file = Rc::new(File::open(&path).unwrap());
        let source = Source::Here(file);
        let mut reader = Reader {
            source,
            buffers: Vec::new(),
            buffers_max: 2,
            piece_bytes: 10,
            buffer_bytes: 10,
        };
        let first = reader.read(0, 100).await.unwrap();
        let second = reader.read(10, 90).await.unwrap();
        let (a, b) = (first.as_ptr(), second.as_ptr());
        assert_ne!(a, b);
        drop(first);
        let third = reader.read(20, 4).await.unwrap();
        assert_eq!((third.as_ptr(), &third[..]), (a, &b"aaaa"[..]));
        // Who keeps pieces longer gets further buffers, and those are not kept.
        let fourth = reader.read(24, 100).await.unwrap();
        assert!(fourth.as_ptr() != a && fourth.as_ptr() != b && reader.buffers.len() == 2);
        assert!(reader.read(100, 5).await.unwrap().is_empty());
        std::fs::remove_file(path).unwrap();
    }
}
