//! Datagrams: received, given to their sessions, and sessions begun for those that have none.

use super::{State, ACCEPT_REST_MS, SERIAL};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::sync::{self, Arc};
use tokio::sync::mpsc::Receiver;
use weir_core::counters::Counters;
use weir_core::datagrams::{announce, Arrival, Handed, Key};
use weir_core::logger::LogLevel;
use weir_core::{ClientAddr, Connection};
use weir_runtime::datagrams::DatagramWatch;
use weir_runtime::listen::{ListenAddr, Listener};
use weir_runtime::net::Stream;

/// Received at once before others have their turn.
const PER_TURN: u32 = 32;
/// Taken at once from a socket that is let go of: more than its buffer holds.
const LEFT_WAITING_MAX: usize = 65_536;

/// Receives from a socket.
pub(super) async fn receive(state: Rc<State>, listener: Arc<Listener>) {
    let log = |level, text: String| {
        state.worker.generation().shared.error_log.log(level, None, text.as_bytes());
    };
    let watch = match DatagramWatch::new(Arc::clone(&listener)) {
        Ok(watch) => watch,
        Err(e) => return log(LogLevel::Alert, format!("watching {} failed: {e}", listener.addr)),
    };
    announce(&listener);
    state.sessions.make_room();
    let mut turn = 0;
    loop {
        let sessions = &state.sessions;
        let got = poll_fn(|cx| watch.poll_receive(cx, &mut sessions.buf.borrow_mut())).await;
        match got {
            Ok(got) => {
                let key = key(&listener, got.client, got.local);
                let data = &sessions.buf.borrow()[..got.len];
                turn += 1;
                // A session that begins has its turn at once: it may be over when the client's next
                // datagram is looked at, which is then another's.
                if arrived(&state, key, Arc::downgrade(&listener), data) || turn == PER_TURN {
                    turn = 0;
                } else {
                    continue;
                }
            }
            Err(e) => {
                log(LogLevel::Alert, format!("recvmsg() failed ({})", weir_core::os_text(&e)));
                weir_runtime::timer::sleep_ms(ACCEPT_REST_MS).await;
            }
        }
        weir_runtime::event_loop::yield_now().await;
    }
}

fn key(listener: &Listener, client: std::net::SocketAddr, local: std::net::IpAddr) -> Key {
    // Only sockets with such an address are received from.
    let listen = listener.addr.ip().unwrap_or(client);
    Key { listen, client, local }
}

/// Takes what waits in a socket that is let go of.
pub(super) fn take_waiting(state: &Rc<State>, listener: &Arc<Listener>) {
    for _ in 0..LEFT_WAITING_MAX {
        let got = listener.receive(&mut state.sessions.buf.borrow_mut());
        let Ok(got) = got else { return };
        let key = key(listener, got.client, got.local);
        let data = &state.sessions.buf.borrow()[..got.len];
        arrived(state, key, Arc::downgrade(listener), data);
    }
}

/// Takes over what other workers, and sessions that have ended, leave to this one.
pub(super) async fn take_over(state: Weak<State>, mut handed: Receiver<Handed>) {
    while let Some(Handed { key, data }) = handed.recv().await {
        let Some(state) = state.upgrade() else { return };
        if arrived(&state, key, sync::Weak::new(), &data) {
            weir_runtime::event_loop::yield_now().await;
        }
    }
}

/// Gives a datagram to its session; whether one has begun with it.
fn arrived(state: &Rc<State>, key: Key, listener: sync::Weak<Listener>, data: &[u8]) -> bool {
    match state.sessions.deliver(&key, data) {
        Arrival::Delivered => false,
        Arrival::Dropped => {
            tell_dropped(state);
            false
        }
        Arrival::First => {
            let begun = begin(state, key, listener, data).is_some();
            if !begun {
                state.sessions.disown(&key);
            }
            begun
        }
    }
}

#[cold]
fn tell_dropped(state: &State) {
    if let Some(n) = state.dropped.one_more() {
        let text = format!("{n} datagrams were dropped: too many wait for their sessions");
        state.worker.generation().shared.error_log.log(LogLevel::Warn, None, text.as_bytes());
    }
}

fn begin(state: &Rc<State>, key: Key, listener: sync::Weak<Listener>, data: &[u8]) -> Option<()> {
    let worker = &state.worker;
    let gen = worker.generation();
    let at = gen.shared.listens.place(&ListenAddr::Udp(key.listen))?;
    if worker.closing.get() {
        return None;
    }
    Counters::add(&worker.counters.accepted, 1);
    if worker.connections.get() >= worker.connections_max.get() && !state.give_way() {
        // Told once a second: nobody knows who has sent these.
        if state.dropped.one_more().is_some() {
            state.tell_full();
        }
        return None;
    }
    Counters::add(&worker.counters.handled, 1);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let client = ClientAddr::Ip(key.client);
    let conn = Connection::new(Rc::clone(worker), Stream::nowhere(), client, (gen, at), serial);
    conn.local.set(Some(std::net::SocketAddr::new(key.local, key.listen.port())));
    // A fresh connection has none.
    let _ = conn.datagrams.set(state.sessions.begin(key, listener, data));
    state.run(Rc::new(conn));
    Some(())
}
