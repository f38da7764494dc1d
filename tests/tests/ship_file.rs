//! `ship` to a file of JSON lines.

use serde_json::Value;
use weir_tests::{expect_soon, signal, Server, Setup, Signal};

const CONF: &str = "worker_processes 1; error_log error.log info; events {}
ship lines { to file %%DIR%%/out/lines.json; queue %%DIR%%/queue size=1m; batch linger=10ms;
    retry first=5ms most=20ms; }
http { access_log off; server { listen 127.0.0.1:%%PORT_0%%;
    location / { ship_access lines; return 200 ok; }
    location /quiet { return 204; } } }";

fn start() -> Server {
    start_with(CONF)
}

fn start_with(conf: &str) -> Server {
    let setup = Setup::new(conf).file("out/lines.json", "");
    // Workers write it as their own user.
    for path in ["out", "out/lines.json"] {
        let path = setup.dir().join(path);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).unwrap();
    }
    setup.start()
}

fn urls(server: &Server) -> Vec<String> {
    let text = server.read("out/lines.json");
    let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
    let url = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        value["url"]["original"].as_str().unwrap().to_owned()
    };
    let mut urls: Vec<String> = whole.map(url).collect();
    urls.sort();
    urls
}

#[test]
fn each_request_is_a_line_also_over_kills() {
    let server = start();
    let mut expected = Vec::new();
    for round in 0..3 {
        let mut client = server.connect();
        for n in 0..50 {
            let url = format!("/{round}/{n:02}");
            assert_eq!(client.get(&url).status, 200);
            expected.push(url);
        }
        client.get("/quiet");
        if let [serving] = server.children()[..] {
            signal(serving, Signal::Kill);
            expect_soon("the next process", || {
                server.children().first().is_some_and(|next| *next != serving)
            });
        }
    }
    expect_soon("all lines", || urls(&server).len() >= expected.len());
    assert_eq!(urls(&server), expected);
}

#[test]
fn a_file_that_was_renamed_is_made_anew() {
    let server = start();
    server.get("/one");
    expect_soon("the first", || urls(&server) == ["/one"]);
    let path = server.dir().join("out/lines.json");
    std::fs::rename(&path, path.with_extension("1")).unwrap();
    server.get("/two");
    expect_soon("the second", || path.exists() && urls(&server) == ["/two"]);
}

/// Ten looks, a tenth of a second apart.
#[test]
fn figures_come_as_often_as_they_are_to() {
    let server = start_with(&CONF.replace("http {", "ship_metrics lines every=100ms; http {"));
    let times = || {
        let text = server.read("out/lines.json");
        let sets = text.lines().filter(|l| l.contains("\"metricset\":{\"name\":\"server\""));
        sets.map(|l| l.split('"').nth(3).unwrap().to_owned()).collect::<Vec<_>>()
    };
    expect_soon("ten looks", || times().len() >= 10);
    let ms = |stamp: &str| {
        let (rest, ms) = stamp.trim_end_matches('Z').rsplit_once('.').unwrap();
        let of_day = rest.split('T').nth(1).unwrap().split(':');
        let secs = of_day.fold(0, |all, part| all * 60 + part.parse::<u64>().unwrap());
        secs * 1000 + ms.parse::<u64>().unwrap()
    };
    let times = times();
    let took = (ms(&times[9]) + 86_400_000 - ms(&times[0])) % 86_400_000;
    assert!((800..6000).contains(&took), "{took} ms for nine times a tenth of a second");
}
