//! `valid_referers` and `$invalid_referer` (nginx's `ngx_http_referer_module`).
//!
//! Difference from nginx: tables size themselves, so `referer_hash_max_size` and
//! `referer_hash_bucket_size` have nothing to do.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;

use weir_base::bytes::{starts_with_ignore_case, strip_prefix_ignore_case};
use weir_core::listen::ServerName;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic, Directive, Level, Row,
    SlotVtable,
};
use weir_script::lookup::{HostMap, InsertError};
use weir_script::regex::{Regex, RegexOptions};
use weir_wire::http1::names::HeaderId;

/// A host longer than this is not valid.
const HOST_MAX_BYTES: usize = 256;

#[derive(Default)]
struct Valid {
    /// Hosts and the beginning of the path they ask for, empty for any.
    hosts: HostMap<Box<[u8]>>,
    regexes: Vec<Regex>,
    none: bool,
    blocked: bool,
    server_names: bool,
}

#[derive(Default)]
struct RefererLoc {
    valid: Option<Arc<Valid>>,
}

impl ConfType for RefererLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RefererLoc) -> ConfResult {
        let Some(own) = &self.valid else {
            self.valid.clone_from(&parent.valid);
            return Ok(());
        };
        let names_nobody = own.hosts.is_empty() && !own.server_names;
        if (own.none || own.blocked) && names_nobody {
            return Err(Diagnostic::emerg(
                "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" \
                 directive without any valid referer"
                    .into(),
            ));
        }
        Ok(())
    }
}

const CONTEXTS: Context = Context::SERVER.or(Context::LOCATION);
const SIZES: &str = "The table sizes itself: the number is checked and not needed.";

const ROWS: &[Row] = &[
    Row::new(
        "valid_referers",
        CONTEXTS,
        Arity::ONE_MORE,
        "",
        "The sites whose links count as valid for $invalid_referer.",
        set_valid,
    )
    .note("A match that is given up at a limit ends the request with 500; nginx takes the referer for valid."),
    Row::new("referer_hash_max_size", CONTEXTS, Arity::ONE, "2048", "The table's size.", size).once()
        .note(SIZES),
    Row::new("referer_hash_bucket_size", CONTEXTS, Arity::ONE, "64", "A bucket's size.", size).once()
        .note(SIZES),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<RefererLoc>()],
    variables: &[Variable::new("invalid_referer", invalid)],
    ..HttpModule::EMPTY
};

fn size(_: &mut Cf, d: &Directive) -> ConfResult {
    d.num(0).map(|_| ())
}

fn set_valid(cf: &mut Cf, d: &Directive) -> ConfResult {
    let slot = cf.get::<RefererLoc>().valid.get_or_insert_with(Arc::default);
    let Some(valid) = Arc::get_mut(slot) else { return Ok(()) };
    for i in 0..d.args.len() {
        let text = d.arg(i);
        let shown = || String::from_utf8_lossy(text).into_owned();
        match text {
            b"" => return Err(d.bad(i, "invalid referer \"\"")),
            b"none" => valid.none = true,
            b"blocked" => valid.blocked = true,
            b"server_names" => valid.server_names = true,
            b"~" => return Err(d.bad(i, format!("empty regex in \"{}\"", shown()))),
            [b'~', pattern @ ..] => {
                let options = RegexOptions { caseless: true, ..RegexOptions::default() };
                let regex = Regex::new(pattern, options).map_err(|e| d.bad(i, e.to_string()))?;
                valid.regexes.push(regex);
            }
            _ => {
                let slash = text.iter().position(|b| *b == b'/').unwrap_or(text.len());
                let (host, path) = text.split_at(slash);
                let name = String::from_utf8_lossy(host).into_owned();
                valid.hosts.insert(host, path.into()).map_err(|e| match e {
                    InsertError::Invalid => {
                        d.bad(i, format!("invalid hostname or wildcard \"{name}\""))
                    }
                    InsertError::Conflict(_) => {
                        d.bad(i, format!("conflicting parameter \"{name}\""))
                    }
                })?;
            }
        }
    }
    Ok(())
}

fn invalid(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let loc = Rc::clone(r.loc());
    if let Some(valid) = &loc.conf::<RefererLoc>().valid {
        if !is_valid(r, valid) {
            out.push(b'1');
        }
    }
    true
}

fn is_valid(r: &Request, valid: &Valid) -> bool {
    if valid.hosts.is_empty() && valid.regexes.is_empty() && !valid.server_names {
        return true;
    }
    let Some(referer) = r.header(HeaderId::Referer) else { return valid.none };
    let rest = strip_prefix_ignore_case(referer, b"http://")
        .or_else(|| strip_prefix_ignore_case(referer, b"https://"));
    let Some(rest) = rest.filter(|_| referer.len() >= b"http://i.ru".len()) else {
        return valid.blocked;
    };
    let host_len = rest.iter().position(|b| matches!(b, b'/' | b':')).unwrap_or(rest.len());
    let (host, after) = rest.split_at(host_len);
    if host_len > HOST_MAX_BYTES {
        return false;
    }
    if let Some(wanted) = valid.hosts.get(host) {
        let slash = after.iter().position(|b| *b == b'/').unwrap_or(after.len());
        return after[slash..].starts_with(wanted);
    }
    let names = &r.server().core.reached.names;
    if valid.server_names && names.iter().any(|n| is_named(r, n, host)) {
        return true;
    }
    valid.regexes.iter().any(|regex| matches(r, regex, rest))
}

fn matches(r: &Request, regex: &Regex, text: &[u8]) -> bool {
    matches!(r.judge_match(regex.is_match(text), regex, text), Ok(true))
}

/// Whether a `server_name` of the server means that host.
fn is_named(r: &Request, server: &ServerName, host: &[u8]) -> bool {
    if let Some((regex, _)) = &server.regex {
        return matches(r, regex, &host.to_ascii_lowercase());
    }
    let ends_with = |name: &[u8]| {
        host.len() > name.len() && host[host.len() - name.len()..].eq_ignore_ascii_case(name)
    };
    match server.name.as_slice() {
        [b'*', rest @ ..] => ends_with(rest),
        [b'.', bare @ ..] => host.eq_ignore_ascii_case(bare) || ends_with(&server.name),
        [front @ .., b'*'] => starts_with_ignore_case(host, front) && host.len() > front.len(),
        name => host.eq_ignore_ascii_case(name),
    }
}
