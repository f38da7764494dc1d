//! What the operating system gives: sockets, files, paths, clocks, signals, processes, limits.
//! This crate is the only home of `unsafe`; every block says why it is sound. It is also the border to
//! the system: what differs from one to another (`std::os`, `cfg(unix)`, paths as bytes) is here alone.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod beneath;
pub mod bounded;
#[cfg(target_os = "linux")]
pub mod children;
pub mod clock;
mod datagram;
#[cfg(unix)]
pub mod datagrams;
pub mod direct;
#[cfg(any(target_os = "linux", windows))]
pub mod event_loop;
pub mod files;
pub mod handed;
#[cfg(unix)]
pub mod handover;
#[cfg(unix)]
pub mod inquiry;
pub mod interrupt;
#[cfg(any(target_os = "linux", windows))]
pub mod journal;
mod kept_file;
pub mod left;
pub mod listen;
pub mod machine;
#[cfg(any(target_os = "linux", windows))]
pub mod mapped;
pub mod mappings;
pub mod memory;
pub mod net;
pub mod own_thread;
#[cfg(unix)]
pub mod packets;
pub mod paths;
pub mod pcre;
#[cfg(unix)]
pub mod process;
mod program;
pub mod programs;
pub mod sampling;
pub mod service;
mod signal;
#[cfg(unix)]
pub mod signals;
#[cfg(unix)]
pub mod sockets;
pub mod stack;
pub mod succession;
pub mod system;
pub mod threads;
pub mod timer;
#[cfg(unix)]
pub mod title;
#[cfg(unix)]
pub mod trusted;
pub mod turns;
pub mod tz;
#[cfg(unix)]
mod walk;
#[cfg(windows)]
mod windows;

#[cfg(windows)]
pub use windows::{
    beneath, children, datagrams, handover, inquiry, packets, process, signals, sockets, title,
    trusted,
};
