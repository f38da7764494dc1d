//! POP3 (RFC 1939), with its extensions for capabilities (RFC 2449), authentication (RFC 1734,
//! RFC 5034) and TLS (RFC 2595).

use super::lines::Verb;
use super::{sasl, AuthMethods, Lists, StartTls};

/// A command's line; nginx reads it into so much, and has no directive for it.
pub const COMMAND_MAX_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    User,
    Pass,
    Apop,
    Auth,
    Capa,
    Quit,
    Noop,
    Stls,
}

impl Verb for Command {
    const WORDS: &'static [(&'static [u8], Command)] = &[
        (b"USER", Command::User),
        (b"PASS", Command::Pass),
        (b"APOP", Command::Apop),
        (b"AUTH", Command::Auth),
        (b"CAPA", Command::Capa),
        (b"QUIT", Command::Quit),
        (b"NOOP", Command::Noop),
        (b"STLS", Command::Stls),
    ];
    const MAX_ARGS: usize = 3;

    /// Names and passwords may have spaces.
    fn takes_spaces(self) -> bool {
        matches!(self, Command::User | Command::Pass)
    }
}

pub const OK: &[u8] = b"+OK\r\n";
pub const GREETING: &[u8] = b"+OK POP3 ready\r\n";
pub const INVALID_COMMAND: &[u8] = b"-ERR invalid command\r\n";
pub const INTERNAL_ERROR: &[u8] = b"-ERR internal server error\r\n";
pub const CERTIFICATE_ERROR: &[u8] = b"-ERR SSL certificate error\r\n";
pub const NO_CERTIFICATE: &[u8] = b"-ERR No required SSL certificate\r\n";

/// Offered without `pop3_capabilities`.
pub const DEFAULT_CAPABILITIES: &[&str] = &["TOP", "USER", "UIDL"];

/// Where APOP or CRAM-MD5 may be used, the greeting has the salt.
pub fn greeting(salt: Option<&sasl::Salt>) -> Vec<u8> {
    match salt {
        None => GREETING.to_vec(),
        Some(salt) => [b"+OK POP3 ready ", salt.text(), b"\r\n"].concat(),
    }
}

/// The answers to CAPA and to AUTH without a method.
pub fn lists(capabilities: &[&[u8]], methods: AuthMethods) -> Lists {
    let mut capability = b"+OK Capability list follows\r\n".to_vec();
    let mut only = capability.clone();
    for name in capabilities {
        capability.extend_from_slice(name);
        capability.extend_from_slice(b"\r\n");
        if !name.eq_ignore_ascii_case(b"USER") {
            only.extend_from_slice(name);
            only.extend_from_slice(b"\r\n");
        }
    }
    capability.extend_from_slice(b"SASL");
    let mut auth = b"+OK methods supported:\r\n".to_vec();
    for name in methods.sasl_names() {
        capability.push(b' ');
        capability.extend_from_slice(name.as_bytes());
        auth.extend_from_slice(name.as_bytes());
        auth.extend_from_slice(b"\r\n");
    }
    capability.extend_from_slice(b"\r\n");
    auth.extend_from_slice(b".\r\n");
    only.extend_from_slice(b"STLS\r\n.\r\n");
    let starttls = [&capability[..], b"STLS\r\n.\r\n"].concat();
    capability.extend_from_slice(b".\r\n");
    Lists { plain: capability, starttls, starttls_only: only, auth }
}

/// `pop3_auth plain` offers LOGIN too.
pub fn offered(methods: AuthMethods) -> AuthMethods {
    match methods.has(AuthMethods::PLAIN) {
        true => methods.with(AuthMethods::LOGIN),
        false => methods,
    }
}

/// Between USER and PASS the list is the one without STLS.
pub fn capa(lists: &Lists, starttls: StartTls, tls: bool, named: bool) -> &[u8] {
    lists.of(starttls, tls || named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::tests::{commands, responses};

    #[test]
    fn commands_are_read() {
        for (text, expected) in [
            ("NOOP\r\n", "Noop"),
            ("noop\n", "Noop"),
            ("USER a b \r\n", "User|a b "),
            ("PASS   x\"y\\\r\n", "Pass|x\"y\\"),
            ("USER \r\n", "User"),
            ("APOP a  b c\r\n", "Apop|a|b|c"),
            ("APOP a b c d\r\n", "invalid"),
            ("AUTH PLAIN AAA= \n", "Auth|PLAIN|AAA="),
            ("NOOP\rX\r\n", "invalid"),
            ("NOOP\r\r\n", "invalid"),
            ("USER a\rb\r\n", "invalid"),
            ("STAT\r\n", "invalid"),
            ("NOOPS\r\n", "invalid"),
            ("N1OP\r\n", "invalid"),
            (" NOOP\r\n", "invalid"),
            ("\r\n", "invalid"),
            ("\n", "invalid"),
            ("QUIT\r\nSTLS\nCA", "Quit;Stls;more"),
            ("", "more"),
        ] {
            assert_eq!(commands::<Command>(text, 128), expected, "{text:?}");
        }
        assert_eq!(commands::<Command>("NOOP\r\n", 6), "Noop");
        assert_eq!(commands::<Command>("NOOP\r\n", 5), "too long");
        // What counts is the line, not what stands behind it.
        assert_eq!(commands::<Command>("NOOP\r\nNOOP\r\nNOO", 6), "Noop;Noop;more");
    }

    #[test]
    fn responses_are_read() {
        for (text, expected) in [
            ("AAA=\r\n", "|AAA="),
            ("\r\n", "|"),
            (" x\n", "||x"),
            ("a b c\r\n", "|a|b|c"),
            ("a b c d\r\n", "invalid"),
            ("a\rb\r\n", "invalid"),
        ] {
            assert_eq!(responses::<Command>(text), expected, "{text:?}");
        }
    }

    #[test]
    fn lists_are_composed() {
        let defaults: Vec<&[u8]> = DEFAULT_CAPABILITIES.iter().map(|c| c.as_bytes()).collect();
        let lists = lists(&defaults, offered(AuthMethods::PLAIN.with(AuthMethods::APOP)));
        assert_eq!(
            lists.plain.escape_ascii().to_string(),
            r"+OK Capability list follows\r\nTOP\r\nUSER\r\nUIDL\r\nSASL PLAIN LOGIN\r\n.\r\n"
        );
        assert!(lists.starttls.ends_with(b"SASL PLAIN LOGIN\r\nSTLS\r\n.\r\n"));
        assert_eq!(
            lists.starttls_only.escape_ascii().to_string(),
            r"+OK Capability list follows\r\nTOP\r\nUIDL\r\nSTLS\r\n.\r\n"
        );
        assert_eq!(lists.auth, b"+OK methods supported:\r\nPLAIN\r\nLOGIN\r\n.\r\n");
        assert_eq!(capa(&lists, StartTls::On, false, false), lists.starttls);
        assert_eq!(capa(&lists, StartTls::Only, false, false), lists.starttls_only);
        assert_eq!(capa(&lists, StartTls::On, false, true), lists.plain);
        assert_eq!(capa(&lists, StartTls::On, true, false), lists.plain);
        assert_eq!(offered(AuthMethods::EXTERNAL), AuthMethods::EXTERNAL);
    }
}
