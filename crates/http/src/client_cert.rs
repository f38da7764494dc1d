//! Whether a request may be served on a connection with TLS, because of the client's certificate.

use crate::request::Request;
use crate::server;
use crate::status_zone;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::tls::client::{ask_for, refusal, Refusal};
use weir_core::tls::late;
use weir_core::Session;
use weir_runtime::clock;
use weir_tls::server::VerifyClient;

/// Why a request must not be served on its connection.
pub(crate) enum Objection {
    None,
    /// A status to answer with.
    Status(u16),
    /// It has yet to be asked about.
    Unasked,
}

/// Whether a request must not be served on its connection.
#[cold]
pub(crate) fn objection(r: &mut Request) -> Objection {
    let conn = Rc::clone(r.conn());
    let Some(secure) = conn.secure.get() else {
        r.log(LogLevel::Info, "client sent plain HTTP request to HTTPS port");
        return Objection::Status(497);
    };
    let verify = r.server().base.verify_client;
    if verify == VerifyClient::Off {
        return Objection::None;
    }
    if secure.is_found.get() && secure.host().as_ref() != Some(&r.host) && !r.host.is_empty() {
        let text = "client attempted to request the server name different from the one that was \
                    negotiated";
        r.log(LogLevel::Info, text);
        // The page is one of the server that was negotiated.
        let other = server::default_of(&conn, r.gen());
        status_zone::moves(r, &other);
        r.set_server(other);
        return Objection::Status(421);
    }
    let Some(refusal) = refusal(&conn, &r.gen().core, &r.server().base) else {
        return Objection::None;
    };
    let status = match &refusal {
        Refusal::Unasked => return Objection::Unasked,
        Refusal::Bad(_) => 495,
        Refusal::Missing => 496,
    };
    r.log(LogLevel::Info, &refusal.text());
    Objection::Status(status)
}

/// Whether the client has shown the certificate that its server demands. A request without one may get on all the same: by the
/// page that tells of it (`error_page 496 @other`), and on from there.
pub fn is_certified(r: &Request) -> bool {
    let (conn, base) = (r.conn(), &r.server().base);
    base.verify_client == VerifyClient::On
        && conn.secure.get().is_some()
        && refusal(conn, &r.gen().core, base).is_none()
}

/// Asks about the certificate on behalf of a server that the handshake was not done with, and says
/// then whether the request may be served.
pub(crate) async fn objection_after_asking(r: &mut Request) -> Option<u16> {
    let (conn, gen) = (Rc::clone(r.conn()), Rc::clone(r.gen()));
    let server = std::sync::Arc::clone(&r.server().base);
    let deadline = clock::mono_ms() + server.handshake_timeout_ms;
    if !ask_for(&conn, &gen.core, &server, deadline).await {
        r.log(LogLevel::Info, &late());
        return Some(408);
    }
    match objection(r) {
        Objection::None => None,
        Objection::Status(status) => Some(status),
        Objection::Unasked => Some(495),
    }
}
