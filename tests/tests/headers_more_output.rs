//! more_set_headers and more_clear_headers.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { default_type text/plain; more_set_headers 'X-Outer: http' 'X-Twice: http';
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; error_log %%DIR%%/error.log;
    more_set_headers 'X-Twice: server';
    location /set { more_set_headers 'X-Foo: Blah' "X-Bar:\t two  " 'X-Gone'; add_header X-Late $sent_http_x_foo; return 200 hi; }
    location /status { more_set_headers -s '404 500' -s 301 'X-Foo: some'; more_set_headers -s 200 'X-Ok: yes';
        if ($arg_x) { return 404; } return 200 hi; }
    location /missing { more_set_headers -s 404 -t 'text/html' 'X-Foo: both'; more_set_headers -s 404 -t text/css 'X-No: x'; }
    location /type { more_set_headers -t 'text/plain text/css' 'X-Foo: plain'; return 200 hi; }
    location /type.html { types { text/html html; } charset utf-8; more_set_headers -t 'text/html;text/css' 'X-Foo: html'; }
    location /variable { set $v "a$arg_v"; more_set_headers "X-Foo: $v-$uri" "X-Empty: $arg_none"; return 200 hi; }
    location /order { more_set_headers 'X-Foo: 1'; more_clear_headers X-Foo; more_set_headers 'X-Foo: 2'; return 200 hi; }
    location /append { more_set_headers 'Set-Cookie: a=1'; more_set_headers -a 'Set-Cookie: b=2' 'Set-Cookie: c=3'; return 200 hi; }
    location /if { more_set_headers 'X-Foo: location'; if ($arg_x) { more_set_headers 'X-If: $arg_x'; return 200 if; } return 200 hi; }
    location /breaks { if ($uri ~ (?s)/breaks(?<v>.*)) { } more_set_headers "X-Foo: $v"; return 200 hi; }
    location /page { error_page 404 /page.html; more_set_headers 'X-Foo: first'; }
    location = /page.html { more_set_headers -s 404 'X-Page: yes'; }
    location /wild { proxy_pass http://127.0.0.1:%%PORT_0%%/hidden; more_clear_headers 'X-Hidden-*' 'x-*no*'; }
    location /hidden { add_header X-Hidden-One 1; add_header x-hidden-TWO 2; add_header X-HiddenNot 3; return 200 hi; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).file("type.html", "<p>").file("page.html", "page").start()
}

#[test]
fn fields_are_set_for_any_status_and_from_the_outside_in() {
    let server = start();
    let answer = server.get("/set");
    let fields = ["X-Outer", "X-Twice", "X-Foo", "X-Bar", "X-Gone", "X-Late"];
    let seen: Vec<_> = fields.iter().map(|name| answer.header(name)).collect();
    let late = Some("Blah");
    assert_eq!(seen, [Some("http"), Some("server"), Some("Blah"), Some("two"), None, late]);
    let missing = server.get("/nothing");
    assert_eq!((missing.status, missing.header("X-Outer")), (404, Some("http")));
    let refused = server.exchange("GET", b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!((refused.status, refused.header("X-Outer")), (400, Some("http")));
}

#[test]
fn statuses_and_types_decide() {
    let server = start();
    for (path, name, expected) in [
        ("/status", "X-Foo", None),
        ("/status", "X-Ok", Some("yes")),
        ("/status?x=1", "X-Foo", Some("some")),
        ("/status?x=1", "X-Ok", None),
        ("/missing", "X-Foo", Some("both")),
        ("/missing", "X-No", None),
        ("/type", "X-Foo", Some("plain")),
        ("/type.html", "X-Foo", Some("html")),
        ("/variable?v=b", "X-Foo", Some("ab-/variable")),
        ("/variable", "X-Empty", None),
        ("/order", "X-Foo", Some("2")),
        ("/if", "X-If", None),
        ("/if?x=1", "X-If", Some("1")),
        ("/if?x=1", "X-Foo", Some("location")),
        ("/page", "X-Page", Some("yes")),
        ("/page", "X-Foo", None),
    ] {
        assert_eq!(server.get(path).header(name), expected, "{path} {name}");
    }
}

#[test]
fn fields_are_added_beside_others() {
    let server = start();
    assert_eq!(server.get("/append").all("Set-Cookie"), ["a=1", "b=2", "c=3"]);
}

#[test]
fn a_star_stands_for_any_end() {
    let server = start();
    let answer = server.get("/wild");
    let names: Vec<_> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((answer.header("X-Hidden-One"), answer.header("X-Hidden-Two")), (None, None));
    assert_eq!(answer.header("X-HiddenNot"), Some("3"), "{names:?}");
    assert_eq!(answer.header("X-Outer"), Some("http"));
}

#[test]
fn line_ends_of_variables_become_spaces() {
    let server = start();
    let answer = server.get("/breaks%0d%0aX-Evil:%20yes");
    if answer.header("X-Evil").is_some() && server.error_log().is_empty() {
        return weir_tests::skip("nginx sends them");
    }
    assert_eq!(answer.header("X-Foo"), Some("X-Evil: yes"));
    server.expect_error("held line ends");
}
