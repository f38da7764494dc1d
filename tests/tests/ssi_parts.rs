//! Answers put together from parts: their order, their failures, and what they may cost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::{expect_soon, Next, Origin, Setup};

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
    location / { ssi on; }
    location /gzip/ { ssi on; gzip on; alias %%DIR%%/html/; }
    location /from/ { ssi on; proxy_pass http://%%ORIGIN%%/; proxy_buffers 4 8k;
                      proxy_max_temp_file_size 0; } } }";

/// Three parts in one page; the first is the last to be answered.
#[test]
fn parts_run_side_by_side_and_stand_in_order() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let origin = Origin::start(move |request, conn| {
        count.fetch_add(1, Ordering::SeqCst);
        if request.target() == "/1" {
            // Answered once the others have been asked for: they do not wait for it.
            expect_soon("all parts are asked for", || count.load(Ordering::SeqCst) == 3);
        }
        conn.reply("200 OK", "Content-Type: text/html\r\n", &format!("[{}]", request.target()));
        Next::Keep
    });
    let server = Setup::new(CONF)
        .set("ORIGIN", origin.address())
        .file(
            "html/page.html",
            "a<!--#include virtual='/from/1' -->b<!--#include virtual='/from/2' -->\
             <!--#include virtual='/from/3' -->c",
        )
        .start();
    assert_eq!(server.on(0).get("/page.html").text(), "a[/1]b[/2][/3]c");
    asked.store(0, Ordering::SeqCst);
    let answer = server.on(0).exchange("GET", b"GET /page.html HTTP/1.0\r\n\r\n");
    assert_eq!((answer.is_chunked(), answer.text().as_str()), (false, "a[/1]b[/2][/3]c"));
}

#[test]
fn parts_within_parts() {
    let origin = Origin::start(|request, conn| {
        let n: u32 = request.target()[1..].parse().unwrap();
        let inner = match n {
            0 => "end".to_string(),
            n => format!("<!--#include virtual='/from/{}' -->", n - 1),
        };
        conn.reply("200 OK", "Content-Type: text/html\r\n", &format!("({n}{inner}{n})"));
        Next::Keep
    });
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).start();
    let expected = "(4(3(2(1(0end0)1)2)3)4)";
    assert_eq!(server.on(0).get("/from/4").text(), expected);
    // One too deep is left out, and the rest stands.
    let deep = server.on(0).get("/from/60").text();
    assert!(deep.starts_with("(60(59") && deep.ends_with("59)60)"), "{deep}");
    server.expect_error("subrequests cycle while processing");
}

#[test]
fn a_page_of_many_parts() {
    let server = Setup::new(CONF)
        .set("ORIGIN", "127.0.0.1:1")
        .file("html/page.html", "<!--#include virtual='/part.html' -->,".repeat(3000))
        .file("html/part.html", "part")
        .start();
    assert_eq!(server.on(0).get("/page.html").text(), "part,".repeat(3000));
}

/// nginx leaves the client of a kept connection waiting here.
#[test]
fn a_part_that_breaks_off_ends_the_answer() {
    let origin = Origin::start(|_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nhalf");
        Next::Close
    });
    let server = Setup::new(CONF)
        .set("ORIGIN", origin.address())
        .file("html/page.html", format!("{}<!--#include virtual='/from/1' -->b", "a".repeat(5000)))
        .start();
    let mut client = server.on(0).connect();
    client.send(b"GET /page.html HTTP/1.1\r\nHost: h\r\n\r\n");
    let got = client.read_to_end();
    assert!(!got.ends_with(b"0\r\n\r\n"), "the answer is not complete");
    assert!(!got.contains(&b'b') || !got.ends_with(b"b"));
    server.expect_error("upstream prematurely closed connection");
}

#[test]
fn errors_within_parts_have_their_pages() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; ssi on;
            location /own/ { error_page 404 /sorry.html; }
            location /down { proxy_pass http://127.0.0.1:1; } } }",
    )
    .file(
        "html/page.html",
        "<!--#include virtual='/own/no' -->|<!--#include virtual='/down' -->|\
         <!--#include virtual='/no' -->|end",
    )
    .file("html/sorry.html", "sorry")
    .start();
    let answer = server.on(0).get("/page.html");
    let text = answer.text();
    let parts: Vec<&str> = text.split('|').collect();
    assert_eq!((answer.status, parts[0], parts[3]), (200, "sorry", "end"));
    assert!(parts[1].contains("502 Bad Gateway") && parts[2].contains("404 Not Found"));
}

#[test]
fn a_client_that_leaves_ends_the_parts() {
    let gone = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&gone);
    let origin = Origin::start(move |_, conn| {
        // Never answered; the connection ends when the part is given up.
        if conn.wait_closed() {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Next::Close
    });
    let server = Setup::new(CONF)
        .set("ORIGIN", origin.address())
        .file(
            "html/page.html",
            "<!--#include virtual='/from/1' --><!--#include virtual='/inner.html' -->",
        )
        .file("html/inner.html", "<!--#include virtual='/from/2' -->")
        .start();
    let mut client = server.on(0).connect();
    client.send_get("/page.html");
    origin.expect_requests(2);
    drop(client);
    expect_soon("both parts have been given up", || gone.load(Ordering::SeqCst) == 2);
}

/// Memory that a process uses, in kB.
fn resident_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn large_parts_wait_for_a_slow_client() {
    const PART_BYTES: usize = 24 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let origin = Origin::start(move |_, conn| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {PART_BYTES}\r\n\r\n");
        conn.write(head);
        for _ in 0..PART_BYTES / 65536 {
            conn.write(vec![b'x'; 65536]);
            count.fetch_add(65536, Ordering::SeqCst);
        }
        Next::Keep
    });
    let server = Setup::new(&format!("master_process off; {CONF}"))
        .set("ORIGIN", origin.address())
        .file(
            "html/page.html",
            "<!--#include virtual='/from/1' --><!--#include virtual='/from/2' -->\
             <!--#include virtual='/from/3' -->",
        )
        .start();
    let mut client = server.on(0).connect();
    client.set_patience(Duration::from_secs(30));
    client.send(b"GET /page.html HTTP/1.0\r\n\r\n");
    origin.expect_requests(3);
    // What is on its way stands still once all buffers are full, far below what there is.
    let mut last = usize::MAX;
    expect_soon("the origin has to wait", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = sent.load(Ordering::SeqCst);
        std::mem::replace(&mut last, now) == now
    });
    assert!(sent.load(Ordering::SeqCst) < 2 * PART_BYTES, "{}", sent.load(Ordering::SeqCst));
    assert!(resident_kb(server.pid()) < 60_000, "{} kB", resident_kb(server.pid()));
    let got = client.read_to_end();
    assert!(got.len() > 3 * PART_BYTES && got.ends_with(b"xxx"));
}

#[test]
fn parts_are_compressed_together() {
    let server = Setup::new(CONF)
        .set("ORIGIN", "127.0.0.1:1")
        .file("html/page.html", "a<!--#include virtual='/gzip/part.html' -->b")
        .file("html/part.html", "part ".repeat(1000))
        .start();
    let answer = server.on(0).get_with("/gzip/page.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
    assert!(answer.body.len() < 200 && answer.body.starts_with(&[0x1f, 0x8b]));
    let mut text = String::new();
    use std::io::Read;
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, format!("a{}b", "part ".repeat(1000)));
}

#[test]
fn parts_over_http2_and_for_head() {
    let conf = CONF.replace("http {", "http { http2 on;");
    let server = Setup::new(&conf)
        .set("ORIGIN", "127.0.0.1:1")
        .file("html/page.html", "a<!--#include virtual='/part.html' wait='yes' -->b")
        .file("html/part.html", "part".repeat(50_000))
        .start();
    let expected = format!("a{}b", "part".repeat(50_000));
    let mut h2 = H2::connect(&server);
    let answer = h2.fetch("/page.html");
    assert_eq!(answer.status, 200);
    assert!(answer.text() == expected, "{} bytes", answer.text().len());
    assert!(server.on(0).get("/page.html").text() == expected);
    let mut client = server.on(0).connect();
    client.send(b"HEAD /page.html HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status, 200);
    assert!(client.get("/page.html").text() == expected, "the connection is kept");
}

#[test]
fn subrequests_are_logged_where_that_is_wanted() {
    let server = Setup::new(
        "events {} http { log_format f '$uri $status'; access_log %%DIR%%/log f;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; ssi on;
            location /quiet.html { } location /part.html { log_subrequest on; } } }",
    )
    .file(
        "html/page.html",
        "<!--#include virtual='/part.html' --><!--#include virtual='/quiet.html' -->",
    )
    .file("html/part.html", "part")
    .file("html/quiet.html", "quiet")
    .start();
    assert_eq!(
        server.on(0).exchange("GET", b"GET /page.html HTTP/1.0\r\n\r\n").text(),
        "partquiet"
    );
    let lines = server.log_lines("log", 2);
    assert_eq!(lines, ["/part.html 200", "/page.html 200"]);
}

/// What a part asks of its client is the page's: it knows the protocol, over HTTP/2 as well.
#[test]
fn parts_know_the_protocol_of_their_page() {
    let server = Setup::new(
        "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
         location / { ssi on; } location = /part { return 200 '[$http2|$server_protocol]'; } } }",
    )
    .file("html/page.html", "<!--#include virtual='/part' -->")
    .start();
    assert_eq!(H2::connect(&server).fetch("/page.html").text(), "[h2c|HTTP/2.0]");
    assert_eq!(server.on(0).get("/page.html").text(), "[|HTTP/1.1]");
}
