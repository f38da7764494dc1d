//! What Tengine's core says of the server: server_tag, server_info, server_admin; and fields of answers.

use weir_tests::h2::H2;
use weir_tests::Setup;

#[test]
fn tags() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; http2 on; server_tag "<mine>";
        location /off { server_tag off; return 404; }
        location / { return 404; }
        location /ok { return 200 x; }
        } server { listen 127.0.0.1:%%PORT_1%%; server_tokens off; } }"#,
    )
    .start();
    assert_eq!(server.get("/").header("Server"), Some("<mine>"));
    assert_eq!(server.get("/ok").header("Server"), Some("<mine>"));
    assert!(server.get("/").text().contains("<hr><center>Powered by &lt;mine&gt;</center>"));
    let off = server.get("/off");
    assert_eq!(off.header("Server"), None);
    assert!(off.header("Date").is_some() && !off.text().contains("<hr>"), "{}", off.text());
    assert_eq!(server.exchange("GET", b"bad\r\n\r\n").header("Server"), Some("<mine>"));
    assert_eq!(H2::connect(&server).fetch("/ok").header("server"), Some("<mine>"));
    let other = server.on(1).get("/");
    let name = other.header("Server").unwrap();
    assert!(other.text().contains(&format!("<hr><center>{name}</center>")), "{}", other.text());
}

#[test]
fn error_pages_say_what_was_asked_for() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; server_info on; server_admin "<a@b>";
        location / { return 403; }
        location /moved { return 301 /; }
        location /off { server_info off; return 403; }
        } }"#,
    )
    .start();
    let page = server.get("/%3Cx%3E?<b>").text();
    let url = format!("<td>http://localhost:{}/%3Cx%3E?&lt;b&gt;</td>", server.port(0));
    assert!(page.contains(&url) && page.contains("<td>&lt;a@b&gt;</td>"), "{page}");
    assert!(page.contains("<td>Date:</td>") && page.contains("<td>Server:</td>"), "{page}");
    for path in ["/moved", "/off"] {
        assert!(!server.get(path).text().contains("<td>"), "{path}");
    }
}

#[test]
fn fields_get_further_values() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location / { add_header X-A 1; append_header x-a 2; append_header X-A $arg_v; append_header X-B 3; return 200; }
        location /by { append_header_separator "; "; add_header X-A 1; add_header X-A 2; append_header X-A 3; return 200; }
        location /404 { append_header X-A 1; return 404; }
        location /gzip/ { alias %%DIR%%/; gzip on; gzip_min_length 1; gzip_types *; }
        location /clear/ { alias %%DIR%%/; gzip on; gzip_min_length 1; gzip_types *; gzip_clear_etag on; }
        } }"#,
    )
    .file("f", "some text some text")
    .start();
    let answer = server.get("/?v=4");
    assert_eq!((answer.all("X-A"), answer.all("X-B")), (vec!["1, 2, 4"], vec!["3"]));
    assert_eq!(server.get("/").all("X-A"), ["1, 2"]);
    assert_eq!(server.get("/by").all("X-A"), ["1", "2; 3"]);
    assert_eq!(server.get("/404").header("X-A"), None);
    let zipped = |path| server.get_with(path, "Accept-Encoding: gzip\r\n");
    assert!(zipped("/gzip/f").header("ETag").unwrap().starts_with("W/"));
    assert_eq!(zipped("/clear/f").header("ETag"), None);
    assert!(server.get("/clear/f").header("ETag").is_some());
}

/// The name servers of a file; and the clock is read for each log where that is wanted.
#[test]
fn files_name_servers_and_logs_are_exact() {
    let dns = weir_tests::Dns::start();
    let origin = weir_tests::Origin::echo();
    dns.set_ip("backend.example", 60, "127.0.0.1".parse().unwrap());
    let server = Setup::new(
        r#"events {} http { resolver_file %%DIR%%/resolv.conf; resolver_timeout 5s; request_time_cache off;
        log_format t '$request_time'; access_log %%DIR%%/t.log t;
        server { listen 127.0.0.1:%%PORT_0%%; set $name backend.example;
        location / { proxy_pass http://$name:%%ORIGIN_PORT%%; } } }"#,
    )
    .set("ORIGIN_PORT", origin.port())
    .file("resolv.conf", format!("# by hand\nsearch example\nnameserver {}\n", dns.address()))
    .start();
    assert!(server.get("/asked").text().contains("GET /asked"));
    assert!(dns.count("backend.example A") > 0, "{:?}", dns.queries());
    let line = server.log_lines("t.log", 1).remove(0);
    assert!(line.parse::<f64>().is_ok(), "{line}");
    let conf = "events {} http { resolver_file nosuch; }";
    let told = weir_tests::run_cli(&["-t"], conf).stderr;
    assert!(told.contains("open() \"") && told.contains("nosuch\" failed"), "{told}");
}

/// What is Tengine's and not here says what to write instead.
#[test]
fn what_is_not_here_says_what_to_write() {
    for (line, advice) in [
        ("enable_ntls on;", "RSA or ECDSA"),
        ("ssl_sign_certificate a;", "RSA or ECDSA"),
        ("xquic_log_file a;", "HTTP/3"),
        ("dubbo_pass_set a b;", "grpc_pass"),
        ("tfs_pass a;", "proxy_pass"),
        ("ingress_gateway a;", "server and location"),
        ("xudp_off;", "XDP"),
        ("rtsig_signo 1;", "epoll"),
        ("processes { }", "systemd"),
        ("backtrace_log a;", "worker_rlimit_core"),
        ("debug_pool;", "stub_status json"),
        ("ssl_async on;", "rustls"),
        ("proxy_sndbuf_size 1k;", "tcp_wmem"),
        ("client_body_postpone_size 1k;", "client_body_buffer_size"),
        ("rr_discarded_range 3;", "vnswrr"),
    ] {
        let told = weir_tests::run_cli(&["-t"], &format!("events {{}} http {{ {line} }}"));
        assert!(told.code != 0 && told.stderr.contains(advice), "{line}: {}", told.stderr);
    }
}

/// When a server was asked and when it answered; and a flag that changes nothing.
#[test]
fn times_of_servers() {
    let origin = weir_tests::Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(30));
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
        std::thread::sleep(std::time::Duration::from_millis(30));
        conn.write("k");
        weir_tests::Next::Close
    });
    let server = Setup::new(
        r#"events {} http { upstream_change_no_server_status on;
        log_format t '$upstream_stat_send_start_time $upstream_stat_send_finish_time $upstream_stat_recv_start_time $upstream_stat_recv_finish_time|$upstream_stat_send_time|$upstream_stat_recv_time|$upstream_first_pkg_time';
        access_log %%DIR%%/t.log t; upstream u { server 127.0.0.1:%%PORT_1%%; server 127.0.0.1:%%ORIGIN_PORT%% backup; }
        server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; }
            location /none { set $x "[$upstream_stat_send_time$upstream_first_pkg_time]"; return 200 $x; } }
        server { listen 127.0.0.1:%%PORT_1%%; return 444; } }"#,
    )
    .set("ORIGIN_PORT", origin.port())
    .start();
    assert_eq!(server.get("/none").text(), "[]");
    assert_eq!(server.get("/").text(), "ok");
    let line = server.log_lines("t.log", 3).into_iter().find(|l| l.contains(", ")).unwrap();
    let halves: Vec<&str> = line.split('|').collect();
    let numbers: Vec<u64> = halves[0].split([' ', ',']).filter_map(|n| n.parse().ok()).collect();
    // The first server was asked and has said nothing: a minus, or its own 502.
    let of_last = &numbers[numbers.len().saturating_sub(numbers.len() / 4 * 4 / 2)..];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(numbers.iter().all(|n| *n == 0 || now.as_millis() as u64 - n < 60_000), "{line}");
    assert!(!of_last.is_empty(), "{line}");
    let took = |text: &str| text.rsplit(", ").next().unwrap().parse::<f64>().unwrap();
    assert!(took(halves[2]) >= 0.02 && took(halves[1]) < 0.03, "{line}");
    assert!(halves[3].parse::<u64>().unwrap() >= 30, "{line}");
}

/// Times by types: the inner level's, beside or without those that hold for all.
#[test]
fn times_by_types() {
    let server = Setup::new(
        r#"events {} http { types { text/html html; text/css css; image/png png; }
        expires 30s; expires_by_types 32s text/css; expires_by_types epoch image/png;
        server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location /inner/ { alias %%DIR%%/; expires_by_types 20s TEXT/html; charset utf-8; }
        location /plain/ { alias %%DIR%%/; expires 10s; }
        location /none/ { alias %%DIR%%/; expires off; expires_by_types 1s text/html; }
        location /out/ { expires off; location /out/in/ { alias %%DIR%%/; expires_by_types modified 1h text/html; } }
        location /not/ { alias %%DIR%%/; expires_by_types off text/css; } } }"#,
    )
    .file("a.html", "a")
    .file("a.css", "a")
    .file("a.png", "a")
    .start();
    for (path, expected) in [
        ("/a.html", Some("max-age=30")),
        ("/a.css", Some("max-age=32")),
        ("/a.png", Some("no-cache")),
        ("/inner/a.html", Some("max-age=20")),
        ("/inner/a.css", Some("max-age=30")),
        ("/plain/a.html", Some("max-age=10")),
        ("/plain/a.css", Some("max-age=32")),
        ("/none/a.html", None),
        ("/none/a.css", None),
        ("/out/in/a.css", None),
        ("/not/a.css", None),
        ("/not/a.html", Some("max-age=30")),
    ] {
        assert_eq!(server.get(path).header("Cache-Control"), expected, "{path}");
    }
    let of_file = server.get("/out/in/a.html");
    assert!(of_file.header("Cache-Control").is_some_and(|v| v.starts_with("max-age=3")));
    for (line, told) in
        [("modified 1h", "no types"), ("x a", "invalid value"), ("modified @1h a", "daily time")]
    {
        let said = weir_tests::run_cli(
            &["-t"],
            &format!("events {{}} http {{ expires_by_types {line}; }}"),
        );
        assert!(said.code == 1 && said.stderr.contains(told), "{line}: {}", said.stderr);
    }
}
