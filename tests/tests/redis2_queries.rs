//! redis2: what Redis is asked, and its replies as they come.

use std::net::TcpStream;
use weir_tests::tools::need;
use weir_tests::{expect_soon, free_port, run_cli, skip, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

const CONF: &str = "events {} http { upstream r { server %%ORIGIN%%; keepalive 4; }
    redis2_connect_timeout 5s; redis2_send_timeout 5s; redis2_read_timeout 5s; redis2_bind 127.0.0.1;
    redis2_socket_keepalive on; redis2_next_upstream error timeout invalid_response;
    redis2_next_upstream_tries 1; redis2_next_upstream_timeout 5s; redis2_buffer_size 1k;
    server { listen 127.0.0.1:%%PORT_0%%;
        location /set { redis2_query set $arg_key $request_body; redis2_query get $arg_key; redis2_pass r; }
        location /get { redis2_query get $arg_key; redis2_pass r; }
        location /inject { redis2_query set \"a\\r\\nflushall\" x; redis2_query get large; redis2_pass r; }
        location /raw { set_unescape_uri $q $query_string; redis2_raw_query $q; redis2_pass r; }
        location /raws { set_unescape_uri $q $arg_q; redis2_raw_queries $arg_n $q; redis2_pass r; }
        location /literal { redis2_literal_raw_query '*2\\r\\n$4\\r\\nEcho\\r\\n$2\\r\\n$x\\r\\n'; redis2_pass r; }
        location /none { redis2_pass r; } } }";

fn start(address: String) -> Server {
    Setup::new(CONF).set("ORIGIN", address).start()
}

#[test]
fn a_real_redis_is_asked() {
    if !is_weir() {
        return skip("nginx is built without redis2");
    }
    let Some(redis) = need("redis-server") else { return };
    let port = free_port();
    let _redis = redis.start(|c| {
        c.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    });
    expect_soon("redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let server = start(format!("127.0.0.1:{port}"));
    assert_eq!(server.post("/set?key=a", "one two").text(), "+OK\r\n$7\r\none two\r\n");
    assert_eq!(server.get("/get?key=none").text(), "$-1\r\n");
    let large = "0123456789\r\n".repeat(20_000);
    let set = format!("+OK\r\n${}\r\n{large}\r\n", large.len());
    let conf_of_body = server.post("/set?key=large", &large[..12_000]);
    assert_eq!(conf_of_body.text().len(), 5 + "$12000\r\n".len() + 12_000 + 2);
    assert!(set.len() > 12_000);
    // No word of a query ends it.
    let injected = server.get("/inject").text();
    assert!(injected.starts_with("+OK\r\n$12000\r\n0123"), "{injected}");
    assert_eq!(server.get("/raw?ping%0d%0a").text(), "+PONG\r\n");
    assert_eq!(server.get("/literal").text(), "$2\r\n$x\r\n");
    let raws =
        server.get("/raws?n=3&q=del%20l%0d%0arpush%20l%20a%20b%0d%0alrange%20l%200%20-1%0d%0a");
    assert_eq!(raws.text(), ":0\r\n:2\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    let error = server.get("/raw?nonsense%0d%0a");
    assert_eq!((error.status, error.text().starts_with("-ERR ")), (200, true));
    assert_eq!(server.head("/get?key=a").status, 200);
}

/// More commands than replies are waited for would have the next request get what is left.
#[test]
fn queries_that_are_not_what_they_should_be_never_leave() {
    if !is_weir() {
        return skip("nginx is built without redis2");
    }
    let origin = Origin::start_raw(|conn, _| conn.write("+OK\r\n"));
    let server = start(origin.address());
    for (target, status) in [
        ("/raw?get%20a%0d%0aflushall%0d%0a", 400),
        ("/raw?get%20a", 400),
        ("/raw?*1%0d%0a$4%0d%0aping", 400),
        ("/raw?", 400),
        ("/raws?n=1&q=ping%0d%0aping%0d%0a", 400),
        ("/raws?n=0&q=ping%0d%0a", 400),
        ("/raws?n=x&q=ping%0d%0a", 400),
        ("/none", 500),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    assert_eq!(origin.connections(), 0, "{}", server.error_log());
}

#[test]
fn replies_that_are_none() {
    if !is_weir() {
        return skip("nginx is built without redis2");
    }
    let origin = Origin::start_raw(|conn, _| {
        // A `get` is five lines.
        loop {
            let mut key = Vec::new();
            for _ in 0..5 {
                let Some(line) = conn.read_until(b"\r\n") else { return };
                key = line;
            }
            match &key[..key.len() - 2] {
                b"fine" => conn.write("$2\r\nok\r\n"),
                b"more" => conn.write("+a\r\n+b\r\n"),
                b"http" => conn.write("HTTP/1.1 200 OK\r\n\r\n"),
                b"deep" => conn.write("*1\r\n".repeat(100)),
                b"cut" => return conn.write("$10\r\nabc"),
                _ => return,
            }
        }
    });
    let server = start(origin.address());
    for (key, status, connections) in [
        ("fine", 200, 1),
        ("fine", 200, 1),
        ("more", 200, 1),
        ("fine", 200, 2),
        ("http", 502, 2),
        ("end", 502, 3),
    ] {
        let got = server.get(&format!("/get?key={key}"));
        assert_eq!((got.status, origin.connections()), (status, connections), "{key}");
    }
    server.expect_error("Redis server returned invalid response near \"HTTP/1.1 200 OK");
    assert_eq!(server.get("/get?key=deep").status, 502);
    // Half a reply is not taken for a whole one.
    let cut = server.raw(b"GET /get?key=cut HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let cut = String::from_utf8_lossy(&cut);
    assert!(cut.contains("abc") && !cut.ends_with("0\r\n\r\n"), "{cut}");
}

#[test]
fn queries_that_do_not_go_together() {
    if !is_weir() {
        return skip("nginx is built without redis2");
    }
    for (query, why) in [
        ("redis2_query ping; redis2_raw_query 'ping\\r\\n';", "is duplicate"),
        ("redis2_raw_query 'ping\\r\\n'; redis2_query ping;", "raw query"),
        ("redis2_literal_raw_query 'ping';", "one whole command"),
        ("redis2_pass http://a;", "invalid host"),
    ] {
        let conf = format!("events {{}} http {{ server {{ location / {{ {query} }} }} }}");
        let out = run_cli(&["-t"], &conf);
        assert!(out.code != 0 && out.stderr.contains(why), "{query}: {}", out.stderr);
    }
}
