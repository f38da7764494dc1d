//! Backends: what every protocol that a request can be passed on by has in common. Configuration,
//! the tries, the exchange with a server, the relay of its answer and the cache's hook are here;
//! a [`Family`] (`proxy`, `fastcgi`, …) adds its request writer, the way its answers are read, its
//! own rows and variables.
//!
//! Towards the rest an answer is always a head in text and the body's own bytes: what a protocol
//! wraps around them is taken off by the link's decoder, where they are read.

use crate::conf::{self, BackendConf, BackendLoc};
use crate::kept;
use crate::run::{self, Ask};
use crate::target::Schemes;
use std::rc::Rc;
use weir_core::LocalFuture;
use weir_http::generation::LocationConf;
use weir_http::{Flow, HttpModule, Request};
use weir_module::{Row, SlotVtable};
use weir_wire::http1::response::ResponseParser;

/// Finds a family's configuration in a location.
pub type ConfOf = fn(&LocationConf) -> &BackendLoc;

/// How an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Http,
    /// HTTP/2, and the request's body goes on while the answer comes.
    Grpc,
    /// Records, and in them what CGI programs answer with.
    Fastcgi,
    /// What CGI programs answer with, as it is; the end of the connection may be the end.
    Cgi,
    Memcached,
}

impl Wire {
    /// What reads the head of an answer.
    pub fn parser(self) -> ResponseParser {
        match self {
            Wire::Http | Wire::Grpc => ResponseParser::new(),
            Wire::Fastcgi | Wire::Memcached => ResponseParser::cgi(),
            Wire::Cgi => ResponseParser::cgi_or_http(),
        }
    }
}

/// A protocol that requests are passed on by.
pub struct Family {
    /// What its directives begin with, without the underscore.
    pub name: &'static str,
    /// The same for its TLS.
    pub ssl: &'static str,
    pub wire: Wire,
    pub schemes: Schemes,
    /// Fields of answers that stay here.
    pub hidden: &'static [&'static [u8]],
    /// It has directives for buffers and temporary files.
    pub buffers: bool,
    pub conf: ConfOf,
    /// Writes the request into the exchange. Answers whether an answer to it has no body.
    pub write: fn(&mut Request, &Ask) -> Result<bool, u16>,
    /// What an answer is kept under where the configuration does not say.
    pub key: fn(&mut Request, &mut Vec<u8>),
}

pub fn conf_of<T: BackendConf>(loc: &LocationConf) -> &BackendLoc {
    loc.conf::<T>().backend()
}

/// What servers that run CGI programs say to this server alone.
pub const HIDDEN_CGI: &[&[u8]] = &[
    b"Status",
    b"X-Accel-Expires",
    b"X-Accel-Redirect",
    b"X-Accel-Limit-Rate",
    b"X-Accel-Buffering",
    b"X-Accel-Charset",
];

/// A family without a usual key.
pub fn no_key(_: &mut Request, _: &mut Vec<u8>) {}

/// A module that is a part of a family's rows.
pub const fn rows_of(name: &'static str, rows: &'static [Row]) -> HttpModule {
    HttpModule { name, rows, ..HttpModule::EMPTY }
}

/// A family's slot, merged like any other, but for what a block without a name has from the one
/// around it.
pub const fn slot<T: BackendConf>() -> SlotVtable {
    SlotVtable { merge: conf::merge_slot::<T>, ..SlotVtable::of::<T>() }
}

pub fn handler<T: BackendConf>(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    kept::at_once(r, conf_of::<T>(&loc)).unwrap_or(Flow::Wait(wait::<T>))
}

fn wait<T: BackendConf>(r: &mut Request) -> LocalFuture<'_, Flow> {
    // Made where it stays: `Box::pin` would copy all of its room there.
    let waiting = Box::write(Box::new_uninit(), run::run(r, conf_of::<T>));
    Box::into_pin(waiting)
}
