//! Directives of the mail block's core.

use crate::build::build;
use crate::conf::{MailBlock, MailMain, MailSrv};
use crate::module::MailModule;
use crate::Session;
use weir_core::block::{self, Place};
use weir_core::listen;
use weir_module::first::{bytes, msec, num};
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, SlotVtable};
use weir_wire::mail::{Protocol, StartTls};

const MS: Context = Context::MS;

static ROWS: &[Row] = &[
    Row::block("server", Context::MAIL, Arity::NONE, "A virtual server for mail.", |cf, d| {
        block::read_server(cf, d, Context::MAIL_SERVER)
    }),
    Row::new(
        "listen",
        Context::MAIL_SERVER,
        Arity::ONE_MORE,
        "",
        "An address the server accepts connections on.",
        set_listen,
    )
    .note("An address without a port is refused; multipath TCP is not there yet."),
    Row::new(
        "protocol",
        Context::MAIL_SERVER,
        Arity::ONE,
        "",
        "imap, pop3 or smtp; without it the port says so: 143 and 993, 110 and 995, 25, 465 and 587.",
        |cf, d| {
            let v = match d.arg(0) {
                b"imap" => Protocol::Imap,
                b"pop3" => Protocol::Pop3,
                b"smtp" => Protocol::Smtp,
                _ => {
                    let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
                    return Err(d.bad(0, format!("unknown protocol \"{shown}\"")));
                }
            };
            cf.get::<MailSrv>().protocol = Some(v);
            Ok(())
        },
    ),
    Row::new(
        "server_name",
        MS,
        Arity::ONE,
        "hostname",
        "The name that clients are greeted with and SMTP servers are told.",
        set!(Cf::get::<MailSrv>, server_name, bytes),
    ),
    Row {
        default: "off",
        set: |cf, d| match d.arg(0) {
            b"off" => cf.get::<Place>().resolver.once(d, None),
            _ => (block::Rows::<Session>::RESOLVER.set)(cf, d),
        },
        ..block::Rows::<Session>::RESOLVER
    },
    Row::new(
        "timeout",
        MS,
        Arity::ONE,
        "60s",
        "Longest time until a client has said who it is, for a handshake, and until a server has let it in.",
        set!(Cf::get::<MailSrv>, timeout, msec),
    ),
    Row::new(
        "max_errors",
        MS,
        Arity::ONE,
        "5",
        "So many invalid commands end a session.",
        set!(Cf::get::<MailSrv>, max_errors, num),
    ),
    Row::new(
        "starttls",
        MS,
        Arity::ONE,
        "off",
        "Whether clients may begin TLS within a session, or must before they say who they are.",
        |cf, d| {
            let words = [("off", StartTls::Off), ("on", StartTls::On), ("only", StartTls::Only)];
            let v = d.choice(0, &words)?;
            let slot = cf.get::<MailSrv>();
            slot.starttls_at = Some(d.position());
            slot.starttls.once(d, v)
        },
    ),
];

/// What every protocol's block has of it.
pub const COMMON: MailModule =
    MailModule { rows: block::Rows::<Session>::ALL, ..MailModule::EMPTY };

/// What every session has: `listen`, `protocol`, `server_name`, times, `starttls`.
pub const MODULE: MailModule = MailModule {
    rows: ROWS,
    slots: &[
        SlotVtable::of::<MailBlock>(),
        SlotVtable::of::<MailMain>(),
        SlotVtable::of::<MailSrv>(),
    ],
    build: Some(build),
    ..MailModule::EMPTY
};

/// `listen ADDRESS:PORT [option …]`
fn set_listen(cf: &mut Cf, d: &Directive) -> ConfResult {
    listen::needs_port(d)?;
    let listens = listen::parse(d, |d, i, _| match d.arg(i) {
        // An address has one server.
        b"default_server" | b"default" | b"deferred" | b"reuseport" => Err(unknown(d, i)),
        option if option.starts_with(b"fastopen=") => Err(unknown(d, i)),
        _ => Ok(false),
    })?;
    for listen in listens {
        if !cf.get::<MailMain>().listened.insert(listen.addr.clone()) {
            return Err(d.fail(format!("duplicate \"{}\" address and port pair", listen.addr)));
        }
        let by_port = listen.addr.ip().and_then(|addr| of_port(addr.port()));
        let core = cf.get::<MailSrv>();
        core.protocol = core.protocol.or(by_port);
        cf.get::<Place>().reached.add(d, listen)?;
    }
    Ok(())
}

fn unknown(d: &Directive, i: usize) -> weir_module::Diagnostic {
    let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
    d.bad(i, format!("invalid parameter \"{shown}\""))
}

/// The protocols' own ports.
fn of_port(port: u16) -> Option<Protocol> {
    match port {
        110 | 995 => Some(Protocol::Pop3),
        143 | 993 => Some(Protocol::Imap),
        25 | 465 | 587 => Some(Protocol::Smtp),
        _ => None,
    }
}
