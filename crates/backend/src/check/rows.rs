//! The directives of `check`, read and built.

use super::status::{self, StatusLoc};
use super::{ask, Check, CheckMain, Declared, How, Kind};
use std::sync::Arc;
use weir_base::units;
use weir_http::build::Build;
use weir_http::conf::CoreLoc;
use weir_http::HttpModule;
use weir_module::{
    ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row, SlotVtable,
};
use weir_upstream::health::{Board, Rule};
use weir_upstream::UpstreamMain;
use weir_wire::fastcgi;

const UPSTREAM: Context = Context::UPSTREAM;

const ROWS: &[Row] = &[
    Row::new(
        "check",
        UPSTREAM,
        Arity::ONE_MORE,
        "",
        "Servers are asked again and again whether they are well: interval, rise, fall, timeout, default_down, \
         type, port.",
        set_check,
    )
    .note(
        "It is Tengine's. The interval runs from one answer to the next question, and servers of such an upstream \
         are counted for all workers together without a zone too. Each upstream checks its own servers, which is \
         what unique=false says.",
    ),
    Row::new(
        "check_keepalive_requests",
        UPSTREAM,
        Arity::ONE,
        "1",
        "Questions that a connection carries.",
        |cf, d| {
            declared(cf).requests = Some(d.num(0)?).filter(|n| *n > 0).ok_or_else(|| d.invalid(0))?;
            Ok(())
        },
    )
    .note(TENGINE),
    Row::new(
        "check_http_send",
        UPSTREAM,
        Arity::ONE,
        "\"GET / HTTP/1.0\\r\\n\\r\\n\"",
        "What servers are sent with type=http.",
        |cf, d| {
            declared(cf).send = d.arg(0).to_vec();
            Ok(())
        },
    )
    .note(TENGINE),
    Row::new(
        "check_http_expect_alive",
        UPSTREAM,
        Arity::ONE_MORE,
        "http_2xx http_3xx",
        "The statuses of servers that are well.",
        set_alive,
    )
    .note(TENGINE),
    Row::new(
        "check_fastcgi_param",
        UPSTREAM,
        Arity::TWO,
        "",
        "A parameter of questions with type=fastcgi.",
        |cf, d| {
            let (name, value) = (d.arg(0).to_vec(), d.arg(1).to_vec());
            let params = &mut declared(cf).params;
            params.retain(|(n, _)| *n != name);
            params.push((name, value));
            Ok(())
        },
    )
    .note("It is Tengine's. Without it REQUEST_METHOD is GET, REQUEST_URI / and SCRIPT_FILENAME index.php; one \
           of these that is not named keeps its value."),
    Row::new(
        "check_shm_size",
        Context::HTTP,
        Arity::ONE,
        "1m",
        "The memory for what is found out.",
        |_, d| d.size(0).map(drop),
    )
    .note("It is Tengine's. The size is checked and not needed: what is found out takes a few bytes for each server."),
    Row::new(
        "check_status",
        Context::SERVER.or(Context::LOCATION),
        Arity::NONE_ONE,
        "html",
        "Shows what was found out: html, csv, json or prometheus.",
        set_status,
    )
    .note("It is Tengine's. Requests may say format= and status=up or status=down."),
];

const TENGINE: &str = "It is Tengine's.";

/// `check` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<CheckMain>(), SlotVtable::of::<StatusLoc>()],
    build: Some(build),
    start: Some(|_, http| {
        http.main.get::<CheckMain>().checks.iter().for_each(|check| check.board.open());
    }),
    serves: Some(ask::serves),
    ..HttpModule::EMPTY
};

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Of the upstream that is read.
fn declared(cf: &mut Cf) -> &mut Declared {
    let at = cf.get::<UpstreamMain>().current_ref();
    let all = &mut cf.get::<CheckMain>().declared;
    &mut all.entry(at.number()).or_insert_with(|| (at, Declared::default())).1
}

fn set_check(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut how = How {
        kind: Kind::Tcp,
        rule: Rule {
            interval_ms: 30_000,
            jitter_ms: 0,
            fails: 5,
            passes: 2,
            starts_down: true,
            forgets: false,
        },
        timeout_ms: 1000,
        port: None,
    };
    for i in 0..d.args.len() {
        set_parameter(&mut how, d, i)?;
    }
    cf.get::<UpstreamMain>().share_state();
    match declared(cf).how.replace(how) {
        None => Ok(()),
        Some(_) => Err(d.error("is duplicate")),
    }
}

fn set_parameter(how: &mut How, d: &Directive, i: usize) -> ConfResult {
    let bad = || d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
    let number = |v: &[u8]| {
        let found = units::parse_int(v).filter(|n| *n > 0);
        found.ok_or_else(|| {
            bad().hint("it is a number above 0, of milliseconds where it is a time".into())
        })
    };
    let count = |v: &[u8]| number(v).and_then(|n| u32::try_from(n).map_err(|_| bad()));
    if let Some(v) = d.keyed(i, "interval") {
        how.rule.interval_ms = number(v)?;
    } else if let Some(v) = d.keyed(i, "timeout") {
        how.timeout_ms = number(v)?;
    } else if let Some(v) = d.keyed(i, "rise") {
        how.rule.passes = count(v)?;
    } else if let Some(v) = d.keyed(i, "fall") {
        how.rule.fails = count(v)?;
    } else if let Some(v) = d.keyed(i, "default_down") {
        how.rule.starts_down = match v {
            b"true" => true,
            b"false" => false,
            _ => return Err(bad()),
        };
    } else if let Some(v) = d.keyed(i, "port") {
        let port = units::parse_int(v).and_then(|n| u16::try_from(n).ok()).ok_or_else(bad)?;
        how.port = Some(port).filter(|n| *n > 0);
    } else if let Some(v) = d.keyed(i, "type") {
        let found = Kind::NAMES.iter().find(|(name, _)| name.as_bytes() == v);
        how.kind = found.map(|(_, kind)| *kind).ok_or_else(|| {
            let hint = "the types are tcp, http, ssl_hello, mysql, ajp and fastcgi".to_string();
            bad().hint(hint)
        })?;
    } else if let Some(v) = d.keyed(i, "unique") {
        if v != b"false" {
            let hint = "each upstream checks its own servers; remove the parameter".to_string();
            return Err(bad().hint(hint));
        }
    } else {
        let hint = "the parameters are interval=, timeout=, rise=, fall=, default_down=true|false, port= and type=";
        return Err(bad().hint(hint.into()));
    }
    Ok(())
}

fn set_alive(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut alive = Vec::new();
    for i in 0..d.args.len() {
        let class = match d.arg(i) {
            [b'h', b't', b't', b'p', b'_', n @ b'1'..=b'5', b'x', b'x'] => u16::from(n - b'0'),
            _ => return Err(d.invalid(i)),
        };
        alive.push(class);
    }
    declared(cf).alive = alive;
    Ok(())
}

fn set_status(cf: &mut Cf, d: &Directive) -> ConfResult {
    let format = match d.args.is_empty() {
        true => status::Format::Html,
        false => d.choice(0, &status::FORMATS)?,
    };
    cf.get::<StatusLoc>().format.once(d, format)?;
    cf.get::<CoreLoc>().handler = Some(status::handler);
    Ok(())
}

fn build(b: &mut Build) -> ConfResult {
    let all = std::mem::take(&mut b.main.get_mut::<CheckMain>().declared);
    let mut checks = Vec::new();
    for (upstream, declared) in all.into_values() {
        let Some(how) = declared.how.clone() else { continue };
        let send = what_is_sent(&how, &declared)?;
        let rule = how.rule.clone();
        let upstreams = b.main.get_mut::<UpstreamMain>();
        let made = Board::new(upstreams, upstream, Context::HTTP, None, rule);
        let Some(board) = made else { continue };
        let Declared { alive, requests, .. } = declared;
        checks.push(Arc::new(Check { board, how, send, alive, requests }));
    }
    b.main.get_mut::<CheckMain>().checks = checks;
    Ok(())
}

fn what_is_sent(how: &How, declared: &Declared) -> ConfResult<Vec<u8>> {
    Ok(match how.kind {
        Kind::Tcp | Kind::Mysql => Vec::new(),
        Kind::Http => declared.send.clone(),
        Kind::SslHello => ask::hello(),
        Kind::Ajp => ask::AJP_PING.to_vec(),
        Kind::Fastcgi => {
            let mut out = Vec::new();
            let mut writer = fastcgi::RequestWriter::new(&mut out, false);
            declared.params.iter().for_each(|(name, value)| writer.param(name, &[value]));
            let written = writer.finish();
            written
                .map_err(|_| Diagnostic::emerg("too long \"check_fastcgi_param\"".to_string()))?;
            fastcgi::write_stdin_end(&mut out);
            out
        }
    })
}
