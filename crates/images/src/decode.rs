//! From a file's bytes to pixels. Sizes are looked at before the pixels are.

use crate::head::{Kind, Size};
use crate::picture::Picture;
use crate::{broken, Failed, PIXELS_MAX};
use gif::{ColorOutput, DecodeOptions, MemoryLimit};
use image_webp::WebPDecoder;
use png::{ColorType, Transformations};
use std::io::Cursor;
use std::num::NonZeroU64;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Memory that a decoder may take beside the pixels.
const BESIDE_BYTES: u64 = 64 * 1024 * 1024;
/// Layers of a progressive JPEG; what has more is made to take long.
const SCANS_MAX: usize = 100;

/// `transparency`: what a palette has that is seen through stays so. `most` pixels are taken: a decoder may find another
/// head in a file than we did.
pub fn decode(kind: Kind, bytes: &[u8], transparency: bool, most: u64) -> Result<Picture, Failed> {
    let picture = match kind {
        Kind::Jpeg => jpeg(bytes, most),
        Kind::Gif => gif(bytes, transparency, most),
        Kind::Png => png(bytes, transparency, most),
        Kind::Webp => webp(bytes, most),
    }?;
    let is_whole = picture.pixels.len() as u64 == pixels(picture.width, picture.height);
    match is_whole && !picture.pixels.is_empty() {
        true => Ok(picture),
        false => Err(Failed::Broken("there are fewer pixels than there should be".into())),
    }
}

fn pixels(width: u32, height: u32) -> u64 {
    u64::from(width) * u64::from(height)
}

fn check(width: u32, height: u32, most: u64) -> Result<(), Failed> {
    match pixels(width, height) <= most {
        true => Ok(()),
        false => Err(Failed::TooLarge(Size { width, height, is_padded: false }, most)),
    }
}

fn jpeg(bytes: &[u8], most: u64) -> Result<Picture, Failed> {
    let options = DecoderOptions::new_safe()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .jpeg_set_max_scans(SCANS_MAX)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(broken)?;
    let info = decoder.info().ok_or_else(|| broken("no head"))?;
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    check(width, height, most)?;
    let text = decoder.decode().map_err(broken)?;
    let pixels = match decoder.output_colorspace() {
        Some(ColorSpace::Luma) => text.iter().map(|l| [*l, *l, *l, 255]).collect(),
        Some(ColorSpace::RGBA) => text.chunks_exact(4).map(|p| [p[0], p[1], p[2], p[3]]).collect(),
        _ => text.chunks_exact(3).map(|p| [p[0], p[1], p[2], 255]).collect(),
    };
    Ok(Picture { width, height, pixels })
}

fn png(bytes: &[u8], transparency: bool, most: u64) -> Result<Picture, Failed> {
    let limits = png::Limits { bytes: BESIDE_BYTES as usize };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let info = decoder.read_header_info().map_err(broken)?;
    let (width, height) = (info.width, info.height);
    let has_palette = info.color_type == ColorType::Indexed;
    check(width, height, most)?;
    let mut reader = decoder.read_info().map_err(broken)?;
    let size = reader.output_buffer_size().ok_or_else(|| broken("too large"))?;
    let mut text = vec![0; size];
    let frame = reader.next_frame(&mut text).map_err(broken)?;
    text.truncate(frame.buffer_size());
    let mut pixels: Vec<[u8; 4]> = match frame.color_type {
        ColorType::Grayscale => text.iter().map(|l| [*l, *l, *l, 255]).collect(),
        ColorType::GrayscaleAlpha => {
            text.chunks_exact(2).map(|p| [p[0], p[0], p[0], p[1]]).collect()
        }
        ColorType::Rgb => text.chunks_exact(3).map(|p| [p[0], p[1], p[2], 255]).collect(),
        ColorType::Rgba => text.chunks_exact(4).map(|p| [p[0], p[1], p[2], p[3]]).collect(),
        ColorType::Indexed => return Err(broken("a palette that is not expanded")),
    };
    if has_palette && !transparency {
        pixels.iter_mut().for_each(|pixel| pixel[3] = 255);
    }
    Ok(Picture { width, height, pixels })
}

/// Its first frame, on the ground that it is shown on.
fn gif(bytes: &[u8], transparency: bool, most: u64) -> Result<Picture, Failed> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    let limit = NonZeroU64::new(PIXELS_MAX * 4).ok_or_else(|| broken("no limit"))?;
    options.set_memory_limit(MemoryLimit::Bytes(limit));
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(broken)?;
    let (width, height) = (u32::from(decoder.width()), u32::from(decoder.height()));
    check(width, height, most)?;
    let frame = decoder.read_next_frame().map_err(broken)?.ok_or_else(|| broken("no frame"))?;
    let mut pixels = vec![[0; 4]; width as usize * height as usize];
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let across = usize::from(frame.width);
    let seen = across.min((width as usize).saturating_sub(left));
    if seen > 0 {
        let lines = pixels.chunks_exact_mut(width as usize).skip(top);
        for (line, from) in lines.zip(frame.buffer.chunks_exact(across * 4)) {
            line[left..left + seen].as_flattened_mut().copy_from_slice(&from[..seen * 4]);
        }
    }
    if !transparency {
        pixels.iter_mut().for_each(|pixel| pixel[3] = 255);
    }
    Ok(Picture { width, height, pixels })
}

/// Of one that moves the first frame.
fn webp(bytes: &[u8], most: u64) -> Result<Picture, Failed> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(broken)?;
    let (width, height) = decoder.dimensions();
    check(width, height, most)?;
    decoder.set_memory_limit((most * 4 + BESIDE_BYTES) as usize);
    let size = decoder.output_buffer_size().ok_or_else(|| broken("too large"))?;
    let mut text = vec![0; size];
    match decoder.is_animated() {
        true => decoder.read_frame(&mut text).map(drop),
        false => decoder.read_image(&mut text),
    }
    .map_err(broken)?;
    let pixels = match decoder.has_alpha() {
        true => text.chunks_exact(4).map(|p| [p[0], p[1], p[2], p[3]]).collect(),
        false => text.chunks_exact(3).map(|p| [p[0], p[1], p[2], 255]).collect(),
    };
    Ok(Picture { width, height, pixels })
}
