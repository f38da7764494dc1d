//! What the TLS of each protocol's servers has of its own.

use super::conf::SslSrv;
use std::rc::Rc;
use weir_core::block::Place;
use weir_core::generation::{Virtual, WorkerGen};
use weir_core::listen::Reached;
use weir_core::{Connection, Session};
use weir_http::conf::CoreSrv;
use weir_http::generation::Http;
use weir_http::{pool, Request};
use weir_module::{Context, Slots};
use weir_runtime::clock;
use weir_stream::generation::Stream;

/// Sessions whose clients may speak TLS.
pub trait Secured: Session {
    /// Where the directives of a server stand.
    const SERVERS: Context;
    /// What zones are for: nginx's are one protocol's alone.
    const ZONES: (&'static str, &'static str);

    fn reached(server: &Slots) -> &Reached;
    fn base_of(server: &mut Slots) -> &mut Virtual;

    /// The protocols that clients may choose from; HTTP's if nothing.
    fn alpn(conf: &SslSrv) -> Option<Vec<Vec<u8>>>;

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

    fn alpn(_: &SslSrv) -> Option<Vec<Vec<u8>>> {
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
        let mut r = pool::take();
        r.begin(Rc::clone(conn), gen, server, clock::mono_ms());
        let value = f(&mut r);
        pool::give(r);
        value
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

    fn alpn(conf: &SslSrv) -> Option<Vec<Vec<u8>>> {
        Some(Vec::clone(&conf.alpn))
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
