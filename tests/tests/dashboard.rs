//! `dashboard`: the page, what there was before it was opened, and what happens while it is open.

use std::path::Path;
use weir_tests::{run_cli, Server};

const CONF: &str = "worker_processes 2; events {} http {
    server { listen 127.0.0.1:%%PORT_0%%; server_name \"a</script>\";
        location / { return 200 ok; }
        location /live/ { dashboard; }
        location /bare { dashboard; } } }";

#[test]
fn the_page_asks_nobody_else_and_says_so() {
    let server = Server::start(CONF);
    for uri in ["/live/", "/bare/"] {
        let page = server.get(uri);
        assert_eq!((page.status, page.header("Cache-Control")), (200, Some("no-store")));
        assert_eq!(page.header("X-Content-Type-Options"), Some("nosniff"));
        let policy = page.header("Content-Security-Policy").unwrap_or_default().to_string();
        assert!(policy.starts_with("default-src 'none'; connect-src 'self';"), "{policy}");
        assert!(
            !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        let text = page.text();
        for (open, close, kind) in [
            ("<style>", "</style>", "style-src"),
            ("<script type=\"module\">", "</script>", "script-src"),
        ] {
            let inner =
                text.split(open).nth(1).and_then(|t| t.split(close).next()).unwrap_or_default();
            assert!(inner.len() > 1000, "{kind}");
            let wanted =
                format!("{kind} 'sha256-{}'", weir_tests::digest::sha256_base64(inner.as_bytes()));
            assert!(policy.contains(&wanted), "{wanted} in {policy}");
        }
        assert!(!text.contains("src=") && !text.contains("@import"));
    }
    assert_eq!(server.get("/bare").header("Location").map(|l| l.ends_with("/bare/")), Some(true));
    assert_eq!(server.get("/live/other").status, 404);
    assert_eq!(server.post("/live/", "x").status, 405);
}

#[test]
fn events_tell_names_once_and_then_what_changes() {
    let server = Server::start(CONF);
    let mut viewer = server.connect();
    viewer.send_get("/live/events");
    let head = viewer.read_until(b"event: all\n");
    assert!(
        head.windows(17).any(|w| w == b"text/event-stream"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    let all = String::from_utf8(viewer.read_until(b"\n\n")).unwrap_or_default();
    assert!(all.contains("\"server_zones\":{\"a</script>\":{\"processing\":"), "{all}");
    let asked = server.get("/");
    assert_eq!(asked.status, 200);
    // A look is a second; the one that is under way may have come before the question.
    let ticks = (0..3).map(|_| {
        viewer.read_until(b"event: tick\n");
        String::from_utf8(viewer.read_until(b"\n\n")).unwrap_or_default()
    });
    assert!(ticks.into_iter().any(|tick| tick.contains("\"row\":[")), "no second was noted");
    let history = server.get("/live/history");
    assert_eq!(history.header("Content-Type"), Some("application/json"));
    let text = history.text();
    assert!(
        text.starts_with("{\"columns\":[\"t\",\"accepted\",\"active\",\"requests\","),
        "{text}"
    );
    assert!(
        text.contains("{\"secs\":1,\"rows\":[[") && text.contains("{\"secs\":60,\"rows\":[["),
        "{text}"
    );
}

/// Requests that fail and lines of the error log; a flood is a few, and how many more there were is told.
#[test]
fn events_tell_what_goes_wrong_and_no_secrets() {
    let conf = CONF.replace(
        "location /live/",
        "location /gone { proxy_pass http://127.0.0.1:%%PORT_1%%; } location /bad { return 500; } location /live/",
    );
    // A viewer's own request is not slow, however long it views.
    let conf =
        conf.replace("location /live/ { dashboard;", "location /live/ { dashboard slow=1ms;");
    let server = Server::start(&conf);
    let mut viewer = server.connect();
    viewer.send_get("/live/events");
    viewer.read_until(b"event: all\n");
    let read = |viewer: &mut weir_tests::Client, text: &str| {
        let before = viewer.read_until(text.as_bytes());
        String::from_utf8_lossy(&before).into_owned()
    };
    assert_eq!(server.get("/gone/x?token=hush").status, 502);
    let mut told = read(&mut viewer, "\"news\":[");
    told += &read(&mut viewer, "\"path\":\"/gone/x\"");
    told += &read(&mut viewer, "\n\n");
    assert!(told.contains("\"level\":\"error\",\"text\":\"connect() failed"), "{told}");
    assert!(told.contains("\"status\":502,") && told.contains("\"method\":\"GET\""), "{told}");
    for _ in 0..100 {
        assert_eq!(server.get("/bad").status, 500);
    }
    read(&mut viewer, "\"path\":\"/bad\"");
    weir_tests::expect_soon("what was left out is told", || {
        server.get("/bad");
        let mut late = server.connect();
        late.send_get("/live/events");
        let all = String::from_utf8_lossy(&late.read_until(b"\n\n")).into_owned()
            + &String::from_utf8_lossy(&late.read_until(b"\n\n"));
        assert!(!all.contains("hush") && !all.contains("client: "), "{all}");
        assert!(!all.contains("\"path\":\"/live/events\""), "{all}");
        all.contains("\"more\":")
    });
}

#[test]
fn viewers_are_so_many_and_no_more() {
    let server = Server::start(CONF);
    let viewers: Vec<_> = (0..64)
        .map(|_| {
            let mut viewer = server.connect();
            viewer.send_get("/live/events");
            viewer.read_until(b"event: all\n");
            viewer
        })
        .collect();
    assert_eq!(server.get("/live/events").status, 503);
    drop(viewers);
    weir_tests::expect_soon("there is room again", || {
        let mut viewer = server.connect();
        viewer.send_get("/live/events");
        viewer.read_until(b"\r\n").starts_with(b"HTTP/1.1 200")
    });
}

/// The page that is built in is what its sources make, as far as can be told without Node.
#[test]
fn the_built_page_is_of_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let noted =
        std::fs::read_to_string(root.join("crates/status/page/sources.txt")).unwrap_or_default();
    assert!(noted.lines().count() > 10, "{noted}");
    for line in noted.lines() {
        let (digest, path) = line.split_once("  ").unwrap_or_default();
        let source = std::fs::read(root.join("dashboard").join(path)).unwrap_or_default();
        assert_eq!(
            weir_tests::digest::sha256_hex(&source),
            digest,
            "dashboard/{path} has changed: npm run build in dashboard/"
        );
    }
}

#[test]
fn the_page_is_told_where_the_api_is() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /bare/ { dashboard; }
            location /live/ { dashboard api=/api/; }
            location /full/ { dashboard api=/write/; }
            location /api/ { api; }
            location /write/ { api write=on; allow 127.0.0.1; deny all; } } }",
    );
    for (uri, told) in [
        ("/bare/about", "{\"slow_ms\":1000,\"limits\":["),
        ("/live/about", "{\"api\":\"/api/\",\"writes\":false,\"slow_ms\":1000,"),
        ("/full/about", "{\"api\":\"/write/\",\"writes\":true,\"slow_ms\":1000,"),
    ] {
        let text = server.get(uri).text();
        assert!(text.starts_with(told), "{uri}: {text}");
    }
    // Where the system has them.
    if let Ok(somaxconn) = std::fs::read_to_string("/proc/sys/net/core/somaxconn") {
        let text = server.get("/bare/about").text();
        let limit =
            format!("{{\"name\":\"listen backlog (somaxconn)\",\"max\":{}}}", somaxconn.trim());
        assert!(text.contains(&limit), "{text}");
    }
}

#[test]
fn an_api_that_is_not_there_is_refused() {
    for (arg, error) in [
        ("api=/api/", "no location \"/api/\" with \"api\" in this server"),
        ("api=x", "invalid parameter \"api=x\""),
        ("slow=0", "invalid parameter \"slow=0\""),
        ("slow=x", "invalid parameter \"slow=x\""),
        ("api=/a/ api=/b/", "invalid parameter \"api=/b/\""),
        ("apis=/x/", "invalid parameter \"apis=/x/\""),
    ] {
        let conf = format!(
            "events {{}} http {{
                server {{ listen 127.0.0.1:1; location /live/ {{ dashboard {arg}; }} }}
                server {{ listen 127.0.0.1:2; location /api/ {{ api; }} }} }}"
        );
        let told = run_cli(&["-t"], &conf).stderr;
        assert!(told.contains(error), "{told}");
    }
}
