//! `to syslog`: what its block says.

use super::Syslog;
use crate::common::{self, Address};
use crate::conf::{draft, Draft};
use crate::kinds::KindOf;
use crate::line::tls::{self, Tls};
use crate::receiver::Target;
use std::sync::Arc;
use std::time::Duration;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Row, Val};
use weir_runtime::process;
use weir_shipping::syslog::{is_structure, Framing, Head, FACILITIES};

const PORT: u16 = 514;
const TLS_PORT: u16 = 6514;
const TAG_MAX_BYTES: usize = 48;
/// The number that is set apart for examples: who has one of IANA's own writes that.
const STRUCTURE: &str = "event@32473";
const LOCAL7: u8 = 23;
/// As rsyslog takes them when nothing else is said.
const MESSAGE_DEFAULT_BYTES: u64 = 8096;

pub const KIND: KindOf = KindOf {
    name: "syslog",
    takes: &[
        "facility",
        "tag",
        "framing",
        "structured_data",
        "message_size",
        "timeout",
        "ssl_protocols",
        "ssl_ciphers",
        "ssl_name",
        "ssl_verify",
        "ssl_trusted_certificate",
        "ssl_certificate",
        "ssl_certificate_key",
        "ssl_password_file",
    ],
    check,
    build,
};

#[derive(Default)]
struct Said {
    facility: Val<u8>,
    tag: Val<String>,
    framing: Val<Framing>,
    structure: Val<String>,
}

fn said(cf: &mut Cf) -> &mut Said {
    draft(cf).settings()
}

pub const ROWS: &[Row] = &[
    Row::new("facility", Context::SHIP, Arity::ONE, "local7", "The facility of syslog messages.", |cf, d| {
        let found = FACILITIES.iter().position(|f| f.as_bytes() == d.arg(0));
        let number = found.ok_or_else(|| {
            let mut e = d.invalid(0);
            e.hint = Some(format!("it is one of {}", FACILITIES.join(", ")));
            e
        })?;
        said(cf).facility.once(d, number as u8)
    }),
    Row::new("tag", Context::SHIP, Arity::ONE, "weir", "The name of the program in syslog messages.", |cf, d| {
        let tag = d.text(0)?.to_owned();
        let good = !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_graphic());
        if !good || tag.len() > TAG_MAX_BYTES {
            return Err(d.bad(0, format!("a tag has 1 to {TAG_MAX_BYTES} printable characters")));
        }
        said(cf).tag.once(d, tag)
    }),
    Row::new("framing", Context::SHIP, Arity::ONE, "counted", "How messages follow each other over TCP: counted (their length before each), line (a line feed behind each).", |cf, d| {
        let word = d.choice(0, &[("counted", Framing::Counted), ("line", Framing::Line)])?;
        said(cf).framing.once(d, word)
    })
    .note("over TLS they are counted always (RFC 5425)"),
    Row::new("structured_data", Context::SHIP, Arity::ONE, "", "The name of the element that has the event's id: a name, and behind the sign at a private enterprise number.", |cf, d| {
        let name = d.text(0)?.to_owned();
        if !is_structure(&name) {
            let mut e = d.bad(0, format!("\"{name}\" cannot be the name of an element"));
            e.hint = Some(format!("write a name and a private enterprise number, as in {STRUCTURE}"));
            return Err(e);
        }
        said(cf).structure.once(d, name)
    }),
];

/// All that a client needs to know.
pub struct Settings {
    pub addresses: Vec<Address>,
    pub tls: Option<Tls>,
    pub head: Head,
    pub framing: Framing,
    pub message_max: usize,
    pub timeout: Duration,
}

fn addresses(draft: &Draft) -> ConfResult<Vec<Address>> {
    let schemes = ["udp", "tcp", "tls"];
    let is_tls = |a: &Address| a.scheme == "tls";
    let usual = common::addresses(draft, &schemes, Some(PORT))?;
    let usual_tls = common::addresses(draft, &schemes, Some(TLS_PORT))?;
    let chosen = usual.into_iter().zip(usual_tls);
    Ok(chosen.map(|(plain, tls)| if is_tls(&tls) { tls } else { plain }).collect())
}

fn check(draft: &mut Draft) -> ConfResult {
    let addresses = addresses(draft)?;
    let has = |scheme: &str| addresses.iter().any(|a| a.scheme == scheme);
    tls::check(draft, has("tls"))?;
    let said = draft.said::<Said>();
    if said.is_some_and(|s| s.framing.is_set()) && !has("tcp") {
        let mut e = common::child(draft, "framing").fail("\"framing\" where no address has tcp://");
        e.hint = Some("over UDP and TLS there is no choice: take the directive away".into());
        return Err(e);
    }
    Ok(())
}

fn build(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    let none = Said::default();
    let said = draft.said::<Said>().unwrap_or(&none);
    let addresses = addresses(draft)?;
    let tls = match addresses.iter().any(|a| a.scheme == "tls") {
        true => Some(Tls::build(cf, draft, &[])?),
        false => None,
    };
    let text = |value: &Val<String>, default: &str| {
        value.as_option().cloned().unwrap_or_else(|| default.to_owned())
    };
    let head = Head {
        facility: said.facility.as_option().copied().unwrap_or(LOCAL7),
        host: process::hostname(),
        app: text(&said.tag, "weir"),
        process: String::new(),
        structure: text(&said.structure, STRUCTURE),
    };
    let framing = said.framing.as_option().copied().unwrap_or_default();
    let timeout = common::timeout(draft);
    let message_max = common::message_bytes(draft).unwrap_or(MESSAGE_DEFAULT_BYTES) as usize;
    Ok(Arc::new(Syslog(Arc::new(Settings { addresses, tls, head, framing, message_max, timeout }))))
}
