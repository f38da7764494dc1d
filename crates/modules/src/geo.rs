//! `geo` (nginx's `ngx_http_geo_module`): a variable whose value depends on the client's address.
//!
//! Networks are flattened to ranges without overlaps when the block has been read, so a look-up is
//! one binary search. Difference from nginx: ranges read from a file are not saved in a binary
//! form beside it, because reading the text is quick.

mod forwarded;
mod table;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::util::guarded;
use table::{Networks, Ranges, Table};
use weir_base::addr::{parse_ipv4, parse_ipv6, Cidr};
use weir_base::bytes::split_once;
use weir_http::module::{HttpModule, VarArg};
use weir_http::vars::{define, registry};
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
};
use weir_script::template::VarId;

#[derive(Default)]
struct GeoMain {
    geos: Vec<Arc<Geo>>,
}

impl ConfType for GeoMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// One `geo` block.
struct Geo {
    /// The variable that holds the address; none for the client's own.
    source: Option<VarId>,
    proxies: Vec<Cidr>,
    recursive: bool,
    table: Table,
}

pub const MODULE: HttpModule = HttpModule {
    name: "ngx_http_geo_module",
    rows: &[Row::block(
        "geo",
        Context::HTTP,
        Arity::ONE_TWO,
        "A variable whose value depends on an address.",
        set_geo,
    )
    .note("Files with ranges are always read as text: no binary form is made or used.")],
    slots: &[SlotVtable::of::<GeoMain>()],
    ..HttpModule::EMPTY
};

/// A block that is being read.
#[derive(Default)]
struct Reader {
    ranges: Option<Ranges>,
    networks: Option<Networks>,
    proxies: Vec<Cidr>,
    recursive: bool,
    volatile: bool,
}

fn set_geo(cf: &mut Cf, d: &Directive) -> ConfResult {
    let last = d.args.len() - 1;
    let source = match last {
        0 => None,
        _ => Some(source(cf, d)?),
    };
    let mut reader = Reader::default();
    for entry in d.children() {
        reader.read(cf, entry)?;
    }
    let table = match reader.ranges {
        Some(ranges) => ranges.finish(),
        None => reader.networks.unwrap_or_default().finish(),
    };
    let geo = Geo { source, proxies: reader.proxies, recursive: reader.recursive, table };
    let geos = &mut cf.get::<GeoMain>().geos;
    let number = geos.len();
    geos.push(Arc::new(geo));
    define(cf, d, last, value, number, !reader.volatile).map(|_| ())
}

fn source(cf: &mut Cf, d: &Directive) -> ConfResult<VarId> {
    match d.arg(0).strip_prefix(b"$").filter(|n| !n.is_empty()) {
        Some(name) => Ok(registry(cf).number(name)),
        None => {
            let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
            Err(d.bad(0, format!("invalid variable name \"{shown}\"")))
        }
    }
}

impl Reader {
    fn read(&mut self, cf: &mut Cf, entry: &Directive) -> ConfResult {
        if entry.is_block() {
            return Err(entry.fail("unexpected \"{\""));
        }
        match (entry.name.as_bytes(), entry.args.len()) {
            (b"ranges", 0) if self.networks.is_some() => {
                let text =
                    "the \"ranges\" directive must be the first directive inside \"geo\" block";
                return Err(entry.fail(text));
            }
            (b"ranges", 0) => drop(self.ranges.get_or_insert_with(Ranges::default)),
            (b"proxy_recursive", 0) => self.recursive = true,
            (b"volatile", 0) => self.volatile = true,
            (b"proxy", 1) => {
                let net = network(cf, entry, entry.arg(0))?;
                self.proxies.push(net);
            }
            (_, 1) if self.ranges.is_some() => return self.read_range(cf, entry),
            (_, 1) => return self.read_network(cf, entry),
            _ => return Err(entry.fail("invalid number of the geo parameters")),
        }
        Ok(())
    }

    fn read_network(&mut self, cf: &mut Cf, entry: &Directive) -> ConfResult {
        let networks = self.networks.get_or_insert_with(Networks::default);
        let (key, value) = (entry.name.as_bytes(), entry.arg(0));
        if key == b"default" {
            for net in [Cidr::ALL_V4, Cidr::ALL_V6] {
                let old = networks.insert(net, value);
                warn_duplicate(cf, entry, "network", old);
            }
            return Ok(());
        }
        if key == b"delete" {
            let net = network(cf, entry, value)?;
            if !networks.remove(net) {
                let shown = String::from_utf8_lossy(value).into_owned();
                cf.warn(entry, format!("no network \"{shown}\" to delete"));
            }
            return Ok(());
        }
        let net = network(cf, entry, key)?;
        let old = networks.insert(net, value);
        warn_duplicate(cf, entry, "network", old);
        Ok(())
    }

    fn read_range(&mut self, cf: &mut Cf, entry: &Directive) -> ConfResult {
        let ranges = self.ranges.get_or_insert_with(Ranges::default);
        let (key, value) = (entry.name.as_bytes(), entry.arg(0));
        if key == b"default" {
            if let Some(old) = ranges.set_default(value) {
                let new = String::from_utf8_lossy(value).into_owned();
                let old = String::from_utf8_lossy(&old).into_owned();
                let text =
                    format!("duplicate default geo range value: \"{new}\", old value: \"{old}\"");
                cf.warn(entry, text);
            }
            return Ok(());
        }
        let is_delete = key == b"delete";
        let text = if is_delete { value } else { key };
        let shown = String::from_utf8_lossy(text).into_owned();
        let Some((start, end)) = range(text) else {
            return Err(entry.fail(format!("invalid range \"{shown}\"")));
        };
        if is_delete {
            if !ranges.remove(start, end) {
                cf.warn(entry, format!("no address range \"{shown}\" to delete"));
            }
            return Ok(());
        }
        match ranges.insert(start, end, value) {
            Ok(old) => warn_duplicate(cf, entry, "range", old),
            Err((start, end)) => {
                let (start, end) = (Ipv4Addr::from(start), Ipv4Addr::from(end));
                return Err(entry.fail(format!("range \"{shown}\" overlaps \"{start}-{end}\"")));
            }
        }
        Ok(())
    }
}

fn warn_duplicate(cf: &mut Cf, entry: &Directive, what: &str, old: Option<Vec<u8>>) {
    let Some(old) = old else { return };
    let old = String::from_utf8_lossy(&old);
    let new = String::from_utf8_lossy(entry.arg(0));
    let key = entry.name.to_str();
    let text = format!("duplicate {what} \"{key}\", value: \"{new}\", old value: \"{old}\"");
    cf.warn(entry, text);
}

fn network(cf: &mut Cf, entry: &Directive, text: &[u8]) -> ConfResult<Cidr> {
    let shown = String::from_utf8_lossy(text);
    let Some((net, low_bits)) = Cidr::parse(text) else {
        return Err(entry.fail(format!("invalid network \"{shown}\"")));
    };
    if low_bits {
        cf.warn(entry, format!("low address bits of {shown} are meaningless"));
    }
    Ok(net)
}

/// `10.0.0.0-10.0.0.255`
fn range(text: &[u8]) -> Option<(u32, u32)> {
    let (start, end) = split_once(text, b'-')?;
    let (start, end) = (u32::from(parse_ipv4(start)?), u32::from(parse_ipv4(end)?));
    (start <= end).then_some((start, end))
}

fn value(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let gen = std::rc::Rc::clone(r.gen());
    let geo = &gen.shared.main.get::<GeoMain>().geos[arg.data];
    guarded(r, &arg.name, |r| {
        let addr = match geo.source {
            None => r.conn().client.get().ip(),
            Some(id) => r.var_value(id).and_then(|text| parse_addr(&text)),
        };
        let addr = addr.map(|addr| forwarded::client(r, addr, &geo.proxies, geo.recursive));
        // nginx looks up what is no address, and a Unix socket, as the broadcast address.
        let addr = addr.unwrap_or(IpAddr::V4(Ipv4Addr::BROADCAST));
        out.extend_from_slice(geo.table.find(addr));
        true
    })
}

fn parse_addr(text: &[u8]) -> Option<IpAddr> {
    parse_ipv4(text).map(IpAddr::V4).or_else(|| parse_ipv6(text).map(IpAddr::V6))
}
