//! One request's way through the servers: what is known of it, what follows when a server has failed, and
//! what is noted at the end.

use crate::bits::next;
use crate::cache;
use crate::conf::BackendLoc;
use crate::exchange::Talk;
use crate::fault::Fault;
use crate::link::reply::BodyReader;
use crate::link::Link;
use crate::sending::Outgoing;
use crate::sticky::{Client, Sticky};
use crate::upload::Body;
use crate::upstream::RetryLoc;
use std::net::SocketAddr;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::generation::Location;
use weir_http::Request;
use weir_runtime::clock;
use weir_upstream::balancer::{Balancing, Last};
use weir_upstream::{Choice, Key, Lease, Wanted, WorkerGroup};
use weir_wire::http1::request::Method;

/// What stays the same while servers are tried.
pub(crate) struct Run<'a> {
    pub(crate) loc: &'a Rc<Location>,
    pub(crate) conf: &'a BackendLoc,
    pub(crate) group: Rc<WorkerGroup>,
    pub(crate) choice: Choice,
    pub(crate) key: Key,
    /// What the group's `sticky` knows of the client.
    pub(crate) client: Client,
    /// Where connections come from, if the configuration says so.
    pub(crate) bind: Option<SocketAddr>,
    /// What tells this client's connections to servers from others', where they are its own; 0 for nothing.
    pub(crate) bound: u64,
    /// How long to wait for a connection, and for all that goes through a tunnel, where that is one time; in ms.
    pub(crate) waits: Option<(u64, u64)>,
    /// TLS to the servers, when they are named with https.
    pub(crate) tls: Option<Box<Wanted>>,
    pub(crate) body: Body,
    /// The body goes out chunked.
    pub(crate) chunked: bool,
    /// The answer will have no body.
    pub(crate) bodiless: bool,
    /// The answer came in one piece with its head, and at the same time.
    pub(crate) at_once: bool,
    /// No server was asked yet.
    pub(crate) first: bool,
    pub(crate) start_us: u64,
    /// When the server that is being asked was chosen, in microseconds of the monotonic clock.
    pub(crate) asked_us: u64,
    /// The answer is kept, so it is read to its end even if the client goes.
    pub(crate) keeps: bool,
    /// Why no further server was asked.
    pub(crate) gave_up: Option<u32>,
    /// Code chooses the servers.
    pub(crate) balancing: Option<Box<Balancing>>,
}

impl<'a> Run<'a> {
    /// What is not known yet has values that are none: most requests keep them.
    #[inline]
    pub(crate) fn new(
        loc: &'a Rc<Location>,
        conf: &'a BackendLoc,
        group: Rc<WorkerGroup>,
        body: Body,
    ) -> Run<'a> {
        Run {
            loc,
            conf,
            choice: group.choice(),
            group,
            key: Key::default(),
            client: Client::default(),
            bind: None,
            bound: 0,
            waits: None,
            tls: None,
            body,
            chunked: false,
            bodiless: false,
            at_once: false,
            first: true,
            start_us: 0,
            asked_us: 0,
            keeps: false,
            gave_up: None,
            balancing: None,
        }
    }

    /// What is to be talked over with a server.
    #[inline(always)]
    pub(crate) fn talk(&self, r: &Request) -> Talk<'a> {
        let outgoing = Outgoing::new(r, self.conf, &self.body, self.chunked);
        Talk::new(self.conf, outgoing, r.watches_client(self.ignores_abort()))
    }

    pub(crate) fn conf(&self) -> &'a BackendLoc {
        self.conf
    }

    /// What reads the body behind the head that has come.
    #[inline(always)]
    pub(crate) fn reader(&self, r: &Request, link: &Link) -> BodyReader {
        let head = &r.exchange.head;
        match self.conf.family.ways.one_answer && r.method == Method::Head {
            // The length that an answer to HEAD shows is not its own.
            true => BodyReader::to_the_end(head),
            false => link.reader(head, self.bodiless),
        }
    }

    pub(crate) fn ignores_abort(&self) -> bool {
        self.keeps || *self.conf().ignore_client_abort
    }

    /// Connections are shared within this location only, where the upstream says so.
    pub(crate) fn tag(&self) -> usize {
        self.loc.id
    }
}

/// A server that is asked, and the connection to it.
pub(crate) struct Asked {
    pub(crate) link: Link,
    pub(crate) lease: Lease,
}

/// What has more bytes is moved by a call each time, which a request would pay several times.
const _: () = assert!(std::mem::size_of::<Asked>() <= 72);

/// Logs a fault and decides what follows it.
pub(crate) fn give_up(
    r: &mut Request,
    run: &mut Run,
    lease: Lease,
    link: Option<Link>,
    fault: Fault,
) -> Option<u16> {
    let name = lease.group().name_of(lease.peer);
    fault.log(r, &name);
    match fault.next_bit() {
        Ok(bit) => failed(r, run, Some(lease), link, bit),
        Err(status) => {
            finish_state(r, run, link.as_ref());
            if let Some(state) = r.upstream.last() {
                lease.count(state);
            }
            Some(status)
        }
    }
}

/// nginx's bookkeeping after a try that failed: `None` when another server is to be asked.
pub(crate) fn failed(
    r: &mut Request,
    run: &mut Run,
    lease: Option<Lease>,
    link: Option<Link>,
    bit: u32,
) -> Option<u16> {
    finish_state(r, run, link.as_ref());
    let harmless = bit & (next::HTTP_403 | next::HTTP_404) != 0;
    if let Some(lease) = lease {
        if let Some(state) = r.upstream.last() {
            lease.count(state);
        }
        if give_back(run, lease, !harmless) {
            let doing = match &link {
                None => "connecting to upstream",
                Some(_) => "reading response header from upstream",
            };
            let text = format!("upstream server temporarily disabled while {doing}");
            r.log(LogLevel::Warn, &text);
        }
    }
    let stale = link.as_ref().is_some_and(|l| l.reused);
    if stale && bit == next::ERROR && *run.loc.conf::<RetryLoc>().retry {
        run.choice.tries += 1;
    }
    let status = match bit {
        next::TIMEOUT | next::HTTP_504 => 504,
        next::HTTP_500 => 500,
        next::HTTP_503 => 503,
        next::HTTP_403 => 403,
        next::HTTP_404 => 404,
        next::HTTP_429 => 429,
        _ => 502,
    };
    if let Some(state) = r.upstream.last_mut() {
        state.status = status;
    }
    let sent = link.is_some_and(|l| l.sent > 0);
    let again = run.choice.tries > 0 && may_repeat(r, run, bit, sent);
    if !again {
        run.gave_up = Some(bit);
        return Some(status);
    }
    r.exchange.reply.clear();
    r.exchange.head.clear();
    r.exchange.answered = false;
    None
}

/// Gives a server back of which a try has failed, or brought an answer upon which another one is asked. Answers
/// whether it is now disabled.
fn give_back(run: &mut Run<'_>, lease: Lease, failed: bool) -> bool {
    let Some(balancing) = &mut run.balancing else {
        return lease.release(&mut run.choice, failed);
    };
    let is_named = !Rc::ptr_eq(lease.group(), &run.group);
    if !is_named {
        return lease.release(&mut run.choice, failed);
    }
    balancing.last = Some((if failed { Last::Failed } else { Last::Next }, 0));
    run.choice.tries = run.choice.tries.saturating_sub(1);
    lease.end(failed)
}

/// Whether `…_next_upstream` allows another server after this.
pub(crate) fn may_repeat(r: &Request, run: &Run, bit: u32, sent: bool) -> bool {
    let conf = run.conf();
    let mut wanted = bit;
    if sent && matches!(r.method, Method::Post | Method::Lock | Method::Patch) {
        wanted |= next::NON_IDEMPOTENT;
    }
    let timeout = *conf.next_upstream_timeout;
    let late = timeout > 0 && clock::mono_us().saturating_sub(run.start_us) / 1000 >= timeout;
    let gone = sent && matches!(run.body, Body::Stream);
    *conf.next_upstream & wanted == wanted && !gone && !late
}

/// Completes what `$upstream_*` shows of the current try.
fn finish_state(r: &mut Request, run: &Run, link: Option<&Link>) {
    let whole = run.at_once.then(|| r.upstream.last().and_then(|s| s.header_us)).flatten();
    let took = whole.unwrap_or_else(|| clock::mono_us().saturating_sub(run.asked_us));
    if let Some(state) = r.upstream.last_mut() {
        state.response_us = Some(took);
        state.bytes_sent = link.map_or(0, |l| l.sent);
    }
}

/// The statuses after which another server may be asked.
pub(crate) fn bit_of(status: u16) -> Option<u32> {
    Some(match status {
        500 => next::HTTP_500,
        502 => next::HTTP_502,
        503 => next::HTTP_503,
        504 => next::HTTP_504,
        403 => next::HTTP_403,
        404 => next::HTTP_404,
        429 => next::HTTP_429,
        _ => return None,
    })
}

/// The exchange is over: the connection is kept when it can carry another request.
pub(crate) fn done(r: &mut Request, run: &mut Run, asked: Asked, reader: &BodyReader) {
    finish_state(r, run, Some(&asked.link));
    let keep = asked.link.may_go_on()
        && reader.done
        && !reader.excess
        && !r.exchange.head.connection_close;
    if run.conf.cache.is_on() {
        cache::counted::asked(r);
    }
    let Asked { link, mut lease } = asked;
    if let Some(state) = r.upstream.last() {
        lease.took(state);
    }
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.ended(r, &run.client, &lease);
    }
    if keep {
        let group = Rc::clone(lease.group());
        group.put_idle(link.into_base(), lease.peer, run.tag(), &r.conn().worker);
    }
    lease.release(&mut run.choice, false);
}
