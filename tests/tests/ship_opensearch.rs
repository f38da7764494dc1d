//! `ship` to a real OpenSearch, one node of it in a process of its own.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_tests::{binary, expect_soon, free_port, signal, tools, Peer, Server, Setup, Signal};

const CONF: &str = "worker_processes 2; error_log error.log info; pid the.pid; events {}
ship os { to opensearch http://127.0.0.1:%%NODE%%; queue %%DIR%%/queue size=8m; batch linger=20ms;
    retry first=5ms most=50ms; namespace test; }
ship_errors os error; ship_metrics os every=200ms;
http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
    location / { ship_access os; return 200 ok; }
    location /none { root /nowhere; }
    location /quiet { return 204; } } }";

/// Much longer than it takes; a machine that others use has seen half of it.
const START: Duration = Duration::from_secs(120);

struct Node {
    child: Child,
    http: Peer,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(home: &Path) -> Option<Node> {
        let (java, classes) = tools::need_jars("opensearch")?;
        std::fs::create_dir_all(home.join("config")).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/OpenSearchNode.java");
        let (http, transport) = (free_port(), free_port());
        let log = std::fs::File::create(home.join("log")).unwrap();
        let mut child = java
            .command()
            .args(["-Xms256m", "-Xmx512m", "-cp", &classes])
            .arg(source)
            .arg(home)
            .args([http.to_string(), transport.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("java starts");
        let stdout = child.stdout.take().unwrap();
        // From here on it ends with the test.
        let node = Node { child, http: Peer::Tcp(http) };
        let lines = BufReader::new(stdout).lines();
        let begun = Instant::now();
        let mut said = Vec::new();
        for line in lines.map_while(Result::ok) {
            if line == "started" {
                return Some(node);
            }
            said.push(line);
            if begun.elapsed() > START {
                break;
            }
        }
        let errors = std::fs::read_to_string(home.join("log")).unwrap_or_default();
        panic!("the node does not start: {}\n{errors}", said.join("\n"));
    }

    fn ask(&self, path: &str) -> Value {
        let text = self.http.get(path).text();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"))
    }

    fn count(&self, stream: &str) -> u64 {
        self.http.get("/_refresh");
        self.ask(&format!("/{stream}/_count"))["count"].as_u64().unwrap_or(0)
    }
}

fn weir(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.args(words).arg("-p").arg(server.dir()).arg("-c").arg(server.dir().join("nginx.conf"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn events_of_all_kinds_are_in_their_data_streams_once() {
    let setup = Setup::new(CONF);
    let home = setup.dir().join("node");
    std::fs::create_dir_all(&home).unwrap();
    let Some(node) = Node::start(&home) else { return };
    let Peer::Tcp(port) = node.http else { return };
    // As Elastic's integration has it, for agents that write to other namespaces.
    let theirs =
        "{\"index_patterns\":[\"logs-nginx.access-*\"],\"priority\":200,\"data_stream\":{},\
        \"template\":{\"settings\":{\"index.default_pipeline\":\"theirs\"}}}";
    assert_eq!(put(&node, "/_index_template/logs-nginx.access", theirs), 200);
    // The templates are there before the first event.
    let done = {
        let conf = setup.dir().join("install.conf");
        let text = CONF.replace("%%NODE%%", &port.to_string()).replace("%%DIR%%", "/tmp");
        std::fs::write(&conf, text.replace("%%PORT_0%%", "1")).unwrap();
        let mut command = Command::new(binary());
        command.args(["ship", "install", "os", "-p"]).arg(setup.dir()).arg("-c").arg(conf);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(done.contains("index template weir-logs-test is in place"), "{done}");
    assert!(done.contains("note: there is an index template logs-nginx.access"), "{done}");
    let server = setup.set("NODE", port).start();
    for round in 0..3 {
        let mut client = server.connect();
        (0..100).for_each(|n| assert_eq!(client.get(&format!("/{round}/{n}")).status, 200));
        client.get("/none");
        client.get("/quiet");
        if let ([serving], true) = (&server.children()[..], round < 2) {
            signal(*serving, Signal::Kill);
            expect_soon("the next", || server.children().first().is_some_and(|c| c != serving));
        }
    }
    expect_soon("all requests", || node.count("logs-nginx.access-test") >= 300);
    expect_soon("all errors", || node.count("logs-nginx.error-test") >= 3);
    expect_soon("figures", || node.count("metrics-nginx.metrics-test") > 0);
    assert_eq!(node.count("logs-nginx.access-test"), 300);
    let streams = node.ask("/_data_stream");
    let names: Vec<&str> = streams["data_streams"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| s["name"].as_str())
        .collect();
    for name in ["logs-nginx.access-test", "logs-nginx.error-test", "metrics-nginx.metrics-test"] {
        assert!(names.contains(&name), "{names:?}");
    }
    // The template's types are in force: a network finds the address.
    let found = node.ask("/logs-nginx.access-test/_search?q=source.ip:%22127.0.0.0/8%22&size=0");
    assert_eq!(found["hits"]["total"]["value"], 300);
    let found = node.ask("/logs-nginx.access-test/_search?q=related.ip:%22127.0.0.0/8%22&size=0");
    assert_eq!(found["hits"]["total"]["value"], 300);
    // Agents' streams are theirs still.
    let path = "/_index_template/_simulate_index/logs-nginx.access-agents";
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    let simulated = node.http.exchange("POST", head.as_bytes()).text();
    assert!(simulated.contains("\"default_pipeline\":\"theirs\""), "{simulated}");
    wait_for_a_pipeline(&node, port);
    let status = weir(&server, &["ship", "status"]);
    assert!(status.starts_with("os\n  kind             opensearch\n"), "{status}");
    assert!(weir(&server, &["ship", "status", "--json"]).contains("\"events_refused\":0"));
}

fn put(node: &Node, path: &str, body: &str) -> u16 {
    let head = format!("PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    let fields =
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    node.http.exchange("PUT", [&head, &fields, body].concat().as_bytes()).status
}

/// Events wait for an ingest pipeline that nobody has made yet: none is refused.
fn wait_for_a_pipeline(node: &Node, port: u16) {
    let conf = CONF
        .replace("namespace test;", "namespace later; pipeline later;")
        .replace("ship_metrics os every=200ms;", "");
    let server = Setup::new(&conf).set("NODE", port).start();
    (0..5).for_each(|n| assert_eq!(server.get(&format!("/{n}")).status, 200));
    server.expect_error("pipeline with id [later] does not exist");
    assert_eq!(put(node, "/_ingest/pipeline/later", "{\"processors\":[]}"), 200);
    expect_soon("all of them", || node.count("logs-nginx.access-later") == 5);
}
