//! Lua in `stream`: before the content, as the content, when a session is over, and where servers are chosen.

use std::net::UdpSocket;
use std::time::Duration;
use weir_tests::tls::{self_signed, Authority, Tls};
use weir_tests::{run_cli, Server, Setup};

fn start(conf: &str) -> Server {
    Server::start(&format!(
        "worker_processes 1; events {{}} error_log %%DIR%%/error.log info; stream {{ {conf} }}"
    ))
}

fn said(server: &Server, port: usize, bytes: &[u8]) -> String {
    let mut client = server.on(port).connect();
    client.send(bytes);
    client.shutdown_write();
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

/// What the server sends to who never says that it is done.
fn heard(server: &Server, port: usize, bytes: &[u8]) -> String {
    let mut client = server.on(port).connect();
    client.send(bytes);
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

#[test]
fn code_talks_to_the_client() {
    let server = start(
        r#"server { listen 127.0.0.1:%%PORT_0%%; content_by_lua_block {
            local s = assert(ngx.req.socket(true))
            ngx.say(s:receive(), " ", s:receive(3), " ", s:receiveuntil("END")(), " ", s:receiveany(9))
            ngx.say(s:send({ "by the ", "socket\n" }), " ", ngx.req.socket())
            ngx.print({ "a", { 1, true } }, nil, "\n")
            ngx.say(s.close, " ", select(2, pcall(s.peek, s, 1)))
            local ok, e, partial = s:receive(100)
            ngx.say(e, " ", partial)
            ngx.flush(true)
            ngx.say(s:shutdown("send"))
        } }
        server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
            ngx.say("said") ngx.eof() ngx.log(ngx.NOTICE, select(2, ngx.say("more"))) } }
        server { listen 127.0.0.1:%%PORT_2%%; content_by_lua "ngx.say(ngx.get_phase(), ngx.config.subsystem)"; }
        server { listen 127.0.0.1:%%PORT_3%%; content_by_lua_file content.lua; }
        server { listen 127.0.0.1:%%PORT_4%%; content_by_lua_block { ngx.print(("x"):rep(3000000)) } }"#,
    );
    let all = said(&server, 0, b"hello\r\nabcxyzENDrest of it");
    let (head, rest) = all.split_once("rest").unwrap();
    assert_eq!(head, "hello abc xyz ");
    let expected = "by the socket\n14 nilduplicate call\na1truenil\nnil API disabled in the context of content_by_lua*\n";
    assert!(rest.contains(expected), "{rest}");
    assert!(said(&server, 1, b"").starts_with("said\n"));
    server.expect_error("seen eof");
    assert_eq!(said(&server, 2, b""), "contentstream\n");
    server.write("content.lua", "#!lua\nngx.say('of a file')");
    assert_eq!(heard(&server, 4, b"").len(), 3_000_000);
}

/// What is in front of the content looks at bytes, or takes them, and may end the session.
#[test]
fn first_bytes_are_looked_at_or_taken() {
    let server = start(
        r#"proxy_half_close on; log_format f '$status $bytes_received $bytes_sent'; access_log %%DIR%%/a.log f;
        server { listen 127.0.0.1:%%PORT_0%%; content_by_lua_block {
            ngx.print("[", ngx.req.socket():receive("*a"), "]") } access_log off; }
        server { listen 127.0.0.1:%%PORT_1%%; proxy_pass 127.0.0.1:%%PORT_0%%; preread_by_lua_block {
            local s = assert(ngx.req.socket())
            ngx.log(ngx.NOTICE, "peeked ", s:peek(2), " ", s:peek(0), " ", s:peek(4), " ", ngx.get_phase())
            if s:peek(1) == "t" then
                ngx.log(ngx.NOTICE, "took ", s:receive(2))
                ngx.log(ngx.NOTICE, select(2, pcall(s.peek, s, 1)))
            end
        } }
        server { listen 127.0.0.1:%%PORT_2%%; proxy_pass 127.0.0.1:%%PORT_0%%; preread_by_lua "ngx.exit(403)"; }
        server { listen 127.0.0.1:%%PORT_3%%; proxy_pass 127.0.0.1:%%PORT_0%%; preread_by_lua_block { error("on purpose") } }
        server { listen 127.0.0.1:%%PORT_4%%; proxy_pass 127.0.0.1:%%PORT_0%%; preread_buffer_size 4;
            preread_by_lua_block { ngx.req.socket():peek(5) ngx.log(ngx.NOTICE, "never") } }
        server { listen 127.0.0.1:%%PORT_5%%; proxy_pass 127.0.0.1:%%PORT_0%%; preread_timeout 50ms;
            preread_by_lua_block { ngx.print("soon ") ngx.req.socket():peek(5) ngx.log(ngx.NOTICE, "never") } }"#,
    );
    assert_eq!(said(&server, 1, b"keep it"), "[keep it]");
    server.expect_error("stream [lua] preread_by_lua(");
    server.expect_error("peeked ke  keep preread while prereading client data, client: 127.0.0.1");
    assert_eq!(said(&server, 1, b"take it"), "[ke it]");
    server.expect_error("attempt to peek on a consumed socket");
    assert_eq!(said(&server, 2, b""), "");
    assert_eq!(said(&server, 3, b""), "");
    assert_eq!(said(&server, 4, b"12345"), "");
    server.expect_error("preread buffer full");
    assert_eq!(heard(&server, 5, b"1"), "soon ");
    let lines = server.log_lines("a.log", 6);
    let expected = ["200 7 9", "200 7 7", "403 0 0", "500 0 0", "400 0 0", "200 0 5"];
    assert_eq!(lines, expected);
    assert!(!server.error_log().contains("never"));
}

#[test]
fn what_is_known_stays_with_the_session() {
    let server = start(
        r#"lua_add_variable $made; log_format f '$made|$status'; access_log %%DIR%%/a.log f;
        log_by_lua_block { ngx.var.made = ngx.var.made .. "+" .. ngx.ctx.n .. ngx.var.status
            ngx.log(ngx.NOTICE, ngx.get_phase(), ngx.status, select(2, pcall(ngx.sleep, 0)), select(2, pcall(ngx.say))) }
        server { listen 127.0.0.1:%%PORT_0%%;
            preread_by_lua_block { ngx.ctx.n = 1 ngx.var.made = "p" .. tostring(ngx.var.made) }
            content_by_lua_block { ngx.ctx.n = ngx.ctx.n + 1
                ngx.say(ngx.var.remote_addr, " ", ngx.var.protocol, " ", tostring(ngx.var.nothing))
                ngx.say(select(2, pcall(function() ngx.var.protocol = "x" end)))
                ngx.say(select(2, pcall(function() ngx.var.nothing = "x" end))) ngx.exit(201) } }"#,
    );
    let all = said(&server, 0, b"");
    assert!(all.starts_with("127.0.0.1 TCP nil\n"), "{all}");
    assert!(all.contains("variable \"protocol\" not changeable"), "{all}");
    assert!(all.contains("variable \"nothing\" not found for writing;"), "{all}");
    assert_eq!(server.log_lines("a.log", 1), ["pnil+2201|201"]);
    server.expect_error("log201API disabled in the context of log_by_lua*");
}

/// Neither `log_by_lua_file` nor `preread_by_lua_file` is read before it is needed.
#[test]
fn code_in_files() {
    let server = Setup::new(
        r#"events {} worker_processes 1; error_log %%DIR%%/error.log notice; stream { init_by_lua_file init.lua; init_worker_by_lua "begun = started .. ngx.worker.id()";
        exit_worker_by_lua_file exit.lua; lua_code_cache off; lua_package_path "%%DIR%%/?.lua;;"; lua_package_cpath ";;";
        server { listen 127.0.0.1:%%PORT_0%%; preread_by_lua_file %%DIR%%/preread.lua;
            log_by_lua_file %%DIR%%/log.lua; content_by_lua_block { ngx.say(ngx.ctx.said, require("mine")) } } }"#,
    )
    .file("init.lua", "started = 'begun '")
    .file("exit.lua", "ngx.log(ngx.NOTICE, begun)")
    .start();
    assert_eq!(said(&server, 0, b""), "");
    server.expect_error("preread.lua: No such file or directory while prereading client data,");
    server.write("preread.lua", "ngx.ctx.said = 'of a file '");
    server.write("log.lua", "ngx.log(ngx.NOTICE, 'logged')");
    server.write("mine.lua", "return 'mine'");
    assert_eq!(said(&server, 0, b""), "of a file mine\n");
    server.expect_error("stream [lua] log.lua:1: logged");
    server.write("mine.lua", "return 'anew'");
    assert_eq!(said(&server, 0, b""), "of a file anew\n");
}

/// `http` and `stream` have states of their own, and dictionaries of the same name.
#[test]
fn two_states_of_a_worker() {
    let mut server = Server::start(
        r#"worker_processes 1; events {} error_log %%DIR%%/error.log notice;
        http { lua_shared_dict d 100k; init_by_lua_block { mine = "http" } init_worker_by_lua_block { ngx.shared.d:set("k", mine) }
            server { listen 127.0.0.1:%%PORT_0%%; location / { default_type text/plain; content_by_lua_block {
                ngx.print(ngx.shared.d:get("k"), mine, ngx.config.subsystem) } } } }
        stream { lua_shared_dict d 200k; init_by_lua "mine = 'stream'"; init_worker_by_lua_block { ngx.shared.d:add("k", mine)
                ngx.timer.at(0, function() timed = ngx.get_phase() .. ngx.timer.running_count() end) }
            exit_worker_by_lua_block { ngx.log(ngx.NOTICE, "ends: ", mine, ngx.get_phase()) }
            lua_max_pending_timers 10; lua_max_running_timers 5; lua_vm_memory 100m; lua_sa_restart on;
            lua_regex_cache_max_entries 10; lua_regex_match_limit 1000;
            server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
                while not timed do ngx.sleep(0.001) end
                ngx.say(ngx.shared.d:get("k"), mine, " ", timed, " ", ngx.re.match("abc", "b.", "jo")[0], " ", ngx.location, ngx.header, ngx.HTTP_OK, ngx.status, ngx.req.get_headers)
                local one = ngx.thread.spawn(function() ngx.sleep(0.01) return "one" end)
                ngx.say(select(2, ngx.thread.wait(one))) } } }"#,
    );
    assert_eq!(server.get("/").text(), "httphttphttp");
    let all = said(&server, 1, b"");
    assert_eq!(all, "streamstream timer1 bc nilnilnil0nil\none\n");
    server.signal(weir_tests::Signal::Quit);
    server.wait_exit();
    assert!(server.error_log().contains("stream [lua] exit_worker_by_lua("));
    assert!(server.error_log().contains("ends: streamexit_worker, context: exit_worker_by_lua*"));
}

#[test]
fn code_chooses_servers() {
    let server = start(
        r#"proxy_half_close on; log_format f '$status $upstream_addr'; access_log %%DIR%%/a.log f;
        upstream chosen { server 0.0.0.1:1; balancer_by_lua_block {
            local b = require "ngx.balancer"
            ngx.log(ngx.NOTICE, "last: ", tostring((b.get_last_failure())), " ", ngx.get_phase())
            b.set_timeouts(1, 2, 3)
            if ngx.ctx.again then assert(b.set_current_peer("127.0.0.1", %%PORT_0%%)) return end
            ngx.ctx.again = true
            assert(b.set_more_tries(1))
            assert(b.set_current_peer("127.0.0.1:%%PORT_9%%"))
            ngx.log(ngx.NOTICE, select(2, pcall(b.set_current_peer, "127.0.0.1", 1, "name")), select(2, pcall(b.enable_keepalive)))
        } }
        upstream none { server 0.0.0.1:1; balancer_by_lua "ngx.exit(503)"; }
        upstream file { server 127.0.0.1:%%PORT_0%%; balancer_by_lua_file %%DIR%%/balancer.lua; }
        server { listen 127.0.0.1:%%PORT_0%%; access_log off; content_by_lua_block { ngx.say("got ", ngx.req.socket():receive()) } }
        server { listen 127.0.0.1:%%PORT_1%%; proxy_pass chosen; }
        server { listen 127.0.0.1:%%PORT_2%%; proxy_pass none; }
        server { listen 127.0.0.1:%%PORT_3%%; proxy_pass file; }"#,
    );
    assert_eq!(said(&server, 1, b"it\n"), "got it\n");
    assert_eq!(said(&server, 2, b"it\n"), "");
    server.write("balancer.lua", "ngx.log(ngx.NOTICE, 'left to the configuration')");
    assert_eq!(said(&server, 3, b"it\n"), "got it\n");
    server.expect_error("last: failed balancer while connecting to upstream, client: ");
    server.expect_error("('host' is for requests; in stream proxy_ssl_name names the server)");
    let at = |n| format!("127.0.0.1:{}", server.port(n));
    let lines = server.log_lines("a.log", 3);
    assert_eq!(lines[0], format!("200 {}, {}", at(9), at(0)));
    assert_eq!(lines[1], "503 -");
    assert_eq!(lines[2], format!("200 {}", at(0)));
}

#[test]
fn datagrams_are_answered() {
    let server = start(
        r#"server { listen 127.0.0.1:%%PORT_0%% udp; preread_by_lua_block { ngx.ctx.seen = true }
        content_by_lua_block {
            local s = assert(ngx.req.socket())
            local first, rest = s:receive(2), s:receive()
            local _, e = s:receive()
            s:send({ first, "|", rest, "|", e })
            s:send(tostring(ngx.ctx.seen) .. select(2, pcall(ngx.say, "x")) .. ngx.var.bytes_received .. select(2, ngx.req.socket()))
        } }"#,
    );
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send_to(b"hello", ("127.0.0.1", server.port(0))).unwrap();
    let read = || {
        let mut buf = [0; 200];
        let n = client.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };
    assert_eq!(read(), "he|llo|no more data");
    assert_eq!(read(), "trueAPI disabled in the current context5duplicate call");
}

/// Sockets of code have the server's settings, and names its resolver.
#[test]
fn sockets_of_code() {
    let server = start(
        r#"lua_socket_connect_timeout 5s; lua_socket_send_timeout 5s; lua_socket_keepalive_timeout 5s;
        lua_socket_pool_size 2; lua_socket_buffer_size 1k; lua_socket_log_errors on;
        lua_ssl_protocols TLSv1.3; lua_ssl_ciphers DEFAULT; lua_ssl_verify_depth 2; lua_ssl_conf_command MinProtocol TLSv1.2;
        server { listen 127.0.0.1:%%PORT_0%%; content_by_lua_block {
            local s = ngx.req.socket() while true do local l = s:receive() if not l then return end ngx.say("echo ", l) end } }
        server { listen 127.0.0.1:%%PORT_1%%; lua_socket_read_timeout 50ms; content_by_lua_block {
            local to = ngx.socket.tcp() assert(to:connect("127.0.0.1", %%PORT_0%%))
            to:send("a\n") ngx.say(to:receive(), " ", select(2, to:receive())) to:setkeepalive()
            local again = assert(ngx.socket.connect("127.0.0.1", %%PORT_0%%)) ngx.say(again:getreusedtimes())
            again:close()
            ngx.say(select(2, ngx.socket.tcp():connect("no.such.name", 1))) } }"#,
    );
    let all = said(&server, 1, b"");
    let expected = "echo a timeout\n1\nno resolver defined to resolve \"no.such.name\"\n";
    assert_eq!(all, expected);
    server.expect_error("stream lua tcp socket read timed out, upstream: 127.0.0.1:");
}

#[test]
fn code_is_told_that_the_client_has_gone() {
    let server = start(
        r#"lua_check_client_abort on;
        server { listen 127.0.0.1:%%PORT_0%%; content_by_lua_block {
            assert(ngx.on_abort(function() ngx.log(ngx.NOTICE, "told of it") ngx.exit(499) end))
            ngx.say("ready") ngx.flush(true) ngx.sleep(60) } }
        server { listen 127.0.0.1:%%PORT_1%%; lua_check_client_abort off; content_by_lua_block {
            ngx.say(select(2, ngx.on_abort(function() end))) } }
        server { listen 127.0.0.1:%%PORT_2%%; content_by_lua_block { ngx.say(select(2, ngx.req.socket():receive("*a"))) } }"#,
    );
    let mut client = server.on(0).connect();
    client.read_until(b"ready\n");
    drop(client);
    server.expect_error("stream client prematurely closed connection");
    server.expect_error("told of it");
    assert_eq!(said(&server, 1, b""), "lua_check_client_abort is off\n");
    assert_eq!(said(&server, 2, b"some"), "client abortedsome\n");
}

/// With `no_postpone` the code runs before what else looks at the bytes.
#[test]
fn the_order_of_who_looks_first() {
    let conf = |more: &str| {
        format!(
            r#"{more} server {{ listen 127.0.0.1:%%PORT_0%%; ssl_preread on; preread_by_lua_block {{
            ngx.log(ngx.NOTICE, "name: ", tostring(ngx.var.ssl_preread_server_name)) }} return said; }}"#
        )
    };
    let late = start(&conf(""));
    let hello = crate::stream_core::hello("a.test");
    assert_eq!(said(&late, 0, &hello), "said");
    late.expect_error("name: a.test");
    let early = start(&conf("preread_by_lua_no_postpone on;"));
    assert_eq!(said(&early, 0, &hello), "said");
    early.expect_error("name: nil");
}

#[test]
fn handshakes_with_clients() {
    let authority = Authority::new("ca");
    let (own, chosen) = (self_signed("own.test"), authority.issue("a.test"));
    let server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log notice; stream {
        init_by_lua_block { function text_of(name)
            local f = assert(io.open("%%DIR%%/" .. name)) local text = f:read("*a") f:close() return text end }
        ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key;
        lua_ssl_trusted_certificate %%DIR%%/ca.crt; lua_ssl_key_log %%DIR%%/keys.log;
        server { listen 127.0.0.1:%%PORT_0%% ssl;
            ssl_client_hello_by_lua_block {
                local name = require("ngx.ssl.clienthello").get_client_hello_server_name()
                ngx.ctx.name = name
                if name == "refused.test" then ngx.exit(ngx.ERROR) end }
            ssl_certificate_by_lua_block {
                local ssl = require "ngx.ssl"
                ngx.sleep(0.001)
                if ssl.server_name() ~= "a.test" then return end
                assert(ssl.clear_certs())
                assert(ssl.set_cert(assert(ssl.parse_pem_cert(text_of("a.crt")))))
                assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(text_of("a.key"))))) }
            preread_by_lua_block { ngx.ctx.seen = ngx.req.socket():peek(2) }
            content_by_lua_block { ngx.say("met ", ngx.ctx.name, " ", ngx.ctx.seen) } }
        server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
            local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", %%PORT_0%%))
            assert(s:sslhandshake(nil, "a.test", true)) s:send("xy") ngx.print(s:receive("*a")) } }
        server { listen 127.0.0.1:%%PORT_2%% ssl; ssl_client_hello_by_lua_file %%DIR%%/hello.lua;
            ssl_certificate_by_lua_file %%DIR%%/cert.lua; return said; } }"#,
    )
    .file("own.crt", &own.cert)
    .file("own.key", &own.key)
    .file("a.crt", &chosen.cert)
    .file("a.key", &chosen.key)
    .file("ca.crt", &authority.cert)
    .file("hello.lua", "ngx.log(ngx.NOTICE, ngx.get_phase())")
    .file("cert.lua", "ngx.log(ngx.NOTICE, ngx.get_phase())")
    .start();
    let client = Tls::default();
    for (name, pair) in [("a.test", &chosen), ("own.test", &own)] {
        let mut conn = client.connect(server.port(0), name).unwrap();
        assert!(conn.shows(pair), "{name}");
        conn.send(b"hi there");
        let said = conn.read_to_end();
        assert_eq!(String::from_utf8_lossy(&said), format!("met {name} hi\n"));
    }
    assert!(client.connect(server.port(0), "refused.test").is_err());
    assert_eq!(said(&server, 1, b""), "met a.test xy\n");
    assert!(server.read("keys.log").contains("CLIENT_HANDSHAKE_TRAFFIC_SECRET"));
    client.connect(server.port(2), "x.test").unwrap();
    server
        .expect_error("hello.lua:1: ssl_client_hello, context: ssl_client_hello_by_lua*, client:");
    server.expect_error("cert.lua:1: ssl_cert, context: ssl_certificate_by_lua*, client:");
}

#[test]
fn what_is_refused() {
    let conf = |text: &str| format!("events {{}} stream {{ {text} }}");
    let server = "server { listen 127.0.0.1:%%PORT_0%%; ";
    for (text, why) in [
        ("content_by_lua_block { }", "\"content_by_lua_block\" directive is not allowed here"),
        ("lua_shared_dict d 1k;", "invalid lua shared dict size \"1k\""),
        ("lua_add_variable $status;", "the duplicate \"status\" variable"),
        ("lua_add_variable status;", "invalid variable name \"status\""),
        ("init_by_lua_block { this is not }", "init_by_lua error"),
        ("init_by_lua a; init_by_lua b;", "\"init_by_lua\" directive is duplicate"),
        ("lua_sa_restart off;", "remove the directive"),
        (
            &format!("{server} proxy_ssl_verify_by_lua_block {{ }} proxy_pass 127.0.0.1:1; }}"),
            "proxy_ssl_verify_by_lua* should be used with proxy_ssl directive",
        ),
        (&format!("{server} content_by_lua a; content_by_lua_block {{ }} }}"), "is duplicate"),
    ] {
        let output = run_cli(&["-t"], &conf(text));
        assert!(output.stderr.contains(why), "{text}: {}", output.stderr);
    }
}

#[test]
fn handshakes_with_servers() {
    let authority = Authority::new("ca");
    let (server_pair, client_pair) = (authority.issue("a.test"), authority.issue("client"));
    let server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log info; stream {
        init_by_lua_block { function text_of(name)
            local f = assert(io.open("%%DIR%%/" .. name)) local text = f:read("*a") f:close() return text end }
        ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_verify_client on; ssl_client_certificate %%DIR%%/ca.crt;
            return $ssl_client_s_dn; }
        server { listen 127.0.0.1:%%PORT_1%%; proxy_pass 127.0.0.1:%%PORT_0%%; proxy_ssl on; proxy_ssl_session_reuse off;
            proxy_ssl_verify on; proxy_ssl_trusted_certificate %%DIR%%/ca.crt; proxy_ssl_name a.test;
            proxy_ssl_certificate_by_lua_block {
                local proxy, ssl = require "ngx.ssl.proxysslcert", require "ngx.ssl"
                ngx.sleep(0.001)
                assert(proxy.clear_certs())
                assert(proxy.set_cert(assert(ssl.parse_pem_cert(text_of("c.crt")))))
                assert(proxy.set_priv_key(assert(ssl.parse_pem_priv_key(text_of("c.key"))))) }
            proxy_ssl_verify_by_lua_block { ngx.log(ngx.NOTICE, ngx.get_phase()) } }
        server { listen 127.0.0.1:%%PORT_2%%; proxy_pass 127.0.0.1:%%PORT_0%%; proxy_ssl on; proxy_ssl_verify on;
            proxy_ssl_trusted_certificate %%DIR%%/ca.crt; proxy_ssl_name a.test; lua_upstream_skip_openssl_default_verify on;
            proxy_ssl_certificate_by_lua_file %%DIR%%/none.lua; proxy_ssl_verify_by_lua_file %%DIR%%/refuse.lua; } }"#,
    )
    .file("a.crt", &server_pair.cert)
    .file("a.key", &server_pair.key)
    .file("c.crt", &client_pair.cert)
    .file("c.key", &client_pair.key)
    .file("ca.crt", &authority.cert)
    .file("none.lua", "ngx.log(ngx.NOTICE, 'none')")
    .file("refuse.lua", "ngx.exit(ngx.ERROR)")
    .start();
    assert_eq!(heard(&server, 1, b""), "CN=client");
    server
        .expect_error("proxy_ssl_verify while loading proxy ssl verify by lua, client: 127.0.0.1");
    assert_eq!(heard(&server, 2, b""), "");
    server.expect_error("none.lua:1: none while loading proxy ssl certificate by lua");
    server.expect_error("certificate verify failed");
}

/// TLS that code begins, as protocols with STARTTLS do: what was read in front of it is none of what comes behind.
#[test]
fn tls_begins_where_code_says() {
    let own = self_signed("localhost");
    let server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log info; stream {
        server { listen 127.0.0.1:%%PORT_0%%; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            content_by_lua_block {
                local s = ngx.req.socket()
                ngx.log(ngx.NOTICE, "asked: ", s:receive()) s:send("go on\n")
                local secured = ngx.thread.spawn(function() return s:serversslhandshake() end)
                ngx.log(ngx.NOTICE, "meanwhile: ", select(2, ngx.say("bare")), "; ", select(2, s:receive()), "; ", select(2, s:send("x")))
                local _, info, e = ngx.thread.wait(secured)
                if not info then return ngx.log(ngx.NOTICE, "failed: ", e, "; ", select(2, ngx.say("bare"))) end
                ngx.say(s:receive(), " ", info.protocol, " ", tostring(info.session_reused), " ", s:serversslhandshake().protocol) } }
        server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block { ngx.say(select(2, ngx.req.socket():serversslhandshake())) } } }"#,
    )
    .file("a.crt", &own.cert)
    .file("a.key", &own.key)
    .start();
    let mut client = server.on(0).connect();
    client.send(b"starttls\n");
    client.read_until(b"go on\n");
    let mut client = client.start_tls(&Tls::default()).unwrap();
    client.send(b"secret\n");
    let answer = client.read_to_end();
    assert_eq!(String::from_utf8_lossy(&answer), "secret TLSv1.3 false TLSv1.3\n");
    server.expect_error("asked: starttls");
    server.expect_error(
        "meanwhile: nginx output filter error; socket busy reading; socket busy connecting",
    );
    assert_eq!(heard(&server, 0, b"starttls\nnone of TLS\n"), "go on\n");
    server.expect_error("failed: handshake failed; nginx output filter error");
    assert_eq!(said(&server, 1, b""), "ssl not configured for this server\n");
}

/// What a client sends without an end is kept only as far as a state may grow.
#[test]
fn endless_lines_have_an_end() {
    let server = start(
        r#"lua_vm_memory 2m; server { listen 127.0.0.1:%%PORT_0%%; content_by_lua_block {
            local s = ngx.req.socket() local l, e, partial = s:receive() s = nil
            ngx.say(tostring(l), " ", e) } }"#,
    );
    let mut client = server.on(0).connect();
    // The server takes no more of it than that.
    while client.try_send(&[b'x'; 64 * 1024]) {}
    server.expect_error("not enough memory");
}
