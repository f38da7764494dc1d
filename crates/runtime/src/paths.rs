//! Paths as bytes: what configurations, requests and other processes name, and what the system opens.
//!
//! On Unix a path is any bytes but NUL, and neither way costs anything. Windows has UTF-16, of which
//! the bytes are the UTF-8 form: there bytes that are not UTF-8 name a file that cannot be, and so do names that
//! the system takes for another file's (`paths/names.rs`).

#[cfg(any(windows, test))]
mod names;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// The path that the bytes name: on Unix just these.
#[cfg(unix)]
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    use std::os::unix::ffi::OsStrExt;
    Path::new(OsStr::from_bytes(bytes)).into()
}

#[cfg(not(unix))]
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    checked(bytes).unwrap_or_else(|_| PathBuf::from(names::none_for(bytes)).into())
}

/// The path that the bytes name.
///
/// # Errors
///
/// They name nothing, as the system says it of such names. Unix: none.
#[cfg(unix)]
pub fn checked(bytes: &[u8]) -> io::Result<Cow<'_, Path>> {
    Ok(path(bytes))
}

#[cfg(not(unix))]
pub fn checked(bytes: &[u8]) -> io::Result<Cow<'_, Path>> {
    use windows_sys::Win32::Foundation::ERROR_INVALID_NAME;
    match std::str::from_utf8(bytes) {
        Ok(text) if names::is_plain(bytes) && !is_short(text) && !climbs(text) => {
            Ok(Path::new(text).into())
        }
        _ => Err(io::Error::from_raw_os_error(ERROR_INVALID_NAME as i32)),
    }
}

/// Whether a folder that cannot be listed is as none to a pattern of names: where the C library has such patterns each one
/// is, for nginx on Windows only one that is not there.
pub fn is_nothing_to_patterns(e: &io::Error) -> bool {
    cfg!(unix) || matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether one of its parts is another file's short name, of those that do not show it by themselves.
#[cfg(windows)]
fn is_short(path: &str) -> bool {
    let ends: Vec<usize> = names::perhaps_short(path).collect();
    let long_to = |end: usize| crate::files::long_name(Path::new(&path[..end]));
    let is_there =
        |end: usize| !matches!(long_to(end), Err(e) if e.kind() == io::ErrorKind::NotFound);
    // Each question goes the whole way from the root: the longest part that is there tells of all before it. What is below
    // is not there either, however many names a client has put there.
    let there = match ends.last() {
        None => return false,
        Some(last) if is_there(*last) => ends.len(),
        Some(_) => ends.partition_point(|end| is_there(*end)),
    };
    let Some(last) = there.checked_sub(1).map(|at| ends[at]) else { return false };
    // That it is not to be known is as if it were.
    !long_to(last).is_ok_and(|long| names::ends_alike(&path[..last], &long))
}

/// Whether a `..` stands behind what is no folder: the system takes both away unseen, where others have no such path.
#[cfg(windows)]
fn climbs(path: &str) -> bool {
    // What is below a folder that is not said yet is looked at when it is.
    let is_whole = names::is_whole(path.as_bytes());
    let is_none = |end: usize| !Path::new(&path[..end]).is_dir();
    let mut climbs = names::before_climbs(path);
    is_whole && (climbs.by_ref().take(PARTS_MAX).any(is_none) || climbs.next().is_some())
}

/// So many folders of a name are looked at; one with more is refused.
#[cfg(windows)]
const PARTS_MAX: usize = 64;

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
/// Whether dots and spaces at a name's end are not part of it.
pub const CUTS_ENDS: bool = cfg!(windows);
/// The last name of a path.
pub fn last_name(path: &[u8]) -> &[u8] {
    let is_end = |b: &u8| *b == b'/' || BACKSLASH_SEPARATES && *b == b'\\';
    path.rsplit(is_end).next().unwrap_or(path)
}

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

/// A name as it is compared where files have no case: of the same length.
#[cfg(unix)]
pub fn caseless(name: &[u8]) -> Vec<u8> {
    name.to_vec()
}

#[cfg(not(unix))]
pub use names::caseless;

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

/// The path that the bytes name in a folder. What is looked at is the whole: a name alone says little of where it leads.
#[cfg(unix)]
#[inline]
pub fn within(folder: &Path, name: &[u8]) -> PathBuf {
    join(folder, path(name))
}

#[cfg(windows)]
pub fn within(folder: &Path, name: &[u8]) -> PathBuf {
    match std::str::from_utf8(name) {
        Ok(text) => path(bytes(&join(folder, text))).into_owned(),
        Err(_) => join(folder, path(name)),
    }
}

/// The path of a script that a program is told to run, or what names nothing where the system would take it for another
/// than it says. What follows a file (`/index.php/File:x`), or what is not there (a program on another machine has its
/// own folders), is no name.
#[cfg(unix)]
#[inline]
pub fn script(path: &[u8]) -> Cow<'_, [u8]> {
    path.into()
}

#[cfg(windows)]
pub fn script(path: &[u8]) -> Cow<'_, [u8]> {
    match checked(path).is_ok() || !is_odd_within(path) {
        true => path.into(),
        false => names::none_for(path).into_bytes().into(),
    }
}

/// Whether what the names of a path lead to ends at an odd one: neither at a file before it nor at what is not there.
#[cfg(windows)]
fn is_odd_within(path: &[u8]) -> bool {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    // Of another machine's folders (`\\host\share`) the first names are none that could be looked at.
    if path.len() > 1 && path[..2].iter().all(is_slash) {
        return true;
    }
    // The system takes it away with what is before it, whether that is there or not.
    if names::before_climbs(&String::from_utf8_lossy(path)).next().is_some() {
        return true;
    }
    let is_end = |at: &usize| path.get(*at).is_none_or(is_slash) && !is_slash(&path[at - 1]);
    for end in (1..=path.len()).filter(is_end).take(PARTS_MAX) {
        let Ok(there) = checked(&path[..end]) else { return true };
        match there.metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return false,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return false,
            // Who may look further than this process is not to be told of it.
            Err(_) => return true,
        }
    }
    true
}

/// A path that the user or the system has given, with long names where it has short ones and in the form that others say it
/// in: they may, what a configuration or a client says may not.
#[cfg(unix)]
pub fn given(path: PathBuf) -> PathBuf {
    path
}

#[cfg(windows)]
pub fn given(given: PathBuf) -> PathBuf {
    let path = path(&names::short_form(bytes(&given))).into_owned();
    let path = if path.exists() { path } else { given };
    match path.as_os_str().to_str().filter(|text| text.contains('~')) {
        Some(_) => long_as_far(&path).unwrap_or(path),
        None => path,
    }
}

/// What is there of it is asked for its long name; the rest has none yet.
#[cfg(windows)]
fn long_as_far(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|there| {
        let long = PathBuf::from(crate::files::long_name(there).ok()?);
        let rest = path.strip_prefix(there).ok()?;
        Some(if rest.as_os_str().is_empty() { long } else { join(&long, rest) })
    })
}

/// The path by which the system knows it, without links.
///
/// # Errors
///
/// The system's: there is nothing.
pub fn real(at: &Path) -> io::Result<PathBuf> {
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
