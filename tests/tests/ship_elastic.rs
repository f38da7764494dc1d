//! `ship` to Elasticsearch and OpenSearch: what is sent, and that each event is there once whatever happens on the way.

use weir_tests::bulk::{Bulk, Mood};
use weir_tests::{expect_soon, is_alive, signal, Server, Setup, Signal};

const CONF: &str = "worker_processes 2; error_log error.log info; events {}
ship es { to elasticsearch http://127.0.0.1:%%BULK%%; queue %%DIR%%/queue size=8m;
    batch events=50 linger=20ms; retry first=5ms most=50ms; timeout 5s; compress gzip; }
http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
    location / { ship_access es; return 200 ok; }
    location /quiet { return 204; }
    location /api { api; } } }";

fn start(bulk: &Bulk, conf: &str) -> Server {
    Setup::new(conf).set("BULK", bulk.port()).start()
}

/// Requests over one connection; behind the last one nothing of them is left to be done.
fn get_all(server: &Server, urls: impl Iterator<Item = String>) {
    let mut client = server.connect();
    for url in urls {
        assert_eq!(client.get(&url).status, 200);
    }
    assert_eq!(client.get("/quiet").status, 204);
}

#[test]
fn a_request_is_a_document_with_the_names_of_ecs() {
    let bulk = Bulk::good();
    let server = start(&bulk, CONF);
    let fields = "User-Agent: one\"two\r\nReferer: http://r.test/\r\nX-Forwarded-For: 1.2.3.4\r\n\
        Authorization: Basic bWU6c2VjcmV0\r\n";
    let response = server.request("POST", "/a?b=1", fields);
    assert_eq!(response.status, 200);
    let document = bulk.expect(1).remove(0);
    assert_eq!(document.index, "logs-nginx.access-default");
    let d = &document.source;
    assert_eq!(d["http"]["request"]["method"], "POST");
    assert_eq!(d["http"]["request"]["referrer"], "http://r.test/");
    assert_eq!(d["http"]["response"]["status_code"], 200);
    assert_eq!(d["http"]["response"]["body"]["bytes"], 2);
    assert_eq!(d["http"]["version"], "1.1");
    assert_eq!(d["url"]["original"], "/a?b=1");
    assert_eq!((&d["url"]["path"], &d["url"]["query"]), (&"/a".into(), &"b=1".into()));
    assert_eq!((&d["url"]["domain"], &d["url"]["scheme"]), (&"localhost".into(), &"http".into()));
    assert_eq!(d["user_agent"]["original"], "one\"two");
    assert_eq!(d["user"]["name"], "me");
    assert_eq!(d["source"]["ip"], "127.0.0.1");
    assert_eq!(d["nginx"]["access"]["remote_ip_list"], serde_json::json!(["1.2.3.4", "127.0.0.1"]));
    assert!(d["event"]["duration"].as_u64().is_some_and(|ns| ns < 10_000_000_000));
    assert_eq!(d["data_stream"]["type"], "logs");
    let stamp = d["@timestamp"].as_str().unwrap();
    assert!(stamp.len() == 24 && stamp.ends_with('Z'), "{stamp}");
    let request = &bulk.requests()[0];
    assert_eq!(request.header("Content-Type"), Some("application/x-ndjson"));
    assert_eq!(request.header("Content-Encoding"), Some("gzip"));
}

/// What Elastic's integration of nginx sets besides, and the trace that a request belongs to.
#[test]
fn a_request_is_found_by_addresses_users_and_traces() {
    let bulk = Bulk::good();
    let conf = CONF.replace("compress gzip;", "compress none; pipeline nginx-access.1;").replace(
        "location / {",
        "location /own { otel_trace_context inject; ship_access es; return 200 ok; } location / {",
    );
    let server = start(&bulk, &conf);
    let told = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let user = "Authorization: Basic bWU6c2VjcmV0\r\n";
    assert_eq!(server.get_with("/a", &format!("{told}{user}")).status, 200);
    assert_eq!(server.get_with("/b", "traceparent: 00-none\r\n").status, 200);
    assert_eq!(server.get_with("/own", told).status, 200);
    let documents = bulk.expect(3);
    let of = |path: &str| {
        let found = documents.iter().find(|d| d.source["url"]["path"] == path);
        found.unwrap().source.clone()
    };
    let (a, b, own) = (of("/a"), of("/b"), of("/own"));
    assert_eq!(a["related"], serde_json::json!({"ip": ["127.0.0.1"], "user": ["me"]}));
    assert_eq!(a["trace"]["id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((a.get("span"), b.get("trace")), (None, None));
    assert_eq!(b["related"], serde_json::json!({"ip": ["127.0.0.1"]}));
    // The client's word is not taken there: it is a trace of its own.
    let ids = [&own["trace"]["id"], &own["span"]["id"]].map(|id| id.as_str().unwrap().to_owned());
    assert_eq!((ids[0].len(), ids[1].len()), (32, 16));
    assert_ne!(ids[0], "0af7651916cd43dd8448eb211c80319c");
    assert!(bulk.requests().iter().all(|r| r.line().contains("&pipeline=nginx-access.1 HTTP/")));
}

#[test]
fn a_location_says_whether_and_where() {
    let (one, two) = (Bulk::good(), Bulk::good());
    let server = Setup::new(
        "worker_processes 1; error_log error.log info; events {}
        ship one { to opensearch http://127.0.0.1:%%ONE%%/base; queue %%DIR%%/one size=8m;
            batch linger=10ms; index all; compress none; user me; password_file password;
            header X-Tenant t1; }
        ship two { to elasticsearch http://127.0.0.1:%%TWO%%; queue %%DIR%%/two size=8m;
            batch linger=10ms; namespace blue; api_key key; }
        http { access_log off; map $arg_x $wanted { 1 1; default 0; } ship_access one;
          server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 ok; }
            location /both { ship_access one; ship_access two; return 200 ok; }
            location /if { ship_access two if=$wanted; return 200 ok; }
            location /off { ship_access off; return 200 ok; } } }",
    )
    .file("password", "secret\n")
    .file("key", "c2VjcmV0\n")
    .set("ONE", one.port())
    .set("TWO", two.port())
    .start();
    for url in ["/", "/both", "/if?x=1", "/if?x=2", "/off", "/end"] {
        assert_eq!(server.get(url).status, 200);
    }
    one.expect(3);
    two.expect(2);
    assert_eq!(one.urls(), ["/", "/both", "/end"]);
    assert_eq!(two.urls(), ["/both", "/if?x=1"]);
    assert_eq!(two.documents()[0].index, "logs-nginx.access-blue");
    assert_eq!(one.documents()[0].index, "all");
    let request = &one.requests()[0];
    assert!(request.line().starts_with("POST /base/_bulk"), "{}", request.line());
    assert_eq!(request.header("Authorization"), Some("Basic bWU6c2VjcmV0"));
    assert_eq!(request.header("X-Tenant"), Some("t1"));
    assert_eq!(request.header("Content-Encoding"), None);
    assert_eq!(two.requests()[0].header("Authorization"), Some("ApiKey c2VjcmV0"));
}

/// The measure: outage, 429, 503, connections dropped in mid-bulk, answers in part, and the process killed meanwhile.
#[test]
fn each_event_is_there_once_over_four_kills_and_a_receiver_that_fails_in_every_way() {
    const MOODS: [Mood; 8] = [
        Mood::Down,
        Mood::Unavailable,
        Mood::Dropped,
        Mood::TooMany,
        Mood::Partial,
        Mood::Unanswered,
        Mood::Good,
        Mood::Dropped,
    ];
    let bulk = Bulk::start(|n| if n < 5 { Mood::Down } else { MOODS[n % MOODS.len()] });
    let server = start(&bulk, CONF);
    let mut expected = Vec::new();
    for round in 0..5 {
        let urls: Vec<String> = (0..200).map(|n| format!("/{round}/{n:03}")).collect();
        let halves = urls.chunks(100);
        std::thread::scope(|s| {
            halves.for_each(|half| {
                s.spawn(|| get_all(&server, half.iter().cloned()));
            });
        });
        expected.extend(urls);
        if round < 4 {
            kill_serving_process(&server);
        }
    }
    expect_soon("all events", || bulk.documents().len() >= expected.len());
    // Nothing more comes.
    expect_soon("an empty queue", || figure(&server, "queued_bytes") == 0);
    assert_eq!(bulk.urls(), expected);
    assert!(bulk.conflicts() > 0, "nothing was sent twice, so that nothing was tried");
    assert_eq!(figure(&server, "events_dropped"), 0);
}

/// Under a master, which starts the next one; without one there is nobody to.
fn kill_serving_process(server: &Server) {
    let [old] = server.children()[..] else { panic!("no serving process: not run as root") };
    signal(old, Signal::Kill);
    expect_soon("the next process", || {
        let children = server.children();
        children.len() == 1 && children[0] != old
    });
    assert_eq!(server.get("/quiet").status, 204);
}

fn figure(server: &Server, name: &str) -> u64 {
    let text = server.get("/api/9/ship/es").text();
    let all: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    all[name].as_u64().unwrap_or_else(|| panic!("no {name}: {text}"))
}

#[test]
fn what_is_refused_is_counted_told_once_and_holds_up_nothing() {
    let bulk = Bulk::good();
    let server = start(&bulk, CONF);
    let urls = ["/a", "/refused/1", "/b", "/refused/2", "/c"];
    get_all(&server, urls.iter().map(|u| u.to_string()));
    bulk.expect(3);
    expect_soon("counts", || figure(&server, "events_refused") == 2);
    expect_soon("an empty queue", || figure(&server, "queued_bytes") == 0);
    assert_eq!(figure(&server, "events_sent"), 3);
    let told = "ship \"es\": an event was refused and is lost: 400 t: r";
    expect_soon("the line", || server.error_log().contains(told));
    assert_eq!(server.error_log().matches(told).count(), 1);
}

#[test]
fn the_bound_is_kept_and_what_finds_no_room_is_counted_and_told() {
    let bulk = Bulk::start(|_| Mood::Unavailable);
    let server = start(&bulk, &CONF.replace("size=8m", "size=1m"));
    let long = "x".repeat(3000);
    let all = 400;
    get_all(&server, (0..all).map(|n| format!("/{n}/{long}")));
    expect_soon("dropped events", || figure(&server, "events_dropped") > 0);
    assert!(figure(&server, "held_bytes") <= 1024 * 1024);
    let files = std::fs::read_dir(server.dir().join("queue")).unwrap();
    let segments = files.flatten().filter(|f| f.path().extension().is_some_and(|e| e == "seg"));
    let bytes: u64 = segments.map(|f| f.metadata().unwrap().len()).sum();
    assert!(bytes <= 1024 * 1024, "{bytes}");
    expect_soon("the line", || {
        server.error_log().contains("events were dropped, the queue is full")
    });
    assert!(figure(&server, "oldest_age") > 0);
    bulk.set_mood(Mood::Good);
    expect_soon("an empty queue", || figure(&server, "queued_bytes") == 0);
    let dropped = figure(&server, "events_dropped");
    assert_eq!(bulk.documents().len() as u64 + dropped, all);
    // There is room again.
    expect_soon("the next event", || {
        server.get("/again");
        bulk.urls().contains(&"/again".to_string())
    });
}

#[test]
fn segments_that_are_cut_short_cost_what_they_had_and_no_more() {
    let bulk = Bulk::start(|_| Mood::Unavailable);
    let server = start(&bulk, CONF);
    get_all(&server, (0..20).map(|n| format!("/{n:02}")));
    expect_soon("what waits", || figure(&server, "queued_events") == 20);
    for file in std::fs::read_dir(server.dir().join("queue")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "seg") {
            std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
        }
    }
    bulk.set_mood(Mood::Good);
    // Those at hand are cut short, too: the first few find none.
    expect_soon("what comes after", || {
        server.get("/after");
        bulk.urls().contains(&"/after".to_string())
    });
    expect_soon("an empty queue", || figure(&server, "queued_bytes") == 0);
    assert!(figure(&server, "events_dropped") >= 20);
    let log = server.error_log();
    assert!(log.contains("was cut short by another program"), "{log}");
    assert!(!log.contains("exited on signal"), "{log}");
}

#[test]
fn a_reload_that_changes_the_receiver_sends_what_waits_to_the_new_one() {
    let (down, up) = (Bulk::start(|_| Mood::Down), Bulk::good());
    let mut server = start(&down, CONF);
    get_all(&server, (0..20).map(|n| format!("/{n:02}")));
    expect_soon("tries", || figure(&server, "retries") > 0);
    let conf = CONF.replace("%%BULK%%", &up.port().to_string());
    let conf = conf.replace("return 200 ok", "return 200 new");
    server.replace_conf(&conf);
    server.signal(Signal::Hup);
    expect_soon("the new configuration", || server.get("/late").text() == "new");
    let late = |url: &String| !url.starts_with("/late");
    expect_soon("all of it", || up.urls().into_iter().filter(late).count() == 20);
    assert!(down.documents().is_empty());
}

#[test]
fn a_receiver_that_is_taken_away_is_sent_what_it_has_to_get() {
    let bulk = Bulk::good();
    let mut server = start(&bulk, &CONF.replace("linger=20ms", "linger=300ms"));
    get_all(&server, (0..20).map(|n| format!("/{n:02}")));
    let conf = "worker_processes 2; error_log error.log info; events {}
        http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 new; } } }";
    server.replace_conf(conf);
    server.signal(Signal::Hup);
    expect_soon("the new configuration", || server.get("/").text() == "new");
    bulk.expect(20);
    expect_soon("an empty folder", || {
        let files = std::fs::read_dir(server.dir().join("queue")).unwrap();
        files.flatten().all(|f| f.path().extension().is_none_or(|e| e != "seg"))
    });
}

#[test]
fn quit_sends_what_is_left_and_term_leaves_it_for_the_next() {
    for (how, at_once) in [(Signal::Quit, true), (Signal::Term, false)] {
        let bulk = Bulk::good();
        let conf = CONF.replace("linger=20ms", "linger=60s");
        let mut server = start(&bulk, &conf);
        get_all(&server, (0..20).map(|n| format!("/{n:02}")));
        server.signal(how);
        server.wait_exit();
        assert_eq!(bulk.documents().len(), if at_once { 20 } else { 0 });
        let next = conf.replace("%%DIR%%", &server.dir().display().to_string());
        let _next = start(&bulk, &next.replace("linger=60s", "linger=20ms"));
        bulk.expect(20);
        assert_eq!((bulk.documents().len(), bulk.conflicts()), (20, 0));
    }
}

#[test]
fn an_upgrade_loses_and_doubles_nothing() {
    let bulk = Bulk::start(|n| if n % 3 == 0 { Mood::Dropped } else { Mood::Good });
    let conf = format!("daemon on; pid %%DIR%%/the.pid; {CONF}");
    let server = start(&bulk, &conf);
    let old = server.pid();
    get_all(&server, (0..100).map(|n| format!("/a{n:02}")));
    signal(old, Signal::Usr2);
    expect_soon("the new process", || {
        let pid = server.read("the.pid");
        pid.ends_with('\n') && pid.trim() != old.to_string()
    });
    get_all(&server, (0..100).map(|n| format!("/b{n:02}")));
    signal(old, Signal::Quit);
    expect_soon("its end", || !is_alive(old));
    get_all(&server, (0..100).map(|n| format!("/c{n:02}")));
    let mut expected = Vec::new();
    for letter in ["a", "b", "c"] {
        expected.extend((0..100).map(|n| format!("/{letter}{n:02}")));
    }
    expect_soon("all events", || bulk.documents().len() >= expected.len());
    assert_eq!(bulk.urls(), expected);
    let new = server.read("the.pid").trim().parse().unwrap();
    signal(new, Signal::Quit);
    expect_soon("the end", || !is_alive(new));
    assert_eq!(bulk.urls(), expected);
}

#[test]
fn lines_of_the_error_log_and_figures_are_events_too() {
    let bulk = Bulk::good();
    let conf = CONF.replace(
        "http {",
        "ship_errors es warn; ship_metrics es every=100ms; error_log error.log crit; http {",
    );
    let conf = conf.replace("location /quiet", "location /none { root %%DIR%%; } location /quiet");
    let server = start(&bulk, &conf.replace("error_log error.log info; events", "events"));
    assert_eq!(server.get("/none").status, 404);
    let of = |index: &str| {
        let all = bulk.documents().into_iter();
        all.filter(|d| d.index == index).map(|d| d.source).collect::<Vec<_>>()
    };
    expect_soon("an error", || !of("logs-nginx.error-default").is_empty());
    let error = &of("logs-nginx.error-default")[0];
    assert_eq!(error["log"]["level"], "error");
    let message = error["message"].as_str().unwrap();
    let none = format!("open() \"{}/none\" failed (2: ", server.dir().display());
    assert!(message.starts_with(&none), "{message}");
    assert!(message.contains("request: \"GET /none HTTP/1.1\""), "{message}");
    // Which the file is not told, whose level is graver.
    assert!(!server.error_log().contains("/none\" failed"));
    expect_soon("figures", || {
        of("metrics-nginx.metrics-default").iter().any(|d| {
            d["nginx"]["metrics"]["name"] == "a.test"
                && d["nginx"]["metrics"]["http_server_zones"]["requests"].as_u64() >= Some(1)
        })
    });
}

/// As nginx before a receiver does with more than `client_max_body_size`.
#[test]
fn what_is_too_much_at_once_comes_in_smaller_bulks() {
    let bulk = Bulk::start(|_| Mood::Unavailable);
    let server = start(&bulk, CONF);
    let long = "x".repeat(2000);
    get_all(&server, (0..60).map(|n| format!("/{n:02}{long}")));
    get_all(&server, std::iter::once(format!("/{}", long.repeat(3))));
    bulk.set_mood(Mood::AtMost(12_000));
    bulk.expect(60);
    expect_soon("the longest is refused", || {
        server.error_log().contains("an event was refused and is lost")
    });
    assert!(bulk.requests().len() > 20);
    get_all(&server, std::iter::once("/last".to_owned()));
    expect_soon("the last", || bulk.urls().contains(&"/last".to_owned()));
    assert_eq!(bulk.urls().len(), 61);
}

/// More of it than is read at once.
#[test]
fn words_about_each_event_hold_up_nothing() {
    let bulk = Bulk::start(|_| Mood::Unavailable);
    let server = start(&bulk, CONF);
    get_all(&server, (0..60).map(|n| format!("/{n}")));
    bulk.set_mood(Mood::Wordy(500_000));
    expect_soon("all are refused", || figure(&server, "events_refused") == 60);
    bulk.set_mood(Mood::Good);
    get_all(&server, std::iter::once("/last".to_owned()));
    bulk.expect(1);
}

/// A file system of its own, as small as it must be.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &std::path::Path) -> Option<Small> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=700k,mode=0777", "none"]).arg(at);
        let done = mount.stderr(std::process::Stdio::null()).status();
        done.is_ok_and(|status| status.success()).then(|| Small(at.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_events_and_nothing_else() {
    let bulk = Bulk::start(|_| Mood::Unavailable);
    let setup = Setup::new(&CONF.replace("%%DIR%%/queue", "%%DIR%%/small/queue"));
    let Some(small) = Small::mount(&setup.dir().join("small")) else {
        return weir_tests::skip("no file system can be mounted here");
    };
    let server = setup.set("BULK", bulk.port()).start();
    let long = "x".repeat(3000);
    let all = 400;
    get_all(&server, (0..all).map(|n| format!("/{n}/{long}")));
    expect_soon("dropped events", || figure(&server, "events_dropped") > 0);
    expect_soon("the line", || {
        let log = server.error_log();
        log.contains("ship \"es\": no room in \"") && log.contains("events were dropped")
    });
    bulk.set_mood(Mood::Good);
    expect_soon("each event is there or was counted as dropped", || {
        bulk.documents().len() as u64 + figure(&server, "events_dropped") == all
    });
    expect_soon("the next event", || {
        server.get("/again");
        bulk.urls().contains(&"/again".to_string())
    });
    drop(server);
    drop(small);
}

/// What a serving process of another user has left in the queue is its successor's.
#[test]
fn a_queue_goes_to_another_user() {
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) != 0 {
        return weir_tests::skip("only root has users to change to");
    }
    let bulk = Bulk::start(|_| Mood::Unavailable);
    let conf = |user: &str, turn: usize| {
        let turn = format!("location /turn {{ return 200 {turn}; }} location /quiet {{");
        let conf = CONF.replace("%%BULK%%", &bulk.port().to_string());
        format!("user {user}; {}", conf.replace("location /quiet {", &turn))
    };
    let mut server = start(&bulk, &conf("root", 0));
    get_all(&server, (0..20).map(|n| format!("/{n}")));
    let old = server.children()[0];
    let peer = server.on(0);
    server.reload(&conf("nobody nogroup", 1), || peer.get("/turn").text() == "1");
    expect_soon("the old process ends", || !is_alive(old));
    bulk.set_mood(Mood::Good);
    bulk.expect(20);
    assert!(!server.error_log().contains("denied"), "{}", server.error_log());
    expect_soon("an empty queue", || {
        server.get("/api/9/ship/es").text().contains("\"queued_events\":0")
    });
}
