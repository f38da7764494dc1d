//! The primitive types of Kafka's protocol: big-endian numbers, strings and arrays with a length before them.

/// No array or text of an answer is longer; what says so is no answer.
const LENGTH_MAX: usize = 1 << 20;

/// Bytes of an answer, read from the front. What ends too early is `None`.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn bool(&mut self) -> Option<bool> {
        Some(self.array::<1>()?[0] != 0)
    }

    pub fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A text that may be absent, which is told as empty.
    pub fn text(&mut self) -> Option<String> {
        let len = self.i16()?;
        let bytes = self.take(usize::try_from(len).unwrap_or(0))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.i32()?;
        self.take(usize::try_from(len).unwrap_or(0))
    }

    /// An array whose elements are read by `element`; one that is absent is empty.
    pub fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let len = usize::try_from(self.i32()?).unwrap_or(0);
        // Each element has a byte at least.
        if len > LENGTH_MAX.min(self.rest.len()) {
            return None;
        }
        (0..len).map(|_| element(self)).collect()
    }
}

/// Bytes of a request, written at the end.
#[derive(Default)]
pub struct Writer {
    pub out: Vec<u8>,
}

impl Writer {
    pub fn bool(&mut self, value: bool) {
        self.out.push(u8::from(value));
    }

    pub fn i16(&mut self, value: i16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// A length or number of elements. Requests are bounded far below what does not fit.
    pub fn len(&mut self, len: usize) {
        self.i32(i32::try_from(len).unwrap_or(i32::MAX));
    }

    /// A text; what is longer than a length can say is cut.
    pub fn text(&mut self, text: &str) {
        let len = text.len().min(i16::MAX as usize);
        self.i16(len as i16);
        self.out.extend_from_slice(&text.as_bytes()[..len]);
    }

    /// A text that is absent.
    pub fn no_text(&mut self) {
        self.i16(-1);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.out.extend_from_slice(bytes);
    }
}

/// A number of variable length, as records have them (zigzag, seven bits a byte).
pub fn varint(value: i64, out: &mut Vec<u8>) {
    let mut left = (value << 1 ^ value >> 63) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// How long [`varint`] makes it.
pub fn varint_bytes(value: i64) -> usize {
    let zigzag = (value << 1 ^ value >> 63) as u64;
    (64 - (zigzag | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length() {
        for (value, bytes) in [
            (0, &b"\x00"[..]),
            (-1, b"\x01"),
            (1, b"\x02"),
            (63, b"\x7e"),
            (64, b"\x80\x01"),
            (-64, b"\x7f"),
            (-65, b"\x81\x01"),
            (300, b"\xd8\x04"),
        ] {
            let mut out = Vec::new();
            varint(value, &mut out);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(varint_bytes(value), bytes.len(), "{value}");
        }
        for value in [i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            varint(value, &mut out);
            assert_eq!((out.len(), varint_bytes(value)), (10, 10));
        }
    }

    #[test]
    fn what_is_cut_off_is_nothing() {
        let mut writer = Writer::default();
        writer.len(2);
        writer.text("ab");
        writer.text("c");
        let list = |bytes: &[u8]| Reader::new(bytes).list(Reader::text);
        assert_eq!(list(&writer.out), Some(vec!["ab".into(), "c".into()]));
        for len in 0..writer.out.len() {
            assert_eq!(list(&writer.out[..len]), None, "{len}");
        }
        assert_eq!(list(b"\x7f\xff\xff\xff"), None, "an array longer than the answer");
        assert_eq!(list(b"\xff\xff\xff\xff"), Some(Vec::new()), "an absent array");
    }
}
