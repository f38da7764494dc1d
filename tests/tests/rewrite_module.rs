//! rewrite, set, if and break.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
    error_log %%DIR%%/error.log notice; rewrite_log on;
    rewrite ^/server/(.*)$ /show/$1;
    location /show/ { return 200 "$uri?$args"; }
    location /last/ { rewrite ^/last/(.*)$ /show/$1 last; return 200 missed; }
    location /break/ { rewrite ^/break/(.*)$ /files/$1 break; }
    location /redirect/ { rewrite ^/redirect/(.*)$ /to/$1 redirect; }
    location /permanent/ { rewrite (.*) http://example.com$1 permanent; }
    location /args/ { rewrite ^/args/(.*)$ /show/$1?new=1 last; }
    location /noargs/ { rewrite ^/noargs/(.*)$ /show/$1? last; }
    location /chain/ { rewrite ^/chain/(.*)$ /mid/$1; rewrite ^/mid/(.*)$ /show/mid-$1 last; }
    location /loop { rewrite ^/loop /loop last; }
    location /named/ { rewrite ^/named/(?<part>\w+)/(.*) /show/$part-$2 last; }
    location /case/ { rewrite (?i)^/CASE/x$ /show/case last; return 200 no; }
    location /unescaped/ { rewrite ^/unescaped/(.*)$ /show/$1 last; }
    location /redirect-escape/ { rewrite ^/redirect-escape/(.*)$ /r/$1 redirect; }
    location /set { set $a one; set $b "$a-two"; return 200 "$a $b"; }
    location /unset { return 200 "[$late]"; set $late x; }
    location /break-stops { set $x 1; break; set $x 2; add_header X $x always; return 200 $x; }
} }"#;

#[test]
fn paths_are_rewritten() {
    let server = Setup::new(CONF).file("html/files/f", "file").start();
    for (path, text) in [
        ("/server/a?x=1", "/show/a?x=1"),
        ("/last/a?x=1", "/show/a?x=1"),
        ("/break/f", "file"),
        ("/args/a?x=1", "/show/a?new=1&x=1"),
        ("/noargs/a?x=1", "/show/a?"),
        ("/chain/a", "/show/mid-a?"),
        ("/named/foo/bar", "/show/foo-bar?"),
        ("/case/x", "/show/case?"),
        ("/unescaped/a%20b", "/show/a b?"),
        ("/set", "one one-two"),
        ("/unset", "[]"),
    ] {
        assert_eq!(server.get(path).text(), text, "{path}");
    }
    server.expect_error("rewritten data: \"/show/a\", args: \"x=1\"");
}

#[test]
fn redirects_carry_arguments() {
    let server = Setup::new(CONF).start();
    let port = server.port(0);
    for (path, status, to) in [
        ("/redirect/a?x=1", 302, format!("http://localhost:{port}/to/a?x=1")),
        ("/permanent/a?x", 301, "http://example.com/permanent/a?x".into()),
        ("/redirect-escape/a%20b%3f", 302, format!("http://localhost:{port}/r/a%20b?")),
    ] {
        let response = server.get(path);
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.header("Location"), Some(to.as_str()), "{path}");
    }
}

#[test]
fn endless_rewriting_ends_in_500() {
    let server = Setup::new(CONF).start();
    assert_eq!(server.get("/loop").status, 500);
    server.expect_error("rewrite or internal redirection cycle while processing \"/loop\"");
}

#[test]
fn conditions() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / {
                set $r "";
                if ($arg_a) { set $r "${r}a"; }
                if ($arg_a = one) { set $r "$r=one"; }
                if ($arg_a != one) { set $r "$r!one"; }
                if ($arg_a ~ ^O) { set $r "$r~O"; }
                if ($arg_a ~* ^O(.)) { set $r "$r~*$1"; }
                if ($arg_a !~ ^o) { set $r "$r!~o"; }
                if ($request_method = POST) { set $r "$r-post"; }
                return 200 "$r";
            }
            location /f/ {
                set $r "";
                if (-f $request_filename) { set $r "${r}f"; }
                if (!-f $request_filename) { set $r "${r}!f"; }
                if (-d $request_filename) { set $r "${r}d"; }
                if (-e $request_filename) { set $r "${r}e"; }
                if (-x $request_filename) { set $r "${r}x"; }
                return 200 "$r";
            }
            location /ret { if ($arg_x = 1) { return 403; } return 200 ok; }
            location /break { if ($arg_x = 1) { break; } return 200 after; }
            location /block { add_header X-Out yes always;
                if ($arg_x = 1) { add_header X-In yes always; } }
        } }"#,
    )
    .file("html/f/file", "")
    .file("html/f/dir/x", "")
    .file("html/block", "b")
    .start();
    for (path, text) in [
        ("/", "!one!~o"),
        ("/?a=0", "!one!~o"),
        ("/?a=one", "a=one~*n"),
        ("/?a=One", "a!one~O~*n!~o"),
        ("/f/file", "fe"),
        ("/f/dir", "!fdex"),
        ("/f/none", "!f"),
    ] {
        assert_eq!(server.get(path).text(), text, "{path}");
    }
    assert_eq!(server.post("/", "").text(), "!one!~o-post");
    assert_eq!(server.get("/ret?x=1").status, 403);
    assert_eq!(server.get("/ret").text(), "ok");
    let inside = server.get("/block?x=1");
    assert_eq!((inside.header("X-Out"), inside.header("X-In")), (None, Some("yes")));
    let outside = server.get("/block");
    assert_eq!((outside.header("X-Out"), outside.header("X-In")), (Some("yes"), None));
}

#[test]
fn unknown_variables_are_caught_at_start() {
    let output =
        weir_tests::run_cli(&["-t"], "events {} http { server { return 200 $no_such_thing; } }");
    assert_ne!(output.code, 0);
    assert!(output.stderr.contains("unknown \"no_such_thing\" variable"), "{}", output.stderr);
}

#[test]
fn uninitialised_variables_are_warned_about() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log warn;
            location / { return 200 '[$late]'; }
            location /other { set $late x; return 200 $late; } } }",
    );
    assert_eq!(server.get("/").text(), "[]");
    server.expect_error("using uninitialized \"late\" variable");
}
