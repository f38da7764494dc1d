//! After `101 Switching Protocols`: the connections to the client and to the server become one, and what
//! else the request has taken is let go of.

use crate::conf::BackendLoc;
use crate::link::Link;
use crate::sticky::{Client, Sticky};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::relay::{Event, How, Late, Relay, Waits, CLIENT, SERVER};
use weir_core::{socket_errors, ConnError, Session};
use weir_http::module::{FilterError, FilterResult};
use weir_http::{tunnel, Request};
use weir_runtime::clock;
use weir_tls::Channel;
use weir_upstream::{error_text, Lease, WorkerGroup};

/// The server's side, and what is to be told of it at the end.
struct Far {
    server: Channel,
    lease: Lease,
    sticky: Option<Box<(Rc<WorkerGroup>, Client)>>,
    /// Bytes sent before it became a tunnel.
    sent: u64,
    /// When the server was chosen.
    asked_us: u64,
    /// When it said something first, in ms since it was asked.
    first_ms: Option<u64>,
}

/// When the server of a tunnel has said something first: kept with requests of which something shows it.
pub(crate) struct FirstByte(pub(crate) Option<u64>);

impl tunnel::Far for Far {
    fn channel(&self) -> &Channel {
        &self.server
    }

    fn heard(&mut self) {
        self.first_ms = Some(clock::mono_ms().saturating_sub(self.asked_us / 1000));
    }

    fn ended(self: Box<Self>, r: &mut Request, relay: &Relay, how: &Event) {
        let Far { mut lease, sticky, sent, asked_us, first_ms, .. } = *self;
        if let Some(first) = r.kept::<FirstByte>() {
            first.0 = first_ms;
        }
        let received = relay.received(SERVER);
        if let Some(state) = r.upstream.last_mut() {
            state.bytes_received += received;
            // Its length stays 0, as in nginx: what goes through a tunnel is no response.
            state.bytes_sent = sent + relay.sent(CLIENT);
            state.response_us = Some(clock::mono_us().saturating_sub(asked_us));
            lease.took(state);
        }
        log_end(r, how);
        if let Some((group, client)) = sticky.map(|s| *s) {
            if let Some(sticky) = group.sticky::<Sticky>() {
                sticky.ended(r, &client, &lease);
            }
        }
        lease.end(false);
    }
}

/// Logs it, at nginx's levels: an idle connection that is let run out is no error.
fn log_end(r: &Request, how: &Event) {
    const DOING: &str = "while proxying upgraded connection";
    const LATE: &str = "timed out (110: Connection timed out)";
    let (call, side, e) = match how {
        Event::Done(_) => return,
        Event::Late(late) => {
            let who = if *late == Late::Client { "client" } else { "upstream" };
            return r.log(LogLevel::Info, &format!("{who} {LATE} {DOING}"));
        }
        Event::Unread(from, e) => ("recv()", *from, e),
        Event::Unsent(from, e) => ("send()", 1 - *from, e),
    };
    let usual = if side == CLIENT { LogLevel::Info } else { LogLevel::Error };
    let text = format!("{call} failed {} {DOING}", error_text(e));
    r.log(socket_errors::level(e, usual), &text);
}

/// Whom the answer came from.
pub(crate) struct From {
    pub link: Link,
    pub lease: Lease,
    pub group: Rc<WorkerGroup>,
    pub client: Client,
    pub asked_us: u64,
    pub waits: Waits,
}

/// Sends the head; what follows goes both ways until one side is done. An error: the head could not be
/// sent.
pub(crate) async fn begin(r: &mut Request, conf: &BackendLoc, from: From) -> FilterResult {
    r.flags.upgraded = true;
    r.flags.keepalive = false;
    r.out.content_length = None;
    r.send_header()?;
    // A filter may wait: the tunnel begins behind the header.
    if r.holds() && r.drain(0).await.is_err() {
        return Err(FilterError::Broken);
    }
    let From { link, lease, group, client, asked_us, waits } = from;
    let (conn, sent) = (Rc::clone(r.conn()), link.sent);
    let server = link.into_base().stream;
    conn.set_nodelay();
    server.set_nodelay(true);
    let head_end = r.exchange.head_at + r.exchange.head.head_len;
    let early = r.exchange.reply.split_off(head_end.min(r.exchange.reply.len()));
    let mut relay = Relay::new(How {
        size: *conf.buffer_size as usize,
        waits,
        half_close: false,
        rates: [0; 2],
    });
    let early_bytes = early.len() as u64;
    if let Some(state) = r.upstream.last_mut() {
        // From now on the relay counts.
        state.bytes_received = state.bytes_received.saturating_sub(early_bytes);
    }
    relay.begin_with(SERVER, early, early_bytes);
    relay.begin_with(CLIENT, r.body.take_pending(), 0);
    let sticky = group.sticky::<Sticky>().is_some().then(|| Box::new((group, client)));
    let far = Box::new(Far { server, lease, sticky, sent, asked_us, first_ms: None });
    match conn.drain(0, waits.client_ms).await {
        Ok(()) => tunnel::begin(r, far, relay),
        Err(e) => {
            let how = match e {
                ConnError::Timeout => Event::Late(Late::Client),
                ConnError::Io(e) => Event::Unsent(SERVER, e),
            };
            tunnel::Far::ended(far, r, &relay, &how);
        }
    }
    Ok(())
}
