//! Certificates in a TLS 1.3 handshake, compressed (RFC 8879).

use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::compress::{CertDecompressor, DecompressionFailed, ZLIB_DECOMPRESSOR};
use rustls::CertificateCompressionAlgorithm;
use weir_tests::tls::{self, Tls};
use weir_tests::Setup;

/// Reads zlib and counts how often it had to.
#[derive(Debug)]
struct Counted;

static COUNT: AtomicUsize = AtomicUsize::new(0);

impl CertDecompressor for Counted {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        COUNT.fetch_add(1, Ordering::Relaxed);
        ZLIB_DECOMPRESSOR.decompress(input, output)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        ZLIB_DECOMPRESSOR.algorithm()
    }
}

#[test]
fn certificates_are_compressed_where_it_is_on() {
    let pair = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            ssl_session_tickets off; ssl_certificate_compression on;
            server { listen 127.0.0.1:%%PORT_0%% ssl; location / { return 200 on; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate_compression off;
                location / { return 200 off; } } }",
    )
    .file("a.crt", &pair.cert)
    .file("a.key", &pair.key)
    .start();
    let client = Tls::default().decompressing(&[&Counted]);
    for (port, text, count) in [(0, "on", 1), (0, "on", 2), (1, "off", 2)] {
        let conn = client.connect(server.port(port), "localhost").unwrap();
        assert!(conn.shows(&pair), "{text}");
        assert_eq!(conn.get("localhost", "/").text(), text);
        assert_eq!(COUNT.load(Ordering::Relaxed), count, "{text}");
    }
    // A client that does not ask for it gets the plain certificate.
    let plain = Tls::default().decompressing(&[]);
    assert!(plain.connect(server.port(0), "localhost").unwrap().shows(&pair));
}
