//! PHP-FPM itself, where it is installed.

use weir_tests::tools::need;
use weir_tests::{expect_soon, free_port, Setup};

const SCRIPT: &str = r#"<?php
if ($_SERVER['PATH_INFO'] === '/fail') { error_log('oh no'); http_response_code(500); exit; }
if ($_SERVER['PATH_INFO'] === '/large') { echo str_repeat('0123456789', 50000); exit; }
header('X-Powered-By: php');
header('Content-Type: text/plain');
echo $_SERVER['SCRIPT_NAME'], '|', $_SERVER['PATH_INFO'], '|', $_SERVER['HTTP_X_A'] ?? '', '|',
    $_GET['q'] ?? '', '|', strlen(file_get_contents('php://input'));
"#;

#[test]
fn php_answers() {
    let Some(fpm) = need("php-fpm") else { return };
    let port = free_port();
    let pool = format!(
        "[global]\ndaemonize = no\nerror_log = %%DIR%%/fpm.log\n[www]\nuser = root\ngroup = root\nlisten = 127.0.0.1:{port}\n\
        pm = static\npm.max_children = 2\n"
    );
    let setup = Setup::new(
        r"events {} http { upstream php { server 127.0.0.1:%%FPM%%; keepalive 2; }
        server { listen 127.0.0.1:%%PORT_0%%; client_max_body_size 1m;
            location ~ ^(.+\.php)(/.*)?$ {
                fastcgi_split_path_info ^(.+\.php)(/.*)$; fastcgi_pass php; fastcgi_keep_conn on;
                fastcgi_param SCRIPT_FILENAME %%DIR%%$fastcgi_script_name; fastcgi_param SCRIPT_NAME $fastcgi_script_name;
                fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_param QUERY_STRING $query_string;
                fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type;
                fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param REQUEST_URI $request_uri; } } }",
    )
    .set("FPM", port)
    .file("a.php", SCRIPT);
    let dir = setup.dir().to_path_buf();
    std::fs::write(dir.join("fpm.conf"), pool.replace("%%DIR%%", &dir.display().to_string()))
        .unwrap();
    let _fpm = fpm.start(|c| {
        c.arg("-R").arg("-y").arg(dir.join("fpm.conf"));
    });
    expect_soon("php-fpm listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let server = setup.start();
    for _ in 0..3 {
        let r = server.get_with("/a.php/more?q=1", "X-A: b\r\n");
        assert_eq!((r.status, &*r.text()), (200, "/a.php|/more|b|1|0"), "{}", server.error_log());
        assert_eq!(r.header("X-Powered-By"), Some("php"));
    }
    let body = "z".repeat(300_000);
    assert_eq!(server.post("/a.php/x", &body).text(), "/a.php|/x|||300000");
    assert_eq!(server.get("/a.php/large").body.len(), 500_000);
    assert_eq!(server.get("/a.php/fail").status, 500);
    server.expect_error("FastCGI sent in stderr: \"PHP message: oh no\"");
}
