//! The directory and configuration a server is started with.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::server::Server;

/// A port nobody listens on. Taken in turn from below the range the kernel gives to outgoing
/// connections, so that no client of another test can take it before the server does.
pub fn free_port() -> u16 {
    const FIRST: u32 = 11_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let shift = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + shift.wrapping_add(turn) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// A configuration with its files, about to be run.
///
/// In the text, `%%PORT_0%%` and so on become free ports, `%%DIR%%` the server's directory,
/// and `%%NAME%%` what was given to [`Setup::set`].
pub struct Setup {
    conf: String,
    dir: PathBuf,
    pub(crate) ports: BTreeMap<usize, u16>,
    keep_dir: bool,
    pub(crate) umask: Option<String>,
    pub(crate) env: Vec<(String, String)>,
}

impl Setup {
    pub fn new(conf: &str) -> Setup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("weir-test-{}-{turn}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("logs")).unwrap();
        let mut setup = Setup {
            conf: conf.to_string(),
            dir,
            ports: BTreeMap::new(),
            keep_dir: false,
            umask: None,
            env: Vec::new(),
        };
        setup.conf = setup.fill_in(conf);
        setup
    }

    fn fill_in(&mut self, text: &str) -> String {
        let mut text = text.replace("%%DIR%%", &self.dir.display().to_string());
        for n in 0..10 {
            let place = format!("%%PORT_{n}%%");
            if text.contains(&place) {
                let port = *self.ports.entry(n).or_insert_with(free_port);
                text = text.replace(&place, &port.to_string());
            }
        }
        crate::windows::with_shell(text)
    }

    /// Replaces `%%NAME%%`.
    pub fn set(mut self, name: &str, value: impl ToString) -> Setup {
        self.conf = self.conf.replace(&format!("%%{name}%%"), &value.to_string());
        self
    }

    /// A variable of the environment to start with.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_string(), value.to_string()));
        self
    }

    /// The umask to start with, in octal digits.
    pub fn umask(mut self, digits: &str) -> Setup {
        self.umask = Some(digits.to_string());
        self
    }

    /// Writes a file under the server's directory.
    pub fn file(self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Setup {
        self.write(path, content);
        self
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).unwrap();
        }
        std::fs::write(path, content).unwrap();
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn conf(&self) -> &str {
        &self.conf
    }

    /// Puts new text in the place of the old, with the same ports and directory.
    pub(crate) fn replace_conf(&mut self, conf: &str) {
        self.conf = self.fill_in(conf);
    }

    /// Starts the server and waits until it listens.
    #[track_caller]
    pub fn start(self) -> Server {
        Server::run(self)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if std::thread::panicking() || self.keep_dir || std::env::var_os("WEIR_KEEP").is_some() {
            println!("kept {}", self.dir.display());
            return;
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
