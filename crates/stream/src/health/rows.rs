//! The directives of active checks, read and built.

use super::{ask, Check, Declared, Expected, HealthMain, HealthSrv, Match};
use crate::build::Build;
use crate::module::StreamModule;
use crate::proxy;
use std::sync::Arc;
use weir_base::units;
use weir_module::first::msec;
use weir_module::{
    set, ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row, SlotVtable, Slots,
};
use weir_script::regex::{Regex, RegexOptions};
use weir_upstream::health::{read_rule, Board, Rule};
use weir_upstream::UpstreamMain;

const PLUS: &str = "In nginx it is part of the commercial version.";

const ROWS: &[Row] = &[
    Row::new(
        "health_check",
        Context::STREAM_SERVER,
        Arity::ANY,
        "",
        "Servers of the upstream are asked again and again whether they are well.",
        |cf, d| {
            let declared = read(d)?;
            match cf.get::<HealthSrv>().check.replace(declared) {
                None => Ok(()),
                Some(_) => Err(d.error("is duplicate")),
            }
        },
    )
    .note(
        "In nginx it is part of the commercial version. The interval runs from one answer to the next question. \
         A server found unhealthy stays so over a reload without mandatory too; with mandatory and without \
         persistent all begin anew.",
    ),
    Row::new(
        "health_check_timeout",
        Context::SS,
        Arity::ONE,
        "5s",
        "How long a checked server may take to be sent something, and to answer.",
        set!(Cf::get::<HealthSrv>, timeout_ms, msec),
    )
    .note(PLUS),
    Row::block(
        "match",
        Context::STREAM,
        Arity::ONE,
        "What a server is sent, and what a healthy one answers: send, expect.",
        set_match,
    )
    .note(
        "In nginx it is part of the commercial version. The literal text of expect is what an answer has to \
         begin with; no more than proxy_buffer_size of an answer are looked at.",
    ),
];

/// `health_check`, `health_check_timeout` and `match`.
pub const MODULE: StreamModule = StreamModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<HealthSrv>(), SlotVtable::of::<HealthMain>()],
    build: Some(build),
    start: Some(|_, stream| {
        stream.main.get::<HealthMain>().checks.iter().for_each(|check| check.board.open());
    }),
    serves: Some(ask::serves),
    ..StreamModule::EMPTY
};

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(d: &Directive) -> ConfResult<Declared> {
    let (mut mandatory, mut persistent) = (false, false);
    let mut declared = Declared {
        rule: Rule {
            interval_ms: 5000,
            jitter_ms: 0,
            fails: 1,
            passes: 1,
            starts_down: false,
            forgets: false,
        },
        wanted: Vec::new(),
        port: None,
        udp: false,
        at: d.position(),
    };
    for i in 0..d.args.len() {
        let bad = || d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
        match d.arg(i) {
            b"mandatory" => mandatory = true,
            b"persistent" => persistent = true,
            b"udp" => declared.udp = true,
            _ if read_rule(d, i, &mut declared.rule)? => {}
            _ => {
                if let Some(v) = d.keyed(i, "port") {
                    let port = units::parse_int(v).and_then(|n| u16::try_from(n).ok());
                    declared.port = Some(port.filter(|n| *n > 0).ok_or_else(bad)?);
                } else if let Some(v) = d.keyed(i, "match") {
                    declared.wanted = v.to_vec();
                } else {
                    return Err(bad());
                }
            }
        }
    }
    if persistent && !mandatory {
        return Err(d.error("has \"persistent\" without \"mandatory\""));
    }
    declared.rule.starts_down = mandatory;
    declared.rule.forgets = mandatory && !persistent;
    Ok(declared)
}

fn set_match(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0);
    if name.is_empty() {
        return Err(d.bad(0, "invalid match name \"\""));
    }
    let mut m = Match::default();
    for rule in d.children() {
        let expected = match (rule.name.as_bytes(), rule.args.len(), rule.is_block()) {
            (b"send", 1, false) => {
                m.send = unescaped(rule)?;
                continue;
            }
            (b"expect", 1, false) => Expected::Bytes(unescaped(rule)?),
            (b"expect", 2, false) => Expected::Like(regex(rule)?),
            _ => {
                let text = format!("invalid \"{}\" in \"match\"", rule.name());
                let hint = "it has send TEXT; and expect TEXT; or expect ~ PATTERN;".to_string();
                return Err(rule.fail(text).hint(hint));
            }
        };
        if m.expect.replace(expected).is_some() {
            return Err(rule.error("is duplicate"));
        }
    }
    match cf.get::<HealthMain>().matches.insert(name.to_vec(), Arc::new(m)) {
        None => Ok(()),
        Some(_) => Err(d.fail(format!("duplicate match \"{}\"", lossy(name)))),
    }
}

fn regex(rule: &Directive) -> ConfResult<Regex> {
    let caseless = match rule.arg(0) {
        b"~" => false,
        b"~*" => true,
        _ => return Err(rule.bad(0, "invalid parameter").hint("write ~ or ~*".to_string())),
    };
    let options = RegexOptions { caseless, ..RegexOptions::default() };
    Regex::new(rule.arg(1), options).map_err(|e| rule.bad(1, e.to_string()))
}

/// A text in which `\x` and two digits stand for a byte.
fn unescaped(rule: &Directive) -> ConfResult<Vec<u8>> {
    let text = rule.arg(0);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|w| w == b"\\x") {
        let digits = rest.get(at + 2..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        let Some(byte) = byte else {
            return Err(rule.bad(0, "invalid \\x: two hexadecimal digits are to follow"));
        };
        out.extend_from_slice(&rest[..at]);
        out.push(byte);
        rest = &rest[at + 4..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

fn build(b: &mut Build) -> ConfResult {
    let mut made = Vec::new();
    for (server, slots) in b.servers.iter().enumerate() {
        let conf = slots.get::<HealthSrv>();
        if let Some(declared) = &conf.check {
            let check = check(b.main, slots, server, declared).map_err(|e| e.at(declared.at))?;
            made.push(Arc::new(Check { timeout_ms: *conf.timeout_ms, ..check }));
        }
    }
    b.main.get_mut::<HealthMain>().checks = made;
    Ok(())
}

fn check(main: &mut Slots, slots: &Slots, server: usize, declared: &Declared) -> ConfResult<Check> {
    let Some(upstream) = proxy::upstream_of(slots) else {
        let hint = "write it into a server with proxy_pass to an upstream, without variables";
        let e = Diagnostic::emerg("\"health_check\" has no upstream here".to_string());
        return Err(e.hint(hint.to_string()));
    };
    let matches = &main.get::<HealthMain>().matches;
    let title = lossy(&declared.wanted);
    let wanted = match declared.wanted.is_empty() {
        true => None,
        false => Some(matches.get(&declared.wanted).cloned().ok_or_else(|| {
            let hint = format!("add match {title} {{ … }} to stream");
            Diagnostic::emerg(format!("unknown match \"{title}\"")).hint(hint)
        })?),
    };
    let rule = declared.rule.clone();
    let upstreams = main.get_mut::<UpstreamMain>();
    let board = Board::of_zone(upstreams, upstream, Context::STREAM, title, rule)?;
    let (port, udp) = (declared.port, declared.udp);
    Ok(Check { board, server, wanted, port, udp, timeout_ms: 0 })
}
