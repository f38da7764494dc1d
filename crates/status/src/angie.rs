//! `api PATH`: Angie's tree of figures, read by paths of names down to single numbers. What is counted is what the API of
//! NGINX Plus shows; names, and what stands where, are Angie's (its documentation of `http_api`).
//!
//! Differences: what the server does not count is not there (`sent` of resolvers, `passed` of streams, `refs` of servers);
//! upstreams without a zone are there too, without the field; of servers with one address the second is `ADDRESS@2`, where
//! Angie writes the same name again; texts are compact; there is no `/config/` (PRO), and no
//! `config_files` and certificates.

use crate::api::begun_anew;
use crate::tree::gather;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use weir_base::date::days_from_civil;
use weir_core::figures::{write_text, Figure, Figures};
use weir_core::registry::template_of;
use weir_core::{LocalFuture, Session, SERVER_VERSION};
use weir_http::body;
use weir_http::build::here;
use weir_http::conf::CoreLoc;
use weir_http::module::Flow;
use weir_http::{long_text, special, Request};
use weir_module::{merged, slot, ArgsExt, Cf, ConfResult, ConfType, Directive, Level, SlotVtable};
use weir_script::template::Template;
use weir_wire::http1::request::Method;

/// Where in the tree a location leads.
#[derive(Debug)]
struct Tree {
    to: Template,
    /// The location's own name, which stands before the rest of the path; `None` where the directive says all of it.
    prefix: Option<Vec<u8>>,
}

#[derive(Default)]
struct TreeLoc(Option<Arc<Tree>>);

impl ConfType for TreeLoc {
    const LEVEL: Level = Level::Location;
    slot!();
}

/// As with all handlers, only an `if` or `limit_except` block has its location's.
pub(crate) const SLOT: SlotVtable = SlotVtable {
    merge: |own, outer, unnamed| {
        merged(own, outer, |own: &mut TreeLoc, outer: &TreeLoc| {
            if own.0.is_none() && unnamed {
                own.0.clone_from(&outer.0);
            }
            Ok(())
        })
    },
    ..SlotVtable::of::<TreeLoc>()
};

/// `api /status/;`
pub(crate) fn set(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.arg(0).starts_with(b"/config") {
        let hint = "write \"api write=on;\" in a location that is guarded: servers of upstreams are changed below it, as /9/http/upstreams/NAME/servers/0";
        let e = d.bad(0, "Angie PRO's \"/config/\" is not in Weir");
        return Err(e.hint(hint.to_string()));
    }
    let to = template_of::<Request>(cf, d, 0, d.arg(0))?;
    let place = here(cf);
    let prefix = (!place.is_regex && !place.is_named).then(|| place.name.clone());
    cf.get::<TreeLoc>().0 = Some(Arc::new(Tree { to, prefix }));
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    if matches!(r.method, Method::Get | Method::Head) {
        return Flow::Wait(show);
    }
    let method = String::from_utf8_lossy(r.method_name()).into_owned();
    let path = path(r);
    let text =
        format!("The {method} method is not allowed for the requested API entity \"/{path}\".");
    refuse(r, 405, "MethodNotAllowed", &text)
}

/// The path in the tree that a request leads to, without the slash in front.
fn path(r: &mut Request) -> String {
    let Some(tree) = r.loc().conf::<TreeLoc>().0.clone() else { return String::new() };
    let mut path = r.eval(&tree.to);
    if let Some(prefix) = &tree.prefix {
        // A URI that was rewritten to something else is taken as it is.
        let rest = r.uri.strip_prefix(&prefix[..]).unwrap_or(&r.uri);
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        if !rest.is_empty() {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(rest);
        }
    }
    let path = String::from_utf8_lossy(&path).into_owned();
    path.strip_prefix('/').unwrap_or(&path).to_string()
}

fn show(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let (gen, all) = (Arc::clone(&r.gen().core), Arc::clone(&r.conn().worker.all));
        let address = r.conn().local_addr().map(|at| at.ip().to_string()).unwrap_or_default();
        let is_epoch = r.args.split(|b| *b == b'&').any(|arg| arg == b"date=epoch");
        let path = path(r);
        let asked = path.trim_end_matches('/').to_string();
        let making = long_text::made(r, move || {
            let mut tree = gather(&gen, &all, &place(&asked));
            begun_anew(&mut tree);
            let mut figures = Figures::default();
            figures.put("status", status(&tree, &address));
            let mut figure = Figure::Group(figures);
            if is_epoch {
                count_seconds(&mut figure);
            }
            let found = find(&figure, &asked).ok_or(())?;
            let mut text = Vec::new();
            found.write_json(&mut text);
            Ok::<_, ()>(text)
        });
        match making.await {
            Err(status) => Flow::Status(status),
            Ok(Ok(text)) => send(r, 200, text),
            Ok(Err(())) => {
                let text = format!("Requested API entity \"/{path}\" doesn't exist.");
                refuse(r, 404, "PathNotFound", &text)
            }
        }
    })
}

fn refuse(r: &mut Request, status: u16, code: &str, text: &str) -> Flow {
    let mut out = b"{\"error\":".to_vec();
    write_text(code, &mut out);
    out.extend_from_slice(b",\"description\":");
    write_text(text, &mut out);
    out.push(b'}');
    send(r, status, out.into())
}

fn send(r: &mut Request, status: u16, text: Bytes) -> Flow {
    r.out.status = status;
    r.out.set(b"Cache-Control", b"no-cache");
    r.out.set(b"Expires", b"Thu, 01 Jan 1970 00:00:01 GMT");
    r.out.set_content_type(b"application/json");
    let body = long_text::whole(r, text);
    special::finish(r, body)
}

/// Where in our tree all is that a path of this one may lead to.
fn place(asked: &str) -> String {
    let mut parts = asked.split('/').skip_while(|part| *part != "status").skip(1);
    match (parts.next(), parts.next()) {
        (Some("angie"), _) => "/nginx".to_string(),
        (Some(block @ ("http" | "stream")), Some(zones)) => format!("/{block}/{zones}"),
        (Some(first), _) => format!("/{first}"),
        _ => String::new(),
    }
}

/// What stands at a path. Names may have slashes: of those that fit the longest is meant
/// that has what is asked for.
fn find<'a>(figure: &'a Figure, path: &str) -> Option<&'a Figure> {
    if path.is_empty() {
        return Some(figure);
    }
    let Figure::Group(group) = figure else { return None };
    let rest = |name: &str| match path.strip_prefix(name)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    };
    let mut fit: Vec<_> =
        group.iter().filter_map(|(name, inner)| Some((name.len(), inner, rest(name)?))).collect();
    fit.sort_by_key(|(len, ..)| std::cmp::Reverse(*len));
    fit.iter().find_map(|(_, inner, rest)| find(inner, rest))
}

/// Dates become seconds since 1970.
fn count_seconds(figure: &mut Figure) {
    match figure {
        Figure::Text(text) => {
            if let Some(secs) = seconds(text) {
                *figure = Figure::Number(secs);
            }
        }
        Figure::Group(group) => group.iter_mut().for_each(|(_, inner)| count_seconds(inner)),
        Figure::List(list) => list.iter_mut().for_each(count_seconds),
        _ => {}
    }
}

/// Of `2026-11-28T11:23:26.156Z`; nothing else looks like that.
fn seconds(text: &str) -> Option<u64> {
    let is_date = text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T';
    let part = |from: usize, len: usize| text.get(from..from + len)?.parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 2)?, part(8, 2)?);
    let (hour, minute, second) = (part(11, 2)?, part(14, 2)?, part(17, 2)?);
    let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    if !is_date || !(1..=12).contains(&month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()
}

fn group(of: &Figures, name: &str) -> Figures {
    match of.get(name) {
        Some(Figure::Group(group)) => group.clone(),
        _ => Figures::default(),
    }
}

/// Takes numbers over: under which name, and what they are called in our tree.
fn take(to: &mut Figures, from: &Figures, names: &[(&'static str, &str)]) {
    names.iter().for_each(|(name, ours)| to.put(*name, from.number(ours)));
}

/// Figures as they are, where they are there.
fn copy(to: &mut Figures, from: &Figures, names: &[(&'static str, &str)]) {
    for (name, ours) in names {
        if let Some(figure) = from.get(ours) {
            to.put(*name, figure.clone());
        }
    }
}

/// One for each of the many at that place.
fn each(of: &Figures, name: &str, one: fn(&Figures) -> Figures) -> Figures {
    let mut all = Figures::default();
    for (name, figure) in group(of, name).iter() {
        if let Figure::Group(inner) = figure {
            all.put(name.to_string(), one(inner));
        }
    }
    all
}

fn status(tree: &Figures, address: &str) -> Figures {
    let mut all = Figures::default();
    let server = group(tree, "nginx");
    let angie = all.group("angie");
    angie.put("version", SERVER_VERSION.split('/').next_back().unwrap_or_default());
    angie.put("address", address);
    copy(
        angie,
        &server,
        &[("build", "build"), ("generation", "generation"), ("load_time", "load_timestamp")],
    );
    let connections = all.group("connections");
    let counted = group(tree, "connections");
    let same = ["accepted", "dropped", "active", "idle"].map(|name| (name, name));
    take(connections, &counted, &same);
    all.put("slabs", group(tree, "slabs"));
    let (http, ours) = (all.group("http"), group(tree, "http"));
    http.put("server_zones", each(&ours, "server_zones", server_zone));
    http.put("location_zones", each(&ours, "location_zones", location_zone));
    http.put("caches", each(&ours, "caches", cache));
    http.put("limit_conns", each(&ours, "limit_conns", limit_conn));
    http.put("limit_reqs", each(&ours, "limit_reqs", limit_req));
    http.put("upstreams", each(&ours, "upstreams", upstream));
    if let Some(Figure::Group(ours)) = tree.get("stream") {
        let stream = all.group("stream");
        stream.put("server_zones", each(ours, "server_zones", stream_zone));
        stream.put("limit_conns", each(ours, "limit_conns", limit_conn));
        stream.put("upstreams", each(ours, "upstreams", upstream));
    }
    all.put("resolvers", each(tree, "resolvers", resolver));
    all
}

fn handshakes(zone: &Figures, to: &mut Figures) {
    if let Some(Figure::Group(ssl)) = zone.get("ssl") {
        let names = [
            ("handshaked", "handshakes"),
            ("reuses", "session_reuses"),
            ("timedout", "handshake_timeout"),
            ("failed", "handshakes_failed"),
        ];
        take(to.group("ssl"), ssl, &names);
    }
}

const DATA: [(&str, &str); 2] = [("received", "received"), ("sent", "sent")];

fn location_zone(zone: &Figures) -> Figures {
    let mut one = Figures::default();
    take(one.group("requests"), zone, &[("total", "requests"), ("discarded", "discarded")]);
    one.put("responses", group(&group(zone, "responses"), "codes"));
    take(one.group("data"), zone, &DATA);
    one
}

fn server_zone(zone: &Figures) -> Figures {
    let mut one = Figures::default();
    handshakes(zone, &mut one);
    let names = [("total", "requests"), ("processing", "processing"), ("discarded", "discarded")];
    take(one.group("requests"), zone, &names);
    one.put("responses", group(&group(zone, "responses"), "codes"));
    take(one.group("data"), zone, &DATA);
    one
}

fn stream_zone(zone: &Figures) -> Figures {
    let mut one = Figures::default();
    handshakes(zone, &mut one);
    let names =
        [("total", "connections"), ("processing", "processing"), ("discarded", "discarded")];
    take(one.group("connections"), zone, &names);
    let codes = group(&group(zone, "sessions"), "codes");
    let names = [
        ("success", "200"),
        ("invalid", "400"),
        ("forbidden", "403"),
        ("internal_error", "500"),
        ("bad_gateway", "502"),
        ("service_unavailable", "503"),
    ];
    take(one.group("sessions"), &codes, &names);
    take(one.group("data"), zone, &DATA);
    one
}

fn cache(of: &Figures) -> Figures {
    let mut one = Figures::default();
    copy(&mut one, of, &[("size", "size"), ("max_size", "max_size"), ("cold", "cold")]);
    for name in ["hit", "stale", "updating", "revalidated", "miss", "expired", "bypass"] {
        one.put(name, group(of, name));
    }
    one
}

/// What is refused for want of room is counted for itself.
fn limit(of: &Figures) -> Figures {
    let mut one = Figures::default();
    let exhausted = of.number("exhausted");
    let refused = of.number("rejected") + of.number("rejected_dry_run");
    take(&mut one, of, &[("passed", "passed"), ("skipped", "skipped")]);
    one.put("rejected", refused.saturating_sub(exhausted));
    one.put("exhausted", exhausted);
    one
}

fn limit_conn(of: &Figures) -> Figures {
    limit(of)
}

fn limit_req(of: &Figures) -> Figures {
    let mut one = limit(of);
    one.put("delayed", of.number("delayed") + of.number("delayed_dry_run"));
    one
}

fn resolver(of: &Figures) -> Figures {
    let mut one = Figures::default();
    one.put("queries", group(of, "requests"));
    let names = [
        ("success", "noerror"),
        ("timedout", "timedout"),
        ("format_error", "formerr"),
        ("server_failure", "servfail"),
        ("not_found", "nxdomain"),
        ("unimplemented", "notimp"),
        ("refused", "refused"),
        ("other", "unknown"),
    ];
    take(one.group("responses"), &group(of, "responses"), &names);
    one
}

fn upstream(of: &Figures) -> Figures {
    let mut one = Figures::default();
    let (peers, mut seen) = (one.group("peers"), HashMap::new());
    if let Some(Figure::List(list)) = of.get("peers") {
        for of in list {
            let Figure::Group(of) = of else { continue };
            if let Some(Figure::Text(address)) = of.get("server") {
                // Angie names servers with one address alike.
                let n = seen.entry(address).and_modify(|n| *n += 1).or_insert(1);
                let name = if *n > 1 { format!("{address}@{n}") } else { address.clone() };
                peers.put(name, peer(of));
            }
        }
    }
    copy(&mut one, of, &[("keepalive", "keepalive"), ("zombies", "zombies"), ("zone", "zone")]);
    one
}

fn peer(of: &Figures) -> Figures {
    let mut one = Figures::default();
    copy(
        &mut one,
        of,
        &[("server", "name"), ("service", "service"), ("backup", "backup"), ("weight", "weight")],
    );
    let max_conns = of.number("max_conns");
    let is_busy = max_conns > 0 && of.number("active") >= max_conns;
    let state = match of.get("state") {
        Some(Figure::Text(state)) if state == "unavail" => "unavailable",
        Some(Figure::Text(state)) if state == "up" && is_busy => "busy",
        Some(Figure::Text(state)) => state,
        _ => "up",
    };
    one.put("state", state);
    let selected = one.group("selected");
    selected.put("current", of.number("active"));
    // Of a stream's server it is connections that are counted.
    selected.put("total", of.number("requests") + of.number("connections"));
    copy(selected, of, &[("last", "selected")]);
    copy(&mut one, of, &[("max_conns", "max_conns")]);
    if let Some(Figure::Group(responses)) = of.get("responses") {
        one.put("responses", group(responses, "codes"));
    }
    take(one.group("data"), of, &[("sent", "sent"), ("received", "received")]);
    let health = one.group("health");
    take(health, of, &[("fails", "fails"), ("unavailable", "unavail"), ("downtime", "downtime")]);
    let times = [
        ("downstart", "downstart"),
        ("connect_time", "connect_time"),
        ("first_byte_time", "first_byte_time"),
        ("header_time", "header_time"),
    ];
    copy(health, of, &times);
    let whole = if of.get("requests").is_some() { "response_time" } else { "last_byte_time" };
    copy(health, of, &[(whole, "response_time")]);
    if let Some(Figure::Group(checks)) = of.get("health_checks") {
        take(health.group("probes"), checks, &[("count", "checks"), ("fails", "fails")]);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_are_found() {
        let mut figures = Figures::default();
        figures.group("unix:/a").put("n", 1);
        figures.group("unix:/a").group("m").put("b", 3);
        figures.group("unix:/a/m").put("n", 4);
        figures.group("unix:/a/b").put("n", 2);
        let all = Figure::Group(figures);
        for (path, expected) in [
            ("unix:/a/n", Some(1)),
            ("unix:/a/b/n", Some(2)),
            ("unix:/a/x", None),
            ("unix:/a/n/x", None),
            ("unix:/a/m/b", Some(3)),
            ("unix:/a/b/m", None),
            ("unix:", None),
        ] {
            assert_eq!(find(&all, path), expected.map(Figure::Number).as_ref(), "{path}");
        }
        assert_eq!(find(&all, ""), Some(&all));
    }

    #[test]
    fn dates_are_told_from_other_texts() {
        for (text, expected) in [
            ("1970-01-01T00:00:00.000Z", Some(0)),
            ("2026-11-28T11:23:26.156Z", Some(1_795_865_006)),
            ("2026-13-28T11:23:26.156Z", None),
            ("127.0.0.1:8080", None),
            ("weir-26.11.0-r32-aaaaaZ", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
