//! Directives of the servers that clients are brought to.

use super::ProxySrv;
use crate::module::MailModule;
use weir_core::proxy_header::Sent;
use weir_module::first::{flag, msec, size};
use weir_module::{set, Arity, Cf, Context, Row, SlotVtable};

const MS: Context = Context::MS;

static ROWS: &[Row] = &[
    Row::new(
        "proxy",
        MS,
        Arity::FLAG,
        "off",
        "Had clients brought to servers; they are with either value.",
        set!(Cf::get::<ProxySrv>, enable, flag),
    )
    .note("as in nginx, nothing depends on it"),
    Row::new(
        "proxy_buffer",
        MS,
        Arity::ONE,
        "4k",
        "The longest answer of a server until it has let a client in, and how much is read at once then.",
        set!(Cf::get::<ProxySrv>, buffer, size),
    ),
    Row::new(
        "proxy_timeout",
        MS,
        Arity::ONE,
        "24h",
        "How long client and server may both be quiet.",
        set!(Cf::get::<ProxySrv>, timeout, msec),
    )
    .note("what the server says counts too, where nginx looks at the client alone"),
    Row::new(
        "proxy_pass_error_message",
        MS,
        Arity::FLAG,
        "off",
        "Clients are told what a server says that does not let them in.",
        set!(Cf::get::<ProxySrv>, pass_error_message, flag),
    ),
    Row::new(
        "xclient",
        MS,
        Arity::FLAG,
        "on",
        "SMTP servers are told of the client by XCLIENT.",
        set!(Cf::get::<ProxySrv>, xclient, flag),
    ),
    Row::new(
        "proxy_smtp_auth",
        MS,
        Arity::FLAG,
        "off",
        "SMTP servers are told name and password by AUTH PLAIN.",
        set!(Cf::get::<ProxySrv>, smtp_auth, flag),
    ),
    Row::new(
        "proxy_protocol",
        MS,
        Arity::ONE,
        "off",
        "Tells servers of the client by the PROXY protocol.",
        set!(Cf::get::<ProxySrv>, proxy_protocol, Sent::parse),
    ),
];

/// What servers are told, and for how long they are waited for.
pub const MODULE: MailModule =
    MailModule { rows: ROWS, slots: &[SlotVtable::of::<ProxySrv>()], ..MailModule::EMPTY };
