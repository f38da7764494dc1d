//! LuaJIT's sources, out of the crate that carries them.

use std::env;
use std::fs;
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
    mend(&sources.join("src/lj_asm_x86.h"));
    sources
}

/// On x86 a load may become an operand of the instruction that uses its value. LuaJIT looks whether something is
/// stored in between, but not whether a function of C's is called by the FFI, which may store as well: what an
/// operation has left for Lua was read after the next one had written there.
fn mend(path: &Path) {
    let text = fs::read_to_string(path).expect("the source is there");
    let test = "    if (ir[i].o == conflict)\n";
    let mended =
        "    if (ir[i].o == conflict || (conflict == IR_XSTORE && ir[i].o == IR_CALLXS))\n";
    assert!(text.matches(test).count() == 1, "lj_asm_x86.h is another: is the mend still needed?");
    fs::write(path, text.replace(test, mended)).expect("the folder can be written");
}
