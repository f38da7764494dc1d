//! A serving process whose master has died goes on, and gives its sockets to the next master that
//! is started with the same pid file; then it ends as after QUIT, and its kept connections go the
//! way of an upgrade's. Nothing is refused in between.
//! (nginx's workers go on too, but a new master finds the address in use until they are told.)
//!
//! It is found under a name that no file stands for (an abstract Unix socket), made of the pid
//! file's. Anybody may take such a name, so both sides look whom they talk to. The orphan gives to
//! root alone: its master was root's, and what its own user runs besides it (a script that was let
//! in) has no right to the ports. The master believes root and the configured user, waits for
//! neither longer than [`PATIENCE`] in all, and takes only sockets that were made with root's
//! rights, as its predecessor's were, and connections only from who had an address that it serves.
//! Where it has doubts it starts as if there were no orphan.

use crate::heirs::{self, Successor};
use crate::sockets::Sockets;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_runtime::handed::{Kind, Message};
use weir_runtime::handover::{self, Bounds, Outbox};
use weir_runtime::listen::Listener;
use weir_runtime::packets::Packets;
use weir_runtime::sockets::{self, AsRawFd, OwnedFd, RawFd, UnixListener, UnixStream};
use weir_runtime::{paths, process};

/// Neither side waits longer for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// A socket's name has at most 107 bytes.
const NAME_MAX_BYTES: usize = 107;

/// An orphan's message has no text.
const BODY_MAX_BYTES: u64 = 4096;
/// The sockets that an orphan may give, and no process is let open many more by default.
const SOCKETS_MAX: u64 = 4096;

/// Where the orphan of a pid file waits; the end of a long path tells them apart.
fn name(pid_file: &Path) -> Vec<u8> {
    let path = paths::bytes(pid_file);
    let name = [b"weir-orphan:", path].concat();
    let from = name.len().saturating_sub(NAME_MAX_BYTES);
    name[from..].to_vec()
}

/// The orphan's side.
pub struct Orphan {
    listener: UnixListener,
    /// Somebody who is not root has asked, and the log says so.
    has_refused: Cell<bool>,
}

impl Orphan {
    pub fn new(pid_file: Option<&Path>) -> io::Result<Orphan> {
        let pid_file = pid_file.ok_or(io::ErrorKind::NotFound)?;
        let listener = sockets::listen_abstract(&name(pid_file))?;
        listener.set_nonblocking(true)?;
        Ok(Orphan { listener, has_refused: Cell::new(false) })
    }

    pub fn fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Gives the sockets to root when he asks; once they are taken, the process that has them.
    /// Others get nothing, and one line of the log for all of them.
    pub fn give(&self, serving: &Sockets) -> io::Result<Option<Arc<Successor>>> {
        let (link, _) = self.listener.accept()?;
        let uid = process::peer_uid(&link)?;
        if uid != 0 {
            let why = format!("user {uid} asks for them, who is not root");
            return match self.has_refused.replace(true) {
                true => Ok(None),
                false => Err(io::Error::other(why)),
            };
        }
        let fds = serving.active().map(|s| sockets::copy(&**s));
        let mut fds = fds.collect::<io::Result<Vec<OwnedFd>>>()?;
        let message = Message::bare(Kind::Configuration, fds.len());
        let (connections, theirs) = heirs::pair().unzip();
        fds.extend(theirs.map(|theirs| theirs.to_owned_fd()).transpose()?);
        let mut outbox = Outbox::new(link.try_clone()?)?;
        outbox.send(&message.pack(), fds, message.kind.class())?;
        link.set_nonblocking(false)?;
        link.set_read_timeout(Some(PATIENCE))?;
        io::Read::read_exact(&mut &link, &mut [0])?;
        Ok(Some(Successor::new(connections)))
    }
}

/// The master's side: what an orphan gave, and the way to tell it that its sockets are in use.
pub struct Found {
    pub listeners: Vec<Listener>,
    /// By which its kept connections come.
    pub connections: Option<Packets>,
    link: UnixStream,
}

/// Asks the orphan of that pid file, if there is one. An error says why who answers under its name
/// is none.
pub fn find(pid_file: &Path, user: u32) -> io::Result<Option<Found>> {
    let deadline = Instant::now() + PATIENCE;
    let link = match handover::connect_abstract(&name(pid_file), PATIENCE) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        other => other?,
    };
    let uid = process::peer_uid(&link)?;
    if uid != 0 && uid != user {
        return Err(io::Error::other(format!("it belongs to user {uid}")));
    }
    let bounds =
        Bounds { body_max_bytes: BODY_MAX_BYTES, fds_max: SOCKETS_MAX, deadline: Some(deadline) };
    let (body, mut fds) = handover::receive_within(&link, &bounds)?;
    let mut message = Message::unpack(&body).ok_or(io::ErrorKind::InvalidData)?;
    let more = fds.split_off(message.listeners.min(fds.len()));
    fds.retain(process::is_roots_socket);
    message.listeners = fds.len();
    let (listeners, _) = message.sort(fds);
    let connections = more.into_iter().next().filter(|_| !listeners.is_empty());
    Ok(Some(Found { listeners, connections: connections.and_then(Packets::of), link }))
}

impl Found {
    /// The sockets are in use here: the orphan may end.
    pub fn confirm(&self) {
        // One that has gone meanwhile needs no telling.
        let _ = io::Write::write_all(&mut &self.link, &[1]);
    }
}
