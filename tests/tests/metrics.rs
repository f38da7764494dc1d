//! `metrics`: what is counted, as Prometheus and OpenMetrics read it.

use std::collections::BTreeSet;
use weir_tests::{expect_soon, Server, Setup};

fn start() -> Server {
    Setup::new(
        "worker_processes 1; events {} http {
        server { listen 127.0.0.1:%%PORT_0%%; server_name a.test; status_zone 'a\"\\\\b';
            location / { return 200 ok; }
            location /lost { return 404; }
            location /metrics { metrics; } } }",
    )
    .start()
}

/// The value of a sample, by all that stands before it.
fn value(text: &str, sample: &str) -> String {
    let found = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{sample} in\n{text}")).to_string()
}

#[test]
fn figures_are_told_to_prometheus() {
    let server = start();
    server.get("/");
    server.get("/lost");
    let page = server.get("/metrics");
    assert_eq!(page.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = page.text();
    let of = |name: &str| value(&text, &format!("{name}{{server=\"a\\\"\\\\b\"}}"));
    assert_eq!(of("weir_http_requests_total"), "3");
    assert_eq!(of("weir_http_processing"), "1");
    assert_eq!(of("weir_http_latency_seconds_count"), "2");
    assert!(of("weir_http_sent_bytes_total").parse::<u64>().unwrap() > 300);
    assert_eq!(value(&text, "weir_http_responses_total{server=\"a\\\"\\\\b\",code=\"404\"}"), "1");
    assert_eq!(value(&text, "weir_requests_total"), "3");
    assert_eq!(value(&text, "weir_connections_accepted_total"), "3");
    assert!(value(&text, "weir_connections_active").parse::<u64>().unwrap() >= 1);
    let class = |class: &str| {
        let name = "weir_http_responses_by_class_total{server=\"a\\\"\\\\b\",class=";
        value(&text, &format!("{name}\"{class}\"}}"))
    };
    assert_eq!(["2xx", "4xx", "5xx"].map(class), ["1", "1", "0"]);
    let bucket = |le: &str| {
        let of = format!("weir_http_latency_seconds_bucket{{server=\"a\\\"\\\\b\",le=\"{le}\"}}");
        value(&text, &of).parse::<u64>().unwrap()
    };
    assert_eq!((bucket("10.0"), bucket("+Inf")), (2, 2));
    assert_eq!(text.matches("weir_http_latency_seconds_bucket{").count(), 15, "{text}");
    assert!(!text.contains("# EOF"), "{text}");
    assert_eq!(server.post("/metrics", "x").status, 405);
    assert_eq!(server.head("/metrics").status, 200);
}

#[test]
fn who_asks_for_openmetrics_gets_it() {
    let server = start();
    server.get("/");
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let page = server.get_with("/metrics", accept);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.header("Content-Type"), Some(kind));
    let text = page.text();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    assert!(
        text.contains("# TYPE weir_http_requests counter\nweir_http_requests_total{"),
        "{text}"
    );
    assert!(text.contains("# TYPE weir_build info\nweir_build_info{version="), "{text}");
}

#[test]
fn samples_of_a_name_stand_together_and_each_once() {
    let text = start().get("/metrics").text();
    let (mut families, mut samples, mut current) =
        (BTreeSet::new(), BTreeSet::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap().to_string();
            assert!(families.insert(current.clone()), "{line} twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&current), "{line} in {current}");
            let (sample, number) = line.rsplit_once(' ').unwrap();
            assert!(number.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(sample.to_string()), "{sample} twice");
        }
    }
    assert!(families.len() > 10, "{text}");
}

/// A text about thousands of zones takes long and is long: others are answered meanwhile, and who does not read does not fill
/// the memory.
#[test]
fn those_who_do_not_read_have_a_bound() {
    let zones: String = (0..4000)
        .map(|n| format!("location /{n:0200} {{ status_zone zone{n:0200}; return 204; }}\n"))
        .collect();
    let server = Setup::new(&format!(
        "worker_processes 1; events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%;
        location /metrics {{ metrics; }} location /small {{ return 200 ok; }} {zones} }} }}"
    ))
    .start();
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let mut client = server.connect();
        client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        deaf.push(client);
        assert_eq!(server.get("/small").status, 200);
    }
    expect_soon("no more are answered", || server.head("/metrics").status == 503);
    assert_eq!(server.get("/small").status, 200);
    drop(deaf);
    expect_soon("they are answered again", || server.head("/metrics").status == 200);
}

/// Zones are labels, a queue's places are requests, and a name says its unit at its end.
#[test]
fn names_have_their_units_and_zones_are_labels() {
    let server = Setup::new(
        "worker_processes 1; events {} http { analytics_zone a-b; analytics_zone a.b;
            limit_req_zone $uri zone=q:64k rate=9r/s;
            upstream u { zone u 64k; server 127.0.0.1:1 max_conns=1; queue 10 timeout=5s; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; }
                location /metrics { metrics; } } }",
    )
    .start();
    let text = server.get("/metrics").text();
    assert_eq!(value(&text, "weir_http_upstream_queue_max_size{upstream=\"u\"}"), "10");
    assert_eq!(value(&text, "weir_http_upstream_queue_size{upstream=\"u\"}"), "0");
    for zone in ["a-b", "a.b"] {
        value(&text, &format!("weir_http_analytics_zone_requests_total{{zone=\"{zone}\"}}"));
    }
    let mut samples = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name)) => {
                let help = line.split_once(name).unwrap().1.trim();
                assert!(help.contains(' ') && !help.contains('/'), "{line}");
            }
            (Some("#"), Some("TYPE"), Some(name)) => {
                let words: Vec<_> = name.split('_').collect();
                let unit = words.iter().position(|w| ["bytes", "seconds"].contains(w));
                let behind = unit.map_or(&[][..], |at| &words[at + 1..]);
                assert!(matches!(behind, [] | ["total"]), "{line}");
                assert!(!words.iter().any(|w| ["ms", "us", "msec"].contains(w)), "{line}");
                assert_eq!(name.ends_with("_total"), line.ends_with(" counter"), "{line}");
            }
            (Some(sample), ..) => assert!(samples.insert(sample.to_string()), "twice: {line}"),
            _ => {}
        }
    }
}
