//! What is found, what is not, and what is said then.

use super::tools::{profdata, Compiler};
use std::fs;
use std::path::{Path, PathBuf};

/// A compiler whose directory has this in the place of `llvm-profdata`.
fn toolchain(name: &str, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let dir = std::env::temp_dir().join(format!("weir-release-{name}-{}", std::process::id()));
    let tool = dir.join("bin/llvm-profdata");
    fs::create_dir_all(dir.join("bin")).unwrap();
    fs::write(&tool, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn compiler(dir: &Path, llvm: &str) -> Compiler {
    Compiler { host: "here".into(), llvm: llvm.into(), libraries: dir.join("lib") }
}

#[test]
fn the_tool_beside_the_compiler_is_taken() {
    let dir = toolchain("own", "printf 'Vendor LLVM version 77.1.2-rust\\n  Optimized build.\\n'");
    let found = profdata(&dir, compiler(&dir, "77")).map(|tools| tools.profdata());
    assert_eq!(found.unwrap().get_program(), dir.join("bin/llvm-profdata").as_os_str());
    let _ = fs::remove_dir_all(&dir);
}

/// A profile of another LLVM may not be readable: it is said what is there, and what would do.
#[test]
fn the_tool_of_another_llvm_is_not() {
    let dir = toolchain("other", "echo 'LLVM version 77.1.2'");
    let why = profdata(&dir, compiler(&dir, "78")).map(drop).unwrap_err();
    for word in ["LLVM 78", "is of 77", "rustup component add llvm-tools", "llvm-78"] {
        assert!(why.contains(word), "{word} is not in: {why}");
    }
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn a_tool_that_says_nothing_is_none() {
    let dir = toolchain("none", "exit 1");
    assert!(profdata(&dir, compiler(&dir, "77")).is_err());
    let _ = fs::remove_dir_all(&dir);
}
