//! Pixels, and what is done to them.

use crate::{Change, Part};

/// Red, green, blue and how far it is not seen through, for each pixel, from the upper left by rows.
pub struct Picture {
    pub width: u32,
    pub height: u32,
    pub pixels: Vec<[u8; 4]>,
}

/// A share of `of` that is `part` to `whole`, and at least a pixel.
fn share(of: u32, part: u32, whole: u32) -> u32 {
    let n = u64::from(of) * u64::from(part) / u64::from(whole.max(1));
    u32::try_from(n).unwrap_or(u32::MAX).max(1)
}

impl Picture {
    /// The size to which it is made smaller, before anything is cut off.
    pub fn smaller(&self, change: Change) -> (u32, u32) {
        let (mut width, mut height) = (self.width, self.height);
        match change {
            Change::Turn => {}
            Change::Resize { width: most_wide, height: most_high } => {
                if width > most_wide {
                    height = share(height, most_wide, width);
                    width = most_wide;
                }
                if height > most_high {
                    width = share(width, most_high, height);
                    height = most_high;
                }
            }
            Change::Crop { width: most_wide, height: most_high } => {
                let is_tall = u64::from(width) * u64::from(most_high)
                    < u64::from(most_wide) * u64::from(height);
                if is_tall && width > most_wide {
                    height = share(height, most_wide, width);
                    width = most_wide;
                } else if !is_tall && height > most_high {
                    width = share(width, most_high, height);
                    height = most_high;
                }
            }
        }
        (width, height)
    }

    /// Each new pixel is the mean of what it covers, by the area of it.
    pub fn scaled(&self, width: u32, height: u32) -> Picture {
        let across = shares(self.width, width);
        let down = shares(self.height, height);
        let mut pixels = Vec::with_capacity(width as usize * height as usize);
        // One sum for each new pixel: a row of old ones may be as long as a picture has pixels.
        let mut row = vec![[0_f32; 4]; width as usize];
        for (first, parts) in &down {
            row.fill([0.0; 4]);
            for (n, down) in parts.iter().enumerate() {
                let from = (first + n) * self.width as usize;
                let line = &self.pixels[from..from + self.width as usize];
                for (all, (first, parts)) in row.iter_mut().zip(&across) {
                    let mut sum = [0.0; 4];
                    let line = &line[*first..*first + parts.len()];
                    line.iter().zip(parts).for_each(|(p, part)| add(&mut sum, weighed(*p), *part));
                    add(all, sum, *down);
                }
            }
            pixels.extend(row.iter().map(|sum| unweighed(*sum)));
        }
        Picture { width, height, pixels }
    }

    /// Against the clock.
    pub fn turned(self, angle: u32) -> Picture {
        let (w, h) = (self.width as usize, self.height as usize);
        let at = |x: usize, y: usize| self.pixels[y * w + x];
        let (width, height, pixels) = match angle {
            90 => {
                let pixels = (0..w).rev().flat_map(|x| (0..h).map(move |y| (x, y)));
                (self.height, self.width, pixels.map(|(x, y)| at(x, y)).collect())
            }
            270 => {
                let pixels = (0..w).flat_map(|x| (0..h).rev().map(move |y| (x, y)));
                (self.height, self.width, pixels.map(|(x, y)| at(x, y)).collect())
            }
            180 => (self.width, self.height, self.pixels.iter().rev().copied().collect()),
            _ => return self,
        };
        Picture { width, height, pixels }
    }

    /// A part of it, no larger than this.
    pub fn cut(self, width: u32, height: u32, stays: [Part; 2]) -> Picture {
        let (new_width, new_height) = (self.width.min(width), self.height.min(height));
        if (new_width, new_height) == (self.width, self.height) {
            return self;
        }
        let begin = |part, over: u32| match part {
            Part::Begin => 0,
            Part::Middle => (over / 2) as usize,
            Part::End => over as usize,
        };
        let left = begin(stays[0], self.width - new_width);
        let top = begin(stays[1], self.height - new_height);
        let lines = self.pixels.chunks_exact(self.width as usize).skip(top);
        let pixels = lines
            .take(new_height as usize)
            .flat_map(|line| &line[left..left + new_width as usize])
            .copied()
            .collect();
        Picture { width: new_width, height: new_height, pixels }
    }

    /// By so many per cent: each pixel stands out from its neighbours, along the rows and then the columns.
    pub fn sharpen(&mut self, percent: u32) {
        let outer = -(percent as f32) / 400.0;
        let (width, height) = (self.width as usize, self.height as usize);
        for y in 0..height {
            stand_out(&mut self.pixels, y * width, 1, width, outer);
        }
        for x in 0..width {
            stand_out(&mut self.pixels, x, width, height, outer);
        }
    }
}

/// For each new place the first old one that it covers, and which part of it each old one is; the parts are 1 together.
fn shares(from: u32, to: u32) -> Vec<(usize, Vec<f32>)> {
    let scale = f64::from(from) / f64::from(to);
    let parts_of = |n: u32| {
        let (start, end) = (f64::from(n) * scale, f64::from(n + 1) * scale);
        let first = start as usize;
        let last = (end.ceil() as usize).clamp(first + 1, from as usize);
        let part = |at: usize| (end.min(at as f64 + 1.0) - start.max(at as f64)).max(0.0);
        let all: f64 = (first..last).map(part).sum();
        (first, (first..last).map(|at| (part(at) / all) as f32).collect())
    };
    (0..to).map(parts_of).collect()
}

fn add(sum: &mut [f32; 4], pixel: [f32; 4], part: f32) {
    sum.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += value * part);
}

/// Colours count as much as they are seen.
fn weighed(pixel: [u8; 4]) -> [f32; 4] {
    let alpha = f32::from(pixel[3]);
    [0, 1, 2, 3].map(|n| if n == 3 { alpha } else { f32::from(pixel[n]) * alpha / 255.0 })
}

fn unweighed(pixel: [f32; 4]) -> [u8; 4] {
    let alpha = pixel[3];
    let back = if alpha > 0.0 { 255.0 / alpha } else { 0.0 };
    // A cast to a byte keeps within its bounds.
    [0, 1, 2, 3].map(|n| (if n == 3 { alpha } else { pixel[n] * back } + 0.5) as u8)
}

/// One row or column: `count` pixels from `start` on, each `step` behind the other.
fn stand_out(pixels: &mut [[u8; 4]], start: usize, step: usize, count: usize, outer: f32) {
    let inner = 1.0 - 2.0 * outer;
    let Some(mut before) = pixels.get(start).copied() else { return };
    for n in 0..count {
        let at = start + n * step;
        let here = pixels[at];
        let behind = if n + 1 < count { pixels[at + step] } else { here };
        for colour in 0..3 {
            let around = f32::from(before[colour]) + f32::from(behind[colour]);
            pixels[at][colour] = (inner * f32::from(here[colour]) + outer * around + 0.5) as u8;
        }
        before = here;
    }
}
