//! SCGI: a request is a netstring of names and values that end in NUL, and then its body. Answers
//! come as CGI programs give them.

use std::io::Write;

/// Writes a request up to its body.
pub struct RequestWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> RequestWriter<'a> {
    /// The buffer is empty; the body's length always comes first.
    pub fn new(out: &'a mut Vec<u8>, content_length: u64) -> RequestWriter<'a> {
        let mut writer = RequestWriter { out };
        writer.param(b"CONTENT_LENGTH", &[content_length.to_string().as_bytes()]);
        writer
    }

    /// Writes one parameter; the value is given in parts. A NUL would end it before its end, and
    /// what follows would be a parameter of its own: it becomes a space.
    pub fn param(&mut self, name: &[u8], value: &[&[u8]]) {
        self.word(&[name]);
        self.word(value);
    }

    fn word(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.out.extend(part.iter().map(|b| if *b == 0 { b' ' } else { *b }));
        }
        self.out.push(0);
    }

    pub fn finish(self) {
        let mut length = Vec::with_capacity(8);
        // Writing to memory does not fail.
        let _ = write!(length, "{}:", self.out.len());
        self.out.splice(0..0, length);
        self.out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request() {
        let mut out = Vec::new();
        let mut w = RequestWriter::new(&mut out, 27);
        w.param(b"SCGI", &[b"1"]);
        w.param(b"A", &[b"x", b"\0y"]);
        w.finish();
        assert_eq!(out, b"31:CONTENT_LENGTH\x0027\0SCGI\x001\0A\0x y\0,");
    }
}
