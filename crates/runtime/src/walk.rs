//! The way to a file that root opens by name, directory by directory. A symbolic link on it leads
//! only where its owner could have gone: root's own anywhere, that of another to a directory of
//! his. What is found is a descriptor, so that nothing can be put in its place later.

use rustix::fs::{fstat, openat, readlinkat, FileType, Mode, OFlags, Stat, CWD};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// The kernel's own bound of links on one way.
const LINKS_MAX: usize = 40;
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;

/// A directory, and what is known of the way to it.
#[derive(Debug)]
pub struct Place {
    pub dir: OwnedFd,
    /// Nobody but root could have put something else in the place of any part of the way.
    is_roots_way: bool,
    links: usize,
}

/// The directory that a file of this name is in, and what the name there is.
pub fn parent(path: &Path) -> rustix::io::Result<(Place, &OsStr)> {
    // A name that ends in none, as `/` does, is no file's.
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    Ok((directory(path.parent().unwrap_or(Path::new("")))?, name))
}

/// That directory; an empty name is the current one.
pub fn directory(path: &Path) -> rustix::io::Result<Place> {
    let mut place = Place { dir: start(Path::new("."))?, is_roots_way: true, links: 0 };
    place.go(path)?;
    Ok(place)
}

fn start(at: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// A link, and where it leads; read from the descriptor: the one that is looked at, not another
/// put in its place.
pub struct Link {
    pub owner: u32,
    pub target: PathBuf,
}

/// The link of that name; `None` if it is something else.
pub fn link(dir: impl AsFd, name: &OsStr) -> rustix::io::Result<Option<Link>> {
    let link = openat(dir, name, LOOK, Mode::empty())?;
    let found = fstat(&link)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let target = readlinkat(&link, "", Vec::new())?;
    let target = crate::paths::path(target.as_bytes());
    Ok(Some(Link { owner: found.st_uid, target: target.into() }))
}

/// Whether others than root may put something else in the place of what root has there.
fn is_open_to_others(dir: &Stat) -> bool {
    dir.st_uid != 0 || (dir.st_mode & OTHERS_WRITE != 0 && dir.st_mode & STICKY == 0)
}

impl Place {
    /// Nobody but root could have made or moved what is in this directory.
    pub fn only_root_writes(&self) -> bool {
        let is_roots = |s: Stat| s.st_uid == 0 && s.st_mode & OTHERS_WRITE == 0;
        self.is_roots_way && fstat(&self.dir).is_ok_and(is_roots)
    }

    /// Goes on from here.
    pub fn go(&mut self, path: &Path) -> rustix::io::Result<()> {
        for part in path.components() {
            match part {
                Component::RootDir => self.dir = start(Path::new("/"))?,
                Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => self.step(OsStr::new(".."))?,
                Component::Normal(name) => self.step(name)?,
            }
        }
        Ok(())
    }

    fn step(&mut self, name: &OsStr) -> rustix::io::Result<()> {
        self.is_roots_way &= !is_open_to_others(&fstat(&self.dir)?);
        match openat(&self.dir, name, LOOK | OFlags::DIRECTORY, Mode::empty()) {
            Ok(dir) => self.dir = dir,
            // A link is no directory.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let link = link(&self.dir, name)?.ok_or(Errno::NOTDIR)?;
                self.follow(&link)?;
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Goes where a link to a directory leads that is in this one.
    pub fn follow(&mut self, link: &Link) -> rustix::io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        if link.owner == 0 {
            return self.go(&link.target);
        }
        self.is_roots_way = false;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.dir, &link.target, flags, Mode::empty())?;
        if fstat(&dir)?.st_uid != link.owner {
            return Err(Errno::LOOP);
        }
        self.dir = dir;
        Ok(())
    }
}
