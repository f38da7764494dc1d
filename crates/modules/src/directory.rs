//! Reading a directory for `autoindex`, `fancyindex` and `random_index`.

use std::fs::{self, FileType, Metadata, ReadDir};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_core::Session;
use weir_http::client_watch::unless_client_goes;
use weir_http::location::map_uri_into;
use weir_http::module::Flow;
use weir_http::symlinks::Guard;
use weir_http::Request;
use weir_runtime::{files, paths};

/// Names that a worker looks at itself. A look takes a few microseconds if the system knows the file; what
/// is left is a thread's, or a large directory would have all others wait.
const TURN_NAMES: usize = 500;

/// Large directories that are read, and made a page of, at the same time in the whole process: the names of each are in
/// memory until there is a page.
static TURNS: Semaphore = Semaphore::const_new(2);

/// To be had by whoever works on a large directory, as long as its names are there.
pub type Turn = SemaphorePermit<'static>;

/// Waits for the turn of a large directory. Whose client has gone has none.
pub async fn turn(r: &Request) -> Result<Turn, Flow> {
    match unless_client_goes(r, false, TURNS.acquire()).await {
        Some(Ok(turn)) => Ok(turn),
        Some(Err(_)) => Err(Flow::Status(500)),
        None => Err(Flow::Status(499)),
    }
}

/// What a thread has read, unless the client goes first.
pub async fn unless_gone<T>(
    r: &Request,
    read: impl Future<Output = io::Result<T>>,
) -> Result<T, Flow> {
    match unless_client_goes(r, false, read).await {
        Some(done) => done.map_err(|_| Flow::Status(500)),
        None => Err(Flow::Status(499)),
    }
}

/// One name in a directory, as its target is when it is a link that leads somewhere.
pub struct Entry {
    pub name: Vec<u8>,
    pub kind: FileType,
    /// The name is a symbolic link.
    pub is_link: bool,
    /// Unix seconds.
    pub mtime: i64,
    pub size: u64,
}

/// A directory that is being read, name by name, and what went wrong on the way.
pub struct Reading {
    path: PathBuf,
    dir: ReadDir,
    /// Every name so far; without those that begin with a dot, or with them.
    pub entries: Vec<Entry>,
    pub with_dot_files: bool,
    failures: Vec<Failure>,
}

struct Failure {
    call: &'static str,
    path: PathBuf,
    error: io::Error,
    /// It is about the directory, and ends the reading.
    is_end: bool,
}

/// Opens the directory that the request's URI names.
pub fn open(r: &mut Request) -> Result<Reading, Flow> {
    let mut path = Vec::with_capacity(128);
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, &mut path);
    r.uri = uri;
    if path.len() > 1 && path.last() == Some(&b'/') {
        path.pop();
    }
    // Reading needs the name again; the walk says whether it may be used.
    if let Some(Err(e)) = Guard::of(r, &path).map(|g| g.open(&path)) {
        return Err(open_failed(r, &paths::path(&path), &e));
    }
    let path = paths::path(&path).into_owned();
    match fs::read_dir(&path) {
        Ok(dir) => Ok(Reading {
            path,
            dir,
            entries: Vec::new(),
            with_dot_files: false,
            failures: Vec::new(),
        }),
        Err(e) => Err(open_failed(r, &path, &e)),
    }
}

fn open_failed(r: &mut Request, path: &Path, e: &io::Error) -> Flow {
    use io::ErrorKind as K;
    let (level, status) = match e.kind() {
        K::NotFound | K::NotADirectory | K::InvalidFilename | K::InvalidInput => {
            (LogLevel::Error, 404)
        }
        K::PermissionDenied => (LogLevel::Error, 403),
        _ => (LogLevel::Crit, 500),
    };
    r.log(level, &format!("opendir() \"{}\" failed ({})", path.display(), os_text(e)));
    Flow::Status(status)
}

impl Reading {
    /// As many names as a worker has time for; whether that was all.
    pub fn read_some(&mut self) -> bool {
        (0..TURN_NAMES).any(|_| !self.next())
    }

    /// All names that are left; it may take long.
    pub fn read_all(&mut self) {
        while self.next() {}
    }

    /// What was found. Failures are logged; one that is not about a single file is the end.
    pub fn finish(self, r: &mut Request) -> Result<Vec<Entry>, Flow> {
        for Failure { call, path, error, .. } in &self.failures {
            let text = format!("{call}() \"{}\" failed ({})", path.display(), os_text(error));
            r.log(LogLevel::Crit, &text);
        }
        match self.failures.last() {
            Some(Failure { is_end: true, .. }) => Err(Flow::Status(500)),
            _ => Ok(self.entries),
        }
    }

    /// Reads the next name; whether there may be more.
    fn next(&mut self) -> bool {
        let item = match self.dir.next() {
            None => return false,
            Some(Err(e)) => return self.failed("readdir", self.path.clone(), e, true),
            Some(Ok(item)) => item,
        };
        let name = paths::bytes(&item.file_name()).to_vec();
        if name.first() == Some(&b'.') && !self.with_dot_files {
            return true;
        }
        let full = item.path();
        match metadata(&full) {
            Ok(meta) => {
                let (kind, size, mtime) =
                    (meta.file_type(), meta.len(), files::modified_secs(&meta));
                let is_link = item.file_type().is_ok_and(|kind| kind.is_symlink());
                self.entries.push(Entry { name, kind, is_link, mtime, size });
                true
            }
            Err(e) => {
                let is_end = e.kind() != io::ErrorKind::PermissionDenied;
                self.failed("stat", full, e, is_end)
            }
        }
    }

    fn failed(
        &mut self,
        call: &'static str,
        path: PathBuf,
        error: io::Error,
        is_end: bool,
    ) -> bool {
        self.failures.push(Failure { call, path, error, is_end });
        !is_end
    }
}

/// A link that leads nowhere, or in a circle, is described itself.
fn metadata(path: &Path) -> io::Result<Metadata> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound || files::is_circle(&e) => {
            fs::symlink_metadata(path)
        }
        other => other,
    }
}
