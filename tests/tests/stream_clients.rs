//! Real clients through stream: curl by TLS that is passed on by name, Redis, and MariaDB's.

use weir_tests::tls::Authority;
use weir_tests::tools::{self, listens_on};
use weir_tests::{expect_soon, free_port, Setup};

/// TLS is passed on as it is: the servers behind have the certificates.
#[test]
fn curl_comes_to_the_server_of_its_name() {
    let Some(curl) = tools::need("curl") else { return };
    let authority = Authority::new("root");
    let (one, two) = (authority.issue("one.test"), authority.issue("two.test"));
    let server = Setup::new(
        "events {} stream {
            map $ssl_preread_server_name $to {
                one.test 127.0.0.1:%%PORT_1%%; default 127.0.0.1:%%PORT_2%%; }
            server { listen 127.0.0.1:%%PORT_0%%; ssl_preread on; proxy_pass $to; }
        } http {
            server { listen 127.0.0.1:%%PORT_1%% ssl; http2 on; ssl_certificate %%DIR%%/1.crt;
                ssl_certificate_key %%DIR%%/1.key; return 200 \"one by $server_protocol\"; }
            server { listen 127.0.0.1:%%PORT_2%% ssl; ssl_certificate %%DIR%%/2.crt;
                ssl_certificate_key %%DIR%%/2.key; return 200 two; }
        }",
    )
    .file("1.crt", one.cert)
    .file("1.key", one.key)
    .file("2.crt", two.cert)
    .file("2.key", two.key)
    .file("root.crt", &authority.cert)
    .start();
    let root = server.dir().join("root.crt").display().to_string();
    let port = server.port(0);
    for (name, wanted) in [("one.test", "one by HTTP/"), ("two.test", "two")] {
        let url = format!("https://{name}:{port}/");
        let place = format!("{name}:{port}:127.0.0.1");
        let said = curl.run(&["-sS", "--cacert", &root, "--resolve", &place, &url]);
        assert!(said.stdout.starts_with(wanted), "{name}: {} {}", said.stdout, said.stderr);
    }
}

#[test]
fn redis_is_asked_through_a_proxy() {
    let Some(redis) = tools::need("redis-server") else { return };
    let port = free_port();
    let _running = redis.start(|command| {
        let port = port.to_string();
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    });
    expect_soon("redis listens", || listens_on(port));
    let server = Setup::new(
        "events {} stream { upstream redis { zone redis 64k; server 127.0.0.1:%%REDIS%%; }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_pass redis; } }",
    )
    .set("REDIS", port)
    .start();
    let (mut one, mut two) = (server.on(0).connect(), server.on(0).connect());
    let large = "x".repeat(300_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$300000\r\n{large}\r\n");
    one.send(set.as_bytes());
    assert_eq!(one.read_until(b"\r\n"), b"+OK\r\n");
    two.send(b"STRLEN key\r\nGET key\r\nSUBSCRIBE news\r\n");
    assert_eq!(two.read_until(b"\r\n"), b":300000\r\n");
    assert_eq!(two.read_until(b"\r\n"), b"$300000\r\n");
    assert_eq!(two.read_until(b"\r\n"), format!("{large}\r\n").into_bytes());
    two.read_until(b":1\r\n");
    one.send(b"PUBLISH news hello\r\n");
    assert_eq!(one.read_until(b"\r\n"), b":1\r\n");
    assert!(two.read_until(b"hello\r\n").ends_with(b"hello\r\n"));
}

/// Here the server speaks first, and a client may wait for long before it says more.
#[test]
fn mariadb_is_asked_through_a_proxy() {
    let Some(mariadbd) = tools::need("mariadbd") else { return };
    let Some(client) = tools::need("mariadb") else { return };
    let server = Setup::new(
        "events {} stream { upstream sql { least_conn; server 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_pass sql; } }",
    )
    .start();
    let (data, port) = (server.dir().join("data"), server.port(1));
    std::fs::create_dir(&data).expect("a directory for it");
    let place = |name: &str, at: &std::path::Path| format!("--{name}={}", at.display());
    let _running = mariadbd.start(|command| {
        // Accounts are in tables that another program would have to make.
        command.args(["--no-defaults", "--skip-grant-tables", "--user=root"]);
        command.args([place("datadir", &data), place("socket", &data.join("socket"))]);
        command.args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=8M"]);
        command.arg(format!("--port={port}"));
    });
    expect_soon("mariadbd listens", || listens_on(port));
    let port = server.port(0).to_string();
    let ask = |sql: &str| {
        let to = ["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", &port];
        let said = client.run(&[&to[..], &["-N", "-e", sql]].concat());
        assert!(said.stderr.is_empty(), "{sql}: {}", said.stderr);
        said.stdout
    };
    ask("create database d; create table d.t (a int, b longtext)");
    ask("use d; insert into t select seq, repeat('x', 300000) from seq_1_to_20");
    assert_eq!(ask("select count(*), sum(length(b)) from d.t"), "20\t6000000\n");
    assert_eq!(ask("select b from d.t").len(), 20 * 300_001);
    assert_eq!(ask("select sleep(0.3); select a from d.t where a = 7"), "0\n7\n");
}
