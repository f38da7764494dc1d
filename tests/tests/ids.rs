//! `$request_uuid`, the ids of W3C's trace context, `$upstream_queue_time`. (nginx has none of them.)

use weir_tests::{Next, Origin, Setup};

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[test]
fn ids_of_requests_and_traces() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /ids { return 200 \"$request_uuid $request_uuid\"; }
            location /trace { return 200 \"$trace_id $span_id $traceparent $trace_sampled [$parent_span_id]\"; }
            location /on { proxy_set_header traceparent $traceparent; proxy_pass http://%%ORIGIN%%;
                add_header X-Span $span_id; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let text = server.get("/ids").text();
    let (first, second) = text.split_once(' ').unwrap();
    assert_eq!(first, second);
    let parts: Vec<&str> = first.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{first}");
    assert!(parts.iter().all(|part| is_hex(part, part.len())) && parts[2].starts_with('7'));
    assert!("89ab".contains(&parts[3][..1]), "{first}");
    let ms = u64::from_str_radix(&format!("{}{}", parts[0], parts[1]), 16).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.as_millis() as u64).abs_diff(ms) < 60_000, "{first}");
    assert_ne!(first, server.get("/ids").text().split(' ').next().unwrap());
    // A trace begins here.
    let text = server.get("/trace").text();
    let words: Vec<&str> = text.split(' ').collect();
    assert!(is_hex(words[0], 32) && is_hex(words[1], 16), "{text}");
    assert_eq!(words[2], format!("00-{}-{}-00", words[0], words[1]));
    assert_eq!(words[3..], ["0", "[]"]);
    // It goes on.
    let theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let field = format!("TraceParent: {theirs}\r\n");
    let text = server.get_with("/trace", &field).text();
    let words: Vec<&str> = text.split(' ').collect();
    assert_eq!(words[0], "0af7651916cd43dd8448eb211c80319c");
    assert_ne!(words[1], "b7ad6b7169203331");
    assert_eq!(words[2], format!("00-{}-{}-01", words[0], words[1]));
    assert_eq!(words[3..], ["1", "[b7ad6b7169203331]"]);
    // Twice is never.
    let text = server.get_with("/trace", &format!("{field}{field}")).text();
    assert!(!text.starts_with("0af7"), "{text}");
    let answer = server.get_with("/on", &field);
    let span = answer.header("X-Span").unwrap();
    let told = origin.only_request();
    let expected = format!("00-0af7651916cd43dd8448eb211c80319c-{span}-01");
    assert_eq!(told.header("traceparent"), Some(&expected[..]));
}

#[test]
fn a_configuration_may_have_these_names_for_its_own() {
    let server = Setup::new(
        "events {} http { map $arg_a $trace_id { default mine; }
            server { listen 127.0.0.1:%%PORT_0%%; set $request_uuid own; return 200 $trace_id-$request_uuid; } }",
    )
    .start();
    assert_eq!(server.get("/").text(), "mine-own");
}

#[test]
fn how_long_a_request_has_waited_for_a_server() {
    let origin = Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(200));
        conn.reply("200 OK", "", "late");
        Next::Keep
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { log_format times \"$upstream_queue_time\"; access_log times.log times;
            upstream u { zone u 64k; server %%ORIGIN%% max_conns=1; queue 9 timeout=20s; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut clients = [server.connect(), server.connect()];
    clients.iter_mut().for_each(|client| client.send_get("/"));
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    let lines = server.log_lines("times.log", 2);
    assert_eq!(lines[0], "-");
    assert!(lines[1].parse::<f64>().unwrap() >= 0.1, "{}", lines[1]);
}

/// A queue that is full refuses at once.
#[test]
fn who_is_refused_has_not_waited() {
    let origin = Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(200));
        conn.reply("200 OK", "", "late");
        Next::Keep
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { log_format times \"$status $upstream_queue_time\"; access_log times.log times;
            upstream u { zone u 64k; server %%ORIGIN%% max_conns=1; queue 1 timeout=20s; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut clients = [server.connect(), server.connect(), server.connect()];
    clients.iter_mut().for_each(|client| client.send_get("/"));
    clients.iter_mut().for_each(|client| drop(client.response()));
    let mut lines = server.log_lines("times.log", 3);
    lines.sort();
    assert_eq!((lines[0].as_str(), lines[2].as_str()), ("200 -", "502 -"), "{lines:?}");
    assert!(lines[1].starts_with("200 0."), "{lines:?}");
}
