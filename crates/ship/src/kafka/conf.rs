//! `to kafka`: what its block says.

use super::Kafka;
use crate::common::{self, Address, Compress};
use crate::conf::{draft, Draft};
use crate::kinds::KindOf;
use crate::line::tls::{self, Tls};
use crate::receiver::Target;
use std::sync::Arc;
use std::time::Duration;
use weir_module::first::text;
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Row, Val};
use weir_shipping::kafka::records::Compression;
use weir_shipping::kafka::scram::Hash;

const PORT: u16 = 9092;
/// Brokers take 1,048,588 bytes unless told otherwise; some are for heads.
const MESSAGE_DEFAULT_BYTES: u64 = 1_000_000;
/// A topic's name, by Kafka's rule.
const TOPIC_MAX_BYTES: usize = 249;

pub const KIND: KindOf = KindOf {
    name: "kafka",
    takes: &[
        "topic",
        "key",
        "message_size",
        "sasl",
        "user",
        "password_file",
        "timeout",
        "compress",
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

/// How we sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    Scram(Hash),
}

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(Hash::Sha512) => "SCRAM-SHA-512",
        }
    }
}

#[derive(Default)]
struct Said {
    topic: Val<String>,
    key: Val<String>,
    sasl: Val<Mechanism>,
}

fn said(cf: &mut Cf) -> &mut Said {
    draft(cf).settings()
}

pub const ROWS: &[Row] = &[
    Row::new("topic", Context::SHIP, Arity::ONE, "", "The topic that events go to.", |cf, d| {
        let name = d.text(0)?.to_owned();
        let word = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let good = !name.is_empty() && name.len() <= TOPIC_MAX_BYTES && name.bytes().all(word);
        if !good || name == "." || name == ".." {
            return Err(d.bad(0, format!("\"{name}\" cannot be a topic: letters, digits, \".\", \"_\" and \"-\" alone, at most {TOPIC_MAX_BYTES}")));
        }
        said(cf).topic.once(d, name)
    }),
    Row::new("key", Context::SHIP, Arity::ONE, "", "The event's field that decides on its partition, and is the record's key.", set!(said, key, text))
        .note("events without that field, and all events where no field is named, go to the batch's partition, the next one for each batch"),
    Row::new("sasl", Context::SHIP, Arity::ONE, "", "How user and password are shown to brokers: plain, scram-sha-256, scram-sha-512.", |cf, d| {
        let words = [
            ("plain", Mechanism::Plain),
            ("scram-sha-256", Mechanism::Scram(Hash::Sha256)),
            ("scram-sha-512", Mechanism::Scram(Hash::Sha512)),
        ];
        let word = d.choice(0, &words)?;
        said(cf).sasl.once(d, word)
    }),
];

/// All that a client needs to know.
#[derive(Clone)]
pub struct Settings {
    pub brokers: Vec<Address>,
    pub tls: Option<Tls>,
    pub topic: String,
    pub key: Option<String>,
    pub chunk_bytes: u32,
    pub mechanism: Option<Mechanism>,
    pub user: String,
    pub password: String,
    pub compression: Compression,
    pub timeout: Duration,
}

fn check(draft: &mut Draft) -> ConfResult {
    let none = Said::default();
    let said = draft.said::<Said>().unwrap_or(&none);
    if !said.topic.is_set() {
        let mut e = draft.directive.fail("no \"topic\" in this block");
        e.hint = Some("write \"topic NAME;\"".into());
        return Err(e);
    }
    let addresses = addresses(draft)?;
    tls::check(draft, addresses[0].scheme == "tls")?;
    common::compress(draft, true)?;
    match (said.sasl.is_set(), common::check_user(draft)?) {
        (true, false) => {
            Err(common::child(draft, "sasl")
                .fail("no \"user\" and \"password_file\" in this block"))
        }
        (false, true) => {
            let mut e = common::child(draft, "user").fail("no \"sasl\" in this block");
            e.hint = Some("write \"sasl scram-sha-512;\", or plain, or scram-sha-256".into());
            Err(e)
        }
        _ => Ok(()),
    }
}

fn addresses(draft: &Draft) -> ConfResult<Vec<Address>> {
    let found = common::addresses(draft, &["tcp", "tls"], Some(PORT))?;
    match found.iter().position(|a| a.scheme != found[0].scheme) {
        // Brokers tell addresses without saying what is spoken there.
        Some(at) => Err(draft.to().bad(at + 1, "all brokers have TLS, or none")),
        None => Ok(found),
    }
}

fn build(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    let none = Said::default();
    let said = draft.said::<Said>().unwrap_or(&none);
    let brokers = addresses(draft)?;
    let tls = match brokers[0].scheme == "tls" {
        true => Some(Tls::build(cf, draft, &[])?),
        false => None,
    };
    let (user, password) = common::credentials(cf, draft)?.unwrap_or_default();
    let bytes = common::message_bytes(draft).unwrap_or(MESSAGE_DEFAULT_BYTES);
    Ok(Arc::new(Kafka(Arc::new(Settings {
        brokers,
        tls,
        topic: said.topic.as_option().cloned().unwrap_or_default(),
        key: said.key.as_option().cloned(),
        chunk_bytes: bytes as u32,
        mechanism: said.sasl.as_option().copied(),
        user,
        password,
        compression: match common::compress(draft, true)? {
            Compress::None => Compression::None,
            Compress::Gzip => Compression::Gzip,
            Compress::Zstd => Compression::Zstd,
        },
        timeout: common::timeout(draft),
    }))))
}
