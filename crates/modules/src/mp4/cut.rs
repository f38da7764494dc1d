//! A part of a film: its own index (`moov`), and the bytes of the file that it is about.

use super::atoms::{each, write, Bad, Times};
use super::track::{self, Track};

/// Which part is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) start_ms: u64,
    /// 0: up to the end.
    pub(super) length_ms: u64,
    /// It begins with a key frame, even if that is earlier.
    pub(super) key_frames: bool,
}

fn ticks(ms: u64, scale: u64) -> u64 {
    ms.saturating_mul(scale) / 1000
}

impl Part {
    pub(super) fn start(&self, scale: u64) -> u64 {
        ticks(self.start_ms, scale)
    }

    pub(super) fn length(&self, scale: u64) -> Option<u64> {
        (self.length_ms > 0).then(|| ticks(self.length_ms, scale))
    }

    /// A duration behind the start, no longer than what is asked for.
    pub(super) fn bound(&self, duration: u64, scale: u64) -> u64 {
        self.length(scale).map_or(duration, |length| duration.min(length))
    }
}

/// What is sent: text, and behind it bytes of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Film {
    pub(super) text: Vec<u8>,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Cuts a part. `ftyp` is sent as it is, with its head; `moov` is the body of that; `data` is where the first
/// and the last byte of the media lie.
pub(super) fn cut(ftyp: &[u8], moov: &[u8], data: (u64, u64), part: &Part) -> Result<Film, Bad> {
    let (mut mvhd, mut tracks) = (None, Vec::new());
    each(moov, |atom| {
        match &atom.name {
            b"mvhd" if mvhd.replace(atom.body).is_some() => {
                return Err(Bad("duplicate mp4 mvhd atom"));
            }
            b"trak" => tracks.push(Track::read(atom.body)?),
            b"cmov" => return Err(Bad("compressed moov atom (cmov) is not supported")),
            _ => {}
        }
        Ok(())
    })?;
    let mvhd = mvhd.ok_or(Bad("no mp4 mvhd atom was found"))?;
    let times = Times::of(mvhd, true).ok_or(Bad("mp4 mvhd atom too small"))?;
    let left = times.duration.checked_sub(part.start(times.scale));
    let left = left.ok_or(Bad("mp4 start time exceeds file duration"))?;
    let mvhd = times.with(mvhd, part.bound(left, times.scale));
    let mut cuts = Vec::with_capacity(tracks.len());
    for track in tracks {
        cuts.extend(track::cut(track, part, times.scale)?);
    }
    if cuts.is_empty() {
        return Err(Bad("no mp4 trak atoms were found"));
    }
    let held = cuts.iter().map(track::Cut::chunks).filter(|c| c.to > c.from);
    let (from, last) = held.fold((u64::MAX, 0), |(from, to), c| (from.min(c.from), to.max(c.to)));
    let to = if part.length_ms > 0 { last } else { data.1 };
    if from >= to {
        return Err(Bad("no data between start time and end time"));
    }
    if from < data.0 || to > data.1 {
        return Err(Bad("the time is out mp4 mdat atom"));
    }
    let index = |later: i64| -> Result<Vec<u8>, Bad> {
        let mut tracks = Vec::new();
        for cut in &cuts {
            cut.write(&mut tracks, later)?;
        }
        let mut out = Vec::new();
        write(&mut out, b"moov", |out| {
            write(out, b"mvhd", |out| out.extend_from_slice(&mvhd));
            out.extend_from_slice(&tracks);
        });
        Ok(out)
    };
    let head = data_head(to - from);
    // Offsets do not change how long it is.
    let before = ftyp.len() + index(0)?.len() + head.len();
    let later = before as i64 - i64::try_from(from).map_err(|_| Bad("too large chunk offset"))?;
    let text = [ftyp, &index(later)?, &head].concat();
    Ok(Film { text, from, to })
}

/// What stands before the media.
fn data_head(bytes: u64) -> Vec<u8> {
    match u32::try_from(bytes + 8) {
        Ok(size) => [&size.to_be_bytes()[..], b"mdat"].concat(),
        Err(_) => [&1u32.to_be_bytes()[..], b"mdat", &(bytes + 16).to_be_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::atoms::{next, u32_at};
    use super::*;

    fn numbers(all: &[u32]) -> Vec<u8> {
        all.iter().flat_map(|n| n.to_be_bytes()).collect()
    }

    fn atom(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, name, |out| out.extend_from_slice(body));
        out
    }

    /// 20 samples of a second each, in chunks of 4 (the last two of 2), of 10, 11, 12 … bytes, from 1000 on, with
    /// 3 bytes between chunks; every fifth sample is a key frame.
    fn film() -> (Vec<u8>, Vec<u32>) {
        let sizes: Vec<u32> = (10..30).collect();
        let chunk_of = |s: usize| if s < 16 { s / 4 } else { 4 + (s - 16) / 2 };
        let mut offsets = Vec::new();
        let mut at = 1000;
        for (s, size) in sizes.iter().enumerate() {
            if s > 0 && chunk_of(s) != chunk_of(s - 1) {
                at += 3;
            }
            if s == 0 || chunk_of(s) != chunk_of(s - 1) {
                offsets.push(at);
            }
            at += size;
        }
        let stbl = [
            atom(b"stsd", b"described"),
            atom(b"stts", &numbers(&[0, 2, 5, 100, 15, 100])),
            atom(b"stss", &numbers(&[0, 4, 1, 6, 11, 16])),
            atom(b"stsc", &numbers(&[0, 2, 1, 4, 1, 5, 2, 1])),
            atom(b"stsz", &[numbers(&[0, 0, 20]), numbers(&sizes)].concat()),
            atom(b"stco", &[numbers(&[0, 6]), numbers(&offsets)].concat()),
        ];
        let minf = [atom(b"vmhd", b"v"), atom(b"stbl", &stbl.concat())].concat();
        let mdhd = atom(b"mdhd", &numbers(&[0, 0, 0, 100, 2000, 0]));
        let mdia = [mdhd, atom(b"hdlr", b"h"), atom(b"minf", &minf)].concat();
        let tkhd = atom(b"tkhd", &numbers(&[0, 0, 0, 1, 0, 20_000, 0, 0]));
        let trak = atom(b"trak", &[tkhd, atom(b"mdia", &mdia)].concat());
        let mvhd = atom(b"mvhd", &numbers(&[0, 0, 0, 1000, 20_000, 0]));
        ([mvhd, trak].concat(), offsets)
    }

    /// The body of the atom at the end of a path.
    fn find<'a>(data: &'a [u8], path: &[&[u8; 4]]) -> &'a [u8] {
        let mut rest = data;
        loop {
            let (atom, after) = next(rest).unwrap();
            if &atom.name == path[0] {
                return if path.len() == 1 { atom.body } else { find(atom.body, &path[1..]) };
            }
            rest = after;
        }
    }

    fn list(body: &[u8]) -> Vec<u32> {
        (0..body.len() / 4).map(|i| u32_at(body, 4 * i).unwrap()).collect()
    }

    const STBL: [&[u8; 4]; 5] = [b"moov", b"trak", b"mdia", b"minf", b"stbl"];

    fn in_stbl(film: &Film, name: &'static [u8; 4]) -> Vec<u32> {
        let path: Vec<&[u8; 4]> = STBL.iter().copied().chain([name]).collect();
        list(find(&film.text, &path))
    }

    fn part(start_ms: u64, length_ms: u64, key_frames: bool) -> Part {
        Part { start_ms, length_ms, key_frames }
    }

    #[test]
    fn a_part_has_its_samples_and_no_others() {
        let (moov, offsets) = film();
        let end = u64::from(offsets[5] + 28 + 29);
        let film =
            cut(&atom(b"ftyp", b"isom"), &moov, (1000, end), &part(5500, 6000, false)).unwrap();
        // Samples 5 to 10: the last three of the second chunk, and three of the third.
        assert_eq!(
            (film.from, film.to),
            (u64::from(offsets[1] + 14), u64::from(offsets[2] + 18 + 19 + 20))
        );
        assert_eq!(in_stbl(&film, b"stts"), [0, 1, 6, 100]);
        assert_eq!(in_stbl(&film, b"stss"), [0, 2, 1, 6]);
        assert_eq!(in_stbl(&film, b"stsc"), [0, 1, 1, 3, 1]);
        assert_eq!(in_stbl(&film, b"stsz"), [0, 0, 6, 15, 16, 17, 18, 19, 20]);
        let before = film.text.len() as u32;
        assert_eq!(in_stbl(&film, b"stco"), [0, 2, before, before + 15 + 16 + 17 + 3]);
        assert_eq!(u32_at(find(&film.text, &[b"moov", b"mvhd"]), 16), Some(6000));
        assert_eq!(u32_at(find(&film.text, &[b"moov", b"trak", b"mdia", b"mdhd"]), 16), Some(600));
        assert_eq!(u32_at(find(&film.text, &[b"moov", b"trak", b"tkhd"]), 20), Some(6000));
        assert_eq!(find(&film.text, &[b"ftyp"]), b"isom");
        let mdat = &film.text[film.text.len() - 8..];
        assert_eq!(mdat, [&((film.to - film.from + 8) as u32).to_be_bytes()[..], b"mdat"].concat());
    }

    #[test]
    fn a_part_goes_to_the_end_and_over_runs() {
        let (moov, offsets) = film();
        let end = u64::from(offsets[5] + 28 + 29);
        let film = cut(b"", &moov, (1000, end), &part(14_000, 0, false)).unwrap();
        assert_eq!((film.from, film.to), (u64::from(offsets[3] + 22 + 23), end));
        assert_eq!(in_stbl(&film, b"stsc"), [0, 1, 1, 2, 1]);
        assert_eq!(in_stbl(&film, b"stss"), [0, 1, 2]);
        assert_eq!(in_stbl(&film, b"stco").len(), 2 + 3);
        let whole = cut(b"", &moov, (1000, end), &part(0, 0, false)).unwrap();
        assert_eq!((whole.from, whole.to), (1000, end));
        assert_eq!(in_stbl(&whole, b"stsc"), [0, 2, 1, 4, 1, 5, 2, 1]);
    }

    #[test]
    fn a_part_begins_with_a_key_frame_where_that_is_wanted() {
        let (moov, offsets) = film();
        let end = u64::from(offsets[5] + 28 + 29);
        let film = cut(b"", &moov, (1000, end), &part(8000, 4000, true)).unwrap();
        assert_eq!(in_stbl(&film, b"stsz")[2..5], [7, 15, 16]);
        assert_eq!(in_stbl(&film, b"stss"), [0, 2, 1, 6]);
        let edit = find(&film.text, &[b"moov", b"trak", b"edts", b"elst"]);
        assert_eq!(list(edit), [1 << 24, 1, 0, 4000, 0, 300, 1 << 16]);
        assert_eq!(u32_at(find(&film.text, &[b"moov", b"trak", b"mdia", b"mdhd"]), 16), Some(700));
        let at_key = cut(b"", &moov, (1000, end), &part(10_000, 0, true)).unwrap();
        assert_eq!(in_stbl(&at_key, b"stsz")[2], 10);
    }

    #[test]
    fn what_is_broken_is_refused() {
        let (moov, _) = film();
        assert!(cut(b"", &moov, (1000, 1e9 as u64), &part(20_001, 0, false)).is_err());
        assert!(cut(b"", &moov, (1000, 1050), &part(5000, 0, false)).is_err());
        assert!(cut(b"", &moov[..moov.len() - 1], (0, 1 << 40), &part(0, 0, false)).is_err());
        // Whatever byte is changed, nothing panics.
        for at in 0..moov.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = moov.clone();
                broken[at] = value;
                let _ = cut(b"", &broken, (0, 1 << 40), &part(3000, 9000, true));
            }
        }
    }
}
