//! Subrequests whose answers are looked at or thrown away: `auth_request`, `mirror`.

use weir_tests::{Next, Origin, Setup};

#[test]
fn auth_request_grants_and_refuses() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            location /in/ { auth_request /auth; auth_request_set $who $uri:$request_uri;
                            add_header X-Is $who; }
            location = /auth { internal;
 return 204; } } }",
    )
    .file("in/a", "content")
    .start();
    // A subrequest has no arguments of the client's: it is always granted here.
    let granted = server.get("/in/a?code=403");
    assert_eq!((granted.status, granted.text().as_str()), (200, "content"));
    assert_eq!(granted.header("X-Is"), Some("/auth:/in/a?code=403"));
    assert_eq!(server.get("/auth").status, 404, "internal");
}

#[test]
fn auth_request_takes_the_servers_word() {
    let origin = Origin::start(|request, conn| {
        let code = request.header("X-Code").unwrap_or("204").to_string();
        conn.reply(&code, "WWW-Authenticate: Basic realm=here\r\nX-User: joe\r\n", "");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            location /in/ { auth_request /auth; auth_request_set $user $upstream_http_x_user;
                            add_header X-User $user; }
            location = /auth { proxy_pass http://%%ORIGIN%%/check; proxy_pass_request_body off;
                               proxy_set_header Content-Length ''; } } }",
    )
    .set("ORIGIN", origin.address())
    .file("in/a", "content")
    .start();
    let ask = |code: &str| server.request("GET", "/in/a", &format!("X-Code: {code}\r\n"));
    let granted = ask("200 OK");
    assert_eq!((granted.status, granted.header("X-User")), (200, Some("joe")));
    assert_eq!(ask("403 Forbidden").status, 403);
    let refused = ask("401 Unauthorized");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("WWW-Authenticate"), Some("Basic realm=here"));
    assert_eq!(ask("404 Not Found").status, 500);
    server.expect_error("auth request unexpected status: 404");
    assert!(origin.requests().iter().all(|r| r.target() == "/check"));
}

#[test]
fn mirror_sends_copies_with_their_bodies() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { mirror /m1; mirror /m2; proxy_pass http://%%ORIGIN%%/own; }
            location /m { internal; proxy_pass http://%%ORIGIN%%/copy$uri?$args; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let answer = server.exchange(
        "POST",
        b"POST /x?a=b HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    );
    assert_eq!(answer.status, 200);
    origin.expect_requests(3);
    let mut seen: Vec<_> = origin
        .requests()
        .iter()
        .map(|r| format!("{} {} {}", r.method(), r.target(), r.text()))
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        ["POST /copy/m1?a=b hello", "POST /copy/m2?a=b hello", "POST /ownx?a=b hello"]
    );
}
