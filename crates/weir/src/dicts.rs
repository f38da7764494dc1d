//! What is in dictionaries (`lua_shared_dict`) goes to the process that takes this one's place: as soon as that is ready
//! (an upgrade: while both serve), and once more what has come since when this one ends.
//!
//! Each dictionary is a file in memory, whose descriptor goes the way of kept connections (`heirs`). Snapshots are made
//! and put in by threads of their own, in slices, so that no worker waits. Of a key that the new process has already,
//! its own value stays: it is the later one. What is larger than the bounds is not given, and the log says so. A program
//! that does not know of this closes the descriptors.

use crate::heirs::Successor;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_runtime::clock;
use weir_runtime::left;
use weir_runtime::sockets::{AsRawFd, OwnedFd};

/// Messages begin so; behind it is the dictionary's name.
const MARK: &[u8] = b"weir dict 1\n";
/// So much is given at a time, of all dictionaries: it is in memory beside them until the other process has read it.
const GIVEN_MAX_BYTES: usize = 1 << 30;
/// The other process reads; it is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// Who gives.
static GIVERS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Wall time: what an entry's end is counted by.
fn now_ms() -> u64 {
    let (secs, ms) = clock::wall();
    secs as u64 * 1000 + u64::from(ms)
}

/// Gives all there is to the other process, once that is ready.
pub fn offer(to: &Arc<Successor>, generation: &Arc<Generation>) {
    if !to.has_link() || weir_lua::dicts().is_empty() {
        return;
    }
    let (to, generation) = (Arc::clone(to), Arc::clone(generation));
    let give = move || {
        if to.wait_in_thread() {
            give(&to, &generation);
        }
    };
    let mut givers = GIVERS.lock().unwrap_or_else(PoisonError::into_inner);
    givers.retain(|giver| !giver.is_finished());
    // Without a thread the new process begins with empty ones.
    givers.extend(std::thread::Builder::new().name("dicts".into()).spawn(give));
}

fn give(to: &Successor, generation: &Generation) {
    let mut left = GIVEN_MAX_BYTES;
    for (name, dict) in weir_lua::dicts() {
        let text = dict.snapshot(now_ms());
        let shown = String::from_utf8_lossy(&name);
        let Some(now_left) = left.checked_sub(text.len()) else {
            let why = format!(
                "lua_shared_dict \"{shown}\" is not handed on: with it, more than 1 GB would be"
            );
            generation.error_log.log(LogLevel::Warn, None, why.as_bytes());
            continue;
        };
        left = now_left;
        let given = in_memory(&text).map(|file| {
            let message = [MARK, name.as_slice()].concat();
            to.tell_with(&message, file.as_raw_fd(), PATIENCE)
        });
        if !matches!(given, Ok(true)) {
            let why = format!("lua_shared_dict \"{shown}\" could not be handed on");
            generation.error_log.log(LogLevel::Notice, None, why.as_bytes());
        }
    }
}

fn in_memory(text: &[u8]) -> io::Result<File> {
    let mut file = left::memory_file()?;
    file.write_all(text)?;
    Ok(file)
}

/// Waits for those who give, as this process is about to end.
pub fn settle() {
    let givers = std::mem::take(&mut *GIVERS.lock().unwrap_or_else(PoisonError::into_inner));
    let end = Instant::now() + PATIENCE;
    while givers.iter().any(|giver| !giver.is_finished()) && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
}

/// Whether a message that comes with a descriptor is about a dictionary.
pub fn is_meant(body: &[u8]) -> bool {
    body.starts_with(MARK)
}

/// What the process before this one had in a dictionary is put into the one of that name, if there is one.
pub fn take(body: &[u8], fd: OwnedFd) {
    let name = body[MARK.len().min(body.len())..].to_vec();
    let put_in = move || {
        let Some((_, dict)) = weir_lua::dicts().into_iter().find(|(known, _)| *known == name)
        else {
            return;
        };
        let mut file = File::from(fd);
        let mut text = Vec::new();
        let read =
            file.rewind().and_then(|()| file.take(GIVEN_MAX_BYTES as u64).read_to_end(&mut text));
        if read.is_ok() {
            // What is no snapshot changes nothing.
            let _ = dict.restore_missing(&text, now_ms());
        }
    };
    let _ = std::thread::Builder::new().name("dicts".into()).spawn(put_in);
}
