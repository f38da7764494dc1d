//! rustls' connection without buffers of its own, a server's or a client's: bytes in, bytes and
//! records out, all of them in memory that the caller lends. (The connection with buffers keeps
//! 4 KB for as long as it lives, from the first byte on that it reads.)

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error};

/// An alert, as long as one may get, with what rustls may send before it.
const ALERT_ROOM_BYTES: usize = 256;

/// Records on their way to the socket.
#[derive(Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    /// What of them has not left.
    from: usize,
    to: usize,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Forgets all; the memory stays.
    pub fn clear(&mut self) {
        (self.from, self.to) = (0, 0);
    }

    pub fn left(&mut self, bytes: usize) {
        self.from += bytes;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.to += bytes.len();
    }

    /// Room for so many bytes more, or for more than these.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() < self.to + bytes {
            self.bytes.resize(self.to + bytes, 0);
        }
        &mut self.bytes[self.to..]
    }
}

/// What is wanted of the engine.
#[derive(Clone, Copy)]
pub(crate) enum Task<'a> {
    /// Work on what was received.
    Read,
    /// The same for as long as something is to be sent, an alert for example.
    Send,
    /// Make records of the bytes, about so many.
    Seal(&'a [u8], usize),
    /// Say that nothing more will be sent.
    Close,
}

/// Why the engine stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It needs more of the peer's bytes.
    Blocked,
    /// It has plain bytes to give, and may have more.
    Plain,
    /// The peer will send nothing more.
    Ended,
    /// What was wanted is done.
    Done,
}

pub(crate) enum Engine {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl std::ops::Deref for Engine {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        match self {
            Engine::Server(conn) => conn,
            Engine::Client(conn) => conn,
        }
    }
}

impl Engine {
    /// Does the task and works on the peer's bytes meanwhile. Records to be sent go behind `out`, plain
    /// bytes that came in to `plain`. With the reason to stop comes how many of the peer's bytes are
    /// done with: the others must be given again, as they are then, with those that follow.
    ///
    /// # Errors
    ///
    /// The session is over. What tells the peer so is found by [`Task::Send`].
    pub fn work(
        &mut self,
        task: Task<'_>,
        received: &mut [u8],
        out: &mut Queue,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(usize, Stop), Error> {
        let mut done = 0;
        loop {
            if matches!(task, Task::Send) && !self.wants_write() {
                return Ok((done, Stop::Done));
            }
            let rest = &mut received[done..];
            let (used, stop) = match self {
                Engine::Server(conn) => {
                    of_server(conn.process_tls_records(rest), task, out, plain)?
                }
                Engine::Client(conn) => {
                    of_client(conn.process_tls_records(rest), task, out, plain)?
                }
            };
            done += used;
            match stop {
                // To ask once more would do no harm, and costs each request something.
                Some(Stop::Plain) if done == received.len() && !self.wants_write() => {
                    return Ok((done, Stop::Blocked));
                }
                None | Some(Stop::Plain) => {}
                Some(stop) => return Ok((done, stop)),
            }
        }
    }
}

/// Bytes that are done with, and why to stop, if that is so.
type Step = Result<(usize, Option<Stop>), Error>;

fn of_server(
    status: UnbufferedStatus<'_, '_, ServerConnectionData>,
    task: Task<'_>,
    out: &mut Queue,
    plain: &mut dyn FnMut(&[u8]),
) -> Step {
    let mut used = status.discard;
    match status.state? {
        ConnectionState::ReadEarlyData(mut early) => {
            while let Some(record) = early.next_record() {
                let record = record?;
                plain(record.payload);
                used += record.discard;
            }
            Ok((used, None))
        }
        state => of_both(state, used, task, out, plain),
    }
}

fn of_client(
    status: UnbufferedStatus<'_, '_, ClientConnectionData>,
    task: Task<'_>,
    out: &mut Queue,
    plain: &mut dyn FnMut(&[u8]),
) -> Step {
    of_both(status.state?, status.discard, task, out, plain)
}

fn of_both<D>(
    state: ConnectionState<'_, '_, D>,
    mut used: usize,
    task: Task<'_>,
    out: &mut Queue,
    plain: &mut dyn FnMut(&[u8]),
) -> Step {
    let wants_to_write = matches!(task, Task::Seal(..) | Task::Close);
    let stop = match state {
        ConnectionState::ReadTraffic(mut records) => {
            while let Some(record) = records.next_record() {
                let record = record?;
                plain(record.payload);
                used += record.discard;
            }
            (!wants_to_write).then_some(Stop::Plain)
        }
        ConnectionState::EncodeTlsData(mut data) => {
            encode(out, |room| data.encode(room))?;
            None
        }
        // It is ours to send: it stays in order.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            None
        }
        // It is said once, and may be said to one who wants to write.
        ConnectionState::PeerClosed => (!wants_to_write).then_some(Stop::Ended),
        ConnectionState::Closed if !wants_to_write => Some(Stop::Ended),
        ConnectionState::WriteTraffic(mut traffic) => match task {
            Task::Read | Task::Send => Some(Stop::Blocked),
            Task::Seal(bytes, about) => {
                seal(out, about, |room| traffic.encrypt(bytes, room))?;
                Some(Stop::Done)
            }
            Task::Close => {
                seal(out, ALERT_ROOM_BYTES, |room| traffic.queue_close_notify(room))?;
                Some(Stop::Done)
            }
        },
        _ if wants_to_write => return Err(Error::HandshakeNotComplete),
        _ => Some(Stop::Blocked),
    };
    Ok((used, stop))
}

/// Puts a record of the handshake behind `out`: how long it is rustls tells when it finds no room.
fn encode(
    out: &mut Queue,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let bytes = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(e)) => encode(out.room(e.required_size)),
        other => other,
    };
    out.to += bytes.map_err(|e| Error::General(e.to_string()))?;
    Ok(())
}

/// Puts records behind `out` that take about so many bytes.
fn seal(
    out: &mut Queue,
    about: usize,
    mut encrypt: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let bytes = match encrypt(out.room(about)) {
        Err(EncryptError::InsufficientSize(e)) => encrypt(out.room(e.required_size)),
        other => other,
    };
    out.to += bytes.map_err(|e| Error::General(e.to_string()))?;
    Ok(())
}
