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

/// Reads up to `len` bytes at an offset; what was read is that range of the buffer.
pub fn read(file: &File, at: u64, len: usize, align: usize) -> io::Result<(Vec<u8>, Range<usize>)> {
    use std::os::unix::fs::FileExt;
    let align = align.clamp(ALIGN_MIN_BYTES, ALIGN_MAX_BYTES).next_power_of_two();
    let before = (at % align as u64) as usize;
    let whole = (before + len).next_multiple_of(align);
    let mut buf = vec![0; whole + align];
    let start = buf.as_ptr().align_offset(align);
    let got = file.read_at(&mut buf[start..start + whole], at - before as u64)?;
    let from = start + before.min(got);
    let to = (start + got).min(from + len);
    Ok((buf, from..to))
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
        for (at, len) in [(0, 100), (1, 4096), (511, 2), (512, 512), (19_000, 5000), (20_000, 10)] {
            let Ok((buf, range)) = read(&file, at as u64, len, 4096) else { continue };
            assert_eq!(buf[range], text[at..(at + len).min(text.len())], "{at} {len}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
