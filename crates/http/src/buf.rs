//! The body as it passes through the filters: a chain of buffers, nginx's `ngx_chain_t`.

use bytes::Bytes;
use std::fs::File;
use std::rc::Rc;

/// Where a buffer's bytes are.
#[derive(Clone)]
pub enum Data {
    /// No bytes: a buffer that only carries flags.
    None,
    /// Text that is shared, not copied, from filter to filter.
    Mem(Bytes),
    /// A range of a file; sent by sendfile where the location allows it.
    File {
        /// It stays open until its range has been sent.
        file: Rc<File>,
        /// Of its first byte, in bytes.
        offset: u64,
        /// In bytes; not looked at again when it is sent.
        len: u64,
    },
}

/// One piece of a response body.
#[derive(Clone)]
pub struct Buf {
    /// Its bytes, if it has any.
    pub data: Data,
    /// The end of the whole response (of the subrequest's own output in a subrequest).
    pub last: bool,
    /// Everything up to here is to be sent now, not gathered.
    pub flush: bool,
}

impl Buf {
    /// Text, with more to come.
    pub fn mem(bytes: impl Into<Bytes>) -> Buf {
        Buf { data: Data::Mem(bytes.into()), last: false, flush: false }
    }

    /// A range of a file, in bytes, with more to come.
    pub fn file(file: Rc<File>, offset: u64, len: u64) -> Buf {
        Buf { data: Data::File { file, offset, len }, last: false, flush: false }
    }

    /// The empty buffer that ends a response.
    pub fn last() -> Buf {
        Buf { data: Data::None, last: true, flush: false }
    }

    /// The empty buffer that has what stands before it sent.
    pub fn flush() -> Buf {
        Buf { data: Data::None, last: false, flush: true }
    }

    /// The same, as the end of the response.
    pub fn and_last(mut self) -> Buf {
        self.last = true;
        self
    }

    /// In bytes.
    pub fn len(&self) -> u64 {
        match &self.data {
            Data::None => 0,
            Data::Mem(b) => b.len() as u64,
            Data::File { len, .. } => *len,
        }
    }

    /// It has no bytes; it may have flags.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A chain of buffers; the first needs no allocation.
#[derive(Default)]
pub struct Chain {
    first: Option<Buf>,
    rest: Vec<Buf>,
}

impl Chain {
    /// One without buffers.
    pub fn new() -> Chain {
        Chain::default()
    }

    /// One of a single buffer, as most are.
    pub fn one(buf: Buf) -> Chain {
        Chain { first: Some(buf), rest: Vec::new() }
    }

    /// Behind the others.
    pub fn push(&mut self, buf: Buf) {
        match self.first {
            None => self.first = Some(buf),
            Some(_) => self.rest.push(buf),
        }
    }

    /// In the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = &Buf> {
        self.first.iter().chain(self.rest.iter())
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Buf> {
        self.first.iter_mut().chain(self.rest.iter_mut())
    }

    /// It has no buffers, and so no flags.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The bytes of all buffers.
    pub fn len(&self) -> u64 {
        self.iter().map(Buf::len).sum()
    }

    /// The response ends with it.
    pub fn has_last(&self) -> bool {
        self.iter().any(|b| b.last)
    }
}

impl IntoIterator for Chain {
    type Item = Buf;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Buf>, std::vec::IntoIter<Buf>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}
