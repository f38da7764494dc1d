//! The embedded default: what Weir serves when it is given no configuration.

use weir_tests::{expect_soon, run_cli, Server};

const CONF: &str = "worker_processes 2; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    location = / { weir_welcome; }
    location = /status { stub_status; } } }";

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
    assert!(text.contains("fetch('/status'"), "{text}");
    expect_soon("both workers", || server.get("/").text().contains(" · 2 workers"));
    assert!(!text.contains("src=") && !text.contains("<link"), "{text}");
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
