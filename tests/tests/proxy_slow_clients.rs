//! A client that does not read holds no server: what it has not taken waits in a temporary file,
//! whatever the filters do with it.

use std::io::{Read, Write};
use std::sync::mpsc;
use weir_tests::h2::H2;
use weir_tests::{skip, Client, Next, Origin, Server, Setup, PATIENCE};

/// More than the sockets between take.
const BODY_BYTES: usize = 7 * 1024 * 1024;

/// Text that can hardly be compressed.
fn text() -> Vec<u8> {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut text = Vec::with_capacity(BODY_BYTES);
    while text.len() < BODY_BYTES {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        text.extend(seed.to_le_bytes().map(|b| b'?' + b % 64));
    }
    text
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    z.write_all(text).unwrap();
    z.finish().unwrap()
}

/// An origin that tells when it is rid of its answer.
fn origin(body: Vec<u8>, field: &'static str) -> (Origin, mpsc::Receiver<()>) {
    let (done, is_done) = mpsc::channel();
    let origin = Origin::start(move |_, conn| {
        let len = body.len();
        let kind = "Content-Type: text/html";
        conn.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{kind}\r\n{field}\r\n"));
        conn.write(&body);
        conn.wait_closed();
        let _ = done.send(());
        Next::Close
    });
    (origin, is_done)
}

fn start(origin: &Origin, http: &str, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ {http} gzip_http_version 1.0; gzip_proxied any;
            charset_map koi8-r utf-8 {{ C0 D18E; }}
            proxy_cache_path %%DIR%%/cache keys_zone=z:1m; error_log %%DIR%%/error.log error;
            server {{ listen 127.0.0.1:%%PORT_0%%; http2 on;
                location / {{ {location} proxy_pass http://%%ORIGIN%%; }} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

fn asking(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    client
}

fn body_of(client: &mut Client) -> Vec<u8> {
    client.read_until(b"\r\n\r\n");
    client.read_to_end()
}

/// A call for each 8 KB, as nginx has them, costs more than the copying.
#[test]
fn the_file_is_written_in_large_pieces() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx writes two buffers at once");
    }
    let (origin, is_done) = origin(text(), "");
    for (more, pieces) in [("", 0..600), ("proxy_temp_file_write_size 8k;", 800..10_000)] {
        let server = start(&origin, "", &format!("limit_rate 64k; {more}"));
        let before = server.write_calls();
        let _client = asking(&server);
        is_done.recv_timeout(PATIENCE).expect("the server has its answer taken");
        let (Some(before), Some(after)) = (before, server.write_calls()) else {
            return skip("the system has no /proc/PID/io");
        };
        assert!(pieces.contains(&(after - before)), "{more} {}", after - before);
    }
}

#[test]
fn filters_do_not_hold_the_server() {
    let text = text();
    for location in [
        "",
        "sub_filter nowhere x;",
        "ssi on;",
        "source_charset utf-8; charset koi8-r;",
        "sub_filter nowhere x; proxy_cache z; proxy_cache_valid 1m;",
        "limit_rate 500m;",
    ] {
        let (origin, is_done) = origin(text.clone(), "");
        let server = start(&origin, "", location);
        let mut client = asking(&server);
        is_done.recv_timeout(PATIENCE * 2).unwrap_or_else(|_| panic!("held: {location}"));
        assert!(body_of(&mut client) == text, "{location}");
    }
}

#[test]
fn compression_does_not_hold_the_server() {
    let text = text();
    let (plain, is_done) = origin(text.clone(), "");
    let server = start(&plain, "gzip on;", "");
    let mut client = asking(&server);
    is_done.recv_timeout(PATIENCE * 2).expect("it is not held by gzip");
    let mut unpacked = Vec::new();
    let got = body_of(&mut client);
    flate2::read::GzDecoder::new(&got[..]).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == text);

    let (gzip, is_done) = origin(packed(&text), "Content-Encoding: gzip\r\n");
    let server = start(&gzip, "gunzip on;", "");
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    is_done.recv_timeout(PATIENCE * 2).expect("it is not held by gunzip");
    assert!(body_of(&mut client) == text);
}

#[test]
fn streams_do_not_hold_the_server() {
    let text = text();
    for location in ["", "sub_filter nowhere x;"] {
        let (origin, is_done) = origin(text.clone(), "");
        let server = start(&origin, "", location);
        let mut client = H2::connect(&server);
        let stream = client.get("/");
        is_done.recv_timeout(PATIENCE * 2).unwrap_or_else(|_| panic!("held: {location}"));
        assert!(client.answer(stream).body == text, "{location}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_passed_on_as_far_as_it_came() {
    let text = text();
    let said = text.clone();
    let origin = Origin::start(move |_, conn| {
        let len = said.len() + 1;
        let kind = "Content-Type: text/html";
        conn.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{kind}\r\n\r\n"));
        conn.write(&said);
        Next::Close
    });
    let server = start(&origin, "", "sub_filter nowhere x;");
    let mut client = asking(&server);
    server.expect_error("upstream prematurely closed connection while reading upstream");
    assert!(body_of(&mut client) == text);
}
