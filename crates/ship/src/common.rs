//! Rows that several kinds of receivers have: who we are, how long is waited, what is packed.

use crate::conf::{draft, Draft};
use std::time::Duration;
use weir_module::first::text;
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Row, Val};

const TIMEOUT_DEFAULT_MS: u64 = 30_000;
const TIMEOUT_MOST_MS: u64 = 600_000;
/// An event has room in the least of it, whatever its values are.
const MESSAGE_BYTES: std::ops::RangeInclusive<u64> = 2048..=64 * 1024 * 1024;

/// How what is sent is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    None,
    Gzip,
    Zstd,
}

/// What was said.
#[derive(Default)]
pub struct CommonSaid {
    user: Val<String>,
    password_file: Val<Vec<u8>>,
    timeout_ms: Val<u64>,
    compress: Val<Compress>,
    message_bytes: Val<u64>,
}

fn said(cf: &mut Cf) -> &mut CommonSaid {
    draft(cf).settings()
}

pub const ROWS: &[Row] = &[
    Row::new(
        "user",
        Context::SHIP,
        Arity::ONE,
        "",
        "Who we are, for the receiver.",
        set!(said, user, text),
    ),
    Row::new(
        "password_file",
        Context::SHIP,
        Arity::ONE,
        "",
        "The file whose first line is the password.",
        |cf, d| {
            let name = d.arg(0).to_vec();
            said(cf).password_file.once(d, name)
        },
    ),
    Row::new(
        "timeout",
        Context::SHIP,
        Arity::ONE,
        "30s",
        "How long a request may take, from its first byte to the answer's last.",
        |cf, d| {
            let ms = d.msec(0)?;
            if !(1..=TIMEOUT_MOST_MS).contains(&ms) {
                return Err(d.bad(0, "a request may take 1 ms to 10 minutes"));
            }
            said(cf).timeout_ms.once(d, ms)
        },
    ),
    Row::new(
        "compress",
        Context::SHIP,
        Arity::ONE,
        "gzip",
        "What is sent is packed: gzip, zstd (to Kafka), none.",
        |cf, d| {
            let words =
                [("none", Compress::None), ("gzip", Compress::Gzip), ("zstd", Compress::Zstd)];
            let word = d.choice(0, &words)?;
            said(cf).compress.once(d, word)
        },
    ),
    Row::new(
        "message_size",
        Context::SHIP,
        Arity::ONE,
        "1000000 to Kafka, 8096 to syslog",
        "Messages are no longer: to Kafka batches of records, before they are packed (max.message.bytes of the topic); to syslog each message.",
        |cf, d| {
            let bytes = d.size(0)?;
            if !MESSAGE_BYTES.contains(&bytes) {
                return Err(d.bad(0, "it must be between 2k and 64m"));
            }
            said(cf).message_bytes.once(d, bytes)
        },
    )
    .note("to syslog the longest values of an event are cut, and end in …, until it fits. Receivers read what is behind their own bound as messages of their own (rsyslog: maxMessageSize, 8096 bytes): whoever chooses an address or a user agent would write them"),
];

/// How long a message may be.
pub fn message_bytes(draft: &Draft) -> Option<u64> {
    get(draft).and_then(|s| s.message_bytes.as_option()).copied()
}

fn get(draft: &Draft) -> Option<&CommonSaid> {
    draft.said()
}

/// How long a request may take.
pub fn timeout(draft: &Draft) -> Duration {
    let ms = get(draft).and_then(|s| s.timeout_ms.as_option()).copied();
    Duration::from_millis(ms.unwrap_or(TIMEOUT_DEFAULT_MS))
}

/// How what is sent is packed; zstd where it is taken alone.
///
/// # Errors
///
/// It says zstd, and the kind does not take it.
pub fn compress(draft: &Draft, takes_zstd: bool) -> ConfResult<Compress> {
    let said = get(draft).and_then(|s| s.compress.as_option()).copied();
    match said.unwrap_or(Compress::Gzip) {
        Compress::Zstd if !takes_zstd => {
            let d = child(draft, "compress");
            let mut e = d.bad(0, "such receivers do not take zstd");
            e.hint = Some("write \"compress gzip;\"".into());
            Err(e)
        }
        word => Ok(word),
    }
}

/// Whether there is a user: then there is a file with the password.
///
/// # Errors
///
/// One of them alone.
pub fn check_user(draft: &Draft) -> ConfResult<bool> {
    let said = get(draft);
    let user = said.is_some_and(|s| s.user.is_set());
    let password = said.is_some_and(|s| s.password_file.is_set());
    match (user, password) {
        (true, false) => Err(child(draft, "user").fail("no \"password_file\" in this block")),
        (false, true) => Err(child(draft, "password_file").fail("no \"user\" in this block")),
        (is, _) => Ok(is),
    }
}

/// User and password, which is read now.
///
/// # Errors
///
/// The file cannot be read, or says nothing.
pub fn credentials(cf: &mut Cf, draft: &Draft) -> ConfResult<Option<(String, String)>> {
    let Some(said) = get(draft) else { return Ok(None) };
    let Some((user, file)) = said.user.as_option().zip(said.password_file.as_option()) else {
        return Ok(None);
    };
    let d = child(draft, "password_file");
    let path = cf.full_conf_path(file);
    let text = cf.read_file(&path).map_err(|e| {
        let why = weir_core::os_text(&e);
        d.bad(0, format!("open() \"{}\" failed ({why})", path.display()))
    })?;
    let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
        Ok(password) if !password.is_empty() => Ok(Some((user.clone(), password.to_owned()))),
        _ => Err(d.bad(0, "the file's first line is no password: it is empty, or not UTF-8")),
    }
}

/// The directive of that name in a block that has it; otherwise the block itself.
pub fn child<'a>(draft: &'a Draft, name: &str) -> &'a weir_module::Directive {
    draft.directive.children().iter().find(|c| c.name() == name).unwrap_or(&draft.directive)
}

/// An address: what stands before `://`, the host, the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub scheme: String,
    pub host: String,
    pub port: u16,
}

/// The addresses behind `to KIND`, of the kind's schemes; the first is the one of an address that has none.
///
/// # Errors
///
/// Another scheme, or no host and port.
pub fn addresses(draft: &Draft, schemes: &[&str], port: Option<u16>) -> ConfResult<Vec<Address>> {
    let to = draft.to();
    let read = |i: usize| {
        let text = to.text(i)?;
        let (scheme, rest) = text.split_once("://").unwrap_or((schemes[0], text));
        if !schemes.contains(&scheme) {
            let mut e =
                to.bad(i, format!("\"{scheme}://\" is nothing such receivers are reached by"));
            e.hint = Some(format!("it may be {}", schemes.join("://, ") + "://"));
            return Err(e);
        }
        let bad = || {
            let mut e = to.bad(i, format!("\"{text}\" is no address of a receiver"));
            e.hint = Some(format!("write {scheme}://HOST:PORT"));
            e
        };
        let (host, port) = split(rest, port).ok_or_else(bad)?;
        Ok(Address { scheme: scheme.to_owned(), host, port })
    };
    (1..to.args.len()).map(read).collect()
}

/// `host:port`, `[v6]:port`, or the host alone where there is a usual port.
pub fn split(text: &str, usual: Option<u16>) -> Option<(String, u16)> {
    let end = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text[end..].rfind(':') {
        Some(at) => (&text[..end + at], text[end + at + 1..].parse().ok().filter(|p| *p > 0)),
        None => (text, usual),
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let good = match bare {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_name),
    };
    port.filter(|_| good).map(|port| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn hosts_and_ports() {
        let is = |text, usual, host: &str, port| {
            assert_eq!(split(text, usual), Some((host.to_owned(), port)), "{text}");
        };
        is("h:1", None, "h", 1);
        is("a.b-c_d:65535", None, "a.b-c_d", 65535);
        is("[::1]:9", None, "[::1]", 9);
        is("h", Some(9092), "h", 9092);
        is("[::1]", Some(9092), "[::1]", 9092);
        for bad in
            ["", ":1", "h:", "h:0", "h:65536", "h:x", "[::1", "[x]:1", "h/p:1", "a:b:1", "h p:1"]
        {
            assert_eq!(split(bad, Some(1)), None, "{bad}");
        }
        assert_eq!(split("h", None), None);
    }
}
