//! A connection to a server as requests see it: behind what HTTP/2 or a protocol's records put around
//! it, an answer is a head in text and the body's own bytes.

pub(crate) mod decoder;
pub(crate) mod h2;
pub(crate) mod reply;
pub(crate) mod rest;

use decoder::Decoder;
use h2::{Rest, H2};
use reply::BodyReader;
use rest::Unsent;
use std::io::{self, IoSlice};
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll};
use weir_upstream::{Link as Base, LinkError};
use weir_wire::http1::response::ResponseHead;

/// What sets connections with HTTP/2 apart from others, in their marks.
pub(crate) const H2_MARK: u64 = 2;

/// A connection to a server.
pub(crate) struct Link {
    base: Box<Base>,
    /// It speaks HTTP/2.
    pub h2: Option<Box<H2>>,
    /// Takes the current answer out of what it comes in. Boxed, because links are moved by value, and
    /// what has more than 128 bytes is moved by a call.
    pub decoder: Option<Box<Decoder>>,
    /// What is not sent of the current request though its answer has begun.
    pub unsent: Option<Box<Unsent>>,
}

impl Deref for Link {
    type Target = Base;
    fn deref(&self) -> &Base {
        &self.base
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut Base {
        &mut self.base
    }
}

impl From<Box<Base>> for Link {
    /// A fresh connection, or one that has waited.
    #[inline(always)]
    fn from(mut base: Box<Base>) -> Link {
        let h2 = match base.kept {
            None => None,
            Some(_) => base.kept.take().and_then(|kept| kept.downcast().ok()),
        };
        Link { base, h2, decoder: None, unsent: None }
    }
}

impl Link {
    /// What is kept of it for its next request.
    #[inline(always)]
    pub(crate) fn into_base(self) -> Box<Base> {
        let Link { mut base, h2, decoder, unsent: _ } = self;
        base.holds_process = decoder.is_some_and(|d| d.wrapping.holds_process());
        if let Some(h2) = h2 {
            base.kept = Some(h2);
        }
        base
    }

    /// How long the server may take no more of a request, in milliseconds.
    #[inline(always)]
    pub(crate) fn send_ms(&self, usual_ms: u64) -> u64 {
        self.waits_ms.0.unwrap_or(usual_ms)
    }

    /// How long it may say nothing more.
    #[inline(always)]
    pub(crate) fn read_ms(&self, usual_ms: u64) -> u64 {
        self.waits_ms.1.unwrap_or(usual_ms)
    }

    /// Answers are read as they come.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        self.h2.is_none() && self.decoder.is_none()
    }

    /// Speaks HTTP/2 from its first byte on.
    pub(crate) fn start_h2(&mut self) {
        // Windows and answers must not wait for the acknowledgement of what was sent before.
        self.stream.set_nodelay(true);
        self.mark ^= H2_MARK;
        self.h2 = Some(Box::default());
    }

    /// What reads the body behind that head.
    #[inline(always)]
    pub(crate) fn reader(&self, head: &ResponseHead, bodiless: bool) -> BodyReader {
        match self.is_bare() {
            true => BodyReader::new(head, bodiless),
            false => self.reader_within(head, bodiless),
        }
    }

    #[inline(never)]
    fn reader_within(&self, head: &ResponseHead, bodiless: bool) -> BodyReader {
        match (&self.h2, &self.decoder) {
            (Some(h2), _) => BodyReader::of_stream(head, bodiless, h2.has_ended()),
            (_, Some(decoder)) => BodyReader::decoded(head, bodiless, decoder.wrapping.has_ended()),
            _ => BodyReader::new(head, bodiless),
        }
    }

    /// Tells a reader what the connection knows about its body.
    #[inline]
    pub(crate) fn tell(&mut self, reader: &mut BodyReader) {
        if !self.is_bare() {
            self.tell_of_end(reader);
        }
    }

    #[inline(never)]
    fn tell_of_end(&mut self, reader: &mut BodyReader) {
        match (&mut self.h2, &self.decoder) {
            (Some(h2), _) => {
                reader.trailers.append(&mut h2.trailers);
                reader.set_ended(h2.has_ended());
            }
            (None, Some(decoder)) => reader.set_ended(decoder.wrapping.has_ended()),
            (None, None) => {}
        }
    }

    /// Nothing of the request and its answer is left on the connection, as far as that is known
    /// here.
    #[inline]
    pub(crate) fn may_go_on(&self) -> bool {
        self.unsent.is_none()
            && self.h2.as_ref().is_none_or(|h2| h2.may_go_on())
            && self.decoder.as_ref().is_none_or(|d| d.may_go_on())
    }

    /// Sends what was taken over of the request's body, as far as the server takes it; whether it may
    /// take more then.
    pub(crate) fn upload(&mut self, cx: &mut Context<'_>) -> bool {
        if self.h2.is_some() {
            self.converse(cx);
            return self.h2.as_ref().is_some_and(|h2| !h2.client.is_closed());
        }
        let Some(unsent) = &mut self.unsent else { return false };
        if unsent.send(cx, &mut self.base) {
            self.unsent = None;
            return false;
        }
        !unsent.is_mute()
    }

    /// More of the request's body can be taken over.
    pub(crate) fn wants_more(&self) -> bool {
        match &self.h2 {
            Some(h2) => h2.wants_more(),
            None => self.unsent.as_ref().is_some_and(|unsent| unsent.wants_more()),
        }
    }

    /// Takes over more of the request's body.
    pub(crate) fn take_over(&mut self, bytes: Vec<u8>, ended: bool) {
        if let Some(h2) = &mut self.h2 {
            h2.finish_later(Rest { bytes, source: None, more: !ended });
        } else if let Some(unsent) = &mut self.unsent {
            unsent.put(&bytes, ended);
        }
    }

    /// Reads into the buffer; 0 is the end. A deadline of 0 is set when it must wait.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        if self.is_bare() {
            return self.base.poll_read(cx, buf, room, deadline, timeout_ms);
        }
        self.poll_read_wrapped(cx, buf, room, deadline, timeout_ms)
    }

    #[inline(never)]
    fn poll_read_wrapped(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        let read = match self.h2 {
            None => self.poll_read_decoded(cx, buf, room),
            Some(_) => self.poll_read_h2(cx, buf, room),
        };
        match read {
            Poll::Ready(r) => Poll::Ready(r),
            Poll::Pending => self.poll_deadline(cx, deadline, timeout_ms).map(Err),
        }
    }

    /// As [`Base::poll_send`] for the body of an HTTP/2 request, as far as windows allow. `last`:
    /// the body ends with these parts.
    pub(crate) fn poll_send_body(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        last: bool,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        let Some(h2) = &mut self.h2 else { return Poll::Pending };
        let was_closed = h2.client.is_closed();
        let mut taken = 0;
        for (i, part) in parts.iter().enumerate() {
            let n = h2.frame(part, last && i + 1 == parts.len());
            taken += n;
            if n < part.len() {
                break;
            }
        }
        let progress = taken > 0 || h2.client.is_closed() != was_closed;
        let before = self.sent;
        if let Poll::Ready(Err(e)) = self.poll_flush(cx) {
            return Poll::Ready(Err(LinkError::Io(e)));
        }
        if progress || self.sent > before {
            return Poll::Ready(Ok(taken));
        }
        self.poll_deadline(cx, deadline, timeout_ms).map(Err)
    }

    /// Sends what HTTP/2 has to say.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(h2) = &mut self.h2 else { return Poll::Ready(Ok(())) };
        let out = &mut h2.client.out;
        while !out.is_empty() {
            let n = match self.base.stream.poll_write(cx, &[IoSlice::new(out)], false) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return Poll::Pending,
            };
            out.drain(..n);
            self.base.sent += n as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends meanwhile what can be sent; where that fails, what has come is still read.
    fn converse(&mut self, cx: &mut Context<'_>) {
        while let Some(h2) = &mut self.h2 {
            h2.pump();
            if !h2.has_output() {
                return;
            }
            match self.poll_flush(cx) {
                // What there was no room for among the frames comes next: nobody tells of that.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.be_mute(),
                Poll::Pending => return,
            }
        }
    }

    fn be_mute(&mut self) {
        if let Some(h2) = &mut self.h2 {
            h2.be_mute();
        }
    }

    fn poll_read_decoded(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<usize, LinkError>> {
        let Some(decoder) = &mut self.decoder else { return Poll::Pending };
        if let Some(text) = decoder.take_broken() {
            return Poll::Ready(Err(LinkError::Protocol(text)));
        }
        let from = buf.len();
        let n = match self.base.stream.poll_read(cx, buf, room) {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(LinkError::Io(e))),
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(decoder.decode(buf, from).map(|()| n).map_err(LinkError::Protocol))
    }

    fn poll_read_h2(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<usize, LinkError>> {
        self.converse(cx);
        let Some(h2) = &mut self.h2 else { return Poll::Pending };
        if let Some(text) = h2.take_broken() {
            return Poll::Ready(Err(LinkError::Protocol(text)));
        }
        let n = match self.base.stream.poll_read(cx, &mut h2.client.input, room) {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(LinkError::Io(e))),
            Poll::Pending => return Poll::Pending,
        };
        if n > 0 {
            if let Err(text) = h2.decode(buf) {
                return Poll::Ready(Err(LinkError::Protocol(text)));
            }
            self.converse(cx);
        }
        Poll::Ready(Ok(n))
    }
}
