//! The directives of `sysguard`.

use super::{GuardLoc, Limit, MayLimit};
use weir_base::units;
use weir_core::logger::LogLevel;
use weir_module::first::{flag, sec};
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row};
use weir_runtime::system;

/// Each second has a place in memory.
const PERIOD_MAX_SECS: u64 = 3600;

const LEVELS: &[(&str, LogLevel)] = &[
    ("info", LogLevel::Info),
    ("notice", LogLevel::Notice),
    ("warn", LogLevel::Warn),
    ("error", LogLevel::Error),
];

pub const ROWS: &[Row] = &[
    Row::new(
        "sysguard",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Whether requests are turned away while the machine has too much to do.",
        set!(Cf::get::<GuardLoc>, on, flag),
    ),
    Row::new(
        "sysguard_mode",
        Context::HSL,
        Arity::ONE,
        "or",
        "Whether any limit turns requests away (or), or all that are set together (and).",
        |cf, d| {
            let all = d.choice(0, &[("and", true), ("or", false)])?;
            cf.get::<GuardLoc>().all.once(d, all)
        },
    ),
    Row::new(
        "sysguard_load",
        Context::HSL,
        Arity::ONE_TWO,
        "",
        "Which load of the last minute is too much (load=NUMBER or ncpu*NUMBER), and where requests go (action=).",
        |cf, d| {
            if system::load().is_none() {
                cf.warn(d, "the system has no load of the last minute: \"sysguard_load\" turns nothing away; \"sysguard_cpu\" does");
            }
            read(cf, d, &[("load", |text, conf| {
                let (text, factor) = match text.strip_prefix(b"ncpu*") {
                    Some(rest) => (rest, system::cpus()),
                    None => (text, 1),
                };
                let load = units::parse_fixed(text, 3)?.checked_mul(factor)?;
                Some((&mut conf.load, load))
            })])
        },
    ),
    Row::new(
        "sysguard_cpu",
        Context::HSL,
        Arity::ONE_TO_THREE,
        "",
        "Which use of the processors is too much (usage=PERCENT, period=TIME), and where requests go (action=).",
        |cf, d| {
            let period = period(d, &mut |conf| &mut conf.cpu_secs, cf)?;
            read_but(cf, d, period, &[("usage", |text, conf| {
                Some((&mut conf.cpu, units::parse_fixed(text, 2)?))
            })])
        },
    ),
    Row::new(
        "sysguard_mem",
        Context::HSL,
        Arity::ONE_TO_THREE,
        "",
        "Which use of swap is too much (swapratio=PERCENT%), which free memory too little (free=SIZE), and where requests go (action=).",
        |cf, d| {
            read(cf, d, &[
                ("swapratio", |text, conf| {
                    Some((&mut conf.swap, units::parse_int(text.strip_suffix(b"%")?)?))
                }),
                ("free", |text, conf| Some((&mut conf.free, units::parse_offset(text)?))),
            ])
        },
    ),
    Row::new(
        "sysguard_rt",
        Context::HSL,
        Arity::ONE_TO_THREE,
        "",
        "Which average time of requests is too much (rt=SECONDS, period=TIME), and where requests go (action=).",
        |cf, d| {
            let period = period(d, &mut |conf| &mut conf.period_secs, cf)?;
            read_but(cf, d, period, &[("rt", |text, conf| {
                Some((&mut conf.time, units::parse_fixed(text, 3)?))
            })])
        },
    )
    .note("The time is that of all workers, and of all locations that inherit the directive; Tengine's is each one's own. A period is an hour at most."),
    Row::new(
        "sysguard_interval",
        Context::HSL,
        Arity::ONE,
        "1s",
        "How often the machine's figures are looked at.",
        set!(Cf::get::<GuardLoc>, interval_secs, sec),
    )
    .note("The shortest one counts for load and memory."),
    Row::new(
        "sysguard_log_level",
        Context::HSL,
        Arity::ONE,
        "error",
        "The level at which refusals are logged.",
        |cf, d| {
            let level = d.choice(0, LEVELS)?;
            cf.get::<GuardLoc>().log_level.once(d, level)
        },
    ),
];

/// Reads the value of a parameter, and says what it limits.
type Reader = for<'a> fn(&[u8], &'a mut GuardLoc) -> Option<(&'a mut MayLimit, u64)>;

fn invalid(d: &Directive, i: usize) -> weir_module::Diagnostic {
    d.bad(i, format!("invalid parameter \"{}\"", String::from_utf8_lossy(d.arg(i))))
}

/// The argument `period=`, if there is one, which is kept.
fn period(
    d: &Directive,
    field: &mut dyn FnMut(&mut GuardLoc) -> &mut weir_module::Val<u64>,
    cf: &mut Cf,
) -> ConfResult<Option<usize>> {
    let Some(at) = (0..d.args.len()).find(|i| d.keyed(*i, "period").is_some()) else {
        return Ok(None);
    };
    let secs = d.keyed(at, "period").and_then(units::parse_sec);
    let fits = |secs: &u64| (1..=PERIOD_MAX_SECS).contains(secs);
    let secs = secs.filter(fits).ok_or_else(|| invalid(d, at))?;
    field(cf.get::<GuardLoc>()).once(d, secs)?;
    Ok(Some(at))
}

fn read(cf: &mut Cf, d: &Directive, readers: &[(&str, Reader)]) -> ConfResult {
    read_but(cf, d, None, readers)
}

/// Reads all arguments but one that has been read; `action=` is for all limits of the directive.
fn read_but(
    cf: &mut Cf,
    d: &Directive,
    but: Option<usize>,
    readers: &[(&str, Reader)],
) -> ConfResult {
    let mut action: Option<&[u8]> = None;
    let mut limits: Vec<(usize, Reader, &[u8])> = Vec::new();
    for i in (0..d.args.len()).filter(|i| Some(*i) != but) {
        if let Some(text) = d.keyed(i, "action") {
            if !matches!(text.first(), Some(b'/' | b'@')) || action.replace(text).is_some() {
                return Err(invalid(d, i));
            }
            continue;
        }
        let known = readers.iter().find_map(|(key, read)| Some((*read, d.keyed(i, key)?)));
        let (read, text) = known.ok_or_else(|| invalid(d, i))?;
        limits.push((i, read, text));
    }
    if limits.is_empty() {
        return Err(invalid(d, 0));
    }
    for (i, read, text) in limits {
        let (limit, value) = read(text, cf.get::<GuardLoc>()).ok_or_else(|| invalid(d, i))?;
        limit.once(d, Some(Limit { value, action: action.unwrap_or_default().to_vec() }))?;
    }
    Ok(())
}
