//! The body as it passes through the filters: a chain of buffers, nginx's `ngx_chain_t`.

use bytes::Bytes;
use std::fs::File;
use std::rc::Rc;

/// Where a buffer's bytes are.
#[derive(Clone)]
pub enum Data {
    /// No bytes: a buffer that only carries flags.
    None,
    Mem(Bytes),
    /// A range of a file; sent by sendfile where the location allows it.
    File {
        file: Rc<File>,
        offset: u64,
        len: u64,
    },
}

/// One piece of a response body.
#[derive(Clone)]
pub struct Buf {
    pub data: Data,
    /// The end of the whole response (of the subrequest's own output in a subrequest).
    pub last: bool,
    /// Everything up to here is to be sent now, not gathered.
    pub flush: bool,
}

impl Buf {
    pub fn mem(bytes: impl Into<Bytes>) -> Buf {
        Buf { data: Data::Mem(bytes.into()), last: false, flush: false }
    }

    pub fn file(file: Rc<File>, offset: u64, len: u64) -> Buf {
        Buf { data: Data::File { file, offset, len }, last: false, flush: false }
    }

    /// The empty buffer that ends a response.
    pub fn last() -> Buf {
        Buf { data: Data::None, last: true, flush: false }
    }

    pub fn flush() -> Buf {
        Buf { data: Data::None, last: false, flush: true }
    }

    pub fn and_last(mut self) -> Buf {
        self.last = true;
        self
    }

    pub fn len(&self) -> u64 {
        match &self.data {
            Data::None => 0,
            Data::Mem(b) => b.len() as u64,
            Data::File { len, .. } => *len,
        }
    }

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
    pub fn new() -> Chain {
        Chain::default()
    }

    pub fn one(buf: Buf) -> Chain {
        Chain { first: Some(buf), rest: Vec::new() }
    }

    pub fn push(&mut self, buf: Buf) {
        match self.first {
            None => self.first = Some(buf),
            Some(_) => self.rest.push(buf),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Buf> {
        self.first.iter().chain(self.rest.iter())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Buf> {
        self.first.iter_mut().chain(self.rest.iter_mut())
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn len(&self) -> u64 {
        self.iter().map(Buf::len).sum()
    }

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
