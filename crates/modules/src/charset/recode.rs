//! The tables of a `charset_map` and a body on its way through one.

use std::sync::Arc;
use weir_base::bytes::fmt_u64;

/// A character of one charset in UTF-8: at most three bytes.
#[derive(Clone, Copy, Default)]
pub struct Utf8 {
    len: u8,
    text: [u8; 3],
}

impl Utf8 {
    fn of(text: &[u8]) -> Option<Utf8> {
        let mut utf8 = Utf8 { len: text.len() as u8, text: [0; 3] };
        utf8.text.get_mut(..text.len())?.copy_from_slice(text);
        Some(utf8)
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }
}

/// Characters by the high byte of their number, then by the low one; 0 is none.
type Pages = Vec<Option<Box<[u8; 256]>>>;

/// One way of a map.
pub enum Recode {
    Bytes(Box<[u8; 256]>),
    ToUtf8(Box<[Utf8; 256]>),
    FromUtf8(Pages),
}

impl Recode {
    pub fn changes_length(&self) -> bool {
        !matches!(self, Recode::Bytes(_))
    }
}

/// Both ways of a map that is being read. What it does not name becomes `?`, ASCII stays itself.
pub struct Pair {
    is_utf8: bool,
    forward: Box<[u8; 256]>,
    back: Box<[u8; 256]>,
    to_utf8: Vec<Utf8>,
    from_utf8: Pages,
}

fn ascii(other: u8) -> Box<[u8; 256]> {
    Box::new(std::array::from_fn(|n| if n < 128 { n as u8 } else { other }))
}

impl Pair {
    pub fn new(is_utf8: bool) -> Pair {
        let mut from_utf8: Pages = Vec::new();
        let mut to_utf8 = Vec::new();
        if is_utf8 {
            from_utf8.resize(256, None);
            from_utf8[0] = Some(ascii(0));
            let utf8 = |n: u8| Utf8 { len: 1, text: [if n < 128 { n } else { b'?' }, 0, 0] };
            to_utf8.extend((0..=255).map(utf8));
        }
        Pair { is_utf8, forward: ascii(b'?'), back: ascii(b'?'), to_utf8, from_utf8 }
    }

    /// `None`: the hexadecimal text names no character.
    pub fn add(&mut self, src: u8, hex: &[u8]) -> Option<()> {
        if !self.is_utf8 {
            let dst = u8::try_from(weir_base::units::parse_hex(hex)?).ok()?;
            self.forward[usize::from(src)] = dst;
            self.back[usize::from(dst)] = src;
            return Some(());
        }
        let text = weir_base::bytes::parse_hex_bytes(hex)?;
        let utf8 = Utf8::of(&text)?;
        let Decoded::Char(n, _) = decode_any(&text) else { return None };
        let (high, low) = (usize::from(u8::try_from(n >> 8).ok()?), (n & 0xff) as usize);
        self.to_utf8[usize::from(src)] = utf8;
        self.from_utf8[high].get_or_insert_with(|| Box::new([0; 256]))[low] = src;
        Some(())
    }

    pub fn finish(self) -> (Recode, Recode) {
        if !self.is_utf8 {
            return (Recode::Bytes(self.forward), Recode::Bytes(self.back));
        }
        let to = Box::new(std::array::from_fn(|n| self.to_utf8[n]));
        (Recode::ToUtf8(to), Recode::FromUtf8(self.from_utf8))
    }
}

enum Decoded {
    /// A character and its length.
    Char(u32, usize),
    /// So many bytes are no character.
    Invalid(usize),
    Incomplete,
}

fn decode_any(text: &[u8]) -> Decoded {
    match text.first() {
        Some(byte) if *byte < 0x80 => Decoded::Char(u32::from(*byte), 1),
        Some(_) => decode(text),
        None => Decoded::Invalid(0),
    }
}

/// The character that begins here, which is not ASCII; as tolerant as nginx.
fn decode(text: &[u8]) -> Decoded {
    let (bits, least, more) = match text[0] {
        b @ 0xf0..=0xf7 => (b & 7, 0x1_0000, 3),
        b @ 0xe0..=0xef => (b & 15, 0x800, 2),
        b @ 0xc2..=0xdf => (b & 31, 0x80, 1),
        _ => return Decoded::Invalid(1),
    };
    if text.len() <= more {
        return Decoded::Incomplete;
    }
    let mut n = u32::from(bits);
    for (at, byte) in text[1..=more].iter().enumerate() {
        if *byte < 0x80 {
            return Decoded::Invalid(at + 2);
        }
        n = n << 6 | u32::from(byte & 0x3f);
    }
    match n {
        n if n < least || n > 0x10_ffff => Decoded::Invalid(more + 1),
        n => Decoded::Char(n, more + 1),
    }
}

/// A body on its way.
pub struct Recoder {
    way: Arc<Recode>,
    /// The beginning of a character whose end is in the next buffer.
    saved: Vec<u8>,
}

impl Recoder {
    pub fn new(way: Arc<Recode>) -> Recoder {
        Recoder { way, saved: Vec::new() }
    }

    /// The text in the other charset; `None` when it is the same.
    pub fn recode(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        match &*self.way {
            Recode::Bytes(table) => {
                let same = text.iter().all(|b| table[usize::from(*b)] == *b);
                (!same).then(|| text.iter().map(|b| table[usize::from(*b)]).collect())
            }
            Recode::ToUtf8(table) => {
                let is_same = |b: &u8| table[usize::from(*b)].bytes() == [*b];
                if text.iter().all(is_same) {
                    return None;
                }
                let mut out = Vec::with_capacity(text.len() * 2);
                text.iter().for_each(|b| out.extend_from_slice(table[usize::from(*b)].bytes()));
                Some(out)
            }
            Recode::FromUtf8(_) if self.saved.is_empty() && text.is_ascii() => None,
            Recode::FromUtf8(pages) => {
                let mut out = Vec::with_capacity(text.len() + 16);
                if self.saved.is_empty() {
                    self.saved = from_utf8(pages, text, &mut out).to_vec();
                } else {
                    self.saved.extend_from_slice(text);
                    let whole = std::mem::take(&mut self.saved);
                    self.saved = from_utf8(pages, &whole, &mut out).to_vec();
                }
                Some(out)
            }
        }
    }
}

/// Recodes all but a character that is cut off at the end, which is answered. A character that the
/// other charset lacks becomes an HTML reference.
fn from_utf8<'t>(pages: &Pages, mut text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    while let Some(byte) = text.first() {
        if *byte < 0x80 {
            out.push(*byte);
            text = &text[1..];
            continue;
        }
        let used = match decode(text) {
            Decoded::Incomplete => return text,
            Decoded::Invalid(used) => {
                out.push(b'?');
                used
            }
            Decoded::Char(n, used) => {
                let page = pages.get((n >> 8) as usize).and_then(Option::as_ref);
                match page.map_or(0, |page| page[(n & 0xff) as usize]) {
                    0 => {
                        out.extend_from_slice(b"&#");
                        fmt_u64(out, u64::from(n));
                        out.push(b';');
                    }
                    byte => out.push(byte),
                }
                used
            }
        };
        text = &text[used..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf8_pair() -> (Recode, Recode) {
        let mut pair = Pair::new(true);
        pair.add(0xe0, b"D0B0").unwrap();
        pair.add(0x80, b"E282AC").unwrap();
        assert_eq!(pair.add(0x81, b"F09F9880"), None);
        assert_eq!(pair.add(0x81, b"D0"), None);
        assert_eq!(pair.add(0x81, b"xx"), None);
        pair.finish()
    }

    #[test]
    fn to_utf8() {
        let mut r = Recoder::new(Arc::new(utf8_pair().0));
        assert_eq!(r.recode(b"plain"), None);
        assert_eq!(r.recode(b"a\xe0\x80\xff").as_deref(), Some("aа€?".as_bytes()));
    }

    #[test]
    fn from_utf8_in_pieces() {
        let way = Arc::new(utf8_pair().1);
        let text = "xа€y\u{431}\u{1f600}z".as_bytes();
        let expected = b"x\xe0\x80y&#1073;&#128512;z";
        for cut in 0..=text.len() {
            let mut r = Recoder::new(Arc::clone(&way));
            let mut out = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                match r.recode(part) {
                    Some(recoded) => out.extend_from_slice(&recoded),
                    None => out.extend_from_slice(part),
                }
            }
            assert_eq!(out, expected, "cut at {cut}");
        }
    }

    #[test]
    fn invalid_utf8() {
        let mut r = Recoder::new(Arc::new(utf8_pair().1));
        assert_eq!(r.recode(b"\xffa\xd0b\xc0c").as_deref(), Some(&b"?a??c"[..]));
        assert_eq!(r.recode(b"\xe2\x82").as_deref(), Some(&b""[..]));
        assert_eq!(r.recode(b"\xac!").as_deref(), Some(&b"\x80!"[..]));
    }

    #[test]
    fn bytes() {
        let mut pair = Pair::new(false);
        pair.add(0xc0, b"fe").unwrap();
        let (forward, back) = pair.finish();
        let mut r = Recoder::new(Arc::new(forward));
        assert_eq!(r.recode(b"a\xc0\xc1").as_deref(), Some(&b"a\xfe?"[..]));
        assert_eq!(r.recode(b"a"), None);
        assert_eq!(Recoder::new(Arc::new(back)).recode(b"\xfe").as_deref(), Some(&b"\xc0"[..]));
    }
}
