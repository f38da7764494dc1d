//! A serving process that its master has started rather than forked (Windows): what a fork would have given it comes by
//! the way from its master. Files in memory, and whether it goes on where the one before was; the way from the process
//! whose place it takes, if it takes one's; then, as with a reload, the configuration's text, sockets and log files.

use crate::globals::Global;
use crate::kept::Kept;
use crate::load::{self, Paths};
use crate::master::Child;
use crate::sockets::Sockets;
use crate::{control, figures, heirs, inquiry, panics};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use weir_conf::{BundleLoader, Sources};
use weir_core::logger::{self, LogLevel};
use weir_core::{os_text, programs};
use weir_module::Mode;
use weir_runtime::handed::{Kind, Message};
use weir_runtime::packets::Packets;
use weir_runtime::signals::Waiter;
use weir_runtime::sockets::{self, OwnedFd, UnixStream};
use weir_runtime::{handover, process};
use weir_status::pairs_left;

const PAIRS: &str = "pairs";
/// Whether it goes on, and the configuration's number; behind them is what is known of servers.
const HEAD_BYTES: usize = 1 + 8;

/// Tells a process that was just started what comes before the configuration.
pub fn tell(to: &mut Child, kept: &Kept, goes_on: bool) -> io::Result<()> {
    let pairs = pairs_left::copies()?;
    let mut files: Vec<(&str, &File)> = figures::files().collect();
    files.extend(pairs.iter().map(|file| (PAIRS, file)));
    let paths = files.iter().map(|(name, _)| PathBuf::from(name)).collect();
    let fds = files.iter().map(|(_, file)| sockets::copy(*file)).collect::<io::Result<_>>()?;
    let mut bundle = vec![u8::from(goes_on)];
    bundle.extend_from_slice(&kept.number().to_ne_bytes());
    bundle.extend_from_slice(figures::all_told().as_bytes());
    let message = Message { kind: Kind::Kept, listeners: 0, paths, bundle };
    to.outbox.send(&message.pack(), fds, message.kind.class())?;
    if let Some(link) = heirs::handed_on().transpose()? {
        let message = Message::bare(Kind::Predecessor, 0);
        to.outbox.send(&message.pack(), vec![link], message.kind.class())?;
    }
    Ok(())
}

/// The other side of [`tell`].
fn take(message: &Message, fds: Vec<OwnedFd>) {
    let Some((head, known)) = message.bundle.split_at_checked(HEAD_BYTES) else { return };
    figures::goes_on(head[0] != 0);
    let number = head[1..].try_into().map_or(1, u64::from_ne_bytes);
    // It is the same configuration, whichever process has read it before.
    load::is_in_force(number.saturating_sub(1));
    weir_upstream::health::know(&String::from_utf8_lossy(known));
    let (_, files) = message.sort(fds);
    let mut files = files.into_iter();
    while let (Some((name, first)), Some((_, second))) = (files.next(), files.next()) {
        match name.to_str() {
            Some(PAIRS) => pairs_left::have([first, second]),
            Some(name) => figures::have(name, [first, second]),
            None => {}
        }
    }
}

/// Serves until it is told to end.
pub fn serve(paths: &Paths, link: &UnixStream) -> Result<(), String> {
    programs::leave();
    let failed = |e: io::Error| format!("the master process says nothing ({})", os_text(&e));
    let (message, fds) = loop {
        let (body, fds) = handover::receive(link).map_err(failed)?;
        let message =
            Message::unpack(&body).ok_or(io::ErrorKind::InvalidData.into()).map_err(failed)?;
        match message.kind {
            Kind::Kept => take(&message, fds),
            Kind::Predecessor => {
                heirs::succeed(fds.into_iter().next().and_then(Packets::of));
            }
            Kind::Configuration => break (message, fds),
            Kind::Logs | Kind::Successor | Kind::NoSuccessor | Kind::Quit => {}
        }
    };
    let (listeners, files) = message.sort(fds);
    files.into_iter().for_each(|(path, file)| logger::keep_handed(path, file));
    let sources = Sources::from_bundle(&message.bundle).map_err(|e| e.to_string())?;
    let loaded = load::load_from(paths, Mode::Serve, &BundleLoader::new(&sources));
    let generation = loaded.map_err(|e| e.line)?.into_generation();
    logger::drop_handed();
    panics::log_to(&generation.error_log);
    let global = generation.global.get::<Global>();
    let log = std::sync::Arc::clone(&generation.error_log);
    let adopted = Sockets::default().adopt(&generation, global.workers(), listeners);
    let own = adopted.map_err(|failed| failed.join("; "));
    // Its name is the master's number; where there is no pid file it matters not what is beside it.
    inquiry::open(&paths.pid_path(global).unwrap_or_default(), &log);
    weir_lua::has_master(process::parent_pid());
    let waiter = Waiter::new().map_err(|e| format!("events failed ({})", os_text(&e)));
    own.and_then(|own| control::serve(paths, generation, own, None, link, &waiter?))
        .inspect_err(|e| log.log(LogLevel::Emerg, None, e.as_bytes()))
}
