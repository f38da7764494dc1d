//! What `-t` says beyond nginx's first line: every mistake at once, and what to do about each.

use weir_tests::{is_windows, run_cli, skip, CliOutput, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

fn emergencies(output: &CliOutput) -> Vec<&str> {
    output.stderr.lines().filter(|l| l.starts_with("nginx: [emerg] ")).collect()
}

#[test]
fn every_mistake_is_told() {
    let output = run_cli(
        &["-t"],
        "events {}\nnosuch_a 1;\nhttp {\n  nosuch_b { x y; }\n  server {\n    listen 80\n    root /x;
    nosuch_c;\n    location / { sendfile maybe; root; nosuch_d on; }\n  }\n  keepalive_requests x;\n}\n",
    );
    assert_eq!(output.code, 1);
    let told = emergencies(&output);
    assert_eq!(told[0], "nginx: [emerg] unknown directive \"nosuch_a\" in DIR/nginx.conf:2");
    let last = output.stderr.lines().last().unwrap();
    assert_eq!(last, "nginx: configuration file DIR/nginx.conf test failed");
    if !is_weir() {
        return;
    }
    let expected = [
        "unknown directive \"nosuch_a\" in DIR/nginx.conf:2",
        "unknown directive \"nosuch_b\" in DIR/nginx.conf:4",
        "invalid parameter \"root\" in DIR/nginx.conf:7",
        "unknown directive \"nosuch_c\" in DIR/nginx.conf:8",
        "invalid value \"maybe\" in \"sendfile\" directive, it must be \"on\" or \"off\" in DIR/nginx.conf:9",
        "invalid number of arguments in \"root\" directive in DIR/nginx.conf:9",
        "unknown directive \"nosuch_d\" in DIR/nginx.conf:9",
        "\"keepalive_requests\" directive invalid number in DIR/nginx.conf:11",
    ];
    let told: Vec<&str> = told.iter().map(|l| l.trim_start_matches("nginx: [emerg] ")).collect();
    assert_eq!(told, expected);
}

/// What follows from a mistake is none of its own, and what was cut off lacks nothing yet.
#[test]
fn nothing_is_told_that_only_follows() {
    for (conf, error) in [
        (
            "events {} http { log_format; access_log a nosuch; map $a $b { x; } }",
            "invalid number of arguments in \"log_format\" directive",
        ),
        ("events {} http { upstream u { server", "unexpected end of file, expecting"),
    ] {
        let output = run_cli(&["-t"], conf);
        let told = emergencies(&output);
        assert!(told[0].contains(error), "{told:?}");
        let many = told.iter().filter(|l| !l.contains("number of arguments")).count();
        assert!(many <= 1, "{told:?}");
    }
}

/// Each stands in a line of its own, as people write it.
#[test]
fn a_forgotten_end_is_shown_where_it_is_missing() {
    if !is_weir() {
        return skip("nginx gives no advice");
    }
    for (conf, place, help) in [
        (
            "events {}\nhttp {\n  root /a\n  index b;\n}",
            "nginx.conf:3:8",
            "is a \";\" missing after \"/a\"?",
        ),
        (
            "events {}\nhttp {\n  sendfile on\n  tcp_nopush on;\n}",
            "nginx.conf:3:12",
            "is a \";\" missing after \"on\"?",
        ),
        (
            "events {}\nhttp {\n  root C:\\dir\\;\n}",
            "nginx.conf:3:8",
            "a backslash before a \";\" makes it part of the word",
        ),
        (
            "events {}\nhttp {\n  root C:\\dir\\;\n  sendfile on;\n}",
            "nginx.conf:3:8",
            "a backslash before a \";\" makes it part of the word",
        ),
        (
            "events {}\nhttp {\n  server {\n    root /a\n  }\n}",
            "nginx.conf:4:10",
            "is a \";\" missing after \"/a\"?",
        ),
        (
            "events {}\nhttp { server {\n  root /a\n  location / { }\n} }",
            "nginx.conf:3:8",
            "is a \";\" missing after \"/a\"?",
        ),
        (
            "events {}\nhttp {\n  server {\n    location / {\n      root a;\n  }\n}\n",
            "nginx.conf:4:5",
            "this block is closed by the \"}\" in line 6",
        ),
        ("events {}\nhttp {\n  server {\n", "nginx.conf:3:3", "this block is not closed"),
    ] {
        let said = run_cli(&["-t"], conf);
        assert_eq!(said.code, 1);
        assert!(said.stderr.contains(&format!("--> DIR/{place}\n")), "{conf}\n{}", said.stderr);
        assert!(said.stderr.contains(&format!("= help: {help}")), "{conf}\n{}", said.stderr);
    }
}

#[test]
fn what_is_found_at_the_end_has_its_place_too() {
    if !is_weir() {
        return skip("nginx names no line for these");
    }
    for (conf, first, place) in [
        (
            "events {}\nhttp {\n  server { return 200 $requst_uri; }\n}",
            "unknown \"requst_uri\" variable",
            "nginx.conf:3:23",
        ),
        (
            "events {}\nhttp {\n  server {\n    limit_req zone=one;\n  }\n}",
            "zero size shared memory zone \"one\"",
            "nginx.conf:4:15",
        ),
        (
            "events {}\nhttp {\n  sendfile off;\n  req_status off;\n}",
            "zero size shared memory zone \"off\"",
            "nginx.conf:4:14",
        ),
        (
            "events {}\nhttp {\n  analytics nope;\n}",
            "unknown analytics zone \"nope\" in DIR/nginx.conf:3",
            "nginx.conf:3:13",
        ),
        (
            "events {}\nhttp {\n  server {\n    proxy_cache one;\n  }\n}",
            "\"proxy_cache\" zone \"one\" is unknown",
            "nginx.conf:4:17",
        ),
        (
            "events {}\nhttp {\n  server {\n    listen 8443 ssl;\n    ssl_certificate none.crt;
    ssl_certificate_key none.key;\n  }\n}",
            "cannot load certificate \"DIR/none.crt\": ",
            "nginx.conf:5:21",
        ),
    ] {
        let said = run_cli(&["-t"], conf);
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!(said.code, 1, "{}", said.stderr);
        assert!(lines[0].starts_with(&format!("nginx: [emerg] {first}")), "{}", said.stderr);
        assert!(lines[1].ends_with(&format!("--> DIR/{place}")), "{}", said.stderr);
    }
    let said = run_cli(&["-t"], "events {} http { server { return 200 $requst_uri; } }");
    assert!(said.stderr.contains("did you mean \"$request_uri\"?"), "{}", said.stderr);
}

#[test]
fn parameters_of_check_are_listed() {
    if !is_weir() {
        return skip("nginx has no check");
    }
    for (parameter, help) in [("foo=1", "interval="), ("interval=x", "milliseconds")] {
        let conf = format!(
            "events {{}} http {{ upstream u {{ server 127.0.0.1:1; check {parameter}; }} }}"
        );
        let said = run_cli(&["-t"], &conf).stderr;
        assert!(said.contains(&format!("invalid parameter \"{parameter}\"")), "{said}");
        assert!(said.lines().any(|l| l.contains("= help: ") && l.contains(help)), "{said}");
    }
}

#[test]
fn directives_of_other_modules_are_known_by_name() {
    if !is_weir() {
        return skip("nginx knows no modules of others");
    }
    for (name, help) in [
        ("js_import", "njs"),
        ("modsecurity_rules_file", "ModSecurity"),
        ("vhost_traffic_status_filter", "status_zone"),
        ("opentelemetry_config", "otel_exporter"),
        ("echo_abort_parent", "does nothing in OpenResty"),
        ("memc_upstream_max_fails", "max_fails"),
        ("set_iconv", "charset"),
        ("api_config_files", "weir -T"),
        ("prometheus_template", "metrics (for Prometheus)"),
        ("metric_zone", "status_zone"),
        ("docker_endpoint", "state file"),
        ("auto_redirect", "return 301"),
        ("response_time_factor", "least_time"),
        ("sticky_secret", "route"),
        ("sticky_strict", "another one"),
        ("postgres_pass", "databases"),
        ("acme_issuer", "certbot"),
        ("perl_modules", "Perl"),
        ("rtmp", "RTMP"),
        ("fancyindex_name_length", "text-overflow"),
        ("pagespeed", "rewrites no pages"),
        ("lua_kong_load_var_index", "Lua"),
        ("cache_purge_background_queue", "purger="),
        ("multi", "grpc_pass"),
        ("dyups_upstream_conf", "include the file"),
        ("auth_pam", "auth_request"),
        ("auth_ldap_servers", "auth_request"),
        ("xslt_stylesheet", "XSLT"),
        ("xml_entities", "sub_filter"),
    ] {
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {name} x; }}"));
        let first = said.stderr.lines().next().unwrap();
        let error = format!("nginx: [emerg] unknown directive \"{name}\" in DIR/nginx.conf:1");
        assert_eq!(first, error);
        let advice = said.stderr.lines().find(|l| l.contains("= help: "));
        assert!(advice.is_some_and(|l| l.contains(help)), "{name}: {}", said.stderr);
    }
}

/// What nginx has had, and has dropped or renamed.
#[test]
fn directives_of_older_versions_are_known_by_name() {
    for (directive, help) in [
        ("ssl on", "listen 443 ssl"),
        ("status", "api ("),
        ("status_format json", "metrics (for Prometheus)"),
        ("prometheus", "vhost_traffic_status_display"),
        ("spdy_headers_comp 1", "http2 on"),
        ("spdy_chunk_size 8k", "http2 on"),
        ("limit_zone a $binary_remote_addr 1m", "limit_conn_zone"),
        ("open_file_cache_retest 1", "open_file_cache_valid"),
        ("satisfy_any on", "satisfy any"),
        ("proxy_upstream_max_fails 1", "max_fails="),
        ("fastcgi_upstream_fail_timeout 1", "fail_timeout="),
        ("proxy_redirect_errors on", "_intercept_errors"),
        ("proxy_pass_server on", "proxy_pass_header"),
        ("proxy_preserve_host on", "proxy_set_header"),
        ("proxy_set_x_real_ip on", "proxy_set_header"),
        ("fastcgi_x_powered_by off", "fastcgi_hide_header"),
        ("optimize_server_names on", "remove"),
        ("restrict_host_names on", "remove"),
        ("so_keepalive on", "so_keepalive=on"),
        ("post_accept_timeout 1", "deferred"),
        ("connections 10", "worker_connections"),
        ("gzip_min_http_version 1.1", "gzip_http_version"),
    ] {
        let name = directive.split(' ').next().unwrap();
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {directive}; }}"));
        let error = format!("[emerg] unknown directive \"{name}\" in DIR/nginx.conf:1");
        assert!(said.stderr.contains(&error), "{}", said.stderr);
        let advice = said.stderr.lines().find(|l| l.contains("= help: "));
        if is_weir() {
            assert!(advice.is_some_and(|l| l.contains(help)), "{name}: {}", said.stderr);
        }
    }
}

#[test]
fn directives_that_are_obsolete_are_told_of_and_left_out() {
    for (directive, told) in [
        ("http2_recv_timeout 1s", "use the \"client_header_timeout\" directive instead"),
        ("http2_idle_timeout 1s", "use the \"keepalive_timeout\" directive instead"),
        ("http2_max_requests 1", "use the \"keepalive_requests\" directive instead"),
        ("http2_max_field_size 4k", "use the \"large_client_header_buffers\" directive instead"),
        ("http2_max_header_size 4k", "use the \"large_client_header_buffers\" directive instead"),
        ("http2_max_concurrent_pushes 1", "ignored"),
        ("http2_push_preload on", "ignored"),
        ("http2_push /a", "ignored"),
    ] {
        let name = directive.split(' ').next().unwrap();
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {directive}; }}"));
        assert_eq!(said.code, 0, "{}", said.stderr);
        let warning = format!("[warn] the \"{name}\" directive is obsolete, {told} in ");
        assert!(said.stderr.contains(&warning), "{}", said.stderr);
    }
}

#[test]
fn servers_that_can_never_be_reached() {
    for (directive, name) in [
        ("fastcgi_pass localhost", "localhost"),
        ("fastcgi_pass 127.0.0.1", "127.0.0.1"),
        ("uwsgi_pass no-such-host.invalid", "no-such-host.invalid"),
        ("scgi_pass localhost", "localhost"),
        ("grpc_pass localhost", "localhost"),
    ] {
        let conf = format!("events {{}}\nhttp {{ server {{ location / {{ {directive}; }} }} }}");
        let said = run_cli(&["-t"], &conf);
        let error = format!("nginx: [emerg] no port in upstream \"{name}\" in DIR/nginx.conf:2");
        assert_eq!(said.code, 1, "{}", said.stderr);
        assert!(said.stderr.lines().any(|l| l == error), "{}", said.stderr);
    }
    let conf = "events {} http { server { location / { fastcgi_pass u; } } upstream u { server 127.0.0.1; } }";
    assert_eq!(run_cli(&["-t"], conf).code, 0, "{conf}");
}

/// They need no port, and are refused where the system has none.
#[test]
fn marks_before_the_text_are_told_of() {
    if !is_weir() {
        return skip("nginx does not say what to do");
    }
    let said = run_cli(&["-t"], "\u{feff}events {}");
    let mend = "byte order mark: save it as UTF-8 without one";
    assert!(said.code == 1 && said.stderr.contains(mend), "{}", said.stderr);
}

#[test]
fn backslashes_that_are_lost_in_a_path_are_told_of() {
    for (path, is_lost) in [
        (r"C:\new\test", true),
        (r"C:\sites\test", true),
        (r"C:\sites\www", false),
        (r"C:\\new\\test", false),
        ("C:/new/test", false),
    ] {
        let conf = format!("events {{}}\nhttp {{ server {{ root {path}; }} }}");
        let said = run_cli(&["-t"], &conf);
        let is_told = said.stderr.contains("line feed") && said.stderr.contains("write \"/\"");
        assert_eq!((said.code, is_told), (0, is_lost && is_windows()), "{path}: {}", said.stderr);
    }
}

#[test]
fn unix_sockets_are_told_of_where_there_are_none() {
    let none = "the unix domain sockets are not supported on this platform";
    for (part, place) in [
        ("server { listen unix:a; }", " of the \"listen\" directive"),
        ("server { location / { fastcgi_pass unix:/x; } }", ""),
        ("server { location / { proxy_pass http://unix:/x:/y; } }", ""),
        ("upstream u { server unix:/x; }", ""),
        ("access_log syslog:server=unix:/x;", ""),
    ] {
        let conf = format!("events {{}}\nhttp {{ {part} }}");
        let said = run_cli(&["-t"], &conf);
        assert_eq!(said.code, i32::from(is_windows()), "{}", said.stderr);
        let is_told = said
            .stderr
            .lines()
            .any(|l| l.contains(none) && l.contains(place) && l.ends_with("nginx.conf:2"));
        assert_eq!(is_told, is_windows(), "{part}: {}", said.stderr);
    }
}

#[test]
fn a_strict_test_takes_no_warning() {
    if !is_weir() {
        return skip("to nginx a name that is not found is an error");
    }
    let conf =
        "events {}\nhttp { server { location / { proxy_pass http://no-such-host.invalid; } } }";
    let warning =
        "nginx: [warn] host not found in upstream \"no-such-host.invalid\" in DIR/nginx.conf:2";
    for (arguments, code) in [(&["-t"][..], 0), (&["-t", "--strict"], 1), (&["--strict", "-tq"], 1)]
    {
        let said = run_cli(arguments, conf);
        assert_eq!(said.code, code, "{}", said.stderr);
        assert!(said.stderr.lines().any(|l| l == warning), "{}", said.stderr);
        assert_eq!(said.stderr.contains("nginx.conf test failed"), code == 1);
    }
    assert_eq!(run_cli(&["-t", "--strict"], "events {} http {}").code, 0);
    let said = run_cli(&["--strict"], "events {} http {}");
    assert!(said.stderr.contains("option \"--strict\" goes with -t"), "{}", said.stderr);
}

/// Whatever the configuration says of logs.
#[test]
fn an_error_log_that_has_no_place_is_no_reason_to_stop() {
    for own in ["", "error_log own.log;"] {
        let conf = format!("pid the.pid; {own} events {{}} http {{ access_log off; }}");
        let setup = Setup::new("").file("my.conf", conf);
        let dir = setup.dir().display().to_string();
        std::fs::remove_dir(setup.dir().join("logs")).unwrap();
        let said = |more: &[&str]| {
            let mut command = std::process::Command::new(weir_tests::binary());
            command.args(["-p", &dir, "-c", &format!("{dir}/my.conf"), "-e", "logs/error.log"]);
            weir_tests::tools::finish(command.args(more), b"")
        };
        let alert = format!(
            "nginx: [alert] could not open error log file: open() \"{dir}/logs/error.log\" failed (2: No such file or directory)"
        );
        let tested = said(&["-t"]);
        assert_eq!(tested.stderr.lines().next(), Some(alert.as_str()), "{own}");
        assert_eq!(tested.stderr.matches("[alert]").count(), 1, "{}", tested.stderr);
        if is_weir() {
            assert_eq!(tested.code, 0, "{}", tested.stderr);
        }
        let started = said(&["-g", "daemon off; user nosuchuser;"]);
        assert_eq!(started.stderr.lines().next(), Some(alert.as_str()), "{own}");
    }
}

#[test]
fn who_holds_a_port_is_told_in_the_same_line() {
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }";
    let server = Server::start(conf);
    let conf = conf.replace("%%PORT_0%%", &server.port(0).to_string());
    let said = run_cli(&[], &conf);
    assert_eq!(said.code, 1);
    let told: Vec<&str> = emergencies(&said);
    assert_eq!(told.len(), said.stderr.lines().count(), "{}", said.stderr);
    assert!(told[0].contains("failed (98: Address already in use)"), "{}", said.stderr);
    if is_weir() {
        assert!(told[0].contains("; the port is held by process "), "{}", said.stderr);
    }
}

/// A broken reload: one line in the log, though there are several mistakes.
#[test]
fn a_reload_logs_the_first_mistake() {
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }";
    let mut server = Server::start(conf);
    server.replace_conf("events {} http { nosuch_a; nosuch_b; }");
    server.signal(weir_tests::Signal::Hup);
    server.expect_error("[emerg]");
    server.expect_error("unknown directive \"nosuch_a\" in ");
    assert_eq!(server.get("/").text(), "ok");
}

#[test]
fn where_a_directive_stands_is_told_with_its_block() {
    if !is_weir() {
        return skip("nginx names no places");
    }
    for (conf, hint) in [
        (
            "stream { upstream u { server 127.0.0.1:1; keepalive 2; } }",
            "\"keepalive\" stands in: upstream in http",
        ),
        (
            "mail { server { listen 127.0.0.1:1; root /; } }",
            "\"root\" stands in: http, server in http, location",
        ),
    ] {
        let out = run_cli(&["-t"], &format!("events {{}} {conf}"));
        assert!(out.code != 0 && out.stderr.contains(hint), "{conf}: {}", out.stderr);
    }
}

/// Words of modules that others make.
#[test]
fn words_of_other_modules_are_known() {
    if !is_weir() {
        return;
    }
    for (line, expected) in [
        ("upstream u { fair; }", "least_time header"),
        ("upstream u { jvm_route $cookie_JSESSIONID; }", "sticky route $variable"),
        ("upstream u { sticky name=route expires=1h; }", "sticky cookie NAME"),
        ("cache_purge on;", "proxy_cache_purge"),
        ("limit_upstream_zone z 1m;", "max_conns="),
        ("upload_progress z 1m;", "how far an upload has come"),
    ] {
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {line} }}")).stderr;
        assert!(said.contains(expected), "{line}: {said}");
    }
}
