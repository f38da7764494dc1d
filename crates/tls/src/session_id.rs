//! A number of a session, which nobody can guess and which tells nothing of its keys. rustls tells
//! of the keys while it makes them, to whom a configuration names, and of nothing else that would do.

use ring::digest::{Context, SHA256};
use std::cell::Cell;

/// Bytes of a number.
pub const ID_BYTES: usize = 32;
/// What is told of a session of TLS 1.3, and of one of TLS 1.2.
const LABELS: [&str; 2] = ["EXPORTER_SECRET", "CLIENT_RANDOM"];
/// Stands before a secret, so that the digest is one of nothing else. It has 48 bytes at most, so that
/// both are a single block.
const PREFIX: &[u8; 7] = b"number ";

thread_local! {
    /// The number of the session whose handshake is being worked on.
    static ID: Cell<Option<[u8; ID_BYTES]>> = const { Cell::new(None) };
}

/// Hears of keys and makes numbers of them.
#[derive(Debug)]
pub(crate) struct Ids;

impl rustls::KeyLog for Ids {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            let mut digest = Context::new(&SHA256);
            digest.update(PREFIX);
            digest.update(secret);
            ID.set(digest.finish().as_ref().try_into().ok());
        }
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label)
    }
}

/// The number that was made since it was last asked for.
pub(crate) fn take() -> Option<[u8; ID_BYTES]> {
    ID.take()
}
