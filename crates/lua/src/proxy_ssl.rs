//! Code in handshakes with servers: `proxy_ssl_certificate_by_lua` and `proxy_ssl_verify_by_lua`.
//!
//! Difference from OpenResty: both run beside the handshake, not within it. The certificate is chosen before it,
//! whether the server asks for one or not, and a connection with one that code has chosen is for that request alone.

use crate::code;
use crate::conf::LuaMain;
use crate::rows::row;
use crate::run::{context, Outcome, Run, Step};
use crate::site::{Block, Site, Who};
use crate::vm::Vm;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::session::Part as _;
use weir_core::{LocalFuture, Session as _};
use weir_http::lent::{toward, Lent, Toward, TowardCode};
use weir_http::module::{Build, HttpModule};
use weir_http::Request;
use weir_module::{
    first, merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Diagnostic,
    Directive, Level, Row, RowBody, SlotVtable, Slots, Val,
};
use weir_stream::{Session, StreamModule};

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
    site: Site,
    serial: u64,
    text: Option<String>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(text) = &self.text {
            self.site.error_log().log(LogLevel::Debug, Some(self.serial), text.as_bytes());
        }
    }
}

fn says(r: &mut Request, at: u8, toward: Rc<Toward>) -> LocalFuture<'_, bool> {
    Box::pin(async move {
        let said = Said::of(r.loc().conf(), at);
        let vm = Vm::of(&r.conn().worker, &r.gen().core, Block::Http);
        let (site, serial) = (Site::Location(Rc::clone(r.loc())), r.conn().serial);
        said.run(Who::Request(r), &vm, (site, serial), toward).await
    })
}

fn says_in_stream(s: &mut Session, at: u8, toward: Rc<Toward>) -> LocalFuture<'_, bool> {
    Box::pin(async move {
        let said = Said::of(s.base().conf(), at);
        let vm = Vm::of(&s.conn().worker, s.part().core(), Block::Stream);
        let (site, serial) = (Site::Server(Arc::clone(s.base())), s.conn().serial);
        said.run(Who::Session(s), &vm, (site, serial), toward).await
    })
}

/// The code of one moment, and its words in the log.
struct Said {
    code: Option<u32>,
    context: u32,
    name: &'static str,
    exit: &'static str,
    before: &'static str,
    /// The chain is judged as usual, too.
    judges: bool,
}

impl Said {
    fn of(conf: &LuaProxy, at: u8) -> Said {
        match at {
            toward::CERTIFICATE => Said {
                code: *conf.certificate,
                context: context::PROXY_SSL_CERT,
                name: "proxy_ssl_certificate_by_lua",
                exit: "cert cb",
                before: "proxy ssl cert",
                judges: false,
            },
            _ => Said {
                code: *conf.verify,
                context: context::PROXY_SSL_VERIFY,
                name: "proxy_ssl_verify_by_lua",
                exit: "cert verify callback",
                before: "proxy ssl verify",
                judges: !*conf.skip_default,
            },
        }
    }

    async fn run(
        self,
        mut who: Who<'_>,
        vm: &Rc<Vm>,
        (site, serial): (Site, u64),
        toward: Rc<Toward>,
    ) -> bool {
        let Said { name, exit, before, .. } = self;
        let Some(code) = self.code else { return true };
        who.log(LogLevel::Debug, &format!("{before}: connection reusable: 0"));
        if self.judges {
            who.log(LogLevel::Debug, &format!("{name}: openssl default verify"));
        }
        let mut run = Run::new(vm, self.context);
        run.toward = Some(toward);
        let has_waited = run.begin(who.again(), code) == Step::Waits;
        if has_waited {
            let text = Some(format!("{name}: {exit} aborted"));
            let mut waiting = Waiting { site, serial, text };
            run.drive(who.again()).await;
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
        who.log(LogLevel::Debug, &text);
        is_good
    }
}

fn put<S: weir_core::Session>(
    cf: &mut Cf,
    d: &Directive,
    place: fn(&mut LuaProxy) -> &mut Val<Option<u32>>,
) -> ConfResult {
    let code = code::of::<S>(cf, d)?;
    let number = cf.get::<LuaMain>().add(code);
    place(cf.get::<LuaProxy>()).once(d, Some(number))
}

const RUNS_ALWAYS: &str = "it runs whether the server asks for a certificate or not; a connection with one that code has chosen is not used again";

/// The rows for sessions of a kind, in the places where these are passed on.
macro_rules! rows {
    ($session:ty, $contexts:expr, $flag_contexts:expr) => {
        [
            row(
                "proxy_ssl_certificate_by_lua_block",
                $contexts,
                RowBody::Raw,
                "Runs before a handshake with a server, and may choose the certificate that it is shown.",
                |cf, d| put::<$session>(cf, d, |conf| &mut conf.certificate),
            )
            .note(RUNS_ALWAYS),
            row(
                "proxy_ssl_certificate_by_lua_file",
                $contexts,
                RowBody::Plain,
                "The same with the code in a file.",
                |cf, d| put::<$session>(cf, d, |conf| &mut conf.certificate),
            )
            .note(RUNS_ALWAYS),
            row(
                "proxy_ssl_verify_by_lua_block",
                $contexts,
                RowBody::Raw,
                "Runs behind a handshake with a server, and may refuse the certificate that it has shown.",
                |cf, d| put::<$session>(cf, d, |conf| &mut conf.verify),
            ),
            row(
                "proxy_ssl_verify_by_lua_file",
                $contexts,
                RowBody::Plain,
                "The same with the code in a file.",
                |cf, d| put::<$session>(cf, d, |conf| &mut conf.verify),
            ),
            Row::new(
                "lua_upstream_skip_openssl_default_verify",
                $flag_contexts,
                Arity::FLAG,
                "off",
                "Leaves the judgement of a server's chain to proxy_ssl_verify_by_lua alone; its name is looked at.",
                set!(conf, skip_default, first::flag),
            ),
        ]
    };
}

fn conf(cf: &mut Cf) -> &mut LuaProxy {
    cf.get()
}

static TABLE: [Row; 5] = rows!(Request, Context::LOCATION, Context::LOCATION.or(Context::LIF));

static OF_STREAM: [Row; 5] = rows!(Session, Context::STREAM_SERVER, Context::STREAM_SERVER);

/// Whether any of these places has code.
fn is_used(places: &[Slots]) -> ConfResult<bool> {
    for slots in places {
        let conf = slots.get::<LuaProxy>();
        if *conf.skip_default && conf.verify.is_none() {
            let text = "\"lua_upstream_skip_openssl_default_verify\" without \"proxy_ssl_verify_by_lua\" would trust anybody";
            let e = Diagnostic::emerg(text.to_owned());
            return Err(e.hint("remove it, or write code that judges".to_owned()));
        }
    }
    Ok(places.iter().any(|slots| moments(slots) != 0))
}

fn build(b: &mut Build<'_>) -> ConfResult {
    if is_used(b.locations)? {
        b.main.get_mut::<Lent>().toward = Some(TowardCode { moments, says });
    }
    Ok(())
}

fn build_stream(b: &mut weir_stream::Build<'_>) -> ConfResult {
    if is_used(b.servers)? {
        for slots in b.servers.iter().filter(|slots| !weir_stream::speaks_tls(slots)) {
            let text = match moments(slots) {
                0 => continue,
                at if at & toward::VERIFY != 0 => "proxy_ssl_verify_by_lua",
                _ => "proxy_ssl_certificate_by_lua",
            };
            let text = format!("{text}* should be used with proxy_ssl directive");
            return Err(Diagnostic::emerg(text));
        }
        let code = toward::Code { moments, says: says_in_stream };
        b.main.get_mut::<weir_stream::Lent>().toward = Some(code);
    }
    Ok(())
}

/// The same in sessions of `stream`.
pub const STREAM: StreamModule = StreamModule {
    rows: &OF_STREAM,
    slots: &[SlotVtable::of::<LuaProxy>()],
    build: Some(build_stream),
    ..StreamModule::EMPTY
};

/// OpenResty's code in handshakes with servers.
pub const MODULE: HttpModule = HttpModule {
    rows: &TABLE,
    slots: &[SlotVtable::of::<LuaProxy>()],
    build: Some(build),
    ..HttpModule::EMPTY
};
