//! `otel_exporter` over reloads: who stays the same goes on, who changes ends within bounds.

use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use weir_tests::otel::{Collector, Say};
use weir_tests::{expect_soon, free_port, Server, Setup};

/// Each has an error log of its own.
fn conf(exporter: &str, turn: usize) -> String {
    format!(
        "worker_processes 2; error_log error{turn}.log info; events {{}} http {{ access_log off;
        otel_exporter {{ {exporter} }}
        server {{ listen 127.0.0.1:%%PORT_0%%;
            location / {{ otel_trace on; return 200 ok; }} location /turn {{ return 200 {turn}; }}
            location /api {{ api; allow all; }} }} }}"
    )
}

fn figure(server: &Server, name: &str) -> u64 {
    let text = server.get("/api/9/otel").text();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    value[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
}

fn ask(server: &Server, count: usize) {
    (0..count).for_each(|_| assert_eq!(server.get("/x").status, 200));
}

fn reload(server: &mut Server, exporter: &str, turn: usize) {
    let (conf, expected) = (conf(exporter, turn), turn.to_string());
    let peer = server.on(0);
    // By every worker.
    let mut asked = 0;
    server.reload(&conf, || {
        asked = if peer.get("/turn").text() == expected { asked + 1 } else { 0 };
        asked > 20
    });
}

/// Takes what it gets while this is 1.
fn collector() -> (Collector, Arc<AtomicUsize>) {
    let mood = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&mood);
    let collector = Collector::grpc_saying(move |_| match told.load(Ordering::SeqCst) {
        0 => Say::Status(14, "later"),
        1 => Say::Taken,
        _ => Say::Status(3, "never"),
    });
    (collector, mood)
}

#[test]
fn the_same_exporter_goes_on_with_what_waits() {
    let (collector, mood) = collector();
    let port = collector.port();
    let exporter =
        format!("endpoint 127.0.0.1:{port}; interval 1ms; batch_size 20; header X-Tenant us;");
    let mut server = Setup::new(&conf(&exporter, 0)).start();
    for turn in 1..8 {
        ask(&server, 5);
        reload(&mut server, &exporter, turn);
        assert_eq!(server.threads_called("otel"), 1);
    }
    assert_eq!((figure(&server, "spans_dropped"), figure(&server, "spans_sent")), (0, 0));
    mood.store(1, Ordering::SeqCst);
    expect_soon("all that waited", || figure(&server, "spans_sent") == 35);
    assert!(collector.exports().iter().all(|e| e.connection == 0), "one connection");
    // What it has to say is said in the log of the newest configuration.
    mood.store(2, Ordering::SeqCst);
    reload(&mut server, &exporter, 8);
    ask(&server, 1);
    expect_soon("a line", || server.read("error8.log").contains("INVALID_ARGUMENT (3): never"));
}

#[test]
fn exporters_that_changed_end_within_bounds() {
    let (collector, mood) = collector();
    let port = collector.port();
    let exporter = |turn: usize| {
        format!("endpoint 127.0.0.1:{port}; interval 1ms; batch_size 20; header X-Turn {turn};")
    };
    let mut server = Setup::new(&conf(&exporter(0), 0)).start();
    for turn in 1..16 {
        ask(&server, 5);
        reload(&mut server, &exporter(turn), turn);
    }
    // The newest, some old ones, and those of configurations that are just being let go of.
    expect_soon("threads end", || server.threads_called("otel") <= 7);
    expect_soon("what they had is counted", || figure(&server, "spans_dropped") >= 45);
    assert!((0..16).any(|n| server.read(&format!("error{n}.log")).contains("OTel dropped records")));
    mood.store(1, Ordering::SeqCst);
    expect_soon("the rest", || {
        figure(&server, "spans_sent") + figure(&server, "spans_dropped") == 75
    });
    assert!(figure(&server, "spans_sent") >= 15, "{}", server.get("/api/9/otel").text());
    expect_soon("only the newest is there", || server.threads_called("otel") == 1);
}

/// Other certificates in the same file are another configuration.
#[test]
fn other_contents_of_the_certificates_file_are_another_exporter() {
    let setup = Setup::new("");
    let file = setup.dir().join("ca.pem");
    let authority = |name: &str| {
        let text = weir_tests::tls::Authority::new(name).cert;
        std::fs::write(&file, text).unwrap();
    };
    authority("one.test");
    let port = free_port();
    let exporter = format!(
        "endpoint https://127.0.0.1:{port}; interval 1ms; trusted_certificate {};",
        file.display()
    );
    let mut server = Setup::new(&conf(&exporter, 0)).start();
    ask(&server, 1);
    reload(&mut server, &exporter, 1);
    assert_eq!(server.threads_called("otel"), 1);
    authority("two.test");
    reload(&mut server, &exporter, 2);
    assert_eq!(server.threads_called("otel"), 2);
}
