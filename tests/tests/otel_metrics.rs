//! Figures as OTLP's metrics (`ship_metrics` to a receiver of OTLP), and whose traces show them: exemplars.

use serde_json::Value;
use std::collections::BTreeMap;
use weir_tests::otel::{self, bytes, number, Collector, Say};
use weir_tests::{expect_soon, free_port, tls, Server, Setup};

fn conf(ship: &str, collector: u16) -> String {
    format!(
        "worker_processes 1; error_log error.log info; events {{}} {ship}
        http {{ access_log off;
        otel_exporter {{ endpoint 127.0.0.1:{collector}; interval 1ms; }}
        server {{ listen 127.0.0.1:%%PORT_0%%; server_name shown;
            location / {{ otel_trace $arg_trace; status_zone place; return 200 ok; }}
            location /metrics {{ metrics; allow all; }} }} }}"
    )
}

fn metrics(server: &Server, accept: &str) -> String {
    server.get_with("/metrics", &format!("Accept: {accept}\r\n")).text()
}

#[test]
fn the_last_sampled_request_of_a_bucket_is_its_exemplar() {
    let collector = Collector::grpc();
    let server = Setup::new(&conf("", collector.port())).start();
    const OPEN: &str = "application/openmetrics-text";
    assert_eq!(server.get("/x").status, 200);
    assert!(!metrics(&server, OPEN).contains(" # {"), "nothing was sampled");
    for n in 1..=3 {
        assert_eq!(server.get("/x?trace=1").status, 200);
        collector.expect_spans(n);
    }
    let spans = collector.spans();
    let text = metrics(&server, OPEN);
    let with: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
    for name in [
        "weir_http_latency_seconds_bucket{server=\"shown\"",
        "weir_http_location_latency_seconds_bucket{location=\"place\"",
    ] {
        let lines: Vec<&&str> = with.iter().filter(|line| line.starts_with(name)).collect();
        assert!((1..=3).contains(&lines.len()), "{text}");
        for line in lines {
            let (sample, exemplar) = line.split_once(" # ").unwrap();
            let bound = sample.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
            let bound = bound.parse::<f64>().unwrap_or(f64::INFINITY);
            let mut words = exemplar.split(' ');
            let labels = words.next().unwrap();
            let took: f64 = words.next().unwrap().parse().unwrap();
            let ended: f64 = words.next().unwrap().parse().unwrap();
            assert!(took <= bound && took > 0.0, "{line}");
            let span = spans
                .iter()
                .find(|s| labels == format!("{{trace_id=\"{}\",span_id=\"{}\"}}", s.trace, s.id));
            let span = span.unwrap_or_else(|| panic!("whose is it: {line}"));
            assert!((span.ended as f64 / 1e9 - ended).abs() < 0.01, "{line}");
        }
    }
    let last = &spans[2].trace;
    assert!(with.iter().any(|line| line.contains(&last[..])), "{text}");
    assert!(!metrics(&server, "text/plain").contains(" # {"), "Prometheus' own format has none");
}

/// Names, and the points of each.
fn found(message: &[u8]) -> BTreeMap<String, (u64, Vec<Vec<u8>>)> {
    let of = &bytes(message, 1)[0];
    let scope = &bytes(of, 2)[0];
    let mut all: BTreeMap<String, (u64, Vec<Vec<u8>>)> = BTreeMap::new();
    for metric in bytes(scope, 2) {
        let name = String::from_utf8(bytes(&metric, 1)[0].clone()).unwrap();
        let kind = [5, 7, 9].into_iter().find(|n| !bytes(&metric, *n).is_empty()).unwrap();
        let data = &bytes(&metric, kind)[0];
        assert_eq!(number(data, 2), if kind == 5 { 0 } else { 2 }, "{name}: cumulative");
        assert_eq!(number(data, 3), u64::from(kind == 7), "{name}: only sums are monotonic");
        all.entry(name).or_insert((kind, Vec::new())).1.extend(bytes(data, 1));
    }
    all
}

#[test]
fn figures_are_sums_gauges_and_histograms() {
    let traces = Collector::grpc();
    for is_grpc in [true, false] {
        let collector = match is_grpc {
            true => Collector::grpc(),
            false => Collector::http_saying(|_| Say::Taken),
        };
        let scheme = if is_grpc { "grpc" } else { "http" };
        let ship = format!(
            "ship a {{ to otlp {scheme}://127.0.0.1:{}; queue %%DIR%%/a; compress none; batch linger=10ms; }} ship_metrics a every=100ms;",
            collector.port()
        );
        let server = Setup::new(&conf(&ship, traces.port())).start();
        (0..5).for_each(|_| assert_eq!(server.get("/x?trace=1").status, 200));
        let sum = |message: &[u8]| {
            let all = found(message);
            let (_, points) = all.get("weir_http_requests")?;
            let is_its =
                |p: &&Vec<u8>| bytes(p, 7).iter().any(|pair| bytes(pair, 1)[0] == b"server");
            points.iter().find(is_its).map(|p| (number(p, 6), number(p, 2), number(p, 3)))
        };
        let done = || collector.exports().iter().any(|e| sum(&e.message).is_some_and(|s| s.0 >= 5));
        expect_soon("five requests", done);
        let export = collector.exports().pop().unwrap();
        let expected = match is_grpc {
            true => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            false => "/v1/metrics",
        };
        assert_eq!(export.path, expected);
        assert_eq!(export.resource()["service.name"], "weir");
        let exports = collector.exports();
        let export = exports.iter().find(|e| sum(&e.message).is_some_and(|s| s.0 >= 5)).unwrap();
        let (_, began, now) = sum(&export.message).unwrap();
        assert!(began > 1_700_000_000_000_000_000 && began <= now);
        let all = found(&export.message);
        assert_eq!((all["weir_http_requests"].0, all["weir_http_processing"].0), (7, 5));
        let (kind, points) = &all["weir_http_latency_seconds"];
        let point = &points[0];
        let counts = &bytes(point, 6)[0];
        assert_eq!((*kind, counts.len(), bytes(point, 7)[0].len()), (9, 15 * 8, 14 * 8));
        let counted: u64 =
            counts.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).sum();
        assert_eq!((counted, counted >= 5), (number(point, 4), true));
        let exemplars = bytes(point, 8);
        assert!(!exemplars.is_empty() && bytes(&exemplars[0], 5)[0].len() == 16);
    }
}

/// A cumulative sum that falls has another beginning (OTLP's data model); one that goes on has the first.
#[test]
fn sums_that_begin_at_0_in_a_new_process_begin_with_it() {
    let collector = Collector::grpc();
    let ship = format!(
        "ship a {{ to otlp grpc://127.0.0.1:{}; queue %%DIR%%/a; compress none; batch linger=10ms; }} ship_metrics a every=100ms;",
        collector.port()
    );
    let traces = Collector::grpc();
    let server = Setup::new(&format!("user root; {}", conf(&ship, traces.port()))).start();
    // Start and value of a sum in the newest export that has it.
    let sum = |name: &str| {
        let exports = collector.exports().into_iter().rev();
        let mut points = exports.filter_map(|e| {
            let point = found(&e.message).get(name)?.1.first()?.clone();
            Some((number(&point, 2), number(&point, 6)))
        });
        points.next().unwrap_or_default()
    };
    (0..5).for_each(|_| assert_eq!(server.get("/x?trace=1").status, 200));
    const OWN: [&str; 3] =
        ["weir_otel_spans_sent", "weir_worker_connections_accepted", "weir_ship_events_sent"];
    const KEPT: [&str; 2] = ["weir_connections_accepted", "weir_requests"];
    let all = || OWN.iter().chain(&KEPT).all(|name| sum(name).1 > 0);
    expect_soon("all sums", all);
    let before = sum(KEPT[0]).0;
    assert!(OWN.iter().chain(&KEPT).all(|name| sum(name).0 == before));
    let old = server.children()[0];
    weir_tests::signal(old, weir_tests::Signal::Kill);
    expect_soon("a new process", || server.children().first().is_some_and(|pid| *pid != old));
    expect_soon("its own beginnings", || OWN.iter().all(|name| sum(name).0 > before));
    assert!(KEPT.iter().all(|name| sum(name).0 == before));
    assert!(KEPT.iter().all(|name| sum(name).1 > 0));
}

#[test]
fn the_real_collector_takes_metrics() {
    let setup = Setup::new("");
    let dir = setup.dir().to_owned();
    let pair = tls::self_signed("localhost");
    std::fs::write(dir.join("cert.pem"), &pair.cert).unwrap();
    std::fs::write(dir.join("key.pem"), &pair.key).unwrap();
    let ports = [free_port(), free_port(), free_port()];
    let Some(_collector) = otel::start_real(&dir, ports) else { return };
    let ship = format!(
        "ship a {{ to otlp grpc://127.0.0.1:{}; queue %%DIR%%/a; batch linger=10ms; }}
        ship b {{ to otlp http://127.0.0.1:{}; queue %%DIR%%/b; batch linger=10ms; resource_attr service.name second; }}
        ship_metrics a every=100ms; ship_metrics b every=100ms;",
        ports[0], ports[1]
    );
    let server = Setup::new(&conf(&ship, ports[0])).start();
    (0..5).for_each(|_| assert_eq!(server.get("/x?trace=1").status, 200));
    let seen = |service: &str| {
        let text = std::fs::read_to_string(dir.join("out.json")).unwrap_or_default();
        let lines = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        let all: Vec<Value> = lines
            .flat_map(|l| l["resourceMetrics"].as_array().cloned().unwrap_or_default())
            .filter(|of| of["resource"].to_string().contains(&format!("\"{service}\"")))
            .flat_map(|of| of["scopeMetrics"][0]["metrics"].as_array().cloned().unwrap_or_default())
            .collect();
        let is = |name: &str, what: &dyn Fn(&Value) -> bool| {
            all.iter().any(|m| m["name"] == name && what(m))
        };
        let five = |m: &Value| m["sum"]["dataPoints"].to_string().contains("\"asInt\":\"5\"");
        is("weir_http_location_requests", &five)
            && is("weir_http_processing", &|m| m["gauge"].is_object())
            && is("weir_http_latency_seconds", &|m| m.to_string().contains("\"exemplars\":[{"))
            && is("weir_http_sent_bytes", &|m| m["unit"] == "By")
    };
    expect_soon("metrics over gRPC", || seen("weir"));
    expect_soon("metrics over HTTP", || seen("second"));
    assert!(!server.error_log().contains("refused"), "{}", server.error_log());
}
