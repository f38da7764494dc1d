//! `cargo xtask peers`: real programs for the tests to talk to, from the distribution.
//!
//! What is installed is taken as it is. The rest is downloaded with its closure by `apt-get` and
//! unpacked below `target/peers`: no package is installed, so none starts a service, nothing outside
//! `target` changes and root is not needed. The tests look there too (`tests/src/tools.rs`).
//! Nothing here fails a run: a test whose program is missing says that it was skipped.

mod go;
mod jars;

use crate::child::{quiet, watched};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

const UPDATE_MAX: Duration = Duration::from_secs(90);
const DOWNLOAD_MAX: Duration = Duration::from_secs(180);
const UNPACK_MAX: Duration = Duration::from_secs(30);
/// After so long it is tried once more to get what was not to be had, and nothing else is missing.
const AGAIN: Duration = Duration::from_secs(24 * 3600);

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
    let stamp = dir.with_file_name("tried");
    match () {
        () if !may_install => println!("not downloaded: --no-install, or WEIR_NO_INSTALL is set"),
        () if !quiet(Command::new("apt-get").arg("--version")) => println!("there is no apt-get"),
        () if was_tried(&stamp, &names(missing.iter().copied())) => {
            println!("not to be had in the last day ({})", stamp.display())
        }
        () => {
            if let Err(text) = download(&dir, &missing) {
                println!("{text}");
            }
            let missing = self::missing(&dir);
            let _ = fs::write(&stamp, names(missing.iter().copied()));
            if !missing.is_empty() {
                println!("still missing: {}", names(missing.into_iter()));
            }
        }
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

/// Whether just these were not to be had lately.
fn was_tried(stamp: &Path, names: &str) -> bool {
    let modified = fs::metadata(stamp).and_then(|m| m.modified());
    let age = modified.ok().and_then(|m| SystemTime::now().duration_since(m).ok());
    let same = fs::read_to_string(stamp).is_ok_and(|tried| tried == names);
    same && age.is_some_and(|age| age < AGAIN)
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

/// `apt-get` with lists and archives of our own, and the system's knowledge of what is installed.
fn apt(home: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.stdin(Stdio::null()).env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y"]);
    let places = [("State::Lists", "lists"), ("Cache", "cache"), ("Cache::archives", "archives")];
    for (what, place) in places {
        command.arg("-o").arg(format!("Dir::{what}={}", home.join(place).display()));
    }
    for option in [
        "Debug::NoLocking=1",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
        "Acquire::http::Timeout=20",
        "Acquire::Retries=1",
    ] {
        command.args(["-o", option]);
    }
    command
}

fn download(dir: &Path, missing: &[&Peer]) -> Result<(), String> {
    let home = dir.parent().unwrap_or(dir);
    for place in ["lists/partial", "archives/partial", "cache", "root", "packages"] {
        let path = home.join(place);
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    run("apt-get update", apt(home).arg("update"), UPDATE_MAX)?;
    println!("downloading {} into {}", names(missing.iter().copied()), home.display());
    let end = SystemTime::now() + DOWNLOAD_MAX;
    for peer in missing.iter().filter(|p| matches!(p.what, Package)) {
        if let Err(text) = keep(home, peer.package) {
            println!("{}: {text}", peer.package);
        }
    }
    let wanted = missing.iter().filter(|p| !matches!(p.what, Package));
    let wanted: Vec<&str> = wanted.map(|p| p.package).collect();
    // If one of them does not exist here, the others are still to be had.
    if fetch(home, &wanted, DOWNLOAD_MAX).is_err() {
        for package in wanted {
            let left = end.duration_since(SystemTime::now()).unwrap_or_default();
            if let Err(text) = fetch(home, &[package], left) {
                println!("{package}: {text}");
            }
        }
    }
    for package in beginning(&home.join("archives"), "") {
        if package.extension().is_some_and(|e| e == "deb") {
            run("dpkg -x", Command::new("dpkg").arg("-x").arg(&package).arg(dir), UNPACK_MAX)?;
            let _ = fs::remove_file(package);
        }
    }
    for (name, program) in BY_ALTERNATIVES {
        let link = dir.join("usr/bin").join(name);
        if dir.join("usr/bin").join(program).is_file() && !link.exists() {
            std::os::unix::fs::symlink(program, &link)
                .map_err(|e| format!("{}: {e}", link.display()))?;
        }
    }
    let _ = fs::remove_dir_all(home.join("lists"));
    Ok(())
}

/// Downloads a package with its closure, and leaves it as it is.
fn keep(home: &Path, package: &str) -> Result<(), String> {
    fetch(home, &[package], DOWNLOAD_MAX)?;
    for file in beginning(&home.join("archives"), "") {
        if file.extension().is_some_and(|e| e == "deb") {
            let name = file.file_name().unwrap_or_default();
            let to = home.join("packages").join(name);
            fs::copy(&file, &to).map_err(|e| format!("{}: {e}", to.display()))?;
        }
    }
    Ok(())
}

fn fetch(home: &Path, packages: &[&str], limit: Duration) -> Result<(), String> {
    let options = ["install", "--no-install-recommends", "--download-only", "--"];
    run("apt-get", apt(home).args(options).args(packages), limit)
}

/// Quietly, unless it goes wrong.
fn run(name: &str, command: &mut Command, limit: Duration) -> Result<(), String> {
    let mut last = String::new();
    watched(command.stderr(Stdio::null()), limit, |line| last = line.to_owned())
        .map_err(|e| format!("{name}: {e}: {last}"))
}
