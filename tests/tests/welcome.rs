//! The embedded default: what Weir serves when it is given no configuration.

use weir_tests::{expect_soon, run_cli, Server};

const CONF: &str = "worker_processes 2; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    location = / { weir_welcome; }
    location = /status { stub_status; }
    location /dashboard/ { dashboard api=/api/; }
    location /api/ { api; }
    location / { return 404; } } }";

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

/// `weir` alone, as who tries it for the first time starts it.
#[test]
fn the_embedded_default_can_be_asked_and_serves_no_files() {
    if std::net::TcpListener::bind("127.0.0.1:8080").is_err() {
        return weir_tests::skip("port 8080 is taken");
    }
    let home = std::env::temp_dir().join(format!("weir-alone-{}", std::process::id()));
    std::fs::create_dir_all(home.join("html")).unwrap();
    std::fs::write(home.join("html/x.html"), "somebody's").unwrap();
    let start = |arguments: &[&str]| {
        let mut command = std::process::Command::new(weir_tests::binary());
        command.args(arguments).env("TMPDIR", &home).current_dir(&home);
        command
    };
    let Ok(mut alone) = start(&[]).stderr(std::process::Stdio::null()).spawn() else {
        return weir_tests::skip("it does not start");
    };
    let connect = || std::net::TcpStream::connect("127.0.0.1:8080");
    expect_soon("it listens", || connect().is_ok());
    let pid = alone.id().to_string();
    let top = start(&["top", "--once", "-p", &pid]).output().unwrap();
    assert!(top.status.success(), "{}", String::from_utf8_lossy(&top.stderr));
    let mut asked = connect().unwrap();
    std::io::Write::write_all(&mut asked, b"GET /x.html HTTP/1.0\r\n\r\n").unwrap();
    let answer = std::io::read_to_string(asked).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    weir_tests::signal(alone.id(), weir_tests::Signal::Term);
    alone.wait().unwrap();
    assert!(!home.join(format!("weir-{pid}.control")).exists());
    std::fs::remove_dir_all(home).unwrap();
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
