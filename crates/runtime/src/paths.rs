//! Paths as bytes: what configurations, requests and other processes name, and what the system opens.
//!
//! On Unix a path is any bytes but NUL, and neither way costs anything. Windows has UTF-16, of which
//! the bytes are the UTF-8 form: there bytes that are not UTF-8 name a file that cannot be.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

/// The path that the bytes name: on Unix just these.
#[cfg(unix)]
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    use std::os::unix::ffi::OsStrExt;
    Path::new(OsStr::from_bytes(bytes)).into()
}

#[cfg(not(unix))]
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Path::new(text).into(),
        Cow::Owned(text) => std::path::PathBuf::from(text).into(),
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
