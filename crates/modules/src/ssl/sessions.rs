//! What the TLS of each protocol's servers has of its own.

use super::conf::SslSrv;
use std::rc::Rc;
use weir_conf::Position;
use weir_core::block::Place;
use weir_core::generation::{Virtual, WorkerGen};
use weir_core::listen::Reached;
use weir_core::tls::files::Name;
use weir_core::{Connection, Session};
use weir_http::conf::CoreSrv;
use weir_http::generation::Http;
use weir_http::{pool, Request};
use weir_mail::{Mail, MailSrv};
use weir_module::{ArgsExt, Cf, ConfResult, Context, Directive, Slots};
use weir_stream::Stream;
use weir_wire::mail::StartTls;

/// Sessions whose clients may speak TLS.
pub trait Secured: Session {
    /// Where the directives of a server stand.
    const SERVERS: Context;
    /// What zones are for: nginx's are one protocol's alone.
    const ZONES: (&'static str, &'static str);

    fn reached(server: &Slots) -> &Reached;
    fn base_of(server: &mut Slots) -> &mut Virtual;

    /// The protocols that clients may choose from; HTTP's if nothing.
    fn alpn(server: &Slots) -> Option<Vec<Vec<u8>>>;

    /// The name of a certificate's or a key's file.
    fn name(cf: &mut Cf, d: &Directive, i: usize) -> ConfResult<Name> {
        Name::of::<Self>(cf, d, i)
    }

    /// Whether a server's certificates are read.
    fn has_tls(_: &Slots) -> bool {
        true
    }

    /// What needs certificates where nginx asks each server by itself: a directive and where it stands.
    fn needs_tls(_: &Slots) -> Option<(&'static str, Option<Position>)> {
        None
    }

    /// Longest time for a handshake.
    fn handshake_timeout(server: &Slots) -> u64 {
        *server.get::<SslSrv>().handshake_timeout
    }

    /// A session for what is to be known before there is one.
    fn with_session<T>(
        conn: &Rc<Connection>,
        gen: &Rc<WorkerGen>,
        server: usize,
        f: impl FnOnce(&mut Self) -> T,
    ) -> T;
}

impl Secured for Request {
    const SERVERS: Context = Context::HS;
    const ZONES: (&'static str, &'static str) = ("ssl_session_cache", "ssl_ocsp_cache");

    fn reached(server: &Slots) -> &Reached {
        &server.get::<CoreSrv>().reached
    }

    fn base_of(server: &mut Slots) -> &mut Virtual {
        &mut server.get_mut::<CoreSrv>().base
    }

    fn alpn(_: &Slots) -> Option<Vec<Vec<u8>>> {
        None
    }

    fn with_session<T>(
        conn: &Rc<Connection>,
        gen: &Rc<WorkerGen>,
        server: usize,
        f: impl FnOnce(&mut Request) -> T,
    ) -> T {
        let gen = Http::of(gen);
        let server = Rc::clone(gen.server(server));
        pool::with(conn, gen, server, f)
    }
}

impl Secured for weir_stream::Session {
    const SERVERS: Context = Context::SS;
    const ZONES: (&'static str, &'static str) =
        ("ssl_session_cache of stream", "ssl_ocsp_cache of stream");

    fn reached(server: &Slots) -> &Reached {
        &server.get::<Place>().reached
    }

    fn base_of(server: &mut Slots) -> &mut Virtual {
        &mut server.get_mut::<Place>().base
    }

    fn alpn(server: &Slots) -> Option<Vec<Vec<u8>>> {
        Some(Vec::clone(&server.get::<SslSrv>().alpn))
    }

    fn with_session<T>(
        conn: &Rc<Connection>,
        gen: &Rc<WorkerGen>,
        server: usize,
        f: impl FnOnce(&mut weir_stream::Session) -> T,
    ) -> T {
        f(&mut weir_stream::Session::new(Rc::clone(conn), Stream::of(gen), server, 0))
    }
}

impl Secured for weir_mail::Session {
    const SERVERS: Context = Context::MS;
    const ZONES: (&'static str, &'static str) =
        ("ssl_session_cache of mail", "ssl_ocsp_cache of mail");

    fn reached(server: &Slots) -> &Reached {
        &server.get::<Place>().reached
    }

    fn base_of(server: &mut Slots) -> &mut Virtual {
        &mut server.get_mut::<Place>().base
    }

    fn alpn(server: &Slots) -> Option<Vec<Vec<u8>>> {
        let protocol = server.get::<MailSrv>().protocol;
        Some(protocol.map(|p| p.name().into()).into_iter().collect())
    }

    /// As written: no directive of `mail` has variables.
    fn name(_: &mut Cf, d: &Directive, i: usize) -> ConfResult<Name> {
        Ok(Name { text: d.arg(i).to_vec(), template: None })
    }

    fn has_tls(server: &Slots) -> bool {
        Self::needs_tls(server).is_some()
    }

    fn needs_tls(server: &Slots) -> Option<(&'static str, Option<Position>)> {
        if let Some(l) = server.get::<Place>().reached.listens.iter().find(|l| l.ssl) {
            return Some(("listen ... ssl", Some(l.span.start())));
        }
        let conf = server.get::<MailSrv>();
        (*conf.starttls != StartTls::Off).then_some(("starttls", conf.starttls_at))
    }

    fn handshake_timeout(server: &Slots) -> u64 {
        *server.get::<MailSrv>().timeout
    }

    fn with_session<T>(
        conn: &Rc<Connection>,
        gen: &Rc<WorkerGen>,
        server: usize,
        f: impl FnOnce(&mut weir_mail::Session) -> T,
    ) -> T {
        f(&mut weir_mail::Session::new(Rc::clone(conn), Mail::of(gen), server))
    }
}
