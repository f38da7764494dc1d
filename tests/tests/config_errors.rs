//! What `-t` says of configurations that are wrong: the first error, word for word.

use weir_tests::{run_cli, Setup};

fn first_error(conf: &str) -> (i32, String) {
    let output = run_cli(&["-t"], conf);
    let error = output.stderr.lines().find(|line| line.starts_with("nginx: [emerg]"));
    (output.code, error.unwrap_or_default().to_string())
}

#[test]
fn mistakes_are_named_with_their_place() {
    let mut wrong = Vec::new();
    for (conf, error) in [
        ("events {} http { nosuch on; }", "unknown directive \"nosuch\""),
        ("events {} http { location / {} }", "\"location\" directive is not allowed here"),
        ("events {} server {}", "\"server\" directive is not allowed here"),
        ("events {} http { server { root; } }", "invalid number of arguments in \"root\" directive"),
        ("events {} http { root a b; }", "invalid number of arguments in \"root\" directive"),
        ("events {} http { root a; root b; }", "\"root\" directive is duplicate"),
        ("events {} http { sendfile maybe; }", "invalid value \"maybe\" in \"sendfile\" directive, it must be \"on\" or \"off\""),
        ("events {} http { client_max_body_size 1x; }", "\"client_max_body_size\" directive invalid value"),
        ("events {} http { keepalive_requests x; }", "\"keepalive_requests\" directive invalid number"),
        ("events {} http { send_timeout x; }", "\"send_timeout\" directive invalid value"),
        ("events {} http { server { listen 127.0.0.1:99999; } }", "invalid port in \"127.0.0.1:99999\" of the \"listen\" directive"),
        ("events {} http { server { listen 80 nosuch; } }", "invalid parameter \"nosuch\""),
        ("events {} http { server { location / { proxy_pass x; } } }", "invalid URL prefix"),
        ("events {} http { server { location / { proxy_pass http://; } } }", "no host in upstream \"\""),
        ("events {} http { server { location ~ ^( { } } }", "pcre2_compile() failed: missing closing parenthesis in \"^(\" in DIR/nginx.conf:1"),
        ("events {} http { server { location / {} location / {} } }", "duplicate location \"/\""),
        ("events {} http { server { return 200 $nosuch; } }", "unknown \"nosuch\" variable"),
        ("events {} http { upstream u {} }", "no servers are inside upstream"),
        ("events {} http { upstream u { server 1.1.1.1; } upstream u { server 1.1.1.1; } }", "duplicate upstream \"u\""),
        ("events {} http { include %%DIR%%/none.conf; }", "open() \"DIR/none.conf\" failed (2: No such file or directory)"),
        ("events {} http { limit_req_zone $uri zone=z rate=1r/s; }", "invalid zone size \"zone=z\""),
        ("events {} http { server { location / { limit_req zone=z; } } }", "zero size shared memory zone \"z\""),
        ("events {} http { server { if ($x) { return 200; } } }", "unknown \"x\" variable"),
        ("events {} http { server { location / { if $x { } } } }", "invalid condition \"$x\""),
        ("events {} http { server { location / { try_files a; } } }", "invalid number of arguments in \"try_files\" directive"),
        ("events {} http { server { error_page 99 /x; } }", "value \"99\" must be between 300 and 599"),
        ("events {} http { log_format a x; log_format a y; }", "duplicate \"log_format\" name \"a\""),
        ("events {} http { access_log x nosuch; }", "unknown log format \"nosuch\""),
        ("events {} http { server { location / { location /a/ {} location b {} } location c {} } }", "location \"b\" is outside location \"/\""),
        ("events {} http { server { location @a { location /b {} } } }", "location \"/b\" cannot be inside the named location \"@a\""),
        ("events {} http { map $x { } }", "invalid number of arguments in \"map\" directive"),
        ("events {} http { map $a $b { x 1; x 2; } }", "conflicting parameter \"x\""),
        ("events {} http { server { expires 1h 2h 3h; } }", "invalid number of arguments in \"expires\" directive"),
        ("events {} http { gzip_comp_level 10; }", "value must be between 1 and 9"),
        ("http {} ", "no \"events\" section in configuration"),
        ("events {} http { server {", "unexpected end of file, expecting \"}\""),
        ("events {} http { } }", "unexpected \"}\""),
        ("events {} http { root \"a; }", "unexpected end of file, expecting \";\" or \"}\""),
        ("events {} http { root a }", "unexpected \"}\""),
        ("events {} http { root a {} }", "directive \"root\" is not terminated by \";\""),
        ("events {} http;", "directive \"http\" has no opening \"{\""),
        ("events {} http { ; }", "unexpected \";\""),
        ("events {} http { root \"a\"b; }", "unexpected \"b\""),
        ("events { worker_connections x; }", "invalid number \"x\""),
        ("worker_processes x; events {}", "\"worker_processes\" directive invalid value"),
        ("user nosuchuser; events {}", "getpwnam(\"nosuchuser\") failed"),
        ("error_log x nosuch; events {}", "invalid log level \"nosuch\""),
    ] {
        let (code, line) = first_error(conf);
        if code == 0 || !line.contains(error) {
            wrong.push(format!("{conf}\n  said {line}\n  want {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_line_number_counts_from_the_top_of_its_file() {
    let (_, line) = first_error("events {}\nhttp {\n    server {\n        nosuch on;\n    }\n}\n");
    assert_eq!(line, "nginx: [emerg] unknown directive \"nosuch\" in DIR/nginx.conf:4");
    let output = run_cli(&["-t"], "events {}\nhttp {\n  root 'two\nlines';\n  nosuch;\n}");
    assert!(output.stderr.contains("nginx.conf:5"), "{}", output.stderr);
}

#[test]
fn hosts_that_cannot_be_found_are_errors() {
    for (conf, error) in [
        (
            "events {} http { resolver no-such-host.invalid; }",
            "host not found in resolver \"no-such-host.invalid",
        ),
        (
            "events {} http { server { listen no-such-host.invalid:80; } }",
            "host not found in \"no-such-host.invalid:80\" of the \"listen\" directive",
        ),
    ] {
        let (code, line) = first_error(conf);
        assert_ne!(code, 0, "{conf}");
        assert!(line.contains(error), "{conf}\n{line}");
    }
}

#[test]
fn a_good_configuration_is_said_to_be_good() {
    let output = run_cli(&["-t"], "events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(
        lines[lines.len() - 2..],
        [
            "nginx: the configuration file DIR/nginx.conf syntax is ok",
            "nginx: configuration file DIR/nginx.conf test is successful"
        ]
    );
    let quiet = run_cli(&["-t", "-q"], "events {} http {}");
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
}

#[test]
fn warnings_do_not_stop_it() {
    let conf = "events {} http {
        server { listen 127.0.0.1:%%PORT_0%%; server_name a; }
        server { listen 127.0.0.1:%%PORT_0%%; server_name a; } }";
    let output = run_cli(&["-t"], conf);
    assert_eq!(output.code, 0);
    assert!(
        output.stderr.contains("[warn] conflicting server name \"a\" on 127.0.0.1:"),
        "{}",
        output.stderr
    );
}

#[test]
fn the_whole_configuration_can_be_dumped() {
    let output = run_cli(&["-T"], "# comment\nevents {}\nhttp {}\n");
    assert_eq!(output.code, 0);
    assert!(
        output
            .stdout
            .contains("# configuration file DIR/nginx.conf:\n# comment\nevents {}\nhttp {}\n"),
        "{}",
        output.stdout
    );
}

#[test]
fn syntax_that_is_fine() {
    let server = Setup::new(
        "events{}http{# comment }
            server{listen 127.0.0.1:%%PORT_0%%;
            location /quotes { return 200 'a\\'b\"c'; }
            location /escapes { return 200 \"tab\\tnl\\nq\\\"\"; }
            location /hash { return 200 a#b; }
            location /brace { return 200 \"${uri}x{y}\"; }
            include %%DIR%%/inc/*.conf;
        } }",
    )
    .file("inc/b.conf", "location /b { return 200 b; }")
    .file("inc/a.conf", "location /a { return 200 a; }")
    .start();
    for (path, text) in [
        ("/quotes", "a'b\"c"),
        ("/escapes", "tab\tnl\nq\""),
        ("/hash", "a#b"),
        ("/brace", "/bracex{y}"),
        ("/a", "a"),
        ("/b", "b"),
    ] {
        assert_eq!(server.get(path).text(), text, "{path}");
    }
}

/// As in nginx words of a list are known in any letters, and `so_keepalive` needs no colons.
#[test]
fn words_are_known_in_any_letters() {
    let good = "events {} http { server { listen 127.0.0.1:%%PORT_0%% so_keepalive=1;
        ssl_protocols tlsv1.2 TLSV1.3; satisfy ANY; gzip_proxied ANY; ssl_verify_client OFF;
        proxy_next_upstream ERROR Timeout; keepalive_disable NONE; etag Off; } }
        mail { auth_http 127.0.0.1:%%PORT_1%%; pop3_auth Plain APOP; starttls OFF;
        server { listen 127.0.0.1:%%PORT_1%% so_keepalive=30:; protocol pop3; } }";
    let said = run_cli(&["-t"], good);
    assert_eq!(said.code, 0, "{}", said.stderr);
    for bad in ["so_keepalive=0", "so_keepalive=::", "so_keepalive=x", "so_keepalive=1:2:3:4"] {
        let said = run_cli(&["-t"], &good.replace("so_keepalive=1;", &format!("{bad};")));
        assert!(said.stderr.contains("invalid so_keepalive value"), "{bad}: {}", said.stderr);
    }
}
