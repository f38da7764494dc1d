//! `internal_redirect`, which nginx has in its commercial version.

use weir_tests::{Server, Setup};

fn start(server: &str) -> Server {
    Setup::new(&format!(
        "worker_processes 1; events {{}} http {{ map $arg_to $to {{ default $arg_to; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log; {server} }} }}"
    ))
    .file("there/page", "there $")
    .start()
}

#[test]
fn on_to_an_uri_or_a_name() {
    let server = start(
        "root %%DIR%%;
         location /uri { internal_redirect /there/page; }
         location /args { internal_redirect /shown?b=$arg_a; }
         location /shown { return 200 $uri:$args:$request_uri; }
         location /named { internal_redirect @name; }
         location @name { return 200 named:$uri; }
         location /by { internal_redirect $to; try_files /there/page =404; }
         location /nobody { internal_redirect @nobody; }
         location /inner { internal; return 200 inner; }
         location /to-inner { internal_redirect /inner; }",
    );
    assert_eq!(server.get("/uri").text(), "there $");
    assert_eq!(server.get("/args?a=1").text(), "/shown:b=1:/args?a=1");
    assert_eq!(server.get("/named").text(), "named:/named");
    assert_eq!(server.get("/by?to=/shown").text(), "/shown::/by?to=/shown");
    assert_eq!(server.get("/by?to=@name").text(), "named:/by");
    assert_eq!(server.get("/by").text(), "there $", "empty: no redirect");
    assert_eq!(server.get("/nobody").status, 500);
    assert_eq!(server.get("/inner").status, 404);
    assert_eq!(server.get("/to-inner").text(), "inner");
}

#[test]
fn limits_and_access_come_before_it() {
    let server = start(
        "location /closed { deny all; internal_redirect /open; }
         location /open { return 200 open; }
         location /cycle/a { internal_redirect /cycle/b; }
         location /cycle/b { internal_redirect /cycle/a; }",
    );
    assert_eq!(server.get("/closed").status, 403);
    assert_eq!(server.get("/open").text(), "open");
    assert_eq!(server.get("/cycle/a").status, 500);
    server.expect_error("internal redirection cycle");
}

#[test]
fn in_a_server_it_is_for_all_locations() {
    let server = start(
        "root %%DIR%%; internal_redirect /there/page; location / { } location /there/ { }
         location @name { internal_redirect @name; root %%DIR%%/there; }
         location /page { internal_redirect @name; }",
    );
    assert_eq!(server.get("/").text(), "there $");
    assert_eq!(server.get("/x/y").text(), "there $");
    assert_eq!(server.get("/page").text(), "there $", "it stays where it is");
}
