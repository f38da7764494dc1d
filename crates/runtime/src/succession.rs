//! A program that takes another's place: the old one starts it, with its listening sockets and the end of a way by which
//! connections go to it.
//!
//! Unix: they are open in the new program, and variables of the environment have their numbers: `NGINX`, which is nginx's
//! own, so that either may replace the other, one for the way, and one with the old program's number. Windows: the new
//! program is handed them by its standard input.

use crate::listen::Listener;
use crate::packets::Packets;
use std::io;

/// What the older program has handed to this one.
#[derive(Default)]
pub struct Taken {
    pub listeners: Vec<Listener>,
    pub link: Option<Packets>,
    /// The older program, where it says who it is: another may be this one's parent by now.
    pub from: Option<u32>,
}

#[cfg(unix)]
mod system {
    use super::{io, Listener, Packets, Taken};
    use crate::sockets::{AsRawFd, RawFd};
    use crate::{listen, packets, process, signals, title};
    use std::ffi::OsString;
    use std::process::Command;

    const SOCKETS: &str = "NGINX";
    const LINK: &str = "WEIR_CONNECTIONS";
    const FROM: &str = "WEIR_PREDECESSOR";

    pub fn take() -> Taken {
        let number = |name| std::env::var(name).ok()?.parse::<RawFd>().ok();
        let (link, list) = (number(LINK), std::env::var(SOCKETS));
        let from = number(FROM).and_then(|pid| u32::try_from(pid).ok());
        // They are not for programs that this one starts. It has one thread yet.
        [SOCKETS, LINK, FROM].into_iter().for_each(|name| std::env::remove_var(name));
        let list = list.unwrap_or_default();
        let numbers = list.split([';', ':']).filter_map(|n| n.parse::<RawFd>().ok());
        let listeners = numbers.filter_map(listen::inherit).collect();
        Taken { listeners, link: link.and_then(packets::inherit), from }
    }

    pub fn program() -> Option<OsString> {
        title::arguments().first().cloned()
    }

    pub fn start(sockets: &[&Listener], link: Option<Packets>) -> io::Result<i32> {
        let mut args = title::arguments().iter();
        let program = args.next().ok_or(io::ErrorKind::NotFound)?;
        let mut keep: Vec<RawFd> = sockets.iter().map(|l| l.fd()).collect();
        let list: String = keep.iter().map(|fd| format!("{fd};")).collect();
        let mut command = Command::new(program);
        command.args(args).env(SOCKETS, list).env_remove(LINK);
        command.env(FROM, process::pid().to_string());
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
    use std::ffi::OsString;

    pub fn program() -> Option<OsString> {
        std::env::current_exe().map(Into::into).ok()
    }

    pub fn take() -> Taken {
        let Some((body, mut fds)) = family::handed() else { return Taken::default() };
        let Some(message) = Message::unpack(&body) else { return Taken::default() };
        let more = fds.split_off(message.listeners.min(fds.len()));
        let (listeners, _) = message.sort(fds);
        Taken { listeners, link: more.into_iter().next().and_then(Packets::of), from: None }
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

/// The program that would be started, in quotes, as errors name it.
pub fn program() -> String {
    let name = system::program();
    format!("\"{}\"", name.as_ref().map_or("".into(), |name| name.to_string_lossy()))
}

/// Starts the program that takes this one's place.
///
/// # Errors
///
/// The system's.
pub fn start(sockets: &[&Listener], link: Option<Packets>) -> io::Result<i32> {
    system::start(sockets, link)
}
