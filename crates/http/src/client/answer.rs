//! What is said to a request's client: the end of the filter chains, in the protocol that it speaks.

use super::Over;
use crate::buf::{Buf, Chain};
use crate::flow::FilterResult;
use crate::h1::output as h1;
use crate::h2::output as h2;
use crate::matching;
use crate::one_line;
use crate::output;
use crate::request::Request;
use crate::subrequest;
use weir_wire::http1::request::{Method, Version};

/// Serialises the response header into the output queue. Apart, so that the filters before it, which call
/// one another, need no room for it.
#[inline(never)]
pub(crate) fn send_header(r: &mut Request) -> FilterResult {
    if r.flags.header_sent {
        return Ok(());
    }
    // Once the header has left, a rate that cannot be told could only be none.
    if r.is_limited() {
        r.settle_rate();
    }
    matching::check_header(r)?;
    if r.is_part() {
        subrequest::header(r);
        return Ok(());
    }
    r.flags.header_sent = true;
    if r.version() < Version::HTTP_10 {
        return Ok(());
    }
    if r.method == Method::Head {
        r.flags.header_only = true;
    }
    output::complete_location(r);
    if r.conn().ends_with_request() {
        r.flags.keepalive = false;
    }
    adjust(r);
    one_line::check(r);
    match &r.to_client().over {
        Over::H1 => h1::send_header(r),
        Over::H2(stream) => {
            let stream = stream.clone();
            h2::send_header(r, &stream);
        }
    }
    Ok(())
}

/// What statuses without a body leave out.
fn adjust(r: &mut Request) {
    let status = r.out.status;
    if r.out.last_modified.is_some() && !matches!(status, 200 | 206 | 304) {
        r.out.last_modified = None;
    }
    if status == 204 || status == 304 {
        r.flags.header_only = true;
    }
    if status == 204 {
        r.out.content_length = None;
        r.out.last_modified = None;
        // As nginx, which looks at the status of an upstream's answer over HTTP/2 only.
        if r.out.status_line().is_none() {
            r.out.clear_content_type();
        }
    }
}

/// Queues body data, framed as the header announced it.
pub(crate) fn send_body(r: &mut Request, chain: Chain) -> FilterResult {
    match &r.to_client().over {
        Over::H1 => h1::send_body(r, chain),
        Over::H2(stream) => {
            let stream = stream.clone();
            h2::send_body(r, &stream, chain);
        }
    }
    Ok(())
}

/// Queues a buffer that no filter wants to see.
pub(crate) fn send_buf(r: &mut Request, buf: Buf) -> FilterResult {
    match &r.to_client().over {
        Over::H1 => {
            h1::send_buf(r, buf);
            Ok(())
        }
        Over::H2(_) => send_body(r, Chain::one(buf)),
    }
}

impl Request {
    /// Queues what a buffer holds from `from` on, which no filter wants to see. Much of it stays where it
    /// is, if the client takes buffers: this one goes into the queue, and another with what stands before
    /// `from` takes its place.
    pub fn send_read(&mut self, buf: &mut Vec<u8>, from: usize, last: bool) {
        match &self.to_client().over {
            Over::H1 => h1::send_read(self, buf, from, last),
            Over::H2(stream) => {
                let stream = stream.clone();
                h2::send_slice(self, &stream, &buf[from..], last);
            }
        }
    }

    /// Whether what is given to [`Request::send_read`] need not be copied.
    pub fn takes_buffers(&self) -> bool {
        self.to_client().takes_buffers()
    }

    /// Whether fields may follow the body.
    pub fn takes_trailers(&self) -> bool {
        let chunks =
            self.version() >= Version::HTTP_11 && *self.loc().core.chunked_transfer_encoding;
        chunks || self.to_client().always_takes_trailers()
    }
}

/// Tells the client to send its body.
pub(crate) fn send_continue(r: &mut Request) {
    match &r.to_client().over {
        Over::H1 => h1::send_continue(r),
        // It sends without being told, as far as its window goes.
        Over::H2(_) => {}
    }
}

/// Sends hints ahead of the answer, as far as the client takes them at once.
pub(crate) fn send_hints(r: &Request, fields: &[u8]) {
    match &r.to_client().over {
        Over::H1 => h1::send_hints(r, fields),
        Over::H2(stream) => h2::send_hints(stream, fields),
    }
}
