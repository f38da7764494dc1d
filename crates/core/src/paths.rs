//! Directories for temporary files: as they are configured, and made.

use crate::os_text;
use std::path::PathBuf;
use std::sync::Arc;
use weir_base::units;
use weir_module::{ArgsExt, Cf, ConfResult, Directive, Layout, Mode};

#[derive(Clone, Debug)]
pub struct TempPath {
    pub path: PathBuf,
    pub levels: [u8; 3],
}

/// Directory and up to three levels.
pub fn temp_path(cf: &Cf, d: &Directive) -> ConfResult<Arc<TempPath>> {
    let mut levels = [0u8; 3];
    for (i, level) in levels.iter_mut().enumerate().take(d.args.len().saturating_sub(1)) {
        let n = units::parse_int(d.arg(i + 1)).filter(|n| (1..=3).contains(n));
        *level = n.ok_or_else(|| d.invalid(i + 1))? as u8;
    }
    Ok(Arc::new(TempPath { path: cf.full_path(d.arg(0)), levels }))
}

/// The directory as it is used, made unless this is a test. One that the configuration does not name
/// (it is relative still) is the build's, and is made with what leads there.
pub fn made_temp_path(
    temp: &Arc<TempPath>,
    prefix: &std::path::Path,
    mode: Mode,
) -> ConfResult<Arc<TempPath>> {
    if !temp.path.is_relative() {
        return make_temp_dir(&temp.path, mode).map(|()| Arc::clone(temp));
    }
    let path = Layout::here().temp_path(prefix, &temp.path);
    if mode == Mode::Serve {
        make_dir(&path, true).map_err(|e| mkdir_failed(&path, &e))?;
    }
    Ok(Arc::new(TempPath { path, levels: temp.levels }))
}

/// A directory that the configuration names.
pub fn make_temp_dir(path: &std::path::Path, mode: Mode) -> ConfResult {
    let made = match mode {
        Mode::Test => could_make(path),
        Mode::Serve => make_dir(path, false),
    };
    made.map_err(|e| mkdir_failed(path, &e))
}

fn mkdir_failed(path: &std::path::Path, e: &std::io::Error) -> weir_module::Diagnostic {
    let text = format!("mkdir() \"{}\" failed ({})", path.display(), os_text(e));
    weir_module::Diagnostic::emerg(text)
}

/// Nobody else may read request and response bodies.
#[cfg(unix)]
fn make_dir(path: &std::path::Path, with_parents: bool) -> std::io::Result<()> {
    weir_runtime::trusted::make_dir(path, with_parents)
}

#[cfg(not(unix))]
fn make_dir(path: &std::path::Path, with_parents: bool) -> std::io::Result<()> {
    if let Some(parent) = path.parent().filter(|p| with_parents && !p.exists()) {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::create_dir(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Whether there is a place for a directory. Who tests need not be who may make it.
fn could_make(path: &std::path::Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    match std::fs::metadata(parent) {
        Err(e) if e.kind() != std::io::ErrorKind::PermissionDenied => Err(e),
        _ => Ok(()),
    }
}
