//! The harness itself: placeholders, files, pipelining, an origin.

use weir_tests::{Origin, Server, Setup};

#[test]
fn a_server_answers_and_its_files_are_read() {
    let server =
        Setup::new("events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }")
            .file("html/a.txt", "hello")
            .start();
    let response = server.get("/a.txt");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    let mut client = server.connect();
    client.send_get("/a.txt");
    client.send_get("/none");
    assert_eq!(client.response().text(), "hello");
    assert_eq!(client.response().status, 404);
}

#[test]
fn an_origin_echoes() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    assert!(server.post("/x", "body").text().ends_with("\r\n\r\nbody"));
    assert_eq!(origin.only_request().line(), "POST /x HTTP/1.1");
}

#[test]
fn two_servers_do_not_meet() {
    let conf =
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 $server_port; } }";
    let (a, b) = (Server::start(conf), Server::start(conf));
    assert_ne!(a.get("/").text(), b.get("/").text());
}
