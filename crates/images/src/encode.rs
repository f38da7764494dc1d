//! From pixels to a file's bytes.

use crate::head::Kind;
use crate::picture::Picture;
use crate::{broken, Failed, Wanted};
use jpeg_encoder::ColorType;

/// How carefully the 256 colours of a GIF are chosen: 1 is best, 30 quickest.
const GIF_SPEED: i32 = 10;

pub fn encode(kind: Kind, picture: &Picture, wanted: &Wanted) -> Result<Vec<u8>, Failed> {
    match kind {
        Kind::Jpeg => jpeg(picture, wanted),
        Kind::Gif => gif(picture, wanted.interlace),
        Kind::Png => png(picture),
        Kind::Webp => webp(picture, wanted.webp_quality),
    }
}

/// The formats that have two bytes for a side.
fn sides(picture: &Picture) -> Result<(u16, u16), Failed> {
    let side = |n: u32| u16::try_from(n).map_err(|_| broken("too wide or too high"));
    Ok((side(picture.width)?, side(picture.height)?))
}

fn jpeg(picture: &Picture, wanted: &Wanted) -> Result<Vec<u8>, Failed> {
    let (width, height) = sides(picture)?;
    let mut out = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, wanted.jpeg_quality);
    encoder.set_progressive(wanted.interlace);
    let text = picture.pixels.as_flattened();
    encoder.encode(text, width, height, ColorType::Rgba).map_err(broken)?;
    // As from GD, with which nginx makes them: the quality stands in a comment, behind JFIF's head, which is to come first.
    let comment = format!("CREATOR: Weir, quality = {}\n", wanted.jpeg_quality);
    let length = (comment.len() as u16 + 2).to_be_bytes();
    let segment = [&[0xff, 0xfe], &length, comment.as_bytes()].concat();
    let at = match out.get(2..6) {
        Some([0xff, 0xe0, high, low]) => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => 2,
    };
    out.splice(at..at, segment);
    Ok(out)
}

fn png(picture: &Picture) -> Result<Vec<u8>, Failed> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, picture.width, picture.height);
    encoder.set_depth(png::BitDepth::Eight);
    let is_opaque = picture.pixels.iter().all(|pixel| pixel[3] == 255);
    let text: Vec<u8> = match is_opaque {
        true => picture.pixels.iter().flat_map(|p| [p[0], p[1], p[2]]).collect(),
        false => picture.pixels.as_flattened().to_vec(),
    };
    encoder.set_color(if is_opaque { png::ColorType::Rgb } else { png::ColorType::Rgba });
    let mut writer = encoder.write_header().map_err(broken)?;
    writer.write_image_data(&text).map_err(broken)?;
    writer.finish().map_err(broken)?;
    Ok(out)
}

fn gif(picture: &Picture, interlace: bool) -> Result<Vec<u8>, Failed> {
    let (width, height) = sides(picture)?;
    let mut text = picture.pixels.as_flattened().to_vec();
    let mut frame = gif::Frame::from_rgba_speed(width, height, &mut text, GIF_SPEED);
    if interlace {
        let lines: Vec<&[u8]> = frame.buffer.chunks_exact(usize::from(width)).collect();
        let passes = [(0, 8), (4, 8), (2, 4), (1, 2)];
        let order = passes.into_iter().flat_map(|(first, step)| (first..lines.len()).step_by(step));
        let buffer: Vec<u8> = order.flat_map(|n| lines[n]).copied().collect();
        frame.buffer = buffer.into();
        frame.interlaced = true;
    }
    let mut out = Vec::new();
    let mut encoder = gif::Encoder::new(&mut out, width, height, &[]).map_err(broken)?;
    encoder.write_frame(&frame).map_err(broken)?;
    drop(encoder);
    Ok(out)
}

fn webp(picture: &Picture, quality: u8) -> Result<Vec<u8>, Failed> {
    let text = picture.pixels.as_flattened();
    let encoder = webp::Encoder::from_rgba(text, picture.width, picture.height);
    let out = encoder.encode_simple(false, f32::from(quality)).map_err(broken)?;
    Ok(out.to_vec())
}
