//! What the machine says of its disks, its clock and its files' stamps. Only ever read.
//!
//! Windows: what is not told there is `Unsupported`, or `None`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A disk, as far as a path on it shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// The system's number of it: files are renamed only within one.
    pub device: u64,
    /// As `/sys/dev/block` names it; Windows: its drive.
    pub device_name: String,
    pub bytes: u64,
    /// For others than root.
    pub free_bytes: u64,
    /// 0 where the file system has as many as it needs.
    pub files: u64,
    pub free_files: u64,
    pub is_read_only: bool,
    /// Reading a file writes when that was: `strictatime`.
    pub is_atime_strict: bool,
    /// It is memory.
    pub is_memory: bool,
}

/// When a file was changed last, in seconds since 1970, whether everybody may read it, how long it is and whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub changed_secs: i64,
    pub is_readable_by_all: bool,
    pub bytes: u64,
    /// A user's number; Windows: 0.
    pub owner: u32,
}

/// At most so many bytes of a file, from its beginning.
///
/// # Errors
///
/// The system's.
pub fn beginning(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    is_systems(path)?;
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Linux' files of its own are looked for on no other system, where who likes may have made some of the same names.
///
/// # Errors
///
/// It is one of them, and this is none.
pub fn is_systems(path: &Path) -> io::Result<()> {
    let is_there = cfg!(target_os = "linux");
    match !is_there && (path.starts_with("/proc") || path.starts_with("/sys")) {
        true => Err(io::ErrorKind::Unsupported.into()),
        false => Ok(()),
    }
}

/// The disk that a path which exists is on.
///
/// # Errors
///
/// The system's.
#[cfg(target_os = "linux")]
pub fn disk(path: &Path) -> io::Result<Disk> {
    use rustix::fs::{major, minor, stat, statfs, statvfs, FsWord, StatVfsMountFlags};
    const TMPFS: FsWord = 0x0102_1994;
    const RAMFS: FsWord = 0x8584_58f6;
    let (file, system, kind) = (stat(path)?, statvfs(path)?, statfs(path)?.f_type);
    let has = |flag| system.f_flag.contains(flag);
    Ok(Disk {
        device: file.st_dev,
        device_name: format!("{}:{}", major(file.st_dev), minor(file.st_dev)),
        bytes: system.f_blocks.saturating_mul(system.f_frsize),
        free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
        files: system.f_files,
        free_files: system.f_favail,
        is_read_only: has(StatVfsMountFlags::RDONLY),
        is_atime_strict: !has(StatVfsMountFlags::NOATIME) && !has(StatVfsMountFlags::RELATIME),
        is_memory: [TMPFS, RAMFS].contains(&kind),
    })
}

#[cfg(windows)]
pub fn disk(path: &Path) -> io::Result<Disk> {
    use std::os::windows::ffi::OsStrExt;
    use windows_sys::Win32::Foundation::MAX_PATH;
    use windows_sys::Win32::Storage::FileSystem::{
        GetDiskFreeSpaceExW, GetVolumeInformationW, GetVolumePathNameW,
    };
    const FILE_READ_ONLY_VOLUME: u32 = 0x8_0000;
    // The call below says the drive of one that is not there, too.
    path.metadata()?;
    let wide: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let mut root = vec![0u16; wide.len() + MAX_PATH as usize];
    let room = u32::try_from(root.len()).unwrap_or(u32::MAX);
    let (mut bytes, mut free_bytes, mut device, mut flags) = (0, 0, 0, 0);
    let done = |answer: i32| match answer {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: texts that end in a zero, so much room as is said, and values of this frame; what is not asked for has none.
    unsafe {
        done(GetVolumePathNameW(wide.as_ptr(), root.as_mut_ptr(), room))?;
        let root = root.as_ptr();
        let none = std::ptr::null_mut();
        done(GetDiskFreeSpaceExW(root, &mut free_bytes, &mut bytes, none))?;
        let (no_name, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
        let more = (&mut device, &mut flags);
        done(GetVolumeInformationW(root, no_name, 0, more.0, no_length, more.1, no_name, 0))?;
    }
    let end = root.iter().position(|unit| *unit == 0).unwrap_or(root.len());
    Ok(Disk {
        device: device.into(),
        device_name: String::from_utf16_lossy(&root[..end]),
        bytes,
        free_bytes,
        is_read_only: flags & FILE_READ_ONLY_VOLUME != 0,
        ..Disk::default()
    })
}

#[cfg(not(any(target_os = "linux", windows)))]
pub fn disk(_: &Path) -> io::Result<Disk> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A file's stamp.
///
/// # Errors
///
/// The system's.
#[cfg(unix)]
pub fn stamp(path: &Path) -> io::Result<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let meta = path.metadata()?;
    Ok(Stamp {
        changed_secs: meta.mtime(),
        is_readable_by_all: meta.mode() & 0o004 != 0,
        bytes: meta.len(),
        owner: meta.uid(),
    })
}

#[cfg(not(unix))]
pub fn stamp(path: &Path) -> io::Result<Stamp> {
    let meta = path.metadata()?;
    let since = meta.modified()?.duration_since(std::time::UNIX_EPOCH);
    let changed_secs = since.map_or(0, |d| d.as_secs() as i64);
    Ok(Stamp { changed_secs, is_readable_by_all: false, bytes: meta.len(), owner: 0 })
}

/// Whether somebody (NTP) keeps the system's clock right, as the kernel was told.
#[cfg(target_os = "linux")]
pub fn clock_is_kept() -> Option<bool> {
    // SAFETY: plain data, all zeroes asks for nothing to be changed; valid for the call.
    let (rc, status) = unsafe {
        let mut asked: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut asked), asked.status)
    };
    (rc >= 0).then_some(status & libc::STA_UNSYNC == 0)
}

#[cfg(not(target_os = "linux"))]
pub fn clock_is_kept() -> Option<bool> {
    None
}

/// This process's limits of open files, soft and hard.
#[cfg(unix)]
pub fn nofile() -> Option<(u64, u64)> {
    let limit = crate::process::nofile();
    Some((limit.soft, limit.hard))
}

#[cfg(not(unix))]
pub fn nofile() -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(windows)]
    #[test]
    fn this_machine_has_disks() {
        let dir = std::env::temp_dir();
        let disk = disk(&dir).unwrap();
        assert!(disk.bytes >= disk.free_bytes && disk.bytes > 0 && !disk.is_read_only);
        assert!(dir.to_str().unwrap().starts_with(&disk.device_name), "{}", disk.device_name);
        assert!(super::disk(&dir.join("nothing here")).is_err());
        let e = beginning(Path::new("/proc/meminfo"), 3).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::Unsupported);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_them() {
        let disk = disk(Path::new("/")).unwrap();
        assert!(disk.bytes >= disk.free_bytes && disk.bytes > 0 && disk.device_name.contains(':'));
        assert!(super::disk(Path::new("/proc/nothing/here")).is_err());
        assert!(clock_is_kept().is_some() && nofile().is_some_and(|(soft, hard)| soft <= hard));
        assert_eq!(beginning(Path::new("/proc/self/stat"), 3).unwrap().len(), 3);
        assert!(stamp(Path::new("/etc/passwd")).unwrap().is_readable_by_all);
    }
}
