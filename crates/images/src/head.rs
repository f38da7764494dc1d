//! What a picture is by its first bytes, and how large it says it is.

/// The kinds that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Jpeg,
    Gif,
    Png,
    Webp,
}

/// In pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub width: u32,
    pub height: u32,
    /// More than a twentieth of it is what cameras and programs have written beside the picture.
    pub is_padded: bool,
}

/// Fewer bytes are no picture.
const HEAD_BYTES: usize = 16;

impl Kind {
    /// By the first bytes.
    pub fn of(bytes: &[u8]) -> Option<Kind> {
        if bytes.len() < HEAD_BYTES {
            return None;
        }
        match bytes {
            [0xff, 0xd8, ..] => Some(Kind::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Kind::Gif),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Kind::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Kind::Webp),
            _ => None,
        }
    }

    pub fn mime(self) -> &'static str {
        match self {
            Kind::Jpeg => "image/jpeg",
            Kind::Gif => "image/gif",
            Kind::Png => "image/png",
            Kind::Webp => "image/webp",
        }
    }
}

/// The size that a whole picture says it has.
pub fn size(kind: Kind, bytes: &[u8]) -> Option<Size> {
    let (width, height) = match kind {
        Kind::Jpeg => return of_jpeg(bytes),
        Kind::Gif => (little(bytes, 6, 2)?, little(bytes, 8, 2)?),
        Kind::Png => (big(bytes, 16, 4)?, big(bytes, 20, 4)?),
        Kind::Webp => of_webp(bytes)?,
    };
    Some(Size { width, height, is_padded: false })
}

fn little(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    Some(bytes.get(at..at + len)?.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b)))
}

fn big(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    Some(bytes.get(at..at + len)?.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
}

/// Goes from marker to marker; the first frame's head has the size.
fn of_jpeg(bytes: &[u8]) -> Option<Size> {
    let (mut at, mut found, mut beside_bytes) = (2, None, 0);
    while at + 10 < bytes.len() {
        if bytes[at] != 0xff || bytes[at + 1] == 0xff {
            at += 1;
            continue;
        }
        let marker = bytes[at + 1];
        // No markers, or such that nothing follows (T.81, table B.1).
        if matches!(marker, 0x00 | 0x01 | 0xd0..=0xd8) {
            at += 2;
            continue;
        }
        let length = big(bytes, at + 2, 2)? as usize;
        match marker {
            0xc0..=0xc3 | 0xc9..=0xcb if found.is_none() => {
                found = Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?));
            }
            0xe1..=0xef => beside_bytes += length,
            _ => {}
        }
        at += 1 + length.max(1);
    }
    let (width, height) = found.filter(|(w, h)| *w > 0 && *h > 0)?;
    Some(Size { width, height, is_padded: bytes.len() / 20 < beside_bytes })
}

fn of_webp(bytes: &[u8]) -> Option<(u32, u32)> {
    if bytes.len() < 30 {
        return None;
    }
    match &bytes[12..16] {
        b"VP8 " if bytes[20] & 1 == 0 && bytes[23..26] == [0x9d, 0x01, 0x2a] => {
            Some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff))
        }
        b"VP8L" if bytes[20] == 0x2f => {
            let bits = little(bytes, 21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        _ => None,
    }
}
