//! Small things that several modules need: values copied per thread, what is in a buffer.

use std::io;
use std::sync::OnceLock;

use bytes::Bytes;
use weir_base::copies::thread_number;
use weir_http::buf::Data;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};

/// The size of a table that sizes itself.
pub fn set_size(_: &mut Cf, d: &Directive) -> ConfResult {
    d.num(0).map(|_| ())
}

/// A buffer's bytes, read if they are in a file: for filters that look at the text.
pub fn text_of(data: &Data) -> io::Result<Bytes> {
    match data {
        Data::None => Ok(Bytes::new()),
        Data::Mem(text) => Ok(text.clone()),
        Data::File { file, offset, len } => {
            let mut text = vec![0; *len as usize];
            weir_runtime::files::read_exact_at(file, &mut text, *offset)?;
            Ok(text.into())
        }
    }
}

/// Copies of a constant, one per thread (threads beyond the number share them): sending it copies
/// no bytes, and threads do not fight over its reference count.
pub struct SharedBytes {
    text: Box<[u8]>,
    copies: Box<[Copy; COPIES]>,
}

const COPIES: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Copy(OnceLock<Bytes>);

impl SharedBytes {
    pub fn new(text: &[u8]) -> SharedBytes {
        SharedBytes { text: text.into(), copies: Box::default() }
    }

    pub fn get(&self) -> Bytes {
        let copy = &self.copies[thread_number() % COPIES];
        copy.0.get_or_init(|| Bytes::copy_from_slice(&self.text)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes() {
        let text = SharedBytes::new(b"hello");
        assert_eq!(text.get(), Bytes::from_static(b"hello"));
        let other = std::thread::scope(|s| s.spawn(|| text.get()).join());
        assert_eq!(other.ok(), Some(Bytes::from_static(b"hello")));
    }
}
