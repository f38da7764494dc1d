//! `ship` to Kafka: a real broker, behind a relay that cuts connections.

use std::collections::HashSet;
use weir_tests::cutting::{Cut, Relay};
use weir_tests::free_port;
use weir_tests::kafka::Kafka;
use weir_tests::tls::Authority;
use weir_tests::{expect_soon, run_cli, signal, Server, Setup, Signal};

const SERVER: &str = "worker_processes 2; error_log error.log info; events {}
http { access_log off; server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
    location / { ship_access k; return 200 ok; }
    location /quiet { return 204; }
    location /api { api; } } }";

fn get_all(server: &Server, urls: &[String]) {
    let mut client = server.connect();
    for url in urls {
        assert_eq!(client.get(url).status, 200);
    }
    assert_eq!(client.get("/quiet").status, 204);
}

fn figure(server: &Server, name: &str) -> u64 {
    let text = server.get("/api/9/ship/k").text();
    let all: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    all[name].as_u64().unwrap_or_else(|| panic!("no {name}: {text}"))
}

fn urls(records: &[(u32, String, String)]) -> Vec<String> {
    let url = |(.., value): &(u32, String, String)| {
        let event: serde_json::Value = serde_json::from_str(value).unwrap();
        event["url"]["original"].as_str().unwrap().to_owned()
    };
    let mut urls: Vec<String> = records.iter().map(url).collect();
    urls.sort();
    urls
}

fn kill_serving_process(server: &Server) {
    let [old] = server.children()[..] else { panic!("no serving process: not run as root") };
    signal(old, Signal::Kill);
    expect_soon("the next process", || {
        let children = server.children();
        children.len() == 1 && children[0] != old
    });
    assert_eq!(server.get("/quiet").status, 204);
}

/// Requests and answers are cut off, the broker is out of reach for a while, and the process is killed four times:
/// each event is there once.
#[test]
fn each_event_is_there_once_over_four_kills_and_cut_connections() {
    let (dir, port) = (Setup::new(""), free_port());
    let relay = Relay::to(port, |n| match n {
        _ if n % 9 == 8 => Cut::Never,
        6..=14 => Cut::AtOnce,
        _ if n % 2 == 0 => Cut::Answered(500 + n * 83 % 700),
        _ => Cut::Asked(300 + n * 977 % 6000),
    });
    let listeners = [("PLAINTEXT", port, relay.port())];
    let Some(kafka) = Kafka::start(dir.dir(), &listeners, "", "") else { return };
    let block = "ship k { to kafka 127.0.0.1:%%KAFKA%%; topic events; queue %%DIR%%/queue size=8m;
        batch events=50 linger=20ms; retry first=5ms most=50ms; message_size 4k; timeout 5s;
        compress zstd; }";
    let server = Setup::new(&format!("{block} {SERVER}")).set("KAFKA", relay.port()).start();
    let mut expected = Vec::new();
    for round in 0..5 {
        let urls: Vec<String> = (0..200).map(|n| format!("/{round}/{n:03}")).collect();
        get_all(&server, &urls);
        expected.extend(urls);
        if round < 4 {
            let before = relay.count();
            // On the one connection that nobody cuts all may have gone already.
            let on_its_way = || relay.count() > before || figure(&server, "queued_bytes") == 0;
            expect_soon("something on its way", on_its_way);
            kill_serving_process(&server);
        }
    }
    expect_soon("an empty queue", || figure(&server, "queued_bytes") == 0);
    assert_eq!(urls(&kafka.records("events")), expected);
    assert!(relay.count() > 15, "hardly anything was cut");
    assert_eq!(figure(&server, "events_dropped"), 0);
}

/// Keys decide on partitions; TLS and SCRAM, and a password that is wrong.
#[test]
fn keys_tls_and_passwords() {
    let dir = Setup::new("");
    let authority = Authority::new("ca.test");
    let pair = authority.issue("127.0.0.1");
    let pem = format!("{}{}", pair.cert, pair.key);
    let file = dir.dir().join("broker.pem");
    std::fs::write(&file, pem).unwrap();
    let (plain, sasl, tls) = (free_port(), free_port(), free_port());
    let listeners =
        [("PLAINTEXT", plain, plain), ("SASL_PLAINTEXT", sasl, sasl), ("SASL_SSL", tls, tls)];
    let more = format!(
        "listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512\n\
         listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN\nssl.keystore.type=PEM\nssl.keystore.location={}\n\
         listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
         listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_me=\"secret\";\n",
        file.display()
    );
    let scram = "SCRAM-SHA-512=[name=weir,password=pencil]";
    let Some(kafka) = Kafka::start(dir.dir(), &listeners, &more, scram) else { return };
    let conf = format!(
        "ship k {{ to kafka tls://127.0.0.1:{tls}; topic keyed; key url.path; queue %%DIR%%/queue;
            sasl scram-sha-512; user weir; password_file password; ssl_trusted_certificate ca.pem;
            ssl_protocols TLSv1.3; batch linger=20ms; compress gzip; }}
        ship plain {{ to kafka tcp://127.0.0.1:{sasl}; topic plain; queue %%DIR%%/queue2;
            sasl plain; user me; password_file password2; batch linger=20ms; compress none; }}
        ship wrong {{ to kafka 127.0.0.1:{sasl}; topic wrong; queue %%DIR%%/queue3;
            sasl plain; user me; password_file password; batch linger=20ms; }}
        {}",
        SERVER.replace("ship_access k;", "ship_access k; ship_access plain; ship_access wrong;")
    );
    let server = Setup::new(&conf)
        .file("password", "pencil\n")
        .file("password2", "secret\r\n")
        .file("ca.pem", &authority.cert)
        .start();
    let all: Vec<String> = (0..60).map(|n| format!("/{}", n % 6)).collect();
    get_all(&server, &all);
    expect_soon("all of it", || kafka.records("keyed").len() >= 60);
    let records = kafka.records("keyed");
    assert_eq!(records.len(), 60);
    let places: HashSet<(u32, &str)> = records.iter().map(|(p, key, _)| (*p, &key[..])).collect();
    assert_eq!(places.len(), 6, "{places:?}");
    expect_soon("the others", || kafka.records("plain").len() == 60);
    expect_soon("a line", || server.error_log().contains("SASL_AUTHENTICATION_FAILED (58)"));
}

#[test]
fn what_is_said_is_checked() {
    for (block, expected) in [
        ("to kafka h;", "no \"topic\" in this block"),
        ("to kafka h; topic 'a b';", "\"a b\" cannot be a topic"),
        ("to kafka http://h; topic t;", "\"http://\" is nothing such receivers are reached by"),
        ("to kafka h:0; topic t;", "\"h:0\" is no address of a receiver"),
        ("to kafka h tls://i; topic t;", "all brokers have TLS, or none"),
        ("to kafka tls://h; topic t;", "no \"ssl_trusted_certificate\" in this block"),
        ("to kafka h; topic t; ssl_verify off;", "\"ssl_verify\" where no address has TLS"),
        ("to kafka h; topic t; sasl plain;", "no \"user\" and \"password_file\" in this block"),
        ("to kafka h; topic t; sasl gssapi;", "invalid value \"gssapi\""),
        ("to kafka h; topic t; user u; password_file p;", "no \"sasl\" in this block"),
        ("to kafka h; topic t; message_size 1;", "it must be between 2k and 64m"),
        (
            "to kafka h; topic t; facility user;",
            "\"facility\" is not for receivers of kind \"kafka\"",
        ),
        ("to kafka h; topic t; key a; key b;", "\"key\" directive is duplicate"),
        (
            "to kafka tls://h; topic t; ssl_verify off; ssl_certificate c;",
            "no \"ssl_certificate_key\" in this block",
        ),
        ("to kafka tls://h; topic t; ssl_verify off; ssl_ciphers NONE;", "NONE"),
        ("to kafka tls://h; topic t; ssl_verify off; ssl_password_file none;", "open() "),
    ] {
        let conf = format!("events {{}} ship a {{ queue q; {block} }} http {{}}");
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{block}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{block}: {}", output.stderr);
    }
}
