//! `geo` (nginx's `ngx_http_geo_module` and `ngx_stream_geo_module`): a variable whose value depends on an address.
//!
//! Difference from nginx: no binary copy of `ranges` is written beside an included file, and one
//! that nginx has written is not read; the text always is.

mod table;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use crate::realip::{forwarded, From};
use table::{Networks, RangeError, Ranges};
use weir_base::addr::{parse_ipv4, parse_ipv6, unmapped, Cidr};
use weir_core::eval::{guarded, with_scratch};
use weir_core::registry::define;
use weir_core::session::Part;
use weir_core::variables::VarArg;
use weir_core::{ClientAddr, Session};
use weir_http::{HttpModule, Request};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Directive, Level, Row, SlotVtable,
};
use weir_script::template::VarId;
use weir_stream::StreamModule;

#[derive(Default)]
struct GeoMain {
    geos: Vec<Arc<Geo>>,
}

impl ConfType for GeoMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// One `geo` block.
#[derive(Default)]
struct Geo {
    /// The variable that holds the address; the client's otherwise.
    source: Option<VarId>,
    values: Vec<Box<[u8]>>,
    /// The number of each value, while the block is read.
    numbers: HashMap<Box<[u8]>, u32>,
    table: Table,
    default: Option<u32>,
    proxies: Vec<From>,
    recursive: bool,
    volatile: bool,
}

enum Table {
    Networks(Networks),
    Ranges(Ranges),
}

impl Default for Table {
    fn default() -> Self {
        Table::Networks(Networks::default())
    }
}

/// Where a session comes from.
pub(crate) trait Placed: Session {
    /// A block may name proxies that are believed who is behind them.
    const HAS_PROXIES: bool;

    /// Who is behind the proxies.
    fn behind(&self, client: ClientAddr, proxies: &[From], recursive: bool) -> Option<SocketAddr>;
}

impl Placed for Request {
    const HAS_PROXIES: bool = true;

    fn behind(&self, client: ClientAddr, proxies: &[From], recursive: bool) -> Option<SocketAddr> {
        let lines = self.headers().filter(|(n, _)| n.eq_ignore_ascii_case(b"x-forwarded-for"));
        let lines: Vec<&[u8]> = lines.map(|(_, v)| v).collect();
        forwarded(client, &lines, proxies, recursive)
    }
}

impl Placed for weir_stream::Session {
    const HAS_PROXIES: bool = false;

    fn behind(&self, _: ClientAddr, _: &[From], _: bool) -> Option<SocketAddr> {
        None
    }
}

/// The directive in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Placed> Rows<S> {
    const ROWS: &'static [Row] = &[Row::block(
        "geo",
        S::BLOCK,
        Arity::ONE_TWO,
        "A variable whose value depends on the client's address, or another.",
        set_geo::<S>,
    )
    .note("Binary copies of ranges are neither written nor read.")];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<GeoMain>()];

pub const MODULE: HttpModule =
    HttpModule { rows: Rows::<Request>::ROWS, slots: SLOTS, ..HttpModule::EMPTY };

pub const STREAM: StreamModule =
    StreamModule { rows: Rows::<weir_stream::Session>::ROWS, slots: SLOTS, ..StreamModule::EMPTY };

fn set_geo<S: Placed>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut geo = Geo::default();
    let target = d.args.len() - 1;
    if target == 1 {
        let name = d.arg(0).strip_prefix(b"$").filter(|n| !n.is_empty());
        let Some(name) = name else {
            let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
            return Err(d.bad(0, format!("invalid variable name \"{shown}\"")));
        };
        geo.source = Some(S::registry(cf).number(name));
    }
    let mut seen_any = false;
    for entry in d.children() {
        read_entry::<S>(cf, &mut geo, &mut seen_any, entry)?;
    }
    geo.numbers = HashMap::new();
    let volatile = geo.volatile;
    let geos = &mut cf.get::<GeoMain>().geos;
    let number = geos.len();
    geos.push(Arc::new(geo));
    define::<S>(cf, d, target, value, number, !volatile).map(|_| ())
}

impl Geo {
    /// The number of a value; equal ones share it.
    fn intern(&mut self, text: &[u8]) -> u32 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let number = self.values.len() as u32;
        self.values.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    fn text(&self, value: u32) -> String {
        String::from_utf8_lossy(&self.values[value as usize]).into_owned()
    }
}

fn read_entry<S: Placed>(
    cf: &mut Cf,
    geo: &mut Geo,
    seen: &mut bool,
    entry: &Directive,
) -> ConfResult {
    if entry.is_block() {
        return Err(entry.fail("unexpected \"{\""));
    }
    match (entry.name.as_bytes(), entry.args.len()) {
        (b"ranges", 0) => {
            if *seen {
                return Err(entry.fail(
                    "the \"ranges\" directive must be the first directive inside \"geo\" block",
                ));
            }
            geo.table = Table::Ranges(Ranges::default());
        }
        (b"proxy_recursive", 0) if S::HAS_PROXIES => geo.recursive = true,
        (b"volatile", 0) => geo.volatile = true,
        (b"proxy", 1) if S::HAS_PROXIES => {
            let net = network(cf, entry, entry.arg(0))?;
            geo.proxies.push(From::Net(net));
        }
        (_, 1) if matches!(geo.table, Table::Ranges(_)) => return read_range(cf, geo, entry),
        (_, 1) => {
            *seen = true;
            return read_network(cf, geo, entry);
        }
        _ => return Err(entry.fail("invalid number of the geo parameters")),
    }
    Ok(())
}

/// A network in a directive, as nginx reads it.
pub(crate) fn network(cf: &mut Cf, entry: &Directive, text: &[u8]) -> ConfResult<Cidr> {
    let shown = String::from_utf8_lossy(text);
    let Some((net, low_bits)) = Cidr::parse(text) else {
        return Err(entry.fail(format!("invalid network \"{shown}\"")));
    };
    if low_bits {
        cf.warn(entry, format!("low address bits of {shown} are meaningless"));
    }
    Ok(net)
}

fn read_network(cf: &mut Cf, geo: &mut Geo, entry: &Directive) -> ConfResult {
    let name = entry.name.as_bytes();
    if name == b"delete" {
        let net = network(cf, entry, entry.arg(0))?;
        if let Table::Networks(table) = &mut geo.table {
            if !table.remove(net) {
                let shown = String::from_utf8_lossy(entry.arg(0)).into_owned();
                cf.warn(entry, format!("no network \"{shown}\" to delete"));
            }
        }
        return Ok(());
    }
    let is_default = name == b"default";
    let nets = match is_default {
        true => vec![Cidr::ALL_V4, Cidr::ALL_V6],
        false => vec![network(cf, entry, name)?],
    };
    let value = geo.intern(entry.arg(0));
    for net in nets {
        let Table::Networks(table) = &mut geo.table else { continue };
        if let Some(old) = table.insert(net, value) {
            let (new, old) = (geo.text(value), geo.text(old));
            let name = entry.name.to_str().into_owned();
            cf.warn(
                entry,
                format!("duplicate network \"{name}\", value: \"{new}\", old value: \"{old}\""),
            );
        }
    }
    Ok(())
}

fn read_range(cf: &mut Cf, geo: &mut Geo, entry: &Directive) -> ConfResult {
    let name = entry.name.as_bytes();
    if name == b"default" {
        let value = geo.intern(entry.arg(0));
        if let Some(old) = geo.default.replace(value) {
            let (new, old) = (geo.text(value), geo.text(old));
            cf.warn(
                entry,
                format!("duplicate default geo range value: \"{new}\", old value: \"{old}\""),
            );
        }
        return Ok(());
    }
    let is_delete = name == b"delete";
    let net = if is_delete { entry.arg(0) } else { name };
    let shown = String::from_utf8_lossy(net).into_owned();
    let invalid = || entry.fail(format!("invalid range \"{shown}\""));
    let (start, end) = weir_base::bytes::split_once(net, b'-')
        .and_then(|(a, b)| Some((u32::from(parse_ipv4(a)?), u32::from(parse_ipv4(b)?))))
        .filter(|(start, end)| start <= end)
        .ok_or_else(invalid)?;
    let value = if is_delete { 0 } else { geo.intern(entry.arg(0)) };
    let Table::Ranges(table) = &mut geo.table else { return Ok(()) };
    if is_delete {
        if !table.remove(start, end) {
            cf.warn(entry, format!("no address range \"{shown}\" to delete"));
        }
        return Ok(());
    }
    match table.insert(start, end, value) {
        Ok(()) => Ok(()),
        Err(RangeError::Duplicate(old)) => {
            let (new, old) = (geo.text(value), geo.text(old));
            let text =
                format!("duplicate range \"{shown}\", value: \"{new}\", old value: \"{old}\"");
            cf.warn(entry, text);
            Ok(())
        }
        Err(RangeError::Overlaps(from, to)) => {
            let (from, to) = (Ipv4Addr::from(from), Ipv4Addr::from(to));
            Err(entry.fail(format!("range \"{shown}\" overlaps \"{from}-{to}\"")))
        }
    }
}

/// What counts as the address when there is none.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

fn value<S: Placed>(s: &mut S, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let part = Rc::clone(s.part());
    let geo = &part.main().get::<GeoMain>().geos[arg.data];
    guarded(s, &arg.name, |s| {
        let addr = unmapped(address(s, geo));
        let found = match (&geo.table, addr) {
            (Table::Networks(table), addr) => table.find(addr),
            (Table::Ranges(table), IpAddr::V4(v4)) => table.find(v4.into()).or(geo.default),
            (Table::Ranges(table), IpAddr::V6(_)) => table.find(u32::MAX).or(geo.default),
        };
        if let Some(value) = found {
            out.extend_from_slice(&geo.values[value as usize]);
        }
        true
    })
}

fn address<S: Placed>(s: &mut S, geo: &Geo) -> IpAddr {
    let client = match geo.source {
        None => s.client(),
        Some(var) => {
            let parsed = with_scratch(|buf| {
                s.var(var, buf);
                parse_ipv4(buf).map(IpAddr::V4).or_else(|| parse_ipv6(buf).map(IpAddr::V6))
            });
            match parsed {
                Some(ip) => ClientAddr::Ip((ip, 0).into()),
                None => return NO_ADDRESS,
            }
        }
    };
    let named = (!geo.proxies.is_empty()).then(|| s.behind(client, &geo.proxies, geo.recursive));
    match named.flatten() {
        Some(addr) => addr.ip(),
        None => client.ip().unwrap_or(NO_ADDRESS),
    }
}
