//! `sticky`: a client that was served by a server comes to the same one again, known by a cookie
//! that is given to it (`cookie`), by a text it brings (`route`) or by a session that a server has
//! begun (`learn`).
//!
//! What the client brings becomes [`Choice::hint`], which every balancing method asks first. As in
//! nginx a server that is down, failing or full is not waited for: another is chosen, and the client
//! is from then on that one's.
//!
//! Difference from nginx: the balancing method may also follow the directive.

pub(crate) mod rows;
mod session;
pub(crate) mod session_rows;
mod sessions;

use session::SessionSticky;
use sessions::Sessions;
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_base::date;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;
use weir_runtime::clock;
use weir_script::template::Template;
use weir_upstream::{Choice, Lease};

/// `expires=max`
const MAX_EXPIRES: &[u8] = b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000";

/// An upstream's `sticky`.
pub(crate) struct Sticky {
    /// Where a client's own word is looked for; the first that has one counts.
    lookup: Vec<Template>,
    kind: Kind,
}

enum Kind {
    Route,
    Cookie(Box<Cookie>),
    Learn(Learn),
    /// Tengine's.
    Session(Box<SessionSticky>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expires {
    Session,
    Secs(u64),
    Max,
}

/// The cookie that is given out.
#[derive(Clone)]
struct Cookie {
    name: Vec<u8>,
    domain: Option<Template>,
    path: Option<Vec<u8>>,
    expires: Expires,
    httponly: bool,
    secure: bool,
    samesite: Option<Template>,
}

struct Learn {
    create: Vec<Template>,
    /// A session is known from its head on, not from the end of the answer.
    at_header: bool,
    sessions: Arc<Sessions>,
}

/// What one request has of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// What the client brought.
    id: Vec<u8>,
    /// Since when its session is there, as it says; in seconds since 1970.
    first_secs: u64,
    /// Which field of the response is our cookie.
    cookie: Option<usize>,
}

fn first(r: &mut Request, from: &[Template]) -> Vec<u8> {
    from.iter().map(|t| r.eval(t)).find(|v| !v.is_empty()).unwrap_or_default()
}

impl Sticky {
    pub(crate) fn client(&self, r: &mut Request) -> Client {
        if let Kind::Session(session) = &self.kind {
            let (id, first_secs) = session.client(r);
            return Client { id, first_secs, cookie: None };
        }
        Client { id: first(r, &self.lookup), ..Client::default() }
    }

    /// Says whom the client wants before a server is chosen.
    pub(crate) fn ask(&self, client: &Client, choice: &mut Choice) {
        choice.hint.clear();
        match &self.kind {
            _ if client.id.is_empty() => {}
            Kind::Learn(learn) => {
                choice.hint = learn.sessions.find(&client.id, clock::mono_ms());
            }
            _ => choice.hint.extend_from_slice(&client.id),
        }
    }

    /// Whether a server that was chosen may answer that client.
    pub(crate) fn accepts(&self, client: &Client, lease: &Lease) -> bool {
        match &self.kind {
            Kind::Session(session) => session.accepts(&client.id, lease),
            _ => true,
        }
    }

    /// The answer's fields are among those that the client gets.
    pub(crate) fn head_is_made(&self, r: &mut Request, client: &Client, lease: &Lease) {
        if let Kind::Session(session) = &self.kind {
            session.tell(r, &client.id, client.first_secs, lease);
        }
    }

    /// A server was chosen: the client is told.
    pub(crate) fn chosen(&self, r: &mut Request, client: &mut Client, lease: &Lease) {
        let Kind::Cookie(cookie) = &self.kind else { return };
        let value = cookie.value(r, &lease.config().sid);
        match client.cookie {
            Some(at) => r.out.set_value(at, &value),
            None => client.cookie = Some(r.out.add_numbered(b"Set-Cookie", &value)),
        }
    }

    /// The answer's head has come and is passed on.
    pub(crate) fn answered(&self, r: &mut Request, client: &Client, lease: &Lease) {
        self.learn(r, client, lease, true);
    }

    /// The exchange went well to its end.
    pub(crate) fn ended(&self, r: &mut Request, client: &Client, lease: &Lease) {
        self.learn(r, client, lease, false);
    }

    fn learn(&self, r: &mut Request, client: &Client, lease: &Lease, at_header: bool) {
        let Kind::Learn(learn) = &self.kind else { return };
        if learn.at_header != at_header {
            return;
        }
        let created = first(r, &learn.create);
        let (id, create) = match created.is_empty() {
            true => (&client.id, false),
            false => (&created, true),
        };
        if id.is_empty() {
            return;
        }
        let full = learn.sessions.keep(id, &lease.config().sid, create, clock::mono_ms());
        if full {
            let text = format!(
                "could not allocate node in sticky session zone \"{}\", expiring least recently \
                 used session",
                String::from_utf8_lossy(&learn.sessions.zone)
            );
            r.log(LogLevel::Warn, &text);
        }
    }
}

impl Cookie {
    fn value(&self, r: &mut Request, sid: &[u8]) -> Vec<u8> {
        let mut out = [&self.name[..], b"=", sid].concat();
        match self.expires {
            Expires::Session => {}
            Expires::Max => out.extend_from_slice(MAX_EXPIRES),
            Expires::Secs(secs) => {
                let end = clock::wall_secs() + i64::try_from(secs).unwrap_or(i64::MAX / 2);
                out.extend_from_slice(b"; expires=");
                date::cookie_time(&mut out, end);
                out.extend_from_slice(b"; max-age=");
                fmt_u64(&mut out, secs);
            }
        }
        let domain = self.domain.as_ref().map(|t| r.eval(t)).unwrap_or_default();
        if !domain.is_empty() {
            out.extend_from_slice(b"; domain=");
            out.extend_from_slice(&domain);
        }
        if self.httponly {
            out.extend_from_slice(b"; httponly");
        }
        if self.secure {
            out.extend_from_slice(b"; secure");
        }
        let samesite = self.samesite.as_ref().map(|t| r.eval(t)).unwrap_or_default();
        if !samesite.is_empty() {
            out.extend_from_slice(b"; samesite=");
            out.extend_from_slice(if is_samesite(&samesite) { &samesite } else { b"strict" });
        }
        if let Some(path) = &self.path {
            out.extend_from_slice(b"; path=");
            out.extend_from_slice(path);
        }
        out
    }
}

fn is_samesite(value: &[u8]) -> bool {
    [&b"strict"[..], b"lax", b"none"].iter().any(|w| w.eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_in_full() {
        let cookie = Cookie {
            name: b"s".to_vec(),
            domain: Some(Template::constant(b"x.org")),
            path: Some(b"/p".to_vec()),
            expires: Expires::Max,
            httponly: true,
            secure: true,
            samesite: Some(Template::constant(b"sideways")),
        };
        let value = String::from_utf8(cookie.value(&mut Request::default(), b"id")).unwrap();
        let rest = "; domain=x.org; httponly; secure; samesite=strict; path=/p";
        let max = String::from_utf8_lossy(MAX_EXPIRES);
        assert_eq!(value, format!("s=id{max}{rest}"));
    }
}
