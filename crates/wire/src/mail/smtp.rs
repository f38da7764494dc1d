//! SMTP (RFC 5321), as far as a session goes before it has a server: with authentication (RFC 4954)
//! and TLS (RFC 3207).

use super::lines::Verb;
use super::{AuthMethods, Lists};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Helo,
    Ehlo,
    Auth,
    Mail,
    Rcpt,
    Rset,
    Noop,
    Quit,
    Starttls,
    Vrfy,
    Expn,
    Help,
}

impl Verb for Command {
    const WORDS: &'static [(&'static [u8], Command)] = &[
        (b"HELO", Command::Helo),
        (b"EHLO", Command::Ehlo),
        (b"AUTH", Command::Auth),
        (b"MAIL", Command::Mail),
        (b"RCPT", Command::Rcpt),
        (b"RSET", Command::Rset),
        (b"NOOP", Command::Noop),
        (b"QUIT", Command::Quit),
        (b"STARTTLS", Command::Starttls),
        (b"VRFY", Command::Vrfy),
        (b"EXPN", Command::Expn),
        (b"HELP", Command::Help),
    ];
    const MAX_ARGS: usize = 11;

    fn takes_spaces(self) -> bool {
        false
    }
}

pub const OK: &[u8] = b"250 2.0.0 OK\r\n";
pub const BYE: &[u8] = b"221 2.0.0 Bye\r\n";
pub const START_TLS: &[u8] = b"220 2.0.0 Start TLS\r\n";
pub const INVALID_COMMAND: &[u8] = b"500 5.5.1 Invalid command\r\n";
/// To who spoke before the greeting.
pub const INVALID_PIPELINING: &[u8] = b"503 5.5.0 Improper use of SMTP command pipelining\r\n";
pub const INVALID_ARGUMENT: &[u8] = b"501 5.5.4 Invalid argument\r\n";
pub const AUTH_REQUIRED: &[u8] = b"530 5.7.1 Authentication required\r\n";
pub const BAD_SEQUENCE: &[u8] = b"503 5.5.1 Bad sequence of commands\r\n";
pub const INTERNAL_ERROR: &[u8] = b"451 4.3.2 Internal server error\r\n";
pub const CERTIFICATE_ERROR: &[u8] = b"421 4.7.1 SSL certificate error\r\n";
pub const NO_CERTIFICATE: &[u8] = b"421 4.7.1 No required SSL certificate\r\n";
/// To the client once a server has taken its session over.
pub const AUTH_OK: &[u8] = b"235 2.0.0 OK\r\n";

/// The client's name, where there is none or no resolver to ask for it, and where the resolver did
/// not answer.
pub const UNAVAILABLE: &[u8] = b"[UNAVAILABLE]";
pub const TEMPUNAVAIL: &[u8] = b"[TEMPUNAVAIL]";

/// Whether what the resolver found may be passed on as a host's name (RFC 1034, section 3.5).
pub fn is_host_name(name: &[u8]) -> bool {
    let good = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    !name.is_empty() && name.iter().all(good)
}

pub fn greeting(server_name: &[u8]) -> Vec<u8> {
    [b"220 ", server_name, b" ESMTP ready\r\n"].concat()
}

/// The answer to HELO.
pub fn helo(server_name: &[u8]) -> Vec<u8> {
    [b"250 ", server_name, b"\r\n"].concat()
}

/// The answers to EHLO.
pub fn lists(server_name: &[u8], capabilities: &[&[u8]], methods: AuthMethods) -> Lists {
    let names: Vec<&str> = methods.sasl_names().collect();
    let auth = format!("AUTH {}", names.join(" "));
    let auth = (!names.is_empty()).then_some(auth.as_bytes());
    let first = [&[server_name][..], capabilities].concat();
    let list = |more: &[Option<&[u8]>]| {
        let lines: Vec<&[u8]> =
            first.iter().copied().chain(more.iter().copied().flatten()).collect();
        let mut out = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            out.extend_from_slice(if at + 1 == lines.len() { b"250 " } else { b"250-" });
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        out
    };
    let starttls = Some(&b"STARTTLS"[..]);
    Lists {
        plain: list(&[auth]),
        starttls: list(&[auth, starttls]),
        starttls_only: list(&[starttls]),
        auth: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::tests::commands;

    #[test]
    fn commands_are_read() {
        for (text, expected) in [
            ("EHLO a.test\r\n", "Ehlo|a.test"),
            ("starttls\r\n", "Starttls"),
            ("MAIL FROM:<a@b>  SIZE=1 \r\n", "Mail|FROM:<a@b>|SIZE=1"),
            ("HELP 1 2 3 4 5 6 7 8 9 10 11\r\n", "Help|1|2|3|4|5|6|7|8|9|10|11"),
            ("HELP 1 2 3 4 5 6 7 8 9 10 11 12\r\n", "invalid"),
            ("DATA\r\n", "invalid"),
            ("START\r\nRSET\r\n", "invalid;Rset"),
            ("VRFY\r\nEXPN\r\nHELP\n", "Vrfy;Expn;Help"),
        ] {
            assert_eq!(commands::<Command>(text, 4096), expected, "{text:?}");
        }
    }

    #[test]
    fn lists_are_composed() {
        let methods = AuthMethods::PLAIN.with(AuthMethods::CRAM_MD5).with(AuthMethods::NONE);
        let show = |text: &[u8]| text.escape_ascii().to_string();
        let some = lists(b"h", &[b"SIZE 1", b"DSN"], methods);
        assert_eq!(
            show(&some.plain),
            r"250-h\r\n250-SIZE 1\r\n250-DSN\r\n250 AUTH PLAIN CRAM-MD5\r\n"
        );
        assert_eq!(
            show(&some.starttls),
            r"250-h\r\n250-SIZE 1\r\n250-DSN\r\n250-AUTH PLAIN CRAM-MD5\r\n250 STARTTLS\r\n"
        );
        assert_eq!(
            show(&some.starttls_only),
            r"250-h\r\n250-SIZE 1\r\n250-DSN\r\n250 STARTTLS\r\n"
        );
        let none = lists(b"h", &[], AuthMethods::NONE);
        assert_eq!(show(&none.plain), r"250 h\r\n");
        assert_eq!(show(&none.starttls), r"250-h\r\n250 STARTTLS\r\n");
        assert_eq!(show(&none.starttls_only), r"250-h\r\n250 STARTTLS\r\n");
        assert_eq!(greeting(b"h"), b"220 h ESMTP ready\r\n");
        assert_eq!(helo(b"h"), b"250 h\r\n");
    }

    #[test]
    fn host_names() {
        assert!(is_host_name(b"a-1.B.test"));
        assert!(!is_host_name(b"") && !is_host_name(b"a_b") && !is_host_name(b"a\r\nb"));
    }
}
