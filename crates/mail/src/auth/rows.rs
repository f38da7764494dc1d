//! Directives of `auth_http` and its family.

use super::{AuthSrv, Place, Server};
use crate::module::MailModule;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use weir_base::addr::{EndpointOptions, Host};
use weir_core::block::{self, Build};
use weir_core::resolver;
use weir_module::{
    distinct, ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row, SlotVtable,
};
use weir_runtime::listen::parse_endpoint;
use weir_upstream::PeerAddr;
use weir_wire::mail::auth_http::header_lines;

const MS: Context = Context::MS;
const USUAL_PORT: u16 = 80;

static ROWS: &[Row] = &[
    Row::new(
        "auth_http",
        MS,
        Arity::ONE,
        "",
        "The HTTP server that says who clients are, and which server is theirs.",
        set_server,
    )
    .note(
        "an answer WAIT without Auth-Wait has the question asked again after a second, where nginx \
         asks without end and without a pause; a client that goes while it is to wait ends the wait; \
         an empty Auth-Status counts as none in SMTP too",
    ),
    Row::new(
        "auth_http_timeout",
        MS,
        Arity::ONE,
        "60s",
        "Longest time for an answer.",
        |cf, d| {
            let v = d.msec(0)?;
            cf.get::<AuthSrv>().timeout.once(d, v)
        },
    ),
    Row::new("auth_http_header", MS, Arity::TWO, "", "A field of the requests.", |cf, d| {
        let line = header_lines([(d.arg(0), d.arg(1))]);
        cf.get::<AuthSrv>().header_lines.extend(line);
        Ok(())
    }),
    Row::new(
        "auth_http_pass_client_cert",
        MS,
        Arity::FLAG,
        "off",
        "Requests have the client's certificate.",
        |cf, d| {
            let v = d.flag()?;
            cf.get::<AuthSrv>().pass_client_cert.once(d, v)
        },
    ),
];

/// `auth_http` and its family.
pub const MODULE: MailModule = MailModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<AuthSrv>()],
    build: Some(build),
    ..MailModule::EMPTY
};

/// `auth_http [http://]HOST[:PORT][/URI]`
fn set_server(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = d.arg(0).strip_prefix(b"http://").unwrap_or(d.arg(0));
    let bad = |why: &str| {
        let shown = String::from_utf8_lossy(text);
        d.bad(0, format!("{why} in auth_http \"{shown}\""))
    };
    let options = EndpointOptions { uri_part: true, ..EndpointOptions::default() };
    let url = parse_endpoint(text, options).map_err(bad)?;
    let port = url.port.unwrap_or(USUAL_PORT);
    let place = match url.host {
        Host::V4(a) => Place::Known(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::V6(a) => Place::Known(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::Unix(path) => {
            Place::Known(PeerAddr::Unix(weir_runtime::paths::path(path).into_owned()))
        }
        Host::Name(name) => Place::Named(String::from_utf8_lossy(name).into_owned(), port),
        Host::Any => return Err(bad("no host")),
    };
    let host = match url.host {
        Host::Unix(_) => b"localhost".to_vec(),
        _ => url.host_text.to_vec(),
    };
    let uri = if url.uri.is_empty() { b"/".to_vec() } else { url.uri.to_vec() };
    let written = String::from_utf8_lossy(text).into_owned();
    let server = Server { place, written, at: d.position(), addr: OnceLock::new(), host, uri };
    cf.get::<AuthSrv>().server = Some(Arc::new(server));
    Ok(())
}

fn build(b: &mut Build) -> ConfResult {
    for slots in b.servers.iter() {
        if slots.get::<AuthSrv>().server.is_none() {
            let e = Diagnostic::emerg("no \"auth_http\" is defined for server".to_string());
            let hint = "add auth_http HOST[:PORT]/URI; to the server or to mail";
            let e = e.hint(hint.to_string());
            return Err(match slots.get::<block::Place>().reached.at {
                Some(at) => e.at(at),
                None => e,
            });
        }
    }
    let all = distinct::<AuthSrv>(b.servers).into_iter();
    for server in all.filter_map(|conf| conf.server.as_ref()) {
        let addr = match &server.place {
            Place::Known(addr) => addr.clone(),
            Place::Named(name, port) => look_up(name, *port).ok_or_else(|| not_found(server))?,
        };
        // Several places may have it; all find the same.
        let _ = server.addr.set(addr);
    }
    Ok(())
}

/// The first address, as in nginx.
fn look_up(name: &str, port: u16) -> Option<PeerAddr> {
    let found = (name, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.map(PeerAddr::Ip)
}

fn not_found(server: &Server) -> Diagnostic {
    let text = format!("host not found in auth_http \"{}\"", server.written);
    Diagnostic::emerg(text).at(server.at).hint(resolver::NAME_HINT.to_string())
}
