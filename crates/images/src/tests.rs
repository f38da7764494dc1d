//! Pictures made here, changed and looked at again.

use crate::picture::Picture;
use crate::{change, decode, encode, size, Change, Failed, Kind, Wanted, PIXELS_MAX};

const KINDS: [Kind; 4] = [Kind::Jpeg, Kind::Gif, Kind::Png, Kind::Webp];

fn wanted(change: Change) -> Wanted {
    Wanted {
        change,
        angle: 0,
        jpeg_quality: 90,
        webp_quality: 90,
        sharpen: 0,
        transparency: true,
        interlace: false,

        stays: Default::default(),
    }
}

/// The left half red, the right half blue, the lowest quarter green.
fn flag(width: u32, height: u32) -> Picture {
    let colour = |n: u32| match (n % width < width / 2, n / width >= height * 3 / 4) {
        (_, true) => [0, 255, 0, 255],
        (true, _) => [255, 0, 0, 255],
        (false, _) => [0, 0, 255, 255],
    };
    Picture { width, height, pixels: (0..width * height).map(colour).collect() }
}

fn file(kind: Kind, picture: &Picture) -> Vec<u8> {
    encode::encode(kind, picture, &wanted(Change::Turn)).unwrap()
}

/// Whether two colours are one to the eye, after what compression does.
fn is_near(a: [u8; 4], b: [u8; 4]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) < 60)
}

fn look(kind: Kind, bytes: &[u8]) -> Picture {
    assert_eq!(Kind::of(bytes), Some(kind));
    let picture = decode::decode(kind, bytes, true, PIXELS_MAX).unwrap();
    let told = size(kind, bytes).unwrap();
    assert_eq!((told.width, told.height), (picture.width, picture.height), "{kind:?}");
    picture
}

fn at(picture: &Picture, x: u32, y: u32) -> [u8; 4] {
    picture.pixels[(y * picture.width + x) as usize]
}

const RED: [u8; 4] = [255, 0, 0, 255];
const BLUE: [u8; 4] = [0, 0, 255, 255];
const GREEN: [u8; 4] = [0, 255, 0, 255];

#[test]
fn every_kind_is_made_smaller_turned_and_cut() {
    for kind in KINDS {
        let bytes = file(kind, &flag(200, 100));
        let small = Change::Resize { width: 50, height: 50 };
        let out = look(kind, &change(kind, &bytes, &wanted(small), None).unwrap().unwrap());
        assert_eq!((out.width, out.height), (50, 25));
        assert!(is_near(at(&out, 10, 5), RED) && is_near(at(&out, 40, 5), BLUE), "{kind:?}");
        assert!(is_near(at(&out, 10, 22), GREEN));
        let crop = Change::Crop { width: 40, height: 40 };
        let out = look(kind, &change(kind, &bytes, &wanted(crop), None).unwrap().unwrap());
        assert_eq!((out.width, out.height), (40, 40));
        assert!(is_near(at(&out, 8, 8), RED) && is_near(at(&out, 32, 8), BLUE), "{kind:?}");
        let turn = Wanted { angle: 90, ..wanted(Change::Turn) };
        let out = look(kind, &change(kind, &bytes, &turn, None).unwrap().unwrap());
        assert_eq!((out.width, out.height), (100, 200));
        // What was on the right is above, what was below is on the right.
        assert!(is_near(at(&out, 20, 20), BLUE) && is_near(at(&out, 20, 180), RED), "{kind:?}");
        assert!(is_near(at(&out, 90, 100), GREEN));
        let back = Wanted { angle: 270, ..wanted(Change::Turn) };
        let out = look(kind, &change(kind, &bytes, &back, None).unwrap().unwrap());
        assert!(is_near(at(&out, 80, 20), RED) && is_near(at(&out, 10, 100), GREEN), "{kind:?}");
        let round = Wanted { angle: 180, ..wanted(Change::Turn) };
        let out = look(kind, &change(kind, &bytes, &round, None).unwrap().unwrap());
        assert!(is_near(at(&out, 20, 60), BLUE) && is_near(at(&out, 100, 10), GREEN), "{kind:?}");
    }
}

#[test]
fn what_fits_is_left_unless_it_is_to_be_made_anew() {
    let bytes = file(Kind::Jpeg, &flag(40, 40));
    let wide = wanted(Change::Resize { width: 40, height: 4000 });
    assert!(change(Kind::Jpeg, &bytes, &wide, None).unwrap().is_none());
    let padded = size(Kind::Jpeg, &bytes).map(|size| crate::Size { is_padded: true, ..size });
    assert!(change(Kind::Jpeg, &bytes, &wide, padded).unwrap().is_some());
}

#[test]
fn sizes_that_round_to_nothing_are_a_pixel() {
    let bytes = file(Kind::Png, &flag(1000, 4));
    let one = wanted(Change::Resize { width: 1, height: 1 });
    let out = look(Kind::Png, &change(Kind::Png, &bytes, &one, None).unwrap().unwrap());
    assert_eq!((out.width, out.height), (1, 1));
}

#[test]
fn what_is_seen_through_stays_so_or_not() {
    let mut picture = flag(64, 64);
    picture.pixels.iter_mut().take(64 * 16).for_each(|pixel| pixel[3] = 0);
    for (kind, transparency, alpha) in [
        (Kind::Gif, true, 0),
        (Kind::Gif, false, 255),
        (Kind::Png, false, 0),
        (Kind::Webp, true, 0),
    ] {
        let small = Wanted { transparency, ..wanted(Change::Resize { width: 32, height: 32 }) };
        let bytes = file(kind, &picture);
        let out = look(kind, &change(kind, &bytes, &small, None).unwrap().unwrap());
        assert_eq!(at(&out, 16, 2)[3], alpha, "{kind:?} {transparency}");
        assert_eq!(at(&out, 16, 28)[3], 255);
    }
}

#[test]
fn quality_sharpness_and_interlacing_change_the_file() {
    let picture = flag(100, 100);
    let small = Change::Resize { width: 60, height: 60 };
    let made =
        |kind, wanted: &Wanted| change(kind, &file(kind, &picture), wanted, None).unwrap().unwrap();
    for kind in [Kind::Jpeg, Kind::Webp] {
        let poor = Wanted { jpeg_quality: 5, webp_quality: 5, ..wanted(small) };
        assert!(made(kind, &poor).len() < made(kind, &wanted(small)).len(), "{kind:?}");
    }
    let interlaced = Wanted { interlace: true, ..wanted(small) };
    // The marker of a progressive frame.
    let is_progressive = |bytes: &[u8]| bytes.windows(2).any(|w| w == [0xff, 0xc2]);
    assert!(is_progressive(&made(Kind::Jpeg, &interlaced)));
    assert!(!is_progressive(&made(Kind::Jpeg, &wanted(small))));
    let (a, b) = (made(Kind::Gif, &interlaced), made(Kind::Gif, &wanted(small)));
    assert!(a != b && look(Kind::Gif, &a).pixels == look(Kind::Gif, &b).pixels);
    // An uneven share, so that there are colours in between to stand out.
    let uneven = wanted(Change::Resize { width: 33, height: 33 });
    let sharp = Wanted { sharpen: 100, ..uneven.clone() };
    assert!(made(Kind::Png, &sharp) != made(Kind::Png, &uneven));
}

#[test]
fn broken_files_are_errors() {
    let small = wanted(Change::Resize { width: 10, height: 10 });
    for kind in KINDS {
        let whole = file(kind, &flag(60, 60));
        for cut in (0..whole.len()).step_by(7) {
            let _ = change(kind, &whole[..cut], &small, None);
            let _ = size(kind, &whole[..cut]);
            let mut torn = whole.clone();
            torn[cut] ^= 0x5a;
            let _ = change(kind, &torn, &small, None);
            let _ = size(kind, &torn);
        }
        assert!(change(kind, &whole[..20], &small, None).is_err(), "{kind:?}");
    }
}

/// A few bytes that promise many pixels.
#[test]
fn pixels_are_counted_before_there_are_any() {
    let mut png = file(Kind::Png, &flag(2, 2));
    png[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
    // The head's checksum is looked at first, so it is to be right.
    let sum = crc(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&sum);
    let small = wanted(Change::Resize { width: 10, height: 10 });
    match change(Kind::Png, &png, &small, None) {
        Err(Failed::TooLarge(size, _)) => {
            assert!(u64::from(size.width) * u64::from(size.height) > PIXELS_MAX);
        }
        other => panic!("{other:?}"),
    }
    let mut gif = file(Kind::Gif, &flag(2, 2));
    gif[6..10].copy_from_slice(&[0xff; 4]);
    assert!(matches!(change(Kind::Gif, &gif, &small, None), Err(Failed::TooLarge(..))));
}

/// A decoder may see another frame in a file than we do: memory was shared out by ours.
#[test]
fn no_more_pixels_than_were_promised() {
    let turn = wanted(Change::Turn);
    for kind in [Kind::Jpeg, Kind::Gif, Kind::Png, Kind::Webp] {
        let bytes = file(kind, &flag(20, 20));
        let promised = |width| Some(crate::Size { width, height: 20, is_padded: false });
        assert!(change(kind, &bytes, &turn, promised(20)).is_ok(), "{kind:?}");
        let refused = change(kind, &bytes, &turn, promised(19));
        assert!(matches!(refused, Err(Failed::TooLarge(..))), "{kind:?}");
    }
}

/// What decoders pass over hides no frame: a marker of no length that looks like one that is long.
#[test]
fn a_jpeg_is_read_from_marker_to_marker() {
    let bytes = file(Kind::Jpeg, &flag(20, 10));
    let mut odd = bytes.clone();
    odd.splice(2..2, [0xff, 0x00, 0xfe, 0x00, 0xff, 0x01, 0xff, 0xd0]);
    odd.resize(odd.len() + 0xfe00, 0);
    let found = size(Kind::Jpeg, &odd).unwrap();
    assert_eq!((found.width, found.height), (20, 10));
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |s, _| if s & 1 == 1 { s >> 1 ^ 0xedb8_8320 } else { s >> 1 },
        )
    };
    !bytes.iter().fold(!0, step)
}

#[test]
fn heads() {
    assert_eq!(Kind::of(b"GIF89a"), None);
    assert_eq!(Kind::of(b"GIF88a          "), None);
    assert_eq!(Kind::of(b"RIFF0000WEBP    "), Some(Kind::Webp));
    assert_eq!(Kind::of(b"not a picture at all"), None);
    assert_eq!(size(Kind::Jpeg, b"\xff\xd8 no frame in here at all"), None);
}
