//! Reading a directory for `autoindex` and `random_index`.

use std::fs::{self, FileType, Metadata, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_core::Session;
use weir_http::location::map_uri_into;
use weir_http::module::Flow;
use weir_http::symlinks::Guard;
use weir_http::Request;
use weir_runtime::{files, paths};

/// One name in a directory, as its target is when it is a link that leads somewhere.
pub struct Entry {
    pub name: Vec<u8>,
    pub kind: FileType,
    /// Unix seconds.
    pub mtime: i64,
    pub size: u64,
}

/// Opens the directory that the request's URI names; the path is without its last slash.
pub fn open(r: &mut Request) -> Result<(PathBuf, ReadDir), Flow> {
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
        Ok(dir) => Ok((path, dir)),
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

/// Every name that does not begin with a dot. Failures are logged; one that is not about a single
/// file ends the reading.
pub fn read(r: &mut Request, path: &Path, dir: ReadDir) -> Result<Vec<Entry>, Flow> {
    let mut list = Vec::new();
    for item in dir {
        let item = item.map_err(|e| failed(r, "readdir", path, &e))?;
        let name = paths::bytes(&item.file_name()).to_vec();
        if name.first() == Some(&b'.') {
            continue;
        }
        let full = item.path();
        let meta = match metadata(&full) {
            Ok(meta) => meta,
            Err(e) => {
                let flow = failed(r, "stat", &full, &e);
                match e.kind() {
                    io::ErrorKind::PermissionDenied => continue,
                    _ => return Err(flow),
                }
            }
        };
        let (kind, size) = (meta.file_type(), meta.len());
        list.push(Entry { name, kind, mtime: files::modified_secs(&meta), size });
    }
    Ok(list)
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

fn failed(r: &mut Request, call: &str, path: &Path, e: &io::Error) -> Flow {
    r.log(LogLevel::Crit, &format!("{call}() \"{}\" failed ({})", path.display(), os_text(e)));
    Flow::Status(500)
}
