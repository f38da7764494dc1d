//! `to otlp`: what its block says.

use super::{Otlp, Way};
use crate::common::{self, Address, Compress};
use crate::conf::{draft, Draft};
use crate::grpc::Caller;
use crate::http::{self, HttpConf};
use crate::kinds::KindOf;
use crate::line::tls::{self, Tls};
use crate::receiver::{Stop, Target};
use std::sync::Arc;
use std::time::Duration;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Row};
use weir_runtime::process;

const GRPC_PORT: u16 = 4317;
const ATTRIBUTES_MAX: usize = 64;

#[derive(Default)]
struct Said {
    resource: Vec<(String, String)>,
}

pub const ROWS: &[Row] = &[Row::new(
    "resource_attr",
    Context::SHIP,
    Arity::TWO,
    "service.name weir",
    "An attribute of the resource that OTLP's records are of.",
    |cf, d| {
        let (name, value) = (d.text(0)?.to_owned(), d.text(1)?.to_owned());
        if name.is_empty() {
            return Err(d.invalid(0));
        }
        let all = &mut draft(cf).settings::<Said>().resource;
        if all.iter().any(|(n, _)| *n == name) {
            return Err(d.bad(0, format!("duplicate attribute \"{name}\"")));
        }
        if all.len() == ATTRIBUTES_MAX {
            return Err(d.fail(format!("more than {ATTRIBUTES_MAX} attributes")));
        }
        all.push((name, value));
        Ok(())
    },
)
// A process is no instance to name: figures go on when one takes another's place, and would begin anew under another id. A
// machine or a path is none either, for several servers may share them. Who has several says which is which.
.note("host.name is the machine's name unless said otherwise. Of several servers of one machine each wants a service.instance.id.")];

const TAKES: &[&str] = &{
    let mut all = ["resource_attr"; http::NAMES.len() + 1];
    let mut i = 0;
    while i < http::NAMES.len() {
        all[i + 1] = http::NAMES[i];
        i += 1;
    }
    all
};

pub const KIND: KindOf = KindOf { name: "otlp", takes: TAKES, check, build };

/// What gRPC's connections are made of.
pub struct Grpc {
    addresses: Vec<Address>,
    tls: Option<Tls>,
    timeout: Duration,
    fields: Vec<(String, String)>,
    packed: bool,
}

#[cfg(test)]
impl Grpc {
    /// Of a receiver in the test.
    pub fn fake(address: Address) -> Grpc {
        Grpc {
            addresses: vec![address],
            tls: None,
            timeout: Duration::from_secs(5),
            fields: vec![("x-tenant".into(), "us".into())],
            packed: true,
        }
    }
}

impl Grpc {
    pub fn callers(&self, stop: &Arc<Stop>) -> Vec<Caller> {
        let caller = |address: &Address| Caller {
            address: address.clone(),
            tls: self.tls.clone(),
            timeout: self.timeout,
            fields: self.fields.clone(),
            packed: self.packed,
            stop: Arc::clone(stop),
            open: None,
        };
        self.addresses.iter().map(caller).collect()
    }
}

/// Whether the addresses are gRPC's; all of them are, or none.
fn is_grpc(draft: &Draft) -> bool {
    draft.to().arg(1).starts_with(b"grpc")
}

fn addresses(draft: &Draft) -> ConfResult<Vec<Address>> {
    let found = common::addresses(draft, &["grpc", "grpcs"], Some(GRPC_PORT))?;
    match found.iter().position(|a| a.scheme != found[0].scheme) {
        Some(at) => Err(draft.to().bad(at + 1, "all addresses have TLS, or none")),
        None => Ok(found),
    }
}

fn check(draft: &mut Draft) -> ConfResult {
    if !is_grpc(draft) {
        return http::check(draft);
    }
    let addresses = addresses(draft)?;
    tls::check(draft, addresses[0].scheme == "grpcs")?;
    common::compress(draft, false)?;
    http::check_user(draft)
}

fn build(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    const KEY: &str = "Bearer ";
    let way = if is_grpc(draft) {
        let addresses = addresses(draft)?;
        let tls = match addresses[0].scheme == "grpcs" {
            true => Some(Tls::build(cf, draft, &[b"h2"])?),
            false => None,
        };
        let fields = http::fields(cf, draft, KEY)?.into_iter();
        Way::Grpc(Arc::new(Grpc {
            addresses,
            tls,
            timeout: common::timeout(draft),
            fields: fields.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
            packed: common::compress(draft, false)? == Compress::Gzip,
        }))
    } else {
        // An address may be that of a signal, as receivers tell theirs, or what stands before it.
        let http = HttpConf::build(cf, draft, KEY)?;
        Way::Http(Arc::new(http.without(&[super::LOGS.path, super::METRICS.path])))
    };
    let mut resource = draft.said::<Said>().map(|s| s.resource.clone()).unwrap_or_default();
    for (name, value) in [("service.name", "weir".to_owned()), ("host.name", process::hostname())] {
        if resource.iter().all(|(n, _)| n != name) {
            resource.push((name.into(), value));
        }
    }
    Ok(Arc::new(Otlp { way, resource: resource.into() }))
}
