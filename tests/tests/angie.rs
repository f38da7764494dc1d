//! `api /status/;`: what is counted, as Angie's tree.

use weir_tests::{run_cli, Origin, Server, Setup};

fn server(origin: &Origin) -> Server {
    Setup::new(
        "worker_processes 1; events {} http { limit_req_zone $arg_k zone=lr:64k rate=1r/m; limit_conn_zone $arg_k zone=lc:64k;
            upstream twice { zone t 64k; server 127.0.0.1:1 weight=4; server 127.0.0.1:1 weight=5; server 127.0.0.1:2; server 127.0.0.1:1 backup; }
            upstream u { zone u 64k; server %%ORIGIN%% weight=2; server 127.0.0.1:1 backup max_conns=3; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name one;
                location / { status_zone all; limit_req zone=lr; limit_conn lc 1; proxy_pass http://u; }
                location /none { return 404; } }
            server { listen 127.0.0.1:%%PORT_0%%; server_name one/requests; location / { return 204; } }
            server { listen 127.0.0.1:%%PORT_1%%; server_name tree;
                location /status/ { api /status/; }
                location = /total { api /status/http/server_zones/one/requests/total; }
                location ~ ^/zones/([a-z]+)/(.+) { api /status/http/$1_zones/$2; } } }
        stream { server { listen 127.0.0.1:%%PORT_2%%; status_zone s; return hi; }
            server { listen 127.0.0.1:%%PORT_3%%; status_zone refused; deny all; return hi; } }",
    )
    .set("ORIGIN", origin.address())
    .start()
}

#[test]
fn the_tree_and_its_leaves() {
    let origin = Origin::echo();
    let server = server(&origin);
    for (path, status) in [("/", 200), ("/?k=a", 200), ("/?k=a", 503), ("/none", 404)] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    for port in [2, 3] {
        server.on(port).raw(b"");
    }
    let tree = server.on(1);
    for (path, expected) in [
        ("/total", "4"),
        // Where two names fit, the longer one that has it is meant.
        ("/status/http/server_zones/one/requests/processing", "0"),
        ("/status/http/server_zones/one/responses/", "{\"200\":2,\"404\":1,\"503\":1}"),
        ("/status/http/server_zones/one/requests/requests/total", "0"),
        ("/zones/location/all/requests/total", "3"),
        ("/status/http/location_zones/all/requests", "{\"total\":3,\"discarded\":0}"),
        (
            "/status/http/limit_reqs/lr",
            "{\"passed\":1,\"skipped\":1,\"rejected\":1,\"exhausted\":0,\"delayed\":0}",
        ),
        (
            "/status/http/limit_conns/lc",
            "{\"passed\":1,\"skipped\":1,\"rejected\":0,\"exhausted\":0}",
        ),
        ("/status/http/upstreams/u/zone", "\"u\""),
        ("/status/http/upstreams/u/peers/127.0.0.1:1/max_conns", "3"),
        ("/status/http/upstreams/u/peers/127.0.0.1:1/backup", "true"),
        ("/status/stream/server_zones/s/sessions/success", "1"),
        ("/status/stream/server_zones/refused/sessions/forbidden", "1"),
        ("/status/angie/generation", "1"),
        ("/status/http/upstreams/twice/peers/127.0.0.1:1/weight", "4"),
        ("/status/http/upstreams/twice/peers/127.0.0.1:1@2/weight", "5"),
        ("/status/http/upstreams/twice/peers/127.0.0.1:1@3/backup", "true"),
        ("/status/connections/dropped", "0"),
        ("/status/angie/address", "\"127.0.0.1\""),
    ] {
        let answer = tree.get(path);
        assert_eq!((answer.status, &*answer.text()), (200, expected), "{path}");
    }
    let peer = tree.get(&format!("/status/http/upstreams/u/peers/{}", origin.address())).text();
    for part in ["\"state\":\"up\"", "\"weight\":2", "\"total\":2", "\"200\":2", "\"fails\":0"] {
        assert!(peer.contains(part), "{part}: {peer}");
    }
    assert_eq!(tree.get("/status/slabs/lr/pages").status, 200);
    let loaded = tree.get("/status/angie/load_time").text();
    assert!(loaded.len() == 26 && loaded.ends_with("Z\""), "{loaded}");
    let seconds: u64 = tree.get("/status/angie/load_time?date=epoch").text().parse().unwrap();
    assert!(seconds > 1_700_000_000, "{seconds}");
}

#[test]
fn what_is_not_there_is_said_in_its_own_words() {
    let origin = Origin::echo();
    let server = server(&origin);
    let tree = server.on(1);
    let missing = tree.get("/status/http/x/");
    assert_eq!(missing.status, 404);
    assert_eq!(
        missing.text(),
        "{\"error\":\"PathNotFound\",\"description\":\"Requested API entity \\\"/status/http/x/\\\" doesn't exist.\"}"
    );
    let refused = tree.post("/status/", "x");
    assert_eq!(refused.status, 405);
    assert!(refused.text().contains("The POST method is not allowed"), "{}", refused.text());
    for (said, expected) in [
        ("api /config/;", "api write=on;"),
        ("api status;", "api /status/;"),
        ("api_config_files on;", "weir -T"),
    ] {
        let conf = format!("events {{}} http {{ server {{ location / {{ {said} }} }} }}");
        let out = run_cli(&["-t"], &conf);
        assert!(out.stderr.contains(expected), "{said}: {}", out.stderr);
    }
}
