//! Looking at what a client has sent without taking it: others may want it from the socket.

use crate::{ConnError, Connection};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::task::{ready, Context, Poll};

impl Connection {
    /// Waits for more than the buffer has, and shows all of it anew, up to `room` bytes; 0: no more will come.
    /// `deadline` is in monotonic ms. With TLS there is nothing to be seen.
    ///
    /// # Errors
    ///
    /// As [`Connection::read`].
    pub async fn peek(
        &self,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: u64,
    ) -> Result<usize, ConnError> {
        let before = buf.len();
        poll_fn(|cx| match self.poll_peek(cx, before, buf, room) {
            Poll::Ready(seen) => Poll::Ready(seen),
            Poll::Pending => self.poll_timeout(cx, deadline).map(|()| Err(ConnError::Timeout)),
        })
        .await
    }

    fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        before: usize,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<usize, ConnError>> {
        let socket = self.stream.socket();
        loop {
            ready!(self.stream.poll_readable(cx)).map_err(ConnError::Io)?;
            buf.clear();
            match socket.peek_into(buf, room) {
                Ok(n) if n > before => return Poll::Ready(Ok(n - before)),
                Ok(_) if socket.has_ended() => return Poll::Ready(Ok(0)),
                Err(e) if e.kind() != ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(ConnError::Io(e)));
                }
                _ => self.stream.not_readable(),
            }
        }
    }
}
