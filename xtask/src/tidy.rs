//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! * A crate uses only the crates below it in ARCHITECTURE.md's table, which is read, not
//!   repeated here; the crates the table calls *pure* know no sockets, no clock, no runtime.
//! * `std::os`, conditions on the system and the bytes of paths live in `crates/runtime`.
//! * `unsafe` lives in `crates/runtime` and in the one file at Lua's border, `.unwrap()` in tests.
//! * Every directive stands in a black-box test.
//! * The files of `backend` use each other in no circle, those of `http` in small ones.
//! * What protocols have in common stands in no two of their crates.
//! * Files have at most 1,000 lines (the border to Lua 1,600), functions 70, and none names a person's machine.

mod border;
mod circles;
mod covered;
mod functions;
mod layers;
mod source;
mod twins;

use std::fs;
use std::path::{Path, PathBuf};

use circles::Files;
use layers::Layers;
use source::{code, without_tests, words};

const MAX_LINES: usize = 1000;
/// All of the border to Lua that is unsafe is one file.
const BORDER: (&str, usize) = ("crates/lua/src/border.rs", 1600);
/// Written by programs.
const GENERATED: &[&str] = &[
    "Cargo.lock",
    "dashboard/package-lock.json",
    "docs/compatibility.md",
    "docs/directives.md",
    "docs/inventory/directives.tsv",
    "docs/inventory/lua_api.tsv",
    "docs/lua.md",
    "xtask/loki/go.sum",
];
const SKIPPED_DIRS: &[&str] = &["target", ".git", ".worktrees", "node_modules"];
/// Crates whose files use each other in no circle, or in circles of no more than so many: a request leads
/// to its configuration, that to handlers, and those to the request.
const CIRCLES: &[(&str, usize)] = &[("backend", 0), ("http", 8)];
/// What a pure crate does not say.
const IMPURE: &[&str] = &[
    "Instant",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
    "libc",
    "mio",
    "socket2",
    "tokio",
];
/// First parts of paths that exist on one person's machine; the slashes are added where they
/// are looked for, or this file would name them.
const MACHINE_ROOTS: &[&str] = &["home", "root", "work", "Users"];

/// The one file that calls LuaJIT.
const LUA_BORDER: &str = "crates/lua/src/border.rs";

pub fn run(root: &Path) -> Result<(), String> {
    let problems = check(root)?;
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n")),
    }
}

/// Every breach of the rules, as `file:line: what`.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let layers = Layers::parse(&architecture)?;
    let mut problems = layers.check(root)?;
    problems.extend(covered::check(root)?);
    let mut files = Vec::new();
    walk(root, root, &mut files)?;
    let test_files = test_files(root, &files)?;
    for (room, most) in CIRCLES {
        let files = Files::read(root, room, &test_files)?;
        problems.extend(files.circles().iter().filter(|circle| circle.len() > *most).map(
            |circle| {
                let (n, all) = (circle.len(), circle.join(", "));
                format!(
                "crates/{room}: {n} files use each other in a circle, {most} are the most: {all}"
            )
            },
        ));
    }
    let mut shapes = Vec::new();
    for path in &files {
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        let name = path.to_string_lossy().replace('\\', "/");
        let is_test =
            test_files.iter().any(|t| path == t || path.starts_with(t.with_extension("")));
        problems.extend(check_text(&name, &text));
        if name.ends_with(".rs") {
            problems.extend(check_code(&name, &text, is_test, &layers));
            shapes.extend(shape(&name, &text).filter(|_| !is_test));
        }
    }
    problems.extend(twins::found(&shapes));
    Ok(problems)
}

/// What of a crate's code is compared with others'.
fn shape(name: &str, text: &str) -> Option<twins::Shape> {
    let (room, rest) = name.strip_prefix("crates/")?.split_once('/')?;
    let code = rest.starts_with("src/").then(|| without_tests(&code(text)))?;
    twins::Shape::new(room, name, &code)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Files below `dir`, relative to `root`, in order.
fn walk(root: &Path, dir: &Path, out: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if SKIPPED_DIRS.contains(&&*name) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, out)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            out.push(relative.to_path_buf());
        }
    }
    Ok(())
}

/// Files that a `#[cfg(test)] mod name;` includes.
fn test_files(root: &Path, files: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        for module in source::test_modules(&code(&read(&root.join(path))?)) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let dir = match &*stem {
                "lib" | "main" | "mod" => path.with_file_name(""),
                _ => path.with_extension(""),
            };
            found.push(dir.join(format!("{module}.rs")));
        }
    }
    Ok(found)
}

/// Rules for every file.
fn check_text(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = text.lines().count();
    let max = if name == BORDER.0 { BORDER.1 } else { MAX_LINES };
    if lines > max && !GENERATED.contains(&name) {
        problems.push(format!("{name}: {lines} lines; {max} are the most"));
    }
    for (at, line) in text.lines().enumerate() {
        if let Some(found) = machine_path(line) {
            problems.push(format!("{name}:{}: a path of one machine: {found}", at + 1));
        }
    }
    problems
}

fn machine_path(line: &str) -> Option<String> {
    MACHINE_ROOTS.iter().find_map(|first| {
        let needle = format!("/{first}/");
        let is_start = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "._-%/}~*".contains(c))
        };
        line.match_indices(&needle).find(|(at, _)| is_start(*at)).map(|_| needle.clone())
    })
}

/// Rules for Rust.
fn check_code(name: &str, text: &str, is_test: bool, layers: &Layers) -> Vec<String> {
    let all = code(text);
    let mut problems = Vec::new();
    let mut say = |line: usize, what: String| problems.push(format!("{name}:{line}: {what}"));
    let room = name.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    if !matches!(room, Some(("runtime", _))) && name != LUA_BORDER {
        for (line, word) in words(&all).filter(|(_, w)| ["unsafe", "unsafe_code"].contains(w)) {
            say(line, format!("`{word}` belongs in crates/runtime"));
        }
    }
    let Some((room, rest)) = room else { return problems };
    if is_test || !rest.starts_with("src/") {
        return problems;
    }
    let code = without_tests(&all);
    for (line, what) in functions::too_long(&code) {
        say(line, what);
    }
    for (at, line) in code.lines().enumerate() {
        if line.contains(".unwrap()") {
            say(at + 1, "`.unwrap()` outside tests".to_owned());
        }
    }
    if room != border::HOME {
        for (line, what) in border::crossings(&code) {
            say(line, format!("`{what}` belongs in crates/{}", border::HOME));
        }
    }
    if layers.is_pure(room) {
        for (line, word) in words(&code).filter(|(_, w)| IMPURE.contains(w)) {
            say(line, format!("`{word}` in a pure crate"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Layers {
        Layers::parse("| crate | x |\n| --- | --- |\n| `top` | t |\n| `low` | l — *pure* |\n")
            .unwrap()
    }

    fn code_problems(name: &str, text: &str) -> Vec<String> {
        check_code(name, text, false, &layers())
    }

    #[test]
    fn the_project_is_tidy() {
        let problems = check(&crate::root()).unwrap();
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }

    #[test]
    fn unsafe_has_one_home() {
        let text = "// unsafe\nfn f() { unsafe { g() } }\nlet s = \"unsafe\"; unsafe_uri();";
        assert_eq!(
            code_problems("crates/top/src/a.rs", text),
            ["crates/top/src/a.rs:2: `unsafe` belongs in crates/runtime"]
        );
        assert_eq!(code_problems("tests/src/a.rs", text).len(), 1);
        assert_eq!(code_problems("crates/top/src/a.rs", "#![allow(unsafe_code)]").len(), 1);
        assert_eq!(code_problems("crates/lua/src/border.rs", text), [] as [String; 0]);
        assert_eq!(code_problems("crates/lua/src/vm.rs", text).len(), 1);
        assert!(code_problems("crates/runtime/src/a.rs", text).is_empty());
    }

    #[test]
    fn the_system_has_one_border() {
        for (text, what) in [
            ("use std::os::fd::RawFd;", "std::os"),
            ("use std::{io, os::unix::fs::FileExt};", "std::os"),
            ("let b = name.as_encoded_bytes();", "as_encoded_bytes"),
            ("#[cfg(unix)]\nfn f() {}", "cfg(unix)"),
            (
                "#[cfg(all(feature = \"x\", not(target_os = \"linux\")))]\nfn f() {}",
                "cfg(target_os)",
            ),
            ("#[cfg_attr(windows, allow(x))]\nfn f() {}", "cfg(windows)"),
            (
                "const N: u8 = if cfg!(target_family = \"unix\") { 1 } else { 2 };",
                "cfg(target_family)",
            ),
        ] {
            let wanted = format!("crates/top/src/a.rs:1: `{what}` belongs in crates/runtime");
            assert_eq!(code_problems("crates/top/src/a.rs", text), [wanted]);
            assert!(code_problems("crates/runtime/src/a.rs", text).is_empty());
            assert!(code_problems("tests/src/a.rs", text).is_empty());
            assert!(check_code("crates/top/src/t.rs", text, true, &layers()).is_empty());
        }
        for text in
            ["// std::os::fd\nlet s = \"cfg(unix)\";", "#[cfg(feature = \"unix\")]\nfn unix() {}"]
        {
            assert!(code_problems("crates/top/src/a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn unwrap_is_for_tests() {
        let text = "fn f() {\n x.unwrap() }\n#[cfg(test)]\nmod tests { fn t() { x.unwrap(); } }";
        assert_eq!(
            code_problems("crates/top/src/a.rs", text),
            ["crates/top/src/a.rs:2: `.unwrap()` outside tests"]
        );
        assert!(code_problems("crates/top/tests/a.rs", text).is_empty());
        assert!(check_code("crates/top/src/t.rs", text, true, &layers()).is_empty());
        assert!(code_problems("crates/top/src/a.rs", "// x.unwrap()\nx.unwrap_or(1)").is_empty());
    }

    #[test]
    fn pure_crates_know_no_clock_and_no_socket() {
        let text = "use std::net::IpAddr;\nuse std::time::Instant;\nfn f(s: &TcpStream) {}";
        assert_eq!(code_problems("crates/low/src/a.rs", text).len(), 2);
        assert!(code_problems("crates/top/src/a.rs", text).is_empty());
    }

    #[test]
    fn machine_paths() {
        for root in MACHINE_ROOTS {
            assert!(machine_path(&format!("x = \"/{root}/me/x\"")).is_some());
            assert!(machine_path(&format!("/usr/{root}/x /{root}y")).is_none());
        }
    }

    #[test]
    fn long_files() {
        let text = "\n".repeat(MAX_LINES + 1);
        assert_eq!(check_text("a.rs", &text).len(), 1);
        assert!(check_text("Cargo.lock", &text).is_empty());
        assert!(check_text("a.rs", &text[1..]).is_empty());
    }
}
