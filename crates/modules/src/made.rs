//! What a filter makes of a body: many short texts in one buffer, long ones where they are.

use std::ops::Range;

use bytes::Bytes;
use weir_http::{Buf, Chain};

/// Text up to this is copied, which costs less than a buffer of its own.
const SHORT_MAX_BYTES: usize = 256;
/// Room for the first of it.
const ROOM_BYTES: usize = 512;
/// What a buffer of short texts has at most before the next is begun, but for one long text.
const JOINED_MAX_BYTES: usize = 16 * 1024;

/// Output that is being made.
#[derive(Default)]
pub struct Made {
    chain: Chain,
    /// Behind the chain.
    short: Vec<u8>,
    /// What the chain takes of memory.
    bytes: usize,
}

impl Made {
    /// What it takes of memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.short.len()
    }

    /// A part of a text.
    pub fn part(&mut self, text: &Bytes, range: Range<usize>) {
        match range.len() <= SHORT_MAX_BYTES {
            true => self.copy(&text[range]),
            false => self.push(Buf::mem(text.slice(range))),
        }
    }

    /// All of a text.
    pub fn whole(&mut self, text: &Bytes) {
        match text.len() <= SHORT_MAX_BYTES {
            true => self.copy(text),
            false => self.push(Buf::mem(text.clone())),
        }
    }

    #[inline]
    pub fn copy(&mut self, text: &[u8]) {
        if !text.is_empty() {
            self.room().extend_from_slice(text);
        }
    }

    /// Where text may be appended.
    #[inline]
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.short.capacity() == 0 || self.short.len() > JOINED_MAX_BYTES {
            self.close();
            self.short.reserve(ROOM_BYTES);
        }
        &mut self.short
    }

    /// A buffer as it is.
    pub fn push(&mut self, buf: Buf) {
        self.close();
        self.bytes += buf.len() as usize + size_of::<Buf>();
        self.chain.push(buf);
    }

    /// The short texts are a buffer.
    fn close(&mut self) {
        if self.short.is_empty() {
            return;
        }
        let mut text = std::mem::take(&mut self.short);
        // It may wait for long: without the memory that making it took.
        if text.capacity() > 2 * text.len() {
            text.shrink_to_fit();
        }
        self.bytes += text.len() + size_of::<Buf>();
        self.chain.push(Buf::mem(text));
    }

    /// Takes all of it.
    pub fn take(&mut self) -> Chain {
        self.close();
        self.bytes = 0;
        std::mem::take(&mut self.chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_http::buf::Data;

    #[test]
    fn short_texts_are_joined_and_long_ones_stay() {
        let text = Bytes::from(vec![b'x'; 4 * JOINED_MAX_BYTES]);
        let (mut made, mut all) = (Made::default(), Vec::new());
        for len in [0, 1, SHORT_MAX_BYTES, SHORT_MAX_BYTES + 1, 0, 2, JOINED_MAX_BYTES] {
            made.part(&text, 0..len);
            all.extend_from_slice(&text[..len]);
        }
        for _ in 0..2 * JOINED_MAX_BYTES / SHORT_MAX_BYTES {
            made.whole(&text.slice(..SHORT_MAX_BYTES));
            all.extend_from_slice(&text[..SHORT_MAX_BYTES]);
        }
        made.push(Buf::last());
        assert!(made.bytes() >= all.len());
        let chain = made.take();
        let lens: Vec<u64> = chain.iter().map(Buf::len).collect();
        assert_eq!(lens[..4], [257, 257, 2, JOINED_MAX_BYTES as u64]);
        assert!(chain.has_last() && chain.len() == all.len() as u64);
        assert!(lens[4..].iter().all(|len| *len <= (JOINED_MAX_BYTES + SHORT_MAX_BYTES) as u64));
        let in_place = |b: &Buf| matches!(&b.data, Data::Mem(m) if m.as_ptr() == text.as_ptr());
        assert_eq!(chain.iter().map(in_place).collect::<Vec<_>>()[..4], [false, true, false, true]);
        assert!(made.bytes() == 0 && made.take().is_empty());
    }
}
