//! A program that takes another's place: the old one starts it, with its listening sockets and the end of a way by which
//! connections go to it.
//!
//! Unix: they are open in the new program, and variables of the environment have their numbers: `NGINX`, which is nginx's
//! own, so that either may replace the other, and one for the way. Windows: the new program is handed them by its standard
//! input.

use crate::listen::Listener;
use crate::packets::Packets;
use std::io;

/// What the older program has handed to this one.
#[derive(Default)]
pub struct Taken {
    pub listeners: Vec<Listener>,
    pub link: Option<Packets>,
}

#[cfg(unix)]
mod system {
    use super::{io, Listener, Packets, Taken};
    use crate::sockets::{AsRawFd, RawFd};
    use crate::{listen, packets, process, signals, title};
    use std::process::Command;

    const SOCKETS: &str = "NGINX";
    const LINK: &str = "WEIR_CONNECTIONS";

    pub fn take() -> Taken {
        let number = |name| std::env::var(name).ok()?.parse::<RawFd>().ok();
        let (link, list) = (number(LINK), std::env::var(SOCKETS));
        // Neither is for programs that this one starts. It has one thread yet.
        [SOCKETS, LINK].into_iter().for_each(|name| std::env::remove_var(name));
        let list = list.unwrap_or_default();
        let numbers = list.split([';', ':']).filter_map(|n| n.parse::<RawFd>().ok());
        let listeners = numbers.filter_map(listen::inherit).collect();
        Taken { listeners, link: link.and_then(packets::inherit) }
    }

    pub fn start(sockets: &[&Listener], link: Option<Packets>) -> io::Result<i32> {
        let mut args = title::arguments().iter();
        let program = args.next().ok_or(io::ErrorKind::NotFound)?;
        let mut keep: Vec<RawFd> = sockets.iter().map(|l| l.fd()).collect();
        let list: String = keep.iter().map(|fd| format!("{fd};")).collect();
        let mut command = Command::new(program);
        command.args(args).env(SOCKETS, list).env_remove(LINK);
        if let Some(link) = &link {
            command.env(LINK, link.as_raw_fd().to_string());
            keep.push(link.as_raw_fd());
        }
        let prepare = move || {
            signals::unblock_all();
            keep.iter().try_for_each(|fd| process::set_cloexec(*fd, false))
        };
        process::spawn_with(&mut command, prepare)
    }
}

#[cfg(windows)]
mod system {
    use super::{io, Listener, Packets, Taken};
    use crate::handed::{Kind, Message};
    use crate::sockets;
    use crate::windows::family;

    pub fn take() -> Taken {
        let Some((body, mut fds)) = family::handed() else { return Taken::default() };
        let Some(message) = Message::unpack(&body) else { return Taken::default() };
        let more = fds.split_off(message.listeners.min(fds.len()));
        let (listeners, _) = message.sort(fds);
        Taken { listeners, link: more.into_iter().next().and_then(Packets::of) }
    }

    pub fn start(listeners: &[&Listener], link: Option<Packets>) -> io::Result<i32> {
        let fds = listeners.iter().map(|l| sockets::copy(*l));
        let mut fds = fds.collect::<io::Result<Vec<_>>>()?;
        let message = Message::bare(Kind::Configuration, fds.len());
        fds.extend(link.as_ref().map(Packets::to_owned_fd).transpose()?);
        family::start_successor(&message.pack(), fds)
    }
}

/// Takes what an older program has handed over, if one has started this one to take its place. To be called before
/// this program has opened anything.
pub fn take() -> Taken {
    system::take()
}

/// Starts the program that takes this one's place.
///
/// # Errors
///
/// The system's.
pub fn start(sockets: &[&Listener], link: Option<Packets>) -> io::Result<i32> {
    system::start(sockets, link)
}
