//! The embedded default: what Weir serves when it is given no configuration.

use weir_tests::{expect_soon, run_cli, Server};

const CONF: &str = "worker_processes 2; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    location = / { weir_welcome; }
    location = /status { stub_status; }
    location /dashboard/ { dashboard api=/api/; }
    location /api/ { api; } } }";

#[test]
fn the_page_is_one_page() {
    let server = Server::start(CONF);
    let response = server.get("/");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("Content-Type"), Some("text/html; charset=utf-8"));
    let policy = response.header("Content-Security-Policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = response.text();
    // What it asks and leads to is there.
    for (named, uri) in [
        ("fetch('/status'", "/status"),
        ("fetch('/dashboard/history'", "/dashboard/history"),
        ("href=\"/dashboard/\"", "/dashboard/"),
        ("href=\"/api/9/\"", "/api/9/"),
    ] {
        assert!(text.contains(named), "{named} in {text}");
        assert_eq!(server.get(uri).status, 200, "{uri}");
    }
    assert!(text.contains("EventSource('/dashboard/events')"), "{text}");
    expect_soon("both workers", || server.get("/").text().contains(" · 2 workers"));
    assert!(!text.contains("src=") && !text.contains("<link"), "{text}");
}

/// The configuration that is built in is the one that these tests are of.
#[test]
fn the_embedded_configuration_has_the_dashboard() {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/weir/default/weir.conf"
    ))
    .unwrap();
    let start = text.find("listen 127.0.0.1:8080;").expect("it listens for this machine only");
    let locations = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (inner, tested) = (locations(&text[start + 22..]), locations(CONF));
    assert!(tested.ends_with(&inner), "{inner} in {tested}");
}

#[test]
fn methods() {
    let server = Server::start(CONF);
    assert_eq!(server.head("/").status, 200);
    assert_eq!(server.post("/", "x").status, 405);
}

#[test]
fn the_path_it_names_is_the_one_of_the_help() {
    let help = run_cli(&["-h"], "").stderr;
    let prefix = help.split_once("set prefix path (default: ").unwrap().1;
    let prefix = prefix.split_once(')').unwrap().0;
    assert!(Server::start(CONF).get("/").text().contains(&format!("{prefix}conf/nginx.conf")));
}
