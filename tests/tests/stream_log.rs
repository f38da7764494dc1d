//! `access_log` in `stream`: a line per session, off by default.

use weir_tests::{expect_soon, run_cli, Setup};

#[test]
fn a_line_per_session() {
    let server = Setup::new(
        "events {} stream {
            log_format plain '$remote_addr|$status|$bytes_sent|$protocol|${realip_remote_addr}';
            log_format quoted '$text';
            log_format JSON escape=json '{\"t\":\"$text\"}';
            log_format raw escape=none '[$text][$none]';
            map '' $text { default 'a\"b\u{1}'; }
            map $nothing $none { }
            map $server_port $port { default 0; %%PORT_1%% 1; }
            map '' $nothing { default ''; }
            access_log %%DIR%%/plain.log plain;
            server { listen 127.0.0.1:%%PORT_0%%; return four;
                access_log %%DIR%%/quoted.log quoted;
                access_log %%DIR%%/json.log json;
                access_log %%DIR%%/raw.log raw;
                access_log %%DIR%%/if.log plain if=$port; }
            server { listen 127.0.0.1:%%PORT_1%%; return five5; }
            server { listen 127.0.0.1:%%PORT_2%%; access_log off; return none; }
            server { listen 127.0.0.1:%%PORT_3%%; deny all; return none; }
        }",
    )
    .start();
    for n in 0..4 {
        server.on(n).connect().read_to_end();
    }
    let line = |path: &str| server.log_lines(path, 1).join("\n");
    assert_eq!(line("quoted.log"), "a\\x22b\\x01");
    assert_eq!(line("json.log"), "{\"t\":\"a\\\"b\\u0001\"}");
    assert_eq!(line("raw.log"), "[a\"b\u{1}][]");
    let mut lines = server.log_lines("plain.log", 2);
    lines.sort();
    assert_eq!(lines, ["127.0.0.1|200|5|TCP|127.0.0.1", "127.0.0.1|403|0|TCP|127.0.0.1"]);
    assert_eq!(server.read("if.log"), "");
}

#[test]
fn buffers_and_names_with_variables() {
    let server = Setup::new(
        "events {} stream { open_log_file_cache max=10;
            log_format f '$server_port';
            server { listen 127.0.0.1:%%PORT_0%%; return a;
                access_log %%DIR%%/buffered.log f buffer=64k flush=50ms;
                access_log %%DIR%%/packed.log f gzip flush=50ms;
                access_log %%DIR%%/$remote_addr.log f; }
        }",
    )
    .start();
    for _ in 0..3 {
        server.on(0).connect().read_to_end();
    }
    let port = server.port(0).to_string();
    assert_eq!(server.log_lines("127.0.0.1.log", 3), [&port[..]; 3]);
    assert_eq!(server.log_lines("buffered.log", 3), [&port[..]; 3]);
    let packed = || std::fs::read(server.dir().join("packed.log")).unwrap_or_default();
    expect_soon("a packed log", || packed().starts_with(&[0x1f, 0x8b]));
}

#[test]
fn formats_have_names() {
    for (conf, error) in [
        ("access_log a.log;", "log format is not specified"),
        ("access_log a.log combined;", "unknown log format \"combined\""),
        (
            "log_format f a; access_log syslog:server=127.0.0.1 f buffer=1k;",
            "logs to syslog cannot be buffered",
        ),
        ("log_format f $request;", "unknown \"request\" variable"),
    ] {
        let conf =
            format!("events {{}} stream {{ {conf} server {{ listen 127.0.0.1:1; return a; }} }}");
        let out = run_cli(&["-t"], &conf);
        assert!(out.stderr.contains(error), "{conf}: {}", out.stderr);
    }
}

/// A log that is named where logging is off is opened, and a client that says nothing has sent no header.
#[test]
fn off_and_broken_headers() {
    let server = Setup::new(
        "events {} stream { log_format f $status; error_log %%DIR%%/error.log;
            server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; return a;
                access_log %%DIR%%/broken.log f; }
            server { listen 127.0.0.1:%%PORT_1%%; return a;
                access_log %%DIR%%/off.log f; access_log off; }
        }",
    )
    .start();
    server.on(1).connect().read_to_end();
    let mut client = server.on(0).connect();
    client.shutdown_write();
    client.read_to_end();
    assert_eq!(server.log_lines("broken.log", 1), ["400"]);
    server.expect_error("broken header: \"\"");
    assert_eq!(std::fs::read(server.dir().join("off.log")).ok(), Some(Vec::new()));
}
