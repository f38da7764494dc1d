//! The boxes of a media file (ISO/IEC 14496-12, section 4.2), which nginx calls atoms.

/// The file is not what it should be, and in what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad(pub(super) &'static str);

/// One of them, in memory.
#[derive(Clone, Copy)]
pub(super) struct Atom<'a> {
    pub(super) name: [u8; 4],
    /// With its size and name.
    pub(super) whole: &'a [u8],
    pub(super) body: &'a [u8],
}

/// What stands before a body: its name, how long it is itself, and the size of all; 0 for up to the end.
pub(super) struct Head {
    pub(super) name: [u8; 4],
    pub(super) len: u64,
    pub(super) size: u64,
}

/// The longest of them.
pub(super) const HEAD_MAX_BYTES: usize = 16;

/// Reads a head out of what there is of it.
pub(super) fn head(data: &[u8]) -> Option<Head> {
    let (size, name) = (u64::from(u32_at(data, 0)?), data.get(4..8)?.try_into().ok()?);
    match size {
        1 => Some(Head { name, len: 16, size: u64_at(data, 8)? }),
        _ => Some(Head { name, len: 8, size }),
    }
}

/// The next one, and what follows it.
pub(super) fn next(data: &[u8]) -> Result<(Atom<'_>, &[u8]), Bad> {
    let head = head(data).ok_or(Bad("an atom is cut short"))?;
    let size = if head.size == 0 { data.len() as u64 } else { head.size };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size < head.len as usize || size > data.len() {
        return Err(Bad("an atom is too small or too large"));
    }
    let (whole, rest) = data.split_at(size);
    Ok((Atom { name: head.name, whole, body: &whole[head.len as usize..] }, rest))
}

/// Calls for each of those that a body consists of.
pub(super) fn each<'a>(
    body: &'a [u8],
    mut hear: impl FnMut(Atom<'a>) -> Result<(), Bad>,
) -> Result<(), Bad> {
    let mut rest = body;
    while !rest.is_empty() {
        let (atom, after) = next(rest)?;
        hear(atom)?;
        rest = after;
    }
    Ok(())
}

/// Writes one, with its size once that is known.
pub(super) fn write(out: &mut Vec<u8>, name: &[u8; 4], body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    body(out);
    let size = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
}

pub(super) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

pub(super) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

/// The entries of a table: its body without version and flags, after the number of them.
pub(super) fn table<'a>(
    body: &'a [u8],
    entry_bytes: usize,
    what: &'static str,
) -> Result<&'a [u8], Bad> {
    let count = u32_at(body, 4).ok_or(Bad(what))? as usize;
    let bytes = count.checked_mul(entry_bytes).ok_or(Bad(what))?;
    body.get(8..).and_then(|rest| rest.get(..bytes)).ok_or(Bad(what))
}

/// Where a header has its time scale and its duration: `mvhd` and `mdhd` begin alike, `tkhd` has no scale.
pub(super) struct Times {
    /// Ticks a second; 0 where there is none.
    pub(super) scale: u64,
    pub(super) duration: u64,
    at: usize,
    is_wide: bool,
}

impl Times {
    /// `has_scale`: of a `mvhd` or `mdhd`.
    pub(super) fn of(body: &[u8], has_scale: bool) -> Option<Times> {
        let is_wide = *body.first()? != 0;
        let after_dates = if is_wide { 20 } else { 12 };
        let scale = match has_scale {
            true => u64::from(u32_at(body, after_dates)?),
            false => 0,
        };
        // Behind the scale, or behind a track's number and what is reserved.
        let at = after_dates + if has_scale { 4 } else { 8 };
        let duration = match is_wide {
            true => u64_at(body, at)?,
            false => u64::from(u32_at(body, at)?),
        };
        Some(Times { scale, duration, at, is_wide })
    }

    /// The same body with another duration.
    pub(super) fn with(&self, body: &[u8], duration: u64) -> Vec<u8> {
        let mut out = body.to_vec();
        match self.is_wide {
            true => out[self.at..self.at + 8].copy_from_slice(&duration.to_be_bytes()),
            false => {
                let duration = u32::try_from(duration).unwrap_or(u32::MAX);
                out[self.at..self.at + 4].copy_from_slice(&duration.to_be_bytes());
            }
        }
        out
    }
}
