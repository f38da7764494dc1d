//! What the system says about files beyond `std`: who they are, when they changed, reading and writing at
//! a place, rights; and files that others read as they are written.
//!
//! Windows has no modes and owners, tells of the last change only with the text's, and of identity what
//! an open file's volume and index say; each function says what it answers there.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

/// What is written there is kept nowhere.
pub const NOWHERE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

/// A file's text and who may read it, as far as a look at its directory tells: another stamp, another
/// file or another text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    pub size: u64,
    /// When the text changed, in seconds since 1970.
    pub mtime: i64,
    mtime_nsec: i64,
    /// When anything changed, with mode and owner. Windows: when it was made.
    ctime: i64,
    ctime_nsec: i64,
    identity: Identity,
    mode: u32,
    owner: (u32, u32),
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Stamp {
    /// Of what the system has said already: no further call.
    #[cfg(unix)]
    pub fn of(m: &Metadata) -> Stamp {
        use std::os::unix::fs::MetadataExt;
        Stamp {
            size: m.size(),
            mtime: m.mtime(),
            mtime_nsec: m.mtime_nsec(),
            ctime: m.ctime(),
            ctime_nsec: m.ctime_nsec(),
            identity: Identity::of(m),
            mode: m.mode(),
            owner: (m.uid(), m.gid()),
        }
    }

    #[cfg(not(unix))]
    pub fn of(m: &Metadata) -> Stamp {
        let ((mtime, mtime_nsec), (ctime, ctime_nsec)) = (since(m.modified()), since(m.created()));
        let (identity, size) = (Identity::of(m), m.len());
        Stamp { size, mtime, mtime_nsec, ctime, ctime_nsec, identity, mode: 0, owner: (0, 0) }
    }

    /// When anything changed, in milliseconds since 1970.
    pub fn changed_ms(&self) -> i128 {
        i128::from(self.ctime) * 1000 + i128::from(self.ctime_nsec / 1_000_000)
    }
}

impl Identity {
    /// Of what the system has said already: no further call.
    #[cfg(unix)]
    pub fn of(m: &Metadata) -> Identity {
        use std::os::unix::fs::MetadataExt;
        Identity { device: m.dev(), inode: m.ino() }
    }

    /// Windows, where the system does not say it unasked: when it was made, in steps of 100 ns.
    #[cfg(not(unix))]
    pub fn of(m: &Metadata) -> Identity {
        let (secs, nsec) = since(m.created());
        Identity { device: 0, inode: secs as u64 * 10_000_000 + nsec as u64 / 100 }
    }

    /// Of an open file.
    ///
    /// # Errors
    ///
    /// The system's.
    #[cfg(not(windows))]
    pub fn of_open(file: &File) -> io::Result<Identity> {
        Ok(Identity::of(&file.metadata()?))
    }

    /// The system's number of it and when it was made: a new file of an old name may have the old one's time, and where
    /// numbers are given again (not NTFS) the old one's number. Without the volume's number, which wine does not know of a
    /// file that was renamed.
    #[cfg(windows)]
    pub fn of_open(file: &File) -> io::Result<Identity> {
        use std::os::windows::io::AsRawHandle;
        use windows_sys::Win32::Storage::FileSystem::{
            GetFileInformationByHandle, BY_HANDLE_FILE_INFORMATION,
        };
        let mut info = BY_HANDLE_FILE_INFORMATION::default();
        // SAFETY: a handle that is open, and a value of this frame that the call fills.
        match unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut info) } {
            0 => Err(io::Error::last_os_error()),
            _ => {
                let (high, low) = (u64::from(info.nFileIndexHigh), u64::from(info.nFileIndexLow));
                let made = info.ftCreationTime;
                let made = u64::from(made.dwHighDateTime) << 32 | u64::from(made.dwLowDateTime);
                Ok(Identity { device: made, inode: high << 32 | low })
            }
        }
    }

    /// Of what has that name.
    ///
    /// # Errors
    ///
    /// The system's.
    #[cfg(not(windows))]
    pub fn at(path: &Path) -> io::Result<Identity> {
        Ok(Identity::of(&std::fs::metadata(path)?))
    }

    #[cfg(windows)]
    pub fn at(path: &Path) -> io::Result<Identity> {
        use std::os::windows::fs::OpenOptionsExt;
        use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_BACKUP_SEMANTICS;
        let mut look = OpenOptions::new();
        // Neither to be read nor to be written, so that nobody's hold on it is in the way; folders as well.
        look.access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
        Identity::of_open(&look.open(path)?)
    }

    /// Enough where all files are of one file system.
    pub fn inode(self) -> u64 {
        self.inode
    }
}

/// What a name leads to.
pub enum Named {
    File(Stamp),
    Directory,
    /// A device, a socket, a pipe.
    Other,
}

/// What a name leads to, by one call that fills in no more than is looked at: `std` asks for more and turns
/// it over several times.
#[cfg(target_os = "linux")]
pub fn look_up(path: &Path) -> io::Result<Named> {
    use rustix::fs::FileType;
    let stat = stat(path)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Named::File(Stamp {
            size: stat.st_size as u64,
            mtime: stat.st_mtime as i64,
            mtime_nsec: stat.st_mtime_nsec as i64,
            ctime: stat.st_ctime as i64,
            ctime_nsec: stat.st_ctime_nsec as i64,
            identity: Identity { device: stat.st_dev, inode: stat.st_ino },
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
        }),
        FileType::Directory => Named::Directory,
        _ => Named::Other,
    })
}

/// As rustix does it, but that looks for a zero in the path byte by byte.
#[cfg(target_os = "linux")]
fn stat(path: &Path) -> io::Result<rustix::fs::Stat> {
    use std::os::unix::ffi::OsStrExt;
    const SHORT_MAX_BYTES: usize = 255;
    let name = path.as_os_str().as_bytes();
    if name.len() > SHORT_MAX_BYTES {
        return Ok(rustix::fs::stat(path)?);
    }
    if memchr::memchr(0, name).is_some() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = [0; SHORT_MAX_BYTES + 1];
    text[..name.len()].copy_from_slice(name);
    // SAFETY: there is no zero in the name, and one right behind it.
    let text = unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(&text[..=name.len()]) };
    Ok(rustix::fs::stat(text)?)
}

#[cfg(not(target_os = "linux"))]
pub fn look_up(path: &Path) -> io::Result<Named> {
    let meta = std::fs::metadata(path)?;
    Ok(match (meta.is_file(), meta.is_dir()) {
        (true, _) => Named::File(Stamp::of(&meta)),
        (_, true) => Named::Directory,
        _ => Named::Other,
    })
}

/// Whether the open file is the one that has this name now.
pub fn is_named(file: &File, path: &Path) -> bool {
    matches!((Identity::of_open(file), Identity::at(path)), (Ok(a), Ok(b)) if a == b)
}

/// When the text changed, in seconds since 1970.
#[cfg(unix)]
pub fn modified_secs(m: &Metadata) -> i64 {
    std::os::unix::fs::MetadataExt::mtime(m)
}

#[cfg(not(unix))]
pub fn modified_secs(m: &Metadata) -> i64 {
    since(m.modified()).0
}

#[cfg(not(unix))]
fn since(time: io::Result<std::time::SystemTime>) -> (i64, i64) {
    let since = time.ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or((0, 0), |d| (d.as_secs() as i64, i64::from(d.subsec_nanos())))
}

/// Files that may be executed are marked as such. Windows: they are not, and `-x` is true of none, as in nginx there.
pub const EXECUTABLES_ARE_MARKED: bool = cfg!(unix);

/// Whether its owner may execute it. Windows: always.
#[cfg(unix)]
pub fn is_executable(m: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(m) & 0o100 != 0
}

#[cfg(not(unix))]
pub fn is_executable(_: &Metadata) -> bool {
    true
}

/// Whether somebody at its other end reads it, who may be slow: a pipe or a socket.
#[cfg(unix)]
pub fn is_pipe(m: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    m.file_type().is_fifo() || m.file_type().is_socket()
}

#[cfg(not(unix))]
pub fn is_pipe(_: &Metadata) -> bool {
    false
}

/// Opens a file for reading, if it is one: whoever has put a pipe or a device in its place is not waited for.
///
/// # Errors
///
/// It is none; what the system says.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A pipe that nobody writes to would be waited for before it could be known as one.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    // A socket cannot be opened at all.
    let is_odd = || std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    let odd = || io::Error::other("it is no regular file");
    let opened = options.read(true).open(path);
    let file = opened.map_err(|e| if is_odd() { odd() } else { e })?;
    if !file.metadata()?.is_file() {
        return Err(odd());
    }
    Ok(file)
}

/// All of a file that is one.
///
/// # Errors
///
/// It has more than `max_bytes`; those of [`open_regular`].
pub fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_to_end(&open_regular(path)?, max_bytes)
}

/// All of a file, which may be a pipe or a device and never end.
///
/// # Errors
///
/// It has more than `max_bytes`; what the system says.
pub fn read_at_most(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_to_end(&File::open(path)?, max_bytes)
}

fn read_to_end(file: &File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(io::Error::other(format!("the file has more than {max_bytes} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads from a place, and leaves the file's own where it is. 0: the end. Windows moves the file's own,
/// which nobody here uses.
#[cfg(unix)]
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, offset)
}

#[cfg(windows)]
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}

/// The same until `buf` is full; an error ([`io::ErrorKind::UnexpectedEof`]) where the file ends before.
pub fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match read_at(file, buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (buf, offset) = (&mut buf[n..], offset + n as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Standard input without the buffer that Rust's own has: what is in that does not show as something to be read.
///
/// # Errors
///
/// The system's.
#[cfg(unix)]
pub fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
pub fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

/// Whether something is to be read, or the end is, now or within that time. Windows does not say it of pipes: a read may wait.
///
/// # Errors
///
/// The system's.
#[cfg(unix)]
pub fn is_readable_within(file: &File, ms: u64) -> io::Result<bool> {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    let time = Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as _ };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&time)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(windows)]
pub fn is_readable_within(_: &File, _: u64) -> io::Result<bool> {
    Ok(true)
}

/// What of a file is on disk, where it has holes. Windows: its length.
#[cfg(unix)]
pub fn held_bytes(m: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    m.len().min(m.blocks().saturating_mul(512))
}

#[cfg(not(unix))]
pub fn held_bytes(m: &Metadata) -> u64 {
    m.len()
}

/// Writes all of it to a place. Windows moves the file's own, as [`read_at`].
#[cfg(unix)]
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
pub fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        (bytes, offset) = (&bytes[n..], offset + n as u64);
    }
    Ok(())
}

/// Only this user may read and write what is created so. Windows: whoever may in its directory.
#[cfg(unix)]
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// The file by which a directory is locked, where that cannot be locked itself.
pub const LOCK_NAME: Option<&str> = if cfg!(windows) { Some(".weir-lock") } else { None };

/// Keeps other processes that ask this out of a directory until what is given is dropped. Windows, where directories
/// cannot be locked: by a lock on a file in it, which stays.
///
/// # Errors
///
/// Another process has it, or the system's.
#[cfg(unix)]
pub fn try_lock_dir(dir: &Path) -> Result<File, TryLockError> {
    let dir = File::open(dir).map_err(TryLockError::Error)?;
    dir.try_lock().map(|()| dir)
}

#[cfg(not(unix))]
pub fn try_lock_dir(dir: &Path) -> Result<File, TryLockError> {
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join(LOCK_NAME.unwrap_or_default()));
    let file = opened.map_err(TryLockError::Error)?;
    file.try_lock().map(|()| file)
}

/// Makes a directory and those on the way to it, each with these rights, whatever the umask. Windows has
/// no such rights.
#[cfg(unix)]
pub fn make_dirs(dir: &Path, mode: u32) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_dirs(parent, mode)?;
    }
    let mut builder = std::fs::DirBuilder::new();
    match std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode).create(dir) {
        Ok(()) => std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(mode)),
        // Another one was quicker.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(not(unix))]
pub fn make_dirs(dir: &Path, _: u32) -> io::Result<()> {
    std::fs::create_dir_all(dir)
}

/// Opens a directory, to set its rights or date.
///
/// # Errors
///
/// The system's.
#[cfg(unix)]
pub fn open_dir(dir: &Path) -> io::Result<File> {
    File::open(dir)
}

#[cfg(not(unix))]
pub fn open_dir(dir: &Path) -> io::Result<File> {
    open_for_attributes(dir)
}

/// Sets the date of a file or directory that its owner may not be allowed to write to.
///
/// # Errors
///
/// The system's.
#[cfg(unix)]
pub fn set_modified(path: &Path, time: std::time::SystemTime) -> io::Result<()> {
    File::open(path)?.set_modified(time)
}

#[cfg(not(unix))]
pub fn set_modified(path: &Path, time: std::time::SystemTime) -> io::Result<()> {
    open_for_attributes(path)?.set_modified(time)
}

/// Directories are opened by those only who say that they may be some.
#[cfg(not(unix))]
fn open_for_attributes(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    use windows_sys::Win32::Storage::FileSystem as system;
    File::options()
        .access_mode(system::FILE_READ_ATTRIBUTES | system::FILE_WRITE_ATTRIBUTES)
        .custom_flags(system::FILE_FLAG_BACKUP_SEMANTICS)
        .open(path)
}

/// Keeps a file's [`Identity`] from being another's, for as long as it is there. Windows: no other has it in any case, and
/// a file that is open could not be replaced.
#[derive(Debug)]
pub struct Pinned {
    #[cfg(unix)]
    _file: File,
}

impl Pinned {
    #[cfg(unix)]
    pub fn new(file: File) -> Pinned {
        Pinned { _file: file }
    }

    #[cfg(not(unix))]
    pub fn new(_: File) -> Pinned {
        Pinned {}
    }
}

/// Gives a file these rights, whatever the umask. Windows: read-only if nobody may write.
#[cfg(unix)]
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(not(unix))]
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    permissions.set_readonly(mode & 0o222 == 0);
    file.set_permissions(permissions)
}

/// Whether links on the way lead in a circle. Windows: `ERROR_CANT_RESOLVE_FILENAME`.
pub fn is_circle(e: &io::Error) -> bool {
    let code = if cfg!(windows) { 1921 } else { libc::ELOOP };
    e.raw_os_error() == Some(code)
}

/// What opening a directory for writing answers. Windows: access denied.
pub fn is_a_directory() -> io::Error {
    io::Error::from_raw_os_error(if cfg!(windows) { 5 } else { libc::EISDIR })
}

/// Bytes that an ordinary user may still write there.
#[cfg(unix)]
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = std::ffi::CString::new(crate::paths::bytes(path))?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in NUL and outlives the call; the buffer is a whole statvfs.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel has filled the buffer.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(windows)]
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    use std::os::windows::ffi::OsStrExt;
    use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;
    let name: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let (mut free, none) = (0, std::ptr::null_mut());
    // SAFETY: the name ends in a zero and outlives the call, which fills a value of this frame.
    match unsafe { GetDiskFreeSpaceExW(name.as_ptr(), &mut free, none, none) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(free),
    }
}

/// Puts a file in the place of another one. Windows: somebody who only looks (another thread, a virus scanner) may have
/// that open for a moment; it is tried again for some.
#[cfg(unix)]
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

#[cfg(windows)]
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION};
    const PAUSES_MS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
    for pause in PAUSES_MS {
        match std::fs::rename(from, to) {
            Err(e)
                if [ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION]
                    .iter()
                    .any(|code| e.raw_os_error() == Some(*code as i32)) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    std::fs::rename(from, to)
}

/// Removes a file. Windows: one that is read-only too, for elsewhere it is the folder that says whether it may be.
#[cfg(unix)]
pub fn remove(file: &Path) -> io::Result<()> {
    std::fs::remove_file(file)
}

/// Puts a file in the place of another, which somebody may be reading for as long as they like. Windows: where such a file is not
/// replaced, it is called otherwise first, as `aside` says; who holds it is waited for a while.
#[cfg(unix)]
pub fn supplant(from: &Path, to: &Path, _: impl Fn(&Path) -> std::path::PathBuf) -> io::Result<()> {
    std::fs::rename(from, to)
}

/// The same for who may not wait. Windows: what somebody else holds is an error at once.
#[cfg(unix)]
pub fn supplant_at_once(
    from: &Path,
    to: &Path,
    _: impl Fn(&Path) -> std::path::PathBuf,
) -> io::Result<()> {
    std::fs::rename(from, to)
}

#[cfg(windows)]
pub use crate::windows::moves::{long_name, remove, supplant, supplant_at_once};

/// Opens for appending, and creates what is not there. Neither opening a fifo nor writing to it waits
/// for a reader: that is an error (`ENXIO`, `EAGAIN`).
#[cfg(unix)]
pub fn append_at_once(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(not(unix))]
pub fn append_at_once(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Writes all of it, and waits for the reader of a pipe, also of one that was opened not to wait.
pub fn write_waiting(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => await_reader(file),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns when something may be written; writing tells whether that is so.
#[cfg(unix)]
fn await_reader(file: &File) {
    let fd = std::os::fd::AsRawFd::as_raw_fd(file);
    let mut ask = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut ask, 1, -1) };
}

#[cfg(not(unix))]
fn await_reader(_: &File) {}

/// Why files can surely not be made in a directory by a user and group, or by who runs this; nothing where that depends on
/// what is not looked at (further groups, lists of rights).
#[cfg(unix)]
pub fn refuses_files(dir: &Path, user: Option<(u32, u32)>) -> Option<io::Error> {
    use rustix::fs::{access, Access};
    let meta = match std::fs::metadata(dir) {
        Err(e) => return Some(e),
        Ok(meta) if !meta.is_dir() => return Some(io::ErrorKind::NotADirectory.into()),
        Ok(meta) => meta,
    };
    let Some((uid, gid)) = user else {
        return access(dir, Access::WRITE_OK | Access::EXEC_OK).err().map(io::Error::from);
    };
    lacks(&meta, (uid, gid), 0o3)
}

/// The error of what such a user lacks of these rights (1: to execute or pass, 2: to write, 4: to read).
#[cfg(unix)]
fn lacks(meta: &Metadata, (uid, gid): (u32, u32), rights: u32) -> Option<io::Error> {
    use std::os::unix::fs::MetadataExt as _;
    let has = match () {
        () if uid == 0 => rights,
        () if meta.uid() == uid => meta.mode() >> 6,
        () if meta.gid() == gid => meta.mode() >> 3,
        // It may be one of its groups.
        () => meta.mode() | meta.mode() >> 3,
    };
    (has & rights != rights).then(|| io::Error::from_raw_os_error(libc::EACCES))
}

/// Why a file that is there can surely not be read by a user and group; nothing where that depends on what is not looked
/// at, as in [`refuses_files`].
#[cfg(unix)]
pub fn refuses_reading(path: &Path, user: (u32, u32)) -> Option<io::Error> {
    lacks(&std::fs::metadata(path).ok()?, user, 0o4)
}

#[cfg(not(unix))]
pub fn refuses_reading(_: &Path, _: (u32, u32)) -> Option<io::Error> {
    None
}

#[cfg(not(unix))]
pub fn refuses_files(dir: &Path, _: Option<(u32, u32)>) -> Option<io::Error> {
    std::fs::metadata(dir).err()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn places_rights_and_names() {
        let dir = std::env::temp_dir().join(format!("weir-runtime-files-{}", std::process::id()));
        make_dirs(&dir.join("a"), 0o700).unwrap();
        let (name, other) = (dir.join("a/x"), dir.join("a/y"));
        let file =
            private(File::options().read(true).write(true).create(true)).open(&name).unwrap();
        write_all_at(&file, b"abc", 2).unwrap();
        let mut buf = [0; 4];
        assert_eq!(read_at(&file, &mut buf, 3).unwrap(), 2);
        read_exact_at(&file, &mut buf, 1).unwrap();
        assert_eq!(&buf, b"\0abc");
        let cut = read_exact_at(&file, &mut buf, 2).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let before = Stamp::of(&file.metadata().unwrap());
        assert!(!is_executable(&file.metadata().unwrap()) && is_named(&file, &name));
        set_mode(&file, 0o500).unwrap();
        assert!(is_executable(&file.metadata().unwrap()));
        assert_ne!(Stamp::of(&file.metadata().unwrap()), before);
        std::fs::write(&other, "x").unwrap();
        std::fs::rename(&other, &name).unwrap();
        assert!(!is_named(&file, &name));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_look_tells_what_std_does() {
        let dir = std::env::temp_dir().join(format!("weir-runtime-look-{}", std::process::id()));
        let mut long = dir.clone();
        (0..4).for_each(|_| long.push("d".repeat(100)));
        make_dirs(&long, 0o700).unwrap();
        for name in [dir.join("x"), long.join("x")] {
            std::fs::write(&name, "text").unwrap();
            let stamp = Stamp::of(&std::fs::metadata(&name).unwrap());
            assert!(matches!(look_up(&name).unwrap(), Named::File(s) if s == stamp));
            let missing = look_up(&name.with_extension("y")).err().map(|e| e.kind());
            assert_eq!(missing, Some(io::ErrorKind::NotFound));
            let zero = look_up(&name.with_extension("y\0")).err().map(|e| e.kind());
            assert_eq!(zero, Some(io::ErrorKind::InvalidInput));
        }
        assert!(matches!(look_up(&long).unwrap(), Named::Directory));
        std::fs::remove_dir_all(&dir).unwrap();
        #[cfg(unix)]
        assert!(matches!(look_up(Path::new(NOWHERE)).unwrap(), Named::Other));
    }
}
