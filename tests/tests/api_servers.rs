//! `api`: servers of upstreams are put, changed and taken away while the server runs.

use weir_tests::{Origin, Response, Server, Setup, Signal};

const CONF: &str = "worker_processes 2; error_log %%DIR%%/error.log notice; events {} http {
    upstream u { zone u 64k; server %%A%%; }
    upstream kept { zone kept 64k; state kept.conf; }
    upstream hashed { zone hashed 64k; hash $uri; server %%A%%; }
    upstream fixed { server %%A%%; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://u; }
        location /kept/ { proxy_pass http://kept/; }
        location /hashed { proxy_pass http://hashed; }
        location /fixed { proxy_pass http://fixed; }
        location /api { api write=on; allow 127.0.0.1; deny all; }
        location /look { api; } } }
    stream { upstream s { zone s 64k; server %%A%%; } server { listen 127.0.0.1:%%PORT_1%%; proxy_pass s; } }";

fn named(name: &'static str) -> Origin {
    Origin::replying(format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()))
}

fn start(a: &Origin) -> Server {
    Setup::new(CONF).set("A", a.address()).start()
}

fn send(server: &Server, method: &str, path: &str, body: &str) -> Response {
    server.send_json(method, path, body)
}

fn code(response: &Response) -> (u16, String) {
    let text = response.text();
    let at = text.find("\"code\":\"").unwrap_or_else(|| panic!("{text}")) + 8;
    (response.status, text[at..].split('"').next().unwrap_or_default().to_string())
}

const SERVERS: &str = "/api/9/http/upstreams/u/servers";

/// The ring has 160 points for each unit of weight.
#[test]
fn a_weight_does_not_fill_the_memory() {
    let a = named("a");
    let server = Setup::new(&CONF.replace("hash $uri;", "hash $uri consistent;"))
        .set("A", a.address())
        .start();
    let path = "/api/9/http/upstreams/hashed/servers";
    for weight in ["100000", "1000000", "4294967295"] {
        let body = format!("{{\"weight\":{weight}}}");
        let refused = send(&server, "PATCH", &format!("{path}/0"), &body);
        assert_eq!(code(&refused), (400, "UpstreamOutOfMemory".to_string()), "{weight}");
        let body = format!("{{\"server\":\"127.0.0.1:9\",\"weight\":{weight}}}");
        assert_eq!(send(&server, "POST", path, &body).status, 400, "{weight}");
    }
    assert_eq!(send(&server, "PATCH", &format!("{path}/0"), "{\"weight\":1000}").status, 200);
    assert_eq!(server.get("/hashed").text(), "a");
}

#[test]
fn servers_come_change_and_go() {
    let (a, b) = (named("a"), named("b"));
    let server = start(&a);
    let first = format!(
        "{{\"id\":0,\"server\":\"{}\",\"weight\":1,\"max_conns\":0,\"max_fails\":1,\"fail_timeout\":\"10s\",\
         \"slow_start\":\"0s\",\"route\":\"\",\"backup\":false,\"down\":false}}",
        a.address()
    );
    assert_eq!(server.get(SERVERS).text(), format!("[{first}]"));
    assert_eq!(server.get(&format!("{SERVERS}/0")).text(), first);
    let put = send(
        &server,
        "POST",
        &format!("{SERVERS}/"),
        &format!(
            "{{\"server\":\"{}\",\"weight\":3,\"fail_timeout\":\"5s\",\"route\":\"r\"}}",
            b.address()
        ),
    );
    assert_eq!(put.status, 201);
    let text = put.text();
    assert!(text.starts_with("{\"id\":1,") && text.contains("\"weight\":3,"), "{text}");
    assert!(text.contains("\"fail_timeout\":\"5s\"") && text.contains("\"route\":\"r\""), "{text}");
    let answers: String = (0..8).map(|_| server.get("/").text()).collect();
    assert_eq!((answers.matches('a').count(), answers.matches('b').count()), (2, 6), "{answers}");
    let down = send(&server, "PATCH", &format!("{SERVERS}/0"), "{\"down\":true}");
    assert_eq!(down.status, 200);
    assert!(down.text().contains("\"down\":true"), "{}", down.text());
    assert_eq!((0..4).map(|_| server.get("/").text()).collect::<String>(), "bbbb");
    let up = send(&server, "PATCH", &format!("{SERVERS}/0"), "{\"down\":false,\"weight\":9}");
    assert!(up.text().contains("\"weight\":9,"), "{}", up.text());
    let left = server.request("DELETE", &format!("{SERVERS}/1"), "");
    assert_eq!(left.status, 200);
    assert!(left.text().starts_with("[{\"id\":0,") && !left.text().contains("\"id\":1"));
    assert_eq!((0..4).map(|_| server.get("/").text()).collect::<String>(), "aaaa");
    // Another address for the same.
    let moved = format!("{{\"server\":\"{}\"}}", b.address());
    assert_eq!(send(&server, "PATCH", &format!("{SERVERS}/0"), &moved).status, 200);
    assert_eq!(server.get("/").text(), "b");
    assert_eq!(server.request("DELETE", &format!("{SERVERS}/0"), "").text(), "[]");
    assert_eq!(server.get("/").status, 502);
}

#[test]
fn a_reload_has_the_servers_of_the_state_file() {
    let (a, b) = (named("a"), named("b"));
    let mut server = start(&a);
    assert_eq!(server.get("/kept/").status, 502);
    let path = "/api/9/http/upstreams/kept/servers";
    let body = format!(
        "{{\"server\":\"{}\",\"weight\":2,\"max_conns\":5,\"max_fails\":0,\"slow_start\":\"3s\",\"route\":\"x\"}}",
        b.address()
    );
    assert_eq!(send(&server, "POST", path, &body).status, 201);
    assert_eq!(send(&server, "POST", SERVERS, &body).status, 201);
    let expected = format!(
        "server {} weight=2 max_conns=5 max_fails=0 slow_start=3s route=x; # id=0\n# next=1\n",
        b.address()
    );
    assert_eq!(server.read("kept.conf"), expected);
    assert_eq!(server.get("/kept/").text(), "b");
    let conf =
        CONF.replace("location /fixed {", "location /new { return 200 new; } location /fixed {");
    let conf = conf.replace("%%A%%", &a.address());
    let port = server.port(0);
    server.reload(&conf, || weir_tests::Peer::Tcp(port).get("/new").text() == "new");
    assert_eq!(server.get("/kept/").text(), "b");
    assert!(server.get(path).text().contains("\"max_conns\":5,"));
    // The others have those of the configuration again.
    assert_eq!(server.get(SERVERS).text().matches("\"id\"").count(), 1);
    assert_eq!(server.request("DELETE", &format!("{path}/0"), "").text(), "[]");
    assert_eq!(server.read("kept.conf"), "# next=1\n");
}

const KEPT: &str = "/api/9/http/upstreams/kept/servers";

fn post_kept(server: &Server, n: usize) -> Response {
    let address = format!("10.0.{}.{}:80", n / 250, n % 250 + 1);
    send(server, "POST", KEPT, &format!("{{\"server\":\"{address}\",\"down\":true}}"))
}

/// A number means the same server as long as that is there.
#[test]
fn numbers_stay_over_a_reload() {
    let a = named("a");
    let mut server = start(&a);
    for n in 0..3 {
        assert_eq!(post_kept(&server, n).status, 201);
    }
    assert_eq!(send(&server, "DELETE", &format!("{KEPT}/0"), "").status, 200);
    let conf = CONF.replace("%%A%%", &a.address());
    for n in 1..3 {
        let new =
            conf.replace("location / ", &format!("location /new{n} {{ return 204; }} location / "));
        let peer = server.on(0);
        server.reload(&new, || peer.get(&format!("/new{n}")).status == 204);
        assert!(server.get(&format!("{KEPT}/1")).text().contains("10.0.0.2:80"));
        assert_eq!(server.get(&format!("{KEPT}/0")).status, 404);
    }
    assert!(post_kept(&server, 3).text().contains("\"id\":3,"));
    // What somebody else has written into the file counts, under numbers of its own.
    let file = server.dir().join("kept.conf");
    std::fs::write(&file, "server 10.9.9.9:80;\n").unwrap();
    let peer = server.on(0);
    server.reload(&conf, || peer.get("/new2").status != 204);
    let listed = server.get(KEPT).text();
    assert!(listed.contains("\"id\":4,") && listed.contains("10.9.9.9:80"), "{listed}");
    assert!(!listed.contains("10.0.0"), "{listed}");
}

/// What was answered with 201 is there, whichever configuration took it.
#[test]
fn servers_that_come_while_a_reload_is_under_way_are_there() {
    let server = start(&named("a"));
    let done = std::sync::atomic::AtomicBool::new(false);
    let peer = server.on(0);
    let put = std::thread::scope(|scope| {
        let poster = scope.spawn(|| {
            let mut put = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) && put < 900 {
                let text = format!("{{\"server\":\"10.1.{}.{}:80\"}}", put / 250, put % 250 + 1);
                let head = format!(
                    "POST {KEPT} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\n\r\n{text}",
                    text.len()
                );
                let answer = peer.exchange("POST", head.as_bytes());
                assert_eq!(answer.status, 201, "{}", answer.text());
                put += 1;
            }
            put
        });
        for _ in 0..20 {
            server.signal(Signal::Hup);
            server.expect_error("reconfiguring");
            std::fs::write(server.dir().join("error.log"), "").unwrap();
            std::thread::yield_now();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        poster.join().unwrap()
    });
    let listed = server.get(KEPT).text();
    assert_eq!(listed.matches("\"server\":").count(), put);
    assert_eq!(server.read("kept.conf").matches("server ").count(), put);
}

#[test]
fn what_is_wrong_is_said() {
    let a = named("a");
    let server = start(&a);
    let of = |name: &str| format!("/api/9/http/upstreams/{name}/servers");
    let one = "{\"server\":\"127.0.0.1:1\"}";
    for (method, path, body, status, expected) in [
        ("GET", of("none"), "", 404, "UpstreamNotFound"),
        ("GET", of("fixed"), "", 400, "UpstreamStatic"),
        ("GET", of("u") + "/7", "", 404, "UpstreamServerNotFound"),
        ("GET", of("u") + "/x", "", 400, "UpstreamBadServerId"),
        ("POST", of("fixed"), one, 400, "UpstreamStatic"),
        ("POST", of("u") + "/0", one, 405, "MethodNotAllowed"),
        ("PATCH", of("u"), one, 405, "MethodNotAllowed"),
        ("PUT", of("u"), one, 405, "MethodNotAllowed"),
        ("DELETE", of("u") + "/7", "", 404, "UpstreamServerNotFound"),
        ("PATCH", of("u") + "/7", "{}", 404, "UpstreamServerNotFound"),
        ("POST", of("u"), "", 415, "JsonError"),
        ("POST", of("u"), "[]", 415, "JsonError"),
        ("POST", of("u"), "{", 415, "JsonError"),
        ("POST", of("u"), "{}", 400, "UpstreamConfFormatError"),
        ("POST", of("u"), "{\"server\":1}", 400, "UpstreamConfFormatError"),
        ("POST", of("u"), "{\"server\":[\"127.0.0.1:1\"]}", 400, "UpstreamConfFormatError"),
        (
            "POST",
            of("u"),
            "{\"server\":\"127.0.0.1:1\",\"what\":1}",
            400,
            "UpstreamConfFormatError",
        ),
        ("PATCH", of("u") + "/0", "{\"backup\":true}", 400, "UpstreamConfFormatError"),
        (
            "POST",
            of("u"),
            "{\"server\":\"127.0.0.1:1; server 127.0.0.1:2\"}",
            400,
            "UpstreamBadAddress",
        ),
        ("POST", of("u"), "{\"server\":\"127.0.0.1:99999\"}", 400, "UpstreamBadAddress"),
        ("POST", of("u"), "{\"server\":\"a.test:1\"}", 400, "UpstreamConfNoResolver"),
        ("PATCH", of("u") + "/0", "{\"weight\":0}", 400, "UpstreamBadWeight"),
        ("PATCH", of("u") + "/0", "{\"weight\":\"1\"}", 400, "UpstreamBadWeight"),
        ("PATCH", of("u") + "/0", "{\"max_conns\":-1}", 400, "UpstreamBadMaxConns"),
        ("PATCH", of("u") + "/0", "{\"max_fails\":1.5}", 400, "UpstreamBadMaxFails"),
        ("PATCH", of("u") + "/0", "{\"fail_timeout\":\"x\"}", 400, "UpstreamBadFailTimeout"),
        ("PATCH", of("u") + "/0", "{\"slow_start\":true}", 400, "UpstreamBadSlowStart"),
        // No more than the file that they are kept in may say.
        (
            "PATCH",
            of("u") + "/0",
            "{\"fail_timeout\":9223372036854775808}",
            400,
            "UpstreamBadFailTimeout",
        ),
        (
            "POST",
            of("u"),
            "{\"server\":\"127.0.0.1:1\",\"slow_start\":18446744073709551615}",
            400,
            "UpstreamBadSlowStart",
        ),
        ("PATCH", of("u") + "/0", "{\"route\":\"a;b\"}", 400, "UpstreamBadRoute"),
        (
            "POST",
            of("hashed"),
            "{\"server\":\"127.0.0.1:1\",\"backup\":true}",
            400,
            "UpstreamNoBackup",
        ),
    ] {
        let response = send(&server, method, &path, body);
        assert_eq!(code(&response), (status, expected.to_string()), "{method} {path} {body}");
    }
    let look = send(&server, "POST", "/look/9/http/upstreams/u/servers", one);
    assert_eq!(code(&look), (405, "MethodDisabled".to_string()));
    // Nothing of all that has changed anything.
    assert_eq!(server.get(SERVERS).text().matches("\"id\"").count(), 1);
    assert_eq!(server.get("/").text(), "a");
}

#[test]
fn pages_of_other_sites_put_no_servers() {
    let a = named("a");
    let server = start(&a);
    let body = "{\"server\":\"127.0.0.1:1\"}";
    for (fields, expected) in [
        ("Content-Type: text/plain", (415, "JsonError")),
        ("X: y", (415, "JsonError")),
        ("Content-Type: application/json\r\nOrigin: http://evil.test", (403, "CrossSiteRequest")),
        ("Content-Type: application/json\r\nSec-Fetch-Site: cross-site", (403, "CrossSiteRequest")),
    ] {
        let text = format!(
            "POST {SERVERS} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = server.exchange("POST", text.as_bytes());
        assert_eq!(code(&response), (expected.0, expected.1.to_string()), "{fields}");
    }
    assert_eq!(server.get(SERVERS).text().matches("\"id\"").count(), 1);
}

#[test]
fn a_body_without_end_is_not_kept() {
    let a = named("a");
    let server = start(&a);
    // As large as client_max_body_size, and larger with the rest.
    let body = format!("{{\"server\":\"{}\"}}", "x".repeat(1 << 20));
    let refused = send(&server, "POST", SERVERS, &body);
    assert_eq!(refused.status, 413);
}

#[test]
fn servers_of_stream_change_too() {
    let (a, b) = (named("a"), named("b"));
    let server = start(&a);
    let path = "/api/9/stream/upstreams/s/servers";
    assert!(!server.get(path).text().contains("route"));
    assert_eq!(server.on(1).get("/").text(), "a");
    let put = send(&server, "POST", path, &format!("{{\"server\":\"{}\"}}", b.address()));
    assert_eq!(put.status, 201);
    assert_eq!(server.request("DELETE", &format!("{path}/0"), "").status, 200);
    assert_eq!(server.on(1).get("/").text(), "b");
    let no_port = send(&server, "POST", path, "{\"server\":\"127.0.0.1\"}");
    assert_eq!(code(&no_port), (400, "UpstreamBadAddress".to_string()));
    let route = send(&server, "PATCH", &format!("{path}/1"), "{\"route\":\"x\"}");
    assert_eq!(code(&route), (400, "UpstreamConfFormatError".to_string()));
}

/// Clients read a server, change a value of it and write all of it back.
#[test]
fn what_was_read_is_written_back() {
    let a = named("a");
    let server = start(&a);
    let read = server.get(&format!("{SERVERS}/0")).text();
    assert!(read.contains("\"backup\":false") && read.contains("\"id\":0"), "{read}");
    let wanted = read.replace("\"down\":false", "\"down\":true");
    let written = send(&server, "PATCH", &format!("{SERVERS}/0"), &wanted);
    assert_eq!((written.status, written.text()), (200, wanted));
    for body in ["{\"backup\":true}", "{\"id\":1}"] {
        let refused = send(&server, "PATCH", &format!("{SERVERS}/0"), body);
        assert_eq!(code(&refused), (400, "UpstreamConfFormatError".to_string()), "{body}");
    }
    let none = send(&server, "PATCH", &format!("{SERVERS}/7"), "{\"backup\":false,\"down\":true}");
    assert_eq!(code(&none), (404, "UpstreamServerNotFound".to_string()));
}
