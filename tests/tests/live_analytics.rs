//! `analytics_zone` and `analytics`: who comes and what for, counted while it happens.

use weir_tests::figures::{number, part};
use weir_tests::mmdb::{self, Value};
use weir_tests::{expect_soon, run_cli, Server, Setup};

const CONF: &str = r#"events {} worker_processes 2; http {
    analytics_zone all days=2; analytics_zone hidden privacy=hashed; analytics_zone short privacy=shortened;
    analytics_zone few rate=1; analytics all;
    server { listen 127.0.0.1:%%PORT_0%%; real_ip_header X-Ip; set_real_ip_from 127.0.0.1;
        location / { return 200 hello; } location /gone { return 404; }
        location /hidden { analytics hidden; return 200; } location /short { analytics short; return 200; }
        location /off { analytics off; return 200; } location /if { analytics all if=$arg_count; return 200; }
        location /few { analytics few; keepalive_requests 10000; return 200; }
        location /api/ { analytics off; api write=on; allow 127.0.0.1; deny all; }
        location /dash/ { analytics off; dashboard; } } }"#;

fn zone(server: &Server, name: &str) -> String {
    server.get(&format!("/api/9/http/analytics_zones/{name}")).text()
}

fn rows(zone: &str, panel: &str) -> String {
    part(part(zone, "panels"), panel).to_string()
}

#[test]
fn who_comes_and_what_for() {
    let server = Server::start(CONF);
    let agent =
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n";
    for n in 0..10 {
        let head = format!("X-Ip: 192.0.2.{n}\r\nReferer: https://www.example.org/a\r\n{agent}");
        assert_eq!(server.get_with("/page?x=1", &head).status, 200);
    }
    server.get("/gone/away");
    server.get("/off");
    server.get("/if");
    server.get("/if?count=1");
    let all = zone(&server, "all");
    assert_eq!((number(&all, "requests"), number(&all, "left_out")), (12, 0), "{all}");
    let summary = part(&all, "summary");
    assert_eq!(number(summary, "valid_requests"), 12);
    assert_eq!(number(summary, "unique_visitors"), 11, "{summary}");
    assert!(
        rows(&all, "requests").contains(r#""name":"/page?x=1","note":"GET HTTP/1.1","method":"GET","protocol":"HTTP/1.1","hits":10"#),
        "{all}"
    );
    assert!(rows(&all, "not_found").contains("/gone/away"), "{all}");
    assert!(rows(&all, "referring_sites").contains("www.example.org"), "{all}");
    assert!(rows(&all, "hosts").contains("192.0.2.7"), "{all}");
    assert!(all.contains("Firefox 140"), "{all}");
    // The page has them all, by their names.
    let told = server.get("/dash/analytics");
    assert_eq!(told.header("Content-Type"), Some("application/json"));
    assert_eq!(number(part(part(&told.text(), "all"), "summary"), "valid_requests"), 12);
    let listed = server.get("/api/9/http/analytics_zones/").text();
    assert!(listed.starts_with(r#"{"all":{"#) && listed.contains(r#""hidden":{"#), "{listed}");
    assert_eq!(server.get("/api/9/http/analytics_zones/none").status, 404);
    assert_eq!(server.get("/api/8/http/analytics_zones/all").status, 404);
    // It begins anew.
    let gone = server.request("DELETE", "/api/9/http/analytics_zones/all", "");
    assert_eq!(
        (gone.status, number(part(&zone(&server, "all"), "summary"), "valid_requests")),
        (204, 0)
    );
}

#[test]
fn addresses_are_hidden_where_it_says_so() {
    let server = Server::start(CONF);
    for path in ["/hidden", "/short"] {
        server.get_with(path, "X-Ip: 192.0.2.77\r\n");
        server.get_with(path, "X-Ip: 192.0.2.78\r\n");
    }
    let hidden = zone(&server, "hidden");
    assert!(!hidden.contains("192.0.2"), "{hidden}");
    assert_eq!(number(part(&hidden, "summary"), "unique_visitors"), 2);
    let short = zone(&server, "short");
    assert!(short.contains("192.0.2.0/24") && !short.contains("192.0.2.7"), "{short}");
}

#[test]
fn it_lives_on_over_a_reload() {
    let mut server = Server::start(CONF);
    server.get("/before");
    let peer = server.on(0);
    let conf = CONF.replace("location /gone", "location /new { return 204; } location /gone");
    server.reload(&conf, || peer.get("/new").status == 204);
    assert!(rows(&zone(&server, "all"), "requests").contains("/before"));
}

/// Requests like earlier ones only raise numbers: they are all there whenever somebody looks, also with another status,
/// link or user agent than the one before.
#[test]
fn what_comes_again_is_counted_to_the_request() {
    let server = Server::start(CONF);
    let mut client = server.connect();
    for round in 1..=4 {
        for n in 0..60 {
            let (page, from, agent) = (n % 3, n % 4, n % 5);
            let head = format!(
                "GET /page/{page} HTTP/1.1\r\nHost: a.test\r\nReferer: http://from{from}.example/\r\n\
                 User-Agent: curl/{agent}.0\r\n\r\nGET /gone HTTP/1.1\r\nHost: a.test\r\n\r\n"
            );
            client.send(head.as_bytes());
            assert_eq!((client.response().status, client.response().status), (200, 404));
        }
        // The last is counted behind its answer, and another worker may tell of all before that.
        let mut all = String::new();
        expect_soon("all are counted", || {
            all = zone(&server, "all");
            number(part(&all, "summary"), "valid_requests") == 120 * round
        });
        for (panel, name, hits) in [
            (
                "requests",
                r#""/page/2","note":"GET HTTP/1.1","method":"GET","protocol":"HTTP/1.1""#,
                20,
            ),
            (
                "not_found",
                r#""/gone","note":"GET HTTP/1.1","method":"GET","protocol":"HTTP/1.1""#,
                60,
            ),
            ("referring_sites", r#""from3.example""#, 15),
            ("browser_versions", r#""curl 4""#, 12),
            ("vhosts", r#""a.test""#, 120),
            ("status_codes", r#""404""#, 60),
        ] {
            let hits = hits * round;
            let row = format!(r#"{{"name":{name},"hits":{hits},"#);
            assert!(rows(&all, panel).contains(&row), "{row} in {}", rows(&all, panel));
        }
        assert_eq!(number(part(&all, "summary"), "unique_visitors"), 5);
    }
}

/// The same head word for word, and each time another link by the configuration: it is that which is counted.
#[test]
fn what_is_changed_on_the_way_counts_as_changed() {
    let changed = "location /changed { empty_gif;
        more_set_input_headers 'Referer: http://from$connection_requests.example/'; } location /gone";
    let server = Server::start(&CONF.replace("location /gone", changed));
    let mut client = server.connect();
    for _ in 0..8 {
        client.send(b"GET /changed HTTP/1.1\r\nHost: a\r\nReferer: http://none.example/\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    let mut all = String::new();
    expect_soon("all are counted", || {
        all = zone(&server, "all");
        number(part(&all, "summary"), "valid_requests") == 8
    });
    let sites = rows(&all, "referring_sites");
    for n in 1..=8 {
        assert!(sites.contains(&format!(r#"{{"name":"from{n}.example","hits":1,"#)), "{sites}");
    }
    assert!(!sites.contains("none.example"), "{sites}");
}

/// Of more requests than a worker is to look at it leaves out some, and says how many.
#[test]
fn a_flood_is_sampled() {
    let server = Server::start(CONF);
    let mut client = server.connect();
    let mut sent = 0;
    expect_soon("some are left out", || {
        for _ in 0..100 {
            client.get("/few");
        }
        sent += 100;
        number(&zone(&server, "few"), "left_out") > 0
    });
    expect_soon("all are told of", || {
        let few = zone(&server, "few");
        let counted = number(part(&few, "summary"), "valid_requests");
        (number(&few, "requests"), counted + number(&few, "left_out")) == (sent, sent)
    });
}

#[test]
fn countries_by_a_database() {
    let code = Value::Map(vec![("iso_code", Value::Text("NZ"))]);
    let record = Value::Map(vec![("country", code)]);
    let database = mmdb::file("GeoLite2-Country", 1, &[("192.0.2.0/24", record)]);
    let conf = CONF.replace("days=2", "geoip=%%DIR%%/c.mmdb");
    let server = Setup::new(&conf).file("c.mmdb", database).start();
    server.get_with("/", "X-Ip: 192.0.2.1\r\n");
    assert!(rows(&zone(&server, "all"), "countries").contains(r#""name":"NZ""#));
}

#[test]
fn what_is_refused() {
    for (conf, told) in [
        ("analytics_zone a privacy=some;", "invalid parameter \"privacy=some\""),
        ("analytics_zone a days=40;", "write 1 to 31 days"),
        ("analytics_zone a rate=0;", "invalid parameter \"rate=0\""),
        ("analytics_zone a=b;", "invalid parameter \"a=b\""),
        ("analytics_zone a; analytics_zone a;", "the zone is declared already"),
        ("analytics_zone a geoip=/nothing/here;", "database \"/nothing/here\""),
        ("analytics none;", "unknown analytics zone \"none\""),
        ("analytics_zone a; analytics a maybe;", "invalid parameter \"maybe\""),
    ] {
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {conf} server {{ }} }}"));
        assert!(said.code == 1 && said.stderr.contains(told), "{conf}: {}", said.stderr);
    }
}
