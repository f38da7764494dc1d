//! Workers that share a listening socket take even shares of the connections.

use std::collections::HashSet;
use std::path::Path;
use weir_tests::{Client, Server};

const WORKERS: usize = 4;
const CONNECTIONS: usize = 400;

/// How many sockets each event loop of a process watches.
fn watched(pid: u32) -> Vec<usize> {
    let Ok(fds) = Path::new("/proc").join(pid.to_string()).join("fd").read_dir() else {
        return Vec::new();
    };
    let is_loop = |p: &Path| p.read_link().is_ok_and(|t| t.ends_with("anon_inode:[eventpoll]"));
    let loops = fds.flatten().map(|e| e.path()).filter(|p| is_loop(p));
    let info = loops.filter_map(|p| {
        let name = p.file_name()?.to_owned();
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("fdinfo").join(name))
            .ok()
    });
    // One that has two descriptors shows the same twice.
    let loops: HashSet<String> = info.filter(|text| text.contains("tfd:")).collect();
    loops.iter().map(|text| text.matches("tfd:").count()).collect()
}

#[test]
fn no_worker_holds_much_more_than_its_share() {
    let server = Server::start(
        "worker_processes 4; events { worker_connections 1000; } http {
            server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }",
    );
    let mut all: Vec<Client> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for c in &mut all {
        assert_eq!(c.get("/").text(), "ok");
    }
    let mut processes = server.children();
    processes.push(server.pid());
    let mut held: Vec<usize> = processes.into_iter().flat_map(watched).collect();
    held.sort_by_key(|n| std::cmp::Reverse(*n));
    held.truncate(WORKERS);
    println!("held: {held:?}");
    let fair = CONNECTIONS / WORKERS;
    assert!(held.iter().sum::<usize>() >= CONNECTIONS, "{held:?}");
    assert!(held.iter().all(|n| (fair * 6 / 10..fair * 14 / 10).contains(n)), "{held:?}");
}
