//! When bytes are passed on, in both directions.

use std::sync::{mpsc, Mutex};
use weir_tests::{Next, Origin, Setup, PATIENCE};

#[test]
fn without_buffering_bytes_come_as_they_are_sent() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let origin = Origin::start(move |_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Accel-Buffering: no\r\n\r\nfirst");
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        conn.write("again");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_buffering off; proxy_pass http://%%ORIGIN%%; }
            location /header { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for path in ["/", "/header"] {
        let mut client = server.connect();
        client.send_get(path);
        client.read_until(b"first");
        go.send(()).unwrap();
        assert_eq!(client.read_until(b"again"), b"again");
    }
}

#[test]
fn the_head_is_passed_on_before_the_body_comes() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let origin = Origin::start(move |_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        conn.write("body");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_buffering off; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut client = server.connect();
    client.send_get("/");
    client.read_until(b"\r\n\r\n");
    go.send(()).unwrap();
    assert_eq!(client.read_until(b"body"), b"body");
}

#[test]
fn large_answers_survive_a_slow_client() {
    let body: String = (0..200_000).map(|n| format!("{n:08}\n")).collect();
    let sent = body.clone();
    let origin = Origin::start(move |_, conn| {
        conn.reply("200 OK", "", &sent);
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /file/ { proxy_buffers 4 4k; proxy_buffer_size 4k; proxy_pass http://%%ORIGIN%%; }
            location /memory/ { proxy_max_temp_file_size 0; proxy_pass http://%%ORIGIN%%; }
            location /direct/ { proxy_buffering off; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for path in ["/file/", "/memory/", "/direct/"] {
        let mut client = server.connect();
        client.send_get(path);
        client.read_until(b"00000010\n");
        origin.expect_requests(1);
        std::thread::yield_now();
        let rest = client.read_until(b"00199999\n");
        assert!(body.as_bytes().ends_with(&rest), "{path}");
    }
}

#[test]
fn the_request_body_waits_or_streams() {
    let origin = Origin::start_raw(|conn, _| {
        let Some(_) = conn.read_until(b"\r\n\r\n") else { return };
        let Some(_) = conn.read_until(b"first") else { return };
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nseen");
        conn.wait_closed();
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_request_buffering off; proxy_pass http://%%ORIGIN%%; }
            location /wait { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for framing in
        ["Content-Length: 10\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"]
    {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}").as_bytes());
        assert_eq!(client.response().text(), "seen", "{framing}");
    }
    let before = origin.connections();
    let mut client = server.connect();
    client.send(b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst");
    assert!(client.is_silent(std::time::Duration::from_millis(100)));
    assert_eq!(origin.connections(), before);
    client.send(b"again");
    assert_eq!(client.response().text(), "seen");
}

/// Each answer has a text of its own, so that nothing of one may show in another.
#[test]
fn bodies_of_every_size_arrive_whole_and_heads_stay_readable() {
    fn body(path: &str) -> String {
        let size: usize = path.rsplit('/').next().unwrap().parse().unwrap();
        (0..).map(|n| format!("{path} {n};")).take(size).collect::<String>()[..size].to_string()
    }
    let origin = Origin::start(|request, conn| {
        let path = request.target();
        let body = body(path);
        match path.contains("chunked") {
            true => conn.write(format!(
                "HTTP/1.1 200 OK\r\nX-Tag: {path}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            )),
            false => conn.reply("200 OK", &format!("X-Tag: {path}\r\n"), &body),
        }
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { log_format tag '$upstream_http_x_tag $body_bytes_sent';
            upstream o { server %%ORIGIN%%; keepalive 4; }
            server { listen 127.0.0.1:%%PORT_0%%; access_log %%DIR%%/tag.log tag;
            proxy_http_version 1.1; proxy_set_header Connection \"\";
            location / { proxy_pass http://o; }
            location /direct/ { proxy_buffering off; proxy_pass http://o; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let sizes = [1, 2047, 2048, 5000, 9000, 20_000, 31_000, 50_000, 200_000];
    let groups = ["/plain", "/chunked", "/direct", "/direct/chunked"];
    let paths: Vec<String> =
        sizes.iter().flat_map(|n| groups.map(|group| format!("{group}/{n}"))).collect();
    let mut client = server.connect();
    for some in paths.chunks(3) {
        some.iter().for_each(|path| client.send_get(path));
        for path in some {
            let answer = client.response();
            assert_eq!(answer.header("X-Tag"), Some(&**path));
            assert!(answer.text() == body(path), "the body of {path}");
        }
    }
    let logged = server.log_lines("tag.log", paths.len());
    for (line, path) in logged.iter().zip(&paths) {
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some(&**path));
        let bytes: usize = words.next().unwrap().parse().unwrap();
        assert!(bytes >= body(path).len(), "{line}");
    }
}
