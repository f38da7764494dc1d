//! What a request asks of its client, whatever protocol that speaks: to take what is queued, to be there
//! still, to send no more. Which protocol it is, is known here, in [`answer`] (what is said to the client)
//! and in [`upload`] (what it sends), and nowhere else.

pub(crate) mod answer;
pub(crate) mod upload;

use crate::h2::Stream;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::{ConnError, Connection};
use weir_runtime::clock;

/// The far end of a request.
#[derive(Clone)]
pub(crate) struct Client {
    conn: Rc<Connection>,
    over: Over,
}

/// What lies between the connection and the request.
#[derive(Clone)]
enum Over {
    /// Nothing: the connection's bytes are this request's.
    H1,
    H2(Rc<Stream>),
}

impl Client {
    pub(crate) fn of_h1(conn: Rc<Connection>) -> Client {
        Client { conn, over: Over::H1 }
    }

    pub(crate) fn of_h2(conn: Rc<Connection>, stream: Rc<Stream>) -> Client {
        Client { conn, over: Over::H2(stream) }
    }

    #[inline]
    pub(crate) fn conn(&self) -> &Rc<Connection> {
        &self.conn
    }

    pub(crate) fn speaks_h2(&self) -> bool {
        matches!(self.over, Over::H2(_))
    }

    /// Whether the end of a body can be followed by fields whatever version of HTTP/1 was asked for.
    pub(crate) fn always_takes_trailers(&self) -> bool {
        match self.over {
            Over::H1 => false,
            Over::H2(_) => true,
        }
    }

    /// Whether what is queued may leave from the buffer that it was read into.
    #[inline]
    pub(crate) fn takes_buffers(&self) -> bool {
        match self.over {
            Over::H1 => true,
            Over::H2(_) => false,
        }
    }

    /// Bytes of the response that are not on their way yet.
    #[inline]
    pub(crate) fn queued(&self) -> u64 {
        match &self.over {
            Over::H1 => self.conn.out.borrow().queued(),
            Over::H2(stream) => stream.queued(),
        }
    }

    /// Bytes of the response that were queued and have not left, nor may ever.
    pub(crate) fn unsent(&self) -> u64 {
        match &self.over {
            Over::H1 => self.conn.unsent(),
            Over::H2(stream) => stream.unsent(),
        }
    }

    /// Bytes sent that are neither header nor body.
    pub(crate) fn overhead(&self) -> u64 {
        match &self.over {
            Over::H1 => 0,
            Over::H2(stream) => stream.overhead(),
        }
    }

    /// Sends what can be sent now; answers how much that was.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &self.over {
            Over::H1 => self.conn.poll_flush(cx, u64::MAX),
            Over::H2(stream) => stream.poll_flush(cx),
        }
    }

    /// Sends all that is queued, if that can be done without waiting: see [`Connection::flush_at_once`].
    #[inline]
    pub(crate) fn flush_at_once(&self) -> bool {
        match &self.over {
            Over::H1 => self.conn.flush_at_once(),
            Over::H2(_) => false,
        }
    }

    /// Whether more leaves as soon as the connection's own task has its turn: only that may wait for the
    /// socket where requests share it.
    pub(crate) fn awaits_turn(&self) -> bool {
        match &self.over {
            Over::H1 => false,
            Over::H2(stream) => stream.awaits_turn(),
        }
    }

    /// Ready once the deadline for sending has passed.
    pub(crate) fn poll_send_timeout(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        match &self.over {
            Over::H1 => self.conn.poll_write_timeout(cx, deadline).map(|_| ()),
            Over::H2(stream) => stream.poll_timeout(cx, deadline),
        }
    }

    /// Sends what is queued until at most `leave` bytes are left, as fast as the client takes it and on a
    /// connection of its own in turns of so many bytes (0: none).
    #[inline]
    pub(crate) async fn drain(
        &self,
        leave: u64,
        turn: u64,
        timeout_ms: u64,
    ) -> Result<(), ConnError> {
        match &self.over {
            Over::H1 => self.conn.drain_in_turns(leave, turn, timeout_ms).await,
            Over::H2(stream) => {
                stream.unlimit();
                stream.drain(leave, timeout_ms).await
            }
        }
    }

    /// Sends at least one and at most `max` of the queued bytes. Answers since when they have been
    /// leaving, in monotonic ms, where that takes its time: a stream's leave in many frames, between
    /// those of other streams.
    pub(crate) async fn drain_some(&self, max: u64, timeout_ms: u64) -> Result<u64, ConnError> {
        match &self.over {
            Over::H1 => self.conn.drain_some(max, timeout_ms).await.map(|()| u64::MAX),
            Over::H2(stream) => {
                let begun = clock::mono_ms();
                stream.drain_some(max, timeout_ms).await.map(|()| begun)
            }
        }
    }

    /// Waits until the end has been sent of which all bytes have been: a stream's stands behind them.
    pub(crate) async fn drain_end(&self, timeout_ms: u64) -> Result<(), ConnError> {
        match &self.over {
            Over::H1 => Ok(()),
            Over::H2(stream) => stream.drain(0, timeout_ms).await,
        }
    }

    /// So many of the queued bytes as reach to the end of a page of the file, where the socket takes them
    /// from there.
    pub(crate) fn to_page_end(&self, bytes: u64) -> u64 {
        match &self.over {
            Over::H1 => self.conn.out.borrow().to_page_end(bytes),
            Over::H2(_) => bytes,
        }
    }

    /// What is queued does not leave by itself, until it is drained: over HTTP/1 it never does.
    pub(crate) fn hold_back(&self, holds: bool) {
        match &self.over {
            Over::H1 => {}
            Over::H2(stream) if holds => stream.send_nothing(),
            Over::H2(stream) => stream.unlimit(),
        }
    }

    /// The request is given up as if its client had been too slow: a stream ends with that.
    pub(crate) fn time_out(&self) {
        if let Over::H2(stream) = &self.over {
            stream.timed_out.set(true);
        }
    }

    /// Throws away what is queued and is this request's alone, but for its first bytes.
    pub(crate) fn drop_output_behind(&self, bytes: u64) {
        match &self.over {
            Over::H1 => self.conn.drop_output_behind(bytes),
            Over::H2(stream) => stream.drop_output_behind(bytes),
        }
    }

    /// Waits, but no longer than the client is there.
    pub(crate) async fn sleep_while_open(
        &self,
        ms: u64,
        half_closed: bool,
    ) -> Result<(), ConnError> {
        match &self.over {
            Over::H1 => self.conn.sleep_while_open(ms, half_closed).await,
            Over::H2(stream) => stream.sleep_while_open(ms).await,
        }
    }

    /// Whether the client has hung up or wants no answer any more; otherwise wakes the task when that may
    /// be. `watching` is turned off once it cannot be seen.
    #[inline]
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>, watching: &mut bool) -> bool {
        match &self.over {
            Over::H1 => self.conn.poll_gone(cx, watching),
            Over::H2(stream) => *watching && stream.poll_gone(cx),
        }
    }

    /// As [`Connection::is_half_closed`]: with HTTP/2 the end of a request is none of the client.
    pub(crate) fn is_half_closed(&self) -> bool {
        match self.over {
            Over::H1 => self.conn.is_half_closed(),
            Over::H2(_) => false,
        }
    }

    /// Whether something of the body waits to be taken, be it its end; otherwise wakes the task when
    /// that may be.
    pub(crate) fn poll_body(&self, cx: &mut Context<'_>) -> bool {
        match &self.over {
            Over::H1 => self.conn.poll_heard(cx),
            Over::H2(stream) => stream.has_body(cx),
        }
    }

    /// Nobody will read the body that it still sends.
    pub(crate) fn skip_body(&self) {
        match &self.over {
            // It is in the way of the next request and must be read: `body::drop_rest`.
            Over::H1 => {}
            Over::H2(stream) => stream.skip_body(),
        }
    }
}
