//! Pictures (GIF, JPEG, PNG, WebP): what they are and how large, and the same made smaller, turned or cut out. Pure:
//! bytes in, bytes out. Whoever calls has a thread for it, because a picture takes some hundred milliseconds.
//!
//! Bytes are anybody's: what a head promises is looked at before anything is decoded, and more than
//! [`PIXELS_MAX`] is not.

mod decode;
mod encode;
mod head;
mod picture;

pub use head::{size, Kind, Size};

/// As decoded, a pixel takes four bytes, and there are two copies for a while.
pub const PIXELS_MAX: u64 = 32 * 1024 * 1024;
/// Half of it: what reads and writes them takes twice as much for a pixel.
const WEBP_PIXELS_MAX: u64 = PIXELS_MAX / 2;

/// What [`change`] may take for a pixel: two copies, what a decoder has beside them, shares.
const PIXEL_BYTES: u64 = 16;
const WEBP_PIXEL_BYTES: u64 = 32;
/// And for any picture: tables, texts in a file, a frame of a GIF that is larger than its screen.
const BASE_BYTES: u64 = 64 * 1024 * 1024;
const GIF_BYTES: u64 = PIXELS_MAX * 4;

/// How much memory [`change`] may take for a picture, at most.
pub fn cost_bytes(kind: Kind, size: Option<Size>) -> u64 {
    let base = if kind == Kind::Gif { GIF_BYTES } else { BASE_BYTES };
    let each = if kind == Kind::Webp { WEBP_PIXEL_BYTES } else { PIXEL_BYTES };
    base + pixels(kind, size) * each
}

/// How many there may be: what its head promised, and no more than are taken of the kind.
fn pixels(kind: Kind, size: Option<Size>) -> u64 {
    let most = if kind == Kind::Webp { WEBP_PIXELS_MAX } else { PIXELS_MAX };
    size.map_or(most, |size| u64::from(size.width) * u64::from(size.height)).min(most)
}

/// What is to be made of a picture.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub change: Change,
    /// Degrees against the clock: 0, 90, 180 or 270.
    pub angle: u32,
    /// 1 to 100.
    pub jpeg_quality: u8,
    /// 1 to 100.
    pub webp_quality: u8,
    /// Per cent, 0 to leave it.
    pub sharpen: u32,
    /// Whether what is seen through in GIF and in PNG with a palette stays so.
    pub transparency: bool,
    /// Interlaced, for JPEG progressive.
    pub interlace: bool,
    /// What stays where it is cut: across and down.
    pub stays: [Part; 2],
}

/// A part of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// On the left, or above.
    Begin,
    #[default]
    Middle,
    /// On the right, or below.
    End,
}

/// How large it is to be at most, in pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The size stays.
    Turn,
    /// Smaller in proportion.
    Resize { width: u32, height: u32 },
    /// Smaller in proportion by the larger side, and cut off on the other.
    Crop { width: u32, height: u32 },
}

/// Why nothing was made of a picture.
#[derive(Debug)]
pub enum Failed {
    /// Than so many pixels are taken, or were promised.
    TooLarge(Size, u64),
    /// In words of the decoder, or the encoder.
    Broken(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Failed::TooLarge(size, most) => {
                write!(f, "{} x {} are more than {most} pixels", size.width, size.height)
            }
            Failed::Broken(why) => f.write_str(why),
        }
    }
}

fn broken(e: impl std::fmt::Debug) -> Failed {
    let mut why = format!("{e:?}");
    why.truncate(why.char_indices().nth(200).map_or(why.len(), |(at, _)| at));
    Failed::Broken(why)
}

/// The picture as it is wanted, of the same kind. `None`: it is as it is to be. `promised` is what [`size`] has
/// found, and [`cost_bytes`] went by.
///
/// # Errors
///
/// It has too many pixels, or more than promised, is broken, or of a sort that the decoder does not know.
pub fn change(
    kind: Kind,
    bytes: &[u8],
    wanted: &Wanted,
    promised: Option<Size>,
) -> Result<Option<Vec<u8>>, Failed> {
    let mut picture = decode::decode(kind, bytes, wanted.transparency, pixels(kind, promised))?;
    let force = promised.is_some_and(|size| size.is_padded);
    if let Change::Resize { width, height } | Change::Crop { width, height } = wanted.change {
        if !force && wanted.angle == 0 && picture.width <= width && picture.height <= height {
            return Ok(None);
        }
    }
    let (width, height) = picture.smaller(wanted.change);
    if (width, height) != (picture.width, picture.height) {
        picture = picture.scaled(width, height);
    }
    picture = picture.turned(wanted.angle);
    if let Change::Crop { width, height } = wanted.change {
        picture = picture.cut(width, height, wanted.stays);
    }
    if wanted.sharpen > 0 {
        picture.sharpen(wanted.sharpen);
    }
    encode::encode(kind, &picture, wanted).map(Some)
}

#[cfg(test)]
mod tests;
