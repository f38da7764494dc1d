//! Trees of files, and what `dpkg-deb` and `tar` make of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAINTAINER: &str = "The Weir project <weir@localhost>";
/// What may lie beside the control file, and its mode.
const SCRIPTS: [(&str, u32); 5] = [
    ("preinst", 0o755),
    ("postinst", 0o755),
    ("prerm", 0o755),
    ("postrm", 0o755),
    ("triggers", 0o644),
];

/// A directory that stands for `/`.
pub struct Tree {
    root: PathBuf,
}

fn told<T>(path: &Path, done: std::io::Result<T>) -> Result<T, String> {
    done.map_err(|e| format!("{}: {e}", path.display()))
}

/// Runs a program to its end; what it says on standard error is the error.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{:?}: {}", command.get_program(), text.trim_end()))
        }
    }
}

impl Tree {
    /// An empty one.
    pub fn new(root: &Path) -> Result<Tree, String> {
        if root.exists() {
            told(root, fs::remove_dir_all(root))?;
        }
        told(root, fs::create_dir_all(root))?;
        Ok(Tree { root: root.to_path_buf() })
    }

    /// Where a file goes, in directories that everybody may enter.
    fn place(&self, to: &str) -> Result<PathBuf, String> {
        let path = self.root.join(to);
        let mut dir = self.root.clone();
        for part in Path::new(to).parent().into_iter().flat_map(Path::components) {
            dir.push(part);
            if !dir.exists() {
                told(&dir, fs::create_dir(&dir))?;
            }
            told(&dir, fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)))?;
        }
        Ok(path)
    }

    pub fn write(&self, to: &str, text: impl AsRef<[u8]>, mode: u32) -> Result<PathBuf, String> {
        let path = self.place(to)?;
        told(&path, fs::write(&path, text))?;
        told(&path, fs::set_permissions(&path, fs::Permissions::from_mode(mode)))?;
        Ok(path)
    }

    pub fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf, String> {
        let bytes = told(from, fs::read(from))?;
        self.write(to, bytes, mode)
    }

    pub fn link(&self, target: &str, to: &str) -> Result<(), String> {
        let path = self.place(to)?;
        told(&path, std::os::unix::fs::symlink(target, &path))
    }

    pub fn manual(&self, to: &str, text: &str) -> Result<(), String> {
        let path = self.write(to, text, 0o644)?;
        run(Command::new("gzip").arg("-9nf").arg(&path)).map(drop)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Regular files, relative to the root, in order.
    pub fn files(&self) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in told(&dir, fs::read_dir(&dir))?.flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(t) if t.is_dir() => dirs.push(path),
                    Ok(t) if t.is_file() => {
                        let name = path.strip_prefix(&self.root).unwrap_or(&path);
                        found.push(name.to_string_lossy().into_owned());
                    }
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

pub struct Package {
    pub name: &'static str,
    pub depends: String,
    /// More fields, each in a line.
    pub more: String,
    pub summary: &'static str,
    pub text: &'static str,
    pub tree: Tree,
}

impl Package {
    /// The maintainer scripts, and the triggers, that it has.
    pub fn scripts(&self, from: &Path) -> Result<(), String> {
        for (script, mode) in SCRIPTS {
            let file = from.join(format!("{}.{script}", self.name));
            if file.exists() {
                self.tree.copy(&file, &format!("DEBIAN/{script}"), mode)?;
            }
        }
        Ok(())
    }

    /// The finished package.
    pub fn build(&self, out: &Path) -> Result<PathBuf, String> {
        let files = self.tree.files()?;
        let files = files.iter().filter(|f| !f.starts_with("DEBIAN/"));
        let bytes = files.clone().filter_map(|f| fs::metadata(self.tree.root.join(f)).ok());
        let kilobytes = bytes.map(|m| m.len().div_ceil(1024)).sum::<u64>();
        let conf: String =
            files.filter(|f| f.starts_with("etc/")).map(|f| format!("/{f}\n")).collect();
        self.tree.write("DEBIAN/conffiles", conf, 0o644)?;
        let architecture = run(Command::new("dpkg").arg("--print-architecture"))?;
        let architecture = architecture.trim();
        let Package { name, depends, more, summary, text, .. } = self;
        let control = format!(
            "Package: {name}\nVersion: {VERSION}\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nSection: httpd\nPriority: optional\n\
             Installed-Size: {kilobytes}\nDepends: {depends}\n{more}\
             Description: {summary}\n {text}\n"
        );
        self.tree.write("DEBIAN/control", control, 0o644)?;
        let to = out.join(format!("{name}_{VERSION}_{architecture}.deb"));
        let mut command = Command::new("dpkg-deb");
        let level = if cfg!(test) { "-z0" } else { "-z6" };
        command
            .args(["--root-owner-group", "-Zxz", level, "--build"])
            .arg(&self.tree.root)
            .arg(&to);
        run(command.env("SOURCE_DATE_EPOCH", epoch()))?;
        Ok(to)
    }
}

/// The time that is written into packages, so that the same source gives the same bytes.
pub fn epoch() -> String {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    let committed = || run(Command::new("git").args(["log", "-1", "--format=%ct"])).ok();
    let secs = told.or_else(committed).unwrap_or_default();
    if secs.trim().is_empty() {
        "0".into()
    } else {
        secs.trim().into()
    }
}

/// The same files for systems without `dpkg`.
pub fn tarball(tree: &Tree, out: &Path) -> Result<PathBuf, String> {
    let name = format!("weir-{VERSION}-{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let to = out.join(format!("{name}.tar.gz"));
    let mut command = Command::new("tar");
    command.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--exclude=./DEBIAN",
    ]);
    command.arg(format!("--mtime=@{}", epoch())).arg(format!("--transform=s,^[.],{name},SH"));
    command.arg("-czf").arg(&to).arg("-C").arg(&tree.root).arg(".");
    run(&mut command)?;
    Ok(to)
}

/// What the program needs: the C library of at least the version whose symbols it names.
pub fn libraries(binary: &Path) -> Result<String, String> {
    let bytes = told(binary, fs::read(binary))?;
    let minor = glibc_minor(&bytes);
    Ok(match minor {
        Some(minor) => format!("libc6 (>= 2.{minor}), libgcc-s1"),
        None => "libc6, libgcc-s1".into(),
    })
}

fn glibc_minor(bytes: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    let named = bytes.windows(MARK.len()).enumerate().filter(|(_, w)| *w == MARK);
    let minors = named.filter_map(|(at, _)| {
        let digits = bytes[at + MARK.len()..].iter().take_while(|b| b.is_ascii_digit());
        let text: Vec<u8> = digits.copied().collect();
        String::from_utf8(text).ok()?.parse().ok()
    });
    minors.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        assert_eq!(glibc_minor(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE"), Some(34));
        assert_eq!(glibc_minor(b"static"), None);
    }
}
