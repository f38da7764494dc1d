//! The request that is traced: HTTP/1.1, one answer, whose bytes are thrown away.

use super::Wanted;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::os_text;
use weir_http::trace::FIELD;
use weir_tls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use weir_tls::rustls::crypto::ring;
use weir_tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use weir_tls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};

/// The server may take so long for its next bytes, and for all of them.
const PATIENCE: Duration = Duration::from_secs(60);
/// Behind so many bytes the connection is closed: the server sees its client go.
const ANSWER_MAX_BYTES: u64 = 1 << 30;

/// Where a URL leads.
#[derive(Debug, PartialEq)]
pub struct Target {
    is_secure: bool,
    /// As the `Host` field has it.
    host: String,
    name: String,
    address: String,
    path: String,
}

impl Target {
    /// `to` stands for the address that the URL has.
    pub fn of(url: &str, to: Option<&str>) -> Result<Target, String> {
        let bad = || {
            format!(
                "\"{}\" is no URL: write it as in http://localhost:8080/path",
                url.escape_debug()
            )
        };
        if url.chars().any(|c| c.is_control() || c == ' ') {
            return Err(bad());
        }
        let (is_secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(bad()),
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(at);
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let port = if is_secure { 443 } else { 80 };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, digits)) if !digits.contains(']') => {
                (name, digits.parse::<u16>().map_err(|_| bad())?)
            }
            _ => (host, port),
        };
        if name.is_empty() || name.contains('@') {
            return Err(bad());
        }
        let address = to.map_or_else(|| format!("{name}:{port}"), str::to_string);
        let (host, name) = (host.to_string(), name.trim_matches(['[', ']']).to_string());
        Ok(Target { is_secure, host, name, address, path })
    }

    fn head(&self, wanted: &Wanted, word: &str) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", wanted.method, self.path);
        let has = |name: &str| {
            let names = wanted.fields.iter().filter_map(|field| field.split(':').next());
            names.into_iter().any(|n| n.trim().eq_ignore_ascii_case(name))
        };
        if !has("Host") {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        if !has("User-Agent") {
            head.push_str("User-Agent: weir-trace\r\n");
        }
        wanted.fields.iter().for_each(|field| head.push_str(&format!("{field}\r\n")));
        head.push_str(&format!("{FIELD}: {word}\r\nConnection: close\r\n\r\n"));
        head
    }
}

/// Asks, and reads the answer to its end, if there is one: a server may close instead (444).
pub fn fetch(target: &Target, wanted: &Wanted, word: &str) -> Result<(), String> {
    let failed = |e: io::Error| format!("asking \"{}\" failed ({})", target.address, os_text(&e));
    let addresses = target.address.to_socket_addrs().map_err(|e| {
        format!("{}; --to HOST:PORT says where the server is, if not there", failed(e))
    })?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut found = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                found = Some(stream);
                break;
            }
            Err(e) => last = e,
        }
    }
    let stream = found.ok_or(last).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let head = target.head(wanted, word);
    match target.is_secure {
        false => exchange(stream, &head).map_err(failed),
        true => exchange(secured(target, stream)?, &head).map_err(failed),
    }
}

fn exchange(mut stream: impl Read + Write, head: &str) -> io::Result<()> {
    stream.write_all(head.as_bytes())?;
    stream.flush()?;
    let (end, mut seen, mut buf) = (Instant::now() + PATIENCE, 0, vec![0; 64 * 1024]);
    while seen < ANSWER_MAX_BYTES && Instant::now() < end {
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => seen += n as u64,
            // Without a farewell of TLS, or with a reset: what came of it is told elsewhere.
            Err(e) if seen > 0 && e.kind() != io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn secured(
    target: &Target,
    stream: TcpStream,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let failed =
        |e: &dyn std::fmt::Display| format!("TLS with \"{}\" failed ({e})", target.address);
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(target.name.clone()).map_err(|e| failed(&e))?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(|e| failed(&e))?;
    Ok(StreamOwned::new(session, stream))
}

/// Whose certificate it is does not matter: the word is good at one server alone.
#[derive(Debug)]
struct Any(Arc<weir_tls::rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_somewhere() {
        let of = |url: &str| {
            Target::of(url, None)
                .map(|t| format!("{} {} {} {}", t.is_secure, t.name, t.address, t.path))
        };
        for (url, expected) in [
            ("http://a", "false a a:80 /"),
            ("https://a.b:8443/x?y#z", "true a.b a.b:8443 /x?y"),
            ("http://[::1]:81?q", "false ::1 [::1]:81 /?q"),
            ("http://[::1]/", "false ::1 [::1]:80 /"),
        ] {
            assert_eq!(of(url).as_deref(), Ok(expected), "{url}");
        }
        for url in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http://a:x/",
            "http://a@b/",
            "http://a/\r\nb",
            "http://a b",
        ] {
            assert!(of(url).is_err(), "{url}");
        }
        assert_eq!(Target::of("http://a/", Some("b:1")).unwrap().address, "b:1");
    }
}
