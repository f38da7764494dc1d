//! `ship` to Loki: what is pushed, and that nothing is lost by what it answers.

use flate2::read::GzDecoder;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::{Arc, Mutex};
use weir_tests::{expect_soon, run_cli, Next, Origin, Setup};

const CONF: &str = "worker_processes 1; error_log error.log info; events {}
ship l { to loki http://127.0.0.1:%%LOKI%%/base; queue %%DIR%%/queue; batch events=10 linger=10ms;
    retry first=5ms most=20ms; tenant us; label job edge; label code field:http.response.status_code; }
http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; location / { ship_access l; return 200 ok; }
    location /none { ship_access l; return 404; } location /api { api; } } }";

/// Loki keeps a line of a stream and a time once.
#[test]
fn lines_are_pushed_until_they_are_there() {
    type Lines = BTreeSet<(String, String, String)>;
    let kept: Arc<Mutex<(usize, Lines)>> = Arc::default();
    let shared = Arc::clone(&kept);
    let loki = Origin::start(move |request, conn| {
        assert_eq!(request.line(), "POST /base/loki/api/v1/push HTTP/1.1");
        assert_eq!(request.header("X-Scope-OrgID"), Some("us"));
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        let mut body = Vec::new();
        GzDecoder::new(&request.body[..]).read_to_end(&mut body).unwrap();
        let push: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let mut kept = shared.lock().unwrap();
        kept.0 += 1;
        let mood = kept.0 % 5;
        match mood {
            1 => conn.reply("503 Down", "", "not now"),
            2 => conn.reply("429 Slow", "Retry-After: 0\r\n", "rate limit"),
            _ => {
                for stream in push["streams"].as_array().unwrap() {
                    let labels = stream["stream"].to_string();
                    for value in stream["values"].as_array().unwrap() {
                        let text = |n: usize| value[n].as_str().unwrap().to_owned();
                        kept.1.insert((labels.clone(), text(0), text(1)));
                    }
                }
                // Taken, and not answered.
                if mood == 3 {
                    return Next::Close;
                }
                conn.reply("204 No Content", "", "");
            }
        }
        Next::Keep
    });
    let server = Setup::new(CONF).set("LOKI", loki.port()).start();
    let mut client = server.connect();
    for n in 0..100 {
        assert_eq!(client.get(&format!("/{n}")).status, 200);
    }
    assert_eq!(client.get("/none").status, 404);
    expect_soon("all lines", || kept.lock().unwrap().1.len() >= 101);
    let state = || server.get("/api/9/ship/l").text();
    expect_soon("an empty queue", || state().contains("\"queued_bytes\":0"));
    let (_, lines) = &*kept.lock().unwrap();
    let mut urls = BTreeSet::new();
    for (labels, _, line) in lines {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let code = event["http"]["response"]["status_code"].to_string();
        assert_eq!(*labels, format!("{{\"code\":\"{code}\",\"job\":\"edge\"}}"));
        assert!(urls.insert(event["url"]["original"].to_string()), "{line}");
    }
    assert_eq!((lines.len(), urls.len()), (101, 101));
}

/// Lines that are too old are told and counted, the others are there.
#[test]
fn what_loki_will_not_have_is_counted() {
    let loki = Origin::start(|_, conn| {
        let words = "entry ignored, reason: 'entry too far behind', total ignored: 1 out of 1";
        conn.reply("400 Bad Request", "", words);
        Next::Keep
    });
    let server = Setup::new(CONF).set("LOKI", loki.port()).start();
    assert_eq!(server.get("/a").status, 200);
    server.expect_error("too far behind");
    let state = || server.get("/api/9/ship/l").text();
    expect_soon("a figure", || state().contains("\"events_refused\":1"));
}

#[test]
fn what_is_said_is_checked() {
    for (block, expected) in [
        ("to loki h;", "\"h\" is no address of a receiver"),
        ("to loki http://h; label a-b c;", "\"a-b\" cannot be a label's name"),
        ("to loki http://h; label a b; label a c;", "duplicate label \"a\""),
        ("to loki http://h; label a field:;", "a field without a name"),
        ("to loki http://h; tenant 'a b';", "a tenant has 1 to 150 printable characters"),
        ("to loki http://h; topic t;", "\"topic\" is not for receivers of kind \"loki\""),
    ] {
        let conf = format!("events {{}} ship a {{ queue q; {block} }} http {{}}");
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{block}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{block}: {}", output.stderr);
    }
}
