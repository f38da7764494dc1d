//! Directories for temporary files: as they are configured, and made.

use crate::os_text;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use weir_base::bytes::split_once;
use weir_base::units;
use weir_module::{ArgsExt, Cf, ConfResult, Directive, Layout, Mode};
use weir_runtime::{paths, trusted};

/// A directory for temporary files.
#[derive(Debug)]
pub struct TempPath {
    /// As it is named; relative where the configuration names none.
    path: PathBuf,
    /// Digits of a file's number in each level of directories, from its end; 0 for no level.
    pub levels: [u8; 3],
    /// As it is used, once it has been made.
    made: OnceLock<PathBuf>,
}

impl TempPath {
    /// One that has yet to be made ([`make_temp_path`]).
    pub fn new(path: PathBuf, levels: [u8; 3]) -> Arc<TempPath> {
        Arc::new(TempPath { path, levels, made: OnceLock::new() })
    }

    /// As it was made; before that as it is configured.
    pub fn dir(&self) -> &Path {
        self.made.get().unwrap_or(&self.path)
    }
}

/// Directory and up to three levels.
pub fn temp_path(cf: &Cf, d: &Directive) -> ConfResult<Arc<TempPath>> {
    let mut levels = [0u8; 3];
    for (i, level) in levels.iter_mut().enumerate().take(d.args.len().saturating_sub(1)) {
        let n = units::parse_int(d.arg(i + 1)).filter(|n| (1..=3).contains(n));
        *level = n.ok_or_else(|| d.invalid(i + 1))? as u8;
    }
    Ok(TempPath::new(cf.full_path(d.arg(0)), levels))
}

/// Makes the directory as it is used, unless this is a test. One that the configuration does not name
/// (it is relative still) is the build's, and is made with what leads there.
pub fn make_temp_path(temp: &TempPath, prefix: &Path, mode: Mode) -> ConfResult {
    if temp.made.get().is_some() {
        return Ok(());
    }
    let mut path = temp.path.clone();
    if path.is_relative() {
        path = paths::join(prefix, Layout::here().temp_path(&path));
        if mode == Mode::Serve {
            trusted::make_dir(&path, true).map_err(|e| mkdir_failed(&path, &e))?;
        }
    } else {
        make_temp_dir(&path, mode)?;
    }
    // Only this function sets it.
    let _ = temp.made.set(path);
    Ok(())
}

/// A directory that the configuration names. Nobody else may read request and response bodies in it.
pub fn make_temp_dir(path: &std::path::Path, mode: Mode) -> ConfResult {
    let made = match mode {
        Mode::Test => could_make(path),
        Mode::Serve => trusted::make_dir(path, false),
    };
    made.map_err(|e| mkdir_failed(path, &e))
}

fn mkdir_failed(path: &std::path::Path, e: &std::io::Error) -> weir_module::Diagnostic {
    let text = format!("mkdir() \"{}\" failed ({})", path.display(), os_text(e));
    weir_module::Diagnostic::emerg(text)
}

/// Whether there is a place for a directory. Who tests need not be who may make it.
fn could_make(path: &std::path::Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    match std::fs::metadata(parent) {
        Err(e) if e.kind() != std::io::ErrorKind::PermissionDenied => Err(e),
        _ => Ok(()),
    }
}

/// Rights of files that are made, as `user:rw group:r all:r` write them; the user's are there in any case.
pub fn access(d: &Directive) -> ConfResult<u32> {
    let mut mode = 0o600;
    for i in 0..d.args.len() {
        let (who, rights) = split_once(d.arg(i), b':').ok_or_else(|| d.invalid(i))?;
        let shift = match who {
            b"user" => 6,
            b"group" => 3,
            b"all" => 0,
            _ => return Err(d.invalid(i)),
        };
        let bits = match rights {
            b"rw" => 6,
            b"r" => 4,
            _ => return Err(d.invalid(i)),
        };
        mode |= bits << shift;
    }
    Ok(mode)
}
