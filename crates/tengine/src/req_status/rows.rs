//! The directives of `req_status`.

use super::zone::{Limits, FIELDS, NUMBERS_MAX};
use super::{show, Field, StatusLoc, StatusMain, Watched, ZoneConf, KIND};
use std::sync::Arc;
use weir_base::units;
use weir_core::registry::{template, template_of};
use weir_core::zones;
use weir_http::conf::CoreLoc;
use weir_http::Request;
use weir_module::first::flag;
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row};

const PAGE_BYTES: u64 = 4096;
/// Keys are not longer, whatever is said.
const KEY_MAX_BYTES: usize = 4096;
const LIMITS: Limits = Limits { key_max_bytes: 152, recycle_rate: 167 };

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "req_status_zone",
        Context::HTTP,
        Arity::THREE,
        "",
        "A zone in which requests are counted by a value: NAME VALUE SIZE.",
        set_zone,
    )
    .note(
        "Tengine's. What is counted is kept over a reload, an upgrade and the death of a serving process. Where there is \
         no room for a further value, one that is asked for seldom goes (req_status_zone_recycle).",
    ),
    Row::new(
        "req_status",
        Context::HSL,
        Arity::ONE_MORE,
        "",
        "The zones in which requests are counted.",
        set_watched,
    )
    .note(
        "Tengine's. The first location that a request comes to says which, and with which value, before its rewrites; \
         bytes are counted when it is over, and not while it is sent.",
    ),
    Row::new(
        "req_status_lazy",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Whether the value is made when the request is over, as one of its answer must be.",
        set!(Cf::get::<StatusLoc>, lazy, flag),
    )
    .note("Tengine's."),
    Row::new(
        "req_status_bypass",
        Context::HSL,
        Arity::ONE_MORE,
        "",
        "Requests for which one of the values is not empty and not 0 are not counted.",
        set_bypass,
    )
    .note("Tengine's."),
    Row::new(
        "req_status_show",
        Context::LOCATION,
        Arity::ANY,
        "",
        "Answers with the lines of the zones, or of all that are in use: the value, then numbers, with commas between.",
        set_show,
    )
    .note("Tengine's. It is sent as text/plain; bytes of a value that end lines or are controls are shown as \\xNN."),
    Row::new(
        "req_status_show_field",
        Context::LOCATION,
        Arity::ONE_MORE,
        "",
        "Which numbers are shown, by their names or the variables of req_status_zone_add_indicator.",
        set_fields,
    )
    .note("Tengine's."),
    Row::new(
        "req_status_zone_add_indicator",
        Context::HTTP,
        Arity::TWO_MORE,
        "",
        "Variables whose numbers are added up besides: ZONE $VARIABLE …, 21 at most.",
        add_indicator,
    )
    .note("Tengine's. The number at the end of the value counts, in its last digit: 0.120 as 120."),
    Row::new(
        "req_status_zone_key_length",
        Context::HTTP,
        Arity::TWO,
        "",
        "How many bytes of the value count: ZONE LENGTH; 152 without it.",
        |cf, d| {
            let length = units::parse_int(d.arg(1)).and_then(|n| usize::try_from(n).ok());
            let length = length.filter(|n| (1..=KEY_MAX_BYTES).contains(n));
            let hint = || d.bad(1, "invalid key length").hint(format!("write 1 to {KEY_MAX_BYTES}"));
            zone_of(cf, d)?.limits.key_max_bytes = length.ok_or_else(hint)?;
            Ok(())
        },
    )
    .note("Tengine's."),
    Row::new(
        "req_status_zone_recycle",
        Context::HTTP,
        Arity::THREE,
        "",
        "Which lines may make room in a full zone: ZONE TIMES SECONDS, those that are asked for more seldom; 10 60 without it.",
        |cf, d| {
            let times = units::parse_int(d.arg(1)).ok_or_else(|| d.bad(1, "invalid threshold"))?;
            let secs = units::parse_int(d.arg(2)).filter(|n| *n > 0);
            let secs = secs.ok_or_else(|| d.bad(2, "invalid scale"))?;
            zone_of(cf, d)?.limits.recycle_rate = times.saturating_mul(1000) / secs;
            Ok(())
        },
    )
    .note("Tengine's."),
];

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (name, value) = (d.arg(0).to_vec(), d.arg(1).to_vec());
    let size = units::parse_size(d.arg(2));
    let size =
        size.ok_or_else(|| d.bad(2, format!("invalid zone size \"{}\"", shown(d.arg(2)))))?;
    if size < 8 * PAGE_BYTES {
        return Err(d.bad(2, format!("zone \"{}\" is too small", shown(&name))));
    }
    let key = template::<Request>(cf, d, 1)?;
    if key.is_constant() {
        let e = d.bad(1, format!("the value \"{}\" is a constant", shown(&value)));
        return Err(e.hint("write variables, as in \"$host\"".to_string()));
    }
    zones::declare(cf, d, 0, &name, KIND, size)?;
    let main = cf.get::<StatusMain>();
    if let Some(known) = main.zones.get(&name) {
        let (name, value) = (shown(&name), shown(&known.value));
        let text = format!("{} \"{name}\" is already bound to value \"{value}\"", d.name());
        return Err(d.bad(0, text));
    }
    let (limits, indicators) = (LIMITS, Vec::new());
    let zone = ZoneConf { value, key: Arc::new(key), size, limits, indicators, zone: None };
    main.zones.insert(name, zone);
    Ok(())
}

fn zone_of<'a>(cf: &'a mut Cf, d: &Directive) -> ConfResult<&'a mut ZoneConf> {
    let undefined = || d.bad(0, format!("zone \"{}\" should be defined first", shown(d.arg(0))));
    cf.get::<StatusMain>().zones.get_mut(d.arg(0)).ok_or_else(undefined)
}

fn add_indicator(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.args.len() - 1 > NUMBERS_MAX - FIELDS.len() {
        return Err(d.fail("too many user defined variables"));
    }
    let mut indicators = Vec::new();
    for i in 1..d.args.len() {
        let name = d.arg(i).strip_prefix(b"$").unwrap_or(d.arg(i)).to_vec();
        let text = [b"$", &name[..]].concat();
        indicators.push((name, template_of::<Request>(cf, d, i, &text)?));
    }
    let zone = zone_of(cf, d)?;
    if !zone.indicators.is_empty() {
        return Err(d.error("is duplicate"));
    }
    zone.indicators = indicators;
    Ok(())
}

fn names(d: &Directive) -> Vec<Vec<u8>> {
    (0..d.args.len()).map(|i| d.arg(i).to_vec()).collect()
}

fn set_watched(cf: &mut Cf, d: &Directive) -> ConfResult {
    let names = names(d);
    for (i, name) in names.iter().enumerate() {
        zones::declare(cf, d, i, name, KIND, 0)?;
        let used = &mut cf.get::<StatusMain>().used;
        if !used.contains(name) {
            used.push(name.clone());
        }
    }
    cf.get::<StatusLoc>().watched.once(d, Some(Arc::new(Watched::new(names))))
}

fn set_bypass(cf: &mut Cf, d: &Directive) -> ConfResult {
    let own: ConfResult<Vec<_>> =
        (0..d.args.len()).map(|i| template::<Request>(cf, d, i)).collect();
    let mut all = own?;
    let bypass = &mut cf.get::<StatusLoc>().bypass;
    if let Some(before) = bypass.as_option() {
        all.splice(0..0, before.iter().cloned());
    }
    bypass.set(Arc::new(all));
    Ok(())
}

fn set_show(cf: &mut Cf, d: &Directive) -> ConfResult {
    let names = names(d);
    for (i, name) in names.iter().enumerate() {
        zones::declare(cf, d, i, name, KIND, 0)?;
    }
    let loc = cf.get::<StatusLoc>();
    if loc.shown.is_some() {
        return Err(d.error("is duplicate"));
    }
    loc.shown = Some(Arc::new(Watched::new(names)));
    cf.get::<CoreLoc>().handler = Some(show::handler);
    Ok(())
}

fn set_fields(cf: &mut Cf, d: &Directive) -> ConfResult {
    let main = cf.get::<StatusMain>();
    let mut fields = Vec::new();
    for i in 0..d.args.len() {
        let known = |name: &[u8]| main.zones.values().any(|zone| zone.indicator(name).is_some());
        fields.push(match d.arg(i).strip_prefix(b"$") {
            Some(name) if known(name) => Field::Indicator(name.to_vec()),
            Some(_) => return Err(no_field(d, i)),
            None => {
                let at = FIELDS.iter().position(|f| f.as_bytes() == d.arg(i));
                Field::Own(at.ok_or_else(|| no_field(d, i))?)
            }
        });
    }
    cf.get::<StatusLoc>().fields.once(d, Some(Arc::new(fields)))
}

fn no_field(d: &Directive, i: usize) -> Diagnostic {
    let e = d.bad(i, format!("field \"{}\" does not exist", shown(d.arg(i))));
    e.hint(format!(
        "it is one of {}, or a variable of req_status_zone_add_indicator",
        FIELDS.join(", ")
    ))
}
