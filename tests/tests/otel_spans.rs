//! `otel_…`: what spans say, and whose trace they are of; as nginx's own tests of its module have it.

use weir_tests::h2::H2;
use weir_tests::otel::{Collector, Span};
use weir_tests::{tls, Origin, Server, Setup};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01";
const STATE: &str = "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7";

const LOCATIONS: &str = "
    location /ok { return 200 OK; }
    location /err { return 500 ERR; }
    location ~ ^/re/(\\w+) { otel_span_name $1; return 200 x; }
    location /custom { otel_span_name custom_location;
        otel_span_attr http.request.completion $request_completion;
        otel_span_attr http.response.header.content.type $sent_http_content_type;
        otel_span_attr http.request $request; return 200 OK; }
    location /vars { otel_trace_context extract;
        add_header X-Trace $otel_trace_id; add_header X-Span $otel_span_id;
        add_header X-Parent $otel_parent_id; add_header X-Sampled $otel_parent_sampled; return 204; }
    location /ignore { proxy_pass http://%%ORIGIN%%; }
    location /extract { otel_trace_context extract; proxy_pass http://%%ORIGIN%%; }
    location /inject { otel_trace_context inject; proxy_pass http://%%ORIGIN%%; }
    location /propagate { otel_trace_context propagate; proxy_pass http://%%ORIGIN%%; }
    location /off { otel_trace off; return 200 x; }
    location /unsampled { otel_trace off; otel_trace_context propagate; proxy_pass http://%%ORIGIN%%; }
    location /by_parent { otel_trace $otel_parent_sampled; otel_trace_context propagate; proxy_pass http://%%ORIGIN%%; }
    location /by_ratio { otel_trace $ratio; otel_trace_context inject; return 200 $otel_trace_id; }
    location /moved { error_page 404 = /elsewhere; return 404; }
    location /elsewhere { otel_trace off; return 200 else; }
    location /page { ssi on; ssi_types *; alias %%DIR%%/html; otel_trace_context extract; }
    location /part { otel_trace_context extract; return 200 $otel_span_id; }
";

fn start(collector: &Collector, more: &str) -> Server {
    let pair = tls::self_signed("localhost");
    Setup::new(&format!(
        "worker_processes 1; error_log error.log info; events {{}} http {{ access_log off;
        ssl_certificate a.crt; ssl_certificate_key a.key;
        otel_exporter {{ endpoint 127.0.0.1:{}; interval 1ms; batch_size 3; batch_count 3; }}
        otel_trace on; {more}
        split_clients $otel_trace_id $ratio {{ 50% on; * off; }}
        server {{ listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; http2 on; server_name localhost;
            {LOCATIONS} }} }}",
        collector.port()
    ))
    .set("ORIGIN", Origin::echo().address())
    .file("html/p.html", "<!--#include virtual=\"/part\" -->")
    .file("a.crt", pair.cert)
    .file("a.key", pair.key)
    .start()
}

/// With a server behind it that lives as long.
fn start_proxied(collector: &Collector) -> (Server, Origin) {
    let origin = Origin::echo();
    let conf = format!(
        "worker_processes 1; error_log error.log info; events {{}} http {{ access_log off;
        otel_exporter {{ endpoint http://127.0.0.1:{}; interval 1ms; }}
        otel_trace on; split_clients $otel_trace_id $ratio {{ 50% on; * off; }}
        server {{ listen 127.0.0.1:%%PORT_0%%; {LOCATIONS} }} }}",
        collector.port()
    );
    let server = Setup::new(&conf).set("ORIGIN", origin.address()).start();
    (server, origin)
}

fn only(collector: &Collector) -> Span {
    collector.expect_spans(1).remove(0)
}

#[test]
fn default_attributes() {
    let collector = Collector::grpc();
    let server = start(&collector, "");
    let answer = server.get_with("/err?a=1", "User-Agent: test/1\r\n");
    assert_eq!(answer.status, 500);
    let span = only(&collector);
    assert_eq!((&span.name[..], span.kind, span.status), ("/err", 2, 2));
    let port = server.port(0).to_string();
    for (name, value) in [
        ("http.method", "GET"),
        ("http.target", "/err?a=1"),
        ("http.route", "/err"),
        ("http.scheme", "http"),
        ("http.flavor", "1.1"),
        ("http.user_agent", "test/1"),
        ("http.request_content_length", "0"),
        ("http.response_content_length", "3"),
        ("http.status_code", "500"),
        ("net.host.name", "localhost"),
        ("net.host.port", &port),
        ("net.sock.peer.addr", "127.0.0.1"),
    ] {
        assert_eq!(span.attribute(name), value, "{name}");
    }
    assert!(span.attribute("net.sock.peer.port").parse::<u16>().is_ok_and(|p| p >= 1024));
    assert_eq!((span.trace.len(), span.id.len(), &span.parent[..]), (32, 16, ""));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(span.began <= span.ended && u128::from(span.ended) <= now.as_nanos());
    assert!(now.as_nanos() - u128::from(span.began) < 60_000_000_000);
    let export = collector.exports().remove(0);
    let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(export.path, path);
    assert_eq!(export.resource()["service.name"], "unknown_service:nginx");
}

#[test]
fn other_versions_of_http() {
    let collector = Collector::grpc();
    let server = start(&collector, "");
    assert_eq!(server.raw(b"GET /ok\n"), b"OK");
    let span = only(&collector);
    assert_eq!((&span.name[..], span.attribute("http.status_code")), ("/ok", "200"));
    assert!(!span.attributes.contains_key("http.flavor"));
    server.raw(b"POST /ok HTTP/1.0\r\nContent-Length: 2\r\n\r\nab");
    let span = collector.expect_spans(2).remove(1);
    assert_eq!(span.attribute("http.flavor"), "1.0");
    assert_eq!(span.attribute("http.request_content_length"), "2");
    let mut h2 = H2::connect(&server);
    h2.get("/ok");
    let span = collector.expect_spans(3).remove(2);
    assert_eq!((span.attribute("http.flavor"), span.attribute("http.scheme")), ("2.0", "http"));
    assert_eq!(span.attribute("http.response_content_length"), "2");
    let client = tls::Tls::showing(None);
    assert_eq!(client.get(server.port(1), "localhost", "/ok").status, 200);
    assert_eq!(collector.expect_spans(4)[3].attribute("http.scheme"), "https");
}

#[test]
fn names_attributes_and_the_resource() {
    let collector = Collector::grpc();
    let more = "otel_service_name test_service; otel_resource_attr my.name 'my name';";
    let server = start(&collector, more);
    server.get("/custom");
    let span = only(&collector);
    assert_eq!(span.name, "custom_location");
    assert_eq!(span.attribute("http.request.completion"), "OK");
    assert_eq!(span.attribute("http.response.header.content.type"), "[text/plain]");
    assert_eq!(span.attribute("http.request"), "GET /custom HTTP/1.1");
    let resource = collector.exports().remove(0).resource();
    assert_eq!(
        (&resource["service.name"][..], &resource["my.name"][..]),
        ("test_service", "my name")
    );
    server.get("/re/seen");
    let span = collector.expect_spans(2).remove(1);
    assert_eq!((&span.name[..], span.attribute("http.route")), ("seen", "^/re/(\\w+)"));
}

#[test]
fn variables_are_the_spans() {
    let collector = Collector::grpc();
    let server = start(&collector, "");
    for (count, headers) in [
        (1, String::new()),
        (2, format!("Traceparent: {PARENT}\r\nTracestate: congo=ucfJifl5GOE\r\ntracestate: rojo=00f067aa0ba902b7\r\n")),
    ] {
        let answer = server.get_with("/vars", &headers);
        let span = collector.expect_spans(count).remove(count - 1);
        assert_eq!(answer.header("X-Trace"), Some(&span.trace[..]));
        assert_eq!(answer.header("X-Span"), Some(&span.id[..]));
        assert_eq!(answer.header("X-Parent").unwrap_or_default(), span.parent);
        let sampled = if count == 2 { "1" } else { "0" };
        assert_eq!(answer.header("X-Sampled"), Some(sampled));
        if count == 2 {
            assert_eq!((&span.trace[..], &span.parent[..]), (&PARENT[3..35], &PARENT[36..52]));
            assert_eq!(span.state, STATE);
        }
    }
}

#[test]
fn contexts_are_taken_and_passed_on() {
    let collector = Collector::grpc();
    let (server, origin) = start_proxied(&collector);
    let mut count = 0;
    for parent in [false, true] {
        for path in ["/ignore", "/extract", "/inject", "/propagate"] {
            let headers = match parent {
                true => format!("Traceparent: {PARENT}\r\nTracestate: {STATE}\r\n"),
                false => String::new(),
            };
            assert_eq!(server.get_with(path, &headers).status, 200);
            count += 1;
            let span = collector.expect_spans(count).remove(count - 1);
            let extracts = matches!(path, "/extract" | "/propagate") && parent;
            if extracts {
                assert_eq!((&span.trace[..], &span.parent[..]), (&PARENT[3..35], &PARENT[36..52]));
            } else {
                assert_eq!((&span.parent[..], span.trace == PARENT[3..35]), ("", false), "{path}");
            }
            assert_eq!(span.state, if extracts { STATE } else { "" }, "{path}");
            let own = format!("00-{}-{}-01", span.trace, span.id);
            let expected = match path {
                "/inject" => (Some(&own[..]), None),
                "/propagate" => (Some(&own[..]), parent.then_some(STATE)),
                _ => (parent.then_some(PARENT), parent.then_some(STATE)),
            };
            let request = origin.last_request();
            let told = (request.header("traceparent"), request.header("tracestate"));
            assert_eq!(told, expected, "{path} {parent}");
        }
    }
}

#[test]
fn a_traceparent_that_is_none_begins_a_trace() {
    let collector = Collector::grpc();
    let (server, origin) = start_proxied(&collector);
    let twice = format!("traceparent: {PARENT}\r\ntraceparent: {PARENT}\r\n");
    let bad = [
        format!("traceparent: {}\r\n", PARENT.to_uppercase()),
        format!("traceparent: {PARENT}-x\r\n"),
        format!("traceparent: ff{}\r\n", &PARENT[2..]),
        "traceparent: 00-00000000000000000000000000000000-b9c7c989f97918e1-01\r\n".to_owned(),
        twice,
    ];
    for (n, headers) in bad.iter().enumerate() {
        server.get_with("/propagate", &format!("{headers}tracestate: {STATE}\r\n"));
        let span = collector.expect_spans(n + 1).remove(n);
        assert_eq!((&span.parent[..], &span.state[..]), ("", ""), "{headers}");
        let request = origin.last_request();
        let own = format!("00-{}-{}-01", span.trace, span.id);
        assert_eq!(request.header("traceparent"), Some(&own[..]));
        assert_eq!(request.head.to_lowercase().matches("traceparent").count(), 1);
        assert_eq!(request.header("tracestate"), None, "it goes with a traceparent");
    }
    let newer = format!("traceparent: 01{}-more\r\n", &PARENT[2..]);
    server.get_with("/propagate", &newer);
    assert_eq!(collector.expect_spans(bad.len() + 1)[bad.len()].trace, PARENT[3..35]);
}

#[test]
fn who_is_sampled() {
    let collector = Collector::grpc();
    let (server, origin) = start_proxied(&collector);
    let unsampled = format!("{}00", &PARENT[..53]);
    server.get_with("/by_parent", &format!("traceparent: {unsampled}\r\n"));
    let request = origin.last_request();
    let told = request.header("traceparent").unwrap();
    assert!(told.starts_with(&PARENT[..36]) && told.ends_with("-00"), "{told}");
    assert_ne!(told[36..52], PARENT[36..52]);
    server.get_with("/by_parent", "");
    server.get_with("/unsampled", &format!("traceparent: {PARENT}\r\n"));
    assert!(origin.last_request().header("traceparent").unwrap().ends_with("-00"));
    server.get("/off");
    server.get_with("/by_parent", &format!("traceparent: {PARENT}\r\n"));
    let span = only(&collector);
    assert_eq!(span.name, "/by_parent");
    assert!(origin.last_request().header("traceparent").unwrap().ends_with("-01"));
    let ids: Vec<String> = (0..100).map(|_| server.get("/by_ratio").text()).collect();
    server.get("/ok");
    let done = || collector.spans().iter().any(|span| span.name == "/ok");
    weir_tests::expect_soon("the last span", done);
    let spans = collector.spans();
    let sampled = spans.iter().filter(|span| span.name == "/by_ratio").count();
    assert!((20..80).contains(&sampled), "{sampled} of 100");
    assert!(spans.iter().filter(|s| s.name == "/by_ratio").all(|s| ids.contains(&s.trace)));
}

#[test]
fn redirects_and_parts_are_of_the_request() {
    let collector = Collector::grpc();
    let server = start(&collector, "");
    assert_eq!(server.get("/moved").text(), "else");
    let span = only(&collector);
    assert_eq!((&span.name[..], span.attribute("http.target")), ("/elsewhere", "/moved"));
    let id = server.get("/page/p.html").text();
    let span = collector.expect_spans(2).remove(1);
    assert_eq!((&span.name[..], &span.id), ("/page", &id));
}

#[test]
fn what_clients_send_spoils_no_batch() {
    let collector = Collector::grpc();
    let server = start(&collector, "");
    let long = "x".repeat(6000);
    let request = format!("GET /ok?{long} HTTP/1.1\r\nHost: h\r\nUser-Agent: a\u{0}b\r\n\r\n");
    let request = request.replace('\0', "\u{e9}");
    // One byte of a character of two.
    let mut bytes = request.into_bytes();
    let at = bytes.iter().position(|b| *b == 0xc3).unwrap();
    bytes.remove(at + 1);
    server.on(0).connect().send(&bytes);
    let span = only(&collector);
    assert_eq!(span.attribute("http.user_agent"), "a\u{fffd}b");
    assert_eq!(span.attribute("http.target").len(), 4096);
}
