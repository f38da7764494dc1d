//! The listening sockets of the process: kept over reloads while their address is named.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_http::core_rows::os_text;
use weir_http::generation::Generation;
use weir_runtime::listen::{self, ListenAddr, ListenOptions, Listener};

/// One listening address: one socket, or one per worker with `reuseport`.
struct Bound {
    addr: ListenAddr,
    options: ListenOptions,
    sockets: Vec<Arc<Listener>>,
}

/// All of them.
#[derive(Default)]
pub struct Sockets(Vec<Bound>);

/// Binding is tried this often before it fails, for a port that is about to become free.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(500);

impl Sockets {
    /// The sockets a generation needs: those already open, and fresh ones for new addresses.
    /// On an error nothing has changed.
    pub fn adopt(&self, gen: &Generation, workers: usize) -> Result<Sockets, String> {
        let mut out = Vec::new();
        for l in &gen.listens {
            let have = self
                .0
                .iter()
                .find(|b| b.addr == l.addr && b.options.reuseport == l.options.reuseport);
            let count = if l.options.reuseport { workers } else { 1 };
            let mut sockets: Vec<Arc<Listener>> =
                have.map(|b| b.sockets.iter().take(count).cloned().collect()).unwrap_or_default();
            if let Some(b) = have.filter(|b| b.options != l.options) {
                for s in &b.sockets {
                    // An option the kernel refuses on a live socket keeps its old value.
                    let _ = s.configure(&l.options);
                    let _ = s.set_backlog(l.options.backlog);
                }
            }
            while sockets.len() < count {
                sockets.push(Arc::new(open(&l.addr, &l.options)?));
            }
            out.push(Bound { addr: l.addr.clone(), options: l.options.clone(), sockets });
        }
        Ok(Sockets(out))
    }

    /// The sockets worker `n` accepts from.
    pub fn of_worker(&self, n: usize) -> Vec<Arc<Listener>> {
        self.0
            .iter()
            .filter_map(|b| match b.options.reuseport {
                true => b.sockets.get(n).cloned(),
                false => b.sockets.first().cloned(),
            })
            .collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Listener>> {
        self.0.iter().flat_map(|b| b.sockets.iter())
    }

    /// Whether this very socket (by its kernel object) is one of them.
    pub fn has_socket(&self, other: &Listener) -> bool {
        self.all().any(|l| l.addr == other.addr && l.same_socket(other))
    }

    /// Removes the files of Unix sockets that `keep` does not have.
    pub fn remove_unix_files(&self, keep: Option<&Sockets>) {
        for b in &self.0 {
            let ListenAddr::Unix(path) = &b.addr else { continue };
            if keep.is_some_and(|k| k.0.iter().any(|o| o.addr == b.addr)) {
                continue;
            }
            // A file that is already gone needs no removing.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn open(addr: &ListenAddr, options: &ListenOptions) -> Result<Listener, String> {
    if let Some(l) = listen::take_inherited(addr) {
        // Options that cannot be changed on an inherited socket stay as they are.
        let _ = l.configure(options);
        let _ = l.set_backlog(options.backlog);
        return Ok(l);
    }
    let mut tries = TRIES;
    loop {
        match Listener::bind(addr, options) {
            Ok(l) => return Ok(l),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries > 1 => {
                tries -= 1;
                std::thread::sleep(TRY_AGAIN);
            }
            Err(e) => {
                let mut text = format!("bind() to {addr} failed ({})", os_text(&e));
                if e.kind() == io::ErrorKind::AddrInUse {
                    if let Some(who) = holder(addr) {
                        text.push_str(&format!("\n  the port is held by {who}"));
                    }
                }
                return Err(text);
            }
        }
    }
}

/// The process that listens on a port, where the system tells.
#[cfg(target_os = "linux")]
fn holder(addr: &ListenAddr) -> Option<String> {
    let ListenAddr::Ip(a) = addr else { return None };
    let port = format!(":{:04X}", a.port());
    let mut inode = None;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.len() > 9 && words[1].ends_with(&port) && words[3] == "0A" {
                inode = Some(format!("socket:[{}]", words[9]));
            }
        }
    }
    let inode = inode?;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let Ok(fds) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        let hit = fds
            .flatten()
            .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|t| t.to_string_lossy() == inode));
        if hit {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(format!("process {pid} ({})", name.trim()));
        }
    }
    None
}

#[cfg(not(target_os = "linux"))]
fn holder(_: &ListenAddr) -> Option<String> {
    None
}
