//! memc: memcached's commands by variables and methods.

use std::net::TcpStream;
use weir_tests::tools::need;
use weir_tests::{expect_soon, free_port, run_cli, skip, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

const CONF: &str = "events {} http { upstream m { server %%ORIGIN%%; keepalive 4; }
    memc_connect_timeout 5s; memc_send_timeout 5s; memc_read_timeout 5s; memc_bind 127.0.0.1;
    memc_socket_keepalive on; memc_next_upstream error timeout invalid_response not_found;
    memc_next_upstream_tries 1; memc_next_upstream_timeout 5s; memc_ignore_client_abort on;
    server { listen 127.0.0.1:%%PORT_0%%; client_body_buffer_size 1k;
        location / { set $memc_key $arg_key; set $memc_cmd $arg_cmd; set $memc_flags $arg_flags;
            set $memc_exptime $arg_exptime; memc_pass m; memc_buffer_size 4k;
            add_header X-Flags $memc_flags; }
        location /value { set $memc_key $arg_key; set $memc_cmd $arg_cmd; set $memc_value $arg_val; memc_pass m; }
        location /empty { set $memc_key $arg_key; set $memc_cmd set; set $memc_value ''; memc_pass m; }
        location /only { memc_cmds_allowed get stats; set $memc_key $arg_key; set $memc_cmd $arg_cmd; memc_pass m; }
        location /space { set $memc_key \"a b\\r\\nflush_all\"; memc_pass m; }
        location /time { set $memc_key $arg_key; memc_flags_to_last_modified on; memc_pass m; } } }";

fn start(address: String) -> Server {
    Setup::new(CONF).set("ORIGIN", address).start()
}

fn put(server: &Server, method: &str, target: &str, body: &str) -> (u16, String) {
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let r = server.exchange(method, text.as_bytes());
    (r.status, r.text())
}

#[test]
fn a_real_memcached_does_what_it_is_told() {
    if !is_weir() {
        return skip("nginx is built without memc");
    }
    let Some(memcached) = need("memcached") else { return };
    let port = free_port();
    let _memcached = memcached.start(|c| {
        c.args(["-u", "root", "-l", "127.0.0.1", "-p", &port.to_string()]);
    });
    expect_soon("memcached listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let server = start(format!("127.0.0.1:{port}"));
    let ok = |status: u16, text: &str| (status, text.to_string());
    // By the method alone.
    assert_eq!(server.get("/?key=a").status, 404);
    assert_eq!(put(&server, "POST", "/?key=a&flags=7", "one"), ok(201, "STORED\r\n"));
    assert_eq!(put(&server, "POST", "/?key=a", "two"), ok(200, "NOT_STORED\r\n"));
    let found = server.get("/?key=a");
    assert_eq!((found.text().as_str(), found.header("X-Flags")), ("one", Some("7")));
    assert_eq!(put(&server, "PUT", "/?key=a", "three"), ok(201, "STORED\r\n"));
    assert_eq!(put(&server, "PUT", "/?key=a&cmd=append", "!"), ok(201, "STORED\r\n"));
    assert_eq!(put(&server, "PUT", "/?key=a&cmd=prepend", "?"), ok(201, "STORED\r\n"));
    assert_eq!(server.get("/?key=a").text(), "?three!");
    assert_eq!(server.head("/?key=a").header("Content-Length"), Some("7"));
    assert_eq!(put(&server, "PUT", "/?key=none&cmd=replace", "x"), ok(200, "NOT_STORED\r\n"));
    let deleted = server.request("DELETE", "/?key=a", "");
    assert_eq!((deleted.status, deleted.text().as_str()), (200, "DELETED\r\n"));
    assert_eq!(server.request("DELETE", "/?key=a", "").status, 404);
    // A body that was in a file, and values from variables.
    let large = "0123456789".repeat(5000);
    assert_eq!(put(&server, "PUT", "/?key=l", &large), ok(201, "STORED\r\n"));
    assert_eq!(server.get("/?key=l").text(), large);
    assert_eq!(
        put(&server, "PUT", "/value?cmd=set&key=n&val=41", "not this"),
        ok(201, "STORED\r\n")
    );
    let counted = server.get("/value?cmd=incr&key=n&val=2");
    assert_eq!((counted.status, counted.text().as_str()), (201, "43\r\n"));
    assert_eq!(server.get("/value?cmd=decr&key=n&val=3").text(), "40\r\n");
    assert_eq!(server.get("/value?cmd=incr&key=none&val=3").status, 404);
    assert_eq!(put(&server, "PUT", "/empty?key=e", ""), ok(201, "STORED\r\n"));
    assert_eq!(server.get("/?key=e").content_length(), Some(0));
    assert!(server.get("/?cmd=version").text().starts_with("VERSION "));
    let stats = server.get("/?cmd=stats").text();
    assert!(stats.starts_with("STAT pid ") && stats.ends_with("END\r\n"), "{stats}");
    // A line end in a key ends no line.
    assert_eq!(put(&server, "PUT", "/space", "kept"), ok(201, "STORED\r\n"));
    assert_eq!(server.get("/space").text(), "kept");
    assert_eq!(server.get("/?key=l").text(), large);
    assert_eq!(server.get("/?cmd=flush_all").text(), "OK\r\n");
    assert_eq!(server.get("/?key=l").status, 404);
    assert_eq!(put(&server, "PUT", "/?key=t&flags=1000000000", "dated"), ok(201, "STORED\r\n"));
    let dated = server.get("/time?key=t");
    let time = "Sun, 09 Sep 2001 01:46:40 GMT";
    assert_eq!(dated.header("Last-Modified"), Some(time));
    let since = format!("If-Modified-Since: {time}\r\n");
    assert_eq!(server.get_with("/time?key=t", &since).status, 304);
    assert_eq!(server.get_with("/?key=t", &since).status, 200);
}

#[test]
fn what_is_no_command_never_leaves() {
    if !is_weir() {
        return skip("nginx is built without memc");
    }
    let origin = Origin::start_raw(|conn, _| conn.write("END\r\n"));
    let server = start(origin.address());
    let long = "k".repeat(251);
    for (method, target, status) in [
        ("GET", "/?cmd=quit&key=a", 400),
        ("GET", "/?cmd=get%20a%0d%0aflush_all&key=a", 400),
        ("GET", "/", 500),
        ("OPTIONS", "/?key=a", 400),
        ("GET", "/only?cmd=delete&key=a", 403),
        ("PUT", "/?key=a&flags=1x", 400),
        ("PUT", "/?key=a&flags=4294967296", 400),
        ("PUT", "/?key=a&exptime=-1", 400),
        ("GET", "/value?cmd=incr&key=a&val=x", 400),
        ("GET", "/value?cmd=incr&key=a&val=18446744073709551616", 400),
        ("GET", "/value?cmd=incr&key=a", 400),
        ("GET", &format!("/?key={long}"), 400),
        ("GET", "/?cmd=set&key=b", 500),
    ] {
        let body = if method == "PUT" { "Content-Length: 0\r\n" } else { "" };
        assert_eq!(server.request(method, target, body).status, status, "{method} {target}");
    }
    assert_eq!(origin.connections(), 0, "{}", server.error_log());
}

#[test]
fn answers_that_are_none() {
    if !is_weir() {
        return skip("nginx is built without memc");
    }
    let origin = Origin::start_raw(|conn, _| {
        while let Some(line) = conn.read_until(b"\r\n") {
            let line = String::from_utf8_lossy(&line).into_owned();
            let answer = match line.split([' ', '\r']).nth(1) {
                Some("wrong") => "SURPRISE\r\n",
                Some("refused") => "SERVER_ERROR out of memory\r\n",
                Some("cut") => "STOR",
                Some("flags") => "VALUE flags x 1\r\na\r\nEND\r\n",
                Some("more") => "STORED\r\nSTORED\r\n",
                _ if line.starts_with("stats") => return conn.write("STAT a b\r\n".repeat(5000)),
                _ => "STORED\r\n",
            };
            if line.starts_with("set") {
                conn.read_until(b"\r\n");
            }
            conn.write(answer);
            if answer == "STOR" {
                return;
            }
        }
    });
    let server = start(origin.address());
    for (key, status, connections) in [
        ("fine", 201, 1),
        ("fine", 201, 1),
        ("refused", 502, 1),
        // What a refused value was taken for is not known: the connection is of no further use.
        ("fine", 201, 2),
        ("more", 201, 2),
        ("wrong", 502, 3),
        ("cut", 502, 4),
        ("fine", 201, 5),
    ] {
        let got = put(&server, "PUT", &format!("/?key={key}"), "value");
        assert_eq!((got.0, origin.connections()), (status, connections), "{key}");
    }
    assert_eq!(server.get("/?key=flags").status, 502);
    assert_eq!(server.get("/?cmd=stats").status, 502);
    server.expect_error("upstream sent too big header");
}
