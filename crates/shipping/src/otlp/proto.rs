//! Protocol buffers' wire format: fields written at the end, and fields read with their bounds.

/// Writes one message's fields at the end of `out`.
pub struct Message<'a> {
    out: &'a mut Vec<u8>,
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl<'a> Message<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Message<'a> {
        Message { out }
    }

    fn tag(&mut self, field: u32, kind: u64) {
        varint(u64::from(field) << 3 | kind, self.out);
    }

    pub fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        varint(value, self.out);
    }

    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        varint(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Fields that were written before.
    pub fn raw(&mut self, fields: &[u8]) {
        self.out.extend_from_slice(fields);
    }

    /// A message in the message; its length is written when it is known.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) {
        /// A length of 2 MB fits into so many bytes; longer ones are moved.
        const ROOM: usize = 3;
        self.tag(field, LENGTH);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; ROOM]);
        write(&mut Message { out: self.out });
        let len = self.out.len() - at - ROOM;
        if len < 1 << (7 * ROOM) {
            let word = [len as u8 | 0x80, (len >> 7) as u8 | 0x80, (len >> 14) as u8 & 0x7f];
            self.out[at..at + ROOM].copy_from_slice(&word);
        } else {
            let mut word = Vec::new();
            varint(len as u64, &mut word);
            self.out.splice(at..at + ROOM, word);
        }
    }
}

/// One field of a message that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, up to the first that is broken.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn of(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            VARINT => Field::Number(self.varint()?),
            FIXED64 => Field::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            LENGTH => {
                let len = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            FIXED32 => Field::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok()?, field))
    }
}

/// What tests look for in messages.
#[cfg(test)]
pub(super) mod found {
    use super::{Field, Fields};

    pub fn bytes<'a>(of: &'a [u8], field: u32) -> Vec<&'a [u8]> {
        let found = |(n, f): (u32, Field<'a>)| match f {
            Field::Bytes(b) if n == field => Some(b),
            _ => None,
        };
        Fields::of(of).filter_map(found).collect()
    }

    pub fn number(of: &[u8], field: u32) -> Option<u64> {
        Fields::of(of).find_map(|(n, f)| match f {
            Field::Number(number) if n == field => Some(number),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let long = vec![b'x'; 3 << 20];
        let mut out = Vec::new();
        let mut m = Message::new(&mut out);
        m.number(1, 300);
        m.fixed64(2, 5);
        m.fixed32(3, 6);
        m.message(4, |m| m.text(1, "ab"));
        m.message(20, |m| m.bytes(1, &long));
        let fields: Vec<_> = Fields::of(&out).collect();
        assert_eq!(
            fields[..3],
            [(1, Field::Number(300)), (2, Field::Number(5)), (3, Field::Number(6)),]
        );
        let Field::Bytes(inner) = fields[3].1 else { panic!() };
        assert_eq!(Fields::of(inner).collect::<Vec<_>>(), [(1, Field::Bytes(b"ab"))]);
        let (20, Field::Bytes(inner)) = fields[4] else { panic!() };
        assert_eq!(Fields::of(inner).collect::<Vec<_>>(), [(1, Field::Bytes(&long))]);
        assert_eq!(fields.len(), 5);
    }

    #[test]
    fn what_is_broken_ends() {
        assert_eq!(Fields::of(b"\x0a\x05ab").next(), None);
        assert_eq!(Fields::of(&[0xff; 20]).next(), None);
        assert_eq!(Fields::of(b"\x0b").next(), None, "a group");
    }
}
