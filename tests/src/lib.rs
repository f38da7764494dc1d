//! Black-box tests of the server: the harness.
//!
//! A test writes its whole configuration inline, starts the binary on it in a directory of its
//! own, and talks to it in raw bytes. The binary is the one `WEIR_BIN` names, or else this
//! workspace's own, release before debug; run against nginx itself, every test must pass as
//! well, which is how its expectations are known to be true.
//!
//! Nothing here sleeps for a fixed time: what must happen is waited for with [`wait_for`].

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod browser;
pub mod bulk;
pub mod cgi;
mod client;
pub mod cutting;
pub mod digest;
mod dns;
pub mod family;
pub mod figures;
pub mod h2;
pub mod kafka;
mod load;
pub mod mail;
pub mod mail_servers;
mod message;
pub mod mmdb;
pub mod ocsp;
mod origin;
pub mod otel;
mod pipe;
mod process;
mod server;
mod setup;
pub mod tls;
pub mod tools;
mod windows;

pub use browser::Browser;
pub use client::{read, Client, Peer};
pub use dns::{Dns, Record};
pub use load::Load;
pub use message::{Request, Response};
pub use origin::{Conn, Next, Origin};
pub use pipe::Pipe;
pub use server::{
    binary, children, is_alive, listens_on, run_cli, signal, CliOutput, Server, Signal,
};
pub use setup::{free_port, Setup};
pub use tools::skip;
pub use windows::{is_asked as is_windows, line_in_lua, printed, with_shell};

use std::time::{Duration, Instant};

/// How long a client or a server of a test waits for the other side.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// No test waits longer for anything that should happen; much more than it takes, as the machine
/// may be busy with others for seconds.
pub const AT_LAST: Duration = Duration::from_secs(20);

/// Polls until `done` says so; whether it did in time. It is asked once more when the time is over:
/// the asking may have been what took it.
pub fn wait_for(mut done: impl FnMut() -> bool, patience: Duration) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let is_over = start.elapsed() > patience;
        if done() {
            return true;
        }
        if is_over {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Waits with the usual patience and fails the test if nothing comes of it.
#[track_caller]
pub fn expect_soon(what: &str, done: impl FnMut() -> bool) {
    assert!(wait_for(done, AT_LAST), "never happened: {what}");
}
