//! A serving process whose master has died goes on, and gives its sockets to the next master that
//! is started with the same pid file; then it ends as after QUIT. Nothing is refused in between.
//! (nginx's workers go on too, but a new master finds the address in use until they are told.)
//!
//! It is found under a name that no file stands for (an abstract Unix socket), made of the pid
//! file's. Anybody may take such a name, so both sides look whom they talk to: the orphan gives to
//! root and its own user; the master believes root and the configured user, and takes only sockets
//! that were made with root's rights, as its predecessor's were.

use crate::sockets::Sockets;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use weir_runtime::handed::{Kind, Message};
use weir_runtime::handover::{self, Outbox};
use weir_runtime::listen::Listener;
use weir_runtime::process;

/// Neither side waits longer for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// A socket's name has at most 107 bytes.
const NAME_MAX_BYTES: usize = 107;

/// Where the orphan of a pid file waits; the end of a long path tells them apart.
fn address(pid_file: &Path) -> io::Result<SocketAddr> {
    let path = pid_file.as_os_str().as_encoded_bytes();
    let name = [b"weir-orphan:", path].concat();
    let from = name.len().saturating_sub(NAME_MAX_BYTES);
    SocketAddr::from_abstract_name(&name[from..])
}

/// The orphan's side.
pub struct Orphan(UnixListener);

impl Orphan {
    pub fn new(pid_file: Option<&Path>) -> io::Result<Orphan> {
        let pid_file = pid_file.ok_or(io::ErrorKind::NotFound)?;
        let listener = UnixListener::bind_addr(&address(pid_file)?)?;
        listener.set_nonblocking(true)?;
        Ok(Orphan(listener))
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Gives the sockets to who asks; `Ok` once they are taken.
    pub fn give(&self, sockets: &Sockets) -> io::Result<()> {
        let (link, _) = self.0.accept()?;
        let uid = process::peer_uid(&link)?;
        if uid != 0 && uid != process::uid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let fds = sockets.active().map(|s| std::os::fd::AsFd::as_fd(&**s).try_clone_to_owned());
        let fds = fds.collect::<io::Result<Vec<OwnedFd>>>()?;
        let message = Message::bare(Kind::Configuration, fds.len());
        let mut outbox = Outbox::new(link.try_clone()?)?;
        outbox.send(&message.pack(), fds, true)?;
        link.set_nonblocking(false)?;
        link.set_read_timeout(Some(PATIENCE))?;
        io::Read::read_exact(&mut &link, &mut [0])
    }
}

/// The master's side: what an orphan gave, and the way to tell it that its sockets are in use.
pub struct Found {
    pub listeners: Vec<Listener>,
    link: UnixStream,
}

/// Asks the orphan of that pid file, if there is one.
pub fn find(pid_file: Option<&Path>, user: u32) -> Option<Found> {
    let pid_file = pid_file.filter(|_| process::is_root())?;
    let link = UnixStream::connect_addr(&address(pid_file).ok()?).ok()?;
    let uid = process::peer_uid(&link).ok()?;
    if uid != 0 && uid != user {
        return None;
    }
    link.set_read_timeout(Some(PATIENCE)).ok()?;
    let (body, mut fds) = handover::receive(&link).ok()?;
    fds.retain(process::is_roots_socket);
    let mut message = Message::unpack(&body)?;
    message.listeners = fds.len();
    let (listeners, _) = message.sort(fds);
    Some(Found { listeners, link })
}

impl Found {
    /// The sockets are in use here: the orphan may end.
    pub fn confirm(&self) {
        // One that has gone meanwhile needs no telling.
        let _ = io::Write::write_all(&mut &self.link, &[1]);
    }
}
