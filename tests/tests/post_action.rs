//! post_action: what is done once a request has been answered.

use weir_tests::h2::H2;
use weir_tests::{Next, Origin, Setup};

const CONF: &str = "events {} http { log_format f '$uri $status'; access_log %%DIR%%/log f;
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    location / { post_action @done; }
    location /uri { post_action /gone; return 200 uri; }
    location = /gone { return 404; }
    location @done { proxy_pass http://%%ORIGIN%%/done?$uri,$status,$body_bytes_sent; } } }";

fn origin() -> Origin {
    Origin::start(|_, conn| {
        conn.reply("200 OK", "", "nobody sees it");
        Next::Keep
    })
}

#[test]
fn it_knows_how_the_request_went() {
    let origin = origin();
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).file("a", "content").start();
    let mut client = server.on(0).connect();
    assert_eq!(client.get("/a").text(), "content");
    assert_eq!(client.get("/uri").text(), "uri", "the connection is kept");
    assert_eq!(server.on(0).get("/no").status, 404);
    origin.expect_requests(2);
    let seen: Vec<_> = origin.requests().iter().map(|r| r.target().to_string()).collect();
    assert_eq!(seen[0], "/done?/a,200,7");
    assert!(seen[1].starts_with("/done?/no,404,"), "{}", seen[1]);
    let lines = server.log_lines("log", 3);
    assert!(lines[0].starts_with("/a ") && lines[1].starts_with("/gone "), "{lines:?}");
}

#[test]
fn it_is_done_for_a_client_that_has_gone_and_over_http2() {
    let origin = origin();
    let conf = CONF.replace("http {", "http { http2 on;");
    let server = Setup::new(&conf).set("ORIGIN", origin.address()).file("a", "content").start();
    let mut client = server.on(0).connect();
    client.send(b"GET /a HTTP/1.0\r\n\r\n");
    drop(client);
    origin.expect_requests(1);
    assert_eq!(H2::connect(&server).fetch("/a").text(), "content");
    origin.expect_requests(2);
}
