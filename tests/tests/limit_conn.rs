//! Connections counted by key.

use weir_tests::{expect_soon, Next, Origin, Server, Setup};

/// An origin that answers when its connection's test lets go of the gate.
fn gated() -> (Origin, std::sync::mpsc::Sender<()>) {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::start(move |_, conn| {
        let _ = gate.lock().unwrap().recv_timeout(weir_tests::PATIENCE);
        conn.reply("200 OK", "", "done");
        Next::Keep
    });
    (origin, open)
}

fn start(origin: &Origin) -> Server {
    Setup::new(
        "events {} http { limit_conn_zone $arg_k zone=z:1m;
            log_format c '$limit_conn_status'; access_log %%DIR%%/access.log c;
            server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            location / { limit_conn z 1; proxy_pass http://%%ORIGIN%%; }
            location /429 { limit_conn z 1; limit_conn_status 429; proxy_pass http://%%ORIGIN%%; }
            location /dry { limit_conn z 1; limit_conn_dry_run on; return 200 'dry $limit_conn_status'; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .start()
}

#[test]
fn the_second_of_a_key_is_refused() {
    let (origin, open) = gated();
    let server = start(&origin);
    let mut first = server.connect();
    first.send_get("/?k=a");
    origin.expect_requests(1);
    assert_eq!(server.get("/?k=a").status, 503);
    assert_eq!(server.get("/429?k=a").status, 429);
    server.expect_error("limiting connections by zone \"z\"");
    let dry = server.get("/dry?k=a");
    assert_eq!((dry.status, dry.text().as_str()), (200, "dry "));
    open.send(()).unwrap();
    assert_eq!(first.response().status, 200);
    open.send(()).unwrap();
    expect_soon("the count goes down", || server.get("/?k=a").status == 200);
}

#[test]
fn other_keys_and_no_key_are_free() {
    let (origin, open) = gated();
    let server = start(&origin);
    let mut first = server.connect();
    first.send_get("/?k=a");
    origin.expect_requests(1);
    let mut others: Vec<_> = ["/?k=b", "/", "/"]
        .iter()
        .map(|path| {
            let mut client = server.connect();
            client.send_get(path);
            client
        })
        .collect();
    origin.expect_requests(4);
    for _ in 0..4 {
        open.send(()).unwrap();
    }
    assert_eq!(first.response().status, 200);
    assert!(others.iter_mut().all(|client| client.response().status == 200));
}
