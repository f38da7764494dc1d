//! The end of the filter chains for HTTP/2: the header as a block, the body into the stream's
//! queue or, when nothing stands in the way, straight into frames.

use super::block::{write_block, Ready};
use super::conf::H2Loc;
use super::link::FRAMED_MAX_BYTES;
use super::stream::Stream;
use crate::buf::{Buf, Chain, Data};
use crate::conf::ServerTokens;
use crate::one_line;
use crate::output::{self, HeadSink, Name};
use crate::request::Request;
use std::rc::Rc;
use weir_base::bytes::fmt_u64;
use weir_core::OutQueue;
use weir_wire::http2::frame::{self, END_STREAM, HEAD_BYTES};
use weir_wire::http2::hpack;

struct Block<'a> {
    out: &'a mut Vec<u8>,
    ready: &'a Ready,
    scratch: &'a mut Vec<u8>,
}

impl HeadSink for Block<'_> {
    fn server(&mut self, tokens: ServerTokens) {
        self.out.extend_from_slice(match tokens {
            ServerTokens::Off => &self.ready.name,
            _ => &self.ready.version,
        });
    }

    fn date(&mut self) {
        self.ready.write_date(self.out);
    }

    fn number(&mut self, name: Name, n: u64) {
        self.scratch.clear();
        fmt_u64(self.scratch, n);
        hpack::text_known(name.known, self.scratch, self.out);
    }

    fn known(&mut self, name: Name, value: &[&[u8]]) {
        if let [value] = value {
            return hpack::literal_known(name.known, value, self.out);
        }
        self.scratch.clear();
        value.iter().for_each(|part| self.scratch.extend_from_slice(part));
        hpack::literal_known(name.known, self.scratch, self.out);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        if !is_of_the_connection(name) {
            hpack::literal_lower(name, value, self.out);
        }
    }
}

/// Fields that mean nothing here (RFC 9113 section 8.2.2).
fn is_of_the_connection(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] =
        [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
    matches!(name.len(), 7 | 10 | 16 | 17) && NAMES.iter().any(|n| n.eq_ignore_ascii_case(name))
}

/// Writes the header as HEADERS, which ends the stream when no body follows. Apart, as is what follows: HTTP/1's
/// way does not step over it.
#[inline(never)]
pub(crate) fn send_header(r: &mut Request, stream: &Rc<Stream>) {
    if stream.is_dead() {
        return;
    }
    // As nginx, which has it among the list's fields for HTTP/1, and heeds an upstream's own words there.
    if r.flags.own_location && r.out.get(b"Location").is_some_and(|path| !path.is_empty()) {
        r.out.lead_with_location();
    }
    if r.out.status == 204 {
        r.out.clear_content_type();
    }
    let link = Rc::clone(&stream.link);
    let bodiless = r.flags.header_only || r.out.content_length == Some(0);
    let flags = if bodiless { END_STREAM } else { 0 };
    let mut out = link.conn.out.borrow_mut();
    let added = out.write(|text| {
        let at = text.len();
        text.extend_from_slice(&[0; HEAD_BYTES]);
        if link.table_update.replace(false) {
            text.push(hpack::EMPTY_TABLE);
        }
        hpack::status(r.out.status, text);
        let mut scratch = link.ready.scratch.borrow_mut();
        let ready = &link.ready;
        output::write_fields(r, &mut Block { out: text, ready, scratch: &mut scratch });
        drop(scratch);
        frame::finish_block(text, at, stream.id, flags, link.frame_max.get());
    });
    drop(out);
    r.header_size = added;
    r.sent += added;
    let limited = r.limit_rate.map_or(r.loc().core.limit_rate.is_some(), |n| n > 0);
    let mut s = stream.send.borrow_mut();
    s.chunk = *r.loc().conf::<H2Loc>().chunk_size;
    s.allowed = if limited { 0 } else { u64::MAX };
    s.ended = bodiless;
    s.last = bodiless;
    drop(s);
    link.wake();
}

#[inline(never)]
pub(crate) fn send_body(r: &mut Request, stream: &Rc<Stream>, chain: Chain) {
    let last = chain.has_last();
    if stream.is_dead() || stream.send.borrow().ended {
        return;
    }
    r.sent += chain.len();
    if last {
        keep_trailers(r, stream);
    }
    if let Some(rest) = send_now(stream, chain, last) {
        let mut s = stream.send.borrow_mut();
        for buf in rest {
            push(&mut s.out, buf);
        }
        s.last |= last;
        drop(s);
        stream.link.list(stream);
        stream.link.wake();
    }
}

#[inline(never)]
pub(crate) fn send_slice(r: &mut Request, stream: &Rc<Stream>, bytes: &[u8], last: bool) {
    if stream.is_dead() || stream.send.borrow().ended {
        return;
    }
    r.sent += bytes.len() as u64;
    if last {
        keep_trailers(r, stream);
    }
    let mut s = stream.send.borrow_mut();
    s.out.write(|t| t.extend_from_slice(bytes));
    s.last |= last;
    drop(s);
    stream.link.list(stream);
    stream.link.wake();
}

fn push(out: &mut OutQueue, buf: Buf) {
    match buf.data {
        Data::None => {}
        Data::Mem(bytes) => out.push_bytes(bytes),
        Data::File { file, offset, len } => out.push_file(file, offset, len),
    }
}

/// Frames a whole body of one piece at once, if the windows are wide enough and nobody waits;
/// otherwise gives the chain back.
fn send_now(stream: &Stream, chain: Chain, last: bool) -> Option<Chain> {
    let link = &stream.link;
    let len = chain.len();
    let mut s = stream.send.borrow_mut();
    let windows = s.window.available().min(link.window.get().available());
    let free = last && s.out.queued() == 0 && s.allowed == u64::MAX && s.trailers.is_none();
    if !free
        || windows < len
        || len > FRAMED_MAX_BYTES
        || !link.is_idle()
        || chain.iter().filter(|b| !b.is_empty()).count() > 1
    {
        return Some(chain);
    }
    let max = s.chunk.min(link.frame_max.get() as u64);
    s.overhead += len.div_ceil(max).max(1) * HEAD_BYTES as u64;
    let mut out = link.conn.out.borrow_mut();
    let head = |out: &mut OutQueue, n: u64, done: u64| {
        let end = if done + n == len { END_STREAM } else { 0 };
        out.write(|t| t.extend_from_slice(&frame::head(n as usize, frame::DATA, end, stream.id)));
    };
    match chain.into_iter().find(|b| !b.is_empty()).map(|b| b.data) {
        Some(Data::Mem(bytes)) => {
            let mut done = 0;
            while done < len {
                let n = max.min(len - done);
                head(&mut out, n, done);
                out.push_bytes(bytes.slice(done as usize..(done + n) as usize));
                done += n;
            }
        }
        Some(Data::File { file, offset, .. }) => {
            let mut done = 0;
            while done < len {
                let n = max.min(len - done);
                head(&mut out, n, done);
                out.push_file(Rc::clone(&file), offset + done, n);
                done += n;
            }
        }
        _ => head(&mut out, 0, 0),
    }
    drop(out);
    link.took(&mut s, len);
    s.last = true;
    s.ended = true;
    drop(s);
    link.wake();
    None
}

fn keep_trailers(r: &Request, stream: &Stream) {
    if r.out.trailers.is_empty() {
        return;
    }
    let mut block = Vec::new();
    for (name, value) in &r.out.trailers {
        hpack::literal_lower(name, &one_line::trailer(r, name, value), &mut block);
    }
    stream.send.borrow_mut().trailers = Some(block);
}

/// A 103 answer ahead of the final one; `fields` are lines as HTTP/1 has them.
pub(crate) fn send_hints(stream: &Rc<Stream>, fields: &[u8]) {
    if stream.is_dead() {
        return;
    }
    let link = &stream.link;
    let mut block = Vec::new();
    if link.table_update.replace(false) {
        block.push(hpack::EMPTY_TABLE);
    }
    hpack::status(103, &mut block);
    for line in fields.split(|b| *b == b'\n') {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let (name, value) = line.split_at(colon);
        if !is_of_the_connection(name) {
            hpack::literal_lower(name, value[1..].trim_ascii(), &mut block);
        }
    }
    let max = link.frame_max.get();
    link.conn.out.borrow_mut().write(|t| write_block(&block, stream.id, 0, max, t));
    link.wake();
}
