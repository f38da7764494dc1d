//! `ngx.ocsp`: questions to OCSP responders and their answers, which code brings there and back.
//!
//! Difference from OpenResty: an answer must be signed by the issuer or by who has the issuer's leave; there any
//! certificate that comes with the answer will do.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::ANY;
use weir_runtime::clock;
use weir_tls::ocsp::{self, Asked, Status};
use weir_tls::server::algorithms;
use weir_tls::x509::Cert;

pub(super) const OPS: &[OpRow] = &[OpRow::any("ocsp", ANY, ocsp)];

/// A certificate and its issuer's, which is the next in the chain.
fn pair(chain: &[u8]) -> Result<(Cert<'_>, Cert<'_>), &'static str> {
    let cert = Cert::parse(chain).ok_or("d2i_X509_bio() failed")?;
    let rest = chain.get(cert.whole.len()..).unwrap_or_default();
    if rest.is_empty() {
        return Err("no issuer certificate in chain");
    }
    let issuer = Cert::parse(rest).ok_or("d2i_X509_bio() failed")?;
    Ok((cert, issuer))
}

/// `i`: the responder of the chain `a` (0), the question about it (1), or what the answer `a` says of the chain `b` (2).
fn ocsp(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if args.i == 2 {
        return validate(args, answer);
    }
    let first = Cert::parse(args.a);
    if args.i == 0 && first.as_ref().is_some_and(|c| c.ocsp_responder().is_none()) {
        return code::NIL;
    }
    let (cert, issuer) = match pair(args.a) {
        Ok(pair) => pair,
        Err(why) => return answer.fail(why),
    };
    if args.i == 1 {
        return answer.text(&ocsp::question(&cert, &issuer));
    }
    if issuer.subject != cert.issuer {
        return answer.fail("issuer certificate not next to leaf");
    }
    match cert.ocsp_responder() {
        Some(responder) => answer.text(responder.as_bytes()),
        None => code::NIL,
    }
}

fn validate(args: &Args<'_>, answer: &mut Answer) -> i32 {
    let (cert, issuer) = match pair(args.b) {
        Ok(pair) => pair,
        Err(why) => return answer.fail(why),
    };
    let asked = Asked { cert: &cert, issuer: &issuer, others: &[], verify_signer: true };
    match ocsp::judge(args.a, &asked, clock::wall_secs(), &algorithms()) {
        Err(e) => {
            let text = e.text();
            answer.fail(text.split(" (SSL:").next().unwrap_or_default())
        }
        Ok(said) if said.status != Status::Good => {
            let shown = said.status.text();
            answer.fail(format!("certificate status \"{shown}\" in the OCSP response"))
        }
        Ok(said) => match said.next_update {
            Some(next) => answer.number(next as f64),
            None => code::TRUE,
        },
    }
}
