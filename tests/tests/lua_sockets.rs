//! Lua: sockets, with the settings that the configuration has for them.

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};
use weir_tests::tls::{self_signed, Authority};
use weir_tests::{run_cli, Server, Setup};

const CONF: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain;
    lua_socket_buffer_size 1k; lua_socket_pool_size 2; lua_socket_keepalive_timeout 10s; lua_socket_send_timeout 5s;
    lua_ssl_protocols TLSv1.2 TLSv1.3; lua_ssl_ciphers DEFAULT; lua_ssl_verify_depth 2;
    lua_ssl_conf_command MinProtocol TLSv1.2;
    lua_ssl_certificate %%DIR%%/pair.crt; lua_ssl_certificate_key %%DIR%%/pair.key;
    server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        ssl_verify_client optional_no_ca; return 200 "$ssl_server_name $ssl_protocol $ssl_client_verify\n"; }
    server { listen 127.0.0.1:%%PORT_0%%; set $to %%PORT_1%%;
    location /read { lua_socket_read_timeout 100ms; lua_socket_log_errors off; content_by_lua_block {
        local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
        ngx.say(select(2, s:receive())) } }
    location /connect { lua_socket_connect_timeout 100ms; content_by_lua_block { ngx.say(select(2, ngx.socket.tcp():connect("192.0.2.1", 9))) } }
    location /tls { lua_ssl_trusted_certificate %%DIR%%/ca.crt; content_by_lua_block {
        local function ask(name, verify)
            local s = ngx.socket.tcp() s:settimeout(5000)
            assert(s:connect("127.0.0.1", tonumber(ngx.var.to)))
            local session, e = s:sslhandshake(nil, name, verify)
            if not session then return e end
            s:send("GET / HTTP/1.0\r\n\r\n")
            local text = s:receive("*a")
            return text:match("\r\n\r\n(.-)\n")
        end
        ngx.say(ask("a.test", true)) ngx.say(ask("b.test", true)) ngx.say(ask("b.test", false)) ngx.say(ask(nil, false)) } }
    location /untrusted { content_by_lua_block {
        local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", tonumber(ngx.var.to)))
        ngx.say(select(2, s:sslhandshake(nil, "a.test", true))) } }
    location /udp { content_by_lua_block {
        local s = ngx.socket.udp() s:settimeout(tonumber(ngx.var.arg_ms)) assert(s:setpeername("127.0.0.1", tonumber(ngx.var.arg_port)))
        s:send({ "he", "llo" }) ngx.say(s:receive()) } }
    location /from { content_by_lua_block {
        local s = ngx.socket.tcp() ngx.say(select(2, s:bind("nowhere"))) assert(s:bind("127.0.0.9"))
        assert(s:connect("127.0.0.1", %%PORT_0%%)) s:send("GET /who HTTP/1.0\r\n\r\n")
        ngx.say(s:receive("*a"):match("\r\n\r\n(.*)"), s:getfd() > 2) } }
    location /who { return 200 $remote_addr; }
    location /raw { content_by_lua_block {
        ngx.req.read_body()
        local s = assert(ngx.req.socket(true)) ngx.log(ngx.NOTICE, select(2, ngx.req.socket(true)), "; ", select(2, ngx.say("x")))
        s:send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n") s:settimeout(5000)
        s:send(s:receive() .. s:receive(4)) } }
    location /turns { content_by_lua_block {
        local port, said = tonumber(ngx.var.arg_port), {}
        local function turn(n)
            local s = ngx.socket.tcp() s:settimeouts(tonumber(ngx.var.arg_ms), 5000, 5000)
            local ok, e = s:connect("127.0.0.1", port, { pool = "turns", pool_size = 1, backlog = 1 })
            if not ok then said[n] = e return end
            s:send("PING\n") said[n] = s:receive() .. s:getreusedtimes()
            if ngx.var.arg_keep then ngx.sleep(0.01) s:setkeepalive() else s:close() end
        end
        local all = {}
        for n = 1, 3 do all[n] = ngx.thread.spawn(turn, n) end
        for n = 1, 3 do ngx.thread.wait(all[n]) end
        ngx.say(table.concat(said, " ")) } }
    location /upload { content_by_lua_block {
        local s = assert(ngx.req.socket()) ngx.say(s:receive(3)) ngx.say(s:receive("*a")) ngx.say(select(2, s:receive(1))) } }
} }"#;

fn start() -> Server {
    let authority = Authority::new("ca");
    let (pair, own) = (authority.issue("a.test"), self_signed("client"));
    Setup::new(CONF)
        .file("ca.crt", &authority.cert)
        .file("a.crt", pair.cert)
        .file("a.key", pair.key)
        .file("pair.crt", own.cert)
        .file("pair.key", own.key)
        .start()
}

#[test]
fn a_silent_server_is_waited_for_as_long_as_it_says() {
    let server = start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    let path = format!("/read?port={}", silent.local_addr().unwrap().port());
    assert_eq!(server.get(&path).text(), "timeout\n");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert!(!server.error_log().contains("timed out"));
}

/// A verified certificate is of a trusted authority and of the name; nothing is taken for granted without one.
#[test]
fn certificates_are_verified_where_code_wants_that() {
    let server = start();
    let answer = server.get("/tls").text();
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines[0], "a.test TLSv1.3 FAILED:self-signed certificate", "{answer}");
    assert_eq!(lines[1], "certificate host mismatch");
    assert!(lines[2].starts_with("b.test TLSv1.3") && lines[3].starts_with(" TLSv1.3"), "{answer}");
    assert_eq!(server.get("/untrusted").text(), "20: unable to get local issuer certificate\n");
}

#[test]
fn datagrams_and_the_requests_body() {
    let server = start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        let mut text = [0; 64];
        let (n, from) = socket.recv_from(&mut text).unwrap();
        socket.send_to(&[&text[..n], b" back"].concat(), from).unwrap();
        socket
    });
    assert_eq!(server.get(&format!("/udp?ms=5000&port={port}")).text(), "hello back\n");
    let _socket = answering.join().unwrap();
    assert_eq!(server.get(&format!("/udp?ms=50&port={port}")).text(), "niltimeout\n");
    assert_eq!(server.post("/upload", "onetwo").text(), "one\ntwo\nclosed\n");
}

#[test]
fn sockets_come_from_where_they_are_bound() {
    let server = start();
    assert_eq!(server.get("/from").text(), "bad address\n127.0.0.9true\n");
}

/// Behind the request the connection is the code's, both ways, and nothing else is sent.
#[test]
fn the_clients_connection_itself() {
    let server = start();
    let mut client = server.connect();
    client.send(b"POST /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    server.expect_error("duplicate call; raw request socket acquired");
    client.send(b"one\r\ntwo!and more");
    let answer = client.read_to_end();
    assert!(answer.ends_with(b"\r\n\r\nonetwo!"), "{}", String::from_utf8_lossy(&answer));
}

/// Of a pool with a backlog there are no more connections than it says; the others wait for their turn, as many as
/// may.
#[test]
fn connections_of_a_pool_are_waited_for() {
    let server = start();
    let origin = weir_tests::Origin::start_raw(|conn, _| {
        while conn.read_until(b"\n").is_some() {
            conn.write("PONG\n");
        }
    });
    let ask = |more: &str| server.get(&format!("/turns?port={}&{more}", origin.port())).text();
    let full = "too many waiting connect operations";
    assert_eq!(ask("ms=5000"), format!("PONG0 PONG0 {full}\n"));
    assert_eq!(origin.connections(), 2);
    assert_eq!(ask("ms=5000&keep=1"), format!("PONG0 PONG1 {full}\n"));
    assert_eq!(origin.connections(), 3);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (line, expected) in [
        ("lua_socket_pool_size 0;", "room for a connection"),
        ("lua_socket_buffer_size 0;", "room for a byte"),
        ("lua_ssl_protocols SSLv2;", "SSLv2"),
        // Lists of revoked certificates are of no use without authorities, and are read with those.
        ("lua_ssl_trusted_certificate missing.crt; lua_ssl_crl missing.crl;", "missing.crt"),
    ] {
        let said = run_cli(
            &["-t"],
            &format!(
                "events {{}} http {{ {line} server {{ location / {{ content_by_lua 'x'; }} }} }}"
            ),
        );
        assert!(said.stderr.contains(expected), "{line}: {}", said.stderr);
    }
}

/// What a request has made for datagrams is no other's, also when that request has ended.
#[test]
fn datagrams_are_of_one_request() {
    let server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; init_by_lua_block { kept = {} }
        server { listen 127.0.0.1:%%PORT_0%%;
        location /make { content_by_lua_block { kept.sock = ngx.socket.udp() ngx.say("made") } }
        location /use { content_by_lua_block { ngx.say(select(2, pcall(kept.sock.setpeername, kept.sock, "127.0.0.1", 9))) } } } }"#,
    )
    .start();
    assert_eq!(server.get("/make").text(), "made\n");
    assert!(server.get("/use").text().ends_with("bad request\n"));
}
