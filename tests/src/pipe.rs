//! A file that is slow to be read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// A pipe under a name: whoever reads it to its end waits while it is open here.
pub struct Pipe {
    path: PathBuf,
    end: Option<File>,
}

impl Pipe {
    pub fn make(path: PathBuf) -> Pipe {
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        Pipe { path, end: None }
    }

    /// Returns when somebody has begun to read.
    pub fn open(&mut self) {
        self.end = OpenOptions::new().write(true).open(&self.path).ok();
        assert!(self.end.is_some());
    }

    pub fn is_open(&self) -> bool {
        self.end.is_some()
    }

    /// What is read, to its end.
    pub fn give(&mut self, text: &str) {
        let mut end = self.end.take().expect("the pipe is open");
        end.write_all(text.as_bytes()).unwrap();
    }

    pub fn close(&mut self) {
        self.end = None;
    }
}
