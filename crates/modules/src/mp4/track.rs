//! One track: which of its samples are in a part of the film, and where they lie.

use super::atoms::{each, table, u32_at, write, Atom, Bad, Times};
use super::cut::Part;

/// The tables of a track as they are in the file.
#[derive(Default)]
pub(super) struct Track<'a> {
    tkhd: Option<&'a [u8]>,
    mdhd: Option<&'a [u8]>,
    hdlr: Option<&'a [u8]>,
    /// `vmhd`, `smhd` and `dinf`, whole.
    media: [Option<&'a [u8]>; 3],
    stsd: Option<&'a [u8]>,
    /// Number of samples and their duration.
    stts: Option<&'a [u8]>,
    /// Samples that are key frames, from 1 on.
    stss: Option<&'a [u8]>,
    /// Number of samples and what their shown time is later.
    ctts: Option<Atom<'a>>,
    /// First chunk, samples in each, description.
    stsc: Option<&'a [u8]>,
    sizes: Option<Sizes<'a>>,
    offsets: Option<Offsets<'a>>,
}

#[derive(Clone, Copy)]
enum Sizes<'a> {
    /// All alike, so many.
    Same(u32, u32),
    Each(&'a [u8]),
}

#[derive(Clone, Copy)]
struct Offsets<'a> {
    entries: &'a [u8],
    is_wide: bool,
}

fn pair(entries: &[u8], at: usize) -> (u32, u32) {
    let entry = &entries[8 * at..];
    (u32_at(entry, 0).unwrap_or(0), u32_at(entry, 4).unwrap_or(0))
}

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
}

impl Sizes<'_> {
    fn count(self) -> u64 {
        match self {
            Sizes::Same(_, count) => u64::from(count),
            Sizes::Each(entries) => entries.len() as u64 / 4,
        }
    }

    /// Bytes of the samples from one to another.
    fn sum(self, from: u64, to: u64) -> u64 {
        match self {
            Sizes::Same(size, _) => u64::from(size).saturating_mul(to - from),
            Sizes::Each(entries) => {
                let part = entries.get(4 * from as usize..4 * to as usize).unwrap_or_default();
                part.chunks_exact(4).map(|b| u64::from(u32_at(b, 0).unwrap_or(0))).sum()
            }
        }
    }
}

impl Offsets<'_> {
    fn count(self) -> u64 {
        self.entries.len() as u64 / if self.is_wide { 8 } else { 4 }
    }

    fn get(self, chunk: u64) -> Option<u64> {
        let at = chunk as usize;
        match self.is_wide {
            true => super::atoms::u64_at(self.entries, 8 * at),
            false => u32_at(self.entries, 4 * at).map(u64::from),
        }
    }
}

impl<'a> Track<'a> {
    /// Out of a `trak`.
    pub(super) fn read(body: &'a [u8]) -> Result<Track<'a>, Bad> {
        let mut track = Track::default();
        each(body, |atom| match &atom.name {
            b"tkhd" => set(&mut track.tkhd, atom.body, "duplicate mp4 tkhd atom"),
            b"mdia" => each(atom.body, |atom| track.read_media(atom)),
            _ => Ok(()),
        })?;
        Ok(track)
    }

    fn read_media(&mut self, atom: Atom<'a>) -> Result<(), Bad> {
        match &atom.name {
            b"mdhd" => set(&mut self.mdhd, atom.body, "duplicate mp4 mdhd atom"),
            b"hdlr" => set(&mut self.hdlr, atom.whole, "duplicate mp4 hdlr atom"),
            b"minf" => each(atom.body, |atom| match &atom.name {
                b"vmhd" => set(&mut self.media[0], atom.whole, "duplicate mp4 vmhd atom"),
                b"smhd" => set(&mut self.media[1], atom.whole, "duplicate mp4 smhd atom"),
                b"dinf" => set(&mut self.media[2], atom.whole, "duplicate mp4 dinf atom"),
                b"stbl" => each(atom.body, |atom| self.read_table(atom)),
                _ => Ok(()),
            }),
            _ => Ok(()),
        }
    }

    fn read_table(&mut self, atom: Atom<'a>) -> Result<(), Bad> {
        let body = atom.body;
        match &atom.name {
            b"stsd" => set(&mut self.stsd, atom.whole, "duplicate mp4 stsd atom"),
            b"stts" => set(
                &mut self.stts,
                table(body, 8, "mp4 stts atom too small")?,
                "duplicate mp4 stts atom",
            ),
            b"stss" => set(
                &mut self.stss,
                table(body, 4, "mp4 stss atom too small")?,
                "duplicate mp4 stss atom",
            ),
            b"ctts" => {
                table(body, 8, "mp4 ctts atom too small")?;
                set(&mut self.ctts, atom, "duplicate mp4 ctts atom")
            }
            b"stsc" => set(
                &mut self.stsc,
                table(body, 12, "mp4 stsc atom too small")?,
                "duplicate mp4 stsc atom",
            ),
            b"stsz" => {
                let small = Bad("mp4 stsz atom too small");
                let (Some(size), Some(count)) = (u32_at(body, 4), u32_at(body, 8)) else {
                    return Err(small);
                };
                let sizes = match size {
                    0 => Sizes::Each(table(&body[4..], 4, "mp4 stsz atom too small")?),
                    _ => Sizes::Same(size, count),
                };
                set(&mut self.sizes, sizes, "duplicate mp4 stsz atom")
            }
            b"stco" | b"co64" => {
                let is_wide = &atom.name == b"co64";
                let entries = table(body, if is_wide { 8 } else { 4 }, "mp4 stco atom too small")?;
                set(&mut self.offsets, Offsets { entries, is_wide }, "duplicate mp4 stco atom")
            }
            _ => Ok(()),
        }
    }
}

fn set<T>(place: &mut Option<T>, value: T, duplicate: &'static str) -> Result<(), Bad> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Bad(duplicate)),
    }
}

/// A part of a track, as it is to be written.
pub(super) struct Cut<'a> {
    track: Track<'a>,
    tkhd: Vec<u8>,
    mdhd: Vec<u8>,
    /// The film's time of it, in its scale.
    shown: u64,
    /// In the track's scale, that is sent before the part so that it begins with a key frame.
    prefix: u64,
    /// Samples, from 0 on.
    first: u64,
    last: u64,
    chunks: Chunks,
    is_wide: bool,
    sizes: Sizes<'a>,
}

/// Where the samples of a part lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    /// As `stsc` has them: the first chunk, from 1 on, samples in each, and their description.
    runs: Vec<[u32; 3]>,
    /// Of the chunks, in the file.
    offsets: Vec<u64>,
    /// The first byte, and that behind the last; both 0 where there is none.
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The part of a track; `None`: it ends before that begins.
pub(super) fn cut<'a>(
    track: Track<'a>,
    part: &Part,
    film_scale: u64,
) -> Result<Option<Cut<'a>>, Bad> {
    let tkhd = track.tkhd.ok_or(Bad("no mp4 tkhd atoms were found"))?;
    let mdhd = track.mdhd.ok_or(Bad("no mp4 mdhd atoms were found"))?;
    let shown = Times::of(tkhd, false).ok_or(Bad("mp4 tkhd atom too small"))?;
    let times = Times::of(mdhd, true).ok_or(Bad("mp4 mdhd atom too small"))?;
    let (start, film_start) = (part.start(times.scale), part.start(film_scale));
    if shown.duration <= film_start || times.duration <= start {
        return Ok(None);
    }
    let film_time = part.bound(shown.duration - film_start, film_scale);
    let stts = track.stts.ok_or(Bad("no mp4 stts atoms were found"))?;
    let asked = sample_at(stts, start).ok_or(Bad("start time is out mp4 stts samples"))?;
    let first = if part.key_frames { key_frame(track.stss, asked)? } else { asked };
    let prefix = time_of(stts, first, asked);
    let total: u64 = (0..stts.len() / 8).map(|i| u64::from(pair(stts, i).0)).sum();
    let last = match part.length(times.scale) {
        None => total,
        Some(length) => {
            let end = time_of(stts, 0, first).saturating_add(prefix).saturating_add(length);
            sample_at(stts, end).unwrap_or(total)
        }
    };
    let sizes = track.sizes.ok_or(Bad("no mp4 stsz atoms were found"))?;
    if first >= sizes.count() || last > sizes.count() {
        return Err(Bad("the time is out mp4 stsz samples"));
    }
    let stsc = track.stsc.ok_or(Bad("no mp4 stsc atoms were found"))?;
    let offsets = track.offsets.ok_or(Bad("no mp4 stco atoms were found"))?;
    let chunks = find_chunks(stsc, offsets, sizes, first, last)?;
    let media_time = part.bound(times.duration - start, times.scale).saturating_add(prefix);
    Ok(Some(Cut {
        tkhd: shown.with(tkhd, film_time),
        mdhd: times.with(mdhd, media_time),
        shown: film_time,
        is_wide: offsets.is_wide,
        track,
        prefix,
        first,
        last,
        chunks,
        sizes,
    }))
}

/// The sample that is shown at a time.
fn sample_at(stts: &[u8], time: u64) -> Option<u64> {
    let (mut left, mut sample) = (time, 0);
    for i in 0..stts.len() / 8 {
        let (count, duration) = pair(stts, i);
        let all = u64::from(count) * u64::from(duration);
        if left < all {
            return Some(sample + left / u64::from(duration));
        }
        left -= all;
        sample += u64::from(count);
    }
    None
}

/// The time that samples take together.
fn time_of(stts: &[u8], from: u64, to: u64) -> u64 {
    let (mut sample, mut time) = (0, 0u64);
    for i in 0..stts.len() / 8 {
        let (count, duration) = pair(stts, i);
        let end = sample + u64::from(count);
        let within = end.min(to).saturating_sub(sample.max(from));
        time = time.saturating_add(within.saturating_mul(u64::from(duration)));
        sample = end;
    }
    time
}

/// The key frame that a sample needs.
fn key_frame(stss: Option<&[u8]>, sample: u64) -> Result<u64, Bad> {
    let mut found = sample;
    for entry in stss.unwrap_or_default().chunks_exact(4) {
        let key = u64::from(u32_at(entry, 0).unwrap_or(0));
        if key == 0 {
            return Err(Bad("zero sync sample"));
        }
        if key > sample + 1 {
            break;
        }
        found = key - 1;
    }
    Ok(found)
}

/// The chunks that hold some samples, of which the first and the last may be cut.
fn find_chunks(
    stsc: &[u8],
    offsets: Offsets<'_>,
    sizes: Sizes<'_>,
    first: u64,
    last: u64,
) -> Result<Chunks, Bad> {
    let mut found = Chunks::default();
    let mut sample = 0u64;
    // The first chunk that is taken, from 0 on.
    let mut base = None;
    let count = stsc.len() / 12;
    if count == 0 {
        return Err(Bad("zero number of entries in stsc atom"));
    }
    let number = |i: usize, field: usize| u32_at(stsc, 12 * i + 4 * field).unwrap_or(0);
    for i in 0..count {
        let (chunk, samples, id) = (u64::from(number(i, 0)), u64::from(number(i, 1)), number(i, 2));
        let next = if i + 1 < count { u64::from(number(i + 1, 0)) } else { offsets.count() + 1 };
        if chunk == 0 || next < chunk {
            return Err(Bad("unordered mp4 stsc chunks"));
        }
        if samples == 0 {
            return Err(Bad("zero number of samples"));
        }
        let run = Run { chunk: chunk - 1, samples, id, sample };
        sample = sample.saturating_add((next - chunk).saturating_mul(samples));
        let (from, to) = (first.max(run.sample), last.min(sample));
        if from < to {
            run.take(&mut found, &mut base, (from, to), offsets, sizes)?;
        }
    }
    match sample < last {
        true => Err(Bad("the time is out mp4 stsc chunks")),
        false => Ok(found),
    }
}

/// Chunks that are alike.
struct Run {
    /// The first, from 0 on.
    chunk: u64,
    samples: u64,
    id: u32,
    /// Its first sample.
    sample: u64,
}

impl Run {
    /// Takes the chunks with these samples, at least one.
    fn take(
        &self,
        found: &mut Chunks,
        base: &mut Option<u64>,
        (from, to): (u64, u64),
        offsets: Offsets<'_>,
        sizes: Sizes<'_>,
    ) -> Result<(), Bad> {
        let chunk_of = |sample: u64| self.chunk + (sample - self.sample) / self.samples;
        let start_of = |chunk: u64| self.sample + (chunk - self.chunk) * self.samples;
        let (start, end) = (chunk_of(from), chunk_of(to - 1));
        let base = *base.get_or_insert(start);
        for chunk in start..=end {
            let (begin, full) = (start_of(chunk), start_of(chunk) + self.samples);
            let (begin, stop) = (begin.max(from), full.min(to));
            let skipped = sizes.sum(start_of(chunk), begin);
            let offset = offsets.get(chunk).ok_or(Bad("the time is out mp4 stco chunks"))?;
            let offset = offset.checked_add(skipped).ok_or(Bad("too large chunk offset"))?;
            if found.offsets.is_empty() {
                found.from = offset;
            }
            found.from = found.from.min(offset);
            if chunk == end {
                found.to = found.to.max(offset.saturating_add(sizes.sum(begin, stop)));
            }
            found.offsets.push(offset);
            let number = (chunk - base + 1) as u32;
            let run = [number, (stop - begin) as u32, self.id];
            if found.runs.last().is_none_or(|last| last[1..] != run[1..]) {
                found.runs.push(run);
            }
        }
        Ok(())
    }
}

impl Cut<'_> {
    pub(super) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Writes its `trak`; chunks lie so much later than they did.
    pub(super) fn write(&self, out: &mut Vec<u8>, later: i64) -> Result<(), Bad> {
        let mut table = Vec::new();
        self.write_offsets(&mut table, later)?;
        write(out, b"trak", |out| {
            write(out, b"tkhd", |out| out.extend_from_slice(&self.tkhd));
            if self.prefix > 0 {
                write(out, b"edts", |out| write(out, b"elst", |out| self.write_edit(out)));
            }
            write(out, b"mdia", |out| {
                write(out, b"mdhd", |out| out.extend_from_slice(&self.mdhd));
                out.extend_from_slice(self.track.hdlr.unwrap_or_default());
                write(out, b"minf", |out| {
                    self.track.media.iter().flatten().for_each(|atom| out.extend_from_slice(atom));
                    write(out, b"stbl", |out| {
                        self.write_tables(out);
                        out.extend_from_slice(&table);
                    });
                });
            });
        });
        Ok(())
    }

    /// Behind the samples that are sent for their key frame's sake.
    fn write_edit(&self, out: &mut Vec<u8>) {
        put(out, &[1 << 24, 1]);
        out.extend_from_slice(&self.shown.to_be_bytes());
        out.extend_from_slice(&self.prefix.to_be_bytes());
        put(out, &[1 << 16]);
    }

    fn write_tables(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.track.stsd.unwrap_or_default());
        let counted = |out: &mut Vec<u8>, flags: u32, entries: &[u8]| {
            let part = counted(entries, self.first, self.last);
            put(out, &[flags, (part.len() / 8) as u32]);
            out.extend_from_slice(&part);
        };
        write(out, b"stts", |out| counted(out, 0, self.track.stts.unwrap_or_default()));
        if let Some(stss) = self.track.stss {
            write(out, b"stss", |out| self.write_keys(out, stss));
        }
        if let Some(ctts) = &self.track.ctts {
            let flags = u32_at(ctts.body, 0).unwrap_or(0);
            let entries = table(ctts.body, 8, "").unwrap_or_default();
            write(out, b"ctts", |out| counted(out, flags, entries));
        }
        write(out, b"stsc", |out| {
            put(out, &[0, self.chunks.runs.len() as u32]);
            self.chunks.runs.iter().for_each(|run| put(out, run));
        });
        write(out, b"stsz", |out| {
            let count = (self.last - self.first) as u32;
            match self.sizes {
                Sizes::Same(size, _) => put(out, &[0, size, count]),
                Sizes::Each(entries) => {
                    put(out, &[0, 0, count]);
                    let part = 4 * self.first as usize..4 * self.last as usize;
                    out.extend_from_slice(entries.get(part).unwrap_or_default());
                }
            }
        });
    }

    fn write_keys(&self, out: &mut Vec<u8>, stss: &[u8]) {
        let key = |b: &[u8]| u64::from(u32_at(b, 0).unwrap_or(0));
        let is_in = |k: &u64| (self.first + 1..=self.last).contains(k);
        let keys: Vec<u32> =
            stss.chunks_exact(4).map(key).filter(is_in).map(|k| (k - self.first) as u32).collect();
        put(out, &[0, keys.len() as u32]);
        put(out, &keys);
    }

    fn write_offsets(&self, out: &mut Vec<u8>, later: i64) -> Result<(), Bad> {
        let too_large = || Bad("too large chunk offset");
        let moved = |o: &u64| o.checked_add_signed(later).ok_or_else(too_large);
        let all = self.chunks.offsets.iter().map(moved).collect::<Result<Vec<u64>, Bad>>()?;
        let count = all.len() as u32;
        if self.is_wide {
            write(out, b"co64", |out| {
                put(out, &[0, count]);
                all.iter().for_each(|o| out.extend_from_slice(&o.to_be_bytes()));
            });
            return Ok(());
        }
        let narrow = |o: &u64| u32::try_from(*o).map_err(|_| too_large());
        let all = all.iter().map(narrow).collect::<Result<Vec<u32>, Bad>>()?;
        write(out, b"stco", |out| {
            put(out, &[0, count]);
            put(out, &all);
        });
        Ok(())
    }
}

/// The entries, each for a number of samples, that some samples have.
fn counted(entries: &[u8], first: u64, last: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sample = 0;
    for i in 0..entries.len() / 8 {
        let (count, value) = pair(entries, i);
        let end = sample + u64::from(count);
        let within = end.min(last).saturating_sub(first.max(sample));
        if within > 0 {
            put(&mut out, &[within as u32, value]);
        }
        sample = end;
    }
    out
}
