//! `dashboard_peer`: what it says, and its files.

use super::{Machines, PeerConf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_base::{base64, units};
use weir_core::os_text;
use weir_core::tls::files::reader;
use weir_http::module::Build;
use weir_module::{
    distinct, merged, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable,
};
use weir_tls::load;

const PEERS_MAX: usize = 32;
const TIMEOUT_MS: u64 = 5_000;
const TIMEOUT_MAX_MS: u64 = 60_000;

pub(crate) const ROWS: &[Row] = &[Row::new(
    "dashboard_peer",
    Context::LOCATION,
    Arity::ONE_MORE,
    "",
    "Another Weir that the dashboard of the location shows beside this one, and adds up.",
    set_peer,
)
.note(
    "Weir's own. The URL is that of a location with \"api\" there, as in https://web2:8443/api/; one that stands alone says \
     who may ask by itself. name= is what it is called (the URL's host and port), user= and password_file= (whose first line is the \
     password) are shown to it, timeout=time (5s) is how long an answer may take, and trusted=FILE has the certificates that it is verified by, \
     without which https is refused. This server asks, not the browser: every 2s, and only while somebody looks; an answer has 32m at most. \
     One that does not answer is shown as silent and is left out of the sum; one that is there by two names counts once. 32 at most.",
)];

/// One, as read.
struct Said {
    directive: Directive,
    url: String,
    name: String,
    user: Option<String>,
    password_file: Option<Vec<u8>>,
    trusted: Option<Vec<u8>>,
    timeout_ms: u64,
}

/// Those of a location.
#[derive(Default)]
pub(crate) struct PeersLoc {
    said: Arc<Vec<Said>>,
    is_page: bool,
    machines: Arc<OnceLock<Arc<Machines>>>,
}

impl ConfType for PeersLoc {
    const LEVEL: Level = Level::Location;
    slot!();
}

impl PeersLoc {
    /// As with all handlers, only an `if` or `limit_except` block has its location's.
    pub(crate) const VTABLE: SlotVtable = SlotVtable {
        merge: |own, outer, unnamed| {
            merged(own, outer, |own: &mut PeersLoc, outer: &PeersLoc| {
                if unnamed && !own.is_page {
                    own.said = Arc::clone(&outer.said);
                    own.machines = Arc::clone(&outer.machines);
                    own.is_page = outer.is_page;
                }
                Ok(())
            })
        },
        ..SlotVtable::of::<PeersLoc>()
    };

    pub(crate) fn machines(&self) -> Option<&Arc<Machines>> {
        self.machines.get()
    }
}

/// The location has a dashboard.
pub(crate) fn there_is_a_page(cf: &mut Cf) {
    cf.get::<PeersLoc>().is_page = true;
}

/// Host and port of an address of an API, where it is one.
pub(crate) fn place(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let place = rest.split('/').next().unwrap_or_default();
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    let is_path = |b: u8| b.is_ascii_graphic() && !b"?#".contains(&b);
    let is_whole = !place.is_empty() && place.bytes().all(is_good) && rest.bytes().all(is_path);
    is_whole.then_some(place)
}

fn set_peer(cf: &mut Cf, d: &Directive) -> ConfResult {
    let url = d.text(0)?.to_owned();
    let Some(host) = place(&url) else {
        let mut e = d.bad(0, format!("\"{url}\" is no address of an API"));
        e.hint = Some(match url.contains('@') {
            true => "name and password are user= and password_file=, and not in the address".into(),
            false => "write it as in https://web2:8443/api/".into(),
        });
        return Err(e);
    };
    let mut said = Said {
        directive: d.clone(),
        name: host.to_owned(),
        url,
        user: None,
        password_file: None,
        trusted: None,
        timeout_ms: TIMEOUT_MS,
    };
    for n in 1..d.args.len() {
        parameter(d, n, &mut said)?;
    }
    check_one(d, &said)?;
    let loc = cf.get::<PeersLoc>();
    if loc.said.iter().any(|other| other.name == said.name) {
        return Err(d.bad(0, format!("duplicate peer \"{}\"", said.name)));
    }
    if loc.said.len() == PEERS_MAX {
        return Err(d.fail(format!("more than {PEERS_MAX} peers of a dashboard")));
    }
    // Nobody else has it while the location is read.
    if let Some(all) = Arc::get_mut(&mut loc.said) {
        all.push(said);
    }
    Ok(())
}

fn parameter(d: &Directive, n: usize, said: &mut Said) -> ConfResult {
    let text = |value: &[u8]| {
        let text = std::str::from_utf8(value).ok().filter(|t| !t.is_empty());
        text.filter(|t| !t.chars().any(char::is_control)).map(str::to_owned)
    };
    let name = |value: &[u8]| text(value).ok_or_else(|| d.invalid(n));
    let file =
        |value: &[u8]| Some(value.to_vec()).filter(|v| !v.is_empty()).ok_or_else(|| d.invalid(n));
    if let Some(value) = d.keyed(n, "name") {
        said.name = name(value)?;
    } else if let Some(value) = d.keyed(n, "user") {
        said.user =
            Some(
                name(value)
                    .and_then(|u| if u.contains(':') { Err(d.invalid(n)) } else { Ok(u) })?,
            );
    } else if let Some(value) = d.keyed(n, "password_file") {
        said.password_file = Some(file(value)?);
    } else if let Some(value) = d.keyed(n, "trusted") {
        said.trusted = Some(file(value)?);
    } else if let Some(value) = d.keyed(n, "timeout") {
        let ms = units::parse_msec(value).filter(|ms| (1..=TIMEOUT_MAX_MS).contains(ms));
        said.timeout_ms = ms.ok_or_else(|| d.bad(n, "an answer may take 1ms to 60s"))?;
    } else {
        let hint = "it has name=, user=, password_file=, trusted= and timeout=";
        let shown = String::from_utf8_lossy(d.arg(n)).into_owned();
        return Err(d.bad(n, format!("invalid parameter \"{shown}\"")).hint(hint.to_string()));
    }
    Ok(())
}

/// Whether parameters go together.
fn check_one(d: &Directive, said: &Said) -> ConfResult {
    match (&said.user, &said.password_file) {
        (Some(_), None) => return Err(d.fail("\"user=\" without \"password_file=\"")),
        (None, Some(_)) => return Err(d.fail("\"password_file=\" without \"user=\"")),
        _ => {}
    }
    match (said.url.starts_with("https:"), &said.trusted) {
        (true, None) => {
            let mut e = d.fail("no \"trusted=\" to verify the other server by");
            e.hint = Some(
                "write trusted=/etc/ssl/certs/ca-certificates.crt, or your authority's file".into(),
            );
            Err(e)
        }
        (false, Some(_)) => Err(d.fail("\"trusted=\" where the address has no TLS")),
        _ => Ok(()),
    }
}

/// Reads the files of all.
pub(crate) fn check(b: &mut Build) -> ConfResult {
    for loc in distinct::<PeersLoc>(b.locations) {
        let Some(first) = loc.said.first() else { continue };
        if !loc.is_page {
            let mut e = first.directive.fail("no \"dashboard\" in this location");
            e.hint = Some("write \"dashboard;\" beside it".into());
            return Err(e);
        }
        let peers =
            loc.said.iter().map(|said| Ok((said.name.clone(), Arc::new(conf(b.cf, said)?))));
        let peers: Vec<_> = peers.collect::<ConfResult<_>>()?;
        let _ = loc.machines.set(Arc::new(Machines::new(peers)));
    }
    Ok(())
}

fn conf(cf: &mut Cf, said: &Said) -> ConfResult<PeerConf> {
    let d = &said.directive;
    let mut fields = "Accept: application/json\r\n".to_owned();
    if let Some((user, file)) = said.user.as_ref().zip(said.password_file.as_ref()) {
        let path = cf.full_conf_path(file);
        let text = cf.read_file(&path).map_err(|e| {
            d.fail(format!("open() \"{}\" failed ({})", path.display(), os_text(&e)))
        })?;
        let line = text.split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or_default();
        if line.is_empty() {
            return Err(d.fail(format!("the first line of \"{}\" is no password", path.display())));
        }
        let mut packed = Vec::new();
        base64::encode(&mut packed, &[user.as_bytes(), b":", line].concat());
        fields += &format!("Authorization: Basic {}\r\n", String::from_utf8_lossy(&packed));
    }
    let roots = match &said.trusted {
        Some(file) => Some(load::trusted(file, &mut reader(cf)).map_err(|text| d.fail(text))?),
        None => None,
    };
    let timeout = Duration::from_millis(said.timeout_ms);
    Ok(PeerConf { url: said.url.clone(), fields, roots, timeout })
}
