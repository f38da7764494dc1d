//! Who may write: the configuration has to say it, and a page of another site cannot have a browser do it.

use super::refusal::{Outcome, Refusal};
use super::{Api, ApiLoc};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_conf::Position;
use weir_http::client_cert::is_certified;
use weir_http::conf::{CoreLoc, CoreSrv};
use weir_http::module::{self, Build};
use weir_http::Request;
use weir_module::{slot, Cf, ConfResult, ConfType, Diagnostic, Directive, Level, Slots};
use weir_tls::server::VerifyClient;
use weir_wire::http1::request::Method;

/// A place that writes, among all that were ever read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    number: u64,
    at: Position,
}

/// The places of a server.
#[derive(Default)]
pub(crate) struct ApiSrv {
    /// Those that write.
    writing: Vec<u64>,
    /// All, by their locations' names, and whether they write.
    named: Vec<(Vec<u8>, bool)>,
}

impl ApiSrv {
    /// Whether the one of that name writes; none if there is no such.
    pub(crate) fn writes_at(&self, name: &[u8]) -> Option<bool> {
        let is_it = |(n, _): &&(Vec<u8>, bool)| n == name;
        self.named.iter().find(is_it).map(|(_, writes)| *writes)
    }
}

impl ConfType for ApiSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A place is read; where it writes, its server is told.
pub(super) fn mark(cf: &mut Cf, d: &Directive, name: &[u8], writes: bool) -> Mark {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let server = cf.get::<ApiSrv>();
    server.named.push((name.to_vec(), writes));
    if writes {
        server.writing.push(number);
    }
    Mark { number, at: d.position() }
}

/// Refuses places that write and that anybody reaches.
pub(super) fn check(b: &mut Build) -> ConfResult {
    let asks = |s: &&Slots| {
        let server = s.get::<CoreSrv>();
        // Who comes without TLS has no certificate to be asked for.
        server.base.verify_client == VerifyClient::On
            && server.reached.listens.iter().all(|listen| listen.ssl)
    };
    let verified: Vec<u64> = b
        .servers
        .iter()
        .filter(asks)
        .flat_map(|s| s.get::<ApiSrv>().writing.iter().copied())
        .collect();
    for location in b.locations {
        let Some(api) = location.get::<ApiLoc>().0.as_ref().filter(|api| api.writes) else {
            continue;
        };
        if is_guarded(b, location) {
            continue;
        }
        if verified.contains(&api.mark.number) {
            api.wants_certificate.store(true, Ordering::Relaxed);
            continue;
        }
        let text = "\"api write=on\" in a location that anybody may reach";
        let hint = "write \"allow 127.0.0.1; deny all;\" beside it, or auth_basic, auth_jwt or auth_request, or \
                    \"ssl_verify_client on\" in a server that listens by TLS alone";
        return Err(Diagnostic::emerg(text.to_string()).at(api.mark.at).hint(hint.to_string()));
    }
    Ok(())
}

fn is_guarded(b: &Build, location: &Slots) -> bool {
    let writes = Method::Post.bit() | Method::Patch.bit() | Method::Delete.bit();
    module::keeps_strangers_out(b.main, location)
        || location.get::<CoreLoc>().limit_except.is_some_and(|(allowed, id)| {
            allowed & writes == 0 && module::keeps_strangers_out(b.main, &b.locations[id])
        })
}

fn field<'a>(r: &'a Request, name: &[u8]) -> Option<&'a [u8]> {
    r.headers().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// What a client reaches the server by without asking anybody for a name.
fn is_address(host: &[u8]) -> bool {
    let inner = host.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or(host);
    host == b"localhost"
        || host.ends_with(b".localhost")
        || std::str::from_utf8(inner).is_ok_and(|text| text.parse::<std::net::IpAddr>().is_ok())
}

const OTHER_SITE: &str = "requests of other sites may not change anything: a browser's Origin is to be this server's name (Host). \
    Behind a proxy that sends another name, write \"proxy_set_header Host $host;\" there ($http_host where the port is not the usual \
    one), and that name into server_name here";
const NO_NAME: &str = "browsers may change something under an address or a name of the server: write this name into server_name";

fn refused(text: &'static str) -> Outcome<()> {
    Err(Refusal::new(403, "CrossSiteRequest", text))
}

/// Refuses what is a part of another request (`mirror`, `auth_request`, `echo_subrequest`): as in nginx, nobody asks those whether
/// they may, so that who is denied here would write through them.
pub(super) fn own_request(r: &Request) -> Outcome<()> {
    match r.is_part() {
        true => Err(Refusal::new(
            403,
            "SubrequestDenied",
            "a subrequest may not change anything: allow, auth_basic and the like are not asked for it",
        )),
        false => Ok(()),
    }
}

/// Refuses who has shown no certificate where that alone keeps strangers out.
pub(super) fn certified(r: &Request, api: &Api) -> Outcome<()> {
    match api.wants_certificate.load(Ordering::Relaxed) && !is_certified(r) {
        true => Err(Refusal::new(
            403,
            "CertificateRequired",
            "nothing may be changed here without a certificate that ssl_verify_client takes",
        )),
        false => Ok(()),
    }
}

/// Whether a page comes from where the request goes to. What comes without TLS may have come by a proxy that has it; what comes
/// with it is not another's that has none.
fn is_own(origin: &[u8], host: &[u8], is_tls: bool) -> bool {
    let plain = origin.strip_prefix(b"http://").filter(|_| !is_tls);
    let at = origin.strip_prefix(b"https://").or(plain);
    !host.is_empty() && at.is_some_and(|at| at.eq_ignore_ascii_case(host))
}

/// Refuses what a page of another site has a browser send.
pub(super) fn same_site(r: &Request) -> Outcome<()> {
    match field(r, b"Sec-Fetch-Site") {
        None | Some(b"same-origin" | b"none") => {}
        Some(_) => return refused(OTHER_SITE),
    }
    let Some(origin) = field(r, b"Origin") else { return Ok(()) };
    if !is_own(origin, field(r, b"Host").unwrap_or_default(), r.conn().is_tls()) {
        return refused(OTHER_SITE);
    }
    // A name of somebody else's may lead here for a while, and then that page is of the same origin.
    match is_address(r.host()) || r.is_named() {
        true => Ok(()),
        false => refused(NO_NAME),
    }
}
