//! What a connection takes along when it is handed to another socket by `pass`.

use weir_tests::{expect_soon, Client, Server, Setup};

const HEADER: &str = "PROXY TCP4 198.51.100.7 203.0.113.9 4444 443\r\n";

fn text(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

/// What is answered when the header is there first, and when all comes at once.
fn said(server: &Server, port: usize, sent: &str) -> String {
    let mut apart = server.on(port).connect();
    apart.send(HEADER.as_bytes());
    std::thread::yield_now();
    apart.send(sent.as_bytes());
    let apart = text(&mut apart);
    let mut at_once = server.on(port).connect();
    at_once.send(format!("{HEADER}{sent}").as_bytes());
    assert_eq!(text(&mut at_once), apart);
    apart
}

/// The address that is found for a session is the connection's: what is behind `pass` sees it too.
#[test]
fn the_clients_address_goes_with_the_connection() {
    let server = Setup::new(
        "events {} http {
            log_format h '$remote_addr $status'; access_log %%DIR%%/h.log h;
            server { listen 127.0.0.1:%%PORT_1%%;
                location / { return 200 \"$remote_addr:$remote_port $realip_remote_addr $proxy_protocol_addr\"; }
                location /denied { deny 198.51.100.0/24; root /; } } }
        stream {
            server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; set_real_ip_from 127.0.0.1;
                pass 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_2%% proxy_protocol; set_real_ip_from 127.0.0.1;
                pass 127.0.0.1:%%PORT_3%%; }
            server { listen 127.0.0.1:%%PORT_3%%; deny 198.51.100.8;
                return \"$remote_addr:$remote_port $realip_remote_addr\"; }
            server { listen 127.0.0.1:%%PORT_4%% proxy_protocol; set_real_ip_from 127.0.0.1;
                pass 127.0.0.1:%%PORT_5%%; }
            server { listen 127.0.0.1:%%PORT_5%% proxy_protocol; set_real_ip_from 198.51.100.7;
                pass 127.0.0.1:%%PORT_3%%; }
        }",
    )
    .start();
    let seen = said(&server, 0, "GET / HTTP/1.0\r\n\r\n");
    assert!(seen.ends_with("198.51.100.7:4444 198.51.100.7 198.51.100.7"), "{seen}");
    let denied = said(&server, 0, "GET /denied HTTP/1.0\r\n\r\n");
    assert!(denied.starts_with("HTTP/1.1 403"), "{denied}");
    let logged = server.log_lines("h.log", 4);
    assert!(logged.iter().all(|line| line.starts_with("198.51.100.7 ")), "{logged:?}");
    assert_eq!(said(&server, 2, ""), "198.51.100.7:4444 198.51.100.7");
    // A further header, and a further proxy that is trusted.
    let second = |from: &str| said(&server, 4, &format!("PROXY TCP4 {from} 203.0.113.9 5 443\r\n"));
    assert_eq!(second("198.51.100.9"), "198.51.100.9:5 198.51.100.9");
    assert_eq!(second("198.51.100.8"), "");
}

/// A place that is counted is given back when the connection ends, not when it is handed on.
#[test]
fn connections_that_were_handed_on_are_counted() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_1%%; return 200 http; } }
        stream {
            limit_conn_zone $binary_remote_addr zone=one:32k;
            server { listen 127.0.0.1:%%PORT_0%%; limit_conn one 1; pass 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_2%%; limit_conn one 1; pass 127.0.0.1:%%PORT_3%%; }
            server { listen 127.0.0.1:%%PORT_3%%; pass 127.0.0.1:%%PORT_1%%; }
        }",
    )
    .start();
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for port in [0, 2] {
        let is_free = || server.on(port).raw(ask).starts_with(b"HTTP/1.1 200");
        expect_soon("a place", is_free);
        let mut first = server.on(port).connect();
        expect_soon("the place", || {
            first.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let has = first.read_until(b"http").ends_with(b"http");
            if !has {
                first = server.on(port).connect();
            }
            has
        });
        assert_eq!(first.get("/").text(), "http");
        assert_eq!(server.on(port).raw(ask), b"");
        drop(first);
        expect_soon("the place that is given back", is_free);
    }
}

/// What comes right behind a PROXY header is the next one's, and is counted.
#[test]
fn bytes_behind_a_header_stay_in_the_socket() {
    let server = Setup::new(
        "events {} stream {
            log_format bytes '$bytes_received $bytes_sent'; access_log %%DIR%%/bytes.log bytes;
            server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; proxy_pass 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; access_log off;
                return $proxy_protocol_addr; }
            server { listen 127.0.0.1:%%PORT_2%% proxy_protocol; ssl_preread on;
                return \"$proxy_protocol_addr $bytes_received\"; }
        }",
    )
    .start();
    assert_eq!(said(&server, 0, HEADER), "198.51.100.7");
    let counted = format!("{} 12", HEADER.len());
    assert_eq!(server.log_lines("bytes.log", 2), [&counted[..]; 2]);
    // Looked at only.
    assert_eq!(said(&server, 2, "plain"), "198.51.100.7 0");
}
