//! What is counted is kept over an upgrade and over the death of a serving process. (nginx's `stub_status` survives the
//! death of a worker, and begins anew with a new program.)

use weir_tests::{expect_soon, figures, skip, Origin, Server, Setup, Signal};

const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice; %%MAIN%%
    events {} http { access_log off; limit_req_zone $uri zone=limit:64k rate=1000r/s;
    upstream u { server %%ORIGIN%%; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name counted; status_zone counted;
        location / { limit_req zone=limit burst=99 nodelay; empty_gif; }
        location /missing { return 404; }
        location /u { proxy_pass http://u; }
        location = /status { stub_status json; } } }";

fn start(main: &str) -> (Server, Origin) {
    let origin = Origin::echo();
    let server = Setup::new(CONF).set("MAIN", main).set("ORIGIN", origin.address()).start();
    (server, origin)
}

struct Told {
    requests: u64,
    missing: u64,
    latency: u64,
    tries: u64,
    passed: u64,
    accepted: u64,
}

fn told(server: &Server) -> Told {
    let text = server.get("/status").text();
    let number = |names: &[&str]| {
        let (last, way) = names.split_last().unwrap();
        figures::number(way.iter().fold(&text, |at, name| figures::part(at, name)), last)
    };
    let zone = ["server_zones", "counted"];
    Told {
        requests: number(&[&zone[..], &["requests"]].concat()),
        missing: number(&[&zone[..], &["responses", "4xx"]].concat()),
        latency: number(&[&zone[..], &["latency", "count"]].concat()),
        tries: number(&["upstreams", "u", "peers", "requests"]),
        passed: number(&["limit_reqs", "limit", "passed"]),
        accepted: number(&["connections", "accepted"]),
    }
}

fn ask(server: &Server) {
    for (path, times) in [("/", 5), ("/missing", 3), ("/u", 4)] {
        (0..times).for_each(|_| drop(server.get(path)));
    }
}

#[test]
fn an_upgrade_goes_on_counting() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx begins anew");
    }
    for main in ["", "worker_processes 2;", "master_process off;"] {
        let (mut server, _origin) = start(main);
        ask(&server);
        assert_eq!(told(&server).missing, 3);
        let old = server.pid();
        server.signal(Signal::Usr2);
        let pid = || server.read("the.pid").trim().parse().unwrap_or(old);
        expect_soon("the new one writes its pid", || pid() != old);
        let new = pid();
        server.signal(Signal::Quit);
        assert_eq!(server.wait_exit(), Some(0), "{main}");
        expect_soon("the old one's figures", || told(&server).missing == 3);
        ask(&server);
        let told = told(&server);
        assert_eq!((told.missing, told.tries, told.passed), (6, 8, 10), "{main}");
        // The looks at it are requests too.
        assert!(told.requests >= 24 && told.latency >= 24 && told.accepted >= 24, "{main}");
        assert!(told.requests < 1000 && told.accepted < 1000, "{main}");
        weir_tests::signal(new, Signal::Term);
        expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
    }
}

/// What the serving process has left with its master.
pub(crate) fn left(pid: u32) -> String {
    let Ok(all) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return String::new() };
    let is_it = |p: &std::path::PathBuf| {
        std::fs::read_link(p).is_ok_and(|to| to.to_string_lossy().contains("weir-left"))
    };
    let read = |p| String::from_utf8_lossy(&std::fs::read(p).unwrap_or_default()).into_owned();
    all.flatten().map(|e| e.path()).filter(is_it).map(read).collect()
}

/// Kills the serving process, and waits for the next one.
fn kill(server: &Server, child: u32) {
    weir_tests::signal(child, Signal::Kill);
    expect_soon("another one serves", || {
        server.children().first().is_some_and(|pid| *pid != child)
            && std::net::TcpStream::connect(("127.0.0.1", server.port(0))).is_ok()
    });
}

#[test]
fn a_serving_process_that_is_killed_is_followed_by_one_that_goes_on() {
    let (server, _origin) = start("master_process on;");
    let [child] = server.children()[..] else { return skip("no master") };
    ask(&server);
    assert_eq!(told(&server).missing, 3);
    expect_soon("figures are left with the master", || left(child).contains("responses 404 3\n"));
    kill(&server, child);
    let told = told(&server);
    assert_eq!((told.missing, told.tries, told.passed), (3, 4, 5));
    assert!(told.requests >= 12 && told.accepted >= 12);
}

const API: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice; %%MAIN%%
    events {} http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; status_zone counted;
        location / { return 404; } location /api { status_zone api; api write=on; allow 127.0.0.1; deny all; } } }";

/// What was taken off before (`DELETE`) stays off.
#[test]
fn what_began_anew_does_not_come_back() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx has no API");
    }
    let zone = "/api/9/http/server_zones/counted";
    for main in ["", "master_process off;"] {
        let mut server = Setup::new(API).set("MAIN", main).start();
        let missing = |server: &Server| {
            figures::number(figures::part(&server.get(zone).text(), "responses"), "4xx")
        };
        (0..5).for_each(|_| assert_eq!(server.get("/").status, 404));
        assert_eq!(server.request("DELETE", zone, "").status, 204);
        (0..2).for_each(|_| drop(server.get("/")));
        assert_eq!(missing(&server), 2);
        let old = server.pid();
        server.signal(Signal::Usr2);
        let pid = || server.read("the.pid").trim().parse().unwrap_or(old);
        expect_soon("the new one writes its pid", || pid() != old);
        let new = pid();
        server.signal(Signal::Quit);
        assert_eq!(server.wait_exit(), Some(0), "{main}");
        expect_soon("the old one's figures", || missing(&server) == 2);
        server.get("/");
        assert_eq!(missing(&server), 3, "{main}");
        weir_tests::signal(new, Signal::Term);
        expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
    }
}

/// To a reader of counters what falls has begun anew, and counts as a whole once more.
#[test]
fn what_was_shown_is_never_less_after_a_kill() {
    let conf =
        CONF.replace("location = /status", "location = /metrics { metrics; } location = /status");
    let origin = Origin::echo();
    let conf = Setup::new(&conf).set("MAIN", "master_process on;").set("ORIGIN", origin.address());
    let server = conf.start();
    if server.children().len() != 1 {
        return skip("no master");
    }
    let shown = || {
        let text = server.get("/metrics").text();
        let of = |name: &str| {
            let line =
                text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        ["weir_http_requests_total{server=\"counted\"}", "weir_http_upstream_peer_requests_total"]
            .map(of)
    };
    for _ in 0..3 {
        ask(&server);
        let before = shown();
        kill(&server, server.children()[0]);
        let after = shown();
        assert!(after[0] > before[0] && after[1] >= before[1], "{before:?} {after:?}");
    }
}
