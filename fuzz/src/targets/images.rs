//! Pictures: whatever a file holds, its size is told or not, and what is made of it is a picture.

use super::Target;
use crate::random::Random;
use weir_images::{change, size, Change, Kind, Wanted};

/// Of a picture that is decoded here.
const PIXELS_MAX: u64 = 10_000;

pub const TARGET: Target = Target {
    name: "pictures",
    seeds: &[
        b"GIF89a\x02\0\x02\0\x80\0\0\xff\0\0\0\0\xff!\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x02\0\x02\0\0\x02\x02\x44\x0a\0;",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\
          \xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x89\x99=\x1d\0\0\0\0IEND\xaeB`\x82",
        b"RIFF\x1a\0\0\0WEBPVP8L\r\0\0\0/\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0\0\0\0\0",
        b"\xff\xd8\xff\xe1\0\x08Exif\0\0\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0\x54\xff\xd9",
    ],
    pieces: &[
        b"\xff\xff",
        b"\0\0",
        b"\xff\xc2",
        b"\xff\xd9",
        b"VP8X",
        b"VP8 ",
        b"IDAT",
        b"PLTE",
        b"\x7f\xff\xff\xff",
    ],
    check: picture,
};

fn picture(buf: &[u8], random: &mut Random) {
    let Some(kind) = Kind::of(buf) else { return };
    // Many pixels take long, and are what few are.
    let is_small = |w: u32, h: u32| u64::from(w) * u64::from(h) <= PIXELS_MAX;
    let promised = size(kind, buf);
    if promised.is_some_and(|told| !is_small(told.width, told.height)) {
        return;
    }
    let changes = [
        Change::Turn,
        Change::Resize { width: 7, height: 3 },
        Change::Crop { width: 3, height: u32::MAX },
    ];
    let wanted = Wanted {
        change: changes[random.below(3)],
        angle: [0, 90, 180, 270][random.below(4)],
        jpeg_quality: 50,
        webp_quality: 50,
        sharpen: random.below(2) as u32 * 50,
        transparency: random.coin(),
        interlace: random.coin(),

        stays: Default::default(),
    };
    if let Ok(Some(made)) = change(kind, buf, &wanted, promised) {
        assert_eq!(Kind::of(&made), Some(kind));
        assert!(size(kind, &made).is_some());
    }
}
