//! `pass` (nginx's `ngx_stream_pass_module`): the connection goes to another socket of this server, as
//! if it had been accepted there.

use crate::conf::StreamSrv;
use crate::module::StreamModule;
use crate::serve::{ERROR, OK};
use crate::Session;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_base::addr::{Endpoint, EndpointOptions, Host};
use weir_core::logger::LogLevel;
use weir_core::registry::template;
use weir_core::{LocalFuture, Session as _};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
};
use weir_runtime::listen::{parse_endpoint, ListenAddr};
use weir_script::template::Template;

/// One connection is passed on at most so often.
const PASSES_MAX: u32 = 10;

#[derive(Clone)]
enum To {
    Fixed(ListenAddr),
    Vars(Arc<Template>),
}

#[derive(Default)]
struct PassSrv {
    to: Option<To>,
}

impl ConfType for PassSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

/// `pass`: the whole connection goes to another socket of the process.
pub const MODULE: StreamModule = StreamModule {
    rows: &[Row::new(
        "pass",
        Context::STREAM_SERVER,
        Arity::ONE,
        "",
        "Hands the connection to another of the server's own sockets.",
        set_pass,
    )],
    slots: &[SlotVtable::of::<PassSrv>()],
    ..StreamModule::EMPTY
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    if cf.get::<PassSrv>().to.is_some() {
        return Err(d.error("is duplicate"));
    }
    let text = d.arg(0);
    let to = match text.contains(&b'$') {
        true => To::Vars(Arc::new(template::<Session>(cf, d, 0)?)),
        false => {
            let shown = String::from_utf8_lossy(text).into_owned();
            let url = parse_endpoint(text, EndpointOptions { listen: false, uri_part: false })
                .map_err(|e| d.bad(0, format!("{e} in \"{shown}\" of the \"pass\" directive")))?;
            if url.port.is_none() && !matches!(url.host, Host::Unix(_)) {
                return Err(d.bad(0, format!("no port in \"{shown}\" of the \"pass\" directive")));
            }
            let addr = addr_of(&url)
                .or_else(|| looked_up(&url))
                .ok_or_else(|| d.bad(0, format!("host not found in \"{shown}\"")))?;
            To::Fixed(addr)
        }
    };
    cf.get::<PassSrv>().to = Some(to);
    cf.get::<StreamSrv>().content = Some(content);
    Ok(())
}

/// An address that is written as one.
fn addr_of(url: &Endpoint) -> Option<ListenAddr> {
    let port = url.port.unwrap_or(0);
    match url.host {
        Host::V4(ip) => Some(ListenAddr::Ip(SocketAddr::new(ip.into(), port))),
        Host::V6(ip) => Some(ListenAddr::Ip(SocketAddr::new(ip.into(), port))),
        Host::Unix(path) => Some(ListenAddr::Unix(weir_runtime::paths::path(path).into_owned())),
        Host::Any | Host::Name(_) => None,
    }
}

fn looked_up(url: &Endpoint) -> Option<ListenAddr> {
    use std::net::ToSocketAddrs;
    let name = String::from_utf8_lossy(url.host_text).into_owned();
    let mut found = (name.as_str(), url.port.unwrap_or(0)).to_socket_addrs().ok()?;
    found.next().map(ListenAddr::Ip)
}

fn content(s: &mut Session) -> LocalFuture<'_, u16> {
    Box::pin(std::future::ready(pass(s)))
}

fn pass(s: &mut Session) -> u16 {
    s.doing = "passing connection to port";
    if s.conn().is_udp() {
        s.log(LogLevel::Error, "cannot pass udp connection");
        return ERROR;
    }
    if !s.buf.is_empty() {
        s.log(LogLevel::Error, "cannot pass connection with preread data");
        return ERROR;
    }
    let to = match &s.server().conf::<PassSrv>().to {
        Some(To::Fixed(addr)) => addr.clone(),
        Some(To::Vars(template)) => {
            let template = Arc::clone(template);
            let text = s.eval(&template);
            match evaluated(s, &text) {
                Some(addr) => addr,
                None => return ERROR,
            }
        }
        None => return ERROR,
    };
    if s.passes >= PASSES_MAX {
        s.log(LogLevel::Error, "stream pass cycle");
        return ERROR;
    }
    let listens = &s.gen().core.listens;
    // The socket of all addresses stands in for one that is not listened on by itself.
    let found = listens.place(&to).or_else(|| listens.place(&to.wildcard()));
    match found {
        Some(at) => {
            s.pass_to = Some(Box::new((at, to)));
            OK
        }
        None => {
            s.log(LogLevel::Error, &format!("port not found for \"{to}\""));
            OK
        }
    }
}

fn evaluated(s: &Session, text: &[u8]) -> Option<ListenAddr> {
    let shown = String::from_utf8_lossy(text);
    let url = match parse_endpoint(text, EndpointOptions { listen: false, uri_part: false }) {
        Ok(url) => url,
        Err(e) => {
            s.log(LogLevel::Error, &format!("{e} in pass \"{shown}\""));
            return None;
        }
    };
    let Some(addr) = addr_of(&url) else {
        s.log(LogLevel::Error, &format!("no addresses in pass \"{shown}\""));
        return None;
    };
    if url.port.is_none() && matches!(addr, ListenAddr::Ip(_)) {
        s.log(LogLevel::Error, &format!("no port in pass \"{shown}\""));
        return None;
    }
    Some(addr)
}
