//! `ship_access` in `stream` and `mail`: a session that is over is an event.

use serde_json::{json, Value};
use weir_tests::mail::{self, plain, Backend, Line};
use weir_tests::{expect_soon, run_cli, Origin, Server, Setup};

const HEAD: &str = "worker_processes 1; events {}
ship lines { to file %%DIR%%/out/lines.json; queue %%DIR%%/queue size=1m; batch linger=10ms; }";

fn start(conf: &str) -> Server {
    let setup = Setup::new(&format!("{HEAD} {conf}")).file("out/lines.json", "");
    // Workers write it as their own user.
    for path in ["out", "out/lines.json"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(setup.dir().join(path), mode).unwrap();
    }
    setup.start()
}

/// The first so many events, in the order in which sessions ended.
#[track_caller]
fn events(server: &Server, n: usize) -> Vec<Value> {
    let lines = || {
        let text = server.read("out/lines.json");
        let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        whole.map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<Value>>()
    };
    expect_soon("so many events", || lines().len() >= n);
    let lines = lines();
    assert_eq!(lines.len(), n, "{lines:?}");
    lines
}

#[test]
fn sessions_of_stream() {
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"ping\n");
        conn.write("four");
    });
    let server = start(&format!(
        "stream {{ ship_access lines; map $server_port $wanted {{ default 1; %%PORT_3%% 0; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; server_name a.test; proxy_pass {}; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; deny all; return x; }}
            server {{ listen 127.0.0.1:%%PORT_2%%; ship_access off; return off; }}
            server {{ listen 127.0.0.1:%%PORT_3%%; ship_access lines if=$wanted; return if; }} }}",
        origin.address()
    ));
    let mut client = server.on(0).connect();
    let own = client.local_port();
    client.send(b"ping\n");
    assert_eq!(client.read_to_end(), b"four");
    let event = events(&server, 1).remove(0);
    let source = json!({"address": "127.0.0.1", "ip": "127.0.0.1", "port": own, "bytes": 5});
    assert_eq!(event["source"], source);
    let port = server.port(0);
    let local = json!({"address": "127.0.0.1", "ip": "127.0.0.1", "port": port, "bytes": 4});
    assert_eq!(event["destination"], local);
    assert_eq!(event["network"], json!({"transport": "tcp", "bytes": 9}));
    assert_eq!(event["event"]["outcome"], "success");
    assert_eq!(event["event"]["dataset"], "nginx.session");
    assert_eq!(event["data_stream"]["dataset"], "nginx.session");
    assert!(event["event"]["duration"].as_u64().unwrap() > 0, "{event}");
    let session = &event["nginx"]["session"];
    assert_eq!((&session["block"], &session["status"]), (&json!("stream"), &json!("200")));
    assert_eq!(session["server_name"], "a.test");
    let upstream = &session["upstream"];
    assert_eq!(upstream["address"], origin.address());
    assert_eq!((&upstream["bytes_sent"], &upstream["bytes_received"]), (&json!(5), &json!(4)));
    assert!(upstream["connect_duration"].is_u64(), "{upstream}");

    for n in [2, 3, 1] {
        server.on(n).connect().read_to_end();
    }
    let refused = events(&server, 2).remove(1);
    assert_eq!(refused["nginx"]["session"]["status"], "403");
    assert_eq!(refused["event"]["outcome"], "failure");
}

#[test]
fn sessions_of_datagrams() {
    let server = start(
        "stream { server { listen 127.0.0.1:%%PORT_0%% udp; ship_access lines; return four; } }",
    );
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"ping\n", ("127.0.0.1", server.port(0))).unwrap();
    let mut room = [0; 16];
    assert_eq!(socket.recv(&mut room).unwrap(), 4);
    let event = events(&server, 1).remove(0);
    assert_eq!(event["network"], json!({"transport": "udp", "bytes": 9}));
    assert_eq!(event["destination"]["port"], server.port(0));
    assert_eq!(event["source"]["port"], socket.local_addr().unwrap().port());
}

fn mail_conf(auth: &Origin) -> String {
    format!(
        "mail {{ server_name mail.test; auth_http {}/auth; ship_access lines;
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; protocol smtp; timeout 200ms; }}
            server {{ listen 127.0.0.1:%%PORT_2%%; protocol pop3; ship_access off; }} }}",
        auth.address()
    )
}

#[test]
fn sessions_of_mail() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = start(&mail_conf(&auth));
    Line::on(&server, 2).say("QUIT");
    let mut client = Line::on(&server, 0);
    for line in ["USER me@mail.test", "PASS secret"] {
        assert_eq!(client.say(line), "+OK");
    }
    assert_eq!(client.say("NOOP"), "+OK NOOP");
    client.send("QUIT\r\n");
    assert!(client.is_closed());
    let event = events(&server, 1).remove(0);
    assert_eq!(event["user"]["name"], "me@mail.test");
    assert_eq!(event["network"]["protocol"], "pop3");
    // What the client has said, line ends too; what it was told.
    assert_eq!(event["source"]["bytes"], 19 + 13 + 6 + 6);
    assert!(event["destination"]["bytes"].as_u64().unwrap() > 20, "{event}");
    assert_eq!(event["event"]["outcome"], "success");
    let session = &event["nginx"]["session"];
    assert_eq!((&session["block"], &session["status"]), (&json!("mail"), &json!("proxied")));
    assert_eq!(session["server_name"], "mail.test");
    assert_eq!(session["upstream"]["address"], format!("127.0.0.1:{}", backend.port()));
    assert_eq!(session["upstream"]["bytes_sent"], 12);
    assert!(!event.to_string().contains("secret"), "{event}");
}

#[test]
fn sessions_of_mail_that_come_to_nothing() {
    let auth = mail::auth(|request| match mail::asked(request, "Auth-User").as_str() {
        "none" => "Auth-Status: no\r\n".into(),
        // Nobody listens there.
        _ => mail::to(1),
    });
    let server = start(&mail_conf(&auth));
    let mut client = Line::on(&server, 0);
    client.say("QUIT");
    assert!(client.is_closed());
    for user in ["none", "other"] {
        let mut client = Line::on(&server, 1);
        client.say(&format!("AUTH PLAIN {}", plain(user, "secret")));
        assert!(client.is_closed());
    }
    assert!(Line::on(&server, 1).is_closed());
    let events = events(&server, 4);
    let of = |n: usize| {
        let event = &events[n];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (status, outcome) = (&event["nginx"]["session"]["status"], &event["event"]["outcome"]);
        [text(status), text(outcome), text(&event["user"]["name"])]
    };
    assert_eq!(of(0), ["ended", "unknown", ""]);
    assert_eq!(of(1), ["refused", "failure", "none"]);
    assert_eq!(of(2), ["failed", "failure", "other"]);
    assert_eq!(of(3), ["timed_out", "failure", ""]);
}

#[test]
fn what_cannot_be_said() {
    for (block, said) in [
        ("stream { ship_access nobody; server { listen 1; return a; } }", "there is no receiver \"nobody\""),
        ("mail { ship_access nobody; auth_http 127.0.0.1:1; server { listen 127.0.0.1:1; protocol imap; } }", "there is no receiver \"nobody\""),
        ("mail { ship_access lines if=1; }", "\"if=\" is not for mail, which has no variables"),
        ("stream { ship_access off; ship_access lines; }", "there is \"ship_access off\" at this level"),
    ] {
        let conf = format!("{} {block}", HEAD.replace("%%DIR%%", "/tmp/weir-none"));
        let out = run_cli(&["-t"], &conf);
        assert!(out.stderr.contains(said), "{block}: {}", out.stderr);
    }
}
