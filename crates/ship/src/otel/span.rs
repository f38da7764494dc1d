//! A request that is over becomes a span, with the attributes that nginx's module gives it (HTTP's semantic conventions of
//! OpenTelemetry 1.16).

use super::conf::{Attribute, OtelLoc};
use super::context::{self, Traced, SAMPLED};
use super::counts::COUNTS;
use weir_core::eval::with_value;
use weir_core::Session as _;
use weir_http::core_vars::shown_status;
use weir_http::module::Flow;
use weir_http::{status_zone, Request};
use weir_runtime::clock;
use weir_shipping::otlp::traces::{self, Attributes, Head};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Version;

pub fn ends(r: &mut Request) -> Flow {
    if !r.has_mark(&SAMPLED) || r.is_part() {
        return Flow::Declined;
    }
    if let Some(traced) = context::found(r).filter(|traced| traced.is_sampled.get()) {
        r.with_conf::<OtelLoc, _>(|r, conf| add(r, conf, &traced));
    }
    Flow::Declined
}

fn add(r: &mut Request, conf: &OtelLoc, traced: &Traced) {
    let Some(exporter) = conf.exporter() else { return };
    let ended_us = clock::wall_us();
    let took_us = clock::now_us().saturating_sub(r.started_us());
    let worker = std::rc::Rc::clone(&r.conn().worker);
    let is_taken = exporter.trays(&worker).put(worker.id, |out| {
        with_name(r, conf, |r, name| {
            let head = Head {
                trace: &traced.trace,
                span: &traced.span,
                parent: traced.parent.as_ref(),
                state: &traced.state,
                name,
                began_us: ended_us.saturating_sub(took_us),
                ended_us,
                is_error: shown_status(r) >= 500,
            };
            traces::span(out, &head, |all| {
                of_request(r, all);
                conf.attributes.iter().for_each(|attribute| own(r, attribute, all));
            });
        });
    });
    match is_taken {
        true => status_zone::note(r, traced.trace, traced.span, ended_us / 1000),
        false => COUNTS.drop(1),
    }
}

fn with_name(r: &mut Request, conf: &OtelLoc, f: impl FnOnce(&mut Request, &[u8])) {
    match conf.name.as_option().and_then(Option::as_ref) {
        Some(name) => with_value(r, name, f),
        None => {
            let location = std::rc::Rc::clone(r.loc());
            f(r, &location.name);
        }
    }
}

fn own(r: &mut Request, attribute: &Attribute, all: &mut Attributes<'_, '_>) {
    with_value(r, &attribute.value, |_, value| match attribute.is_list {
        true => all.list(&attribute.name, value),
        false => all.text(&attribute.name, value),
    });
}

fn of_request(r: &Request, all: &mut Attributes<'_, '_>) {
    all.text("http.method", r.method_name());
    all.text("http.target", r.unparsed_uri());
    if !r.loc().name.is_empty() {
        all.text("http.route", &r.loc().name);
    }
    let is_tls = r.conn().is_tls();
    all.text("http.scheme", if is_tls { b"https" } else { b"http" });
    if r.version() >= Version::HTTP_10 {
        let Version(number) = r.version();
        all.text("http.flavor", format!("{}.{}", number / 1000, number % 1000).as_bytes());
    }
    if let Some(agent) = r.header(HeaderId::UserAgent) {
        all.text("http.user_agent", agent);
    }
    let told = r.header(HeaderId::ContentLength).and_then(weir_base::units::parse_int);
    all.number("http.request_content_length", told.unwrap_or(r.body.length));
    all.number("http.response_content_length", r.body_bytes_sent());
    let status = shown_status(r);
    if status > 0 {
        all.number("http.status_code", u64::from(status));
    }
    let name = Some(r.server_name()).filter(|name| !name.is_empty());
    all.text("net.host.name", name.unwrap_or(r.host()));
    let port = r.conn().local_addr().map_or(0, |local| local.port());
    if port != if is_tls { 443 } else { 80 } && port > 0 {
        all.number("net.host.port", u64::from(port));
    }
    all.text("net.sock.peer.addr", r.client_text());
    all.number("net.sock.peer.port", u64::from(r.client().port().unwrap_or(0)));
}
