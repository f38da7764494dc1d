//! `ship` to syslog: rsyslog over UDP, TCP and TLS, and a receiver that goes away.

use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use weir_tests::free_port;
use weir_tests::tls::Authority;
use weir_tests::tools::{self, listens_on};
use weir_tests::{children, expect_soon, run_cli, Setup};

const HTTP: &str = "http { access_log off; server { listen 127.0.0.1:%%PORT_0%%;
    location / { ship_access a; return 200 ok; }
    location /all { ship_access u; ship_access t; ship_access s; return 200 ok; } } }";

/// Where its modules are: what is only unpacked looks for them where they would be installed.
fn modules() -> PathBuf {
    let module = tools::file("usr/lib/x86_64-linux-gnu/rsyslog", "lmnet.so");
    module.and_then(|path| Some(path.parent()?.to_path_buf())).unwrap_or_default()
}

#[test]
fn rsyslog_takes_messages_over_udp_tcp_and_tls() {
    let Some(rsyslog) = tools::need("rsyslogd") else { return };
    let Some(_) = tools::file("usr/lib/x86_64-linux-gnu/rsyslog", "lmnsd_gtls") else {
        return tools::skip("there is no rsyslog-gnutls");
    };
    let setup = Setup::new("");
    let dir = setup.dir().to_owned();
    let authority = Authority::new("ca.test");
    let pair = authority.issue("127.0.0.1");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("ca.pem", &authority.cert);
    write("cert.pem", &pair.cert);
    write("key.pem", &pair.key);
    let (udp, tcp, tls) = (free_port(), free_port(), free_port());
    let shown = dir.display();
    write(
        "rsyslog.conf",
        &format!(
            "global(workDirectory=\"{shown}\" maxMessageSize=\"64k\" DefaultNetstreamDriverCAFile=\"{shown}/ca.pem\"
                DefaultNetstreamDriverCertFile=\"{shown}/cert.pem\" DefaultNetstreamDriverKeyFile=\"{shown}/key.pem\")
            module(load=\"imudp\") module(load=\"imtcp\")
            template(name=\"all\" type=\"string\"
                string=\"%syslogfacility-text% %syslogseverity-text% %app-name% %msgid% %structured-data% %msg%\\n\")
            ruleset(name=\"udp\") {{ action(type=\"omfile\" file=\"{shown}/udp\" template=\"all\") }}
            ruleset(name=\"tcp\") {{ action(type=\"omfile\" file=\"{shown}/tcp\" template=\"all\") }}
            ruleset(name=\"tls\") {{ action(type=\"omfile\" file=\"{shown}/tls\" template=\"all\") }}
            input(type=\"imudp\" address=\"127.0.0.1\" port=\"{udp}\" ruleset=\"udp\")
            input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{tcp}\" ruleset=\"tcp\")
            input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{tls}\" ruleset=\"tls\"
                streamDriver.Name=\"gtls\" streamDriver.Mode=\"1\" streamDriver.AuthMode=\"anon\")\n"
        ),
    );
    let conf = dir.join("rsyslog.conf");
    let _rsyslog = rsyslog.start(|command| {
        command.args(["-n", "-iNONE", "-M"]).arg(modules()).arg("-f").arg(&conf);
    });
    expect_soon("rsyslog", || listens_on(tcp) && listens_on(tls));
    let server = Setup::new(&format!(
        "worker_processes 1; error_log error.log info; events {{}}
        ship a {{ to syslog 127.0.0.1:{udp}; queue %%DIR%%/a; }}
        ship u {{ to syslog udp://127.0.0.1:{udp}; queue %%DIR%%/u; batch linger=10ms;
            facility local3; tag edge; structured_data weir@1234; }}
        ship t {{ to syslog tcp://127.0.0.1:{tcp}; queue %%DIR%%/t; batch linger=10ms; framing line; timeout 5s; }}
        ship s {{ to syslog tls://127.0.0.1:{tls}; queue %%DIR%%/s; batch linger=10ms;
            ssl_trusted_certificate {shown}/ca.pem; ssl_name 127.0.0.1; }}
        {HTTP}"
    ))
    .start();
    for n in 0..30 {
        assert_eq!(server.get(&format!("/all/{n}")).status, 200);
    }
    let lines = |name: &str| {
        let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["udp", "tcp", "tls"] {
        expect_soon(name, || lines(name).len() >= 30);
        let lines = lines(name);
        assert_eq!(lines.len(), 30, "{name}");
        for n in 0..30 {
            let url = format!("\"/all/{n}\"");
            assert_eq!(lines.iter().filter(|l| l.contains(&url)).count(), 1, "{name} {url}");
        }
    }
    assert!(
        lines("udp")[0].starts_with("local3 info edge access [weir@1234 id=\""),
        "{:?}",
        lines("udp")
    );
    assert!(
        lines("tls")[0].starts_with("local7 info weir access [event@32473 id=\""),
        "{:?}",
        lines("tls")
    );
}

/// What is behind the bound of a receiver is a message of its own for it, and clients choose it.
#[test]
fn no_client_writes_records_of_its_own() {
    let Some(rsyslog) = tools::need("rsyslogd") else { return };
    let setup = Setup::new("");
    let shown = setup.dir().display().to_string();
    let tcp = free_port();
    let conf = setup.dir().join("rsyslog.conf");
    let text = format!(
        "global(workDirectory=\"{shown}\") module(load=\"imtcp\")
        template(name=\"all\" type=\"string\" string=\"%hostname% %app-name% %msg%\\n\")
        input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{tcp}\")
        action(type=\"omfile\" file=\"{shown}/tcp\" template=\"all\")\n"
    );
    std::fs::write(&conf, text).unwrap();
    let _rsyslog = rsyslog.start(|command| {
        command.args(["-n", "-iNONE", "-M"]).arg(modules()).arg("-f").arg(&conf);
    });
    expect_soon("rsyslog", || listens_on(tcp));
    let server = Setup::new(&format!(
        "worker_processes 1; error_log error.log info; events {{}}
        ship a {{ to syslog tcp://127.0.0.1:{tcp}; queue %%DIR%%/a; batch linger=10ms; }}
        http {{ access_log off; large_client_header_buffers 4 32k; server {{ listen 127.0.0.1:%%PORT_0%%;
            location / {{ ship_access a; return 200 ok; }} }} }}"
    ))
    .start();
    let forged = "<134>1 2026-01-01T01:01:01Z bastion sshd 9 - - Accepted password for root";
    let lengths: Vec<usize> = (7400..7700).step_by(10).chain([9000, 20000]).collect();
    for length in &lengths {
        let agent = "A".repeat(*length) + &forged.repeat(4);
        let text = format!("GET /x HTTP/1.0\r\nUser-Agent: {agent}\r\n\r\n");
        assert_eq!(server.exchange("GET", text.as_bytes()).status, 200);
    }
    assert_eq!(server.get("/last").status, 200);
    let lines = || std::fs::read_to_string(setup.dir().join("tcp")).unwrap_or_default();
    expect_soon("the last", || lines().contains("\"/last\""));
    let lines = lines();
    assert_eq!(lines.lines().count(), lengths.len() + 1, "{lines}");
    for line in lines.lines() {
        let (head, json) = line.split_once('{').unwrap_or_else(|| panic!("{line}"));
        assert!(head.contains(" weir ") && json.ends_with('}'), "{line}");
    }
    assert!(lines.contains("AAAA…\""), "long values are cut");
}

/// A connection that breaks before the receiver has read its batch: it comes again.
#[test]
fn a_batch_that_was_cut_comes_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Setup::new(&format!(
        "worker_processes 1; error_log error.log info; events {{}}
        ship a {{ to syslog tcp://127.0.0.1:{port}; queue %%DIR%%/a; batch events=50 linger=10ms;
            retry first=5ms most=20ms; }} {}",
        HTTP.replace("ship_access u; ship_access t; ship_access s;", "")
    ))
    .start();
    let urls: Vec<String> = (0..20).map(|n| format!("\"/{n}\"")).collect();
    for n in 0..20 {
        assert_eq!(server.get(&format!("/{n}")).status, 200);
    }
    for _ in 0..3 {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 100]).unwrap();
    }
    let pid = children(server.pid()).first().copied().unwrap_or(server.own_pid());
    let mut all = String::new();
    while !urls.iter().all(|url| all.contains(url)) {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_to_string(&mut all).unwrap();
    }
    // PROCID is the process that serves.
    let procid = format!(" weir {pid} access [");
    assert!(all.contains(&procid), "{procid}: {all}");
    let told = format!("ship \"a\": 127.0.0.1:{port}: ");
    expect_soon("a line", || server.error_log().contains(&told));
}

/// Whatever a client says of itself, its request is told of within the least bound.
#[test]
fn no_client_is_too_long_for_the_least_message() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(weir_tests::AT_LAST)).unwrap();
    let server = Setup::new(&format!(
        "worker_processes 1; error_log error.log info; events {{}}
        ship a {{ to syslog udp://{}; message_size 2k; queue %%DIR%%/a; batch linger=10ms; }}
        http {{ access_log off; large_client_header_buffers 4 32k; server {{ listen 127.0.0.1:%%PORT_0%%;
            server_name a-name-of-a-server-that-is-rather-long.and-has-a-domain.example;
            location / {{ ship_access a; return 200 ok; }} }} }}",
        socket.local_addr().unwrap()
    ))
    .start();
    for length in [10, 60, 500, 4000] {
        let long = "\u{1}é\"x".repeat(length);
        let forwarded = vec!["2001:db8:1111:2222:3333:4444:5555:6666"; 20].join(", ");
        let text = format!(
            "GET /{0}?{0} HTTP/1.1\r\nHost: {1}\r\nConnection: close\r\nUser-Agent: {long}\r\nReferer: http://{long}/\r\n\
             X-Forwarded-For: {forwarded}\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
            "é".repeat(length.min(2000)),
            "h".repeat(200),
        );
        assert_eq!(server.exchange("GET", text.as_bytes()).status, 200, "{length}");
        let mut message = [0; 65536];
        let n = socket.recv(&mut message).unwrap();
        let message = String::from_utf8(message[..n].to_vec()).unwrap();
        assert!(n <= 2048, "{length}: {n}");
        let json: serde_json::Value =
            serde_json::from_str(&message[message.find('{').unwrap()..]).unwrap();
        assert_eq!(json["http"]["response"]["status_code"], 200);
    }
    assert!(!server.error_log().contains("refused and is lost"), "{}", server.error_log());
}

#[test]
fn what_is_said_is_checked() {
    for (block, expected) in [
        ("to syslog http://h;", "it may be udp://, tcp://, tls://"),
        ("to syslog h; facility none;", "it is one of kern, user"),
        ("to syslog h; tag 'a b';", "a tag has 1 to 48 printable characters"),
        ("to syslog h; framing line;", "\"framing\" where no address has tcp://"),
        ("to syslog tcp://h; framing other;", "invalid value \"other\""),
        ("to syslog h; structured_data x;", "\"x\" cannot be the name of an element"),
        ("to syslog h; message_size 1k;", "it must be between 2k and 64m"),
        ("to syslog tls://h;", "no \"ssl_trusted_certificate\" in this block"),
        ("to syslog h; compress gzip;", "\"compress\" is not for receivers of kind \"syslog\""),
    ] {
        let conf = format!("events {{}} ship a {{ queue q; {block} }} http {{}}");
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{block}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{block}: {}", output.stderr);
    }
}
