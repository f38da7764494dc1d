//! Zones with many pairs: who asks for all of them keeps nobody else waiting, and who does not read does not fill the memory.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_tests::{expect_soon, Server, Setup, Signal};

const CONF: &str = "worker_processes 1; events {} http {
    keyval_zone zone=many:256m state=many.json; keyval $arg_k $v zone=many;
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 '$v'; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }";

fn start(pairs: usize, value_bytes: usize) -> Server {
    let value = "v".repeat(value_bytes);
    let mut text = String::from("{\"first\":\"1\"");
    for n in 0..pairs {
        let _ = write!(text, ",\"key{n:06}\":\"{value}\"");
    }
    Setup::new(CONF).file("many.json", text + "}").start()
}

#[test]
fn all_pairs_are_shown_each_once() {
    let server = start(20_000, 20);
    let shown = server.get("/api/9/http/keyvals/many").text();
    let all: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let all = all.as_object().unwrap();
    assert_eq!((all.len(), shown.matches("\"key").count()), (20_001, 20_000));
    assert_eq!((&all["first"], &all["key019999"]), (&"1".into(), &"v".repeat(20).into()));
    let zones = server.get("/api/9/http/keyvals/").text();
    assert_eq!(zones, format!("{{\"many\":{shown}}}"));
}

#[test]
fn those_who_ask_for_all_have_a_bound() {
    let server = start(8_000, 4_000);
    let mut deaf = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect();
        client.send(b"GET /api/9/http/keyvals/many HTTP/1.1\r\nHost: a\r\n\r\n");
        deaf.push(client);
        assert_eq!(server.get("/?k=first").text(), "1");
    }
    expect_soon("no more are answered", || server.head("/api/9/http/keyvals/many").status == 503);
    // One pair is shown all the same.
    assert_eq!(server.get("/api/9/http/keyvals/many?key=first").text(), "{\"first\":\"1\"}");
    drop(deaf);
    expect_soon("they are answered again", || {
        server.head("/api/9/http/keyvals/many").status == 200
    });
}

/// What dates a file has, whoever wrote it.
#[test]
fn dates_of_a_file_count() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let soon = (now + Duration::from_secs(2)).as_millis();
    let pairs = format!(
        "{{\"soon\":{{\"value\":\"1\",\"expire\":{soon}}},\"late\":{{\"value\":\"2\",\"expire\":{}}},
          \"over\":{{\"value\":\"3\",\"expire\":-5}},\"plain\":\"4\"}}",
        u64::MAX
    );
    let conf = CONF.replace("state=many.json", "state=many.json timeout=1h");
    let server = Setup::new(&conf).file("many.json", pairs).start();
    for (key, value) in [("late", "2"), ("over", ""), ("plain", "4")] {
        assert_eq!(server.get(&format!("/?k={key}")).text(), value, "{key}");
    }
    expect_soon("one has had its time", || server.get("/?k=soon").text().is_empty());
    // They are written as they are: the one that has no date has the zone's time from then on.
    let more = "POST /api/9/http/keyvals/many HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
        Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"more\":\"five\"}";
    assert_eq!(server.exchange("POST", more.as_bytes()).status, 201);
    let text = server.read("many.json");
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let (late, plain) = (all["late"]["expire"].as_u64(), all["plain"]["expire"].as_u64());
    assert!(late.is_some_and(|date| date > u64::MAX / 2), "{text}");
    let hour = u128::from(plain.unwrap()) - now.as_millis();
    assert!((3_600_000..3_700_000).contains(&hour), "{text}");
    assert!(!text.contains("over") && !text.contains("soon"), "{text}");
    // One that is none is told where it stands.
    server.write("many.json", "{\"bad\":{\"value\":\"x\",\"expire\":\"never\"}}");
    server.signal(Signal::Hup);
    server.expect_error("\"expire\" of \"bad\" is no date (milliseconds since 1970)");
    assert_eq!(server.get("/?k=late").text(), "2", "the reload is refused");
}
