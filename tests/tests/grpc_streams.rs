//! gRPC: both bodies at once, trailers, and answers without a body.

use weir_tests::h2::{self, H2};
use weir_tests::{Conn, Origin, Server, Setup};
use weir_wire::http2::frame;

fn frame_of(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&frame::head(payload.len(), kind, flags, 1)[..], payload].concat()
}

fn head(fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    frame_of(frame::HEADERS, frame::END_HEADERS | flags, &h2::block(fields))
}

fn start(script: impl Fn(&mut Conn) + Send + Sync + 'static) -> (Origin, Server) {
    let origin = Origin::start_raw(move |conn, _| {
        conn.read_until(h2::PREFACE);
        let mut out = Vec::new();
        frame::settings(&[], &mut out);
        conn.write(out);
        script(conn);
        conn.wait_closed();
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; http2 on;
            location / { grpc_pass grpc://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    (origin, server)
}

#[test]
fn both_sides_speak_in_turns() {
    let (_origin, server) = start(|conn| {
        conn.write(head(&[(":status", "200"), ("content-type", "application/grpc")], 0));
        for word in ["one", "two"] {
            conn.read_until(word.as_bytes()).unwrap();
            conn.write(frame_of(frame::DATA, 0, format!("got {word}").as_bytes()));
        }
        conn.write(head(&[("grpc-status", "0")], frame::END_STREAM));
    });
    let mut client = H2::connect(&server);
    let fields = [&h2::request("POST", "/")[..], &[("te", "trailers")]].concat();
    let stream = client.open(&fields, false);
    client.expect(frame::HEADERS);
    for word in ["one", "two"] {
        client.send(frame::DATA, 0, stream, word.as_bytes());
        let said = client.expect(frame::DATA);
        assert_eq!(said.payload, format!("got {word}").as_bytes());
    }
    assert!(client.expect(frame::HEADERS).ends_stream());
    assert!(server.error_log().is_empty(), "{}", server.error_log());
}

#[test]
fn an_error_without_a_body_is_one_frame() {
    let (_origin, server) = start(|conn| {
        conn.write(head(&[(":status", "200"), ("grpc-status", "12")], frame::END_STREAM));
    });
    let mut client = H2::connect(&server);
    let stream = client.post("/", "x");
    let answer = client.expect(frame::HEADERS);
    assert!(answer.ends_stream() && answer.stream == stream);
}

#[test]
fn a_server_that_refuses_is_a_bad_gateway() {
    let (_origin, server) = start(|conn| {
        conn.write(frame_of(frame::RST_STREAM, 0, &7_u32.to_be_bytes()));
    });
    assert_eq!(server.get("/").status, 502);
    server.expect_error("upstream rejected request with error 7");
}
