//! `geoip2`: variables with what a database (`.mmdb`) has of an address. By the words of
//! `ngx_http_geoip2_module` and its stream side.

use super::address;
use super::database::Source;
use crate::geo::{network, Placed};
use crate::realip::From;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::rc::Rc;
use weir_base::addr::{parse_ipv4, parse_ipv6, unmapped};
use weir_core::eval::{guarded, with_value};
use weir_core::registry::template_of;
use weir_core::session::Part;
use weir_core::variables::{VarArg, VarDef};
use weir_core::Session;
use weir_http::{HttpModule, Request};
use weir_module::first::flag;
use weir_module::{
    set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Diagnostic, Directive, Level, Row,
    SlotVtable, Slots, Val,
};
use weir_script::mmdb::Value;
use weir_script::template::Template;
use weir_stream::StreamModule;

#[derive(Default)]
struct Geoip2Main {
    databases: Vec<Source>,
    variables: Vec<Asked>,
    proxies: Vec<From>,
    recursive: Val<bool>,
}

impl ConfType for Geoip2Main {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// What a variable asks a database.
struct Asked {
    database: usize,
    what: What,
    /// The text that is the address; the client's otherwise.
    source: Option<Template>,
    default: Option<Box<[u8]>>,
}

enum What {
    Path(Vec<Box<[u8]>>),
    BuildEpoch,
    LastCheck,
    LastChange,
}

/// The directive in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Placed> Rows<S> {
    const ROWS: &'static [Row] = &[Row::block(
        "geoip2",
        S::BLOCK,
        Arity::ONE,
        "Variables with what a database (.mmdb) has of an address.",
        set_database::<S>,
    )
    .note(
        "Of ngx_http_geoip2_module. At a reload the workers' user reads the file, as it does by auto_reload; a \
         metadata field that there is not is an error.",
    )];
}

const PROXY_ROWS: [Row; 2] = [
    Row::new(
        "geoip2_proxy",
        Request::BLOCK,
        Arity::ONE,
        "",
        "A proxy whose X-Forwarded-For is believed.",
        |cf, d| {
            let net = network(cf, d, d.arg(0))?;
            cf.get::<Geoip2Main>().proxies.push(From::Net(net));
            Ok(())
        },
    ),
    Row::new(
        "geoip2_proxy_recursive",
        Request::BLOCK,
        Arity::FLAG,
        "off",
        "Believe proxies also of further proxies.",
        set!(Cf::get::<Geoip2Main>, recursive, flag),
    ),
];

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<Geoip2Main>()];

pub const MODULE: HttpModule = HttpModule {
    rows: Rows::<Request>::ROWS,
    slots: SLOTS,
    build: Some(|b| open_all(b.main)),
    ..HttpModule::EMPTY
};

pub const PROXIES: HttpModule = HttpModule { rows: &PROXY_ROWS, ..HttpModule::EMPTY };

pub const STREAM: StreamModule = StreamModule {
    rows: Rows::<weir_stream::Session>::ROWS,
    slots: SLOTS,
    build: Some(|b| open_all(b.main)),
    ..StreamModule::EMPTY
};

fn set_database<S: Placed>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let path = cf.full_path(d.arg(0));
    let databases = &mut cf.get::<Geoip2Main>().databases;
    if databases.iter().any(|known| known.path == path) {
        return Err(d.bad(0, format!("Duplicate GeoIP2 mmdb - {}", path.display())));
    }
    let number = databases.len();
    databases.push(Source { path, ..Source::default() });
    d.children().iter().try_for_each(|entry| read_entry::<S>(cf, number, entry))
}

fn read_entry<S: Placed>(cf: &mut Cf, database: usize, entry: &Directive) -> ConfResult {
    if entry.is_block() {
        return Err(entry.fail("unexpected \"{\""));
    }
    if entry.name.as_bytes() == b"auto_reload" {
        if entry.args.len() != 1 {
            return Err(entry.fail("invalid number of arguments for auto_reload"));
        }
        let shown = String::from_utf8_lossy(entry.arg(0)).into_owned();
        let invalid = |_| entry.fail(format!("invalid interval for auto_reload \"{shown}\""));
        let interval_secs = entry.sec(0).map_err(invalid)?;
        cf.get::<Geoip2Main>().databases[database].interval_secs = interval_secs;
        return Ok(());
    }
    let Some(name) = entry.name.as_bytes().strip_prefix(b"$").filter(|n| !n.is_empty()) else {
        let shown = entry.name.to_str().into_owned();
        return Err(entry.fail(format!("invalid setting \"{shown}\"")));
    };
    let name = name.to_vec();
    let asked = match entry.arg(0) == b"metadata" {
        true => metadata(entry, database)?,
        false => data::<S>(cf, entry, database, &String::from_utf8_lossy(&name))?,
    };
    let variables = &mut cf.get::<Geoip2Main>().variables;
    let number = variables.len();
    variables.push(asked);
    let arg = VarArg { name: name.as_slice().into(), data: number };
    let def = VarDef { get: value::<S>, set: None, arg, cached: true };
    S::registry(cf).define(&name, def);
    Ok(())
}

fn metadata(entry: &Directive, database: usize) -> ConfResult<Asked> {
    let what = match entry.arg(1) {
        b"build_epoch" => What::BuildEpoch,
        b"last_check" => What::LastCheck,
        b"last_change" => What::LastChange,
        other => {
            let shown = String::from_utf8_lossy(other);
            let e = entry.fail(format!("invalid metadata \"{shown}\""));
            return Err(e.hint("it is build_epoch, last_check or last_change".into()));
        }
    };
    Ok(Asked { database, what, source: None, default: None })
}

fn data<S: Placed>(
    cf: &mut Cf,
    entry: &Directive,
    database: usize,
    name: &str,
) -> ConfResult<Asked> {
    let (mut source, mut default) = (None, None);
    let mut at = 0;
    while entry.arg(at).contains(&b'=') {
        let shown = String::from_utf8_lossy(entry.arg(at)).into_owned();
        let twice = |what| entry.fail(format!("{what} has already been declared for  \"${name}\""));
        if let Some(text) = entry.keyed(at, "default").filter(|text| !text.is_empty()) {
            if default.replace(text.into()).is_some() {
                return Err(twice("default"));
            }
        } else if let Some(text) = entry.keyed(at, "source").filter(|text| !text.is_empty()) {
            if !text.starts_with(b"$") {
                let shown = String::from_utf8_lossy(text);
                return Err(entry.bad(at, format!("invalid source variable name \"{shown}\"")));
            }
            if source.replace(template_of::<S>(cf, entry, at, text)?).is_some() {
                return Err(twice("source"));
            }
        } else {
            return Err(entry.bad(at, format!("invalid setting \"{shown}\" for \"${name}\"")));
        }
        at += 1;
    }
    let path = (at..entry.args.len()).map(|i| entry.arg(i).into()).collect();
    Ok(Asked { database, what: What::Path(path), source, default })
}

fn open_all(main: &Slots) -> ConfResult {
    main.get::<Geoip2Main>().databases.iter().try_for_each(|source| {
        source.open().map_err(|e| {
            let shown = source.path.display();
            Diagnostic::emerg(format!("MMDB_open(\"{shown}\") failed - {}", e.why))
        })
    })
}

fn value<S: Placed>(s: &mut S, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let part = Rc::clone(s.part());
    let conf = part.main().get::<Geoip2Main>();
    let asked = &conf.variables[arg.data];
    let Some(database) = conf.databases[asked.database].opened.get() else { return false };
    let time = match &asked.what {
        What::Path(path) => {
            let found = guarded(s, &arg.name, |s| {
                let Some(ip) = address_of(s, conf, asked) else { return false };
                database.ask(part.core(), |file| {
                    let value = file.find(ip).and_then(|entry| entry.get(path));
                    value.is_some_and(|value| put(value, out))
                })
            });
            return found || asked.default.as_ref().is_some_and(|text| put(Value::Text(text), out));
        }
        What::BuildEpoch => database.ask(part.core(), |file| file.build_epoch() as i64),
        What::LastCheck => database.last_check(),
        What::LastChange => database.last_change(),
    };
    put(Value::Text(time.to_string().as_bytes()), out)
}

fn address_of<S: Placed>(s: &mut S, conf: &Geoip2Main, asked: &Asked) -> Option<IpAddr> {
    let Some(source) = &asked.source else {
        let recursive = conf.recursive.as_option().copied().unwrap_or(false);
        return address(s, &conf.proxies, recursive);
    };
    with_value(s, source, |_, text| {
        let ip = parse_ipv4(text).map(IpAddr::V4).or_else(|| parse_ipv6(text).map(IpAddr::V6));
        ip.map(unmapped)
    })
}

/// As text; maps and arrays have none.
fn put(value: Value, out: &mut Vec<u8>) -> bool {
    let number = match value {
        Value::Text(text) | Value::Bytes(text) => {
            out.extend_from_slice(text);
            return true;
        }
        Value::Bool(is) => u8::from(is).to_string(),
        Value::Double(n) => format!("{n:.5}"),
        Value::Float(n) => format!("{n:.5}"),
        Value::Unsigned(n) => n.to_string(),
        Value::Signed(n) => n.to_string(),
        Value::Wide(n) => format!("0x{n:032x}"),
        Value::Map(_) | Value::Array(_) => return false,
    };
    out.extend_from_slice(number.as_bytes());
    true
}
