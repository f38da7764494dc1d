//! The variables of `proxy_connect`, and what a configuration says by them.

use super::place::ConnectLoc;
use crate::conf::BackendLoc;
use weir_base::units;
use weir_core::common::{number, push_seconds, some};
use weir_core::variables::{VarArg, Variable};
use weir_core::Session;
use weir_http::Request;
use weir_wire::http1::request::Method;

/// Of one request.
#[derive(Default)]
pub(super) struct Said {
    connect_ms: Option<u64>,
    data_ms: Option<u64>,
    pub(super) response: Option<Vec<u8>>,
    /// It is a CONNECT that was let through.
    pub(super) works: bool,
    pub(super) resolved_ms: Option<u64>,
}

impl Said {
    /// How long to wait for the connection, and for either side to say something, if that is said here.
    pub(super) fn waits(&self, conf: &BackendLoc) -> Option<(u64, u64)> {
        let is_said = self.connect_ms.is_some() || self.data_ms.is_some();
        is_said.then(|| {
            let connect_ms = self.connect_ms.unwrap_or(*conf.connect_timeout);
            (connect_ms, self.data_ms.unwrap_or(*conf.read_timeout))
        })
    }
}

/// What is kept with a request.
pub(super) trait Keeps {
    fn said(&mut self) -> Option<&mut Said>;
    fn keep_said(&mut self, change: impl FnOnce(&mut Said));
}

impl Keeps for Request {
    fn said(&mut self) -> Option<&mut Said> {
        self.kept::<Said>()
    }

    fn keep_said(&mut self, change: impl FnOnce(&mut Said)) {
        if self.kept::<Said>().is_none() {
            self.keep_state(Said::default());
        }
        if let Some(said) = self.kept::<Said>() {
            change(said);
        }
    }
}

type Var = Variable<Request>;

pub(super) const VARIABLES: &[Var] = &[
    Var::new("connect_host", |r, _, out| {
        let host = r.host().to_vec();
        r.method == Method::Connect && some(out, &host)
    })
    .weak(),
    Var::new("connect_port", |r, _, out| {
        r.method == Method::Connect && r.var_named(b"request_port", out)
    })
    .weak(),
    Var::new("connect_addr", |r, _, out| {
        let peer = r.upstream.last().map(|state| state.peer.clone());
        r.method == Method::Connect && peer.is_some_and(|peer| some(out, &peer))
    })
    .weak(),
    Var::new("proxy_connect_connect_timeout", |r, _, out| {
        let said = r.said().and_then(|said| said.connect_ms);
        number(out, said.unwrap_or_else(|| own(r, |conf| *conf.connect_timeout)))
    })
    .settable(|r, _, value| {
        let ms = units::parse_msec(value);
        r.keep_said(|said| said.connect_ms = ms);
    }),
    Var::new("proxy_connect_data_timeout", data_timeout).settable(set_data_timeout),
    Var::new("proxy_connect_read_timeout", data_timeout).settable(set_data_timeout),
    Var::new("proxy_connect_send_timeout", |_, _, _| false).settable(|_, _, _| {}),
    Var::new("proxy_connect_response", |r, _, out| {
        let said = r.said().and_then(|said| said.response.clone());
        let own = r.loc().conf::<ConnectLoc>().response.clone();
        match (said, own.as_ref()) {
            (Some(text), _) => some(out, &text),
            (None, Some(text)) => {
                r.eval_into(text, out);
                true
            }
            (None, None) => false,
        }
    })
    .settable(|r, _, value| {
        let text = value.to_vec();
        r.keep_said(|said| said.response = Some(text));
    }),
    Var::new("proxy_connect_resolve_time", |r, _, out| {
        let Some(said) = r.said().filter(|said| said.works) else { return true };
        time(said.resolved_ms, out)
    }),
    Var::new("proxy_connect_connect_time", |r, _, out| {
        let ms = r.upstream.last().and_then(|state| state.connect_us).map(|us| us / 1000);
        match r.said().is_some_and(|said| said.works) {
            true => time(ms, out),
            false => true,
        }
    }),
];

fn own(r: &Request, of: fn(&BackendLoc) -> u64) -> u64 {
    of(crate::conf::conf_of::<ConnectLoc>(r.loc()))
}

fn data_timeout(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let said = r.said().and_then(|said| said.data_ms);
    number(out, said.unwrap_or_else(|| own(r, |conf| *conf.read_timeout)))
}

fn set_data_timeout(r: &mut Request, _: &VarArg, value: &[u8]) {
    let ms = units::parse_msec(value);
    r.keep_said(|said| said.data_ms = ms);
}

/// In seconds; a dash where it has not come to that.
fn time(ms: Option<u64>, out: &mut Vec<u8>) -> bool {
    match ms {
        Some(ms) => push_seconds(out, ms),
        None => out.push(b'-'),
    }
    true
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// Behind the version.
    pub(super) line: &'a [u8],
    pub(super) fields: Vec<(&'a [u8], &'a [u8])>,
}

/// Reads one that says 200.
pub(super) fn head(text: &[u8]) -> Option<Head<'_>> {
    let mut lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end);
    let first = lines.next()?;
    let line = first.strip_prefix(b"HTTP/1.1 ").or_else(|| first.strip_prefix(b"HTTP/1.0 "))?;
    let is_good = line.starts_with(b"200") && matches!(line.get(3), None | Some(b' '));
    let fields = lines.take_while(|line| !line.is_empty()).map(|line| {
        let (name, value) = weir_base::bytes::split_once(line, b':')?;
        let is_name = |b: &u8| b.is_ascii_graphic();
        (!name.is_empty() && name.iter().all(is_name)).then(|| (name, value.trim_ascii()))
    });
    let fields: Option<Vec<_>> = fields.collect();
    fields.filter(|_| is_good).map(|fields| Head { line, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let text = b"HTTP/1.1 200 Fine\r\nA: 1\r\nB:2\r\n\r\nrest: x";
        let fields = vec![(&b"A"[..], &b"1"[..]), (b"B", b"2")];
        assert_eq!(head(text), Some(Head { line: b"200 Fine", fields }));
        assert_eq!(head(b"HTTP/1.0 200\n"), Some(Head { line: b"200", fields: vec![] }));
        for bad in
            ["", "200 OK", "HTTP/1.1 404 x\r\n", "HTTP/1.1 2000 x", "HTTP/1.1 200 x\r\nA b\r\n"]
        {
            assert_eq!(head(bad.as_bytes()), None, "{bad}");
        }
    }
}
