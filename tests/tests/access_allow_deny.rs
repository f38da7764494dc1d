//! Who may: addresses, methods, and several conditions at once.

use weir_tests::Setup;

#[test]
fn the_first_rule_that_fits_decides() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; listen [::1]:%%PORT_0%%;
            listen unix:%%DIR%%/s; root %%DIR%%/html;
            error_log %%DIR%%/error.log;
            location /all { deny all; }
            location /one { deny 127.0.0.2; allow 127.0.0.1; deny all; }
            location /net { allow 10.0.0.0/8; deny 127.0.0.0/8; }
            location /six { allow ::1; deny all; }
            location /unix { allow unix:; deny all; }
            location /free/ { deny all; location /free/in { allow all; } location /free/un { } }
        } }",
    )
    .file("html/one", "1")
    .file("html/six", "6")
    .file("html/unix", "u")
    .file("html/free/in", "in")
    .file("html/free/un", "un")
    .file("html/net", "n")
    .start();
    let six = weir_tests::Peer::Tcp6(server.port(0));
    let unix = server.unix("s");
    for (path, v4, v6, local) in [
        ("/all", 403, 403, 403),
        ("/one", 200, 403, 403),
        ("/net", 403, 200, 200),
        ("/six", 403, 200, 403),
        ("/unix", 403, 403, 200),
        ("/free/in", 200, 200, 200),
        ("/free/un", 403, 403, 403),
    ] {
        assert_eq!(server.get(path).status, v4, "{path} IPv4");
        assert_eq!(six.get(path).status, v6, "{path} IPv6");
        assert_eq!(unix.get(path).status, local, "{path} unix");
    }
    server.expect_error("access forbidden by rule");
}

#[test]
fn one_condition_or_all_of_them() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            auth_basic closed; auth_basic_user_file %%DIR%%/users;
            location /all { deny all; }
            location /any/no { satisfy any; deny all; }
            location /any/yes { satisfy any; allow 127.0.0.1; deny all; }
            location /off { auth_basic off; }
        } }",
    )
    .file("users", "user:{PLAIN}pass\n# comment\nsha:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=\n")
    .file("html/all", "x")
    .file("html/any/no", "x")
    .file("html/any/yes", "x")
    .file("html/off", "x")
    .file("html/a", "x")
    .start();
    let user = "Authorization: Basic dXNlcjpwYXNz\r\n";
    let wrong = "Authorization: Basic dXNlcjp3cm9uZw==\r\n";
    let sha = "Authorization: Basic c2hhOmFkbWlu\r\n";
    for (path, without, with) in [
        ("/a", 401, 200),
        ("/all", 403, 403),
        ("/any/no", 401, 200),
        ("/any/yes", 200, 200),
        ("/off", 200, 200),
    ] {
        assert_eq!(server.get(path).status, without, "{path} without");
        assert_eq!(server.get_with(path, user).status, with, "{path} with");
    }
    assert_eq!(server.get_with("/a", wrong).status, 401);
    assert_eq!(server.get_with("/a", sha).status, 200);
    let challenge = server.get("/a");
    assert_eq!(challenge.header("WWW-Authenticate"), Some("Basic realm=\"closed\""));
}

#[test]
fn methods_can_be_limited() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / { limit_except GET { deny all; } }
            location /post { limit_except POST { deny all; } return 200 ok; }
        } }",
    )
    .file("html/a", "x")
    .start();
    assert_eq!(server.get("/a").status, 200);
    assert_eq!(server.head("/a").status, 200);
    assert_eq!(server.post("/a", "x").status, 403);
    assert_eq!(server.request("DELETE", "/a", "").status, 403);
    assert_eq!(server.request("STRANGE", "/a", "").status, 403);
}
