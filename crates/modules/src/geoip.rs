//! Where clients come from: nginx's `ngx_http_geoip_module` and `ngx_stream_geoip_module`, and below it `geoip2`.
//!
//! Differences from nginx: databases are those of GeoIP2 (`.mmdb`), for the older ones (`.dat`) have not been made
//! since 2019; their names are in UTF-8, with the parameter `utf8` or without; regions have ISO's codes.

mod codes;
pub mod database;
pub mod geoip2;

use crate::geo::{network, Placed};
use crate::realip::From;
use database::Source;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::rc::Rc;
use weir_core::session::Part;
use weir_core::variables::{VarArg, Variable};
use weir_core::Session;
use weir_http::{HttpModule, Request};
use weir_module::first::flag;
use weir_module::{
    set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Diagnostic, Directive, Level, Row,
    SlotVtable, Slots, Val,
};
use weir_script::mmdb::{Entry, Value};
use weir_stream::StreamModule;

#[derive(Default)]
struct GeoipMain {
    country: Option<Source>,
    org: Option<Source>,
    city: Option<Source>,
    /// Tengine's `geoip_region`.
    region: Option<Source>,
    proxies: Vec<From>,
    recursive: Val<bool>,
}

impl ConfType for GeoipMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// Which of the three.
type Which = fn(&mut GeoipMain) -> &mut Option<Source>;

const MMDB: &str = "Reads GeoIP2's databases (.mmdb), not .dat. Names are in UTF-8 either way.";

/// The directives and variables of sessions `S`.
struct Of<S>(PhantomData<S>);

impl<S: Placed> Of<S> {
    const ROWS: &'static [Row] = &[
        Row::new(
            "geoip_country",
            S::BLOCK,
            Arity::ONE_TWO,
            "",
            "The database of countries.",
            |cf, d| database(cf, d, |main| &mut main.country),
        )
        .note(MMDB),
        Row::new(
            "geoip_org",
            S::BLOCK,
            Arity::ONE_TWO,
            "",
            "The database of organisations.",
            |cf, d| database(cf, d, |main| &mut main.org),
        )
        .note(
            "Reads GeoIP2's databases (.mmdb), not .dat: those of organisations, providers, domains, and of \
             autonomous systems, of which the value is \"AS15169 Google LLC\".",
        ),
        Row::new(
            "geoip_city",
            S::BLOCK,
            Arity::ONE_TWO,
            "",
            "The database of cities.",
            |cf, d| database(cf, d, |main| &mut main.city),
        )
        .note(
            "Reads GeoIP2's databases (.mmdb), not .dat. Names are in UTF-8 either way; $geoip_region has ISO's \
             codes, and $geoip_area_code, which GeoIP2 has not, is 0.",
        ),
    ];

    const VARIABLES: &'static [Variable<S>] = &[
        Variable::new("geoip_country_code", country_code::<S>).cached(),
        Variable::new("geoip_country_code3", country_code3::<S>).cached(),
        Variable::new("geoip_country_name", country_name::<S>).cached(),
        Variable::new("geoip_org", org::<S>).cached(),
        Variable::new("geoip_city_continent_code", |s, _, out| {
            city_text::<S>(s, out, &["continent", "code"])
        })
        .cached(),
        Variable::new("geoip_city_country_code", |s, _, out| {
            city_text::<S>(s, out, &["country", "iso_code"])
        })
        .cached(),
        Variable::new("geoip_city_country_code3", city_country_code3::<S>).cached(),
        Variable::new("geoip_city_country_name", |s, _, out| {
            city_text::<S>(s, out, &["country", "names", "en"])
        })
        .cached(),
        Variable::new("geoip_region", |s, _, out| {
            city_text::<S>(s, out, &["subdivisions", "0", "iso_code"])
        })
        .cached(),
        Variable::new("geoip_region_name", |s, _, out| {
            city_text::<S>(s, out, &["subdivisions", "0", "names", "en"])
        })
        .cached(),
        Variable::new("geoip_city", |s, _, out| city_text::<S>(s, out, &["city", "names", "en"]))
            .cached(),
        Variable::new("geoip_postal_code", |s, _, out| city_text::<S>(s, out, &["postal", "code"]))
            .cached(),
        Variable::new("geoip_latitude", |s, _, out| city_place::<S>(s, out, "latitude")).cached(),
        Variable::new("geoip_longitude", |s, _, out| city_place::<S>(s, out, "longitude")).cached(),
        Variable::new("geoip_dma_code", |s, _, out| city_number::<S>(s, out, "metro_code"))
            .cached(),
        Variable::new("geoip_area_code", |s, _, out| city_number::<S>(s, out, "area_code"))
            .cached(),
    ];
}

/// Of HTTP alone: Tengine's database of regions, and who is behind a proxy.
const PROXY_ROWS: [Row; 3] = [
    Row::new(
        "geoip_region",
        Request::BLOCK,
        Arity::ONE_TWO,
        "",
        "The database of regions.",
        |cf, d| database(cf, d, |main| &mut main.region),
    )
    .note(
        "It is Tengine's. Reads GeoIP2's databases (.mmdb), not .dat: one of cities has the regions, with ISO's \
         codes in $geoip_region_region.",
    ),
    Row::new(
        "geoip_proxy",
        Request::BLOCK,
        Arity::ONE,
        "",
        "A proxy whose X-Forwarded-For is believed.",
        |cf, d| {
            let net = network(cf, d, d.arg(0))?;
            cf.get::<GeoipMain>().proxies.push(From::Net(net));
            Ok(())
        },
    ),
    Row::new(
        "geoip_proxy_recursive",
        Request::BLOCK,
        Arity::FLAG,
        "off",
        "Believe proxies also of further proxies.",
        set!(Cf::get::<GeoipMain>, recursive, flag),
    ),
];

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<GeoipMain>()];

pub const MODULE: HttpModule = HttpModule {
    rows: Of::<Request>::ROWS,
    slots: SLOTS,
    variables: Of::<Request>::VARIABLES,
    build: Some(|b| open_all(b.main)),
    ..HttpModule::EMPTY
};

pub const PROXIES: HttpModule = HttpModule {
    rows: &PROXY_ROWS,
    variables: &[
        Variable::new("geoip_region_country_code", |r: &mut Request, _, out| {
            ask(r, |conf| &conf.region, |entry, _| text(entry, &["country", "iso_code"], out))
        })
        .cached(),
        Variable::new("geoip_region_region", |r: &mut Request, _, out| {
            let path = ["subdivisions", "0", "iso_code"];
            ask(r, |conf| &conf.region, |entry, _| text(entry, &path, out))
        })
        .cached(),
    ],
    ..HttpModule::EMPTY
};

pub const STREAM: StreamModule = StreamModule {
    rows: Of::<weir_stream::Session>::ROWS,
    slots: SLOTS,
    variables: Of::<weir_stream::Session>::VARIABLES,
    build: Some(|b| open_all(b.main)),
    ..StreamModule::EMPTY
};

fn database(cf: &mut Cf, d: &Directive, which: Which) -> ConfResult {
    let path = cf.full_path(d.arg(0));
    let place = which(cf.get::<GeoipMain>());
    if place.is_some() {
        return Err(d.error("is duplicate"));
    }
    if d.args.len() == 2 && d.arg(1) != b"utf8" {
        let shown = String::from_utf8_lossy(d.arg(1)).into_owned();
        return Err(d.bad(1, format!("invalid parameter \"{shown}\"")));
    }
    *place = Some(Source { path, ..Source::default() });
    Ok(())
}

fn open_all(main: &Slots) -> ConfResult {
    let conf = main.get::<GeoipMain>();
    [&conf.country, &conf.org, &conf.city, &conf.region].into_iter().flatten().try_for_each(|source| {
        source.open().map_err(|e| {
            let shown = source.path.display();
            let told =
                Diagnostic::emerg(format!("GeoIP_open(\"{shown}\") failed: {}", e.why));
            let mmdb = source.path.with_extension("mmdb");
            match e.is_other || source.path.extension().is_some_and(|e| e == "dat") {
                true => told.hint(format!(
                    "Weir reads GeoIP2's databases, not the older .dat: write \"{}\", and have it made by \
                     geoipupdate",
                    mmdb.display()
                )),
                false => told,
            }
        })
    })
}

/// What counts as the client's address.
fn address<S: Placed>(s: &S, proxies: &[From], recursive: bool) -> Option<IpAddr> {
    let client = s.client();
    let named = (!proxies.is_empty()).then(|| s.behind(client, proxies, recursive)).flatten();
    let ip = named.map(|addr| addr.ip()).or_else(|| client.ip())?;
    Some(weir_base::addr::unmapped(ip))
}

/// Asks one of the databases of the client's address; `None` where it has nothing, or there is none.
fn ask<S: Placed>(
    s: &mut S,
    which: fn(&GeoipMain) -> &Option<Source>,
    f: impl FnOnce(Entry, &[u8]) -> bool,
) -> bool {
    let part = Rc::clone(s.part());
    let conf = part.main().get::<GeoipMain>();
    let Some(database) = which(conf).as_ref().and_then(|source| source.opened.get()) else {
        return false;
    };
    let recursive = conf.recursive.as_option().copied().unwrap_or(false);
    let Some(ip) = address(s, &conf.proxies, recursive) else { return false };
    database.ask(part.core(), |file| file.find(ip).is_some_and(|entry| f(entry, file.kind())))
}

fn text(entry: Entry, path: &[&str], out: &mut Vec<u8>) -> bool {
    let Some(Value::Text(text)) = entry.get(path) else { return false };
    out.extend_from_slice(text);
    true
}

fn code3(entry: Entry, out: &mut Vec<u8>) -> bool {
    let Some(Value::Text(two)) = entry.get(&["country", "iso_code"]) else { return false };
    let Some(three) = codes::three_letters(two) else { return false };
    out.extend_from_slice(three);
    true
}

fn country_code<S: Placed>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    ask(s, |conf| &conf.country, |entry, _| text(entry, &["country", "iso_code"], out))
}

fn country_code3<S: Placed>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    ask(s, |conf| &conf.country, |entry, _| code3(entry, out))
}

fn country_name<S: Placed>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    ask(s, |conf| &conf.country, |entry, _| text(entry, &["country", "names", "en"], out))
}

fn org<S: Placed>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    ask(
        s,
        |conf| &conf.org,
        |entry, kind| {
            if kind.ends_with(b"-ASN") {
                if let Some(Value::Unsigned(number)) = entry.get(&["autonomous_system_number"]) {
                    out.extend_from_slice(format!("AS{number} ").as_bytes());
                    text(entry, &["autonomous_system_organization"], out);
                    return true;
                }
            }
            ["organization", "isp", "autonomous_system_organization", "domain"]
                .into_iter()
                .any(|name| text(entry, &[name], out))
        },
    )
}

fn city_text<S: Placed>(s: &mut S, out: &mut Vec<u8>, path: &[&str]) -> bool {
    ask(s, |conf| &conf.city, |entry, _| text(entry, path, out))
}

fn city_country_code3<S: Placed>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    ask(s, |conf| &conf.city, |entry, _| code3(entry, out))
}

/// A degree, 0 where the record has none, as nginx has it.
fn city_place<S: Placed>(s: &mut S, out: &mut Vec<u8>, name: &str) -> bool {
    ask(
        s,
        |conf| &conf.city,
        |entry, _| {
            let degrees = match entry.get(&["location", name]) {
                Some(Value::Double(degrees)) => degrees,
                Some(Value::Float(degrees)) => f64::from(degrees),
                _ => 0.0,
            };
            out.extend_from_slice(format!("{degrees:.4}").as_bytes());
            true
        },
    )
}

fn city_number<S: Placed>(s: &mut S, out: &mut Vec<u8>, name: &str) -> bool {
    ask(
        s,
        |conf| &conf.city,
        |entry, _| {
            let number = match entry.get(&["location", name]) {
                Some(Value::Unsigned(number)) => number,
                _ => 0,
            };
            out.extend_from_slice(number.to_string().as_bytes());
            true
        },
    )
}
