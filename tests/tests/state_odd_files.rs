//! What has the name of a `state` file and is none: nobody waits for a pipe, whoever put it there.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use weir_tests::{expect_soon, run_cli, signal, skip, Response, Server, Setup, Signal};

const CONF: &str = "error_log %%DIR%%/error.log notice; events {} http {
    keyval_zone zone=z:64k state=%%DIR%%/z.json; keyval $arg_k $v zone=z;
    upstream u { zone u 64k; state %%DIR%%/u.conf; }
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 '$v'; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }";

fn post(server: &Server, path: &str, body: &str) -> Response {
    server.send_json("POST", &format!("/api/9/http/{path}"), body)
}

fn pipe(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_configuration_that_names_one_is_refused() {
    let name = format!("weir-odd-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let shown = path.display().to_string();
    for odd in ["pipe", "directory"] {
        match odd {
            "pipe" => pipe(&path),
            _ => std::fs::create_dir(&path).unwrap(),
        }
        for conf in [
            format!("keyval_zone zone=z:64k state={shown};"),
            format!("upstream u {{ zone u 64k; state {shown}; }}"),
        ] {
            let text = run_cli(&["-t"], &format!("events {{}} http {{ {conf} }}")).stderr;
            assert!(text.contains(&shown) && text.contains("it is no regular file"), "{text}");
            assert!(text.contains("test failed"), "{text}");
        }
        let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
    }
}

/// One that was not there when the configuration was read and is wrong when the serving process dies does not keep the next
/// one from serving.
#[test]
fn a_wrong_one_keeps_no_process_from_serving() {
    for name in ["u.conf", "z.json"] {
        let server = Setup::new(CONF).start();
        let [child] = server.children()[..] else { return skip("no master") };
        server.write(name, "garbage {");
        signal(child, Signal::Kill);
        expect_soon("another one serves", || {
            server.children().first().is_some_and(|pid| *pid != child)
                && TcpStream::connect(("127.0.0.1", server.port(0))).is_ok()
        });
        assert_eq!(server.get("/").status, 200, "{name}");
        server.expect_error(&format!("{name}\": "));
    }
}

/// Of a server that runs: changes are refused, requests and other questions are answered, a reload is refused.
#[test]
fn one_that_is_put_there_stops_nobody() {
    let server = Setup::new(CONF).start();
    assert_eq!(post(&server, "keyvals/z", "{\"a\":\"1\"}").status, 201);
    let added = post(&server, "upstreams/u/servers", "{\"server\":\"127.0.0.1:9\"}");
    assert_eq!(added.status, 201);
    for name in ["z.json", "u.conf"] {
        pipe(&server.dir().join(name));
        server.expect_error(&format!("{name}\": it is no regular file"));
    }
    assert_eq!(server.get("/?k=a").text(), "1");
    let shown = server.get("/api/9/http/keyvals/z");
    assert_eq!((shown.status, shown.text()), (200, "{\"a\":\"1\"}".into()));
    let put = post(&server, "keyvals/z", "{\"b\":\"2\"}");
    assert!(put.text().contains("it is no regular file"), "{}", put.text());
    let put = post(&server, "upstreams/u/servers", "{\"server\":\"127.0.0.1:10\"}");
    assert!(put.text().contains("it is no regular file"), "{}", put.text());
    server.signal(weir_tests::Signal::Hup);
    server.expect_error("state file");
    assert_eq!(server.get("/?k=a").text(), "1");
    // What is one again counts again.
    for name in ["z.json", "u.conf"] {
        std::fs::remove_file(server.dir().join(name)).unwrap();
    }
    assert_eq!(post(&server, "keyvals/z", "{\"b\":\"2\"}").status, 201);
    let text = std::fs::read_to_string(server.dir().join("z.json")).unwrap();
    assert!(text.contains("\"a\":\"1\"") && text.contains("\"b\":\"2\""), "{text}");
}
