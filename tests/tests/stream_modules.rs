//! What `stream` has of the modules that `http` has too: variables by tables, who may, how many at once.

use weir_tests::{run_cli, Peer, Setup};

/// What a server of `stream` answers with before it closes.
fn said(peer: &Peer) -> String {
    String::from_utf8_lossy(&peer.connect().read_to_end()).into_owned()
}

#[test]
fn values_are_looked_up_in_tables() {
    let server = Setup::new(
        "events {} stream {
            map $server_port:$remote_addr $mapped {
                default none;
                ~^\\d+:127\\.(?<rest>.*)$ rest=$rest;
            }
            map $remote_addr $named { 127.0.0.1 local; default far; }
            geo $net { 127.0.0.0/8 loopback; ::1 loopback6; default world; }
            geo $constant $of { 10.0.0.0/8 ten; default other; }
            map '' $constant { default 10.1.2.3; }
            geo $ranged { ranges; 127.0.0.0-127.0.0.9 low; default high; }
            split_clients $remote_addr $share { 100% all; }
            server { listen 127.0.0.1:%%PORT_0%%; listen [::1]:%%PORT_0%%;
                return $mapped,$named,$net,$of,$ranged,$share; }
        }",
    )
    .start();
    assert_eq!(said(&server.on(0)), "rest=0.0.1,local,loopback,ten,low,all");
    assert_eq!(said(&Peer::Tcp6(server.port(0))), "none,far,loopback6,ten,high,all");
}

#[test]
fn rules_are_inherited_and_keep_out() {
    let server = Setup::new(
        "events {} stream { error_log %%DIR%%/error.log; deny all;
            server { listen 127.0.0.1:%%PORT_0%%; return in; }
            server { listen 127.0.0.1:%%PORT_1%%; listen [::1]:%%PORT_1%%;
                allow 127.0.0.1; deny ::1; return in; }
            server { listen 127.0.0.1:%%PORT_2%%; deny 127.0.0.2; deny unix:; allow all; return in; }
        }",
    )
    .start();
    assert_eq!(said(&server.on(0)), "");
    assert_eq!(said(&server.on(1)), "in");
    assert_eq!(said(&Peer::Tcp6(server.port(1))), "");
    assert_eq!(said(&server.on(2)), "in");
    server.expect_error("access forbidden by rule while initializing session, client: 127.0.0.1");
}

#[test]
fn the_proxy_protocols_address_takes_the_place_of_a_trusted_ones() {
    let server = Setup::new(
        "events {} stream {
            server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; set_real_ip_from 127.0.0.0/8;
                deny 192.0.2.7;
                return $remote_addr,$remote_port,$realip_remote_addr; }
            server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; set_real_ip_from 10.0.0.0/8;
                return $remote_addr,$realip_remote_addr; }
        }",
    )
    .start();
    let raw = |n: usize, from: &str| {
        let text = server.on(n).raw(format!("PROXY TCP4 {from} 192.0.2.9 1234 80\r\n").as_bytes());
        String::from_utf8_lossy(&text).into_owned()
    };
    assert_eq!(raw(0, "192.0.2.1"), "192.0.2.1,1234,127.0.0.1");
    assert_eq!(raw(0, "192.0.2.7"), "");
    assert_eq!(raw(1, "192.0.2.1"), "127.0.0.1,127.0.0.1");
}

#[test]
fn a_directive_has_the_places_of_its_block() {
    for (conf, error) in [
        ("stream { server { map a $b { } } }", "\"map\" directive is not allowed here"),
        ("stream { map $remote_addr $b { a b c; } }", "invalid number of the map parameters"),
        ("stream { geo $a { proxy 127.0.0.1; } }", "invalid network \"proxy\""),
        ("stream { geo $a { proxy_recursive; } }", "invalid number of the geo parameters"),
        ("stream { real_ip_header X; }", "\"real_ip_header\" directive is not allowed here"),
        (
            "stream { limit_conn_status 500; }",
            "\"limit_conn_status\" directive is not allowed here",
        ),
        (
            "stream { limit_conn z 1; server { listen 127.0.0.1:1; return a; } }",
            "zero size shared memory zone \"z\"",
        ),
        (
            "http { limit_conn_zone $remote_addr zone=z:32k; }
             stream { limit_conn_zone $remote_addr zone=z:32k; }",
            "the shared memory zone \"z\" is already declared for a different use",
        ),
    ] {
        let out = run_cli(&["-t"], &format!("events {{}} {conf}"));
        assert!(out.stderr.contains(error), "{conf}: {}", out.stderr);
    }
}
