//! A file of JSON lines.
//!
//! A line is written once, also over kill -9: what the file had before a batch is kept with the queue, and a batch that
//! is repeated begins by cutting off what the last try has left. Who rotates the file renames it, and the next batch
//! makes a new one.

use crate::conf::Draft;
use crate::kinds::KindOf;
use crate::receiver::{Batch, Client, Ground, Outcome, Target};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_core::os_text;
use weir_module::{ArgsExt, Cf, ConfResult};
use weir_runtime::files;

pub const FILE: KindOf = KindOf { name: "file", takes: &[], check, build };

fn check(draft: &mut Draft) -> ConfResult {
    let to = draft.to();
    match to.args.len() {
        2 => Ok(()),
        _ => Err(to.fail("a receiver of kind \"file\" has one file")),
    }
}

fn build(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    Ok(Arc::new(Lines { path: cf.full_path(draft.to().arg(1)) }))
}

struct Lines {
    path: PathBuf,
}

impl Target for Lines {
    fn client(&self, _: Ground) -> Box<dyn Client> {
        Box::new(Writer { path: self.path.clone() })
    }
}

struct Writer {
    path: PathBuf,
}

/// What is kept: the file's number in its file system and its length before the batch.
fn mark(file: &File) -> io::Result<[u8; 16]> {
    let metadata = file.metadata()?;
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&files::Identity::of_open(file)?.inode().to_le_bytes());
    mark[8..].copy_from_slice(&metadata.len().to_le_bytes());
    Ok(mark)
}

impl Writer {
    fn write(&self, batch: &mut Batch<'_>) -> io::Result<()> {
        let mut file = open(&self.path)?;
        let now = mark(&file)?;
        let mut text = Vec::new();
        for entry in &batch.entries {
            text.extend_from_slice(entry.json);
            text.push(b'\n');
        }
        let before = batch.kept.bytes();
        // The same file, which may have all of this batch, or a part of it at its end.
        let is_same = batch.is_repeated && before.len() == 16 && before[..8] == now[..8];
        if is_same {
            let at = u64::from_le_bytes(before[8..].try_into().unwrap_or_default());
            let len = u64::from_le_bytes(now[8..].try_into().unwrap_or_default());
            let had = common(&file, at, &text)?;
            if had == text.len() {
                return Ok(());
            }
            if at + had as u64 == len {
                return file.write_all(&text[had..]);
            }
        }
        batch.kept.keep(&now)?;
        file.write_all(&text)
    }
}

/// How many bytes of the text the file has there.
fn common(file: &File, mut at: u64, text: &[u8]) -> io::Result<usize> {
    let (mut had, mut buf) = (0, vec![0; 64 * 1024]);
    loop {
        let got = files::read_at(file, &mut buf, at)?;
        let same = buf[..got].iter().zip(&text[had..]).take_while(|(a, b)| a == b).count();
        (had, at) = (had + same, at + same as u64);
        if same == 0 || same < got {
            return Ok(had);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).append(true).create(true).open(path)
}

impl Client for Writer {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome {
        match self.write(batch) {
            Ok(()) => Outcome::All,
            Err(e) => {
                let why = format!("\"{}\": {}", self.path.display(), os_text(&e));
                Outcome::Later { why, after: None }
            }
        }
    }

    fn repeats(&self) -> bool {
        true
    }
}
