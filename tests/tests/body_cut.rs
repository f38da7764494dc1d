//! Uploads that end early, bodies that nobody reads, answers that find no room: what the client gets, and what the logs say.

use std::sync::atomic::{AtomicBool, Ordering};
use weir_tests::{Origin, Server, Setup};

fn server(origin: &Origin) -> Server {
    Setup::new(
        "error_log %%DIR%%/error.log info; events {} http {
            log_format t '$uri $status $body_bytes_sent [$request_completion]';
            access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
                location /kept { proxy_pass http://%%ORIGIN%%; }
                location /streamed { proxy_pass http://%%ORIGIN%%; proxy_request_buffering off; }
                location /text { return 200 text; }
                location /small { client_max_body_size 1k; lingering_close off; }
            } }",
    )
    .set("ORIGIN", origin.address())
    .file("html/file", "content")
    .start()
}

fn head(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n{more}\r\n")
}

/// nginx has nobody left to answer, and says 400 in the log.
#[test]
fn a_cut_upload_is_logged_and_not_answered() {
    static HEARD: AtomicBool = AtomicBool::new(false);
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"some");
        HEARD.store(true, Ordering::Relaxed);
        conn.wait_closed();
    });
    let server = server(&origin);
    for (path, why) in [
        ("/kept", "client prematurely closed connection, client: "),
        (
            "/streamed",
            "client prematurely closed connection while sending request to upstream, client: ",
        ),
    ] {
        let mut client = server.connect();
        client.send((head(path, "") + "some").as_bytes());
        if path == "/streamed" {
            weir_tests::expect_soon("the server's part", || HEARD.load(Ordering::Relaxed));
        }
        client.shutdown_write();
        assert_eq!(client.read_to_end(), b"", "{path}");
        server.expect_error(why);
        weir_tests::expect_soon("the request's line", || {
            server.read("access.log").contains(&format!("{path} 400 0 []\n"))
        });
    }
    let mut client = server.connect();
    client.send((head("/text", "") + "some").as_bytes());
    client.shutdown_write();
    assert!(client.read_to_end().ends_with(b"text"));
    weir_tests::expect_soon("the request's line", || {
        server.read("access.log").contains("/text 200 4 [OK]\n")
    });
    let told = server.error_log();
    assert_eq!(told.matches("prematurely").count(), 2, "{told}");
}

/// Only who is to send a body is told to: one that is refused is not.
#[test]
fn a_refused_client_is_not_told_to_continue() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let server = server(&origin);
    for (path, first) in [
        ("/file", "HTTP/1.1 405 "),
        ("/none", "HTTP/1.1 404 "),
        ("/small", "HTTP/1.1 413 "),
        ("/text", "HTTP/1.1 100 "),
    ] {
        let mut client = server.connect();
        client.send(head(path, "Expect: 100-continue\r\n").as_bytes());
        let answer = client.read_until(b"\r\n");
        assert!(String::from_utf8_lossy(&answer).starts_with(first), "{path}: {answer:?}");
    }
    // What is then sent all the same is thrown away, and the connection goes on.
    let mut client = server.connect();
    let asks =
        "POST /file HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    client.send(asks.as_bytes());
    assert_eq!(client.response().status, 405);
    client.send(b"body");
    assert_eq!(client.get("/file").text(), "content");
}

/// `lingering_close off` is about what comes behind a body, not about the body.
#[test]
fn a_body_that_is_thrown_away_is_read() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let server = server(&origin);
    let mut client = server.connect();
    client.send(head("/small", "").as_bytes());
    assert!(client.read_until(b"</html>\r\n").starts_with(b"HTTP/1.1 413 "));
    let piece = [b'x'; 100_000];
    for n in 0..10 {
        assert!(client.try_send(&piece), "piece {n}");
    }
    assert_eq!(client.read_to_end(), b"");
}

/// As a full disk does, a temporary file that cannot be made cuts the answer: it is not complete.
#[test]
fn an_answer_without_its_temporary_file_is_not_complete() {
    let length = 20_000_000;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let origin = Origin::replying([head.into_bytes(), vec![b'x'; length]].concat());
    let server = Setup::new(
        "error_log %%DIR%%/error.log; events {} http { log_format t '$status [$request_completion]';
            access_log %%DIR%%/access.log t; server { listen 127.0.0.1:%%PORT_0%%;
                proxy_temp_path %%DIR%%/gone; proxy_pass_header Server;
                location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    std::fs::remove_dir_all(server.dir().join("gone")).unwrap();
    server.write("gone", "");
    let mut client = server.connect();
    client.send_get("/");
    server.expect_error("[crit]");
    drop(client.read_to_end());
    assert_eq!(server.log_lines("access.log", 1), ["200 []"]);
}
