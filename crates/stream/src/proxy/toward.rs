//! Handshakes with servers that code of a module has a say in.

use super::ProxySrv;
use crate::Session;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session as _;
use weir_module::{slot, ConfType, Level, Slots};
use weir_runtime::timer;
use weir_upstream::toward::{self, Toward};
use weir_upstream::{Link, SecureError, Wanted};

/// What a module lends to those that do not know it: put here when it is built.
#[derive(Default)]
pub struct Lent {
    /// By Lua.
    pub toward: Option<toward::Code<Session>>,
}

impl ConfType for Lent {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// Whether what a server passes on goes with TLS, once its configuration is merged.
pub fn speaks_tls(slots: &Slots) -> bool {
    *slots.get::<ProxySrv>().ssl
}

/// The code of a server, and when it runs.
pub(super) type Code = (toward::Code<Session>, u8);

/// Of the session's server, if there is any.
pub(super) fn of(s: &Session) -> Option<Code> {
    let code = s.gen().shared.main.get::<Lent>().toward?;
    let moments = (code.moments)(&s.server().base.slots);
    (moments & (toward::CERTIFICATE | toward::VERIFY) != 0).then_some((code, moments))
}

/// What the log says where code refuses.
const CALLBACK_FAILED: &str =
    "SSL_do_handshake() failed (SSL: error:0A0000EA:SSL routines::callback failed)";
const VERIFY_FAILED: &str =
    "SSL_do_handshake() failed (SSL: error:0A000086:SSL routines::certificate verify failed)";

/// As [`Link::secure`], with code before and behind it.
pub(super) async fn secure(
    s: &mut Session,
    link: &mut Link,
    wanted: &Wanted,
    timeout_ms: u64,
    (code, moments): Code,
) -> Result<(), SecureError> {
    let refused = |why: &str| Err(SecureError::Refused(why.to_string()));
    let before = Rc::new(Toward { version: wanted.version(), ..Toward::default() });
    if moments & toward::CERTIFICATE != 0 {
        let handshaking = std::mem::replace(&mut s.doing, "loading proxy ssl certificate by lua");
        let says = (code.says)(s, toward::CERTIFICATE, Rc::clone(&before));
        let said = timer::within_ms(timeout_ms, says).await;
        s.doing = handshaking;
        match said {
            None => return Err(SecureError::Timeout),
            Some(false) => return refused(CALLBACK_FAILED),
            Some(true) => {}
        }
    }
    link.handshake(wanted, before.show.take(), timeout_ms).await?;
    s.log(LogLevel::Debug, "SSL_do_handshake: 1");
    match moments & toward::ALONE != 0 {
        true => link.judge_name(wanted)?,
        false => link.judge(wanted)?,
    }
    if moments & toward::VERIFY == 0 {
        return Ok(());
    }
    let behind = Rc::new(Toward { shown: link.shown(), ..Toward::default() });
    let handshaking = std::mem::replace(&mut s.doing, "loading proxy ssl verify by lua");
    let says = (code.says)(s, toward::VERIFY, Rc::clone(&behind));
    let said = timer::within_ms(timeout_ms, says).await;
    s.doing = handshaking;
    match said {
        None => Err(SecureError::Timeout),
        Some(false) => refused(VERIFY_FAILED),
        Some(true) if behind.verdict.get() != 0 && wanted.verifies() => {
            let number = behind.verdict.get();
            refused(&format!("upstream SSL certificate verify error: ({number}:by code)"))
        }
        Some(true) => Ok(()),
    }
}
