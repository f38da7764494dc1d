//! `stub_status json`: what modules report. (nginx takes any argument and shows what it always does.)

use weir_tests::{run_cli, Origin, Setup};

#[test]
fn all_that_modules_report() {
    let origin = Origin::echo();
    let server = Setup::new(
        "worker_processes 1; events {}
         http { limit_req_zone $uri zone=req:64k rate=1r/m; limit_conn_zone $uri zone=conn:64k;
            proxy_cache_path %%DIR%%/cache keys_zone=c:1m max_size=8m;
            upstream u { zone z 64k; server %%ORIGIN%% weight=3; server 127.0.0.1:1 down; server 127.0.0.1:2 backup; }
            upstream alone { server %%ORIGIN%%; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { limit_req zone=req burst=9 nodelay; limit_conn conn 9;
                    proxy_cache c; proxy_cache_valid 1h; proxy_pass http://u; }
                location /status { stub_status json; }
                location /plain { stub_status on; } } }
         stream { limit_conn_zone $remote_addr zone=of_stream:64k;
            server { listen 127.0.0.1:%%PORT_1%%; return ok; } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let before = server.get("/status");
    assert_eq!(before.header("Content-Type"), Some("application/json"));
    let is_there = |text: &str, what: &str| assert!(text.contains(what), "{what} in {text}");
    let empty = before.text();
    is_there(&empty, "\"connections\":{\"accepted\":");
    let req = |passed: u64, used: &str| {
        format!("\"req\":{{\"passed\":{passed},\"delayed\":0,\"rejected\":0,\"delayed_dry_run\":0,\"rejected_dry_run\":0,\"skipped\":0,\"exhausted\":0,\"size_bytes\":65536,\"used_bytes\":{used}")
    };
    is_there(&empty, &req(0, "0}"));
    is_there(&empty, "\"stream\":{");
    is_there(&empty, "\"of_stream\":{\"passed\":0,\"rejected\":0,\"rejected_dry_run\":0,\"skipped\":0,\"exhausted\":0,\"size_bytes\":65536,\"used_bytes\":0}");
    is_there(&empty, "\"c\":{\"size\":0,\"max_size\":8388608,\"cold\":");
    is_there(&empty, "\"alone\":{\"peers\":[{\"id\":0,");
    assert_eq!(server.get("/a").status, 200);
    let text = server.get("/status").text();
    is_there(&text, "\"miss\":{\"responses\":1,");
    is_there(&text, "\"responses_written\":1,");
    is_there(&text, "\"entries\":1,");
    is_there(&text, &req(1, ""));
    assert!(!text.contains(&req(1, "0}")), "{text}");
    let address = origin.address();
    for (server, more) in [
        (
            &address[..],
            "\"backup\":false,\"weight\":3,\"state\":\"up\",\"active\":0,\"requests\":1,",
        ),
        (
            "127.0.0.1:1",
            "\"backup\":false,\"weight\":1,\"state\":\"down\",\"active\":0,\"requests\":0,",
        ),
        (
            "127.0.0.1:2",
            "\"backup\":true,\"weight\":1,\"state\":\"up\",\"active\":0,\"requests\":0,",
        ),
    ] {
        is_there(&text, &format!("\"server\":\"{server}\",\"name\":\"{server}\",{more}"));
    }
    is_there(&text, "\"keepalive\":1,\"zombies\":0,\"zone\":\"z\"");
    assert!(server.get("/plain").text().starts_with("Active connections: "));
    assert_eq!(server.post("/status", "x").status, 405);
}

#[test]
fn it_is_a_content_handler_of_a_location() {
    let out = run_cli(&["-t"], "events {} http { stub_status json; }");
    assert!(out.stderr.contains("\"stub_status\" directive is not allowed here"), "{}", out.stderr);
}

#[test]
fn connections_that_were_accepted_and_handled() {
    let server = Setup::new(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 \"$connections_accepted $connections_handled\"; }
            location /status { stub_status; } } }",
    )
    .start();
    let mut client = server.connect();
    let text = client.get("/").text();
    let (accepted, handled) = text.split_once(' ').unwrap();
    let status = client.get("/status").text();
    assert!(status.contains(&format!("requests\n {accepted} {handled} ")), "{text}: {status}");
    assert_eq!(accepted, handled);
    let next = server.get("/").text();
    let more = (accepted.parse::<u64>().unwrap() + 1).to_string();
    assert_eq!(next, format!("{more} {more}"));
}
