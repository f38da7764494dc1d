//! LuaJIT's sources, out of the crate that carries them.

use std::env;
use std::path::{Path, PathBuf};

/// Lays the sources out in a folder and answers where they are.
///
/// The crate does not say where it keeps them. It copies them and then calls `make`; there is none in an empty
/// search path, so that it ends there.
pub(crate) fn lay_out(out: &Path) -> PathBuf {
    let path = env::var_os("PATH");
    // It asks for the compiler, too.
    let compiler = path.as_ref().and_then(|path| {
        env::split_paths(path).map(|dir| dir.join("cc")).find(|file| file.is_file())
    });
    let named = env::var_os("CC");
    if let (Some(compiler), None) = (&compiler, &named) {
        env::set_var("CC", compiler);
    }
    env::set_var("PATH", "");
    let made = luajit_src::Build::new().out_dir(out).try_build().is_ok();
    match path {
        Some(path) => env::set_var("PATH", path),
        None => env::remove_var("PATH"),
    }
    if named.is_none() {
        env::remove_var("CC");
    }
    let sources = out.join("luajit-build");
    assert!(!made && sources.join("src/ljamalg.c").is_file(), "LuaJIT's sources were not copied");
    sources
}
