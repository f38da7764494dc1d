//! The project's own tasks. Nothing here needs more than the standard library, so that
//! `cargo xtask` starts at once.

#![allow(clippy::print_stdout)]

mod apt;
mod cargo;
mod child;
mod compat;
mod docs;
mod instructions;
mod lua;
mod nginx_suite;
mod package;
mod peers;
mod release;
mod report;
mod suite;
mod tidy;
mod windows;
mod windows_page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test            everything: tidy, format, lints, unit and black-box tests, fuzzing
                            with --no-install, or WEIR_NO_INSTALL set, nothing is downloaded
cargo xtask peers           gets the programs that tests talk to, into target/peers
cargo xtask tidy            layering, file sizes, unsafe, unwrap, machine paths, directives without a test
cargo xtask fuzz [SECONDS]  every fuzz target, this long each (default 60);
                            WEIR_FUZZ_SEED=N repeats a run, WEIR_FUZZ_ONLY=NAME runs one target
cargo xtask suite CHECKOUT  nginx's own tests against tests/nginx-suite.tsv, for whoever has them;
                            with --write the file is written
cargo xtask docs            writes docs/directives.md from what the program says, and the other pages of
                            docs/inventory
cargo xtask windows [build] the program for Windows, in target/windows/run, by Debian's rustc-web and mingw-w64,
                            which are got into target/windows/kit where they are not installed;
                            check only looks whether it would be, test [FILTER] runs the black-box
                            tests against it under wine, test --first the first of each file against
                            the program as it is built quickest
cargo xtask release         the program as packages have it, in target/optimized: built by a profile of
                            bench/train.py's scenarios, where python3, openssl and llvm-profdata are;
                            --plain builds it without
cargo xtask package         builds Debian packages and a tarball, in target/package;
                            --binary FILE packs a program that is there, --plain builds it without
                            a profile, --out DIR goes elsewhere
cargo xtask package windows a zip, an installer by makensis, and winget's manifests for Windows;
                            --binary and --out as above, --url URL is where the zip will be
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => suite::run(&root(), apt::may_install()),
        ["test", "--no-install"] => suite::run(&root(), false),
        ["peers"] => {
            peers::get(&root(), true);
            Ok(())
        }
        ["tidy"] => tidy::run(&root()),
        ["fuzz"] => cargo::fuzz(&root(), "60"),
        ["fuzz", seconds] => cargo::fuzz(&root(), seconds),
        ["suite", checkout] => nginx_suite::run(&root(), Path::new(checkout), false),
        ["suite", checkout, "--write"] => nginx_suite::run(&root(), Path::new(checkout), true),
        ["windows", rest @ ..] => windows::run(&root(), rest),
        ["docs"] => docs::write(&root()),
        ["release", rest @ ..] => release::run(&root(), rest),
        ["package", rest @ ..] => package::run(&root(), rest),
        [] | ["help" | "-h" | "--help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown task: {}\n\n{HELP}", words.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // The test command has said everything, its sum last.
            if !text.is_empty() {
                eprintln!("{}", text.trim_end());
            }
            ExitCode::FAILURE
        }
    }
}

/// The workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}
