//! Certificates made by the tests, and a client that speaks TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pkcs8::pkcs5::pbes2::Parameters;
use pkcs8::PrivateKeyInfoRef;
use rcgen::{
    date_time_ymd, BasicConstraints, CertificateParams, CertificateRevocationListParams,
    CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Resumption};
use rustls::compress::CertDecompressor;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use rustls::{HandshakeKind, SupportedProtocolVersion};

use crate::client::Client;
use crate::ocsp::{self, Signer};
use crate::{Response, PATIENCE};

/// A certificate and its key as PEM text.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Pair {
    /// The key alone, in DER.
    pub fn key_der(&self) -> Vec<u8> {
        KeyPair::from_pem(&self.key).unwrap().serialize_der()
    }

    /// The same with a key that needs a password.
    pub fn locked(&self, password: &str) -> Pair {
        let plain = KeyPair::from_pem(&self.key).unwrap().serialize_der();
        let how = Parameters::generate_pbkdf2_sha256_aes128cbc(2048, b"8 bytes!", [7; 16]).unwrap();
        let info = PrivateKeyInfoRef::try_from(&plain[..]).unwrap();
        let locked = info.encrypt_with_params(how, password).unwrap();
        let mut text = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n".to_vec();
        for line in locked.as_bytes().chunks(48) {
            weir_base::base64::encode(&mut text, line);
            text.push(b'\n');
        }
        text.extend_from_slice(b"-----END ENCRYPTED PRIVATE KEY-----\n");
        Pair { cert: self.cert.clone(), key: String::from_utf8(text).unwrap() }
    }
}

/// Who issues certificates.
pub struct Authority {
    pub cert: String,
    issuer: Issuer<'static, KeyPair>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn naming_responder(name: &str, url: &str) -> CertificateParams {
    let mut params = params(name);
    let method = ocsp::der(6, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 1]]);
    let one = ocsp::der(0x30, &[&method, &ocsp::der(0x86, &[url.as_bytes()])]);
    let list = ocsp::der(0x30, &[&one]);
    let id = [1, 3, 6, 1, 5, 5, 7, 1, 1];
    params.custom_extensions = vec![CustomExtension::from_oid_content(&id, list)];
    params
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    pub fn issue(&self, name: &str) -> Pair {
        self.sign(params(name))
    }

    /// A certificate whose time is over.
    pub fn issue_expired(&self, name: &str) -> Pair {
        let mut params = params(name);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(params)
    }

    pub fn issue_numbered(&self, name: &str, number: u64) -> Pair {
        let mut params = params(name);
        params.serial_number = Some(SerialNumber::from(number));
        self.sign(params)
    }

    /// A list that revokes the certificate of a number.
    pub fn revoking(&self, number: u64) -> String {
        let at = date_time_ymd(2020, 1, 1);
        let one = RevokedCertParams {
            serial_number: SerialNumber::from(number),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at,
            next_update: date_time_ymd(2048, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![one],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A certificate of about so many bytes.
    pub fn issue_large(&self, name: &str, bytes: usize) -> Pair {
        let mut params = params(name);
        let id = [1, 3, 6, 1, 4, 1, 99999, 1];
        params.custom_extensions = vec![CustomExtension::from_oid_content(&id, vec![5; bytes])];
        self.sign(params)
    }

    /// A certificate that names the responder to ask about it.
    pub fn issue_asked(&self, name: &str, url: &str) -> Pair {
        self.sign(naming_responder(name, url))
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { cert, key: key.serialize_pem() }
    }

    /// An authority below this one, whose certificate names a responder.
    pub fn lower(&self, name: &str, url: &str) -> Authority {
        let mut params = naming_responder(name, url);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    /// Its own key, for answers of a responder.
    pub fn signer(&self) -> Signer {
        let cert = CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap().to_vec();
        Signer { cert, key: KeyPair::try_from(self.issuer.key().serialize_der()).unwrap() }
    }

    /// Somebody with a certificate of this authority, who may sign its responder's answers or not.
    pub fn helper(&self, may_sign: bool) -> Signer {
        let mut params = params("helper");
        if may_sign {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        }
        let key = KeyPair::generate().unwrap();
        Signer { cert: params.signed_by(&key, &self.issuer).unwrap().der().to_vec(), key }
    }
}

/// A certificate that vouches for itself.
pub fn self_signed(name: &str) -> Pair {
    let key = KeyPair::generate().unwrap();
    let cert = params(name).self_signed(&key).unwrap().pem();
    Pair { cert, key: key.serialize_pem() }
}

/// How a client speaks TLS; sessions are remembered from one connection to the next.
pub struct Tls {
    config: ClientConfig,
    seen: Arc<Any>,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls::showing(None)
    }
}

impl Tls {
    /// A client that shows a certificate when asked for one.
    pub fn showing(pair: Option<&Pair>) -> Tls {
        Tls::speaking(rustls::DEFAULT_VERSIONS, pair)
    }

    /// A client that speaks these versions alone.
    pub fn speaking(versions: &[&'static SupportedProtocolVersion], pair: Option<&Pair>) -> Tls {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let seen = Arc::new(Any { provider: Arc::clone(&provider), stapled: Mutex::default() });
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(seen.clone());
        let config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes());
                let chain = chain.map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Tls { config, seen }
    }

    /// How the client reads compressed certificates; in no way, if the list is empty.
    pub fn decompressing(mut self, how: &[&'static dyn CertDecompressor]) -> Tls {
        self.config.cert_decompressors = how.to_vec();
        self
    }

    /// The hello names nobody.
    pub fn nameless(mut self) -> Tls {
        self.config.enable_sni = false;
        self
    }

    pub fn offers_sessions_to_all(mut self) -> Tls {
        let store = Arc::new(AnyName(ClientSessionMemoryCache::new(32)));
        self.config.resumption = Resumption::store(store);
        self
    }

    /// The same client, its sessions too, whose hello names nobody.
    pub fn but_nameless(&self) -> Tls {
        Tls { config: self.config.clone(), seen: Arc::clone(&self.seen) }.nameless()
    }

    pub fn offering(mut self, protocols: &[&str]) -> Tls {
        self.config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        self
    }

    /// What it speaks by, for a test that moves the bytes itself.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::new(self.config.clone())
    }

    /// A connection whose handshake is done, or what went wrong.
    pub fn connect(&self, port: u16, name: &str) -> Result<TlsConn, std::io::Error> {
        let tcp = TcpStream::connect(("127.0.0.1", port))?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        // What is sent is there before what is sent on another connection.
        tcp.set_nodelay(true)?;
        self.connect_on(tcp, name)
    }

    /// The same on a connection that is there.
    pub fn connect_on(&self, tcp: TcpStream, name: &str) -> Result<TlsConn, std::io::Error> {
        self.connect_telling(tcp, name, || ())
    }

    /// The same, telling when the hello has been sent.
    pub fn connect_telling(
        &self,
        tcp: TcpStream,
        name: &str,
        said: impl FnOnce(),
    ) -> Result<TlsConn, std::io::Error> {
        let server = ServerName::try_from(name.to_string()).unwrap();
        let conn = ClientConnection::new(Arc::new(self.config.clone()), server).unwrap();
        let mut stream = StreamOwned::new(conn, tcp);
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut stream.sock)?;
        }
        said();
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(TlsConn(stream))
    }

    /// The responder's answer that comes with the server's certificate; empty without one.
    #[track_caller]
    pub fn stapled(&self, port: u16, name: &str) -> Vec<u8> {
        self.connect(port, name).expect("a handshake");
        std::mem::take(&mut self.seen.stapled.lock().unwrap())
    }

    /// GET on a connection of its own, for the name that is asked for.
    #[track_caller]
    pub fn get(&self, port: u16, name: &str, path: &str) -> Response {
        self.get_host(port, name, name, path)
    }

    /// GET for another host than the name that is asked for.
    #[track_caller]
    pub fn get_host(&self, port: u16, name: &str, host: &str, path: &str) -> Response {
        self.connect(port, name).expect("a handshake").get(host, path)
    }
}

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A connection with TLS.
pub struct TlsConn(TlsStream);

impl TlsConn {
    /// To be spoken to in bytes.
    pub fn into_client(self) -> Client {
        self.0.into()
    }

    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    #[track_caller]
    pub fn get(mut self, host: &str, path: &str) -> Response {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        self.send(head.as_bytes());
        let answer = self.read_to_end();
        Response::parse_all(&answer, "GET").expect("a response")
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).and_then(|()| self.0.flush());
    }

    /// Ends the session's own half with `close_notify`; the connection stays.
    pub fn end_session(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
    }

    /// Sends zeros outside of the session until the other side takes no more, or so many.
    pub fn fill(&mut self, most: usize) -> usize {
        self.0.sock.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut sent = 0;
        while let Ok(n @ 1..) = self.0.sock.write(&[0; 65536]) {
            sent += n;
            if sent >= most {
                break;
            }
        }
        sent
    }

    /// Everything until the other side closes.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let _ = self.0.read_to_end(&mut all);
        all
    }

    /// The server's own certificate, in DER.
    pub fn certificate(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().and_then(|c| c.first()).map(|c| c.to_vec()).unwrap()
    }

    /// Whether the certificate is the one of this pair.
    pub fn shows(&self, pair: &Pair) -> bool {
        self.certificate() == CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap().to_vec()
    }

    pub fn protocol(&self) -> Option<String> {
        self.0.conn.alpn_protocol().map(|p| String::from_utf8_lossy(p).into_owned())
    }
}

/// Sessions that are offered to every server, whichever they were made with.
#[derive(Debug)]
struct AnyName(ClientSessionMemoryCache);

fn nobody() -> ServerName<'static> {
    ServerName::try_from("nobody").unwrap()
}

impl ClientSessionStore for AnyName {
    fn set_kx_hint(&self, _: ServerName<'static>, group: rustls::NamedGroup) {
        self.0.set_kx_hint(nobody(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<rustls::NamedGroup> {
        self.0.kx_hint(&nobody())
    }

    fn set_tls12_session(
        &self,
        _: ServerName<'static>,
        value: rustls::client::Tls12ClientSessionValue,
    ) {
        self.0.set_tls12_session(nobody(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<rustls::client::Tls12ClientSessionValue> {
        self.0.tls12_session(&nobody())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&nobody());
    }

    fn insert_tls13_ticket(
        &self,
        _: ServerName<'static>,
        value: rustls::client::Tls13ClientSessionValue,
    ) {
        self.0.insert_tls13_ticket(nobody(), value);
    }

    fn take_tls13_ticket(
        &self,
        _: &ServerName<'static>,
    ) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&nobody())
    }
}

/// Takes any certificate: what is shown is for the tests to look at.
#[derive(Debug)]
struct Any {
    provider: Arc<CryptoProvider>,
    /// The responder's answer that came with the last certificate.
    stapled: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        stapled: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.stapled.lock().unwrap() = stapled.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
