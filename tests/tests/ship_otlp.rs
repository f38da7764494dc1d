//! `ship` to OTLP: the OpenTelemetry collector over HTTP and gRPC, and what a receiver answers.

use std::collections::BTreeSet;
use weir_tests::tls::Authority;
use weir_tests::{expect_soon, free_port, otel, run_cli, Setup};

const HTTP: &str = "http { access_log off; server { listen 127.0.0.1:%%PORT_0%%;
    location / { ship_access a; return 200 ok; }
    location /all { ship_access h; ship_access g; ship_access s; return 200 ok; } } }";

#[test]
fn a_collector_takes_records_over_http_and_grpc() {
    let setup = Setup::new("");
    let dir = setup.dir().to_owned();
    let authority = Authority::new("ca.test");
    let pair = authority.issue("127.0.0.1");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("ca.pem", &authority.cert);
    write("cert.pem", &pair.cert);
    write("key.pem", &pair.key);
    let (http, grpc, tls) = (free_port(), free_port(), free_port());
    let shown = dir.display();
    let Some(_collector) = otel::start_real(&dir, [grpc, http, tls]) else { return };
    let server = Setup::new(&format!(
        "worker_processes 1; error_log error.log info; events {{}}
        ship a {{ to otlp http://127.0.0.1:{http}; queue %%DIR%%/a; }}
        ship h {{ to otlp http://127.0.0.1:{http}; queue %%DIR%%/h; batch linger=10ms; resource_attr way http; }}
        ship g {{ to otlp grpc://127.0.0.1:{grpc}; queue %%DIR%%/g; batch linger=10ms; resource_attr way grpc; compress none; }}
        ship s {{ to otlp grpcs://127.0.0.1:{tls}; queue %%DIR%%/s; batch linger=10ms; resource_attr way tls;
            ssl_trusted_certificate {shown}/ca.pem; }} {HTTP}"
    ))
    .start();
    for n in 0..30 {
        assert_eq!(server.get(&format!("/all/{n}")).status, 200);
    }
    let records = || {
        let text = std::fs::read_to_string(dir.join("out.json")).unwrap_or_default();
        let mut found = BTreeSet::new();
        let mut count = 0;
        for line in text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()) {
            for logs in line["resourceLogs"].as_array().into_iter().flatten() {
                let way = attribute(&logs["resource"], "way");
                for record in logs["scopeLogs"][0]["logRecords"].as_array().into_iter().flatten() {
                    assert!(attribute(record, "log.record.uid").contains('-'));
                    assert_eq!(attribute(record, "http.request.method"), "GET");
                    assert!(record["body"]["stringValue"]
                        .as_str()
                        .is_some_and(|b| b.starts_with("GET /all/")));
                    count += 1;
                    found.insert((way.clone(), attribute(record, "url.original")));
                }
            }
        }
        (count, found)
    };
    expect_soon("all records", || records().1.len() >= 90);
    let (count, found) = records();
    assert_eq!((count, found.len()), (90, 90));
    for way in ["http", "grpc", "tls"] {
        assert_eq!(found.iter().filter(|(w, _)| w == way).count(), 30, "{way}");
    }
}

fn attribute(of: &serde_json::Value, name: &str) -> String {
    let all = of["attributes"].as_array().into_iter().flatten();
    let found = all.filter(|a| a["key"] == name).find_map(|a| a["value"]["stringValue"].as_str());
    found.unwrap_or_default().to_owned()
}

/// An address may be that of a signal, as receivers tell theirs.
#[test]
fn an_address_may_have_the_path_of_a_signal() {
    for (path, expected) in
        [("", "/v1/logs"), ("/v1/logs", "/v1/logs"), ("/base/v1/metrics/", "/base/v1/logs")]
    {
        let collector = otel::Collector::http_saying(|_| otel::Say::Taken);
        let server = Setup::new(&format!(
            "worker_processes 1; error_log error.log info; events {{}}
            ship a {{ to otlp http://127.0.0.1:{}{path}; queue %%DIR%%/a; batch linger=10ms; }}
            {}",
            collector.port(),
            HTTP.replace("ship_access h; ship_access g; ship_access s;", "")
        ))
        .start();
        assert_eq!(server.get("/x").status, 200);
        expect_soon("a batch", || !collector.exports().is_empty());
        assert_eq!(collector.exports()[0].path, expected, "{path}");
    }
}

#[test]
fn what_is_said_is_checked() {
    for (block, expected) in [
        ("to otlp h:4317;", "\"h:4317\" is no address of a receiver"),
        ("to otlp grpc://h http://h;", "\"http://\" is nothing such receivers are reached by"),
        ("to otlp grpc://h grpcs://h;", "all addresses have TLS, or none"),
        ("to otlp grpcs://h;", "no \"ssl_trusted_certificate\" in this block"),
        ("to otlp http://h; compress zstd;", "such receivers do not take zstd"),
        ("to otlp http://h; resource_attr '' x;", "invalid value \"\""),
        ("to otlp http://h; resource_attr a x; resource_attr a y;", "duplicate attribute \"a\""),
        ("to otlp grpc://h; user u; password_file p; api_key k;", "there is a \"user\" already"),
        ("to otlp grpc://h; label a b;", "\"label\" is not for receivers of kind \"otlp\""),
    ] {
        let conf = format!("events {{}} ship a {{ queue q; {block} }} http {{}}");
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{block}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{block}: {}", output.stderr);
    }
}
