//! nginx itself, on both sides: as the server behind Weir, and as the client in front of it.

use weir_tests::tls::Authority;
use weir_tests::tools::{self, Running, Tool};
use weir_tests::{free_port, Server, Setup};

/// nginx in the directory of the server it talks to, listening on this port (`%%SELF%%`).
fn start(nginx: &Tool, server: &Server, port: u16, conf: &str) -> Running {
    let dir = server.dir().display().to_string();
    let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {dir}/peer/{what}; "))
        .concat();
    let conf = format!(
        "daemon off; master_process off; pid {dir}/peer/pid; error_log {dir}/peer/log info;
         events {{}} http {{ access_log off; {places} {conf} }}"
    );
    let conf = conf.replace("%%SELF%%", &port.to_string()).replace("%%DIR%%", &dir);
    server.write("peer/conf", conf);
    let stderr = std::fs::File::create(server.dir().join("peer/stderr")).unwrap();
    let process = nginx.start(|command| {
        let at = server.dir().join("peer");
        command.arg("-p").arg(&at).arg("-c").arg(at.join("conf")).arg("-e").arg(at.join("log"));
        command.stderr(stderr);
    });
    let up = weir_tests::wait_for(|| tools::listens_on(port), weir_tests::PATIENCE);
    assert!(up, "nginx does not start: {}", server.read("peer/stderr"));
    process
}

/// `root.crt`, and `app` and `own` that it has issued.
fn with_certificates(setup: Setup) -> Setup {
    let authority = Authority::new("root");
    let (app, own) = (authority.issue("app.test"), authority.issue("own.test"));
    setup
        .file("root.crt", &authority.cert)
        .file("app.crt", app.cert)
        .file("app.key", app.key)
        .file("own.crt", own.cert)
        .file("own.key", own.key)
}

fn big() -> String {
    (0..80_000).map(|n| format!("{n:07}\n")).collect()
}

#[test]
fn nginx_as_a_server_is_verified_and_told_the_name() {
    let Some(nginx) = tools::need("nginx") else { return };
    let setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            proxy_ssl_trusted_certificate %%DIR%%/root.crt; proxy_ssl_verify on;
            proxy_ssl_server_name on; proxy_ssl_name app.test; proxy_http_version 1.1;
            proxy_ssl_session_reuse off;
            location /reused { proxy_ssl_session_reuse on;
                proxy_pass https://127.0.0.1:%%PORT_1%%; }
            location / { proxy_pass https://127.0.0.1:%%PORT_1%%; }
            location /two/ { proxy_http_version 2; proxy_pass https://127.0.0.1:%%PORT_1%%/; }
            location /own/ { proxy_pass https://127.0.0.1:%%PORT_1%%/;
                proxy_ssl_certificate %%DIR%%/own.crt; proxy_ssl_certificate_key %%DIR%%/own.key; }
            location /twelve/ { proxy_ssl_protocols TLSv1.2;
                proxy_pass https://127.0.0.1:%%PORT_1%%/; }
            location /other/ { proxy_ssl_name other.test;
                proxy_pass https://127.0.0.1:%%PORT_1%%/; } } }",
    );
    let server = with_certificates(setup).file("html/big", big()).start();
    let _nginx = start(
        &nginx,
        &server,
        server.port(1),
        "ssl_certificate %%DIR%%/app.crt; ssl_certificate_key %%DIR%%/app.key;
        ssl_protocols TLSv1.2 TLSv1.3; ssl_client_certificate %%DIR%%/root.crt; ssl_verify_client optional;
        server { listen 127.0.0.1:%%SELF%% ssl http2; root %%DIR%%/html;
            add_header X-Seen '$server_protocol|$ssl_protocol|$ssl_server_name|$ssl_client_s_dn|';
            location /reused { return 200 $ssl_session_reused; } }",
    );
    for (path, seen) in [
        ("/big", "HTTP/1.1|TLSv1.3|app.test||"),
        ("/two/big", "HTTP/2.0|TLSv1.3|app.test||"),
        ("/own/big", "HTTP/1.1|TLSv1.3|app.test|CN=own.test|"),
        ("/twelve/big", "HTTP/1.1|TLSv1.2|app.test||"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.header("X-Seen")), (200, Some(seen)), "{path}");
        assert!(answer.text() == big(), "{path}");
    }
    assert_eq!(server.get("/other/big").status, 502);
    server.expect_error("upstream SSL certificate does not match \"other.test\"");
    weir_tests::expect_soon("a session is resumed", || server.get("/reused").text() == "r");
}

#[test]
fn nginx_as_a_server_speaks_http2() {
    let Some(nginx) = tools::need("nginx") else { return };
    let server = Setup::new(
        "events {} http { client_max_body_size 0; upstream app { server 127.0.0.1:%%PORT_1%%; keepalive 2; }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_http_version 2;
                location / { proxy_pass http://app; }
                location /stream/ { proxy_request_buffering off; proxy_pass http://app/; } } }",
    )
    .file("html/big", big())
    .start();
    let _nginx = start(
        &nginx,
        &server,
        server.port(1),
        "client_max_body_size 0; server { listen 127.0.0.1:%%SELF%% http2; root %%DIR%%/html;
            location /seen { return 200 '$server_protocol $connection_requests'; }
            location /put { root %%DIR%%/put; dav_methods PUT; create_full_put_path on;
                client_body_temp_path %%DIR%%/put; } }",
    );
    assert_eq!(server.get("/seen").text(), "HTTP/2.0 1");
    assert_eq!(server.get("/seen").text(), "HTTP/2.0 2");
    assert_eq!(server.head("/big").header("Content-Length"), Some("640000"));
    assert!(server.get("/big").text() == big());
    assert_eq!(server.get("/none").status, 404);
    for path in ["/put/a", "/stream/put/b"] {
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 640000\r\n\r\n"
        );
        let answer = server.exchange("PUT", (head + &big()).as_bytes());
        assert_eq!(answer.status, 201, "{path}");
        assert!(server.read(&format!("put{}", path.trim_start_matches("/stream"))) == big());
    }
}

#[test]
fn nginx_as_a_client_verifies_and_resumes() {
    let Some(nginx) = tools::need("nginx") else { return };
    let setup = Setup::new(
        "events {} http { ssl_certificate %%DIR%%/app.crt; ssl_certificate_key %%DIR%%/app.key;
            ssl_client_certificate %%DIR%%/root.crt; ssl_verify_client on;
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name app.test;
                root %%DIR%%/html; client_max_body_size 0;
                location /seen { return 200 '$server_protocol $ssl_server_name $ssl_client_s_dn'; }
                location /reused { return 200 $ssl_session_reused; }
                location /count { return 200 $connection_requests; }
                location /up { proxy_pass http://127.0.0.1:%%PORT_1%%/; } }
            server { listen 127.0.0.1:%%PORT_1%%; client_max_body_size 0;
                location / { return 200 $content_length; } } }",
    );
    let server = with_certificates(setup).file("html/big", big()).start();
    let port = free_port();
    let conf = "upstream weir { server 127.0.0.1:%%WEIR%%; keepalive 2; }
        server { listen 127.0.0.1:%%SELF%%; client_max_body_size 0;
            proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host app.test;
            proxy_ssl_trusted_certificate %%DIR%%/root.crt; proxy_ssl_verify on;
            proxy_ssl_name app.test; proxy_ssl_server_name on;
            proxy_ssl_certificate %%DIR%%/own.crt; proxy_ssl_certificate_key %%DIR%%/own.key;
            location / { proxy_pass https://weir; }
            location /reused { proxy_set_header Connection close;
                proxy_pass https://127.0.0.1:%%WEIR%%; }
            location /other/ { proxy_ssl_name other.test; proxy_pass https://127.0.0.1:%%WEIR%%/; } }";
    let conf = conf.replace("%%WEIR%%", &server.port(0).to_string());
    let _nginx = start(&nginx, &server, port, &conf);
    let front = weir_tests::Peer::Tcp(port);
    assert_eq!(front.get("/seen").text(), "HTTP/1.1 app.test CN=own.test");
    assert_eq!(front.get("/count").text(), "2");
    assert!(front.get("/big").text() == big());
    assert_eq!(front.post("/up", &big()).text(), "640000");
    weir_tests::expect_soon("a session is resumed", || front.get("/reused").text() == "r");
    assert_eq!(front.get("/other/seen").status, 502, "nginx finds another name");
}
