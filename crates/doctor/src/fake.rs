//! A system of made-up figures, and a configuration of a text, for tests.

use crate::system::{Disk, Stamp, System};
use crate::{Conf, Places};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_conf::{parse, Loader, Options, Sources};

#[derive(Default)]
pub struct Fake {
    pub files: HashMap<PathBuf, Vec<u8>>,
    pub disks: HashMap<PathBuf, Disk>,
    pub stamps: HashMap<PathBuf, Stamp>,
    pub now_secs: i64,
    pub bytes_below: Option<u64>,
    pub is_kept: Option<bool>,
    pub cpus: usize,
    pub nofile: Option<(u64, u64)>,
    /// Nothing may be read.
    pub is_closed: bool,
}

impl Fake {
    pub fn with(files: &[(&str, &str)]) -> Fake {
        let files = files.iter().map(|(n, t)| (PathBuf::from(n), t.as_bytes().to_vec())).collect();
        Fake { files, cpus: 2, nofile: Some((1024, 4096)), ..Fake::default() }
    }
}

impl System for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.is_closed {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.files.get(path).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let below = |p: &PathBuf| {
            let first = p.strip_prefix(path).ok()?.components().next()?;
            Some(first.as_os_str().to_string_lossy().into_owned())
        };
        let mut names: Vec<String> = self.files.keys().filter_map(below).collect();
        names.sort();
        names.dedup();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names),
        }
    }

    fn disk(&self, path: &Path) -> io::Result<Disk> {
        self.disks.get(path).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn bytes_below(&self, _: &Path) -> Option<u64> {
        self.bytes_below
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.stamps.get(path).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    fn now_secs(&self) -> i64 {
        self.now_secs
    }

    fn clock_is_kept(&self) -> Option<bool> {
        self.is_kept
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn nofile(&self) -> Option<(u64, u64)> {
        self.nofile
    }
}

struct Text(String);

impl Loader for Text {
    fn read(&self, _: &[u8]) -> io::Result<Arc<[u8]>> {
        Ok(self.0.as_bytes().into())
    }

    fn glob(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
}

pub fn conf(text: &str) -> Conf {
    let main = b"/etc/weir/nginx.conf";
    let loader = Text(text.to_owned());
    let read = parse(&mut Sources::new(), &loader, main, &Options::for_main(main));
    let places = Places {
        prefix: "/prefix".into(),
        conf_prefix: "/etc/weir".into(),
        pid: Some("/prefix/weir.pid".into()),
        error_log: "/prefix/error.log".into(),
        access_log: Default::default(),
        temp: vec![("proxy".into(), "/prefix/proxy_temp".into())],
    };
    Conf::of(&read.unwrap(), &places)
}
