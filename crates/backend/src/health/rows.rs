//! The directives `health_check` and `match`, read and built.

use super::{ask, grpc, matching::Match, Check, Declared, Grpc, HealthLoc, HealthMain, Question};
use crate::conf::{conf_of, BackendConf, ConfOf};
use crate::families::fastcgi::FastcgiLoc;
use crate::families::grpc::GrpcLoc;
use crate::families::memcached::MemcachedLoc;
use crate::families::proxy::conf::ProxyLoc;
use crate::families::scgi::ScgiLoc;
use crate::families::uwsgi::UwsgiLoc;
use crate::target::{Fixed, Pass};
use std::sync::Arc;
use weir_base::units;
use weir_http::build::Build;
use weir_http::HttpModule;
use weir_module::{
    ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row, SlotVtable, Slots,
};
use weir_upstream::health::{Board, Rule};
use weir_upstream::UpstreamMain;

const PLUS: &str = "In nginx it is part of the commercial version.";

const ROWS: &[Row] = &[
    Row::new(
        "health_check",
        Context::LOCATION,
        Arity::ANY,
        "",
        "Servers of the upstream are asked again and again whether they are well.",
        |cf, d| {
            let declared = read(d)?;
            cf.get::<HealthLoc>().checks.push(declared);
            Ok(())
        },
    )
    .note(
        "In nginx it is part of the commercial version. The interval runs from one answer to the next question. \
         A server found unhealthy stays so over a reload without mandatory too; with mandatory and without \
         persistent all begin anew. uri is sent as it is, whatever URI proxy_pass has. Of a body no more than \
         256k are looked at, and it has to come within proxy_read_timeout as a whole.",
    ),
    Row::block(
        "match",
        Context::HTTP,
        Arity::ONE,
        "What an answer of a healthy server looks like: status, header, body, require.",
        set_match,
    )
    .note(PLUS),
];

/// `health_check` and `match`.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<HealthLoc>(), SlotVtable::of::<HealthMain>()],
    build: Some(build),
    start: Some(|_, http| {
        http.main.get::<HealthMain>().checks.iter().for_each(|check| check.board.open());
    }),
    serves: Some(ask::serves),
    ..HttpModule::EMPTY
};

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn set_match(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0);
    if name.is_empty() {
        return Err(d.bad(0, "invalid match name \"\""));
    }
    let read = Arc::new(Match::read(cf, d)?);
    match cf.get::<HealthMain>().matches.insert(name.to_vec(), read) {
        None => Ok(()),
        Some(_) => Err(d.fail(format!("duplicate match \"{}\"", lossy(name)))),
    }
}

/// What a directive may say; each at most once, the later one counts.
fn read(d: &Directive) -> ConfResult<Declared> {
    let (mut mandatory, mut persistent, mut is_grpc) = (false, false, false);
    let mut asked = Grpc::default();
    let mut declared = Declared {
        question: Question { uri: b"/".to_vec(), grpc: None, port: None, keepalive_ms: 0 },
        rule: Rule {
            interval_ms: 5000,
            jitter_ms: 0,
            fails: 1,
            passes: 1,
            starts_down: false,
            forgets: false,
        },
        wanted: Vec::new(),
        at: d.position(),
    };
    for i in 0..d.args.len() {
        match d.arg(i) {
            b"mandatory" => mandatory = true,
            b"persistent" => persistent = true,
            _ if of_grpc(d, i, &mut is_grpc, &mut asked)? => {}
            _ if weir_upstream::health::read_rule(d, i, &mut declared.rule)? => {}
            _ => of_question(d, i, &mut declared)?,
        }
    }
    if persistent && !mandatory {
        return Err(d.error("has \"persistent\" without \"mandatory\""));
    }
    let is_grpc_only = !asked.service.is_empty() || asked.status.is_some();
    if is_grpc_only && !is_grpc {
        let hint = "add type=grpc".to_string();
        return Err(d.error("has parameters of gRPC without \"type=grpc\"").hint(hint));
    }
    if is_grpc {
        if declared.question.uri != b"/" || !declared.wanted.is_empty() {
            let hint = "with type=grpc, health is asked for by gRPC's own protocol".to_string();
            return Err(d.error("has \"uri\" or \"match\" with \"type=grpc\"").hint(hint));
        }
        declared.question.grpc = Some(asked);
    }
    declared.rule.starts_down = mandatory;
    declared.rule.forgets = mandatory && !persistent;
    Ok(declared)
}

fn invalid(d: &Directive, i: usize) -> Diagnostic {
    d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))))
}

fn of_grpc(d: &Directive, i: usize, is_grpc: &mut bool, asked: &mut Grpc) -> ConfResult<bool> {
    if let Some(v) = d.keyed(i, "type") {
        *is_grpc = match v {
            b"grpc" => true,
            b"http" => false,
            _ => return Err(invalid(d, i)),
        };
    } else if let Some(v) = d.keyed(i, "grpc_service") {
        if v.is_empty() || v.len() > grpc::SERVICE_MAX_BYTES {
            return Err(invalid(d, i));
        }
        asked.service = v.to_vec();
    } else if let Some(v) = d.keyed(i, "grpc_status") {
        asked.status = Some(units::parse_int(v).ok_or_else(|| invalid(d, i))?);
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn of_question(d: &Directive, i: usize, declared: &mut Declared) -> ConfResult {
    let question = &mut declared.question;
    if let Some(v) = d.keyed(i, "uri") {
        let is_sound = v.first() == Some(&b'/') && !v.iter().any(|b| *b <= b' ' || *b == 0x7f);
        if !is_sound {
            return Err(invalid(d, i));
        }
        question.uri = v.to_vec();
    } else if let Some(v) = d.keyed(i, "port") {
        let port = units::parse_int(v).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
        question.port = Some(port.ok_or_else(|| invalid(d, i))?);
    } else if let Some(v) = d.keyed(i, "keepalive_time") {
        question.keepalive_ms = units::parse_msec(v).ok_or_else(|| invalid(d, i))?;
    } else if let Some(v) = d.keyed(i, "match") {
        declared.wanted = v.to_vec();
    } else {
        return Err(invalid(d, i));
    }
    Ok(())
}

/// A family's name, its configuration in a location, and where that passes requests on to.
type FamilyOf = (&'static str, ConfOf, fn(&Slots) -> Option<&Pass>);

/// The families whose servers can be asked.
const FAMILIES: &[FamilyOf] = &[
    ("proxy", conf_of::<ProxyLoc>, pass_of::<ProxyLoc>),
    ("grpc", conf_of::<GrpcLoc>, pass_of::<GrpcLoc>),
    ("fastcgi", conf_of::<FastcgiLoc>, pass_of::<FastcgiLoc>),
    ("uwsgi", conf_of::<UwsgiLoc>, pass_of::<UwsgiLoc>),
    ("scgi", conf_of::<ScgiLoc>, pass_of::<ScgiLoc>),
    ("memcached", conf_of::<MemcachedLoc>, pass_of::<MemcachedLoc>),
];

fn pass_of<T: BackendConf>(slots: &Slots) -> Option<&Pass> {
    slots.get::<T>().backend().pass.as_ref()
}

fn build(b: &mut Build) -> ConfResult {
    let mut made = Vec::new();
    for (location, slots) in b.locations.iter().enumerate() {
        for declared in &slots.get::<HealthLoc>().checks {
            let check = check(b.main, slots, location, declared).map_err(|e| e.at(declared.at))?;
            made.push(Arc::new(check));
        }
    }
    b.main.get_mut::<HealthMain>().checks = made;
    Ok(())
}

fn check(
    main: &mut Slots,
    slots: &Slots,
    location: usize,
    declared: &Declared,
) -> ConfResult<Check> {
    let fail = |text: String| Diagnostic::emerg(text);
    let mut families = FAMILIES.iter();
    let found = families.find_map(|(name, conf, pass)| Some((*name, *conf, pass(slots)?.clone())));
    let Some((family, conf_of, Pass::Fixed(pass))) = found else {
        let hint = "write it into a location with proxy_pass, fastcgi_pass, uwsgi_pass, scgi_pass, memcached_pass \
                    or grpc_pass to an upstream, without variables";
        return Err(
            fail("\"health_check\" has no upstream here".to_string()).hint(hint.to_string())
        );
    };
    if declared.question.grpc.is_some() && family != "grpc" {
        let hint = "write grpc_pass into the location".to_string();
        return Err(
            fail("\"health_check\" with type=grpc needs \"grpc_pass\"".to_string()).hint(hint)
        );
    }
    let wanted = match declared.wanted.is_empty() {
        true => None,
        false => Some(named(main, &declared.wanted)?),
    };
    let title = lossy(&declared.wanted);
    let board = board(main, &pass, title.clone(), declared.rule.clone())?;
    let upstream = lossy(board.upstream());
    Ok(Check {
        titles: (
            format!(", health check \"{title}\" of peer "),
            format!(" in upstream \"{upstream}\""),
        ),
        board,
        location,
        conf_of,
        pass,
        question: declared.question.clone(),
        wanted,
    })
}

fn named(main: &Slots, name: &[u8]) -> ConfResult<Arc<Match>> {
    let found = main.get::<HealthMain>().matches.get(name).cloned();
    found.ok_or_else(|| {
        let shown = lossy(name);
        let hint = format!("add match {shown} {{ … }} to http");
        Diagnostic::emerg(format!("unknown match \"{shown}\"")).hint(hint)
    })
}

fn board(main: &mut Slots, pass: &Arc<Fixed>, title: String, rule: Rule) -> ConfResult<Arc<Board>> {
    let upstreams = main.get_mut::<UpstreamMain>();
    Board::of_zone(upstreams, pass.upstream, Context::HTTP, title, rule)
}
