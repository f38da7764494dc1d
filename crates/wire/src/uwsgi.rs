//! uwsgi: a request is a packet of names and values, each behind its length in two bytes, and then
//! its body. Answers come as CGI programs or HTTP servers give them.

const HEADER_BYTES: usize = 4;
/// The most that a packet holds.
pub const PACKET_MAX_BYTES: usize = 65535;

/// Writes a request up to its body.
pub struct RequestWriter<'a> {
    out: &'a mut Vec<u8>,
    modifiers: (u8, u8),
}

/// The parameters are too long for a packet: so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig(pub usize);

impl<'a> RequestWriter<'a> {
    /// The buffer is empty.
    pub fn new(out: &'a mut Vec<u8>, modifiers: (u8, u8)) -> RequestWriter<'a> {
        out.resize(HEADER_BYTES, 0);
        RequestWriter { out, modifiers }
    }

    /// Writes one parameter; the value is given in parts.
    pub fn param(&mut self, name: &[u8], value: &[&[u8]]) {
        self.length(name.len());
        self.out.extend_from_slice(name);
        self.length(value.iter().map(|p| p.len()).sum());
        for part in value {
            self.out.extend_from_slice(part);
        }
    }

    /// What is too long for its own length makes the packet too big as well.
    fn length(&mut self, len: usize) {
        self.out.extend_from_slice(&(len as u16).to_le_bytes());
    }

    /// Ends the packet with bytes as they are.
    pub fn finish(self, more: &[u8]) -> Result<(), TooBig> {
        self.out.extend_from_slice(more);
        let len = self.out.len() - HEADER_BYTES;
        let size = u16::try_from(len).map_err(|_| TooBig(len))?.to_le_bytes();
        let (first, second) = self.modifiers;
        self.out[..HEADER_BYTES].copy_from_slice(&[first, size[0], size[1], second]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request() {
        let mut out = Vec::new();
        let mut w = RequestWriter::new(&mut out, (5, 1));
        w.param(b"A", &[b"x", b"y"]);
        w.finish(b"more").unwrap();
        assert_eq!(out, b"\x05\x0b\0\x01\x01\0A\x02\0xymore");
        let mut out = Vec::new();
        let mut w = RequestWriter::new(&mut out, (0, 0));
        w.param(b"A", &[&[0; PACKET_MAX_BYTES]]);
        assert_eq!(w.finish(b""), Err(TooBig(PACKET_MAX_BYTES + 5)));
    }
}
