//! What one page with commands may take: parts in all and at a time, memory for what waits.

use std::time::Duration;
use weir_tests::{skip, Server, Setup};

const CONF: &str = "worker_processes 1; events {} http { default_type text/html; ssi on;
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }";

/// What a server may grow by for one page.
const GROWTH_MAX_BYTES: u64 = 160 << 20;

/// Asks for a page and reads it, or closes without reading; checks the growth.
fn check(server: &Server, path: &str, reads: bool) {
    server.get("/none");
    let Some(before) = server.memory() else { return skip("the system has no /proc") };
    let mut client = server.connect();
    client.set_patience(Duration::from_secs(60));
    client.send(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    if reads {
        client.read_to_end();
    } else {
        server.expect_error("of one page");
    }
    let growth = server.memory_growth(before);
    assert!(growth < GROWTH_MAX_BYTES, "{path}: grew by {growth} bytes");
    drop(client);
    assert_eq!(server.get("/plain").text(), "plain");
}

fn page(text: &str) -> Server {
    Setup::new(CONF).file("html/page", text).file("html/plain", "plain").start()
}

const ITSELF: &str = "<!--#include virtual='/page' -->";

#[test]
fn a_page_that_includes_itself_twice() {
    for reads in [true, false] {
        check(&page(&ITSELF.repeat(2)), "/page", reads);
        check(&page(&format!("{}{ITSELF}{ITSELF}", "text".repeat(8000))), "/page", reads);
    }
}

#[test]
fn a_page_that_keeps_itself_twice() {
    let keep = "<!--#include virtual='/page' set='a' -->";
    check(&page(&keep.repeat(2)), "/page", true);
}

/// Parts are counted by their lines in the access log: time would tell of the machine.
#[test]
fn one_request_of_a_page_within_itself_costs_little() {
    let conf = CONF.replace("ssi on;", "ssi on; log_subrequest on; access_log %%DIR%%/parts;");
    let waits = "<!--#include virtual='/page' wait='yes' -->";
    // A name of its own for each, of which none is the one of what it is within.
    let other = "<!--#include virtual='$uri/a' --><!--#include virtual='$uri/b' -->";
    for text in [ITSELF.repeat(2), ITSELF.repeat(50), waits.repeat(2), other.to_string()] {
        let conf = conf.replace("listen", "location /page/ { try_files /page =404; } listen");
        let setup = Setup::new(&conf).file("html/page", &text).file("html/plain", "plain");
        let server = setup.start();
        let mut client = server.connect();
        client.set_patience(Duration::from_secs(60));
        client.send(b"GET /page HTTP/1.0\r\n\r\n");
        client.read_to_end();
        assert_eq!(server.get("/plain").text(), "plain");
        server.expect_error("while processing");
        let parts = server.read("parts").lines().count();
        assert!((200..1200).contains(&parts), "{text:.50}: {parts} parts");
        let errors = server.error_log().lines().count();
        assert!(errors <= 5, "{text:.50}: {errors} lines of errors");
    }
}

/// A tree of comments: each document asks for its answers.
#[test]
fn a_thread_of_many_comments_is_whole() {
    let next = "<!--#include virtual='/comment?a=$arg_b&b=$arg_c&c=$arg_d&d=$arg_e&e=' -->";
    let text = format!("{}<!--# if expr='$arg_a' -->{}<!--# endif -->", "x", next.repeat(4));
    let page = "<!--#include virtual='/comment?a=1&b=1&c=1&d=1&e=' -->";
    let server = Setup::new(CONF).file("html/page", page).file("html/comment", text).start();
    assert_eq!(server.get("/page").text(), "x".repeat(1 + 4 + 16 + 64 + 256));
    assert_eq!(server.error_log(), "");
}

#[test]
fn a_page_with_thousands_of_parts_is_whole() {
    let line = "<!--#include virtual='/many' -->".repeat(30);
    let server = Setup::new(CONF)
        .file("html/page", line)
        .file("html/many", "<!--#include virtual='/plain' -->".repeat(100))
        .file("html/plain", "plain")
        .start();
    let mut client = server.connect();
    client.set_patience(Duration::from_secs(60));
    client.send(b"GET /page HTTP/1.0\r\n\r\n");
    let all = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    assert!(all.ends_with(&"plain".repeat(3000)), "{} bytes", all.len());
}

#[test]
fn a_value_that_is_doubled_again_and_again() {
    let double = "<!--#set var='a' value='$a$a$a$a' -->";
    let text = format!("<!--#set var='a' value='0123456789' -->{}", double.repeat(30));
    check(&page(&text), "/page", true);
}
