//! `keyval`: variables that are looked up in pairs which the API puts and changes.

use weir_tests::{run_cli, Response, Server, Setup};

const CONF: &str = "worker_processes 2; events {} http {
    keyval_zone zone=one:64k state=one.keyval;
    keyval_zone zone=timed:64k timeout=1h;
    keyval_zone zone=nets:64k type=ip;
    keyval_zone zone=paths:64k type=prefix;
    keyval $arg_k $one zone=one;
    keyval $arg_k $timed zone=timed;
    keyval $arg_k $net zone=nets;
    keyval $arg_k $path zone=paths;
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { return 200 '$one|$timed|$net|$path'; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }
    stream { keyval_zone zone=s:64k; keyval $remote_addr $who zone=s;
        server { listen 127.0.0.1:%%PORT_1%%; return $who; } }";

fn send(server: &Server, method: &str, zone: &str, body: &str) -> Response {
    server.send_json(method, &format!("/api/9/{zone}"), body)
}

fn code(response: &Response) -> (u16, String) {
    let text = response.text();
    let code = text.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
    (response.status, code.unwrap_or_default().to_string())
}

const ONE: &str = "http/keyvals/one";

#[test]
fn pairs_are_put_changed_and_taken_away() {
    let server = Setup::new(CONF).start();
    assert_eq!(server.get("/?k=a").text(), "|||");
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\",\"b c\":\"2\"}").status, 201);
    assert_eq!(server.get("/?k=a").text(), "1|||");
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{\"a\":\"1\",\"b c\":\"2\"}");
    assert_eq!(server.get("/api/9/http/keyvals/one?key=b%20c").text(), "{\"b c\":\"2\"}");
    assert_eq!(
        server.get("/api/9/http/keyvals/").text(),
        "{\"nets\":{},\"one\":{\"a\":\"1\",\"b c\":\"2\"},\"paths\":{},\"timed\":{}}"
    );
    assert_eq!(
        server.get("/api/9/http/keyvals?fields=").text(),
        "[\"nets\",\"one\",\"paths\",\"timed\"]"
    );
    assert_eq!(send(&server, "PATCH", ONE, "{\"a\":\"3\"}").status, 204);
    assert_eq!(server.get("/?k=a").text(), "3|||");
    assert_eq!(send(&server, "POST", ONE, "{\"d\":\"4\"}").status, 201);
    assert_eq!(send(&server, "PATCH", ONE, "{\"a\":null}").status, 204);
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{\"b c\":\"2\",\"d\":\"4\"}");
    assert_eq!(server.request("DELETE", "/api/9/http/keyvals/one", "").status, 204);
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{}");
}

#[test]
fn subnets_and_beginnings_are_matched() {
    let server = Setup::new(CONF).start();
    let nets = "{\"10.0.0.0/8\":\"big\",\"10.1.0.0/16\":\"small\",\"::1\":\"six\"}";
    assert_eq!(send(&server, "POST", "http/keyvals/nets", nets).status, 201);
    let paths = "{\"/a\":\"short\",\"/a/b\":\"long\"}";
    assert_eq!(send(&server, "POST", "http/keyvals/paths", paths).status, 201);
    for (key, expected) in [
        ("10.1.2.3", "||small|"),
        ("10.2.2.3", "||big|"),
        ("::1", "||six|"),
        ("11.0.0.1", "|||"),
        ("/a/b/c", "|||long"),
        ("/ab", "|||short"),
        ("/", "|||"),
    ] {
        assert_eq!(server.get(&format!("/?k={key}")).text(), expected, "{key}");
    }
    let wrong = send(&server, "POST", "http/keyvals/nets", "{\"nowhere\":\"x\"}");
    assert_eq!(code(&wrong), (400, "KeyvalFormatError".to_string()));
}

#[test]
fn what_is_wrong_is_said() {
    let server = Setup::new(CONF).start();
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\"}").status, 201);
    for (method, zone, body, status, expected) in [
        ("GET", "http/keyvals/none", "", 404, "KeyvalNotFound"),
        ("GET", "http/keyvals/one?key=x", "", 404, "KeyvalKeyNotFound"),
        ("POST", "http/keyvals/none", "{\"a\":\"1\"}", 404, "KeyvalNotFound"),
        ("POST", ONE, "{\"a\":\"2\"}", 409, "KeyvalKeyExists"),
        ("POST", ONE, "{\"x\":\"1\",\"y\":\"2\"}", 400, "KeyvalFormatError"),
        ("POST", ONE, "{}", 400, "KeyvalFormatError"),
        ("POST", ONE, "{\"x\":1}", 400, "KeyvalFormatError"),
        ("POST", ONE, "{\"\":\"x\"}", 400, "KeyvalFormatError"),
        ("POST", ONE, "{\"x\":{\"value\":\"v\",\"expire\":5}}", 400, "KeyvalFormatError"),
        ("POST", ONE, "nothing", 415, "JsonError"),
        ("PATCH", ONE, "{\"none\":\"x\"}", 404, "KeyvalKeyNotFound"),
        ("PATCH", ONE, "{\"a\":\"1\",\"b\":\"2\"}", 400, "KeyvalFormatError"),
        ("PATCH", ONE, "{}", 400, "KeyvalFormatError"),
        ("PUT", ONE, "{}", 405, "MethodNotAllowed"),
    ] {
        let response = send(&server, method, zone, body);
        assert_eq!(code(&response), (status, expected.to_string()), "{method} {zone} {body}");
    }
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{\"a\":\"1\"}");
}

#[test]
fn pairs_go_when_their_time_is_over() {
    let server = Setup::new(CONF).start();
    let timed = "http/keyvals/timed";
    let pairs = "{\"soon\":{\"value\":\"v\",\"expire\":50},\"late\":\"w\"}";
    assert_eq!(send(&server, "POST", timed, pairs).status, 201);
    assert_eq!(server.get("/?k=late").text(), "|w||");
    weir_tests::expect_soon("a pair goes", || server.get("/?k=soon").text() == "|||");
    assert_eq!(server.get("/api/9/http/keyvals/timed").text(), "{\"late\":\"w\"}");
    // Before version 5 a pair is a text.
    let old = "{\"x\":{\"value\":\"v\",\"expire\":5}}";
    let text = format!(
        "POST /api/4/{timed} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{old}",
        old.len()
    );
    assert_eq!(
        code(&server.exchange("POST", text.as_bytes())),
        (400, "KeyvalFormatError".to_string())
    );
}

#[test]
fn a_zone_is_kept_in_its_file_and_over_a_reload() {
    let mut server = Setup::new(CONF).file("one.keyval", "{\"old\":\"1\"}").start();
    assert_eq!(server.get("/?k=old").text(), "1|||");
    assert_eq!(send(&server, "POST", ONE, "{\"new\\n\":\"2\"}").status, 201);
    assert_eq!(server.read("one.keyval"), "{\n\"new\\u000a\":\"2\",\n\"old\":\"1\"\n}\n");
    let conf = CONF.replace("location / {", "location /new { return 200 new; } location / {");
    let port = server.port(0);
    server.reload(&conf, || weir_tests::Peer::Tcp(port).get("/new").text() == "new");
    assert_eq!(server.get("/?k=new%0A").text(), "|||");
    assert_eq!(server.get("/?k=old").text(), "1|||");
    let said = run_cli(
        &["-t"],
        &CONF
            .replace("state=one.keyval", "state=/dev/null")
            .replace("%%PORT_0%%", "1")
            .replace("%%PORT_1%%", "2"),
    );
    assert!(said.stderr.contains("state file \"/dev/null\""), "{}", said.stderr);
}

#[test]
fn a_zone_takes_no_more_than_its_size() {
    let server = Setup::new(CONF).start();
    let value = "v".repeat(8000);
    let mut taken = 0;
    let full = loop {
        let put = send(&server, "POST", ONE, &format!("{{\"k{taken}\":\"{value}\"}}"));
        if put.status != 201 {
            break put;
        }
        taken += 1;
        assert!(taken < 20, "no end of room");
    };
    assert_eq!(code(&full), (507, "KeyvalOutOfMemory".to_string()));
    assert!(taken >= 3, "{taken}");
    let slab = server.get("/api/9/slabs/one").text();
    assert!(slab.contains("\"pages\":{\"used\":"), "{slab}");
    assert_eq!(server.request("DELETE", "/api/9/http/keyvals/one", "").status, 204);
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\"}").status, 201);
}

#[test]
fn stream_has_pairs_too() {
    let server = Setup::new(CONF).start();
    assert_eq!(send(&server, "POST", "stream/keyvals/s", "{\"127.0.0.1\":\"me\"}").status, 201);
    assert_eq!(server.on(1).connect().read_to_end(), b"me");
    assert_eq!(server.get("/api/9/stream/keyvals/").text(), "{\"s\":{\"127.0.0.1\":\"me\"}}");
    assert_eq!(server.get("/api/9/http/keyvals/s").status, 404);
}

#[test]
fn what_it_says_is_checked() {
    let told = |conf: &str| {
        run_cli(&["-t"], &format!("events {{}} http {{ {conf} server {{ listen 127.0.0.1:1; }} }}"))
            .stderr
    };
    for (conf, expected) in [
        ("keyval_zone zone=a:64k sync timeout=1h;", "tell each machine of changes by its own api"),
        ("keyval_zone zone=a:1k;", "is too small"),
        ("keyval_zone a:64k;", "write zone=NAME:SIZE first"),
        ("keyval_zone zone=a:64k type=what;", "invalid parameter \"type=what\""),
        ("keyval_zone zone=a:64k timeout=0;", "invalid parameter \"timeout=0\""),
        ("keyval_zone zone=a:64k; keyval_zone zone=a:64k;", "the zone is declared already"),
        ("keyval $uri $x zone=a;", "zero size shared memory zone \"a\""),
        ("keyval_zone zone=a:64k; keyval $uri $x a;", "write zone=NAME"),
        ("keyval_zone zone=a:64k; keyval $uri x zone=a;", "invalid variable name \"x\""),
        ("keyval $uri $x zone=a; keyval_zone zone=a:64k;", "test is successful"),
    ] {
        assert!(told(conf).contains(expected), "{conf}: {}", told(conf));
    }
}

/// serde_json's own map would keep the last of them, and what was said first would be lost without a word.
#[test]
fn a_key_that_is_named_twice_is_refused() {
    let server = Setup::new(CONF).start();
    let answer = send(&server, "POST", ONE, "{\"a\":\"1\",\"b\":\"2\",\"a\":\"3\"}");
    assert_eq!(code(&answer), (409, "KeyvalKeyExists".to_string()));
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{}");
    assert_eq!(send(&server, "PATCH", ONE, "{\"a\":\"1\",\"a\":\"1\"}").status, 409);
    // Further below, too.
    for method in ["POST", "PATCH"] {
        let answer = send(&server, method, ONE, "{\"a\":{\"value\":\"x\",\"value\":\"y\"}}");
        assert_eq!(code(&answer), (415, "JsonError".to_string()));
        assert!(answer.text().contains("is there twice"), "{}", answer.text());
    }
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{}");
}

/// Each would read what the other has written.
#[test]
fn a_state_file_is_one_zones() {
    let twice =
        "events {} http { keyval_zone zone=one:64k state=x; keyval_zone zone=two:64k state=./x; }";
    let out = run_cli(&["-t"], twice);
    assert!(out.code != 0 && out.stderr.contains("another zone's already"), "{}", out.stderr);
    let both = "events {} http { keyval_zone zone=one:64k state=x;
        upstream u { zone u 64k; state x; } server { location / { proxy_pass http://u; } } }";
    let out = run_cli(&["-t"], both);
    assert!(out.code != 0 && out.stderr.contains("another zone's already"), "{}", out.stderr);
}

/// A text that was being written by a process that was killed has no use, and there is one for each that was.
#[test]
fn what_killed_writers_left_is_cleared_away() {
    let server = Setup::new(CONF).start();
    for name in ["one.keyval.123.new", "one.keyval.new", "one.keyval.x.new", "two.keyval.123.new"] {
        server.write(name, "{");
    }
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\"}").status, 201);
    let is_there = |name: &str| server.dir().join(name).exists();
    assert!(!is_there("one.keyval.123.new"));
    assert!(
        is_there("one.keyval.new")
            && is_there("one.keyval.x.new")
            && is_there("two.keyval.123.new")
    );
}
