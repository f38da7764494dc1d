//! A kept connection on its way to another process that serves the same sockets: what is known of
//! it, as bytes beside its descriptor. Only one without TLS that waits for its next request goes:
//! nothing of it is half done. Times are of the monotonic clock, which both processes share.

use crate::connection::Connection;
use crate::generation::Door;
use crate::ClientAddr;
use weir_runtime::listen::ListenAddr;
use weir_runtime::paths;
use weir_wire::proxy_protocol::Proxied;

/// What the name of a socket that is no address begins with.
const UNIX: &[u8] = b"unix:";

/// What is carried besides the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The address it came by.
    pub listen: ListenAddr,
    /// What it met there.
    pub door: Door,
    /// As the connection knows it: not what a request finds by a PROXY header or `real_ip`.
    pub client: ClientAddr,
    /// Answered so far, for `keepalive_requests`.
    pub requests: u32,
    /// When it was accepted, in monotonic ms.
    pub start_ms: u64,
    /// Until when the next request may begin, in monotonic ms.
    pub keepalive_deadline_ms: u64,
    /// Over its whole life, TLS not counted, as `bytes_out`.
    pub bytes_in: u64,
    /// `$bytes_sent` of the connection so far.
    pub bytes_out: u64,
    /// From the PROXY header that it began with.
    pub proxied: Option<Proxied>,
}

impl Connection {
    /// Whether it waits for a further request, and nothing but its socket is needed for it.
    pub fn can_be_carried(&self) -> bool {
        let is_empty = self.out.borrow().queued() == 0;
        self.idle.get() && self.is_plain() && is_empty && !self.carried_away.get()
    }

    /// HTTP/1 without TLS: between two requests nothing but its socket is needed. One that was handed on
    /// within this process is no other's: what is counted for it here (`limit_conn` before `pass`) the other
    /// process does not know of.
    fn is_plain(&self) -> bool {
        !self.is_tls() && self.ender.borrow().is_none() && !self.is_passed()
    }

    /// Whether it ends with the request that is served, because the worker is to finish or its address is
    /// not what it was; one that another process will take goes on.
    #[inline]
    pub fn ends_with_request(&self) -> bool {
        let ends = self.worker.closing.get() && !(self.worker.hands_on.get() && self.is_plain());
        ends || self.is_left_behind()
    }

    /// Whether it ends now though its answer has said that it is kept: where another process goes on with the
    /// same sockets, one that stays here is answered once more.
    #[inline]
    pub fn ends_unannounced(&self) -> bool {
        self.ends_with_request() && !self.worker.has_successor.get()
    }

    /// What the other process is to be told; the connection stays as it is.
    pub fn carried(&self) -> Carried {
        let (gen, at) = self.came_by();
        Carried {
            listen: gen.shared.listens[at].addr.clone(),
            door: gen.shared.door(at, || self.local_addr()),
            client: self.client(),
            requests: self.requests.get(),
            start_ms: self.start_ms,
            keepalive_deadline_ms: self.keepalive_deadline.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            proxied: self.proxied.borrow().as_deref().cloned(),
        }
    }

    /// The other process has it: its task here ends without touching the socket.
    pub fn carry_away(&self) {
        self.carried_away.set(true);
        self.stream.socket().leave();
        self.wake();
    }

    /// Takes over what another process knew of it.
    pub fn take_on(&mut self, from: Carried) {
        self.requests.set(from.requests);
        self.start_ms = from.start_ms;
        self.keepalive_deadline.set(from.keepalive_deadline_ms);
        self.bytes_in.set(from.bytes_in);
        self.bytes_out.set(from.bytes_out);
        self.proxied.replace(from.proxied.map(Box::new));
    }
}

impl Carried {
    /// As the bytes of one message; [`Carried::unpack`] reads them, of the same version alone.
    pub fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        let listen = match &self.listen {
            ListenAddr::Ip(a) | ListenAddr::Udp(a) => a.to_string().into_bytes(),
            ListenAddr::Unix(p) => [UNIX, paths::bytes(p)].concat(),
        };
        let client = match self.client {
            ClientAddr::Ip(a) => a.to_string(),
            ClientAddr::Unix => String::new(),
        };
        put(&mut out, &listen);
        put(&mut out, self.door.protocol.as_bytes());
        out.extend_from_slice(&[u8::from(self.door.ssl), u8::from(self.door.proxy_protocol)]);
        put(&mut out, client.as_bytes());
        let times = [self.start_ms, self.keepalive_deadline_ms, self.bytes_in, self.bytes_out];
        for n in times.into_iter().chain([u64::from(self.requests)]) {
            out.extend_from_slice(&n.to_ne_bytes());
        }
        if let Some(p) = &self.proxied {
            put(&mut out, p.source.as_bytes());
            put(&mut out, p.destination.as_bytes());
            out.extend_from_slice(&p.source_port.to_ne_bytes());
            out.extend_from_slice(&p.destination_port.to_ne_bytes());
            put(&mut out, &p.tlvs);
        }
        out
    }

    /// `None`: nothing that `pack` made.
    pub fn unpack(mut from: &[u8]) -> Option<Carried> {
        let from = &mut from;
        let listen = bytes(from)?;
        let door =
            Door { protocol: text(from)?.into(), ssl: flag(from)?, proxy_protocol: flag(from)? };
        let client = text(from)?;
        let [start_ms, keepalive_deadline_ms, bytes_in, bytes_out, requests] =
            [number(from)?, number(from)?, number(from)?, number(from)?, number(from)?];
        let proxied = match from.is_empty() {
            true => None,
            false => Some(Proxied {
                source: text(from)?,
                destination: text(from)?,
                source_port: port(from)?,
                destination_port: port(from)?,
                tlvs: bytes(from)?.to_vec(),
            }),
        };
        if !from.is_empty() {
            return None;
        }
        let listen = match listen.strip_prefix(UNIX) {
            Some(path) => ListenAddr::Unix(paths::path(path).into_owned()),
            None => ListenAddr::Ip(std::str::from_utf8(listen).ok()?.parse().ok()?),
        };
        let client = match &client[..] {
            "" => ClientAddr::Unix,
            a => ClientAddr::Ip(a.parse().ok()?),
        };
        Some(Carried {
            listen,
            door,
            client,
            requests: u32::try_from(requests).ok()?,
            start_ms,
            keepalive_deadline_ms,
            bytes_in,
            bytes_out,
            proxied,
        })
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_ne_bytes());
    out.extend_from_slice(bytes);
}

fn number(from: &mut &[u8]) -> Option<u64> {
    let (head, tail) = from.split_first_chunk()?;
    *from = tail;
    Some(u64::from_ne_bytes(*head))
}

fn flag(from: &mut &[u8]) -> Option<bool> {
    let (head, tail) = from.split_first()?;
    *from = tail;
    match head {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn port(from: &mut &[u8]) -> Option<u16> {
    let (head, tail) = from.split_first_chunk()?;
    *from = tail;
    Some(u16::from_ne_bytes(*head))
}

fn bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = number(from)?;
    let (head, tail) = from.split_at_checked(usize::try_from(len).ok()?)?;
    *from = tail;
    Some(head)
}

fn text(from: &mut &[u8]) -> Option<String> {
    String::from_utf8(bytes(from)?.to_vec()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_arrives() {
        let plain = Carried {
            listen: ListenAddr::Ip("127.0.0.1:80".parse().unwrap()),
            door: Door { protocol: "http".into(), ssl: false, proxy_protocol: true },
            client: ClientAddr::Ip("[::1]:4000".parse().unwrap()),
            requests: 3,
            start_ms: 4,
            keepalive_deadline_ms: 5,
            bytes_in: 6,
            bytes_out: 7,
            proxied: None,
        };
        let proxied = Proxied {
            source: "1.2.3.4".into(),
            destination: "5.6.7.8".into(),
            source_port: 9,
            destination_port: 10,
            tlvs: vec![1, 2, 3],
        };
        let other = Carried {
            listen: ListenAddr::Unix("/a b".into()),
            client: ClientAddr::Unix,
            proxied: Some(proxied),
            ..plain.clone()
        };
        // A path is bytes, and no text.
        let latin = ListenAddr::Unix(paths::path(b"/caf\xe9").into_owned());
        let latin = Carried { listen: latin, ..other.clone() };
        for c in [plain, other, latin] {
            let packed = c.pack();
            assert_eq!(Carried::unpack(&packed).unwrap(), c);
            assert!(Carried::unpack(&packed[..packed.len() - 1]).is_none());
            assert!(Carried::unpack(&[&packed[..], b"more"].concat()).is_none());
        }
    }
}
