//! more_set_input_headers and more_clear_input_headers.

use weir_tests::{Origin, Server, Setup};

const CONF: &str = r#"events {} http { default_type text/plain; underscores_in_headers on;
    server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
    location /host { more_set_input_headers 'Host: Foo.Example:81'; add_header X-Seen "$host|$http_host" always; }
    location /hostless { more_clear_input_headers Host; add_header X-Seen "$host|$http_host" always; }
    location /bad-host { more_set_input_headers "Host: $arg_h"; proxy_pass http://127.0.0.1:%%ORIGIN%%; proxy_set_header Host $host; }
    location /set { set $foo one; more_set_input_headers "X-Foo: $foo" 'User-Agent: none'; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /several { more_set_input_headers 'X-Foo: one'; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /replace { more_set_input_headers -r 'X-Foo: new' 'X-Bar: new'; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /type { more_set_input_headers -t 'text/plain text/css' 'X-Foo: typed'; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /clear { more_clear_input_headers X-Foo 'X-Hidden-*'; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /cookie { more_set_input_headers 'Cookie: a=1; b=2'; add_header X-Seen "$cookie_a|$cookie_b|$cookie_c|$http_cookie" always; }
    location /forwarded { more_set_input_headers 'X-Forwarded-For: 1.2.3.4'; add_header X-Seen $http_x_forwarded_for always; }
    location /close { more_set_input_headers 'Connection: CLOSE'; add_header X-Seen $http_connection always; }
    location /condition { more_clear_input_headers If-None-Match If-Modified-Since Range; root %%DIR%%; }
    location /order { more_set_input_headers "X-Foo: $v"; set $v later; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /length { more_clear_input_headers Content-Length; proxy_pass http://127.0.0.1:%%ORIGIN%%; }
    location /break { if ($uri ~ (?s)/break(?<v>.*)) { } more_set_input_headers "X-Foo: $v"; proxy_pass http://127.0.0.1:%%ORIGIN%%/x; }
    location /again { more_set_input_headers 'X-Foo: again'; rewrite ^ /shown last; }
    location /shown { return 200 $http_x_foo; }
} }"#;

fn start() -> (Server, Origin) {
    let origin = Origin::echo();
    let setup = Setup::new(CONF).set("ORIGIN", origin.port()).file("condition/f", "hello");
    (setup.start(), origin)
}

/// The values that the origin was sent under a name.
fn sent<'a>(answer: &'a str, name: &str) -> Vec<&'a str> {
    let is_it = |(n, _): &(&str, &str)| n.eq_ignore_ascii_case(name);
    let fields = answer.split("\r\n").filter_map(|line| line.split_once(": "));
    fields.filter(is_it).map(|(_, value)| value).collect()
}

#[test]
fn variables_see_what_was_set() {
    let (server, _origin) = start();
    for (path, fields, expected) in [
        ("/host", "", "foo.example|Foo.Example:81"),
        ("/cookie", "Cookie: a=0; c=3\r\nCookie: d=1\r\n", "1|2||a=1; b=2"),
        ("/forwarded", "X-Forwarded-For: 5.6.7.8\r\nX-Forwarded-For: 9.9.9.9\r\n", "1.2.3.4"),
        ("/hostless", "", "|"),
    ] {
        let answer = server.get_with(path, fields);
        assert_eq!(answer.header("X-Seen"), Some(expected), "{path}");
    }
    assert_eq!(server.get_with("/again", "X-Foo: sent\r\n").text(), "again");
}

#[test]
fn servers_are_sent_what_was_set() {
    let (server, _origin) = start();
    let several = "X-Foo: a\r\nx-foo: b\r\nX-Bar: c\r\nX-Foo: d\r\n";
    for (path, fields, name, expected) in [
        ("/set", "", "X-Foo", vec!["one"]),
        ("/set", "User-Agent: curl\r\n", "User-Agent", vec!["none"]),
        ("/several", several, "X-Foo", vec!["one"]),
        ("/several", several, "X-Bar", vec!["c"]),
        ("/replace", "X-Foo: old\r\n", "X-Foo", vec!["new"]),
        ("/replace", "X-Foo: old\r\n", "X-Bar", vec![]),
        ("/type", "Content-Type: text/css\r\n", "X-Foo", vec!["typed"]),
        ("/type", "Content-Type: text/html\r\n", "X-Foo", vec![]),
        ("/type", "", "X-Foo", vec![]),
        ("/clear", "X-Foo: a\r\nX-Fool: b\r\n", "X-Foo", vec![]),
        ("/clear", "X-Foo: a\r\nX-Fool: b\r\n", "X-Fool", vec!["b"]),
        ("/clear", "x-hidden-a: 1\r\nX-HIDDEN-B: 2\r\n", "X-Hidden-B", vec![]),
        ("/order", "", "X-Foo", vec!["later"]),
    ] {
        let answer = server.get_with(path, fields).text();
        assert_eq!(sent(&answer, name), expected, "{path} {name}: {answer}");
    }
}

#[test]
fn the_server_acts_on_what_is_there_then() {
    let (server, _origin) = start();
    let tag = server.get("/condition/f").header("ETag").unwrap().to_owned();
    let fields = format!("If-None-Match: {tag}\r\nRange: bytes=0-1\r\n");
    let answer = server.get_with("/condition/f", &fields);
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    let closed = server.exchange("GET", b"GET /close HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        (closed.header("Connection"), closed.header("X-Seen")),
        (Some("close"), Some("CLOSE"))
    );
}

/// nginx takes what it has not read of such a body for the next request.
#[test]
fn without_its_length_a_request_has_no_body() {
    let (server, _origin) = start();
    let mut client = server.connect();
    client.send(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    let text = client.response_to("POST").text();
    assert_eq!(sent(&text, "Content-Length"), Vec::<&str>::new(), "{text}");
    assert!(text.ends_with("\r\n\r\n"), "{text}");
    client.send(b"helloGET /forwarded HTTP/1.1\r\nHost: a\r\n\r\n");
    let next = client.response();
    if next.status == 400 || next.status == 405 {
        return weir_tests::skip("nginx takes the body for a request");
    }
    assert_eq!(next.header("X-Seen"), Some("1.2.3.4"));
}

#[test]
fn a_host_that_is_none_is_refused() {
    let (server, _origin) = start();
    assert_eq!(sent(&server.get("/bad-host?h=Good").text(), "Host"), ["good"]);
    let refused = server.raw(b"GET /bad-host?h=a/b HTTP/1.0\r\n\r\n");
    // nginx closes the connection.
    assert!(refused.is_empty() || refused.starts_with(b"HTTP/1.1 400"));
}

#[test]
fn line_ends_of_variables_do_not_reach_servers() {
    let (server, _origin) = start();
    let answer = server.get("/break%0d%0aX-Evil:%20yes").text();
    if sent(&answer, "X-Evil") == ["yes"] {
        return weir_tests::skip("nginx sends them");
    }
    assert_eq!(sent(&answer, "X-Foo"), ["  X-Evil: yes"], "{answer}");
}
