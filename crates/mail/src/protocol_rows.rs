//! Directives of POP3, IMAP and SMTP, which mostly are the same for each.

use crate::conf::{MailSrv, Offer};
use crate::module::MailModule;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row};
use weir_wire::mail::{AuthMethods, Protocol};

const MS: Context = Context::MS;
const POP3: usize = Protocol::Pop3 as usize;
const IMAP: usize = Protocol::Imap as usize;
const SMTP: usize = Protocol::Smtp as usize;

const AS_OFFERED: &str =
    "external is taken only where it is offered, also with an initial response, which nginx takes always";
/// Of commands that came together.
const OF_ONE: &str =
    "the longest of one command: those that came in one packet may be longer together";

static ROWS: &[Row] = &[
    Row::new(
        "pop3_auth",
        MS,
        Arity::ONE_MORE,
        "plain",
        "How POP3 clients may say who they are: plain, apop, cram-md5, external.",
        set_auth::<POP3>,
    )
    .note(
        "external is taken only where it is offered, also with an initial response, which nginx takes \
         always; a name or password with a line end or a zero byte is not passed on",
    ),
    Row::new(
        "pop3_capabilities",
        MS,
        Arity::ONE_MORE,
        "TOP USER UIDL",
        "What POP3 clients are told by CAPA.",
        set_capabilities::<POP3>,
    ),
    Row::new(
        "imap_auth",
        MS,
        Arity::ONE_MORE,
        "plain",
        "How IMAP clients may say who they are: plain, login, cram-md5, external.",
        set_auth::<IMAP>,
    )
    .note(AS_OFFERED),
    Row::new(
        "imap_capabilities",
        MS,
        Arity::ONE_MORE,
        "IMAP4 IMAP4rev1 UIDPLUS",
        "What IMAP clients are told by CAPABILITY.",
        set_capabilities::<IMAP>,
    ),
    Row::new(
        "imap_client_buffer",
        MS,
        Arity::ONE,
        "4k",
        "The longest command of an IMAP client that has no server yet.",
        set_buffer::<IMAP>,
    )
    .note(OF_ONE),
    Row::new(
        "smtp_auth",
        MS,
        Arity::ONE_MORE,
        "plain login",
        "How SMTP clients may say who they are: plain, login, cram-md5, external, or none: not at all.",
        set_auth::<SMTP>,
    )
    .note(AS_OFFERED),
    Row::new(
        "smtp_capabilities",
        MS,
        Arity::ONE_MORE,
        "",
        "What SMTP clients are told by EHLO.",
        set_capabilities::<SMTP>,
    ),
    Row::new(
        "smtp_client_buffer",
        MS,
        Arity::ONE,
        "4k",
        "The longest command of an SMTP client that has no server yet.",
        set_buffer::<SMTP>,
    )
    .note(OF_ONE),
    Row::new(
        "smtp_greeting_delay",
        MS,
        Arity::ONE,
        "0",
        "Who speaks before the greeting, which is so late, is refused.",
        |cf, d| {
            let v = d.msec(0)?;
            cf.get::<MailSrv>().greeting_delay.once(d, v)
        },
    ),
];

/// What each protocol has of its own.
pub const MODULE: MailModule = MailModule { rows: ROWS, ..MailModule::EMPTY };

const PLAIN: (&str, AuthMethods) = ("plain", AuthMethods::PLAIN);
const CRAM_MD5: (&str, AuthMethods) = ("cram-md5", AuthMethods::CRAM_MD5);
const EXTERNAL: (&str, AuthMethods) = ("external", AuthMethods::EXTERNAL);
const LOGIN: (&str, AuthMethods) = ("login", AuthMethods::LOGIN);

/// By protocol.
const METHODS: [&[(&str, AuthMethods)]; 3] = [
    &[PLAIN, ("apop", AuthMethods::APOP), CRAM_MD5, EXTERNAL],
    &[PLAIN, LOGIN, CRAM_MD5, EXTERNAL],
    &[PLAIN, LOGIN, CRAM_MD5, EXTERNAL, ("none", AuthMethods::NONE)],
];

fn offer<const P: usize>(cf: &mut Cf) -> &mut Offer {
    &mut cf.get::<MailSrv>().offers[P]
}

fn set_auth<const P: usize>(cf: &mut Cf, d: &Directive) -> ConfResult {
    for i in 0..d.args.len() {
        let method = d.choice(i, METHODS[P])?;
        let methods = offer::<P>(cf).methods.get_or_insert_default();
        if methods.has(method) {
            let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
            cf.warn(d, format!("duplicate value \"{shown}\""));
        } else {
            *methods = methods.with(method);
        }
    }
    Ok(())
}

fn set_capabilities<const P: usize>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let words = d.args.iter().map(|w| w.text.to_vec());
    offer::<P>(cf).capabilities.extend(words);
    Ok(())
}

fn set_buffer<const P: usize>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let v = d.size(0)?;
    offer::<P>(cf).client_buffer.once(d, v)
}
