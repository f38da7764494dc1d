//! The counters of connections and requests.

use weir_tests::Server;

#[test]
fn connections_and_requests_are_counted() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /status { stub_status; }
            location /vars { return 200 '$connections_active $connections_waiting'; }
            location / { return 200 ok; } } }",
    );
    let mut client = server.connect();
    client.get("/");
    client.get("/");
    let response = client.get("/status");
    assert_eq!(response.header("Content-Type"), Some("text/plain"));
    assert_eq!(
        response.text(),
        "Active connections: 1 \nserver accepts handled requests\n 1 1 3 \n\
         Reading: 0 Writing: 1 Waiting: 0 \n"
    );
    let _idle = server.connect().get("/");
    let mut second = server.connect();
    assert!(second.get("/status").text().contains("\n 3 3 5 \n"));
    assert_eq!(server.post("/status", "x").status, 405);
    assert_eq!(server.head("/status").status, 200);
}
