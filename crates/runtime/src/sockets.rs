//! Descriptors and the machine's own sockets, by the names that the other crates use.
//!
//! A descriptor is what a socket, a file or the end of a pipe is to the system, and what is handed to
//! another process. Windows has handles instead (`OwnedHandle`, `OwnedSocket`), which a process
//! duplicates into another; it has local stream sockets with paths, and no local datagrams: what names
//! one answers [`std::io::ErrorKind::Unsupported`] there.

use crate::listen::ListenAddr;
use std::io;

pub use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
pub use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

/// Another descriptor of the same thing, to be handed on.
pub fn copy(of: &impl AsFd) -> io::Result<OwnedFd> {
    of.as_fd().try_clone_to_owned()
}

/// Listens under a name that no file stands for; [`crate::handover::connect_abstract`] finds it there.
/// Windows: a named pipe.
///
/// # Errors
///
/// The system's, as when somebody listens there already.
#[cfg(target_os = "linux")]
pub fn listen_abstract(name: &[u8]) -> io::Result<UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    UnixListener::bind_addr(&address)
}

#[cfg(not(target_os = "linux"))]
pub fn listen_abstract(_: &[u8]) -> io::Result<UnixListener> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether a call failed because the host at the other end is down, for which `std` has no kind.
pub fn is_host_down(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EHOSTDOWN)
}

/// The process that listens on a port, where the system tells. Windows: `GetExtendedTcpTable`.
#[cfg(target_os = "linux")]
pub fn holder(addr: &ListenAddr) -> Option<String> {
    let port = format!(":{:04X}", addr.ip()?.port());
    let mut inode = None;
    let (tables, state) = match addr.is_udp() {
        true => (["/proc/net/udp", "/proc/net/udp6"], "07"),
        false => (["/proc/net/tcp", "/proc/net/tcp6"], "0A"),
    };
    for table in tables {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.len() > 9 && words[1].ends_with(&port) && words[3] == state {
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
pub fn holder(_: &ListenAddr) -> Option<String> {
    None
}
