//! The client's address from a header that trusted proxies set (nginx's `ngx_http_realip_module`), and
//! from the PROXY protocol's (`ngx_stream_realip_module`).
//!
//! The connection shows the new address while the request lasts, and its own again afterwards.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use weir_base::addr::{parse_ipv4, parse_ipv6, Cidr};
use weir_base::bytes::fmt_u64;
use weir_base::units;
use weir_core::resolver;
use weir_core::variables::{VarArg, Variable};
use weir_core::{ClientAddr, Session};
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_mail::{Handler, MailModule};
use weir_module::{
    distinct, merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic,
    Directive, Level, Row, SlotVtable, Slots, Val,
};
use weir_stream::{self as stream, StreamModule};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum From {
    Unix,
    Net(Cidr),
    /// Resolved when the configuration is built.
    Host(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// The last field of that name; several lines of `X-Forwarded-For` are read from the end.
    Header(Vec<u8>),
    ProxyProtocol,
}

#[derive(Default)]
struct RealipLoc {
    from: Option<Vec<From>>,
    /// The same with addresses in the place of names; made when the configuration is built.
    trusted: OnceLock<Vec<From>>,
    source: Val<Source>,
    recursive: Val<bool>,
}

impl ConfType for RealipLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RealipLoc) -> ConfResult {
        if self.from.is_none() {
            self.from.clone_from(&parent.from);
        }
        merge_values!(self, parent;
            source = Source::Header(b"X-Real-IP".to_vec()),
            recursive = false,
        );
        Ok(())
    }
}

/// What there is in the block of sessions `S`.
struct Of<S>(PhantomData<S>);

impl<S: Session> Of<S> {
    const FROM: Row = Row::new(
        "set_real_ip_from",
        S::LEVELS,
        Arity::ONE,
        "",
        "A proxy that is trusted to name the client.",
        set_from,
    );
    const VARIABLES: &'static [Variable<S>] = &[
        Variable::new("realip_remote_addr", original_addr::<S>),
        Variable::new("realip_remote_port", original_port::<S>),
    ];
}

const ROWS: &[Row] = &[
    Of::<Request>::FROM,
    Row::new(
        "real_ip_header",
        Context::HSL,
        Arity::ONE,
        "X-Real-IP",
        "The header that names the client, or proxy_protocol.",
        set_header,
    ),
    Row::new(
        "real_ip_recursive",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Goes back in the header until an address is not trusted.",
        |cf, d| {
            let on = d.flag()?;
            cf.get::<RealipLoc>().recursive.once(d, on)
        },
    ),
];

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<RealipLoc>()];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: SLOTS,
    variables: Of::<Request>::VARIABLES,
    phases: &[
        PhaseHandler { phase: Phase::PostRead, handler, active },
        PhaseHandler { phase: Phase::Preaccess, handler, active },
    ],
    build: Some(|b| look_up(b.locations)),
    ..HttpModule::EMPTY
};

pub const STREAM: StreamModule = StreamModule {
    rows: &[Of::<weir_stream::Session>::FROM],
    slots: SLOTS,
    variables: Of::<weir_stream::Session>::VARIABLES,
    phases: &[stream::PhaseHandler {
        phase: stream::Phase::PostAccept,
        handler: stream_handler,
        active,
    }],
    build: Some(|b| look_up(b.servers)),
    ..StreamModule::EMPTY
};

pub const MAIL: MailModule = MailModule {
    rows: &[Of::<weir_mail::Session>::FROM],
    slots: SLOTS,
    accepted: Some(Handler { handler: |s| s.with_conf::<RealipLoc, _>(take_proxied), active }),
    build: Some(|b| look_up(b.servers)),
    ..MailModule::EMPTY
};

impl RealipLoc {
    fn trusted(&self) -> &[From] {
        self.trusted.get().map_or(&[], Vec::as_slice)
    }
}

fn set_from(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = d.arg(0);
    let from = match (text, Cidr::parse(text)) {
        (b"unix:", _) => From::Unix,
        (_, Some((net, low_bits))) => {
            if low_bits {
                let shown = String::from_utf8_lossy(text).into_owned();
                cf.warn(d, format!("low address bits of {shown} are meaningless"));
            }
            From::Net(net)
        }
        _ => From::Host(d.text(0)?.to_owned()),
    };
    cf.get::<RealipLoc>().from.get_or_insert_with(Vec::new).push(from);
    Ok(())
}

fn set_header(cf: &mut Cf, d: &Directive) -> ConfResult {
    let source = match d.arg(0) {
        b"proxy_protocol" => Source::ProxyProtocol,
        name => Source::Header(name.to_vec()),
    };
    cf.get::<RealipLoc>().source.once(d, source)
}

/// Puts addresses in the place of host names.
fn look_up(places: &[Slots]) -> ConfResult {
    let mut known: HashMap<String, Vec<From>> = HashMap::new();
    for conf in distinct::<RealipLoc>(places) {
        let Some(from) = &conf.from else { continue };
        let mut resolved = Vec::with_capacity(from.len());
        for f in from.iter() {
            let From::Host(name) = f else {
                resolved.push(f.clone());
                continue;
            };
            if !known.contains_key(name) {
                known.insert(name.clone(), resolve(name)?);
            }
            resolved.extend(known[name].iter().cloned());
        }
        // Only this function sets it.
        let _ = conf.trusted.set(resolved);
    }
    Ok(())
}

fn resolve(name: &str) -> ConfResult<Vec<From>> {
    let found = (name, 0).to_socket_addrs().map_err(|_| {
        let text = format!("host not found in set_real_ip_from \"{name}\"");
        let hint = match name.contains('/') {
            true => "a network is written ADDRESS/BITS, with at most 32 bits, or 128 for IPv6",
            false => resolver::NAME_HINT,
        };
        Diagnostic::emerg(text).hint(hint.to_string())
    })?;
    let net = |ip: IpAddr| Cidr::new(ip, if ip.is_ipv4() { 32 } else { 128 });
    Ok(found.filter_map(|a| net(a.ip())).map(|(net, _)| From::Net(net)).collect())
}

fn active(slots: &Slots) -> bool {
    slots.get::<RealipLoc>().from.is_some()
}

/// The address the request came from.
struct Replaced(ClientAddr);

fn handler(r: &mut Request) -> Flow {
    if r.kept::<Replaced>().is_none() {
        r.with_conf::<RealipLoc, _>(|r, conf| match &*conf.source {
            Source::Header(name) => {
                let is_chain = name.eq_ignore_ascii_case(b"x-forwarded-for");
                let values = r.headers().filter(|(n, _)| n.eq_ignore_ascii_case(name));
                let mut values: Vec<&[u8]> = values.map(|(_, v)| v).collect();
                if !is_chain {
                    values.truncate(1);
                }
                let trusted = conf.trusted();
                let found = forwarded(r.client(), &values, trusted, *conf.recursive);
                replace(r, found);
            }
            Source::ProxyProtocol => take_proxied(r, conf),
        });
    }
    Flow::Declined
}

fn stream_handler(s: &mut weir_stream::Session) -> stream::Flow {
    s.with_conf::<RealipLoc, _>(take_proxied);
    stream::Flow::Declined
}

/// Takes the address that the PROXY protocol's header names.
fn take_proxied<S: Session>(s: &mut S, conf: &RealipLoc) {
    let trusted = conf.trusted();
    let found = s.conn().proxied.borrow().as_ref().and_then(|p| {
        let source = [p.source.as_bytes()];
        let mut addr = forwarded(s.client(), &source, trusted, *conf.recursive)?;
        addr.set_port(p.source_port);
        Some(addr)
    });
    replace(s, found);
}

fn replace<S: Session>(s: &mut S, found: Option<SocketAddr>) {
    let Some(addr) = found else { return };
    let client = s.client();
    s.set_client(ClientAddr::Ip(addr));
    s.keep_state(Replaced(client));
}

fn is_trusted(client: &ClientAddr, trusted: &[From]) -> bool {
    trusted.iter().any(|f| match (f, client) {
        (From::Unix, ClientAddr::Unix) => true,
        (From::Net(net), ClientAddr::Ip(a)) => net.matches(a.ip()),
        _ => false,
    })
}

/// The last address that a trusted one vouches for. Lines and addresses are read from the end.
pub(crate) fn forwarded(
    client: ClientAddr,
    lines: &[&[u8]],
    trusted: &[From],
    recursive: bool,
) -> Option<SocketAddr> {
    let mut found = None;
    let mut client = client;
    for line in lines.iter().rev() {
        let mut left = *line;
        loop {
            if !is_trusted(&client, trusted) {
                return found;
            }
            let (rest, last) = split_last(left);
            let Some(addr) = parse_addr(last) else { return found };
            found = Some(addr);
            client = ClientAddr::Ip(addr);
            if !recursive {
                return found;
            }
            if rest.is_empty() {
                break;
            }
            left = rest;
        }
    }
    found
}

/// What stands before the last address of a list, and that address.
fn split_last(list: &[u8]) -> (&[u8], &[u8]) {
    let is_separator = |b: &u8| matches!(b, b' ' | b',');
    let end = list.iter().rposition(|b| !is_separator(b)).map_or(0, |at| at + 1);
    let start = list[..end].iter().rposition(is_separator).map_or(0, |at| at + 1);
    (&list[..start.saturating_sub(1)], &list[start..end])
}

/// An address with or without a port.
fn parse_addr(text: &[u8]) -> Option<SocketAddr> {
    let ip =
        |text: &[u8]| parse_ipv4(text).map(IpAddr::V4).or_else(|| parse_ipv6(text).map(IpAddr::V6));
    if let Some(ip) = ip(text) {
        return Some(SocketAddr::new(ip, 0));
    }
    let colon = text.iter().rposition(|b| *b == b':')?;
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    let host = match host.strip_prefix(b"[") {
        Some(inner) => IpAddr::V6(parse_ipv6(inner.strip_suffix(b"]")?)?),
        None => IpAddr::V4(parse_ipv4(host)?),
    };
    let port = units::parse_int(port).filter(|p| (1..=65_535).contains(p))?;
    Some(SocketAddr::new(host, port as u16))
}

fn original<S: Session>(s: &mut S) -> ClientAddr {
    let replaced = s.kept::<Replaced>().map(|k| k.0);
    replaced.unwrap_or(s.conn().client())
}

fn original_addr<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    original(s).write(out);
    true
}

fn original_port<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if let Some(port) = original(s).port().filter(|p| *p > 0) {
        fmt_u64(out, u64::from(port));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str], recursive: bool) -> String {
        let trusted = [
            From::Net(Cidr::parse(b"127.0.0.0/8").unwrap().0),
            From::Net(Cidr::parse(b"10.0.0.0/8").unwrap().0),
        ];
        let client = ClientAddr::Ip("127.0.0.1:9".parse().unwrap());
        let lines: Vec<&[u8]> = lines.iter().map(|l| l.as_bytes()).collect();
        forwarded(client, &lines, &trusted, recursive).map_or("-".into(), |a| a.to_string())
    }

    #[test]
    fn chains() {
        for (lines, recursive, expected) in [
            (&["1.2.3.4"][..], false, "1.2.3.4:0"),
            (&["1.2.3.4:80"], false, "1.2.3.4:80"),
            (&["[2001:db8::1]:80"], false, "[2001:db8::1]:80"),
            (&["2001:db8::1"], false, "[2001:db8::1]:0"),
            (&["1.1.1.1, 2.2.2.2"], false, "2.2.2.2:0"),
            (&["1.1.1.1, 10.0.0.1"], false, "10.0.0.1:0"),
            (&["1.1.1.1, 10.0.0.1"], true, "1.1.1.1:0"),
            (&["1.1.1.1, 2.2.2.2, 10.0.0.1"], true, "2.2.2.2:0"),
            (&["1.1.1.1", "10.0.0.1"], true, "1.1.1.1:0"),
            (&["1.1.1.1", "10.0.0.1"], false, "10.0.0.1:0"),
            (&["bad, 10.0.0.1"], true, "10.0.0.1:0"),
            (&["bad"], true, "-"),
            (&["1.2.3.4:0"], false, "-"),
            (&["1.2.3.4 , "], false, "1.2.3.4:0"),
            (&[""], true, "-"),
            (&[], true, "-"),
        ] {
            assert_eq!(run(lines, recursive), expected, "{lines:?}");
        }
    }

    #[test]
    fn strangers_are_not_believed() {
        let client = ClientAddr::Ip("8.8.8.8:1".parse().unwrap());
        assert_eq!(forwarded(client, &[b"1.2.3.4"], &[From::Unix], true), None);
        assert!(forwarded(ClientAddr::Unix, &[b"1.2.3.4"], &[From::Unix], true).is_some());
    }
}
