//! A path opened component by component, so that no symbolic link leads elsewhere
//! (`disable_symlinks`): what was looked at is what is opened.

use rustix::fs::{fstat, openat, statat, AtFlags, FileType, Mode, OFlags, CWD};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Which links are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    None,
    /// Those that have the same owner as what they lead to may be followed.
    SameOwner,
}

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A pipe must not make the worker wait for its writer.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Whether that is what a link has that was not to be followed (`ELOOP`).
pub fn is_refusal(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Opens for reading; the first `trusted` bytes of the path are not looked at.
pub fn open(path: &[u8], trusted: usize, links: Links) -> io::Result<File> {
    let (start, rest) = path.split_at(trusted.min(path.len()));
    let start = match (start, path.first()) {
        (b"", Some(b'/')) => b"/",
        (b"", _) => b".",
        (start, _) => start,
    };
    let mut names = rest.split(|b| *b == b'/').filter(|n| !n.is_empty()).peekable();
    if names.peek().is_none() {
        return Ok(openat(CWD, start, FILE, Mode::empty())?.into());
    }
    let mut dir = openat(CWD, start, DIR, Mode::empty())?;
    while let Some(name) = names.next() {
        let next = if names.peek().is_some() { DIR } else { FILE };
        dir = step(&dir, name, next, links)?;
    }
    Ok(dir.into())
}

fn step(dir: &OwnedFd, name: &[u8], flags: OFlags, links: Links) -> io::Result<OwnedFd> {
    let e = match openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(fd) => return Ok(fd),
        Err(e) => e,
    };
    if !matches!(e, Errno::LOOP | Errno::NOTDIR) {
        return Err(e.into());
    }
    let link = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
        return Err(e.into());
    }
    if links == Links::None {
        return Err(e.into());
    }
    let fd = openat(dir, name, flags, Mode::empty())?;
    match fstat(&fd)?.st_uid == link.st_uid {
        true => Ok(fd),
        false => Err(Errno::LOOP.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_refused_but_for_their_owners_own() {
        let dir = std::env::temp_dir().join(format!("weir-beneath-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("real")).unwrap();
        std::fs::write(dir.join("real/file"), "text").unwrap();
        symlink("real", dir.join("link")).unwrap();
        symlink("file", dir.join("real/link")).unwrap();
        let base = dir.canonicalize().unwrap().into_os_string().into_encoded_bytes();
        let read = |tail: &str, trusted: usize, links| {
            let path = [&base[..], tail.as_bytes()].concat();
            let mut text = String::new();
            open(&path, trusted, links).and_then(|mut f| f.read_to_string(&mut text)).map(|_| text)
        };
        let code = |r: io::Result<String>| r.unwrap_err().raw_os_error();
        assert_eq!(read("/real/file", 0, Links::None).unwrap(), "text");
        // What the kernel says of a link in place of a directory, and of a file.
        for (tail, refusal) in [("/link/file", 20), ("/real/link", 40)] {
            assert_eq!(read(tail, 0, Links::SameOwner).unwrap(), "text");
            assert_eq!(code(read(tail, 0, Links::None)), Some(refusal));
        }
        assert_eq!(read("/link/file", base.len() + "/link".len(), Links::None).unwrap(), "text");
        assert_eq!(code(read("/real/file/x", 0, Links::None)), Some(20));
        assert_eq!(code(read("/no", 0, Links::None)), Some(2));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
