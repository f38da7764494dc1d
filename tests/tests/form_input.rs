//! form-input: fields of forms as variables.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
    location /one { set_form_input $name; set_form_input $b other; set $c "$name|$b"; return 200 $c; }
    location /named { set $n name; set_form_input $v $n; return 200 $v; }
    location /all { set_form_input_multi $name; set_form_input_multi $o other; array_join ' ' $name; array_join ' ' $o; return 200 "$name|$o"; }
    location /small { client_body_buffer_size 1k; set_form_input $name; return 200 "[$name]"; }
    location /passed { set_form_input $name; proxy_set_header X-Name $name; proxy_pass http://127.0.0.1:%%PORT_0%%/back; }
    location /back { client_max_body_size 10; add_header X-Seen $http_x_name; set_form_input $other; return 200 $other; }
    location /limit { client_max_body_size 5; set_form_input $name; return 200 "[$name]"; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).start()
}

fn send(server: &Server, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    let answer = server.exchange(method, (head + body).as_bytes());
    (answer.status, answer.text())
}

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn fields_are_taken_from_the_body() {
    let server = start();
    let post = |path: &str, body: &str| send(&server, "POST", path, FORM, body).1;
    for (path, body, expected) in [
        ("/one", "name=a&other=b", "a|b"),
        ("/one", "NAME=a%20b&x=1&name=c", "a%20b|"),
        ("/one", "", "|"),
        ("/named", "v=1&name=2", "2"),
        ("/all", "name=1&other=2&name=3", "1 3|2"),
        ("/passed", "other=o", "o"),
    ] {
        assert_eq!(post(path, body), expected, "{path} {body}");
    }
    let put =
        send(&server, "PUT", "/one", "application/x-www-form-urlencoded; charset=utf-8", "name=a");
    assert_eq!(put, (200, "a|".to_owned()));
}

#[test]
fn other_requests_have_none() {
    let server = start();
    assert_eq!(send(&server, "POST", "/one", "text/plain", "name=a").1, "|");
    assert_eq!(server.get("/one?name=a").text(), "|");
    assert_eq!(send(&server, "PATCH", "/one", FORM, "name=a").1, "|");
}

#[test]
fn a_body_that_comes_late_is_waited_for() {
    let server = start();
    let mut client = server.connect();
    client.send(format!("POST /one HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Type: {FORM}\r\nContent-Length: 14\r\n\r\n").as_bytes());
    assert!(client.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 100"));
    client.send(b"name=a&other=b");
    assert_eq!(client.response_to("POST").text(), "a|b");
    client.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "|");
}

#[test]
fn what_is_too_large_is_refused_or_left_out() {
    let server = start();
    let long = format!("name=a&x={}", "y".repeat(3000));
    assert_eq!(send(&server, "POST", "/small", FORM, &long), (200, "[]".to_owned()));
    assert_eq!(send(&server, "POST", "/limit", FORM, "name=abc").0, 413);
}
