//! Handshakes with servers that code has a say in (`http/lent.rs`): what is shown, and what is thought of what the
//! server shows.

use crate::attempt::Run;
use crate::fault::Fault;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::client_watch::unless_client_goes;
use weir_http::lent::{toward, Lent, Toward, TowardCode};
use weir_http::Request;
use weir_runtime::timer;
use weir_upstream::{Link, SecureError, Wanted};

/// The code of the request's location, and when it runs.
pub(crate) type Code = (TowardCode, u8);

/// Of the request's location, if there is any.
pub(crate) fn of(r: &Request) -> Option<Code> {
    let code = r.gen().shared.main.get::<Lent>().toward?;
    let moments = (code.moments)(&r.loc().slots);
    (moments & (toward::CERTIFICATE | toward::VERIFY) != 0).then_some((code, moments))
}

/// What has come of a handshake; nothing if the client has gone.
type Done = Option<Result<(), SecureError>>;

/// As [`Link::secure`], with code before and behind it.
pub(crate) async fn secure(
    r: &mut Request,
    run: &Run<'_>,
    link: &mut Link,
    wanted: &Wanted,
    (code, moments): Code,
) -> Result<Done, Fault> {
    let conf = run.conf();
    let timeout = *conf.connect_timeout;
    let refused = |why: &str| Ok(Some(Err(SecureError::Refused(why.to_string()))));
    let before = Rc::new(Toward { version: wanted.version(), ..Toward::default() });
    if moments & toward::CERTIFICATE != 0 {
        let says = (code.says)(r, toward::CERTIFICATE, Rc::clone(&before));
        match timer::within_ms(timeout, says).await {
            None => return Err(Fault::Timeout("loading proxy ssl certificate by lua")),
            Some(false) => return refused(CALLBACK_FAILED),
            Some(true) => {}
        }
    }
    let handshake = link.handshake(wanted, before.show.take(), timeout);
    match unless_client_goes(r, *conf.ignore_client_abort, handshake).await {
        Some(Ok(())) => r.log(LogLevel::Debug, "SSL_do_handshake: 1"),
        other => return Ok(other),
    }
    let judged = match moments & toward::ALONE != 0 {
        true => link.judge_name(wanted),
        false => link.judge(wanted),
    };
    if judged.is_err() || moments & toward::VERIFY == 0 {
        return Ok(Some(judged));
    }
    let behind = Rc::new(Toward { shown: link.shown(), ..Toward::default() });
    let says = (code.says)(r, toward::VERIFY, Rc::clone(&behind));
    match timer::within_ms(timeout, says).await {
        None => Err(Fault::Timeout("loading proxy ssl verify by lua")),
        Some(false) => refused(VERIFY_FAILED),
        Some(true) if behind.verdict.get() != 0 && wanted.verifies() => {
            let number = behind.verdict.get();
            refused(&format!("upstream SSL certificate verify error: ({number}:by code)"))
        }
        Some(true) => Ok(Some(Ok(()))),
    }
}

/// What the log says where code refuses.
const CALLBACK_FAILED: &str =
    "SSL_do_handshake() failed (SSL: error:0A0000EA:SSL routines::callback failed)";
const VERIFY_FAILED: &str =
    "SSL_do_handshake() failed (SSL: error:0A000086:SSL routines::certificate verify failed)";
