//! Cookies that tell clients apart: nginx's `ngx_http_userid_filter_module`.
//!
//! Difference from nginx: one sequence for all workers, so that no two of them can give out the
//! same number.

mod uid;

use std::rc::Rc;
use weir_core::Session;

use uid::Uid;
use weir_base::date;
use weir_core::logger::LogLevel;
use weir_http::core_vars::cookie_value;
use weir_http::generation::VarDef;
use weir_http::module::{Filter, FilterResult, HttpModule, Next, Reach, VarArg, Variable};
use weir_http::vars::registry;
use weir_http::Request;
use weir_module::first::bytes;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Val,
};
use weir_runtime::clock;
use weir_script::template::VarId;
use weir_wire::http1::names::HeaderId;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Enable {
    Off,
    /// Cookies that come are logged, none is sent.
    Log,
    V1,
    On,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expires {
    Off,
    Max,
    Secs(u64),
}

/// Bits of `userid_flags`, in the order in which they stand in the cookie.
const FLAGS: &[(&str, u32)] = &[
    ("secure", 1),
    ("httponly", 1 << 1),
    ("samesite=strict", 1 << 2),
    ("samesite=lax", 1 << 3),
    ("samesite=none", 1 << 4),
];
const NO_FLAGS: u32 = 1 << 31;

#[derive(Default)]
struct UseridMain {
    /// The number of `$uid_reset`.
    reset: Option<VarId>,
}

impl ConfType for UseridMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
struct UseridLoc {
    enable: Val<Enable>,
    service: Val<Option<u32>>,
    name: Val<Vec<u8>>,
    /// With the attribute's name, as it stands in the cookie; so is `path`.
    domain: Val<Vec<u8>>,
    path: Val<Vec<u8>>,
    expires: Val<Expires>,
    flags: Val<u32>,
    p3p: Val<Vec<u8>>,
    mark: Val<Option<u8>>,
}

impl ConfType for UseridLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &UseridLoc) -> ConfResult {
        merge_values!(self, parent;
            enable = Enable::Off,
            service = None,
            name = b"uid".to_vec(),
            domain = Vec::new(),
            path = b"; path=/".to_vec(),
            expires = Expires::Off,
            flags = NO_FLAGS,
            p3p = Vec::new(),
            mark = None,
        );
        Ok(())
    }
}

const STATES: &[(&str, Enable)] =
    &[("off", Enable::Off), ("log", Enable::Log), ("v1", Enable::V1), ("on", Enable::On)];

const ROWS: &[Row] = &[
    Row::new(
        "userid",
        Context::HSL,
        Arity::ONE,
        "off",
        "Sends clients a cookie that tells them apart: off, log, v1 or on.",
        |cf, d| {
            let v = d.choice(0, STATES)?;
            cf.get::<UseridLoc>().enable.once(d, v)
        },
    ),
    Row::new(
        "userid_service",
        Context::HSL,
        Arity::ONE,
        "the server's address",
        "The number of this server in the cookie.",
        |cf, d| {
            let v = d.num(0)? as u32;
            cf.get::<UseridLoc>().service.once(d, Some(v))
        },
    ),
    Row::new(
        "userid_name",
        Context::HSL,
        Arity::ONE,
        "uid",
        "The cookie's name.",
        set!(Cf::get::<UseridLoc>, name, bytes),
    ),
    Row::new("userid_domain", Context::HSL, Arity::ONE, "none", "The cookie's domain.", |cf, d| {
        let v = match d.arg(0) {
            b"none" => Vec::new(),
            domain => [b"; domain=", domain].concat(),
        };
        cf.get::<UseridLoc>().domain.once(d, v)
    }),
    Row::new("userid_path", Context::HSL, Arity::ONE, "/", "The cookie's path.", |cf, d| {
        let v = [b"; path=", d.arg(0)].concat();
        cf.get::<UseridLoc>().path.once(d, v)
    }),
    Row::new(
        "userid_expires",
        Context::HSL,
        Arity::ONE,
        "off",
        "How long clients keep the cookie: a time, max, or off for as long as they run.",
        |cf, d| {
            let v = match d.arg(0) {
                b"max" => Expires::Max,
                b"off" => Expires::Off,
                _ => Expires::Secs(d.sec(0)?),
            };
            cf.get::<UseridLoc>().expires.once(d, v)
        },
    ),
    Row::new(
        "userid_flags",
        Context::HSL,
        Arity::ONE_TO_THREE,
        "off",
        "Attributes of the cookie: secure, httponly, samesite=…",
        set_flags,
    ),
    Row::new(
        "userid_p3p",
        Context::HSL,
        Arity::ONE,
        "none",
        "The P3P field sent with the cookie.",
        |cf, d| {
            let v = match d.arg(0) {
                b"none" => Vec::new(),
                value => value.to_vec(),
            };
            cf.get::<UseridLoc>().p3p.once(d, v)
        },
    ),
    Row::new(
        "userid_mark",
        Context::HSL,
        Arity::ONE,
        "off",
        "A character in the cookie's padding; a cookie with another one is sent again.",
        set_mark,
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<UseridMain>(), SlotVtable::of::<UseridLoc>()],
    variables: &[Variable::new("uid_got", got_var), Variable::new("uid_set", set_var)],
    filter: Some(Filter {
        header: Some(header),
        body: None,
        active: |slots| *slots.get::<UseridLoc>().enable >= Enable::V1,
        reach: Reach::Main,
    }),
    prepare: Some(define_reset),
    ..HttpModule::EMPTY
};

fn define_reset(cf: &mut Cf) -> ConfResult {
    // Defined as `set` would, so that `set` and `map` may give it a value.
    let def = VarDef { get: reset_var, set: None, arg: VarArg::default(), cached: false };
    let id = registry(cf).define(b"uid_reset", def);
    cf.get::<UseridMain>().reset = Some(id);
    Ok(())
}

fn reset_var(_: &mut Request, _: &VarArg, _: &mut Vec<u8>) -> bool {
    true
}

fn set_flags(cf: &mut Cf, d: &Directive) -> ConfResult {
    let conf = cf.get::<UseridLoc>();
    let mut flags = conf.flags.as_option().copied().unwrap_or(0);
    let mut repeated = Vec::new();
    for i in 0..d.args.len() {
        let bit = match d.arg(i) {
            b"off" => NO_FLAGS,
            _ => d.choice(i, FLAGS)?,
        };
        if flags & bit != 0 {
            repeated.push(String::from_utf8_lossy(d.arg(i)).into_owned());
        }
        flags |= bit;
    }
    conf.flags.set(flags);
    for value in repeated {
        cf.warn(d, format!("duplicate value \"{value}\""));
    }
    Ok(())
}

fn set_mark(cf: &mut Cf, d: &Directive) -> ConfResult {
    let v = match d.arg(0) {
        b"off" => None,
        [c] if c.is_ascii_alphanumeric() || *c == b'=' => Some(*c),
        _ => return Err(d.error("value must be \"off\" or a single letter, digit or \"=\"")),
    };
    cf.get::<UseridLoc>().mark.once(d, v)
}

/// What is known of a request's client.
#[derive(Clone, Default)]
struct Client {
    /// The cookie as it came.
    cookie: Vec<u8>,
    got: Option<Uid>,
    set: Option<Uid>,
    /// `$uid_reset` asks for a new number.
    reset: bool,
}

/// The request's client; the cookie is read the first time.
fn client(r: &mut Request, conf: &UseridLoc) -> Client {
    if let Some(client) = r.ctx::<Client>() {
        return client.clone();
    }
    let client = read_cookie(r, conf);
    r.set_ctx(client.clone());
    client
}

fn read_cookie(r: &Request, conf: &UseridLoc) -> Client {
    let mut client = Client::default();
    if !r.head.has(HeaderId::Cookie) {
        return client;
    }
    let mut lines = r.head.get_all(HeaderId::Cookie).map(|f| r.bytes(f.value));
    let found = lines.find_map(|line| cookie_value(line, &conf.name).map(|value| (line, value)));
    let Some((line, value)) = found else { return client };
    client.cookie = value.to_vec();
    let problem = match Uid::decode(value) {
        Ok(uid) => {
            client.got = uid;
            return client;
        }
        Err(problem) => problem,
    };
    let shown = String::from_utf8_lossy(line);
    r.log(LogLevel::Error, &format!("client sent {problem} userid cookie \"{shown}\""));
    client
}

/// Decides whether this response sets a cookie, and which.
fn choose(r: &mut Request, conf: &UseridLoc) -> Client {
    let mut client = client(r, conf);
    if client.set.is_some() {
        return client;
    }
    if let Some(got) = client.got {
        let gen = Rc::clone(r.gen());
        let id = gen.shared.main.get::<UseridMain>().reset;
        let reset = id.and_then(|id| r.var_value(id)).unwrap_or_default();
        if !weir_core::eval::is_true(&reset) {
            let marked = |mark| matches!(client.cookie.get(22..24), Some([m, b'=']) if *m == mark);
            if conf.mark.is_some_and(|mark| !marked(mark)) {
                client.set = Some(got);
                r.set_ctx(client.clone());
            }
            return client;
        }
        client.reset = true;
        if reset == b"log" {
            let name = String::from_utf8_lossy(&conf.name);
            r.log(LogLevel::Notice, &format!("userid cookie \"{name}={got}\" was reset"));
        }
    }
    let now = clock::wall_secs() as u32;
    client.set = Some(match *conf.enable {
        Enable::V1 => Uid::new_v1(conf.service.unwrap_or(0), now),
        _ => {
            let local = r.conn().local_addr().map(|a| a.ip());
            Uid::new_v2(*conf.service, local, now)
        }
    });
    r.set_ctx(client.clone());
    client
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<UseridLoc>();
    let client = choose(r, conf);
    if let Some(uid) = client.set {
        let cookie = set_cookie(conf, &client, uid);
        r.out.add(b"Set-Cookie", &cookie);
        if !conf.p3p.is_empty() {
            r.out.add(b"P3P", &conf.p3p);
        }
    }
    next.header(r)
}

fn set_cookie(conf: &UseridLoc, client: &Client, uid: Uid) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&conf.name);
    out.push(b'=');
    match (&client.got, *conf.mark) {
        // The client's own text, with the mark put behind it.
        (Some(_), Some(mark)) if !client.reset => {
            out.extend_from_slice(&client.cookie[..22.min(client.cookie.len())]);
            out.extend_from_slice(&[mark, b'=']);
        }
        (_, mark) => out.extend_from_slice(&uid.encode(mark)),
    }
    match *conf.expires {
        Expires::Off | Expires::Secs(0) => {}
        Expires::Max => out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
        Expires::Secs(secs) => {
            out.extend_from_slice(b"; expires=");
            let end = clock::wall_secs().saturating_add_unsigned(secs);
            date::cookie_time(&mut out, end);
        }
    }
    out.extend_from_slice(&conf.domain);
    out.extend_from_slice(&conf.path);
    for (name, _) in FLAGS.iter().filter(|(_, bit)| *conf.flags & bit != 0) {
        out.extend_from_slice(b"; ");
        out.extend_from_slice(name.as_bytes());
    }
    out
}

fn got_var(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<UseridLoc>();
    if *conf.enable == Enable::Off {
        return false;
    }
    let uid = client(r, conf).got;
    push(out, &conf.name, uid)
}

fn set_var(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<UseridLoc>();
    if *conf.enable < Enable::V1 {
        return false;
    }
    let uid = choose(r, conf).set;
    push(out, &conf.name, uid)
}

fn push(out: &mut Vec<u8>, name: &[u8], uid: Option<Uid>) -> bool {
    let Some(uid) = uid else { return false };
    out.extend_from_slice(name);
    out.extend_from_slice(format!("={uid}").as_bytes());
    true
}
