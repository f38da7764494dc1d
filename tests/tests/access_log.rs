//! The access log: what it says, where, and when.

use weir_tests::{expect_soon, Server, Setup};

#[test]
fn the_combined_format_is_the_default() {
    let server = Server::start(
        "events {} http { access_log %%DIR%%/access.log;
            server { listen 127.0.0.1:%%PORT_0%%; return 200 hello; } }",
    );
    server.get_with("/a?b", "User-Agent: me \"x\"\r\nReferer: http://r/\r\n");
    let line = &server.log_lines("access.log", 1)[0];
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(
        line.ends_with("] \"GET /a?b HTTP/1.1\" 200 5 \"http://r/\" \"me \\x22x\\x22\""),
        "{line}"
    );
}

#[test]
fn formats_and_escapes() {
    let server = Server::start(
        r#"events {} http {
            log_format plain '$request_method $uri $status $body_bytes_sent [$http_x]';
            log_format json escape=json '{"x":"$http_x","none":"$http_none"}';
            log_format raw escape=none '$http_x|$http_none';
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { access_log %%DIR%%/plain.log plain; access_log %%DIR%%/json.log json;
                    access_log %%DIR%%/raw.log raw; return 200 ok; }
            } }"#,
    );
    server.get_with("/p%20q", "X: a\"b\\c\td\u{e9}\r\n");
    assert_eq!(
        server.log_lines("plain.log", 1)[0],
        "GET /p q 200 2 [a\\x22b\\x5Cc\\x09d\\xC3\\xA9]"
    );
    assert_eq!(
        server.log_lines("json.log", 1)[0],
        "{\"x\":\"a\\\"b\\\\c\\td\u{e9}\",\"none\":\"\"}"
    );
    assert_eq!(server.log_lines("raw.log", 1)[0], "a\"b\\c\td\u{e9}|");
    server.get("/");
    assert_eq!(server.log_lines("plain.log", 2)[1], "GET / 200 2 [-]");
}

#[test]
fn conditions_and_inheritance() {
    let server = Server::start(
        "events {} http {
            map $status $loud { ~^[23] 0; default 1; }
            log_format u '$uri';
            access_log %%DIR%%/main.log u;
            server { listen 127.0.0.1:%%PORT_0%%;
                location /off { access_log off; return 200; }
                location /if { access_log %%DIR%%/if.log u if=$loud; return 200; }
                location /if/404 { access_log %%DIR%%/if.log u if=$loud; return 404; }
                location / { return 200; }
            } }",
    );
    for path in ["/off", "/if", "/if/404", "/last"] {
        server.get(path);
    }
    assert_eq!(server.log_lines("main.log", 1), ["/last"]);
    assert_eq!(server.log_lines("if.log", 1), ["/if/404"]);
}

#[test]
fn names_with_variables() {
    let setup = Setup::new(
        "events {} http { log_format u '$uri'; open_log_file_cache max=10;
            server { listen 127.0.0.1:%%PORT_0%%; server_name a b; root %%DIR%%/html;
                access_log %%DIR%%/$host.log u; return 200; } }",
    )
    .file("html/x", "");
    let server = setup.start();
    server.get_host("a", "/1");
    server.get_host("b", "/2");
    server.get_host("a", "/3");
    assert_eq!(server.log_lines("a.log", 2), ["/1", "/3"]);
    assert_eq!(server.log_lines("b.log", 1), ["/2"]);
}

#[test]
fn buffered_lines_are_written_in_time() {
    let server = Server::start(
        "events {} http { log_format u '$uri'; server { listen 127.0.0.1:%%PORT_0%%;
            access_log %%DIR%%/buffered.log u buffer=4k flush=300ms;
            access_log %%DIR%%/direct.log u; return 200; } }",
    );
    server.get("/1");
    assert_eq!(server.log_lines("direct.log", 1), ["/1"]);
    assert_eq!(server.read("buffered.log"), "");
    expect_soon("the buffer is flushed", || server.read("buffered.log") == "/1\n");
    for n in 0..400 {
        server.get(&format!("/{n:012}"));
    }
    expect_soon("a full buffer is written", || server.read("buffered.log").len() > 4096);
}

#[test]
fn times_and_sizes_are_numbers() {
    let server = Server::start(
        r#"events {} http { log_format t '$request_time $msec $time_iso8601 $bytes_sent $request_length $pipe $connection_requests';
            server { listen 127.0.0.1:%%PORT_0%%; access_log %%DIR%%/t.log t; return 200 ok; } }"#,
    );
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response();
    client.response();
    let lines = server.log_lines("t.log", 2);
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert!(words[0].starts_with("0.") && words[0].len() == 5, "{lines:?}");
    assert!(words[1].len() == 14 && words[2].len() == 25, "{lines:?}");
    assert!(words[3].parse::<u32>().is_ok_and(|n| n > 100), "{lines:?}");
    assert_eq!((words[4], words[5], words[6]), ("27", ".", "1"));
    assert!(lines[1].ends_with(" 27 p 2") || lines[1].ends_with(" 27 . 2"), "{lines:?}");
}

#[test]
fn compressed_lines_are_gzip_members() {
    let server = Server::start(
        "events {} http { log_format u '$uri'; server { listen 127.0.0.1:%%PORT_0%%;
            access_log %%DIR%%/z.gz u gzip=1 flush=100ms; return 200; } }",
    );
    server.get("/1");
    let file = server.dir().join("z.gz");
    let mut bytes = Vec::new();
    expect_soon("the buffer is flushed", || {
        bytes = std::fs::read(&file).unwrap_or_default();
        !bytes.is_empty()
    });
    assert_eq!(bytes[..3], [0x1f, 0x8b, 8]);
    assert_eq!(bytes[bytes.len() - 4..], [3, 0, 0, 0], "the length of its text");
}

/// Lines that were gathered and cannot be written are missed in the error log.
#[test]
fn a_buffered_log_that_cannot_be_written_is_told_of() {
    for how in ["buffer=4k flush=50ms", "gzip buffer=4k flush=50ms"] {
        let conf = format!(
            "events {{}} http {{ access_log /dev/full combined {how};
            server {{ listen 127.0.0.1:%%PORT_0%%; return 204; }} }}"
        );
        let server = weir_tests::Server::start(&conf);
        weir_tests::expect_soon("the error log says so", || {
            server.get("/");
            server.error_log().contains("write() to \"/dev/full\" failed (28: ")
        });
    }
}

/// A disk that was full when nobody asked is no reason to leave out what comes once there is room again.
#[test]
fn lines_are_written_as_soon_as_there_is_room() {
    let setup = Setup::new(
        "events {} http { access_log %%DIR%%/a.log combined buffer=4k flush=20ms;
            server { listen 127.0.0.1:%%PORT_0%%; return 204; } }",
    );
    let log = setup.dir().join("a.log");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let server = setup.start();
    let told = || server.error_log().contains("failed (28: ");
    expect_soon("it is full", || server.get("/").status == 204 && told());
    let next_second = || {
        let second = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let now = second();
        expect_soon("another second", || second() > now);
    };
    next_second();
    // This one is not written either, when no more comes.
    server.get("/");
    next_second();
    next_second();
    std::fs::remove_file(&log).unwrap();
    server.signal(weir_tests::Signal::Usr1);
    expect_soon("the log is opened anew", || log.exists());
    for _ in 0..20 {
        server.get("/more");
    }
    expect_soon("all are there", || server.read("a.log").matches("/more").count() == 20);
}
