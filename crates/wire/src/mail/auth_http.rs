//! The question that `auth_http` is asked: whether this is the client's name and password, and which
//! server is its.

use super::sasl::Method;
use super::session::Session;
use crate::proxy_protocol::Proxied;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_base::line::one_line;

/// What a request says besides what the client has said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// Of `auth_http`; `/` if it has none.
    pub uri: &'a [u8],
    /// Of `auth_http`, without its port; `localhost` for a Unix socket.
    pub host: &'a [u8],
    pub client_ip: &'a [u8],
    /// SMTP's, or one of its words for none; empty in other protocols.
    pub client_host: &'a [u8],
    pub proxied: Option<&'a Proxied>,
    pub tls: Option<Tls<'a>>,
    /// The lines of `auth_http_header`, as [`header_lines`] makes them.
    pub headers: &'a [u8],
}

/// The client's TLS session; what is empty is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tls<'a> {
    pub protocol: &'a [u8],
    pub cipher: &'a [u8],
    /// `SUCCESS`, `FAILED:…` or `NONE` where certificates are asked for.
    pub verify: &'a [u8],
    pub subject: &'a [u8],
    pub issuer: &'a [u8],
    pub serial: &'a [u8],
    pub fingerprint: &'a [u8],
    /// In PEM, with `auth_http_pass_client_cert`.
    pub certificate: &'a [u8],
}

/// The lines of `auth_http_header`.
pub fn header_lines<'a>(headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in headers {
        push(&mut out, name, &[value]);
    }
    out
}

/// Appends the request for what the session has last asked.
pub fn write_request(session: &Session, facts: &Facts<'_>, out: &mut Vec<u8>) {
    let credentials = &session.credentials;
    let method = credentials.method;
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(facts.uri);
    out.extend_from_slice(b" HTTP/1.0\r\n");
    push(out, b"Host", &[facts.host]);
    push(out, b"Auth-Method", &[method.name().as_bytes()]);
    push_escaped(out, b"Auth-User", &credentials.login);
    push_escaped(out, b"Auth-Pass", credentials.password.as_deref().unwrap_or_default());
    if let Some(salt) = session.salt().filter(|_| method.is_salted()) {
        push(out, b"Auth-Salt", &[salt.text()]);
    }
    push(out, b"Auth-Protocol", &[session.protocol().name().as_bytes()]);
    push_number(out, b"Auth-Login-Attempt", session.attempts);
    push(out, b"Client-IP", &[facts.client_ip]);
    push_some(out, b"Client-Host", facts.client_host);
    if let Some(proxied) = facts.proxied {
        push(out, b"Proxy-Protocol-Addr", &[proxied.source.as_bytes()]);
        push_number(out, b"Proxy-Protocol-Port", proxied.source_port.into());
        push(out, b"Proxy-Protocol-Server-Addr", &[proxied.destination.as_bytes()]);
        push_number(out, b"Proxy-Protocol-Server-Port", proxied.destination_port.into());
    }
    if method == Method::None {
        let envelope = &session.envelope;
        push(out, b"Auth-SMTP-Helo", &[&one_line(&envelope.helo)]);
        push(out, b"Auth-SMTP-From", &[&one_line(&envelope.from)]);
        push(out, b"Auth-SMTP-To", &[&one_line(&envelope.to)]);
    }
    if let Some(tls) = &facts.tls {
        push_tls(out, tls);
    }
    out.extend_from_slice(facts.headers);
    out.extend_from_slice(b"\r\n");
}

fn push_tls(out: &mut Vec<u8>, tls: &Tls<'_>) {
    push(out, b"Auth-SSL", &[b"on"]);
    push_some(out, b"Auth-SSL-Protocol", tls.protocol);
    push_some(out, b"Auth-SSL-Cipher", tls.cipher);
    push_some(out, b"Auth-SSL-Verify", tls.verify);
    push_some(out, b"Auth-SSL-Subject", tls.subject);
    push_some(out, b"Auth-SSL-Issuer", tls.issuer);
    push_some(out, b"Auth-SSL-Serial", tls.serial);
    push_some(out, b"Auth-SSL-Fingerprint", tls.fingerprint);
    if !tls.certificate.is_empty() {
        push_escaped(out, b"Auth-SSL-Cert", tls.certificate);
    }
}

fn push(out: &mut Vec<u8>, name: &[u8], value: &[&[u8]]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    value.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn push_some(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if !value.is_empty() {
        push(out, name, &[&one_line(value)]);
    }
}

fn push_number(out: &mut Vec<u8>, name: &[u8], value: u32) {
    push(out, name, &[value.to_string().as_bytes()]);
}

fn push_escaped(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut text = Vec::with_capacity(value.len());
    escape_uri(&mut text, value, EscapeKind::MailAuth);
    push(out, name, &[&text]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::session::{Settings, Step};
    use crate::mail::{AuthMethods, Protocol};
    use std::sync::Arc;

    fn session(protocol: Protocol, methods: AuthMethods, text: &str) -> Session {
        let settings = Settings::new(protocol, b"h.test", Some(methods), None);
        let mut session = Session::new(Arc::new(settings), 7, 9, false);
        let mut buf = text.as_bytes();
        loop {
            let (len, step) = session.advance(buf);
            buf = &buf[len..];
            match step {
                Step::Reply => {}
                Step::Ask => return session,
                other => panic!("{other:?}"),
            }
        }
    }

    fn request(session: &Session, facts: &Facts<'_>) -> String {
        let mut out = Vec::new();
        write_request(session, facts, &mut out);
        out.escape_ascii().to_string().replace(r"\r\n", "\n")
    }

    const FACTS: Facts<'static> = Facts {
        uri: b"/auth?x",
        host: b"127.0.0.1",
        client_ip: b"192.0.2.1",
        client_host: b"",
        proxied: None,
        tls: None,
        headers: b"",
    };

    #[test]
    fn by_name_and_password() {
        let session =
            session(Protocol::Imap, AuthMethods::PLAIN, "a LOGIN \"a b\" \"100%\té\"\r\n");
        assert_eq!(
            request(&session, &FACTS),
            "GET /auth?x HTTP/1.0\nHost: 127.0.0.1\nAuth-Method: plain\nAuth-User: a%20b\n\
             Auth-Pass: 100%25%09\\xc3\\xa9\nAuth-Protocol: imap\nAuth-Login-Attempt: 1\n\
             Client-IP: 192.0.2.1\n\n"
        );
    }

    #[test]
    fn by_digest() {
        let session = session(Protocol::Pop3, AuthMethods::APOP, "APOP a 0123\r\n");
        assert_eq!(
            request(&session, &Facts { headers: b"X-Key: 1\r\n", ..FACTS }),
            "GET /auth?x HTTP/1.0\nHost: 127.0.0.1\nAuth-Method: apop\nAuth-User: a\n\
             Auth-Pass: 0123\nAuth-Salt: <7.9@h.test>\nAuth-Protocol: pop3\n\
             Auth-Login-Attempt: 1\nClient-IP: 192.0.2.1\nX-Key: 1\n\n"
        );
        // The salt is there, and not for this.
        let session = self::session(Protocol::Pop3, AuthMethods::APOP, "USER a\r\nPASS b\r\n");
        assert!(session.salt().is_some());
        assert!(!request(&session, &FACTS).contains("Salt"));
    }

    #[test]
    fn without_a_name() {
        let text = "HELO a\0b\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\n";
        let session = session(Protocol::Smtp, AuthMethods::NONE, text);
        let proxied = Proxied {
            source: "10.0.0.1".into(),
            destination: "10.0.0.2".into(),
            source_port: 1,
            destination_port: 25,
            tlvs: Vec::new(),
        };
        let facts = Facts { client_host: b"c.test", proxied: Some(&proxied), ..FACTS };
        assert_eq!(
            request(&session, &facts),
            "GET /auth?x HTTP/1.0\nHost: 127.0.0.1\nAuth-Method: none\nAuth-User: \nAuth-Pass: \n\
             Auth-Protocol: smtp\nAuth-Login-Attempt: 1\nClient-IP: 192.0.2.1\n\
             Client-Host: c.test\nProxy-Protocol-Addr: 10.0.0.1\nProxy-Protocol-Port: 1\n\
             Proxy-Protocol-Server-Addr: 10.0.0.2\nProxy-Protocol-Server-Port: 25\n\
             Auth-SMTP-Helo: a b\nAuth-SMTP-From: MAIL FROM:<a>\nAuth-SMTP-To: RCPT TO:<b>\n\n"
        );
    }

    #[test]
    fn over_tls() {
        let session = session(Protocol::Smtp, AuthMethods::EXTERNAL, "AUTH EXTERNAL YQ==\r\n");
        let tls = Tls {
            protocol: b"TLSv1.3",
            cipher: b"TLS_AES_128_GCM_SHA256",
            verify: b"SUCCESS",
            subject: b"CN=a\nb",
            issuer: b"CN=c",
            serial: b"01",
            fingerprint: b"ab",
            certificate: b"-----BEGIN CERTIFICATE-----\nAA==\n",
        };
        let got = request(&session, &Facts { tls: Some(tls), ..FACTS });
        let (_, got) = got.split_once("Client-IP: 192.0.2.1\n").unwrap();
        assert_eq!(
            got,
            "Auth-SSL: on\nAuth-SSL-Protocol: TLSv1.3\nAuth-SSL-Cipher: TLS_AES_128_GCM_SHA256\n\
             Auth-SSL-Verify: SUCCESS\nAuth-SSL-Subject: CN=a b\nAuth-SSL-Issuer: CN=c\n\
             Auth-SSL-Serial: 01\nAuth-SSL-Fingerprint: ab\n\
             Auth-SSL-Cert: -----BEGIN%20CERTIFICATE-----%0AAA==%0A\n\n"
        );
        let got = request(&session, &Facts { tls: Some(Tls::default()), ..FACTS });
        assert!(got.ends_with("Client-IP: 192.0.2.1\nAuth-SSL: on\n\n"));
    }

    #[test]
    fn lines_of_the_configuration() {
        let lines = header_lines([(&b"A"[..], &b"1"[..]), (b"B", b"2 3")]);
        assert_eq!(lines, b"A: 1\r\nB: 2 3\r\n");
    }
}
