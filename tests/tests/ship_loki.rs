//! `ship` to Loki: what is pushed, and that nothing is lost by what it answers.

use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_tests::tools::{self, Running};
use weir_tests::{
    expect_soon, free_port, listens_on, run_cli, signal, wait_for, Next, Origin, Peer, Setup,
    Signal,
};

const CONF: &str = "worker_processes 1; error_log error.log info; events {}
ship l { to loki http://127.0.0.1:%%LOKI%%/base; queue %%DIR%%/queue; batch events=10 linger=10ms;
    retry first=5ms most=20ms; tenant us; label job edge; label code field:http.response.status_code; }
http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; location / { ship_access l; return 200 ok; }
    location /none { ship_access l; return 404; } location /api { api; } } }";

/// Loki keeps a line of a stream and a time once.
#[test]
fn lines_are_pushed_until_they_are_there() {
    type Lines = BTreeSet<(String, String, String)>;
    let kept: Arc<Mutex<(usize, Lines)>> = Arc::default();
    let shared = Arc::clone(&kept);
    let loki = Origin::start(move |request, conn| {
        assert_eq!(request.line(), "POST /base/loki/api/v1/push HTTP/1.1");
        assert_eq!(request.header("X-Scope-OrgID"), Some("us"));
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        let mut body = Vec::new();
        GzDecoder::new(&request.body[..]).read_to_end(&mut body).unwrap();
        let push: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let mut kept = shared.lock().unwrap();
        kept.0 += 1;
        let mood = kept.0 % 5;
        match mood {
            1 => conn.reply("503 Down", "", "not now"),
            2 => conn.reply("429 Slow", "Retry-After: 0\r\n", "rate limit"),
            _ => {
                for stream in push["streams"].as_array().unwrap() {
                    let labels = stream["stream"].to_string();
                    for value in stream["values"].as_array().unwrap() {
                        let text = |n: usize| value[n].as_str().unwrap().to_owned();
                        kept.1.insert((labels.clone(), text(0), text(1)));
                    }
                }
                // Taken, and not answered.
                if mood == 3 {
                    return Next::Close;
                }
                conn.reply("204 No Content", "", "");
            }
        }
        Next::Keep
    });
    let server = Setup::new(CONF).set("LOKI", loki.port()).start();
    let mut client = server.connect();
    for n in 0..100 {
        assert_eq!(client.get(&format!("/{n}")).status, 200);
    }
    assert_eq!(client.get("/none").status, 404);
    expect_soon("all lines", || kept.lock().unwrap().1.len() >= 101);
    let state = || server.get("/api/9/ship/l").text();
    expect_soon("an empty queue", || state().contains("\"queued_bytes\":0"));
    let (_, lines) = &*kept.lock().unwrap();
    let mut urls = BTreeSet::new();
    for (labels, _, line) in lines {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let code = event["http"]["response"]["status_code"].to_string();
        assert_eq!(*labels, format!("{{\"code\":\"{code}\",\"job\":\"edge\"}}"));
        assert!(urls.insert(event["url"]["original"].to_string()), "{line}");
    }
    assert_eq!((lines.len(), urls.len()), (101, 101));
}

/// Lines that are too old are told and counted, the others are there.
#[test]
fn what_loki_will_not_have_is_counted() {
    let loki = Origin::start(|_, conn| {
        let words = "entry ignored, reason: 'entry too far behind', total ignored: 1 out of 1";
        conn.reply("400 Bad Request", "", words);
        Next::Keep
    });
    let server = Setup::new(CONF).set("LOKI", loki.port()).start();
    assert_eq!(server.get("/a").status, 200);
    server.expect_error("too far behind");
    let state = || server.get("/api/9/ship/l").text();
    expect_soon("a figure", || state().contains("\"events_refused\":1"));
}

#[test]
fn what_is_said_is_checked() {
    for (block, expected) in [
        ("to loki h;", "\"h\" is no address of a receiver"),
        ("to loki http://h; label a-b c;", "\"a-b\" cannot be a label's name"),
        ("to loki http://h; label a b; label a c;", "duplicate label \"a\""),
        ("to loki http://h; label a field:;", "a field without a name"),
        ("to loki http://h; tenant 'a b';", "a tenant has 1 to 150 printable characters"),
        ("to loki http://h; topic t;", "\"topic\" is not for receivers of kind \"loki\""),
    ] {
        let conf = format!("events {{}} ship a {{ queue q; {block} }} http {{}}");
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{block}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{block}: {}", output.stderr);
    }
}

/// As it begins to take pushes at once; it writes below the folder.
fn loki_conf(dir: &Path, [http, grpc]: [u16; 2]) -> String {
    let dir = dir.display();
    format!(
        "auth_enabled: false
server: {{http_listen_address: 127.0.0.1, http_listen_port: {http}, grpc_listen_address: 127.0.0.1, grpc_listen_port: {grpc}, log_level: warn}}
common:
  instance_addr: 127.0.0.1
  path_prefix: {dir}
  storage: {{filesystem: {{chunks_directory: {dir}/chunks, rules_directory: {dir}/rules}}}}
  replication_factor: 1
  ring: {{kvstore: {{store: inmemory}}}}
ingester: {{lifecycler: {{min_ready_duration: 0s}}}}
limits_config: {{max_line_size: 4KB, max_line_size_truncate: false}}
schema_config: {{configs: [{{from: 2020-10-24, store: tsdb, object_store: filesystem, schema: v13, index: {{prefix: index_, period: 24h}}}}]}}
analytics: {{reporting_enabled: false}}
"
    )
}

/// Runs until dropped; without it the test is skipped.
fn start_real(dir: &Path) -> Option<(Running, u16)> {
    let loki = tools::need("loki")?;
    let ports = [free_port(), free_port()];
    std::fs::create_dir_all(dir).unwrap();
    let conf = dir.join("loki.yaml");
    std::fs::write(&conf, loki_conf(dir, ports)).unwrap();
    let log = std::fs::File::create(dir.join("loki.log")).unwrap();
    let running = loki.start(|command| {
        command.arg(format!("-config.file={}", conf.display())).stderr(log);
    });
    let ready = || listens_on(ports[0]) && Peer::Tcp(ports[0]).get("/ready").status == 200;
    let up = wait_for(ready, Duration::from_secs(60));
    assert!(up, "{}", std::fs::read_to_string(dir.join("loki.log")).unwrap_or_default());
    Some((running, ports[0]))
}

/// URLs of all lines by the labels of their streams.
fn kept_by(loki: &Peer) -> Vec<(String, String)> {
    let response = loki.get("/loki/api/v1/query_range?query=%7Bjob%3D%22edge%22%7D&limit=5000");
    let answer: Value = serde_json::from_str(&response.text()).unwrap_or_default();
    let mut found = Vec::new();
    for stream in answer["data"]["result"].as_array().into_iter().flatten() {
        for value in stream["values"].as_array().into_iter().flatten() {
            let event: Value = serde_json::from_str(value[1].as_str().unwrap()).unwrap();
            let url = event["url"]["original"].as_str().unwrap_or_default().to_owned();
            found.push((stream["stream"]["code"].as_str().unwrap_or_default().to_owned(), url));
        }
    }
    found
}

/// Over kills of the serving process, each line once, and what is too long for it counted.
#[test]
fn the_real_loki_has_each_line_once() {
    let setup = Setup::new("");
    let dir = setup.dir().join("loki");
    let Some((_loki, port)) = start_real(&dir) else { return };
    let conf = format!("user root; {}", CONF.replace("/base", "").replace("tenant us;", ""));
    let server = Setup::new(&conf).set("LOKI", port).start();
    for round in 0..3 {
        let mut client = server.connect();
        for n in 0..60 {
            assert_eq!(client.get(&format!("/{round}/{n}")).status, 200);
        }
        assert_eq!(client.get(&format!("/none/{round}")).status, 404);
        // Behind it nothing of the others is left to be done.
        assert_eq!(client.get("/api/9/ship/l").status, 200);
        let old = server.children()[0];
        signal(old, Signal::Kill);
        expect_soon("a new process", || server.children().iter().any(|pid| *pid != old));
    }
    let long = "x".repeat(5000);
    assert_eq!(server.get(&format!("/long?{long}")).status, 200);
    assert_eq!(server.get("/last").status, 200);
    let loki = Peer::Tcp(port);
    expect_soon("all lines", || kept_by(&loki).len() > 3 * 61);
    let state = || server.get("/api/9/ship/l").text();
    expect_soon("an empty queue", || state().contains("\"queued_bytes\":0"));
    assert!(state().contains("\"events_refused\":1,"), "{}", state());
    server.expect_error("max entry size '4096' bytes exceeded");
    let kept = kept_by(&loki);
    let distinct: BTreeSet<_> = kept.iter().collect();
    assert_eq!((kept.len(), distinct.len()), (3 * 61 + 1, 3 * 61 + 1));
    assert!(kept
        .iter()
        .all(|(code, url)| code == if url.contains("none") { "404" } else { "200" }));
}
