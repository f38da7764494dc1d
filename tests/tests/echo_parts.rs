//! echo: subrequests whose answers stand in the answer, in order or at once.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { default_type text/plain; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    error_log %%DIR%%/error.log; client_body_buffer_size 1k;
    location /main { echo before; echo_location /sub a=1; echo after; }
    location /async { echo before; echo_location_async /sub?a=2; echo after; }
    location /first { echo_before_body head; echo_location /sub; }
    location /sub { echo "sub $arg_a $echo_request_uri"; }
    location /nested { echo 1; echo_location /inner; echo 4; }
    location /inner { echo 2; echo_location_async /innermost; }
    location /innermost { echo 3; }
    location /counts { echo "pre $echo_incr"; echo_location_async /count; echo_location_async /count; echo "post $echo_incr"; }
    location /count { echo "sub $echo_incr"; }
    location /methods { echo_subrequest DELETE /method; echo_subrequest_async FROB /method; }
    location /method { echo "$echo_request_method $echo_client_request_method"; }
    location /bodies { echo_subrequest POST /show -q a=1 -b hi; echo_subrequest PUT /show -b "hello $uri"; echo_subrequest PUT /show -f body; }
    location /show { echo -n "$query_string $echo_request_method $http_content_length "; echo_request_body; echo; }
    location /passed { echo_subrequest POST /pass -b 'text'; echo_subrequest POST /pass -f %%DIR%%/long; }
    location /pass { proxy_pass http://127.0.0.1:%%PORT_0%%/back; }
    location /back { echo_read_request_body; echo "$request_method $http_content_length"; }
    location /shares { echo_location /show; }
    location /variables { set $v main; echo_location /unset; echo $v; }
    location /unset { set $w "$v-"; echo "[$w]"; }
    location /loop { echo_foreach_split '&' $query_string; echo_location_async $echo_it; echo; echo_end; }
    location /many { echo_foreach_split ' ' "%%MANY%%"; echo_location_async /sub?a=$echo_it; echo_end; }
    location /unsafe { echo start; echo_location_async /../x; echo end; }
    location /missing { echo start; echo_location /none; echo end; }
    location /lost { echo_subrequest GET /sub -f none; }
    location /itself { echo a; echo_location /itself; echo b; }
    location /not-a-file { echo_subrequest POST /show -f .; }
    location /exec { echo_location /execs; echo end; }
    location /execs { echo_exec /sub; }
} }"#;

fn start() -> Server {
    let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let setup = Setup::new(CONF).set("MANY", many.join(" "));
    setup.file("body", "from a file").file("long", "x".repeat(100_000)).start()
}

#[test]
fn answers_stand_where_they_were_asked_for() {
    let server = start();
    for (path, expected) in [
        ("/main", "before\nsub 1 /sub\nafter\n"),
        ("/async", "before\nsub 2 /sub\nafter\n"),
        ("/first", "head\nsub  /sub\n"),
        ("/nested", "1\n2\n3\n4\n"),
        ("/counts", "pre 1\nsub 3\nsub 4\npost 2\n"),
        ("/methods", "DELETE GET\nFROB GET\n"),
        ("/variables", "[-]\nmain\n"),
        ("/loop?/count&/sub", "sub 1\n\nsub  /sub\n\n"),
        ("/exec", "sub  /sub\nend\n"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    assert_eq!(server.head("/main").status, 200);
}

#[test]
fn bodies_are_given_to_parts() {
    let server = start();
    let shown = "a=1 POST 2 hi\n PUT 13 hello /bodies\n PUT 11 from a file\n";
    assert_eq!(server.get("/bodies").text(), shown);
    assert_eq!(server.get("/passed").text(), "POST 4\nPOST 100000\n");
    assert_eq!(server.post("/shares", "of the client").text(), " GET 13 of the client\n");
}

#[test]
fn parts_are_many_one_after_the_other() {
    let server = start();
    let expected: String = (0..200).map(|n| format!("sub {n} /sub\n")).collect();
    assert_eq!(server.get("/many").text(), expected);
}

#[test]
fn what_goes_wrong_is_seen() {
    let server = start();
    let missing = server.get("/missing").text();
    assert!(missing.starts_with("start\n<html>") && missing.ends_with("</html>\r\nend\n"));
    let cut = server.raw(b"GET /unsafe HTTP/1.0\r\n\r\n");
    assert!(!String::from_utf8_lossy(&cut).contains("end\n"));
    // nginx breaks the answer off.
    let lost = server.raw(b"GET /lost HTTP/1.0\r\n\r\n");
    assert!(!String::from_utf8_lossy(&lost).contains("sub "));
    server.expect_error("failed (2: No such file or directory)");
}

/// As nginx, and before memory is full.
#[test]
fn what_asks_for_itself_ends() {
    let server = start();
    let answer = server.raw(b"GET /itself HTTP/1.0\r\n\r\n");
    assert!(answer.len() < 10_000, "{}", answer.len());
    assert_eq!(server.get("/async").status, 200);
    let folder = server.raw(b"GET /not-a-file HTTP/1.0\r\n\r\n");
    assert!(!String::from_utf8_lossy(&folder).contains("POST"));
}
