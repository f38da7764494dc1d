//! Tengine's `req_status`: requests added up by a value, in lines as scrapers of Tengine read them.

use crate::upgrade_busy::next_pid;
use weir_tests::{expect_soon, run_cli, signal, skip, Origin, Server, Setup, Signal};

const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice;
    worker_processes 2; events {} http { access_log off;
    req_status_zone server \"$host,$server_port\" 1M;
    req_status_zone uri $uri 256K;
    req_status_zone late $upstream_addr 256K;
    req_status_zone unused $uri 256K;
    req_status_zone_add_indicator server $arg_n $limit;
    req_status_zone_key_length uri 8;
    req_status_zone_recycle uri 10 60;
    upstream u { server %%ORIGIN%%; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name a;
        set $limit 0; if ($arg_limit) { set $limit 7; }
        req_status server;
        location / { return 200 'hello $reqstat_enable'; }
        location /uri { req_status uri server; req_status_bypass $arg_off; return 404; }
        location /line { req_status uri; return 204; }
        location /u { req_status late; req_status_lazy on; proxy_pass http://u; }
        location /away { error_page 418 = /uri/x; return 418; }
        location = /all { req_status_bypass 1; req_status_show; }
        location = /some { req_status_bypass 1; req_status_show server uri;
            req_status_show_field req_total $limit http_404; }
        location = /late { req_status_bypass 1; req_status_show late; }
        location = /unused { req_status_bypass 1; req_status_show unused; } } }";

fn start() -> (Server, Origin) {
    let origin = Origin::echo();
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).start();
    (server, origin)
}

/// The numbers of a line that begins so.
fn line(text: &str, key: &str) -> Vec<u64> {
    let found = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(','));
    let found = found.unwrap_or_else(|| panic!("no {key} in {text}"));
    found.split(',').map(|n| n.parse().unwrap()).collect()
}

#[test]
fn lines_are_tengines() {
    let (server, origin) = start();
    let key = format!("localhost,{}", server.port(0));
    (0..3).for_each(|_| assert_eq!(server.get("/").text(), "hello 1"));
    assert_eq!(server.get("/?limit=1&n=0.120").status, 200);
    assert_eq!(server.get("/uri/1").status, 404);
    assert_eq!(server.get("/uri/1?off=1").status, 404);
    let mut kept = server.connect();
    (0..2).for_each(|_| assert_eq!(kept.get("/").status, 200));
    assert_eq!(server.get("/u").status, 200);
    let answer = server.get("/all");
    assert_eq!(answer.header("Content-Type"), Some("text/plain"));
    let text = answer.text();
    let all = line(&text, &key);
    // bytes_in bytes_out conn_total req_total 2xx 3xx 4xx 5xx other rt, three of upstreams, 13 codes, others, two of upstreams, indicators
    assert_eq!(all.len(), 31, "{text}");
    assert_eq!(all[2..9], [6, 7, 6, 0, 1, 0, 0], "{text}");
    assert!(all[0] > 7 * 30 && all[1] > 7 * 100, "{text}");
    assert_eq!((all[13], all[18], all[26]), (6, 1, 0), "{text}");
    assert_eq!(all[29..], [120, 7], "{text}");
    assert_eq!(all[10..13], [0, 0, 0]);
    let uri = line(&text, "/uri/1");
    assert_eq!((uri.len(), uri[3], uri[18]), (29, 1, 1), "{text}");
    // One of the answer is there when the request is over.
    let late = server.get("/late").text();
    let late = line(&late, &origin.address());
    assert_eq!((late[3], late[10], late[12]), (1, 1, 1));
    // The order is that of their use.
    assert!(text.find(&key) < text.find("/uri/1"));
    assert_eq!(server.get("/some").text(), format!("{key},7,7,1\n/uri/1,1,0,1\n"));
    assert_eq!(server.get("/unused").text(), "");
}

#[test]
fn the_first_location_says_where_and_lines_stay_lines() {
    let (server, _origin) = start();
    assert_eq!(server.get("/away").status, 404);
    assert_eq!(server.get("/line%0Ax").status, 204);
    assert_eq!(server.get("/line-is-cut").status, 204);
    let text = server.get("/some").text();
    assert_eq!(
        text,
        format!("localhost,{},1,0,1\n/line-is,1,0,0\n/line\\x0Ax,1,0,0\n", server.port(0))
    );
}

#[test]
fn lines_are_kept_over_reload_and_upgrade() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx has none");
    }
    let (mut server, origin) = start();
    (0..3).for_each(|_| drop(server.get("/uri/1")));
    let conf = CONF.replace("location / {", "location /new { return 204; } location / {");
    let peer = server.on(0);
    server
        .reload(&conf.replace("%%ORIGIN%%", &origin.address()), || peer.get("/new").status == 204);
    server.get("/uri/1");
    let old = server.pid();
    server.signal(Signal::Usr2);
    let new = next_pid(&server, old);
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    let total = || line(&server.get("/some").text(), "/uri/1")[0];
    expect_soon("the old one's lines", || server.get("/some").text().contains("/uri/1,4,"));
    server.get("/uri/1");
    assert_eq!(total(), 5);
    signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}

#[test]
fn without_zones_in_use_there_is_nothing() {
    let conf = "events {} http { req_status_zone z $uri 64K;
        server { listen 127.0.0.1:%%PORT_0%%; location / { req_status_show; } } }";
    let server = Server::start(conf);
    assert_eq!(server.get("/").status, 204);
}

#[test]
fn what_is_wrong_is_said() {
    for (line, expected) in [
        ("req_status_zone z fixed 1m;", "the value \"fixed\" is a constant"),
        ("req_status_zone z $uri 1k;", "zone \"z\" is too small"),
        (
            "req_status_zone z $uri 1m; req_status_zone z $host 1m;",
            "is already bound to value \"$uri\"",
        ),
        ("server { listen 127.0.0.1:1; req_status z; }", "zero size shared memory zone \"z\""),
        ("req_status_zone_add_indicator z $uri;", "zone \"z\" should be defined first"),
        ("req_status_zone z $uri 1m; req_status_zone_key_length z 0;", "invalid key length"),
        ("req_status_zone z $uri 1m; req_status_zone_recycle z 1 0;", "invalid scale"),
        (
            "server { location / { req_status_show; req_status_show_field x; } }",
            "field \"x\" does not exist",
        ),
        (
            "server { location / { req_status_show; req_status_show_field $x; } }",
            "field \"$x\" does not exist",
        ),
    ] {
        let conf = format!("events {{}} http {{ {line} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.stderr.contains(expected), "{line}: {}", said.stderr);
    }
}
