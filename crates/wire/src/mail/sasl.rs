//! How clients say who they are: SASL's PLAIN (RFC 4616), LOGIN, CRAM-MD5 (RFC 2195) and EXTERNAL
//! (RFC 4422, appendix A), and POP3's APOP (RFC 1939, section 7).
//!
//! Nothing is checked here: whoever answers `auth_http` is given name and password, or what a client
//! has made of its password and the salt. nginx has no other mechanisms.

use super::{AuthMethods, Notice};
use weir_base::base64;
use weir_base::bytes::split_once;

/// What a client has to make its answer with: sent in POP3's greeting and as CRAM-MD5's challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salt(Vec<u8>);

impl Salt {
    pub fn new(random: u32, now_secs: u64, server_name: &[u8]) -> Salt {
        let mut text = format!("<{random}.{now_secs}@").into_bytes();
        text.extend_from_slice(server_name);
        text.push(b'>');
        Salt(text)
    }

    pub fn text(&self) -> &[u8] {
        &self.0
    }

    /// CRAM-MD5's challenge, behind the protocol's word for a continuation.
    pub fn challenge(&self, prefix: &[u8]) -> Vec<u8> {
        let mut out = prefix.to_vec();
        base64::encode(&mut out, &self.0);
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// How a client has said who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By name and password, however they came.
    #[default]
    Plain,
    Apop,
    CramMd5,
    External,
    /// Not at all: `smtp_auth none`.
    None,
}

impl Method {
    /// As `Auth-Method` says it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Plain => "plain",
            Method::Apop => "apop",
            Method::CramMd5 => "cram-md5",
            Method::External => "external",
            Method::None => "none",
        }
    }

    /// The password is a digest that a server has no use for.
    pub fn is_salted(self) -> bool {
        matches!(self, Method::Apop | Method::CramMd5)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub method: Method,
    pub login: Vec<u8>,
    /// `None` if none was given, which is not the same as an empty one.
    pub password: Option<Vec<u8>>,
}

/// What is waited for in the course of a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    LoginName,
    LoginPassword { login: Vec<u8> },
    Plain,
    CramMd5,
    External,
}

/// What a client has to be told, or what it has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    Ask(Wait),
    Done(Credentials),
    Invalid(Option<Notice>),
}

/// Begins with AUTH's or AUTHENTICATE's arguments. As in nginx PLAIN and LOGIN may be used wherever
/// there is AUTH, offered or not. Unlike there EXTERNAL has to be offered, also to be used at once.
pub fn begin(args: &[&[u8]], methods: AuthMethods) -> Turn {
    let Some((name, initial)) = args.split_first() else { return Turn::Invalid(None) };
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let wait = match initial {
        [] | [_] if is("PLAIN") => Wait::Plain,
        [] | [_] if is("LOGIN") => Wait::LoginName,
        [] if is("CRAM-MD5") && methods.has(AuthMethods::CRAM_MD5) => Wait::CramMd5,
        [] | [_] if is("EXTERNAL") && methods.has(AuthMethods::EXTERNAL) => Wait::External,
        _ => return Turn::Invalid(None),
    };
    match initial.first() {
        None => Turn::Ask(wait),
        Some(text) => go_on(wait, text),
    }
}

/// Goes on with what a client has answered.
pub fn go_on(wait: Wait, text: &[u8]) -> Turn {
    let name = match wait {
        Wait::Plain => "PLAIN",
        Wait::LoginName | Wait::LoginPassword { .. } => "LOGIN",
        Wait::CramMd5 => "CRAM-MD5",
        Wait::External => "EXTERNAL",
    };
    let Some(text) = base64::decode(text) else {
        return Turn::Invalid(Some(Notice::InvalidBase64(name)));
    };
    let done = |method, login: &[u8], password: Option<&[u8]>| {
        let (login, password) = (login.to_vec(), password.map(<[u8]>::to_vec));
        Turn::Done(Credentials { method, login, password })
    };
    match wait {
        Wait::Plain => plain(&text),
        Wait::LoginName => Turn::Ask(Wait::LoginPassword { login: text }),
        Wait::LoginPassword { login } => done(Method::Plain, &login, Some(&text)),
        Wait::External => done(Method::External, &text, None),
        Wait::CramMd5 => {
            const DIGEST_BYTES: usize = 32;
            match split_once(&text, b' ') {
                Some((login, digest)) if digest.len() == DIGEST_BYTES => {
                    done(Method::CramMd5, login, Some(digest))
                }
                _ => Turn::Invalid(Some(Notice::InvalidDigest)),
            }
        }
    }
}

/// Whom to act as, which is ignored, name and password, with zeros between them.
fn plain(text: &[u8]) -> Turn {
    let rest = split_once(text, 0).map(|(_act_as, rest)| rest).filter(|rest| !rest.is_empty());
    let Some(rest) = rest else { return Turn::Invalid(Some(Notice::InvalidLogin)) };
    let Some((login, password)) = split_once(rest, 0) else {
        return Turn::Invalid(Some(Notice::InvalidPassword));
    };
    let (login, password) = (login.to_vec(), Some(password.to_vec()));
    Turn::Done(Credentials { method: Method::Plain, login, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AuthMethods = AuthMethods::CRAM_MD5.with(AuthMethods::EXTERNAL);

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        base64::encode(&mut out, text);
        out
    }

    fn credentials(method: Method, login: &str, password: Option<&str>) -> Turn {
        let password = password.map(|p| p.as_bytes().to_vec());
        Turn::Done(Credentials { method, login: login.as_bytes().to_vec(), password })
    }

    #[test]
    fn mechanisms_begin() {
        for (args, expected) in [
            (&["plain"][..], Turn::Ask(Wait::Plain)),
            (&["LOGIN"], Turn::Ask(Wait::LoginName)),
            (&["Cram-MD5"], Turn::Ask(Wait::CramMd5)),
            (&["EXTERNAL"], Turn::Ask(Wait::External)),
            (&["PLAIN", "AGEAYg=="], credentials(Method::Plain, "a", Some("b"))),
            (&["LOGIN", "YQ=="], Turn::Ask(Wait::LoginPassword { login: b"a".to_vec() })),
            (&["EXTERNAL", "YQ=="], credentials(Method::External, "a", None)),
            (&["CRAM-MD5", "YQ=="], Turn::Invalid(None)),
            (&["PLAIN", "AGEAYg==", "x"], Turn::Invalid(None)),
            (&["XOAUTH2"], Turn::Invalid(None)),
            (&["XOAUTH2", "YQ=="], Turn::Invalid(None)),
            (&[], Turn::Invalid(None)),
        ] {
            let args: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
            assert_eq!(begin(&args, ALL), expected, "{args:?}");
        }
        for args in [&[&b"CRAM-MD5"[..]][..], &[b"EXTERNAL"], &[b"EXTERNAL", b"YQ=="]] {
            assert_eq!(begin(args, AuthMethods::PLAIN), Turn::Invalid(None));
        }
    }

    #[test]
    fn plain_texts() {
        let invalid = |notice| Turn::Invalid(Some(notice));
        for (text, expected) in [
            (&b"\0a\0b"[..], credentials(Method::Plain, "a", Some("b"))),
            (b"me\0a\0", credentials(Method::Plain, "a", Some(""))),
            (b"\0\0", credentials(Method::Plain, "", Some(""))),
            (b"\0a\0b\0c", credentials(Method::Plain, "a", Some("b\0c"))),
            (b"", invalid(Notice::InvalidLogin)),
            (b"a", invalid(Notice::InvalidLogin)),
            (b"a\0", invalid(Notice::InvalidLogin)),
            (b"\0a", invalid(Notice::InvalidPassword)),
        ] {
            assert_eq!(go_on(Wait::Plain, &encoded(text)), expected, "{text:?}");
        }
        let bad = Turn::Invalid(Some(Notice::InvalidBase64("PLAIN")));
        for text in [&b"A"[..], b"A*==", b"AGEA Yg=="] {
            assert_eq!(go_on(Wait::Plain, text), bad);
        }
        // What stands behind the first "=" is not looked at.
        assert_eq!(go_on(Wait::Plain, b"AGEAYg=*"), credentials(Method::Plain, "a", Some("b")));
    }

    #[test]
    fn the_others() {
        let login = Wait::LoginPassword { login: b"a".to_vec() };
        assert_eq!(go_on(Wait::LoginName, b"YQ"), Turn::Ask(login.clone()));
        assert_eq!(go_on(login, b""), credentials(Method::Plain, "a", Some("")));
        assert_eq!(go_on(Wait::External, b""), credentials(Method::External, "", None));
        let digest = "0123456789abcdef0123456789abcdef";
        let good = encoded(format!("a {digest}").as_bytes());
        assert_eq!(go_on(Wait::CramMd5, &good), credentials(Method::CramMd5, "a", Some(digest)));
        for text in [&b"a"[..], b"a b", digest.as_bytes(), b"a  0123456789abcdef0123456789abcdef"] {
            let bad = go_on(Wait::CramMd5, &encoded(text));
            assert_eq!(bad, Turn::Invalid(Some(Notice::InvalidDigest)), "{text:?}");
        }
    }

    #[test]
    fn salts() {
        let salt = Salt::new(7, 1_700_000_000, b"mail.test");
        assert_eq!(salt.text(), b"<7.1700000000@mail.test>");
        assert_eq!(salt.challenge(b"+ "), b"+ PDcuMTcwMDAwMDAwMEBtYWlsLnRlc3Q+\r\n");
    }
}
