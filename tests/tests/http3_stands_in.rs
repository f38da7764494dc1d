//! A configuration with HTTP/3 is served without it, and says so.

use weir_tests::{run_cli, skip, tls, Setup};

const CONF: &str = "events {} http { access_log off; http3 on; quic_gso on; quic_retry off; http3_hq off;
    http3_max_concurrent_streams 64; http3_stream_buffer_size 32k; quic_active_connection_id_limit 4;
    quic_host_key %%DIR%%/host.key; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
    server { listen 127.0.0.1:%%PORT_0%% ssl; listen 127.0.0.1:%%PORT_0%% quic reuseport; http2 on;
        return 200 '[$http3]$server_port'; } }";

#[test]
fn it_is_served_by_what_there_is() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("it has HTTP/3, where it was built with it");
    }
    let pair = tls::self_signed("localhost");
    let setup = Setup::new(CONF).file("a.crt", pair.cert).file("a.key", pair.key);
    let server = setup.start();
    let answer = tls::Tls::default().get(server.port(0), "localhost", "/");
    assert_eq!(answer.text(), format!("[]{}", server.port(0)));
    let log = server.error_log();
    for text in [
        "\"http3\" has no effect: this version of Weir has no HTTP/3 yet",
        "\"quic_gso\" has no effect",
        "no HTTP/3 yet: the address is left out",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
    assert!(!log.contains("quic_retry"), "{log}");
}

#[test]
fn a_server_that_would_listen_nowhere_is_refused() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("it has HTTP/3, where it was built with it");
    }
    let conf = "events {} http { server { listen 127.0.0.1:8443 quic; } }";
    let said = run_cli(&["-t"], conf);
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("listens by QUIC alone"), "{}", said.stderr);
    assert!(said.stderr.contains("listen 443 ssl"), "{}", said.stderr);
}
