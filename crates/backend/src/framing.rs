//! What protocols put around the pieces of a request's body.

use weir_wire::http1::chunked;

/// Writes a piece of a body, which may be the last.
pub(crate) type Frame = fn(&[u8], bool, &mut Vec<u8>);

/// What is put around a body's bytes.
#[derive(Clone, Copy)]
pub(crate) enum Framing {
    Plain,
    Chunked,
    /// As the family says.
    Own(Frame),
}

impl Framing {
    /// Writes a piece of a body with what the protocol wants around it.
    pub(crate) fn put(self, bytes: &[u8], ended: bool, out: &mut Vec<u8>) {
        match self {
            Framing::Plain => out.extend_from_slice(bytes),
            Framing::Chunked => {
                if !bytes.is_empty() {
                    chunked::write_chunk_header(bytes.len() as u64, out);
                    out.extend_from_slice(bytes);
                    out.extend_from_slice(b"\r\n");
                }
                if ended {
                    chunked::write_last_chunk(out);
                }
            }
            Framing::Own(frame) => frame(bytes, ended, out),
        }
    }
}
