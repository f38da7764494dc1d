//! echo: what the configuration says is put out.

use weir_tests::h2::H2;
use weir_tests::{run_cli, Server, Setup};

const CONF: &str = r#"events {} http { default_type text/plain; server { listen 127.0.0.1:%%PORT_0%%; http2 on; root %%DIR%%;
    error_log %%DIR%%/error.log warn; client_body_buffer_size 1k;
    location /echo { echo say $arg_x hello; echo; echo -n a; echo -- -n b; set $o -n; echo $o c; }
    location /empty { set $e ''; echo -n $e x; echo -n ''; }
    location /status { echo_status 404; echo lost; }
    location /status-if { if ($arg_x) { echo_status 503; } echo_status 500; echo lost; }
    location /nothing { echo_reset_timer; }
    location /dup { echo_duplicate 3 ab; echo_duplicate 0 x; echo_duplicate 1_0 ''; echo_duplicate 1 $uri; }
    location /long { echo_duplicate 300_000 "0123456789"; }
    location /dup-bad { echo_duplicate $arg_n x; }
    location /if { set $r miss; if ($arg_x ~ ^a) { set $r hit; echo $r!; } echo $r; }
    location /inherits { if ($uri) { } echo_before_body -n 'hello'; echo -n ' '; echo_after_body world; }
    location /around { echo_before_body one; echo_before_body two; echo_after_body $echo_response_status; echo_after_body -n four; echo three; }
    location /around-404 { echo_before_body before; echo_after_body after; return 404; }
    location /file { echo_after_body after; }
    location /foreach { echo_foreach_split ',' $arg_l; echo "[$echo_it]"; echo_end; echo "end$echo_it";
        echo_foreach_split -- '-x-' 'a-x-b'; echo $echo_it; echo_end; }
    location /body { echo_read_request_body; echo "$echo_request_method [$echo_request_body]"; echo_request_body; echo end; }
    location /unread { echo "[$echo_request_body]"; echo_request_body; }
    location /heads { echo -n $echo_client_request_headers; }
    location /vars { echo "$echo_request_uri|$echo_cacheable_request_uri|$echo_response_status|$echo_timer_elapsed"; echo "$echo_response_status|$echo_incr"; }
    location /exec { echo_exec /args?a=1; echo never; }
    location /exec-args { echo_exec /args a=$arg_x; }
    location /exec-named { echo_exec @named?a=1; }
    location /exec-late { echo early; echo_exec /args; }
    location /exec-bad { echo_exec /../x; }
    location /args { echo "a=$arg_a $uri"; }
    location @named { echo "named $uri"; }
    location /proxied { proxy_pass http://127.0.0.1:%%PORT_0%%/echo; }
    location /gzip { gzip on; gzip_types text/plain; gzip_min_length 1; echo_duplicate 1000 hello; echo; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).file("file", "file\n").start()
}

#[test]
fn lines_are_put_out() {
    let server = start();
    for (path, expected) in [
        ("/echo?x=y", "say y hello\n\na-n b\n-n c\n"),
        ("/empty", " x"),
        ("/nothing", ""),
        ("/dup", "ababab/dup"),
        ("/if?x=ab", "hit!\n"),
        ("/if", "miss\n"),
        ("/inherits", "hello world\n"),
        ("/around", "one\ntwo\nthree\n200\nfour"),
        ("/file", "file\nafter\n"),
        ("/foreach?l=a,,b", "[a]\n[b]\nend\na\nb\n"),
        ("/foreach", "end\na\nb\n"),
        ("/exec", "a=1 /args\n"),
        ("/exec-args?x=2", "a=2 /args\n"),
        ("/exec-named", "named /exec-named\n"),
        ("/proxied", "say  hello\n\na-n b\n-n c\n"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{path}");
    }
    server.expect_error("querystring a=1 ignored when exec'ing named location @named");
}

#[test]
fn statuses_and_fields() {
    let server = start();
    let answer = server.get("/status");
    assert_eq!((answer.status, answer.text().as_str()), (404, "lost\n"));
    assert_eq!(answer.header("Content-Type"), Some("text/plain"));
    assert!(answer.is_chunked());
    assert_eq!(server.get("/status-if").status, 500);
    assert_eq!(server.get("/status-if?x=1").status, 503);
    // nginx says nothing.
    let bad = server.raw(b"GET /exec-bad HTTP/1.0\r\n\r\n");
    assert!(bad.is_empty() || bad.starts_with(b"HTTP/1.1 400"));
    let around = server.get("/around-404");
    assert_eq!(around.status, 404);
    assert!(around.text().starts_with("before\n<html>") && around.text().ends_with("\nafter\n"));
    let head = server.head("/echo");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(server.get("/dup-bad?n=x").status, 500);
    assert_eq!(server.get_with("/file", "Range: bytes=0-1\r\n").status, 200);
}

#[test]
fn what_is_long_comes_whole() {
    let server = start();
    assert_eq!(server.get("/long").body, b"0123456789".repeat(300_000));
    assert_eq!(H2::connect(&server).fetch("/long").text().len(), 3_000_000);
    let packed = server.get_with("/gzip", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
}

#[test]
fn bodies_are_read_and_put_out() {
    let server = start();
    assert_eq!(server.post("/body", "hello").text(), "POST [hello]\nhelloend\n");
    let long = "x".repeat(5000);
    assert_eq!(server.post("/body", &long).text(), format!("POST []\n{long}end\n"));
    assert_eq!(server.get("/body").text(), "GET []\nend\n");
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response_to("POST").text(), "[]\n");
    }
}

#[test]
fn variables_tell_of_the_request() {
    let server = start();
    let head = "GET /heads HTTP/1.1\r\nhost:  a\r\nConnection: close\r\nX-Y: z\r\n\r\n";
    assert_eq!(server.exchange("GET", head.as_bytes()).text(), head);
    let text = server.get("/vars?x").text();
    let (first, second) = text.split_once('\n').unwrap();
    assert!(first.starts_with("/vars|/vars||0.0"), "{text}");
    assert_eq!(second, "200|1\n");
}

#[test]
fn echo_exec_comes_before_everything_that_is_put_out() {
    let server = start();
    let answer = server.raw(b"GET /exec-late HTTP/1.0\r\n\r\n");
    if String::from_utf8_lossy(&answer).contains("a= /args") {
        return weir_tests::skip("nginx goes on behind what its filters have begun");
    }
    server.expect_error("echo_exec behind what has been put out");
}

/// nginx finds some of it at the request, and leaves out the rest.
#[test]
fn the_configuration_is_checked() {
    if run_cli(&["-t"], "events {} http { server { location / { echo -e x; } } }").code == 0 {
        return weir_tests::skip("nginx checks when it is asked");
    }
    for (directives, message) in [
        ("echo -e x;", "unknown option \"-e\" of \"echo\""),
        ("echo_foreach_split '-a-' $uri; echo_end;", "write -- before a word"),
        (
            "echo_foreach_split , a; echo_foreach_split , b; echo_end; echo_end;",
            "is not possible in a loop",
        ),
        ("echo_foreach_split , a; echo x;", "\"echo_foreach_split\" without \"echo_end\""),
        ("echo_end;", "has no \"echo_foreach_split\" before it"),
        ("echo_sleep soon;", "invalid value \"soon\""),
        ("echo_subrequest GET /x -z y;", "unknown option \"-z\""),
        ("echo_status ok;", "invalid value \"ok\""),
    ] {
        let conf = format!("events {{}} http {{ server {{ location / {{ {directives} }} }} }}");
        let output = run_cli(&["-t"], &conf);
        assert!(output.code != 0 && output.stderr.contains(message), "{}", output.stderr);
    }
}
