//! What is done with files and trees, by a thread that may block.

use super::destination::Depth;
use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use weir_cache::spool;
use weir_runtime::files::Identity;
use weir_runtime::{files, paths};

/// The status that a failure is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Status(pub(super) u16);

/// A call that has failed.
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
    pub(super) status: Status,
}

impl Failure {
    /// `missing`: the status where something on the way is not there.
    fn new(call: &'static str, path: &Path, error: io::Error, missing: u16) -> Failure {
        use io::ErrorKind as K;
        let status = match error.kind() {
            K::NotFound | K::NotADirectory | K::InvalidFilename => missing,
            K::PermissionDenied => 403,
            K::AlreadyExists => 405,
            K::StorageFull | K::QuotaExceeded => 507,
            _ => 500,
        };
        Failure::with(call, path, error, status)
    }

    fn with(call: &'static str, path: &Path, error: io::Error, status: u16) -> Failure {
        Failure { call, path: path.into(), error, status: Status(status) }
    }
}

/// What became of it.
pub(super) struct Done {
    /// Files of a tree that were left out, the first of them.
    pub(super) skipped: Vec<Failure>,
    pub(super) result: Result<(), Failure>,
}

impl From<Result<(), Failure>> for Done {
    fn from(result: Result<(), Failure>) -> Done {
        Done { skipped: Vec::new(), result }
    }
}

/// Failures within a tree that are told.
const SKIPPED_MAX: usize = 20;

type Skipped = Vec<Failure>;

fn skip(skipped: &mut Skipped, failure: Failure) {
    if skipped.len() < SKIPPED_MAX {
        skipped.push(failure);
    }
}

/// A file that has come as a body.
pub(super) struct Put {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    pub(super) access: u32,
    pub(super) makes_path: bool,
    /// Unix seconds.
    pub(super) modified_secs: Option<i64>,
}

/// Puts it in its place; whether there was none.
pub(super) fn put(put: &Put) -> Result<bool, Failure> {
    let Put { from, to, access, makes_path, modified_secs } = put;
    let is_new = match fs::metadata(to) {
        Err(_) => true,
        Ok(m) if m.is_dir() => {
            let e = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(Failure::with("rename", to, e, 409));
        }
        Ok(_) => false,
    };
    let prepared = File::options().write(true).open(from).and_then(|file| {
        files::set_mode(&file, *access)?;
        let time = modified_secs.and_then(|secs| u64::try_from(secs).ok());
        time.map_or(Ok(()), |secs| {
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs))
        })
    });
    prepared.map_err(|e| Failure::new("open", from, e, 500))?;
    if *makes_path {
        make_way(to, *access)?;
    }
    relocate(from, to).map_err(|e| Failure::new("rename", to, e, 409))?;
    Ok(is_new)
}

/// The directories on the way to a file, which whoever may read the file may enter.
fn make_way(to: &Path, access: u32) -> Result<(), Failure> {
    let Some(dir) = to.parent().filter(|d| !d.is_dir()) else { return Ok(()) };
    files::make_dirs(dir, dir_access(access)).map_err(|e| Failure::new("mkdir", dir, e, 409))
}

/// Who may read may also enter.
fn dir_access(access: u32) -> u32 {
    access | (access & 0o444) >> 2
}

/// Renames a file; from one disk to another it is copied.
fn relocate(from: &Path, to: &Path) -> io::Result<()> {
    match files::supplant(from, to, spool::beside) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            copy_file(from, to)?;
            files::remove(from)
        }
        done => done,
    }
}

/// Copies a file's content, rights and date; it appears whole, in the place of what was there.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let beside = spool::beside(to);
    let copied = fs::copy(from, &beside).and_then(|_| {
        let modified = fs::metadata(from)?.modified()?;
        // Its rights may forbid writing; the date is the owner's to set.
        files::set_modified(&beside, modified)?;
        files::supplant(&beside, to, spool::beside)
    });
    if copied.is_err() {
        // What was not copied whole is not left there.
        let _ = files::remove(&beside);
    }
    copied
}

/// A path without the slash at its end, behind which a link would be followed.
fn bare(path: &Path) -> PathBuf {
    let bytes = paths::bytes(path);
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(1, |at| at + 1);
    paths::path(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

pub(super) fn make_collection(path: &Path, access: u32) -> Done {
    let path = bare(path);
    let made = fs::create_dir(&path)
        .and_then(|()| files::set_mode(&files::open_dir(&path)?, dir_access(access)));
    made.map_err(|e| Failure::new("mkdir", &path, e, 409)).into()
}

pub(super) fn delete(path: &Path, is_collection: bool, depth: Depth) -> Done {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(e) => {
            let missing = if e.kind() == io::ErrorKind::NotADirectory { 409 } else { 404 };
            return Err(Failure::new("lstat", path, e, missing)).into();
        }
    };
    let refuse = |status| {
        let e = io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a collection, or the \"Depth\" is not its",
        );
        Done::from(Err(Failure::with("delete", path, e, status)))
    };
    if !found.is_dir() {
        return match depth {
            Depth::One => refuse(400),
            _ => delete_file(path).into(),
        };
    }
    match (is_collection, depth) {
        (false, _) => refuse(409),
        (true, Depth::Infinity) => delete_tree(&bare(path)),
        _ => refuse(400),
    }
}

fn delete_file(path: &Path) -> Result<(), Failure> {
    files::remove(path).map_err(|e| Failure::new("unlink", path, e, 404))
}

/// What cannot be removed stays, and so does the way to it.
fn delete_tree(path: &Path) -> Done {
    let mut skipped = Vec::new();
    let visited = walk(path, &mut skipped, &mut |path, what| match what {
        Visit::Enter => Ok(()),
        Visit::Leave => fs::remove_dir(path).map_err(|e| Failure::new("rmdir", path, e, 404)),
        Visit::File(_) => delete_file(path),
    });
    Done { skipped, result: visited }
}

enum Visit {
    /// A directory, before what is in it.
    Enter,
    /// The same behind that.
    Leave,
    /// Anything else; links are not followed.
    File(FileType),
}

/// Goes through a tree; what fails within is noted, and what fails with its root is the end.
fn walk(
    root: &Path,
    skipped: &mut Skipped,
    visit: &mut dyn FnMut(&Path, Visit) -> Result<(), Failure>,
) -> Result<(), Failure> {
    visit(root, Visit::Enter)?;
    // Directories that are still to be gone through, each with whether that has begun.
    let mut todo = vec![(root.to_path_buf(), false)];
    while let Some((dir, is_done)) = todo.pop() {
        let is_root = todo.is_empty();
        if is_done {
            match visit(&dir, Visit::Leave) {
                Err(failure) if is_root => return Err(failure),
                Err(failure) => skip(skipped, failure),
                Ok(()) => {}
            }
            continue;
        }
        todo.push((dir.clone(), true));
        if let Err(failure) = enter(&dir, &mut todo, skipped, visit) {
            if is_root {
                return Err(failure);
            }
            skip(skipped, failure);
        }
    }
    Ok(())
}

/// Visits what a directory holds; the directories among it are to be gone through next.
fn enter(
    dir: &Path,
    todo: &mut Vec<(PathBuf, bool)>,
    skipped: &mut Skipped,
    visit: &mut dyn FnMut(&Path, Visit) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |e| Failure::new("opendir", dir, e, 404);
    for item in fs::read_dir(dir).map_err(failed)? {
        let item = item.map_err(failed)?;
        let path = item.path();
        let visited = match item.file_type() {
            Err(e) => Err(Failure::new("lstat", &path, e, 404)),
            Ok(kind) if kind.is_dir() => {
                let entered = visit(&path, Visit::Enter);
                if entered.is_ok() {
                    todo.push((path, false));
                }
                entered
            }
            Ok(kind) => visit(&path, Visit::File(kind)),
        };
        if let Err(failure) = visited {
            skip(skipped, failure);
        }
    }
    Ok(())
}

/// A COPY or MOVE.
pub(super) struct Transfer {
    pub(super) moves: bool,
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    /// Both are.
    pub(super) is_collection: bool,
    pub(super) overwrite: bool,
    pub(super) depth: Depth,
    /// Of directories that are made on the way.
    pub(super) access: u32,
}

/// Whether a name is another's, or below it, also where one folder has several (by the case of letters on Windows, by
/// links on the way): a tree that is copied into itself has no end.
fn is_within(path: &Path, folder: &Path) -> bool {
    let own = Identity::at(folder).ok();
    let is_it = |p: &Path| own.is_some() && Identity::at(p).ok() == own;
    path.starts_with(folder) || path.ancestors().any(is_it)
}

pub(super) fn transfer(t: Transfer) -> Done {
    let (from, to) = (plain(&t.from), plain(&t.to));
    if from == to || t.is_collection && (is_within(&to, &from) || is_within(&from, &to)) {
        let e = io::Error::new(io::ErrorKind::InvalidInput, "both are in the same place");
        return Err(Failure::with("rename", &to, e, 403)).into();
    }
    let replaced = match fs::symlink_metadata(&to) {
        Ok(there) => match may_replace(&t, &to, &there) {
            Ok(()) => Some(there),
            Err(failure) => return Err(failure).into(),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(Failure::new("lstat", &to, e, 404)).into(),
    };
    let found = match fs::symlink_metadata(&from) {
        Ok(found) => found,
        Err(e) => return Err(Failure::new("lstat", &from, e, 404)).into(),
    };
    match (found.is_dir(), t.is_collection) {
        (true, true) => {}
        (false, false) => return transfer_file(&t, &from, &to).into(),
        (is_dir, _) => {
            let kind =
                if is_dir { io::ErrorKind::IsADirectory } else { io::ErrorKind::NotADirectory };
            let status = if is_dir { 400 } else { 404 };
            return Err(Failure::with("lstat", &from, kind.into(), status)).into();
        }
    }
    if let Some(there) = replaced {
        let gone = if there.is_dir() { delete_tree(&to) } else { delete_file(&to).into() };
        if gone.result.is_err() {
            return gone;
        }
    }
    transfer_tree(&t, &from, &to)
}

/// Without slashes that say nothing.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Whether what is there may go for it.
fn may_replace(t: &Transfer, to: &Path, there: &fs::Metadata) -> Result<(), Failure> {
    if there.is_dir() && !t.is_collection {
        let e = io::ErrorKind::IsADirectory.into();
        return Err(Failure::with("rename", to, e, 409));
    }
    match t.overwrite {
        true => Ok(()),
        false => Err(Failure::with("rename", to, io::ErrorKind::AlreadyExists.into(), 412)),
    }
}

fn transfer_file(t: &Transfer, from: &Path, to: &Path) -> Result<(), Failure> {
    if t.moves {
        make_way(to, t.access)?;
        return relocate(from, to).map_err(|e| Failure::new("rename", to, e, 409));
    }
    // A link's target is copied, as far as it is a file.
    let is_file = fs::metadata(from).map_err(|e| Failure::new("open", from, e, 404))?.is_file();
    if !is_file {
        let e = io::Error::new(io::ErrorKind::InvalidInput, "not a file");
        return Err(Failure::with("open", from, e, 403));
    }
    copy_file(from, to).map_err(|e| Failure::new("open", to, e, 409))
}

fn transfer_tree(t: &Transfer, from: &Path, to: &Path) -> Done {
    if t.moves && fs::rename(from, to).is_ok() {
        return Ok(()).into();
    }
    if !t.moves && t.depth == Depth::Zero {
        return copy_directory(from, to).into();
    }
    let mut skipped = Vec::new();
    let copied = walk(from, &mut skipped, &mut |path, what| {
        // It lies below `from`.
        let to = to.join(path.strip_prefix(from).unwrap_or(path));
        match what {
            Visit::Enter => copy_directory(path, &to),
            Visit::Leave => copy_date(path, &to).map_err(|e| Failure::new("utimes", &to, e, 404)),
            Visit::File(kind) if kind.is_file() => {
                copy_file(path, &to).map_err(|e| Failure::new("open", &to, e, 404))
            }
            Visit::File(_) => Ok(()),
        }
    });
    match copied {
        // What was not copied whole stays where it is.
        Ok(()) if t.moves && skipped.is_empty() => delete_tree(from),
        Ok(()) if t.moves => {
            let e = io::Error::other("not all of it could be copied");
            Done { skipped, result: Err(Failure::with("rename", to, e, 500)) }
        }
        result => Done { skipped, result },
    }
}

/// A directory with the rights of another.
fn copy_directory(from: &Path, to: &Path) -> Result<(), Failure> {
    let copied = fs::create_dir(to).and_then(|()| {
        let rights = fs::metadata(from)?.permissions();
        fs::set_permissions(to, rights)
    });
    copied.map_err(|e| Failure::new("mkdir", to, e, 409))
}

fn copy_date(from: &Path, to: &Path) -> io::Result<()> {
    files::set_modified(to, fs::metadata(from)?.modified()?)
}
