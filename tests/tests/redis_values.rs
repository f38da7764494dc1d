//! Values of Redis as answers, and those that srcache keeps there.

use std::io::{Read, Write};
use std::net::TcpStream;
use weir_tests::tools::{need, Tool};
use weir_tests::{expect_soon, free_port, run_cli, skip, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

const CONF: &str = "events {} http { upstream r { server %%ORIGIN%%; keepalive 4; }
    redis_connect_timeout 5s; redis_send_timeout 5s; redis_read_timeout 5s; redis_bind 127.0.0.1;
    redis_next_upstream error timeout invalid_response not_found; redis_buffer_size 1k;
    redis_socket_keepalive on; redis_next_upstream_tries 1; redis_next_upstream_timeout 5s;
    server { listen 127.0.0.1:%%PORT_0%%; types { text/x x; }
        location / { set $redis_key $uri$is_args$args; set $redis_db $http_x_db; set $redis_auth $http_x_auth;
            redis_pass r; error_page 404 = @there; }
        location /gz { set $redis_key /gz; redis_gzip_flag 1; redis_pass r; }
        location /inject { set $redis_key \"a\\r\\nflushall\"; set $redis_db \"0\\r\\nflushall\"; redis_pass r; }
        location /none { redis_pass r; set $redis_key $arg_none; }
        location @there { return 200 fallback; } } }";

fn start(address: String) -> Server {
    Setup::new(CONF).set("ORIGIN", address).start()
}

/// A server of its own, and a connection that has said this to it and was answered with lines of `+`.
fn real(redis: &Tool, say: &str, lines: usize) -> (u16, impl Drop, TcpStream) {
    let port = free_port();
    let running = redis.start(|c| {
        c.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    });
    expect_soon("redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut conn = TcpStream::connect(("127.0.0.1", port)).unwrap();
    conn.write_all(say.as_bytes()).unwrap();
    let mut said = vec![0; 5 * lines];
    conn.read_exact(&mut said).unwrap();
    assert_eq!(said, b"+OK\r\n".repeat(lines));
    (port, running, conn)
}

#[test]
fn values_of_a_real_redis() {
    if !is_weir() {
        return skip("nginx is built without ngx_http_redis");
    }
    let Some(redis) = need("redis-server") else { return };
    let large = "0123456789\r\n".repeat(50_000);
    let say = format!(
        "set /a.x hello\r\nset /a%20b space\r\nset /empty \"\"\r\nset /gz zz\r\n\
         *3\r\n$3\r\nset\r\n$6\r\n/large\r\n${}\r\n{large}\r\nselect 3\r\nset /a.x three\r\n",
        large.len()
    );
    let (port, _redis, mut conn) = real(&redis, &say, 7);
    let server = start(format!("127.0.0.1:{port}"));
    let r = server.get("/a.x");
    assert_eq!((r.status, &*r.text(), r.header("Content-Type")), (200, "hello", Some("text/x")));
    assert_eq!(r.content_length(), Some(5));
    assert_eq!(server.get_with("/a.x", "X-Db: 3\r\n").text(), "three");
    // The connection is the same, and the database is not.
    assert_eq!(server.get("/a.x").text(), "hello");
    assert_eq!(server.get("/a%20b").text(), "space");
    for _ in 0..2 {
        assert_eq!(server.get("/large").text(), large);
        let empty = server.get("/empty");
        assert_eq!((empty.status, empty.body.len()), (200, 0));
        assert_eq!(server.get("/missing").text(), "fallback");
    }
    assert_eq!(server.get("/gz").header("Content-Encoding"), Some("gzip"));
    let head = server.head("/a.x");
    assert_eq!((head.status, head.content_length()), (200, Some(5)));
    assert_eq!(server.post("/a.x", "body").status, 405);
    assert_eq!(server.get("/none").status, 500);
    server.expect_error("the \"$redis_key\" variable is not set");
    assert_eq!(server.get_with("/a.x", "X-Db: 99\r\n").status, 502);
    server.expect_error("redis sent error in response \"-ERR DB index is out of range\"");
    assert_eq!(server.get_with("/a.x", "X-Auth: p\r\n").status, 502);
    // No word is a command of its own.
    assert_eq!(server.get("/inject").status, 502);
    conn.write_all(b"config set requirepass secret\r\n").unwrap();
    conn.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(server.get_with("/a.x", "X-Auth: secret\r\n").text(), "hello");
    assert_eq!(server.get_with("/a.x", "X-Auth: wrong\r\n").status, 502);
}

#[test]
fn replies_that_are_not_what_they_should_be() {
    if !is_weir() {
        return skip("nginx is built without ngx_http_redis");
    }
    let origin = Origin::start_raw(|conn, _| {
        // A `select` and a `get` are ten lines.
        loop {
            let mut key = Vec::new();
            for _ in 0..10 {
                let Some(line) = conn.read_until(b"\r\n") else { return };
                key = line;
            }
            match &key[..key.len() - 2] {
                b"/fine" => conn.write("+OK\r\n$2\r\nok\r\n"),
                b"/missing" => conn.write("+OK\r\n$-1\r\n"),
                b"/more" => conn.write("+OK\r\n$2\r\nok\r\n+OK\r\n"),
                b"/long" => conn.write("+OK\r\n$2\r\nok!!"),
                b"/http" => conn.write("HTTP/1.1 200 OK\r\n\r\n"),
                b"/one" => conn.write("$2\r\nok\r\n"),
                b"/length" => conn.write("+OK\r\n$x\r\n"),
                b"/cut" => return conn.write("+OK\r\n$10\r\nabc"),
                _ => return,
            }
        }
    });
    let server = start(origin.address());
    for (path, status, connections) in [
        ("/fine", 200, 1),
        ("/missing", 200, 1),
        ("/fine", 200, 1),
        ("/more", 200, 1),
        ("/fine", 200, 2),
        ("/long", 200, 2),
        ("/http", 502, 3),
        ("/one", 502, 4),
        ("/length", 502, 5),
        ("/end", 502, 6),
    ] {
        let got = server.get(path);
        assert_eq!((got.status, origin.connections()), (status, connections), "{path}");
    }
    server.expect_error("redis sent invalid trailer");
    server.expect_error("redis sent invalid length in response \"$x\" for key \"/length\"");
    let cut = server.raw(b"GET /cut HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let cut = String::from_utf8_lossy(&cut);
    assert!(cut.contains("Content-Length: 10") && cut.ends_with("abc"), "{cut}");
}

/// As srcache's own documentation has it.
#[test]
fn srcache_keeps_its_answers_in_redis() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let Some(redis) = need("redis-server") else { return };
    let (port, _redis, _conn) = real(&redis, "", 0);
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "ETag: \"e\"\r\n", "made\r\nonce");
        weir_tests::Next::Keep
    });
    let conf = "events {} http { upstream r { server 127.0.0.1:%%REDIS%%; keepalive 4; }
        server { listen 127.0.0.1:%%PORT_0%%; add_header X-Fetch $srcache_fetch_status;
            location / { set $key $request_uri; set_escape_uri $escaped_key $key;
                srcache_fetch GET /redis $key; srcache_store PUT /redis2 key=$escaped_key&exptime=120;
                proxy_pass http://%%ORIGIN%%; }
            location = /redis { internal; set_md5 $redis_key $args; redis_pass r; }
            location = /redis2 { internal; set_unescape_uri $exptime $arg_exptime;
                set_unescape_uri $key $arg_key; set_md5 $key;
                redis2_query set $key $echo_request_body; redis2_query expire $key $exptime;
                redis2_pass r; } } }";
    let server =
        Setup::new(conf).set("ORIGIN", origin.address()).set("REDIS", port.to_string()).start();
    assert_eq!(server.get("/a?b=c").header("X-Fetch"), Some("MISS"));
    expect_soon("it is a hit", || server.get("/a?b=c").header("X-Fetch") == Some("HIT"));
    let hit = server.get("/a?b=c");
    assert_eq!((hit.text().as_str(), hit.header("ETag")), ("made\r\nonce", Some("\"e\"")));
}
