//! `otel_exporter`: batches, what becomes of them where the collector is slow, gone or refuses, and the ways to it.

use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use weir_tests::otel::{self, Collector, Say};
use weir_tests::tls::Authority;
use weir_tests::{expect_soon, free_port, run_cli, Server, Setup, Signal};

fn conf(exporter: &str) -> String {
    format!(
        "worker_processes 1; error_log error.log info; events {{}} http {{ access_log off;
        otel_exporter {{ {exporter} }}
        server {{ listen 127.0.0.1:%%PORT_0%%;
            location / {{ otel_trace on; return 200 ok; }}
            location /api {{ api; allow all; }} location /metrics {{ metrics; allow all; }} }} }}"
    )
}

fn start(exporter: &str) -> Server {
    Setup::new(&conf(exporter)).start()
}

fn figure(server: &Server, name: &str) -> u64 {
    let text = server.get("/api/9/otel").text();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    value[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
}

/// Only these are traced.
fn ask(server: &Server, count: usize) {
    (0..count).for_each(|_| assert_eq!(server.get("/x").status, 200));
}

#[test]
fn full_batches_go_at_once_and_others_by_the_interval() {
    let collector = Collector::grpc();
    let server =
        start(&format!("endpoint 127.0.0.1:{}; interval 2s; batch_size 3;", collector.port()));
    ask(&server, 7);
    collector.expect_spans(6);
    let sizes = || collector.exports().iter().map(|e| e.spans().len()).collect::<Vec<_>>();
    assert_eq!(sizes(), [3, 3]);
    collector.expect_spans(7);
    assert_eq!(sizes(), [3, 3, 1]);
    assert!(collector.exports().iter().all(|e| e.connection == 0), "the connection is kept");
}

#[test]
fn headers_go_along() {
    let collector = Collector::grpc();
    let server = start(&format!(
        "endpoint 127.0.0.1:{}; interval 1ms; header X-API-TOKEN api.value; header Authorization 'Basic value';",
        collector.port()
    ));
    ask(&server, 1);
    collector.expect_spans(1);
    let export = collector.exports().remove(0);
    assert_eq!(export.field("x-api-token"), Some("api.value"));
    assert_eq!(export.field("authorization"), Some("Basic value"));
    assert_eq!(export.field("content-type"), Some("application/grpc"));
}

#[test]
fn over_http() {
    let collector = Collector::http_saying(|_| Say::Taken);
    let port = collector.port();
    for (path, expected) in [("", "/v1/traces"), ("/own/path", "/own/path")] {
        let before = collector.spans().len();
        let server = start(&format!(
            "protocol http/protobuf; endpoint http://127.0.0.1:{port}{path}; interval 1ms; header X-Tenant us;"
        ));
        ask(&server, 2);
        collector.expect_spans(before + 2);
        let export = collector.exports().pop().unwrap();
        assert_eq!(export.path, expected);
        assert_eq!(export.field("content-type"), Some("application/x-protobuf"));
        assert_eq!(export.field("x-tenant"), Some("us"));
    }
}

#[test]
fn while_the_collector_is_slow_what_has_no_room_is_dropped_and_counted() {
    let collector = Collector::grpc_saying(|_| Say::Nothing);
    let server = start(&format!(
        "endpoint 127.0.0.1:{}; interval 1ms; batch_size 2; batch_count 3;",
        collector.port()
    ));
    ask(&server, 1);
    expect_soon("the first batch", || !collector.exports().is_empty());
    // One is on its way; a worker keeps six.
    ask(&server, 20);
    assert_eq!(figure(&server, "spans_dropped"), 14);
    assert_eq!(figure(&server, "spans_sent"), 0);
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("\nweir_otel_spans_dropped_total 14\n"), "{metrics}");
}

#[test]
fn what_waits_is_sent_when_the_collector_is_back() {
    let is_back = Arc::new(AtomicBool::new(false));
    let back = Arc::clone(&is_back);
    let collector = Collector::grpc_saying(move |_| match back.load(Ordering::SeqCst) {
        true => Say::Taken,
        false => Say::Status(14, "go%20away"),
    });
    let server = start(&format!(
        "endpoint 127.0.0.1:{}; interval 1ms; batch_size 2; batch_count 3;",
        collector.port()
    ));
    ask(&server, 1);
    server.expect_error("OTel export failure: answered UNAVAILABLE (14): go away");
    expect_soon("another try", || figure(&server, "retries") > 1);
    ask(&server, 30);
    let dropped = figure(&server, "spans_dropped");
    assert!((20..30).contains(&dropped), "{dropped}");
    server.expect_error("OTel dropped records: ");
    is_back.store(true, Ordering::SeqCst);
    expect_soon("all that waited", || figure(&server, "spans_sent") == 31 - dropped);
    assert_eq!(figure(&server, "spans_dropped"), dropped);
}

/// Collectors close connections that are idle, and ask whether somebody is there: neither is a failure.
#[test]
fn what_a_collector_does_with_idle_connections_is_no_failure() {
    for (say, connections) in [(Say::TakenAndGone, 3), (Say::TakenAndPing, 1)] {
        let answer = say.clone();
        let collector = Collector::grpc_saying(move |_| answer.clone());
        let server = start(&format!("endpoint 127.0.0.1:{}; interval 1ms;", collector.port()));
        for n in 1..=3 {
            ask(&server, 1);
            expect_soon("a span", || figure(&server, "spans_sent") == n);
            // Without another span that would make the exporter look.
            expect_soon("its end, or an answer", || collector.idle() as u64 == n);
        }
        assert_eq!(collector.exports().last().unwrap().connection + 1, connections, "{say:?}");
        assert_eq!(figure(&server, "retries"), 0, "{say:?}");
        assert!(!server.error_log().contains("OTel"), "{say:?}: {}", server.error_log());
        assert!(!server.get("/api/9/otel").text().contains("last_error"), "{say:?}");
    }
}

/// It says so just when the next export is on its way: that goes by another connection.
#[test]
fn a_connection_that_is_closed_while_it_is_used_again_is_no_failure() {
    let collector = Collector::grpc_saying(|n| if n == 1 { Say::Gone } else { Say::Taken });
    let server = start(&format!("endpoint 127.0.0.1:{}; interval 1ms;", collector.port()));
    for n in 1..=2 {
        ask(&server, 1);
        expect_soon("a span", || figure(&server, "spans_sent") == n);
    }
    assert_eq!(figure(&server, "retries"), 0);
    let connections: Vec<_> = collector.exports().iter().map(|e| e.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    assert!(!server.error_log().contains("OTel"), "{}", server.error_log());
}

#[test]
fn nobody_is_there_and_then_somebody_is() {
    let port = free_port();
    let server = start(&format!("endpoint 127.0.0.1:{port}; interval 1ms;"));
    ask(&server, 1);
    server.expect_error(&format!("OTel export failure: cannot connect to 127.0.0.1:{port}: "));
    assert_eq!(server.get("/x").status, 200);
}

#[test]
fn what_is_refused_is_not_sent_again() {
    // `partial_success`: one span, and why.
    let collector = Collector::grpc_saying(|n| match n {
        0 => Say::Status(3, "bad span"),
        1 => Say::Message(b"\x0a\x07\x08\x01\x12\x03old".to_vec()),
        _ => Say::Taken,
    });
    let server =
        start(&format!("endpoint 127.0.0.1:{}; interval 10s; batch_size 2;", collector.port()));
    ask(&server, 6);
    expect_soon("three batches", || figure(&server, "batches") == 3);
    assert_eq!((figure(&server, "spans_refused"), figure(&server, "spans_sent")), (3, 3));
    assert_eq!(collector.exports().len(), 3);
    server.expect_error("OTel export failure: answered INVALID_ARGUMENT (3): bad span");
    server.expect_error("OTel export failure: old");
}

/// A proxy between that takes nothing for a while, and is mended: what waited is there, in batches as before.
#[test]
fn what_was_too_large_once_is_not_for_ever() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let collector = Collector::grpc_saying(move |_| match mended.load(Ordering::SeqCst) {
        true => Say::Taken,
        false => Say::Status(8, "received message larger than max (9 vs. 1)"),
    });
    let server =
        start(&format!("endpoint 127.0.0.1:{}; interval 50ms; batch_size 64;", collector.port()));
    ask(&server, 100);
    expect_soon("some are refused alone", || figure(&server, "spans_refused") >= 3);
    let before = collector.exports().len();
    is_mended.store(true, Ordering::SeqCst);
    assert!(before < 30, "no request for each span: {before}");
    expect_soon("the others are there", || {
        figure(&server, "spans_refused") + figure(&server, "spans_sent") == 100
    });
    assert!(figure(&server, "spans_sent") > 80);
    // Each batch may be twice as large as the one before.
    expect_soon("full batches", || {
        ask(&server, 100);
        collector.exports().iter().skip(before).any(|e| e.spans().len() == 64)
    });
}

/// However small it is, and however much the resource says.
#[test]
fn a_small_batch_that_is_too_large_goes_in_parts() {
    let most = Arc::new(AtomicUsize::new(0));
    let limit = Arc::clone(&most);
    let collector = Collector::http_reading(move |message| {
        let first = limit.load(Ordering::SeqCst) == 0;
        if first {
            // Of three spans the two last are too much.
            limit.store(message.len() - 1, Ordering::SeqCst);
        }
        match first || message.len() > limit.load(Ordering::SeqCst) {
            true => Say::Status(413, "too large"),
            false => Say::Taken,
        }
    });
    let port = collector.port();
    let value = "v".repeat(1000);
    let conf = conf(&format!(
        "protocol http/protobuf; endpoint http://127.0.0.1:{port}; interval 50ms; batch_size 3;"
    ))
    .replace("server {", &format!("otel_resource_attr note {value}; server {{"));
    let server = Setup::new(&conf).start();
    ask(&server, 3);
    expect_soon("all of them", || figure(&server, "spans_sent") == 3);
    assert_eq!(figure(&server, "spans_refused"), 0);
    let sizes: Vec<usize> = collector.exports().iter().map(|e| e.message.len()).collect();
    assert!(sizes.iter().all(|bytes| *bytes < 4096), "{sizes:?}");
}

/// Every second batch would be refused where each that is taken made the next one larger.
#[test]
fn a_limit_that_lasts_costs_few_refusals() {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let collector = Collector::http_reading(move |message| match message.len() > 6000 {
        true => {
            count.fetch_add(1, Ordering::SeqCst);
            Say::Status(413, "too large")
        }
        false => Say::Taken,
    });
    let server = start(&format!(
        "protocol http/protobuf; endpoint http://127.0.0.1:{}; interval 20ms; batch_size 64;",
        collector.port()
    ));
    // Until twenty batches have been taken.
    for _ in 0..20 {
        let before = figure(&server, "spans_sent");
        ask(&server, 60);
        expect_soon("they are there", || figure(&server, "spans_sent") == before + 60);
    }
    assert_eq!(figure(&server, "spans_refused"), 0);
    let (refused, all) = (refused.load(Ordering::SeqCst), collector.exports().len());
    assert!(all > 60 && refused < 12, "{refused} of {all}");
}

#[test]
fn a_reload_and_a_graceful_end_send_what_waits() {
    let (first, second) = (Collector::grpc(), Collector::grpc());
    let mut server = start(&format!("endpoint 127.0.0.1:{}; interval 1h;", first.port()));
    ask(&server, 5);
    let fresh = conf(&format!("endpoint 127.0.0.1:{}; interval 1h;", second.port()))
        .replace("200 ok", "200 new");
    server.replace_conf(&fresh);
    server.signal(Signal::Hup);
    // Who asks is traced as well, by either configuration.
    expect_soon("the new configuration", || server.get("/x").text() == "new");
    expect_soon("what the old one has", || first.spans().len() >= 5);
    ask(&server, 3);
    server.signal(Signal::Quit);
    server.wait_exit();
    assert!(second.spans().len() >= 3, "{}", second.spans().len());
}

#[test]
fn what_an_end_cannot_send_is_told() {
    for signal in [Signal::Quit, Signal::Term] {
        let port = free_port();
        let mut server = start(&format!("endpoint 127.0.0.1:{port}; interval 1ms;"));
        ask(&server, 5);
        server.expect_error("OTel export failure: cannot connect");
        server.signal(signal);
        server.wait_exit();
        server.expect_error("OTel dropped records: 5");
    }
}

#[test]
fn an_end_at_once_sends_what_waits_but_does_not_wait_long() {
    let collector = Collector::grpc();
    let mut server = start(&format!("endpoint 127.0.0.1:{}; interval 1h;", collector.port()));
    ask(&server, 3);
    server.signal(Signal::Term);
    server.wait_exit();
    assert_eq!(collector.spans().len(), 3);
    let deaf = Collector::grpc_saying(|_| Say::Nothing);
    let mut server = start(&format!("endpoint 127.0.0.1:{}; interval 1ms;", deaf.port()));
    ask(&server, 1);
    expect_soon("an export", || !deaf.exports().is_empty());
    server.signal(Signal::Term);
    let begun = std::time::Instant::now();
    server.wait_exit();
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn the_real_collector_takes_spans() {
    let setup = Setup::new("");
    let dir = setup.dir().to_owned();
    let authority = Authority::new("ca.test");
    let pair = authority.issue("localhost");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("ca.pem", &authority.cert);
    write("cert.pem", &pair.cert);
    write("key.pem", &pair.key);
    let ports = [free_port(), free_port(), free_port()];
    let [grpc, http, tls] = ports;
    let Some(_collector) = otel::start_real(&dir, ports) else { return };
    let trusted = format!("trusted_certificate {}/ca.pem;", dir.display());
    let mut expected = 0;
    for exporter in [
        format!("endpoint 127.0.0.1:{grpc};"),
        format!("endpoint http://127.0.0.1:{http}; protocol http/protobuf;"),
        format!("endpoint https://localhost:{tls}; {trusted}"),
    ] {
        let server = start(&format!("{exporter} interval 1ms;"));
        ask(&server, 10);
        expected += 10;
        let all = || std::fs::read_to_string(dir.join("out.json")).unwrap_or_default();
        expect_soon("all spans", || all().matches("\"name\":\"/\",\"kind\":2").count() == expected);
        assert!(all().contains("{\"key\":\"http.status_code\",\"value\":{\"intValue\":\"200\"}}"));
        // It has written them before it says so.
        expect_soon("its answers", || figure(&server, "spans_sent") == 10);
        assert_eq!(figure(&server, "retries"), 0);
    }
}

#[test]
fn a_certificate_that_nobody_trusts_is_refused() {
    let setup = Setup::new("");
    let dir = setup.dir().to_owned();
    let (good, other) = (Authority::new("ca.test"), Authority::new("other.test"));
    let pair = good.issue("localhost");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("other.pem", &other.cert);
    write("cert.pem", &pair.cert);
    write("key.pem", &pair.key);
    let ports = [free_port(), free_port(), free_port()];
    let Some(_collector) = otel::start_real(&dir, ports) else { return };
    let server = start(&format!(
        "endpoint https://localhost:{}; trusted_certificate {}/other.pem; interval 1ms;",
        ports[2],
        dir.display()
    ));
    ask(&server, 1);
    server.expect_error("OTel export failure: localhost:");
    server.expect_error("certificate verify error: (");
}

#[test]
fn what_is_said_is_checked() {
    let exporter = |text: &str| format!("otel_exporter {{ {text} }}");
    for (http, expected) in [
        ("otel_trace on;".to_owned(), "\"otel_exporter\" block is missing"),
        (exporter(""), "\"otel_exporter\" requires \"endpoint\""),
        (exporter("endpoint a:1;").repeat(2), "\"otel_exporter\" directive is duplicate"),
        (exporter("endpoint a:1; endpoint b:1;"), "\"endpoint\" directive is duplicate"),
        (exporter("endpoint localhost;"), "\"localhost\" is no address of a collector"),
        (
            exporter("endpoint http://h:1/v1/traces;"),
            "\"http://h:1/v1/traces\" is no address of a collector",
        ),
        (exporter("endpoint unix:/s;"), "\"unix:/s\" is no address of a collector"),
        (exporter("endpoint h:1; protocol http/protobuf;"), "\"h:1\" is no address of a collector"),
        (exporter("endpoint h:1; protocol http/json;"), "invalid value \"http/json\""),
        (
            exporter("endpoint h:1; trusted_certificate c;"),
            "\"trusted_certificate\" where the endpoint has no TLS",
        ),
        (exporter("endpoint https://h:1; trusted_certificate none.pem;"), "none.pem"),
        (exporter("endpoint h:1; header 'a b' c;"), "has invalid header name"),
        (exporter("endpoint h:1; header a '\t';"), "has invalid header value"),
        (exporter("endpoint h:1; interval 0;"), "invalid value \"0\""),
        (exporter("endpoint h:1; batch_size 0;"), "\"batch_size\" must be between 1 and 65536"),
        (exporter("endpoint h:1; batch_count 2000;"), "\"batch_count\" must be between 1 and 1024"),
        (exporter("endpoint h:1; batch_size 65536; batch_count 17;"), "is more than 1048576"),
        (exporter("endpoint h:1; spans 3;"), "unknown directive \"spans\""),
        ("otel_trace_context all;".to_owned(), "invalid value \"all\""),
    ] {
        let conf = format!("events {{}} http {{ {http} server {{ listen 127.0.0.1:1; }} }}");
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{http}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{http}: {}", output.stderr);
    }
}
