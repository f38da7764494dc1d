//! Paths as bytes: what configurations, requests and other processes name, and what the system opens.
//!
//! On Unix a path is any bytes but NUL, and neither way costs anything. Windows has UTF-16, of which
//! the bytes are the UTF-8 form: there bytes that are not UTF-8 name a file that cannot be, and so do names that
//! the system takes for another file's (`paths/names.rs`).

#[cfg(any(windows, test))]
mod names;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The path that the bytes name: on Unix just these.
#[cfg(unix)]
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    use std::os::unix::ffi::OsStrExt;
    Path::new(OsStr::from_bytes(bytes)).into()
}

#[cfg(not(unix))]
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    match std::str::from_utf8(bytes) {
        Ok(text) if names::is_plain(bytes) && !is_short(text) && !climbs(text) => {
            Path::new(text).into()
        }
        _ => PathBuf::from(names::none_for(bytes)).into(),
    }
}

/// Whether one of its parts is another file's short name, of those that do not show it by themselves.
#[cfg(windows)]
fn is_short(path: &str) -> bool {
    for end in names::perhaps_short(path) {
        let part = &path[..end];
        match crate::files::long_name(Path::new(part)) {
            Ok(long) if names::end_alike(part, &long) => {}
            // What is below is not there either, however many names a client has put there.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return false,
            // It is, or that is not to be known.
            Ok(_) | Err(_) => return true,
        }
    }
    false
}

/// Whether a `..` stands behind what is no folder: the system takes both away unseen, where others have no such path.
#[cfg(windows)]
fn climbs(path: &str) -> bool {
    // What is below a folder that is not said yet is looked at when it is.
    let is_whole = names::is_whole(path.as_bytes());
    is_whole && names::before_climbs(path).any(|end| !Path::new(&path[..end]).is_dir())
}

/// A word that may be no path, of a program's line: the same bytes, whatever they would name.
#[cfg(unix)]
pub fn word(bytes: &[u8]) -> OsString {
    path(bytes).into_owned().into_os_string()
}

#[cfg(not(unix))]
pub fn word(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Whether names that differ in case alone are one file's.
pub const IGNORES_CASE: bool = cfg!(windows);
/// Whether `\` stands between the parts of a path, as `/` does.
pub const BACKSLASH_SEPARATES: bool = cfg!(windows);
/// Whether packages put a program's files where all programs have theirs (`/etc`, `/var`), which root alone may change.
/// Windows: they are beside the program, and anybody may make `\etc`.
pub const HAS_COMMON_FOLDERS: bool = cfg!(unix);

/// A path in the form that all that lead to one file have, as far as names say it. Windows: with slashes one way, and in
/// lower case.
pub fn comparable(path: Vec<u8>) -> Vec<u8> {
    if !cfg!(windows) {
        return path;
    }
    String::from_utf8_lossy(&path).replace('\\', "/").to_lowercase().into_bytes()
}

/// Whether a name says the whole way, so that it is not below any folder. Windows: with a drive, or from its root.
#[cfg(unix)]
#[inline]
pub fn is_whole(name: &[u8]) -> bool {
    name.first() == Some(&b'/')
}

#[cfg(not(unix))]
pub use names::is_whole;

/// Adds a name to the path of a folder, as [`Path::join`] does, with the slash that configurations have.
#[cfg(unix)]
#[inline]
pub fn push(folder: &mut PathBuf, name: impl AsRef<Path>) {
    folder.push(name);
}

#[cfg(windows)]
pub fn push(folder: &mut PathBuf, name: impl AsRef<Path>) {
    if names::wants_slash(bytes(folder)) {
        folder.as_mut_os_string().push("/");
    }
    // A whole path takes the folder's place.
    folder.push(name);
}

/// The path of a name in a folder.
pub fn join(folder: &Path, name: impl AsRef<Path>) -> PathBuf {
    let mut path = folder.to_path_buf();
    push(&mut path, name);
    path
}

/// The path by which the system knows it, without links.
///
/// # Errors
///
/// The system's: there is nothing.
pub fn real(at: &Path) -> std::io::Result<PathBuf> {
    let real = std::fs::canonicalize(at)?;
    #[cfg(windows)]
    let real = path(&names::short_form(bytes(&real))).into_owned();
    Ok(real)
}

/// What a URI adds to the path of a folder: itself, or what names nothing where the system would take it for
/// something else than it says.
#[cfg(unix)]
#[inline]
pub fn below(uri: &[u8]) -> &[u8] {
    uri
}

#[cfg(windows)]
pub fn below(uri: &[u8]) -> &[u8] {
    match names::is_plain_uri(uri) {
        true => uri,
        false => b"/<no name>",
    }
}

/// The bytes of a path, of a name in a directory, or of a word of the command line. [`path`] makes
/// the same of them again.
pub fn bytes(path: &(impl AsRef<OsStr> + ?Sized)) -> &[u8] {
    path.as_ref().as_encoded_bytes()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for name in [&b"/a/b"[..], b"", b"caf\xe9", b"/\xff/\xfe"] {
            assert_eq!(bytes(&*path(name)), name);
        }
        assert_eq!(bytes(&path(b"/a/\xff").with_extension("x")), b"/a/\xff.x");
    }
}
