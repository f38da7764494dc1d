//! A request that has nothing to do for long, because its connection is a tunnel: in about the bytes of
//! its text, until it is logged.

use super::{Place, Request};
use crate::marks::Marks;
use crate::packing::{Pack, Packer, Unpacker};
use crate::pool;
use std::any::Any;
use weir_core::timing::UpstreamState;
use weir_core::unknown::Unknown;
use weir_core::values::Values;
use weir_core::ClientAddr;
use weir_wire::http1::names::{HeaderId, ResponseHeaderId};
use weir_wire::http1::request::{Method, RequestHead};
use weir_wire::http1::response::ResponseHead;

/// A request, packed where it is as most are.
pub(crate) enum Packed {
    Packed(Box<[u8]>, Kept),
    Whole(Box<Request>),
}

/// What is kept as it is: what others own too, and what is no number or text.
pub(crate) struct Kept {
    place: Option<Place>,
    upstream: Vec<UpstreamState>,
    more: Option<Box<More>>,
    scheme: Option<&'static str>,
    methods: [Method; 2],
    marks: Marks,
    is_computed: bool,
    unknown: Unknown,
}

/// What only some have.
#[derive(Default)]
struct More {
    ctx: Vec<Box<dyn Any>>,
    kept: Vec<Box<dyn Any>>,
    values: Values,
    client: Option<Box<(ClientAddr, Vec<u8>)>>,
}

impl Packed {
    /// What is packed goes back to the pool.
    pub(crate) fn new(mut r: Box<Request>) -> Packed {
        r.shrink();
        if !is_plain(&r) {
            return Packed::Whole(r);
        }
        // Nothing else of it is asked for.
        let request = r.exchange.uri.1;
        r.exchange.request.truncate(request);
        let mut packer = Packer::default();
        visit(&mut packer, &mut r);
        let kept = Kept::take(&mut r);
        pool::give(r);
        Packed::Packed(packer.0.into(), kept)
    }

    pub(crate) fn unpack(self) -> Box<Request> {
        match self {
            Packed::Whole(r) => r,
            Packed::Packed(bytes, kept) => {
                let mut r = pool::take();
                visit(&mut Unpacker(&bytes), &mut r);
                kept.put(&mut r);
                r
            }
        }
    }
}

/// Whether what is not visited is as in a fresh one.
fn is_plain(r: &Request) -> bool {
    !r.body.was_announced()
        && r.body.leftover().is_empty()
        && r.body.file.is_none()
        && r.whole.is_none()
        && r.held.is_empty()
        && r.parts.is_none()
        && r.out.trailers.is_empty()
        && r.exchange.trailers.is_empty()
}

impl Kept {
    fn take(r: &mut Request) -> Kept {
        let has_more =
            !(r.ctx.is_empty() && r.kept.is_empty() && r.values.is_empty()) || r.client.is_some();
        Kept {
            place: r.place.take(),
            upstream: std::mem::take(&mut r.upstream),
            scheme: r.exchange.scheme,
            methods: [r.method, r.head.method],
            marks: r.marks,
            is_computed: r.values.is_computed,
            unknown: std::mem::take(&mut r.values.unknown),
            more: has_more.then(|| {
                Box::new(More {
                    ctx: std::mem::take(&mut r.ctx),
                    kept: std::mem::take(&mut r.kept),
                    values: std::mem::take(&mut r.values),
                    client: r.client.take(),
                })
            }),
        }
    }

    fn put(self, r: &mut Request) {
        if let Some(more) = self.more {
            let More { ctx, kept, values, client } = *more;
            (r.ctx, r.kept, r.values, r.client) = (ctx, kept, values, client);
        }
        (r.place, r.upstream) = (self.place, self.upstream);
        r.exchange.scheme = self.scheme;
        [r.method, r.head.method] = self.methods;
        r.marks = self.marks;
        (r.values.is_computed, r.values.unknown) = (self.is_computed, self.unknown);
        // The names say which they are.
        for field in &mut r.head.headers {
            field.id = HeaderId::of(field.name.of(&r.buf));
        }
        let reply = r.exchange.reply.get(r.exchange.head_at..).unwrap_or_default();
        for field in &mut r.exchange.head.headers {
            field.id = ResponseHeaderId::of(field.name.of(reply));
        }
    }
}

/// Every field is named, so that none is forgotten.
fn visit(pack: &mut impl Pack, r: &mut Request) {
    let Request {
        // In `Kept`.
        place: _,
        marks: _,
        method: _,
        ctx: _,
        kept: _,
        values: _,
        upstream: _,
        client: _,
        // As in a fresh one: `is_plain`.
        whole: _,
        held: _,
        parts: _,
        took_us: _,
        buf,
        head,
        uri,
        args,
        host,
        out,
        body,
        redirects_left,
        flags,
        err_status,
        request_id,
        start_us,
        sent,
        header_size,
        left,
        received,
        limit_rate,
        limit_rate_after,
        paced_until_ms,
        exchange,
        number,
    } = r;
    [buf, uri, args, host].into_iter().for_each(|text| pack.bytes(text));
    visit_head(pack, head);
    out.visit(pack);
    body.visit(pack);
    pack.flags(flags.all());
    pack.small(redirects_left);
    request_id.iter_mut().for_each(|byte| pack.small(byte));
    pack.small(err_status);
    pack.small(number);
    let counts = [start_us, sent, header_size, left, received, paced_until_ms];
    counts.into_iter().for_each(|n| pack.num(n));
    [limit_rate, limit_rate_after].into_iter().for_each(|n| pack.option(n, Pack::num));
    pack.bytes(&mut exchange.request);
    pack.bytes(&mut exchange.reply);
    pack.size(&mut exchange.head_at);
    visit_answer(pack, &mut exchange.head);
    pack.flag(&mut exchange.answered);
    [&mut exchange.uri.0, &mut exchange.uri.1].into_iter().for_each(|n| pack.size(n));
}

fn visit_head(pack: &mut impl Pack, head: &mut RequestHead) {
    let RequestHead {
        // In `Kept`.
        method: _,
        // Nobody asks for it once the head has been taken over.
        connection: _,
        host,
        method_span,
        request_line,
        scheme,
        authority,
        target,
        path,
        args,
        complex_uri,
        quoted_uri,
        plus_in_uri,
        empty_path_in_uri,
        version,
        protocol,
        headers,
        ignored,
        seen,
        head_len,
    } = head;
    [method_span, request_line, target, path, protocol].into_iter().for_each(|n| pack.range(n));
    [scheme, authority, args].into_iter().for_each(|n| pack.option(n, Pack::range));
    pack.option(host, |pack, host| {
        pack.range(&mut host.name);
        pack.small(&mut host.port);
        pack.flag(&mut host.has_upper_case);
    });
    pack.flags([complex_uri, quoted_uri, plus_in_uri, empty_path_in_uri]);
    pack.small(&mut version.0);
    pack.list(headers, |pack, field| {
        pack.range(&mut field.name);
        pack.range(&mut field.value);
    });
    pack.list(ignored, Pack::range);
    pack.num(seen);
    pack.size(head_len);
}

fn visit_answer(pack: &mut impl Pack, head: &mut ResponseHead) {
    let ResponseHead {
        version,
        status,
        status_line,
        headers,
        seen,
        content_length,
        chunked,
        connection_close,
        head_len,
    } = head;
    pack.small(version);
    pack.small(status);
    pack.range(status_line);
    pack.list(headers, |pack, field| {
        pack.range(&mut field.name);
        pack.range(&mut field.value);
        pack.flag(&mut field.repeated);
    });
    pack.num(seen);
    pack.option(content_length, Pack::num);
    pack.flags([chunked, connection_close]);
    pack.size(head_len);
}
