//! HTTP/2 under h2load: many streams on few connections, also while the server is reloaded.

use std::sync::atomic::{AtomicBool, Ordering};
use weir_tests::tls::{self, Pair};
use weir_tests::tools::{self, Tool};
use weir_tests::{CliOutput, Server, Setup, Signal};

fn site() -> Server {
    let Pair { cert, key } = tls::self_signed("localhost");
    Setup::new(
        "worker_processes 2; error_log %%DIR%%/error.log notice; events {} http {
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            http2 on; keepalive_requests 1000000; http2_max_concurrent_streams 128;
            server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl;
                root %%DIR%%/html; } }",
    )
    .file("a.crt", cert)
    .file("a.key", key)
    .file("html/big", "0123456789abcdef".repeat(4000))
    .file("html/small", "few bytes")
    .start()
}

fn load(h2load: &Tool, server: &Server, port: usize, path: &str, count: usize) -> CliOutput {
    let scheme = if port == 1 { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{}{path}", server.port(port));
    h2load.run(&["-n", &count.to_string(), "-c", "4", "-m", "32", &url])
}

#[track_caller]
fn expect_all(said: &CliOutput, count: usize) {
    let all = format!("{count} done, {count} succeeded, 0 failed, 0 errored, 0 timeout");
    let good = format!("status codes: {count} 2xx, 0 3xx, 0 4xx, 0 5xx");
    assert!(said.code == 0 && said.stdout.contains(&all), "{}", said.stdout);
    assert!(said.stdout.contains(&good), "{}", said.stdout);
}

#[test]
fn many_streams_over_tls_and_in_the_clear() {
    let Some(h2load) = tools::need("h2load") else { return };
    let server = site();
    for port in [0, 1] {
        for path in ["/small", "/big"] {
            expect_all(&load(&h2load, &server, port, path, 1000), 1000);
        }
    }
    let over_tls = load(&h2load, &server, 1, "/small", 32).stdout;
    assert!(over_tls.contains("Application protocol: h2\n"), "{over_tls}");
    assert!(over_tls.contains("TLS Protocol: TLSv1.3"), "{over_tls}");
}

/// (nginx ends the connections of the old workers; h2load takes what it then cannot send for
/// failed.)
#[test]
fn reloads_fail_no_request() {
    const COUNT: usize = 20_000;
    let Some(h2load) = tools::need("h2load") else { return };
    let server = site();
    for port in [0, 1] {
        let (done, mut reloads) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let said = load(&h2load, &server, port, "/small", COUNT);
                done.store(true, Ordering::SeqCst);
                said
            });
            let seen = || server.error_log().matches("reconfiguring").count();
            while !done.load(Ordering::SeqCst) {
                let before = seen();
                server.signal(Signal::Hup);
                weir_tests::expect_soon("a reload", || seen() > before);
                reloads += 1;
            }
            expect_all(&loading.join().unwrap(), COUNT);
        });
        assert!(reloads > 1, "only {reloads} reloads");
    }
}
