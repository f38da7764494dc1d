//! Files read past the page cache (`directio`). Systems that cannot, or file systems that do not,
//! say so with an error; the caller then reads as usual.

use std::fs::File;
use std::io;
use std::ops::Range;

/// The least and the most that offsets and buffers are aligned to.
const ALIGN_MIN_BYTES: usize = 512;
const ALIGN_MAX_BYTES: usize = 1 << 20;

/// The same file, opened again for direct reading.
#[cfg(target_os = "linux")]
pub fn reopen(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    // By its descriptor: the name may by now be another file's.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path)
}

#[cfg(not(target_os = "linux"))]
pub fn reopen(_: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What is asked for as an alignment, made one that systems take.
pub fn alignment(bytes: u64) -> usize {
    let bytes = bytes.clamp(ALIGN_MIN_BYTES as u64, ALIGN_MAX_BYTES as u64) as usize;
    bytes.next_power_of_two()
}

/// How long a buffer must be for [`read`] to read pieces of up to `piece` bytes into it.
pub fn buffer_bytes(piece: usize, align: usize) -> usize {
    piece.next_multiple_of(align) + align
}

/// Reads up to `len` bytes at an offset, less where the offset is not aligned (what follows then
/// is); what was read is that range of the buffer.
pub fn read(
    file: &File,
    buf: &mut [u8],
    at: u64,
    len: usize,
    align: usize,
) -> io::Result<Range<usize>> {
    let before = (at % align as u64) as usize;
    let room = buf.len().saturating_sub(align) / align * align;
    let whole = (before + len).next_multiple_of(align).min(room);
    let start = buf.as_ptr().align_offset(align);
    let aligned = buf.get_mut(start..start + whole).ok_or(io::ErrorKind::InvalidInput)?;
    let got = crate::files::read_at(file, aligned, at - before as u64)?;
    let from = start + before.min(got);
    Ok(from..(start + got).min(from + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_file_is_read() {
        let path = std::env::temp_dir().join(format!("weir-direct-{}", std::process::id()));
        let text: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &text).unwrap();
        let plain = File::open(&path).unwrap();
        // A file system without direct reading is read as usual.
        let file = reopen(&plain).unwrap_or(plain);
        let align = alignment(4000);
        assert_eq!((align, alignment(0), alignment(u64::MAX)), (4096, 512, 1 << 20));
        for (at, len) in [(0, 100), (1, 4096), (511, 2), (512, 512), (19_000, 5000), (20_000, 10)] {
            let mut buf = vec![0; buffer_bytes(len, align)];
            let Ok(range) = read(&file, &mut buf, at as u64, len, align) else { continue };
            // No further than the buffer, so that the next piece begins at an aligned offset.
            let end = (at / align * align + len.next_multiple_of(align)).min(at + len);
            assert_eq!(buf[range], text[at..end.min(text.len())], "{at} {len}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
