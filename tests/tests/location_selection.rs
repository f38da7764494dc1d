//! Which location a path falls into.

use weir_tests::Server;

#[test]
fn exact_then_prefix_then_regex() {
    let server = Server::start(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location = / { return 200 root; }
            location / { return 200 slash; }
            location = /exact { return 200 exact; }
            location /docs/ { return 200 docs; }
            location /docs/deep/ { return 200 deep; }
            location ^~ /static/ { return 200 static; }
            location ~ \.php$ { return 200 php; }
            location ~* \.(gif|jpg)$ { return 200 "image $1"; }
            location ~ ^/(?<name>u\d)/ { return 200 "named $name"; }
            location "/with space" { return 200 space; }
        } }"#,
    );
    for (path, who) in [
        ("/", "root"),
        ("/?x", "root"),
        ("/other", "slash"),
        ("/exact", "exact"),
        ("/exact/", "slash"),
        ("/exacter", "slash"),
        ("/docs/a", "docs"),
        ("/docs", "slash"),
        ("/docs/deep/a", "deep"),
        ("/docs/a.php", "php"),
        ("/static/a.php", "static"),
        ("/A.JPG", "image JPG"),
        ("/a.PHP", "slash"),
        ("/u1/x.gif", "image gif"),
        ("/u1/x", "named u1"),
        ("/with%20space", "space"),
        ("/a/../docs/", "docs"),
        ("/docs/%61.ph%70", "php"),
    ] {
        assert_eq!(server.get(path).text(), who, "{path}");
    }
}

#[test]
fn locations_nest() {
    let server = Server::start(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /a/ {
                location /a/b/ { return 200 inner; }
                location ~ \.txt$ { return 200 inner-regex; }
                location = /a/e { return 200 inner-exact; }
                return 200 outer;
            }
            location ~ \.txt$ { return 200 outer-regex; }
            location ^~ /c/ { location ~ x { return 200 c-inner; } return 200 c; }
        } }"#,
    );
    for (path, who) in [
        ("/a/", "outer"),
        ("/a/b/c", "inner"),
        ("/a/x.txt", "inner-regex"),
        ("/a/b/x.txt", "inner-regex"),
        ("/a/e", "inner-exact"),
        ("/x.txt", "outer-regex"),
        ("/c/a.txt", "c-inner"),
        ("/c/b.html", "c"),
    ] {
        assert_eq!(server.get(path).text(), who, "{path}");
    }
}

#[test]
fn named_locations_are_for_internal_jumps_only() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/none;
            location /try { try_files /nothing @back; }
            location /error { error_page 404 = @back; return 404; }
            location @back { return 200 'back $uri'; }
            location / { return 200 slash; }
        } }",
    );
    assert_eq!(server.get("/try").text(), "back /try");
    assert_eq!(server.get("/error").text(), "back /error");
    assert_eq!(server.get("/@back").text(), "slash");
}

#[test]
fn internal_locations_do_not_exist_for_clients() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /in { internal; return 200 inside; }
            location /go { rewrite ^ /in last; }
            location /err { error_page 403 /in; return 403; }
            location /err2 { error_page 403 =200 /in; return 403; }
        } }",
    );
    assert_eq!(server.get("/in").status, 404);
    assert_eq!(server.get("/go").text(), "inside");
    assert_eq!(server.get("/err").text(), "inside");
    assert_eq!(server.get("/err2").status, 200);
}

#[test]
fn a_proxied_prefix_without_its_slash_is_redirected() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /p/ { proxy_pass http://127.0.0.1:%%PORT_9%%; }
        } }",
    );
    let response = server.get("/p?x=y");
    assert_eq!(response.status, 301);
    let to = format!("http://localhost:{}/p/?x=y", server.port(0));
    assert_eq!(response.header("Location"), Some(to.as_str()));
}
