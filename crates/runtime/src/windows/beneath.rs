//! A path opened part by part, so that no link leads elsewhere (`disable_symlinks`): what was looked at is what is opened.
//! Links are symbolic links and junctions. The system opens each part below the folder that was opened before, as itself.

use crate::paths;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Component, Path};
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{
    NtCreateFile, FILE_OPEN, FILE_OPEN_REPARSE_POINT, FILE_SYNCHRONOUS_IO_NONALERT,
};
use windows_sys::Win32::Foundation::{
    LocalFree, RtlNtStatusToDosError, ERROR_DIRECTORY, ERROR_STOPPED_ON_SYMLINK,
    OBJ_CASE_INSENSITIVE, UNICODE_STRING,
};
use windows_sys::Win32::Security::Authorization::{GetSecurityInfo, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{EqualSid, OWNER_SECURITY_INFORMATION};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_REPARSE_POINT, FILE_FLAG_BACKUP_SEMANTICS, FILE_GENERIC_READ,
    FILE_READ_ATTRIBUTES, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TRAVERSE,
    READ_CONTROL, SYNCHRONIZE,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

/// Which links are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    None,
    /// Those that have the same owner as what they lead to may be followed.
    SameOwner,
}

/// Whether that is what a link has that was not to be followed.
pub fn is_refusal(e: &io::Error) -> bool {
    e.raw_os_error() == Some(ERROR_STOPPED_ON_SYMLINK as i32)
}

/// Opens for reading; the first `trusted` bytes of the path are not looked at.
///
/// # Errors
///
/// The system's. A link that is not allowed at the end is [`is_refusal`], and on the way is no folder, as elsewhere.
pub fn open(path: &[u8], trusted: usize, links: Links) -> io::Result<File> {
    // As the system does it before it looks at anything: without `.` and `..`.
    let whole = std::path::absolute(paths::path(path))?;
    let trusted = trusted.min(path.len());
    // A drive alone would be the folder that is current there.
    let is_drive = path[..trusted].ends_with(b":") && trusted < path.len();
    let start = paths::path(&path[..trusted + usize::from(is_drive)]).into_owned();
    let start = match start.as_os_str().is_empty() {
        true => root(&whole),
        false => std::path::absolute(start)?,
    };
    // What is trusted may have led back over itself.
    let start = if whole.starts_with(&start) { start } else { root(&whole) };
    let rest = whole.strip_prefix(&start).map_err(io::Error::other)?;
    let mut names = rest.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    let mut next = names.next();
    let mut look = OpenOptions::new();
    look.access_mode(rights(next.is_none(), links)).custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
    let mut file = look.open(&start)?;
    while let Some(name) = next {
        next = names.next();
        file = step(&file, &name, next.is_none(), links)?;
    }
    Ok(file)
}

/// The drive that a path begins with, or what stands for one.
fn root(path: &Path) -> std::path::PathBuf {
    let is_root = |c: &Component| matches!(c, Component::Prefix(_) | Component::RootDir);
    path.components().take_while(is_root).collect()
}

/// What is to be done with it.
fn rights(is_last: bool, links: Links) -> u32 {
    let owner = if links == Links::SameOwner { READ_CONTROL } else { 0 };
    match is_last {
        // Whose it is may be asked by this.
        true => FILE_GENERIC_READ,
        false => FILE_READ_ATTRIBUTES | FILE_TRAVERSE | SYNCHRONIZE | owner,
    }
}

fn step(folder: &File, name: &str, is_last: bool, links: Links) -> io::Result<File> {
    let rights = rights(is_last, links);
    let own = below(folder, name, rights, FILE_OPEN_REPARSE_POINT)?;
    let found = own.metadata()?;
    if found.file_attributes() & FILE_ATTRIBUTE_REPARSE_POINT == 0 {
        return Ok(own);
    }
    // What is none otherwise has its text elsewhere (a store, a cloud) and is what its name says.
    let is_link = found.file_type().is_symlink();
    if is_link && links == Links::None {
        let code = if is_last { ERROR_STOPPED_ON_SYMLINK } else { ERROR_DIRECTORY };
        return Err(io::Error::from_raw_os_error(code as i32));
    }
    let there = below(folder, name, rights, 0)?;
    match !is_link || has_one_owner(&own, &there)? {
        true => Ok(there),
        false => Err(io::Error::from_raw_os_error(ERROR_STOPPED_ON_SYMLINK as i32)),
    }
}

/// Opens what has that name in that folder.
fn below(folder: &File, name: &str, rights: u32, options: u32) -> io::Result<File> {
    let mut text: Vec<u16> = name.encode_utf16().collect();
    let bytes = u16::try_from(text.len() * 2).map_err(|_| io::ErrorKind::InvalidFilename)?;
    let name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_mut_ptr() };
    let what = OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        RootDirectory: folder.as_raw_handle(),
        ObjectName: &name,
        Attributes: OBJ_CASE_INSENSITIVE,
        ..OBJECT_ATTRIBUTES::default()
    };
    let (mut handle, mut said) = (std::ptr::null_mut(), IO_STATUS_BLOCK::default());
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: the folder is open, the name and what says so live in this frame, both results have room there, and there are
    // no further attributes. A handle that was given is nobody else's.
    unsafe {
        let options = options | FILE_SYNCHRONOUS_IO_NONALERT;
        let none = std::ptr::null();
        let status = NtCreateFile(
            &mut handle,
            rights | SYNCHRONIZE,
            &what,
            &mut said,
            none,
            0,
            share,
            FILE_OPEN,
            options,
            none.cast(),
            0,
        );
        if status < 0 {
            return Err(io::Error::from_raw_os_error(RtlNtStatusToDosError(status) as i32));
        }
        Ok(File::from(OwnedHandle::from_raw_handle(handle)))
    }
}

fn has_one_owner(a: &File, b: &File) -> io::Result<bool> {
    let (a, b) = (Owner::of(a)?, Owner::of(b)?);
    // SAFETY: both point into descriptors that live until the end of this function.
    Ok(unsafe { EqualSid(a.sid, b.sid) } != 0)
}

/// Whose a file is.
struct Owner {
    sid: *mut std::ffi::c_void,
    descriptor: *mut std::ffi::c_void,
}

impl Owner {
    fn of(file: &File) -> io::Result<Owner> {
        let (mut sid, mut descriptor) = (std::ptr::null_mut(), std::ptr::null_mut());
        let none = std::ptr::null_mut();
        // SAFETY: an open file, and room for both results; the others are not asked for.
        let code = unsafe {
            let handle = file.as_raw_handle();
            GetSecurityInfo(
                handle,
                SE_FILE_OBJECT,
                OWNER_SECURITY_INFORMATION,
                &mut sid,
                none,
                none.cast(),
                none.cast(),
                &mut descriptor,
            )
        };
        match code {
            0 => Ok(Owner { sid, descriptor }),
            code => Err(io::Error::from_raw_os_error(code as i32)),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the system has given it to be freed so, and it is not used any more.
        unsafe { LocalFree(self.descriptor) };
    }
}
