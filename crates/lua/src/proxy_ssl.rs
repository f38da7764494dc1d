//! Code in handshakes with servers: `proxy_ssl_certificate_by_lua` and `proxy_ssl_verify_by_lua`.
//!
//! Difference from OpenResty: both run beside the handshake, not within it. The certificate is chosen before it,
//! whether the server asks for one or not, and a connection with one that code has chosen is for that request alone.

use crate::code;
use crate::conf::LuaMain;
use crate::rows::row;
use crate::run::{context, Outcome, Run, Step};
use crate::site::{Block, Who};
use crate::vm::Vm;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::lent::{toward, Lent, Toward, TowardCode};
use weir_http::module::{Build, HttpModule};
use weir_http::Request;
use weir_module::{
    first, merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Diagnostic,
    Directive, Level, Row, RowBody, SlotVtable, Slots, Val,
};

/// Code of a location, by its number.
#[derive(Default)]
struct LuaProxy {
    certificate: Val<Option<u32>>,
    verify: Val<Option<u32>>,
    skip_default: Val<bool>,
}

impl ConfType for LuaProxy {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &LuaProxy) -> ConfResult {
        merge_values!(self, parent; certificate = None, verify = None, skip_default = false);
        Ok(())
    }
}

fn moments(slots: &Slots) -> u8 {
    let conf = slots.get::<LuaProxy>();
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    bit(conf.certificate.is_some(), toward::CERTIFICATE)
        | bit(conf.verify.is_some(), toward::VERIFY)
        | bit(conf.verify.is_some() && *conf.skip_default, toward::ALONE)
}

/// Says, unless it is told that the code has come to its end, that it has not.
struct Waiting {
    log: std::sync::Arc<weir_core::logger::ErrorLog>,
    serial: u64,
    text: Option<String>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(text) = &self.text {
            self.log.log(LogLevel::Debug, Some(self.serial), text.as_bytes());
        }
    }
}

fn says(r: &mut Request, at: u8, toward: Rc<Toward>) -> LocalFuture<'_, bool> {
    Box::pin(async move {
        let conf = r.loc().conf::<LuaProxy>();
        let (code, context, name, exit, before) = match at {
            toward::CERTIFICATE => (
                *conf.certificate,
                context::PROXY_SSL_CERT,
                "proxy_ssl_certificate_by_lua",
                "cert cb",
                "proxy ssl cert",
            ),
            _ => (
                *conf.verify,
                context::PROXY_SSL_VERIFY,
                "proxy_ssl_verify_by_lua",
                "cert verify callback",
                "proxy ssl verify",
            ),
        };
        let Some(code) = code else { return true };
        r.log(LogLevel::Debug, &format!("{before}: connection reusable: 0"));
        if at == toward::VERIFY && !*conf.skip_default {
            r.log(LogLevel::Debug, &format!("{name}: openssl default verify"));
        }
        let vm = Vm::of(&r.conn().worker, &r.gen().core, Block::Http);
        let mut run = Run::new(&vm, context);
        run.toward = Some(toward);
        let has_waited = run.begin(Who::Request(r), code) == Step::Waits;
        if has_waited {
            let log = std::sync::Arc::clone(&r.loc().error_log);
            let text = Some(format!("{name}: {exit} aborted"));
            let mut waiting = Waiting { log, serial: r.conn().serial, text };
            run.drive(Who::Request(r)).await;
            waiting.text = None;
        }
        let returned = match run.outcome {
            Outcome::Failed => 500,
            Outcome::Exit(status) => status,
            _ => 0,
        };
        let is_good = (0..400).contains(&returned);
        let number = i32::from(is_good);
        let text = match has_waited {
            true => format!("{name}: {exit} exit code: {number}"),
            false => {
                format!("{name}: handler return value: {returned}, {exit} exit code: {number}")
            }
        };
        r.log(LogLevel::Debug, &text);
        is_good
    })
}

fn put(
    cf: &mut Cf,
    d: &Directive,
    place: fn(&mut LuaProxy) -> &mut Val<Option<u32>>,
) -> ConfResult {
    let code = code::of::<Request>(cf, d)?;
    let number = cf.get::<LuaMain>().add(code);
    place(cf.get::<LuaProxy>()).once(d, Some(number))
}

fn conf(cf: &mut Cf) -> &mut LuaProxy {
    cf.get()
}

static TABLE: [Row; 5] = [
    row(
        "proxy_ssl_certificate_by_lua_block",
        Context::LOCATION,
        RowBody::Raw,
        "Runs before a handshake with a server, and may choose the certificate that it is shown.",
        |cf, d| put(cf, d, |conf| &mut conf.certificate),
    )
    .note("it runs whether the server asks for a certificate or not; a connection with one that code has chosen is not used again"),
    row(
        "proxy_ssl_certificate_by_lua_file",
        Context::LOCATION,
        RowBody::Plain,
        "The same with the code in a file.",
        |cf, d| put(cf, d, |conf| &mut conf.certificate),
    )
    .note("it runs whether the server asks for a certificate or not; a connection with one that code has chosen is not used again"),
    row(
        "proxy_ssl_verify_by_lua_block",
        Context::LOCATION,
        RowBody::Raw,
        "Runs behind a handshake with a server, and may refuse the certificate that it has shown.",
        |cf, d| put(cf, d, |conf| &mut conf.verify),
    ),
    row(
        "proxy_ssl_verify_by_lua_file",
        Context::LOCATION,
        RowBody::Plain,
        "The same with the code in a file.",
        |cf, d| put(cf, d, |conf| &mut conf.verify),
    ),
    Row::new(
        "lua_upstream_skip_openssl_default_verify",
        Context::LOCATION.or(Context::LIF),
        Arity::FLAG,
        "off",
        "Leaves the judgement of a server's chain to proxy_ssl_verify_by_lua alone; its name is looked at.",
        set!(conf, skip_default, first::flag),
    ),
];

fn build(b: &mut Build<'_>) -> ConfResult {
    let is_used = b.locations.iter().any(|slots| moments(slots) != 0);
    if is_used {
        b.main.get_mut::<Lent>().toward = Some(TowardCode { moments, says });
    }
    for slots in b.locations {
        let conf = slots.get::<LuaProxy>();
        if *conf.skip_default && conf.verify.is_none() {
            let text = "\"lua_upstream_skip_openssl_default_verify\" without \"proxy_ssl_verify_by_lua\" would trust anybody";
            let e = Diagnostic::emerg(text.to_owned());
            return Err(e.hint("remove it, or write code that judges".to_owned()));
        }
    }
    Ok(())
}

/// OpenResty's code in handshakes with servers.
pub const MODULE: HttpModule = HttpModule {
    rows: &TABLE,
    slots: &[SlotVtable::of::<LuaProxy>()],
    build: Some(build),
    ..HttpModule::EMPTY
};
