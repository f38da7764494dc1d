//! Headers that are put in front of a connection to a server, as nginx's `proxy_protocol` writes them.
//!
//! Version 2 always ends with its checksum, and names the server, the protocol and the session where
//! the client came by TLS (HAProxy's proxy-protocol.txt, section 2.2).

use super::{MAX_BYTES, SIGNATURE, V2_FIXED};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_base::crc32c::crc32c;

/// Appends a version 1 header; `None` for clients that have no IP address.
pub fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    let Some((source, destination)) = addresses else {
        out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let line = format!(
        "PROXY {family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    );
    out.extend_from_slice(line.as_bytes());
}

/// How the client came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Stream,
    Datagram,
}

/// What version 2 says of a client's TLS session; what is empty is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsFacts<'a> {
    /// The name that the client asked for.
    pub server_name: &'a [u8],
    /// The protocol that was agreed on.
    pub alpn: &'a [u8],
    /// As OpenSSL says it: `TLSv1.3`.
    pub version: &'a [u8],
    pub cipher: &'a [u8],
    /// Of our certificate: the algorithm that it is signed with, `ecdsa-with-SHA256`.
    pub signature_algorithm: &'a [u8],
    /// Of our certificate: kind and bits of its key, `RSA2048`.
    pub key_algorithm: &'a [u8],
    pub client_certificate: Option<ClientCertificate<'a>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCertificate<'a> {
    pub common_name: &'a [u8],
    /// It was shown on an earlier connection of a session that is resumed.
    pub resumed: bool,
    /// OpenSSL's number for the verdict; 0 if it is good.
    pub verdict: u32,
}

/// The header would be longer than [`MAX_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

const ALPN: u8 = 0x01;
const AUTHORITY: u8 = 0x02;
const CRC32C: u8 = 0x03;
const SSL: u8 = 0x20;
const SSL_VERSION: u8 = 0x21;
const SSL_CN: u8 = 0x22;
const SSL_CIPHER: u8 = 0x23;
const SSL_SIG_ALG: u8 = 0x24;
const SSL_KEY_ALG: u8 = 0x25;

/// By TLS; with a certificate on this connection; with one in this session.
const CLIENT_SSL: u8 = 1;
const CLIENT_CERT_CONN: u8 = 2;
const CLIENT_CERT_SESS: u8 = 4;
/// `verify` of a client without a certificate, which must not be 0: OpenSSL's "unspecified".
const NOT_VERIFIED: u32 = 1;

/// Appends a version 2 header; `addresses` is `None` for clients that have no IP address. Nothing is
/// appended upon an error.
pub fn write_v2(
    addresses: Option<(SocketAddr, SocketAddr)>,
    transport: Transport,
    tls: Option<&TlsFacts<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    write_addresses(addresses, transport, out);
    if let Some(tls) = tls {
        write_tls(tls, out);
    }
    write_tlv(CRC32C, &[0; 4], out);
    let header = &mut out[start..];
    if header.len() > MAX_BYTES {
        out.truncate(start);
        return Err(TooLong);
    }
    let [high, low] = ((header.len() - V2_FIXED) as u16).to_be_bytes();
    header[V2_FIXED - 2] = high;
    header[V2_FIXED - 1] = low;
    // It is taken of the whole header with zeros in its own place.
    let crc = crc32c(header).to_be_bytes();
    if let Some(value) = header.last_chunk_mut::<4>() {
        *value = crc;
    }
    Ok(())
}

/// Command, family and addresses, with room for the length.
fn write_addresses(
    addresses: Option<(SocketAddr, SocketAddr)>,
    transport: Transport,
    out: &mut Vec<u8>,
) {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    let Some((source, destination)) = addresses else {
        out.extend_from_slice(&[LOCAL, 0, 0, 0]);
        return;
    };
    let transport = match transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    match v4_pair(source.ip(), destination.ip()) {
        Some((from, to)) => {
            out.extend_from_slice(&[PROXY, 0x10 | transport, 0, 0]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        None => {
            out.extend_from_slice(&[PROXY, 0x20 | transport, 0, 0]);
            out.extend_from_slice(&v6(source.ip()).octets());
            out.extend_from_slice(&v6(destination.ip()).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Both are of version 4, written so or both mapped; one of each kind is sent as version 6.
fn v4_pair(source: IpAddr, destination: IpAddr) -> Option<(Ipv4Addr, Ipv4Addr)> {
    match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Some((from, to)),
        (IpAddr::V6(from), IpAddr::V6(to)) => from.to_ipv4_mapped().zip(to.to_ipv4_mapped()),
        _ => None,
    }
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn write_tls(tls: &TlsFacts<'_>, out: &mut Vec<u8>) {
    write_some(AUTHORITY, tls.server_name, out);
    write_some(ALPN, tls.alpn, out);
    let (mut client, mut verdict, mut common_name) = (CLIENT_SSL, NOT_VERIFIED, &b""[..]);
    if let Some(certificate) = &tls.client_certificate {
        client |= CLIENT_CERT_SESS;
        if !certificate.resumed {
            client |= CLIENT_CERT_CONN;
        }
        (verdict, common_name) = (certificate.verdict, certificate.common_name);
    }
    let mut ssl = vec![client];
    ssl.extend_from_slice(&verdict.to_be_bytes());
    write_some(SSL_VERSION, tls.version, &mut ssl);
    write_some(SSL_CN, common_name, &mut ssl);
    write_some(SSL_CIPHER, tls.cipher, &mut ssl);
    write_some(SSL_SIG_ALG, tls.signature_algorithm, &mut ssl);
    write_some(SSL_KEY_ALG, tls.key_algorithm, &mut ssl);
    write_tlv(SSL, &ssl, out);
}

fn write_some(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        write_tlv(kind, value, out);
    }
}

/// A length that does not fit makes the header too long, which is found at its end.
fn write_tlv(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    let [high, low] = u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes();
    out.extend_from_slice(&[kind, high, low]);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::super::{parse, tlv, Parsed, Proxied};
    use super::*;

    fn pair(source: &str, destination: &str) -> Option<(SocketAddr, SocketAddr)> {
        Some((source.parse().unwrap(), destination.parse().unwrap()))
    }

    fn read(header: &[u8]) -> Option<Proxied> {
        match parse(header) {
            Ok(Parsed::Header { len, client }) if len == header.len() => client,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn version_1_is_read_back() {
        let mut out = Vec::new();
        write_v1(pair("10.0.0.1:1000", "10.0.0.2:80"), &mut out);
        assert_eq!(out, b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 80\r\n");
        out.clear();
        write_v1(pair("[2001:db8::1]:1", "[::1]:65535"), &mut out);
        assert_eq!(out, b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n");
        assert!(read(&out).is_some());
        out.clear();
        write_v1(None, &mut out);
        assert_eq!(read(&out), None);
        assert_eq!(out, b"PROXY UNKNOWN\r\n");
    }

    #[test]
    fn version_2_families() {
        for (source, destination, family, from, to) in [
            ("10.0.0.1:1000", "10.0.0.2:80", 0x11, "10.0.0.1", "10.0.0.2"),
            ("[::1]:1000", "[::2]:80", 0x21, "::1", "::2"),
            ("[::ffff:10.0.0.1]:1000", "[::ffff:10.0.0.2]:80", 0x11, "10.0.0.1", "10.0.0.2"),
            ("10.0.0.1:1000", "[::2]:80", 0x21, "::ffff:10.0.0.1", "::2"),
            ("[::1]:1000", "10.0.0.2:80", 0x21, "::1", "::ffff:10.0.0.2"),
        ] {
            let mut out = b"kept".to_vec();
            write_v2(pair(source, destination), Transport::Stream, None, &mut out).unwrap();
            let header = out.strip_prefix(b"kept").unwrap();
            assert_eq!(header[12..14], [0x21, family], "{source} {destination}");
            let client = read(header).unwrap();
            assert_eq!((client.source.as_str(), client.destination.as_str()), (from, to));
            assert_eq!((client.source_port, client.destination_port), (1000, 80));
        }
        let mut out = Vec::new();
        write_v2(pair("10.0.0.1:1", "10.0.0.2:2"), Transport::Datagram, None, &mut out).unwrap();
        assert_eq!(out[13], 0x12);
        out.clear();
        write_v2(None, Transport::Stream, None, &mut out).unwrap();
        assert_eq!(out[12..19], [0x20, 0, 0, 7, 3, 0, 4]);
        assert_eq!(read(&out), None);
    }

    /// What nginx 1.31 has sent.
    #[test]
    fn the_same_bytes_as_nginx() {
        let facts = TlsFacts {
            server_name: b"a.test",
            alpn: b"imap",
            version: b"TLSv1.3",
            cipher: b"TLS_AES_256_GCM_SHA384",
            signature_algorithm: b"ecdsa-with-SHA256",
            key_algorithm: b"EC256",
            client_certificate: Some(ClientCertificate {
                common_name: b"cl",
                resumed: false,
                verdict: 0,
            }),
        };
        for (addresses, tls, bytes) in [
            (
                pair("127.0.0.1:47704", "127.0.0.1:46137"),
                None,
                "211100137f0000017f000001ba58b439030004a54f3fab",
            ),
            (
                pair("[::1]:34364", "[::1]:46137"),
                None,
                "2121002b00000000000000000000000000000001000000000000000000000000\
                 00000001863cb439030004f6f5bbaa",
            ),
            (None, None, "20000007030004a9b87e8f"),
            (
                pair("127.0.0.1:53306", "127.0.0.1:53055"),
                Some(&facts),
                "2111006f7f0000017f000001d03acf3f020006612e74657374010004696d6170\
                 2000490700000000210007544c5376312e33220002636c230016544c535f4145\
                 535f3235365f47434d5f53484133383424001165636473612d776974682d5348\
                 413235362500054543323536030004aea67cbc",
            ),
        ] {
            let mut out = Vec::new();
            write_v2(addresses, Transport::Stream, tls, &mut out).unwrap();
            let mut hex = Vec::new();
            weir_base::bytes::push_hex(&mut hex, out.strip_prefix(SIGNATURE).unwrap());
            assert_eq!(String::from_utf8(hex).unwrap(), bytes);
        }
    }

    /// A checksum of the header with zeros in its place.
    #[test]
    fn the_checksum_is_right() {
        let mut out = Vec::new();
        write_v2(pair("10.0.0.1:1000", "10.0.0.2:80"), Transport::Stream, None, &mut out).unwrap();
        let (rest, crc) = out.split_last_chunk::<4>().unwrap();
        let mut zeroed = rest.to_vec();
        zeroed.extend_from_slice(&[0; 4]);
        assert_eq!(u32::from_be_bytes(*crc), crc32c(&zeroed));
        assert_eq!(tlv(&read(&out).unwrap().tlvs, "0x03"), Ok(Some(crc.to_vec())));
    }

    #[test]
    fn what_is_said_of_tls() {
        let certificate = ClientCertificate { common_name: b"me", resumed: false, verdict: 0 };
        let facts = TlsFacts {
            server_name: b"a.test",
            alpn: b"imap",
            version: b"TLSv1.3",
            cipher: b"TLS_AES_128_GCM_SHA256",
            signature_algorithm: b"ecdsa-with-SHA256",
            key_algorithm: b"EC256",
            client_certificate: Some(certificate),
        };
        let write = |facts: &TlsFacts<'_>| {
            let mut out = Vec::new();
            let addresses = pair("10.0.0.1:1000", "10.0.0.2:80");
            write_v2(addresses, Transport::Stream, Some(facts), &mut out).map(|()| out)
        };
        let tlvs = read(&write(&facts).unwrap()).unwrap().tlvs;
        for (name, value) in [
            ("authority", "a.test"),
            ("alpn", "imap"),
            ("ssl_version", "TLSv1.3"),
            ("ssl_cn", "me"),
            ("ssl_cipher", "TLS_AES_128_GCM_SHA256"),
            ("ssl_sig_alg", "ecdsa-with-SHA256"),
            ("ssl_key_alg", "EC256"),
            ("ssl_verify", "0"),
        ] {
            assert_eq!(tlv(&tlvs, name), Ok(Some(value.as_bytes().to_vec())), "{name}");
        }
        let client = |facts: &TlsFacts<'_>| {
            let tlvs = read(&write(facts).unwrap()).unwrap().tlvs;
            let verify = tlv(&tlvs, "ssl_verify").unwrap().unwrap();
            (tlv(&tlvs, "ssl").unwrap().unwrap()[0], String::from_utf8(verify).unwrap())
        };
        assert_eq!(client(&facts), (7, "0".into()));
        let resumed = ClientCertificate { resumed: true, verdict: 18, ..certificate };
        assert_eq!(
            client(&TlsFacts { client_certificate: Some(resumed), ..facts }),
            (5, "18".into())
        );
        assert_eq!(client(&TlsFacts { client_certificate: None, ..facts }), (1, "1".into()));
        let name = vec![b'a'; 5000];
        assert_eq!(write(&TlsFacts { server_name: &name, ..facts }), Err(TooLong));
        let name = vec![b'a'; 70_000];
        assert_eq!(write(&TlsFacts { alpn: &name, ..facts }), Err(TooLong));
    }
}
