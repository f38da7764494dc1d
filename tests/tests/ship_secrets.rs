//! Receivers that repeat what they were sent: nothing of it is in the log, or in what the API shows.

use weir_tests::{expect_soon, Next, Origin, Server, Setup};

/// Answers 401 with the whole head, a cursor that moves and a text that turns.
fn echo() -> Origin {
    Origin::start(|request, conn| {
        let head: Vec<&str> = request.head.lines().filter(|l| l.contains(": ")).collect();
        let words = format!("\u{202e}\u{1b}[2Jno: {}", head.join(" "));
        let error = serde_json::json!({"error": {"type": "no", "reason": words}}).to_string();
        let is_bulk = request.line().contains("_bulk");
        conn.reply("401 No", "", if is_bulk { &error } else { &words });
        Next::Keep
    })
}

const SECRETS: [&str; 6] =
    ["S3CRETPW", "Ym9iOlMzQ1JFVFBX", "K3Y-0F-API", "T0KEN-0F-FIELD", "\u{202e}", "\u{1b}"];

#[track_caller]
fn expect_none(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret:?} is in {text}");
    }
}

fn shown(server: &Server, path: &str) -> String {
    server.get(path).text()
}

#[test]
fn what_receivers_repeat_is_not_shown() {
    let origin = echo();
    let server = Setup::new(
        "worker_processes 1; error_log error.log info; events {}
        ship es { to elasticsearch http://127.0.0.1:%%TO%%; queue %%DIR%%/es; batch linger=10ms;
            user bob; password_file pw; header X-Field T0KEN-0F-FIELD; }
        ship lo { to loki http://127.0.0.1:%%TO%%; queue %%DIR%%/lo; batch linger=10ms; api_key key; }
        ship ot { to otlp http://127.0.0.1:%%TO%%; queue %%DIR%%/ot; batch linger=10ms; user bob; password_file pw; }
        http { access_log off;
          otel_exporter { endpoint http://127.0.0.1:%%TO%%; protocol http/protobuf; interval 1ms; header X-Field T0KEN-0F-FIELD; }
          server { listen 127.0.0.1:%%PORT_0%%;
            location / { otel_trace on; ship_access es; ship_access lo; ship_access ot; return 200 ok; }
            location /api { api; } } }",
    )
    .set("TO", origin.port())
    .file("pw", "S3CRETPW\n")
    .file("key", "K3Y-0F-API\n")
    .start();
    assert_eq!(server.get("/x").status, 200);
    for name in ["es", "lo", "ot"] {
        let path = format!("/api/9/ship/{name}");
        expect_soon(name, || shown(&server, &path).contains("last_error"));
        expect_none(&shown(&server, &path));
        assert!(shown(&server, &path).contains("***"), "{}", shown(&server, &path));
    }
    expect_soon("otel", || shown(&server, "/api/9/otel").contains("last_error"));
    expect_none(&shown(&server, "/api/9/otel"));
    server.expect_error("OTel export failure: answered 401");
    for name in ["es", "lo", "ot"] {
        server.expect_error(&format!("ship \"{name}\": "));
    }
    expect_none(&server.error_log());
    assert!(server.error_log().contains("\\u{202e}"), "{}", server.error_log());
}
