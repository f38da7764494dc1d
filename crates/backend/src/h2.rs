//! Requests over HTTP/2: the head that was written for HTTP/1 becomes fields, so that both have
//! the same rules for what is sent.

use crate::link::h2::{is_of_connection, Source};
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;
use weir_core::temp::TempFile;
use weir_wire::http2::hpack;

/// A head as HTTP/1 text.
pub(crate) struct Text<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where the URI stands.
    pub(crate) uri: (usize, usize),
    pub(crate) tls: bool,
    /// `Host` goes as a field, without an authority.
    pub(crate) host_field: bool,
}

/// The first line's end and its lines of fields, one after another.
fn lines(bytes: &[u8], from: usize) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = from;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let len = memchr::memchr(b'\n', rest)?;
        at += len + 1;
        Some((at, rest[..len].strip_suffix(b"\r").unwrap_or(&rest[..len])))
    })
}

impl Text<'_> {
    /// Where the body begins that may stand behind the head.
    pub(crate) fn end(&self) -> usize {
        let empty = lines(self.bytes, self.uri.1).find(|(_, line)| line.is_empty());
        empty.map_or(self.bytes.len(), |(next, _)| next)
    }

    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = lines(self.bytes, self.uri.1).skip(1).take_while(|(_, l)| !l.is_empty());
        fields.filter_map(|(_, line)| {
            let colon = memchr::memchr(b':', line).filter(|at| *at > 0)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let method = &self.bytes[..self.uri.0.saturating_sub(1)];
        let is_host = |name: &[u8]| name.eq_ignore_ascii_case(b"Host");
        let host = self.fields().find(|(name, _)| is_host(name)).map_or(&b""[..], |(_, v)| v);
        let authority = if self.host_field { None } else { Some(host) };
        let uri = &self.bytes[self.uri.0..self.uri.1];
        hpack::request_line(method, self.tls, uri, authority, out);
        for (name, value) in self.fields() {
            let te = name.eq_ignore_ascii_case(b"TE") && !value.eq_ignore_ascii_case(b"trailers");
            let is_authority = !self.host_field && is_host(name);
            if !is_authority && !is_of_connection(name) && !te {
                hpack::literal_lower(name, value, out);
            }
        }
    }
}

/// The rest of a body in a file, by pieces of that size.
pub(crate) fn file_source(temp: Rc<TempFile>, mut at: u64, piece: usize) -> Source {
    Box::new(move |out| read_piece(&temp, &mut at, piece, out))
}

/// Whether it was the last.
pub(crate) fn read_piece(
    temp: &TempFile,
    at: &mut u64,
    piece: usize,
    out: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut file = &*temp.file;
    file.seek(SeekFrom::Start(*at))?;
    let n = file.take(piece as u64).read_to_end(out)?;
    *at += n as u64;
    Ok(n < piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_text() {
        let bytes =
            b"PUT /a b HTTP/1.1\r\nHost: h\r\nConnection: x\r\nX-A:  1 \r\nTE: gzip\r\n\r\nbody";
        let text = Text { bytes, uri: (4, 8), tls: false, host_field: false };
        assert_eq!(&bytes[text.end()..], b"body");
        let mut block = Vec::new();
        text.write(&mut block);
        let mut fields = hpack::Fields::default();
        let limits = hpack::HpackLimits { string_max_bytes: 100, block_max_bytes: 1000 };
        hpack::Decoder::without_table().decode(&block, &limits, &mut fields).unwrap();
        let got: Vec<(&[u8], &[u8])> = fields.iter().collect();
        let wanted: [(&[u8], &[u8]); 5] = [
            (b":method", b"PUT"),
            (b":scheme", b"http"),
            (b":path", b"/a b"),
            (b":authority", b"h"),
            (b"x-a", b"1"),
        ];
        assert_eq!(got, wanted);
    }
}
