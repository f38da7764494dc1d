//! What code says of a handshake with a server that a request is passed to.

use super::ssl::Chosen;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{PROXY_SSL_CERT, PROXY_SSL_VERIFY};
use std::rc::Rc;
use weir_http::lent::Toward;
use weir_upstream::Show;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("toward_cert", PROXY_SSL_CERT, certificate),
    OpRow::any("toward_version", PROXY_SSL_CERT | PROXY_SSL_VERIFY, version),
    OpRow::any("toward_verify", PROXY_SSL_VERIFY, verify),
];

fn toward(state: &State<'_>) -> Option<Rc<Toward>> {
    state.run.toward.as_ref().map(Rc::clone)
}

/// `i`: nothing is shown (0), the chain `a` (1), or with the key `a` (2).
fn certificate(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(toward) = toward(state) else { return answer.fail("bad request") };
    let mut own = toward.own.borrow_mut();
    let own = own.get_or_insert_with(|| Box::<Chosen>::default());
    let Some(chosen) = own.downcast_mut::<Chosen>() else { return answer.fail("bad ssl conn") };
    let done = match args.i {
        0 => {
            *chosen = Chosen::default();
            Ok(())
        }
        1 => chosen.add_chain(args.a),
        _ => chosen.add_key(args.a),
    };
    if let Err(why) = done {
        return answer.fail(why);
    }
    let first = chosen.pairs().into_iter().next();
    toward.show.replace(first.map_or(Show::Nothing, Show::This));
    code::TRUE
}

fn version(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    match toward(state).and_then(|toward| toward.version) {
        Some(version) => answer.number(f64::from(version)),
        None => answer.fail(
            "the version is not known before the handshake: proxy_ssl_protocols leaves several",
        ),
    }
}

/// `i`: what is thought of the server's certificate (0), what is to be thought of it, `x` (1), or the chain itself (2).
fn verify(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(toward) = toward(state) else { return answer.fail("bad request") };
    match args.i {
        0 => answer.number(f64::from(toward.verdict.get())),
        1 => {
            toward.verdict.set(args.x.max(0.0) as u32);
            code::TRUE
        }
        _ => {
            if toward.shown.is_empty() {
                return answer.fail("get verify result failed");
            }
            toward.shown.iter().for_each(|c| answer.text.extend_from_slice(c));
            code::TEXT
        }
    }
}
