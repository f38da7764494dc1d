//! `/slabs` of the API: pages and slots of the zones that upstreams, TLS sessions, `sticky learn` and `keyval` have.

use rustls::version::TLS12;
use weir_tests::figures::{number, part};
use weir_tests::tls::{self, Tls};
use weir_tests::{Origin, Response, Server, Setup};

const CONF: &str = "events {} http {
    keyval_zone zone=pairs:64k; keyval $arg_k $v zone=pairs;
    upstream test { zone test 64k; state test.conf; }
    upstream more { zone test; server 127.0.0.1:1; }
    upstream learned { zone learned 256k; server %%A%%;
        sticky learn create=$upstream_http_x_id lookup=$arg_id zone=sessions:128k; }
    ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
    ssl_session_cache shared:tls:1m; ssl_session_tickets off;
    server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl;
        location / { return 200 '$v'; }
        location /learned { proxy_pass http://learned; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }
    stream { upstream s { zone s 64k; server 127.0.0.1:1; } server { listen 127.0.0.1:%%PORT_2%%; proxy_pass s; } }";

fn start(origin: &Origin) -> Server {
    let own = tls::self_signed("localhost");
    let setup = Setup::new(CONF).set("A", origin.address());
    setup.file("a.crt", own.cert).file("a.key", own.key).start()
}

fn post(server: &Server, path: &str, body: &str) -> Response {
    server.send_json("POST", &format!("/api/9/http/{path}"), body)
}

/// Pages used and free of a zone, and its slots, as text.
fn slab(server: &Server, name: &str) -> (u64, u64, String) {
    let answer = server.get(&format!("/api/9/slabs/{name}"));
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    let text = answer.text();
    let pages = part(&text, "pages");
    let slots = part(&text, "slots");
    (number(pages, "used"), number(pages, "free"), slots.to_string())
}

/// How many are used in all slots.
fn used(slots: &str) -> u64 {
    slots
        .split("\"used\":")
        .skip(1)
        .filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn zones_of_upstreams_are_there() {
    let origin =
        Origin::replying("HTTP/1.0 200 OK\r\nX-Id: abc\r\nContent-Length: 1\r\n\r\na".to_string());
    let server = start(&origin);
    // Two upstreams share it.
    let (pages, free, slots) = slab(&server, "test");
    assert!(pages >= 1 && free >= 1, "{pages} {free}");
    assert!(slots.contains("\"used\":") && slots.contains("\"free\":"), "{slots}");
    assert_eq!(pages + free, 15);
    for n in 0..20 {
        let body = format!("{{\"server\":\"127.0.0.2:{}\"}}", 1000 + n);
        assert_eq!(post(&server, "upstreams/test/servers", &body).status, 201);
    }
    let (more, _, more_slots) = slab(&server, "test");
    assert!(more > pages && used(&more_slots) >= used(&slots) + 20, "{more_slots}");
    assert!(slab(&server, "s").0 >= 1);
    let all = server.get("/api/9/slabs").text();
    for name in ["test", "learned", "sessions", "tls", "pairs", "s"] {
        assert!(all.contains(&format!("\"{name}\":{{")), "{name}: {all}");
    }
}

#[test]
fn zones_of_sessions_and_pairs_are_there() {
    let origin =
        Origin::replying("HTTP/1.0 200 OK\r\nX-Id: abc\r\nContent-Length: 1\r\n\r\na".to_string());
    let server = start(&origin);
    assert_eq!(used(&slab(&server, "sessions").2), 0);
    assert_eq!(server.get("/learned").text(), "a");
    let (pages, _, slots) = slab(&server, "sessions");
    assert_eq!((pages, used(&slots)), (1, 1), "{slots}");
    assert_eq!(used(&slab(&server, "pairs").2), 0);
    assert_eq!(post(&server, "keyvals/pairs", "{\"a\":\"1\",\"b\":\"2\"}").status, 201);
    let (pages, _, slots) = slab(&server, "pairs");
    assert_eq!((pages, used(&slots)), (1, 2), "{slots}");
    assert_eq!(server.request("DELETE", "/api/9/http/keyvals/pairs", "").status, 204);
    assert_eq!(used(&slab(&server, "pairs").2), 0);
}

#[test]
fn zones_of_tls_sessions_are_there() {
    let origin = Origin::replying("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na".to_string());
    let server = start(&origin);
    let (pages, free, slots) = slab(&server, "tls");
    assert_eq!((pages, used(&slots)), (0, 0));
    assert!(free > 200, "{free}");
    Tls::speaking(&[&TLS12], None).get(server.port(1), "localhost", "/");
    let (pages, _, slots) = slab(&server, "tls");
    assert!(pages >= 1 && used(&slots) == 1, "{pages} {slots}");
}

/// What is used now is no count: it is not taken off when counts begin anew.
#[test]
fn what_is_in_use_does_not_begin_anew() {
    let server = Setup::new(
        "events {} http { keyval_zone zone=pairs:64k; upstream u { zone u 64k; server 127.0.0.1:1; }
            server { listen 127.0.0.1:%%PORT_0%%; location /api { api write=on; allow 127.0.0.1; deny all; } } }",
    )
    .start();
    let before = slab(&server, "u");
    assert!(used(&before.2) > 0, "{}", before.2);
    assert_eq!(server.request("DELETE", "/api/9/slabs/u", "").status, 204);
    assert_eq!(slab(&server, "u"), before);
    assert_eq!(server.request("DELETE", "/api/9/connections", "").status, 204);
    let connections = server.get("/api/9/connections").text();
    assert_eq!(
        (number(&connections, "accepted"), number(&connections, "active")),
        (1, 1),
        "{connections}"
    );
}
