//! What `otel_exporter` and the directives of locations say.

use super::door::{Target, Way};
use super::running::{self, Exporter, Said};
use super::{context, counts, span};
use crate::common::split;
use crate::http::{is_field_name, HttpConf};
use crate::line::tls::Tls;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_core::figures::Report;
use weir_core::registry::{template, template_of};
use weir_http::build::Build;
use weir_http::module::{HttpModule, Phase, PhaseHandler, Variable};
use weir_http::Request;
use weir_module::{
    distinct, merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context,
    Directive, Level, Row, SlotVtable, Slots, Val,
};
use weir_script::template::Template;

const HSL: Context = Context::HSL;
const BLOCK: Context = Context::OTEL_EXPORTER;
const HEADERS_MAX: usize = 32;
const ATTRIBUTES_MAX: usize = 64;
const BATCH_SIZE_MAX: u64 = 65_536;
const BATCH_COUNT_MAX: u64 = 1024;
/// Of a worker's.
const WAITING_MAX: usize = 1 << 20;
/// An export takes no longer.
const EXPORT_MAX: Duration = Duration::from_secs(10);
const INTERVAL_MS: u64 = 5000;
const PATH: &str = "/v1/traces";

/// `otel_trace_context`: what of the context is taken, and passed on.
pub const EXTRACT: u8 = 1;
pub const INJECT: u8 = 2;

/// What all servers have in common.
#[derive(Default)]
pub struct OtelMain {
    block: Option<Directive>,
    endpoint: Val<Directive>,
    interval_ms: Val<u64>,
    batch_size: Val<u64>,
    batch_count: Val<u64>,
    trusted: Val<Directive>,
    is_http: Val<bool>,
    headers: Vec<(String, String)>,
    service: Val<String>,
    resource: BTreeMap<String, String>,
    /// Filled when the configuration is built.
    built: OnceLock<Arc<Exporter>>,
    /// Filled when this process begins to serve by it: what was built, or one that is the same and there already.
    exporter: Arc<OnceLock<Arc<Exporter>>>,
}

impl ConfType for OtelMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// `otel_span_attr`
pub struct Attribute {
    pub name: String,
    pub value: Template,
    /// Receivers know fields of headers as lists.
    pub is_list: bool,
}

#[derive(Default)]
pub struct OtelLoc {
    /// With where it stands.
    pub trace: Val<Option<Arc<(Template, Directive)>>>,
    pub context: Val<u8>,
    pub name: Val<Option<Arc<Template>>>,
    pub attributes: Val<Arc<Vec<Attribute>>>,
    /// Where there is an `otel_exporter`: the same for all locations.
    exporter: Val<Option<Arc<OnceLock<Arc<Exporter>>>>>,
}

impl ConfType for OtelLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &OtelLoc) -> ConfResult {
        merge_values!(self, parent; trace = None, context = 0, name = None, attributes = Arc::default(), exporter = None);
        Ok(())
    }
}

impl OtelLoc {
    pub fn exporter(&self) -> Option<&Arc<Exporter>> {
        self.exporter.as_option()?.as_ref()?.get()
    }

    fn template(&self) -> Option<&Template> {
        self.trace.as_option()?.as_ref().map(|trace| &trace.0)
    }
}

fn main(cf: &mut Cf) -> &mut OtelMain {
    cf.get()
}

const EXPORTER: &[Row] = &[
    Row::new(
        "endpoint",
        BLOCK,
        Arity::ONE,
        "",
        "The address of the collector: HOST:PORT, for TLS https://HOST:PORT.",
        |cf, d| main(cf).endpoint.once(d, d.clone()),
    )
    .note("It has a port. Over HTTP it is a URL; one without a path gets /v1/traces."),
    Row::new(
        "protocol",
        BLOCK,
        Arity::ONE,
        "grpc",
        "How spans are sent: grpc or http/protobuf.",
        |cf, d| {
            let is_http = d.choice(0, &[("grpc", false), ("http/protobuf", true)])?;
            main(cf).is_http.once(d, is_http)
        },
    )
    .note("It is our own; nginx's module knows gRPC alone. The words are those of OTEL_EXPORTER_OTLP_PROTOCOL."),
    Row::new(
        "interval",
        BLOCK,
        Arity::ONE,
        "5s",
        "How long a span waits for its batch to become full.",
        |cf, d| {
            let ms = d.msec(0)?;
            if ms == 0 {
                return Err(d.invalid(0));
            }
            main(cf).interval_ms.once(d, ms)
        },
    ),
    Row::new(
        "batch_size",
        BLOCK,
        Arity::ONE,
        "512",
        "Most spans that are sent at once.",
        |cf, d| {
            let n = number(d, BATCH_SIZE_MAX)?;
            main(cf).batch_size.once(d, n)
        },
    ),
    Row::new(
        "batch_count",
        BLOCK,
        Arity::ONE,
        "4",
        "So many batches may wait for each worker; a span more is dropped.",
        |cf, d| {
            let n = number(d, BATCH_COUNT_MAX)?;
            main(cf).batch_count.once(d, n)
        },
    )
    .note("What waits is bounded in bytes, too: by 2 KB for each span, at least by 1 MB."),
    Row::new(
        "trusted_certificate",
        BLOCK,
        Arity::ONE,
        "the system's",
        "Certificates that the collector's is verified by.",
        |cf, d| main(cf).trusted.once(d, d.clone()),
    ),
    Row::new(
        "header",
        BLOCK,
        Arity::TWO,
        "",
        "A field that requests to the collector have.",
        add_header,
    ),
];

fn number(d: &Directive, most: u64) -> ConfResult<u64> {
    let n = d.size(0)?;
    match (1..=most).contains(&n) {
        true => Ok(n),
        false => Err(d.bad(0, format!("\"{}\" must be between 1 and {most}", d.name()))),
    }
}

const ROWS: &[Row] = &[
    Row::block(
        "otel_exporter",
        Context::HTTP,
        Arity::NONE,
        "Where spans of requests are sent.",
        set_exporter,
    ),
    Row::new(
        "otel_service_name",
        Context::HTTP,
        Arity::ONE,
        "unknown_service:nginx",
        "The attribute \"service.name\" of the resource that spans are of.",
        set!(main, service, weir_module::first::text),
    ),
    Row::new(
        "otel_resource_attr",
        Context::HTTP,
        Arity::TWO,
        "",
        "An attribute of the resource that spans are of.",
        |cf, d| {
            let (name, value) = (d.text(0)?.to_owned(), d.text(1)?.to_owned());
            let all = &mut main(cf).resource;
            if all.len() == ATTRIBUTES_MAX && !all.contains_key(&name) {
                return Err(d.fail(format!("more than {ATTRIBUTES_MAX} attributes")));
            }
            all.insert(name, value);
            Ok(())
        },
    ),
    Row::new(
        "otel_trace",
        HSL,
        Arity::ONE,
        "off",
        "Whether a request's span is sent: on, off, or what a variable says.",
        |cf, d| {
            let value = template::<Request>(cf, d, 0)?;
            let told = Some(Arc::new((value, d.clone())));
            cf.get::<OtelLoc>().trace.once(d, told)
        },
    )
    .note("\"on\" and \"1\" are yes."),
    Row::new(
        "otel_trace_context",
        HSL,
        Arity::ONE,
        "ignore",
        "Whether the client's trace is gone on with (extract), and servers are told of this one (inject), or both (propagate).",
        |cf, d| {
            let words = [("ignore", 0), ("extract", EXTRACT), ("inject", INJECT), ("propagate", EXTRACT | INJECT)];
            let word = d.choice(0, &words)?;
            cf.get::<OtelLoc>().context.once(d, word)
        },
    )
    .note("traceparent and tracestate as W3C has them; a traceparent that is none is as if there were none."),
    Row::new(
        "otel_span_name",
        HSL,
        Arity::ONE,
        "",
        "What a request's span is called; otherwise it is the location's name.",
        |cf, d| {
            let value = template::<Request>(cf, d, 0)?;
            cf.get::<OtelLoc>().name.once(d, Some(Arc::new(value)))
        },
    ),
    Row::new(
        "otel_span_attr",
        HSL,
        Arity::TWO,
        "",
        "An attribute of a request's span.",
        add_attribute,
    )
    .note("A value has 4 KB at most; what is more is cut off. A level that has any does not inherit."),
];

pub const MODULE: HttpModule = HttpModule {
    rows: weir_module::joined_rows!(ROWS, EXPORTER),
    slots: &[SlotVtable::of::<OtelMain>(), SlotVtable::of::<OtelLoc>()],
    variables: &[
        Variable::new("otel_trace_id", |r, _, out| context::hex(out, &context::of(r).trace))
            .cached(),
        Variable::new("otel_span_id", |r, _, out| context::hex(out, &context::of(r).span)).cached(),
        Variable::new("otel_parent_id", |r, _, out| {
            context::of(r).parent.as_ref().is_some_and(|parent| context::hex(out, parent))
        })
        .cached(),
        Variable::new("otel_parent_sampled", |r, _, out| {
            out.push(b'0' + u8::from(context::of(r).parent_is_sampled));
            true
        })
        .cached(),
    ],
    phases: &[
        PhaseHandler { phase: Phase::Rewrite, handler: context::begins, active: begins },
        // A request that began elsewhere may end in any location.
        PhaseHandler { phase: Phase::Log, handler: span::ends, active: ends },
    ],
    build: Some(build),
    start: Some(|gen, http| {
        let said = http.main.get::<OtelMain>();
        if let Some(built) = said.built.get() {
            said.exporter.get_or_init(|| running::start(built, &gen.error_log));
        }
    }),
    reports: &[Report { path: "/otel", put: counts::put }],
    ..HttpModule::EMPTY
};

fn begins(slots: &Slots) -> bool {
    let conf = slots.get::<OtelLoc>();
    let is_off = |text: &[u8]| text != b"on" && text != b"1";
    let may_trace = conf.template().is_some_and(|t| !t.as_constant().is_some_and(is_off));
    may_trace || *conf.context > 0
}

fn ends(slots: &Slots) -> bool {
    matches!(slots.get::<OtelLoc>().exporter.as_option(), Some(Some(_)))
}

fn add_header(cf: &mut Cf, d: &Directive) -> ConfResult {
    // gRPC wants small letters, HTTP does not mind.
    let (name, value) = (d.text(0)?.to_ascii_lowercase(), d.text(1)?.to_owned());
    let is_own = ["content-length", "content-type", "host", "te", "transfer-encoding"];
    if !is_field_name(&name) || is_own.contains(&name.as_str()) || name.starts_with("grpc-") {
        return Err(d.bad(0, "has invalid header name"));
    }
    if value.bytes().any(|b| !(b' '..=b'~').contains(&b)) {
        return Err(d.bad(1, "has invalid header value"));
    }
    let headers = &mut main(cf).headers;
    if headers.len() == HEADERS_MAX {
        return Err(d.fail(format!("more than {HEADERS_MAX} fields")));
    }
    headers.push((name, value));
    Ok(())
}

fn add_attribute(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.text(0)?.to_owned();
    let value = template_of::<Request>(cf, d, 1, d.arg(1))?;
    let is_list =
        ["http.request.header.", "http.response.header."].iter().any(|p| name.starts_with(p));
    let attributes = &mut cf.get::<OtelLoc>().attributes;
    if !attributes.is_set() {
        attributes.set(Arc::default());
    }
    // Nobody else has it while the level is read.
    if let Some(all) = attributes.as_mut().and_then(Arc::get_mut) {
        if all.len() == ATTRIBUTES_MAX {
            return Err(d.fail(format!("more than {ATTRIBUTES_MAX} attributes")));
        }
        all.push(Attribute { name, value, is_list });
    }
    Ok(())
}

fn set_exporter(cf: &mut Cf, d: &Directive) -> ConfResult {
    if main(cf).block.is_some() {
        return Err(d.error("is duplicate"));
    }
    main(cf).block = Some(d.clone());
    cf.walk(BLOCK, d.children())?;
    let said = main(cf);
    let Some(endpoint) = said.endpoint.as_option() else {
        return Err(d.fail("\"otel_exporter\" requires \"endpoint\""));
    };
    address(endpoint, said.is_http())?;
    if said.most() > WAITING_MAX {
        let text = format!("\"batch_size\" times \"batch_count\" is more than {WAITING_MAX}");
        return Err(d.fail(text));
    }
    let exporter = Arc::clone(&said.exporter);
    cf.get::<OtelLoc>().exporter.set(Some(exporter));
    Ok(())
}

/// Where spans go.
enum Address {
    Grpc { is_tls: bool, host: String, port: u16 },
    Http { is_tls: bool, url: String },
}

fn address(d: &Directive, is_http: bool) -> ConfResult<Address> {
    let text = d.text(0)?;
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let scheme = scheme.to_ascii_lowercase();
    let refuse = |hint: &str| {
        Err(d.bad(0, format!("\"{text}\" is no address of a collector")).hint(hint.to_owned()))
    };
    let is_tls = match (scheme.as_str(), is_http) {
        ("", false) | ("http", _) => false,
        ("https", _) => true,
        (_, true) => {
            return refuse(
                "write http://HOST:PORT or https://HOST:PORT, and a path if there is one",
            )
        }
        (_, false) => return refuse("write HOST:PORT, or https://HOST:PORT"),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if is_http {
        let path = if path.trim_end_matches('/').is_empty() { PATH } else { path };
        return Ok(Address::Http { is_tls, url: format!("{scheme}://{authority}{path}") });
    }
    if !path.is_empty() {
        return refuse("a path is for \"protocol http/protobuf;\"");
    }
    match split(authority, None) {
        Some((host, port)) => Ok(Address::Grpc { is_tls, host, port }),
        None => refuse("write HOST:PORT; the port of gRPC is 4317 with most collectors"),
    }
}

impl OtelMain {
    pub fn has_exporter(&self) -> bool {
        self.built.get().is_some()
    }

    fn is_http(&self) -> bool {
        self.is_http.as_option().copied().unwrap_or(false)
    }

    fn batch_size(&self) -> usize {
        self.batch_size.as_option().map_or(512, |n| *n as usize)
    }

    /// Spans of a worker that may wait.
    fn most(&self) -> usize {
        self.batch_size() * self.batch_count.as_option().map_or(4, |n| *n as usize)
    }

    /// As nginx's module has them: in their order, what is said of the service alone goes before.
    fn attributes(&self) -> Vec<(String, String)> {
        let mut all = self.resource.clone();
        match self.service.as_option() {
            Some(name) => all.insert("service.name".into(), name.clone()),
            None => {
                let unknown = || "unknown_service:nginx".to_owned();
                all.entry("service.name".into()).or_insert_with(unknown);
                None
            }
        };
        all.into_iter().collect()
    }

    fn tls(&self, cf: &mut Cf, endpoint: &Directive, address: &Address) -> ConfResult<Option<Tls>> {
        let (is_tls, protocol): (_, &[u8]) = match address {
            Address::Grpc { is_tls, .. } => (*is_tls, b"h2"),
            Address::Http { is_tls, .. } => (*is_tls, b"http/1.1"),
        };
        match (is_tls, self.trusted.as_option()) {
            (true, trusted) => Tls::trusting(cf, endpoint, trusted, protocol).map(Some),
            (false, Some(d)) => {
                let hint = "write \"https://\" before the endpoint, or take the directive away";
                let text = "\"trusted_certificate\" where the endpoint has no TLS";
                Err(d.fail(text).hint(hint.to_owned()))
            }
            (false, None) => Ok(None),
        }
    }

    fn way(&self, endpoint: &Directive, address: Address, tls: Option<Tls>) -> ConfResult<Way> {
        Ok(match address {
            Address::Grpc { host, port, .. } => {
                Way::Grpc { host, port, tls, fields: self.headers.clone() }
            }
            Address::Http { url, .. } => {
                let lines = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
                let http = HttpConf::of_url(&url, &lines.collect::<String>(), EXPORT_MAX, tls);
                let bad = || endpoint.bad(0, format!("\"{url}\" is no address of a collector"));
                Way::Http(Arc::new(http.ok_or_else(bad)?))
            }
        })
    }

    fn said(&self, endpoint: &str, tls: Option<&Tls>) -> Said {
        let interval_ms = self.interval_ms.as_option().copied().unwrap_or(INTERVAL_MS);
        Said {
            endpoint: endpoint.to_owned(),
            is_http: self.is_http(),
            fields: self.headers.clone(),
            roots: tls.and_then(Tls::roots).map(<[_]>::to_vec),
            resource: self.attributes(),
            interval: Duration::from_millis(interval_ms),
            batch_size: self.batch_size(),
            most: self.most(),
        }
    }
}

fn build(b: &mut Build) -> ConfResult {
    let said = b.main.get::<OtelMain>();
    let Some(endpoint) = said.endpoint.as_option().cloned() else {
        return missing(b);
    };
    let address = address(&endpoint, said.is_http())?;
    let tls = said.tls(b.cf, &endpoint, &address)?;
    let words = said.said(endpoint.text(0)?, tls.as_ref());
    let target = Target { way: said.way(&endpoint, address, tls)?, timeout: EXPORT_MAX };
    // Only this function sets it.
    let _ = said.built.set(Arc::new(Exporter::new(words, target)));
    Ok(())
}

/// Without an exporter nothing may be traced.
fn missing(b: &Build) -> ConfResult {
    let outer = std::slice::from_ref(b.outer);
    let all = [distinct::<OtelLoc>(outer), distinct::<OtelLoc>(b.locations)];
    let said = all.into_iter().flatten().find_map(|conf| conf.trace.as_option()?.as_ref());
    match said {
        Some(trace) => {
            let e = trace.1.fail("\"otel_exporter\" block is missing");
            Err(e.hint("write \"otel_exporter { endpoint localhost:4317; }\" in http".to_owned()))
        }
        None => Ok(()),
    }
}
