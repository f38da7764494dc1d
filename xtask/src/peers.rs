//! `cargo xtask peers`: real programs for the tests to talk to, from the distribution.
//!
//! What is installed is taken as it is. The rest is unpacked below `target/peers` (`apt.rs`): no package is
//! installed, so none starts a service. The tests look there too (`tests/src/tools.rs`).
//! Nothing here fails a run: a test whose program is missing says that it was skipped.

mod go;
mod jars;

use crate::apt::Home;
use crate::child::quiet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

const DOWNLOAD_MAX: Duration = Duration::from_secs(180);

struct Peer {
    package: &'static str,
    what: What,
}

enum What {
    /// A program (its name may go on with a version), and how it is asked for its version.
    Program(&'static str, &'static str),
    /// A directory, and how the name of a file in it begins.
    File(&'static str, &'static str),
    /// The package itself, and what of its closure is not installed, for a test that installs it.
    Package,
}

use What::{File, Package, Program};

const PEERS: &[Peer] = &[
    Peer { package: "curl", what: Program("curl", "-V") },
    Peer { package: "openssl", what: Program("openssl", "version") },
    Peer { package: "nghttp2-client", what: Program("h2load", "--version") },
    Peer { package: "nginx", what: Program("nginx", "-v") },
    Peer { package: "nginx", what: Package },
    Peer { package: "php-fpm", what: Program("php-fpm", "-v") },
    Peer { package: "uwsgi-core", what: Program("uwsgi", "--version") },
    Peer { package: "uwsgi-plugin-python3", what: File("usr/lib/uwsgi/plugins", "python3") },
    Peer { package: "memcached", what: Program("memcached", "-V") },
    Peer { package: "redis-server", what: Program("redis-server", "--version") },
    Peer { package: "mariadb-server-core", what: Program("mariadbd", "--version") },
    Peer { package: "mariadb-client-core", what: Program("mariadb", "--version") },
    Peer { package: "valgrind", what: Program("valgrind", "--version") },
    Peer { package: "faketime", what: Program("faketime", "--version") },
    Peer { package: "dovecot-core", what: Program("dovecot", "--version") },
    Peer { package: "dovecot-imapd", what: File("usr/lib/dovecot", "imap-login") },
    Peer { package: "dovecot-pop3d", what: File("usr/lib/dovecot", "pop3-login") },
    Peer { package: "litmus", what: File("usr/libexec/litmus", "basic") },
    Peer { package: "goaccess", what: Program("goaccess", "--version") },
    Peer { package: "chromium", what: File("usr/lib/chromium", "chromium") },
    Peer { package: "rsyslog", what: Program("rsyslogd", "-v") },
    Peer {
        package: "rsyslog-gnutls",
        what: File("usr/lib/x86_64-linux-gnu/rsyslog", "lmnsd_gtls"),
    },
    Peer { package: "postfix", what: File("usr/lib/postfix/sbin", "smtpd") },
];

/// Names that programs only get when their packages are installed (update-alternatives).
const BY_ALTERNATIVES: [(&str, &str); 1] = [("uwsgi", "uwsgi-core")];

/// Where the tests look for what is not installed.
pub fn dir(root: &Path) -> PathBuf {
    crate::cargo::target(root).join("peers/root")
}

/// Where packages are that were not only unpacked, of those in `dir`.
pub fn packages(dir: &Path) -> PathBuf {
    dir.with_file_name("packages")
}

/// `PATH` with what was unpacked at its end.
pub fn path(dir: &Path) -> std::ffi::OsString {
    let mut places: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    places.extend(["usr/bin", "usr/sbin"].map(|place| dir.join(place)));
    std::env::join_paths(places).unwrap_or_default()
}

/// Gets what is missing, where that is possible and wanted.
pub fn get(root: &Path, may_install: bool) {
    let dir = dir(root);
    jars::get(&dir, may_install);
    go::get(root, &dir, may_install);
    let missing = missing(&dir);
    if missing.is_empty() {
        return println!("all there: {}", names(PEERS.iter()));
    }
    println!("missing: {}", names(missing.iter().copied()));
    let home = Home(dir.parent().unwrap_or(&dir));
    if let Some(why) = home.cannot(&names(missing.iter().copied()), may_install) {
        return println!("{why}");
    }
    if let Err(text) = download(&home, &dir, &missing) {
        println!("{text}");
    }
    let missing = self::missing(&dir);
    home.tried(&names(missing.iter().copied()));
    if !missing.is_empty() {
        println!("still missing: {}", names(missing.into_iter()));
    }
}

fn names<'a>(peers: impl Iterator<Item = &'a Peer>) -> String {
    let name = |p: &Peer| match p.what {
        Package => format!("{}.deb", p.package),
        _ => p.package.to_owned(),
    };
    peers.map(name).collect::<Vec<_>>().join(" ")
}

fn missing(dir: &Path) -> Vec<&'static Peer> {
    PEERS.iter().filter(|p| !p.is_there(dir)).collect()
}

impl Peer {
    fn is_there(&self, dir: &Path) -> bool {
        match self.what {
            Program(name, flag) => program(dir, name, flag),
            File(place, start) => {
                let roots = [Path::new("/"), dir];
                roots.iter().any(|root| !beginning(&root.join(place), start).is_empty())
            }
            Package => {
                let start = format!("{}_", self.package);
                !beginning(&packages(dir), &start).is_empty()
            }
        }
    }
}

/// Files of a directory whose names begin like this.
fn beginning(dir: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let begins = |e: &fs::DirEntry| e.file_name().to_string_lossy().starts_with(start);
    entries.filter(begins).map(|e| e.path()).collect()
}

/// Whether such a program is there and runs: an unpacked one may lack a library.
fn program(dir: &Path, name: &str, flag: &str) -> bool {
    let runs = |path: &Path, command: &mut Command| {
        let end = path.file_name().unwrap_or_default().to_string_lossy();
        // `php-fpm8.2` is one, `nginx-debug` is not.
        let version = end.strip_prefix(name).unwrap_or("-");
        version.chars().all(|c| c.is_ascii_digit() || c == '.') && quiet(command.arg(flag))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .flat_map(|d| beginning(&d, name))
        .any(|p| runs(&p, &mut Command::new(&p)));
    let unpacked = || ["usr/sbin", "usr/bin"].iter().flat_map(|d| beginning(&dir.join(d), name));
    let libraries = || crate::peers::libraries(dir);
    installed || unpacked().any(|p| runs(&p, Command::new(&p).env("LD_LIBRARY_PATH", libraries())))
}

/// Where unpacked programs find their libraries: two folders deep, as `tests/src/tools.rs` has them.
pub fn libraries(dir: &Path) -> std::ffi::OsString {
    let folders = |of: &Path| beginning(of, "").into_iter().filter(|p| p.is_dir());
    let mut places = Vec::new();
    for lib in ["usr/lib", "lib"].map(|lib| dir.join(lib)) {
        let first: Vec<PathBuf> = folders(&lib).collect();
        let second: Vec<PathBuf> = first.iter().flat_map(|p| folders(p)).collect();
        places.extend(first.into_iter().chain([lib]).chain(second));
    }
    std::env::join_paths(places).unwrap_or_default()
}

fn download(home: &Home, dir: &Path, missing: &[&Peer]) -> Result<(), String> {
    home.update()?;
    println!("downloading {} into {}", names(missing.iter().copied()), home.0.display());
    let end = SystemTime::now() + DOWNLOAD_MAX;
    for peer in missing.iter().filter(|p| matches!(p.what, Package)) {
        if let Err(text) = keep(home, dir, peer.package) {
            println!("{}: {text}", peer.package);
        }
    }
    let wanted = missing.iter().filter(|p| !matches!(p.what, Package));
    let wanted: Vec<&str> = wanted.map(|p| p.package).collect();
    // If one of them does not exist here, the others are still to be had.
    if home.fetch(&wanted, DOWNLOAD_MAX).is_err() {
        for package in wanted {
            let left = end.duration_since(SystemTime::now()).unwrap_or_default();
            if let Err(text) = home.fetch(&[package], left) {
                println!("{package}: {text}");
            }
        }
    }
    home.unpack(dir)?;
    for (name, program) in BY_ALTERNATIVES {
        let link = dir.join("usr/bin").join(name);
        if dir.join("usr/bin").join(program).is_file() && !link.exists() {
            std::os::unix::fs::symlink(program, &link)
                .map_err(|e| format!("{}: {e}", link.display()))?;
        }
    }
    Ok(())
}

/// Downloads a package with its closure, and leaves it as it is.
fn keep(home: &Home, dir: &Path, package: &str) -> Result<(), String> {
    let packages = packages(dir);
    fs::create_dir_all(&packages).map_err(|e| format!("{}: {e}", packages.display()))?;
    home.fetch(&[package], DOWNLOAD_MAX)?;
    for file in home.archives() {
        let to = packages.join(file.file_name().unwrap_or_default());
        fs::copy(&file, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(())
}
