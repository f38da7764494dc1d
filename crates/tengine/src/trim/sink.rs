//! Where what is left of a text goes.

/// The text so far, and its last byte, which outlives the text.
pub struct Sink {
    pub text: Vec<u8>,
    pub last: u8,
}

impl Sink {
    #[inline]
    pub fn put(&mut self, byte: u8) {
        self.text.push(byte);
        self.last = byte;
    }

    pub fn put_all(&mut self, text: &[u8]) {
        text.iter().for_each(|b| self.put(*b));
    }
}

pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// A letter, a digit, or what names are made of besides.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-') || byte >= 0x80
}
