//! What the program is built and run with: installed, or unpacked below `target/windows/kit` (`apt.rs`).
//!
//! No standard library for Windows is to be had built, so it is built from its source: Debian's rustc-web, cargo-web and
//! rust-web-src are a compiler and that source, of one version; mingw-w64 links, wine runs.

use crate::apt::Home;
use crate::child::quiet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// 310 MB.
const DOWNLOAD_MAX: Duration = Duration::from_secs(300);

/// Packages that are used together, and files by which they are known; the first is a program, which is asked for its
/// version like that.
pub struct Part {
    packages: &'static [&'static str],
    files: &'static [&'static str],
    version: &'static str,
}

const RUST: Part = Part {
    packages: &["rustc-web", "cargo-web", "rust-web-src"],
    files: &["usr/bin/rustc", "usr/bin/cargo", "usr/lib/rustlib/src/rust/library/std/Cargo.toml"],
    version: "--version",
};
const LINKER: Part = Part {
    packages: &["gcc-mingw-w64-x86-64-win32"],
    files: &["usr/bin/x86_64-w64-mingw32-gcc", "usr/bin/x86_64-w64-mingw32-strip"],
    version: "--version",
};
const WINE: Part = Part {
    packages: &["wine64"],
    files: &["usr/lib/wine/wine64", "usr/lib/wine/wineserver64"],
    version: "--version",
};
const INSTALLER: Part = Part {
    packages: &["nsis"],
    files: &["usr/bin/makensis", "usr/share/nsis/Stubs/zlib-x86-unicode"],
    version: "-VERSION",
};
/// What is built alone, and what is only looked at, needs no wine.
pub const BUILDS: &[Part] = &[RUST, LINKER];
pub const TESTS: &[Part] = &[RUST, LINKER, WINE];
const ALL: &[Part] = &[RUST, LINKER, WINE, INSTALLER];

/// Names that files have once their packages are installed (update-alternatives), or that lead to where they are then.
const LINKS: [(&str, &str); 2] = [
    ("usr/bin/x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-gcc-win32"),
    ("usr/lib/wine/wineserver", "wineserver64"),
];

pub struct Kit {
    /// Where what is not installed is.
    unpacked: PathBuf,
}

impl Kit {
    /// What there is, of what is kept in that folder.
    pub fn of(place: &Path) -> Kit {
        Kit { unpacked: place.join("kit/root") }
    }

    pub fn rustc(&self) -> PathBuf {
        self.root(&RUST).join("usr/bin/rustc")
    }

    pub fn cargo(&self) -> PathBuf {
        self.root(&RUST).join("usr/bin/cargo")
    }

    pub fn wine(&self) -> PathBuf {
        self.root(&WINE).join("usr/lib/wine/wine64")
    }

    pub fn wineserver(&self) -> PathBuf {
        self.root(&WINE).join("usr/lib/wine/wineserver64")
    }

    /// What wine's own libraries need, and is another package's: an installed wine knows where it is.
    pub fn library(&self) -> Option<PathBuf> {
        let library = self.unpacked.join("usr/x86_64-w64-mingw32/lib/zlib1.dll");
        library.exists().then_some(library)
    }

    /// What programs have in their environment to find each other and their libraries.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        if !self.unpacked.exists() {
            return Vec::new();
        }
        let at = |place: &str| self.unpacked.join(place);
        let joined = |places: Vec<PathBuf>| std::env::join_paths(places).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        // Last: the compiler of this machine is another.
        path.push(at("usr/bin"));
        let libraries = vec![at("usr/lib/x86_64-linux-gnu"), at("usr/lib")];
        let mut all = vec![("PATH", joined(path)), ("LD_LIBRARY_PATH", joined(libraries))];
        let nsis = self.unpacked.join("usr/share/nsis");
        if nsis.exists() {
            all.push(("NSISDIR", nsis.into()));
        }
        all
    }

    /// What of that is not there, and how to get it.
    pub fn missing(&self, parts: &[Part]) -> Option<String> {
        let packages = self.packages(parts).join(" ");
        (!packages.is_empty()).then(|| {
            format!("missing: {packages}; apt-get install --no-install-recommends {packages}")
        })
    }

    /// Gets what is missing, where that is possible and wanted.
    pub fn get(&self, may_install: bool) {
        let packages = self.packages(ALL);
        let names = packages.join(" ");
        if names.is_empty() {
            return;
        }
        println!("missing for Windows: {names}");
        let home = Home(self.unpacked.parent().unwrap_or(&self.unpacked));
        if let Some(why) = home.cannot(&names, may_install) {
            return println!("{why}");
        }
        println!("downloading {names} into {}", home.0.display());
        if let Err(text) = self.download(&home, &packages) {
            println!("{text}");
        }
        let names = self.packages(ALL).join(" ");
        home.tried(&names);
        if !names.is_empty() {
            println!("still missing: {names}");
        }
    }

    fn download(&self, home: &Home, packages: &[&str]) -> Result<(), String> {
        home.update()?;
        home.fetch(packages, DOWNLOAD_MAX)?;
        home.unpack(&self.unpacked)?;
        for (name, to) in LINKS {
            let name = self.unpacked.join(name);
            let Some(folder) = name.parent().filter(|folder| folder.join(to).exists()) else {
                continue;
            };
            // What is there is a script with the installed one's path.
            let _ = fs::remove_file(&name);
            std::os::unix::fs::symlink(to, &name)
                .map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        Ok(())
    }

    fn packages(&self, parts: &[Part]) -> Vec<&'static str> {
        let missing = parts.iter().filter(|part| self.place(part).is_none());
        missing.flat_map(|part| part.packages).copied().collect()
    }

    /// Where all of that is: a compiler takes the library's source of where it is itself.
    fn place(&self, part: &Part) -> Option<&Path> {
        let is_there = |root: &&Path| {
            let all = part.files.iter().all(|file| root.join(file).exists());
            all && part.files.first().is_some_and(|file| self.runs(&root.join(file), part.version))
        };
        [Path::new("/"), &self.unpacked].into_iter().find(is_there)
    }

    fn root(&self, part: &Part) -> &Path {
        self.place(part).unwrap_or(Path::new("/"))
    }

    /// An unpacked one may lack a library.
    fn runs(&self, program: &Path, version: &str) -> bool {
        quiet(Command::new(program).arg(version).envs(self.environment()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_missing_is_named() {
        const NOWHERE: Part = Part { packages: &["a", "b"], files: &["nowhere/a"], version: "" };
        const SHELL: Part = Part { packages: &["c"], files: &["bin/true"], version: "" };
        let kit = Kit::of(Path::new("/nowhere"));
        let text = "missing: a b; apt-get install --no-install-recommends a b";
        assert_eq!(kit.missing(&[SHELL, NOWHERE]).as_deref(), Some(text));
        assert!(kit.missing(&[SHELL]).is_none() && kit.environment().is_empty());
        // What needs no wine does not ask for it.
        assert!(BUILDS.iter().all(|part| !part.packages.contains(&"wine64")));
    }

    #[test]
    fn what_is_unpacked_counts_where_all_of_it_runs() {
        const PART: Part =
            Part { packages: &["a"], files: &["usr/bin/none-such", "usr/source"], version: "" };
        let place = std::env::temp_dir().join(format!("weir-xtask-kit-{}", std::process::id()));
        let kit = Kit::of(&place);
        let program = kit.unpacked.join("usr/bin/none-such");
        fs::create_dir_all(kit.unpacked.join("usr/bin")).unwrap();
        fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(kit.place(&PART).is_none());
        fs::write(kit.unpacked.join("usr/source"), "").unwrap();
        assert!(kit.place(&PART).is_none());
        fs::write(&program, "#!/bin/sh\n").unwrap();
        assert_eq!(kit.place(&PART), Some(kit.unpacked.as_path()));
        let environment = kit.environment();
        let path = environment.iter().find(|(name, _)| *name == "PATH").unwrap();
        let last = std::env::split_paths(&path.1).last().unwrap();
        assert_eq!(last, kit.unpacked.join("usr/bin"));
        fs::remove_dir_all(&place).unwrap();
    }
}
