//! What happens before its time: a request's body read before the phases
//! (`client_body_early_read`), and a server's hints passed on before its answer (`early_hints`,
//! RFC 8297). Both have conditions: texts of which one must be neither empty nor `0`.

use crate::body::{self, BodyError};
use crate::client::answer;
use crate::conf::{Conditions, CoreLoc, CoreSrv};
use crate::flow::Flow;
use crate::request::Request;
use crate::vars::template;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_module::{Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_script::template::Template;
use weir_wire::http1::request::Version;

pub(crate) const ROWS: &[Row] = &[
    Row::new(
        "early_hints",
        Context::HSL,
        Arity::ONE_MORE,
        "",
        "When a server's 103 answers are passed to the client.",
        |cf, d| {
            let more = conditions(cf, d)?;
            add(&mut cf.get::<CoreLoc>().early_hints, more);
            Ok(())
        },
    ),
    Row::new(
        "client_body_early_read",
        Context::HS,
        Arity::ONE_MORE,
        "",
        "When a request's body is read before anything is done with the request.",
        |cf, d| {
            let more = conditions(cf, d)?;
            add(&mut cf.get::<CoreSrv>().client_body_early_read, more);
            Ok(())
        },
    ),
];

fn conditions(cf: &mut Cf, d: &Directive) -> ConfResult<Vec<Template>> {
    (0..d.args.len()).map(|i| template(cf, d, i)).collect()
}

/// Given more than once, the directive has all conditions.
fn add(list: &mut Val<Conditions>, more: Vec<Template>) {
    if !list.is_set() {
        list.set(Conditions::default());
    }
    if let Some(list) = list.as_mut().and_then(Arc::get_mut) {
        list.extend(more);
    }
}

fn any(r: &mut Request, list: &[Template]) -> bool {
    list.iter().any(|t| r.is_true(t))
}

/// Reads the body at once where the server wants that; a flow ends the request.
pub(crate) async fn read_body(r: &mut Request) -> Option<Flow> {
    let server = Rc::clone(r.server());
    if r.body.is_none() || !any(r, &server.core.client_body_early_read) {
        return None;
    }
    let max = *r.loc().core.client_max_body_size;
    if let Some(n) = r.body.announced().filter(|n| max != 0 && *n > max) {
        r.log(LogLevel::Error, &format!("client intended to send too large body: {n} bytes"));
        body::refuse(r);
        return Some(Flow::Status(413));
    }
    match body::read_all(r).await {
        Ok(()) => None,
        Err(BodyError::Status(s)) => Some(Flow::Status(s)),
        Err(BodyError::Closed) => Some(Flow::Status(499)),
    }
}

/// Whether the client gets hints.
pub fn wants_hints(r: &mut Request) -> bool {
    let loc = Rc::clone(r.loc());
    r.version() >= Version::HTTP_11
        && !r.flags.header_sent
        && !r.is_part()
        && any(r, &loc.core.early_hints)
}

/// Sends hints ahead of the answer, as far as the client takes them at once.
pub fn send_hints(r: &Request, fields: &[u8]) {
    if !fields.is_empty() {
        answer::send_hints(r, fields);
    }
}
