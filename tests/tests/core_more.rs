//! Directives that stand alone: inherited fields, `auth_delay`, cookies, mirrored bodies.

use std::time::{Duration, Instant};
use weir_tests::family::Family;
use weir_tests::{Next, Origin, Setup};

#[test]
fn added_fields_are_inherited_as_told() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; add_header X-A outer; add_trailer X-T outer;
            location / { add_header X-B inner; add_trailer X-U inner; return 200 x; }
            location /merge { add_header_inherit merge; add_trailer_inherit merge; add_header X-B inner; add_trailer X-U inner; return 200 x; }
            location /off { add_header_inherit off; add_trailer_inherit off; return 200 x; } } }",
    )
    .start();
    let fields = |path: &str| {
        let r = server.get(path);
        (r.header("X-A").is_some(), r.header("X-B").is_some(), r.trailers.len())
    };
    assert_eq!(fields("/"), (false, true, 1));
    assert_eq!(fields("/merge"), (true, true, 2));
    assert_eq!(fields("/off"), (false, false, 0));
}

#[test]
fn a_wrong_password_is_answered_late() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; auth_basic r; auth_basic_user_file %%DIR%%/users;
            auth_delay 300ms; } }",
    )
    .file("users", "a:{PLAIN}b\n")
    .start();
    let late = |path: &str| {
        let begun = Instant::now();
        assert_eq!(server.get(path).status, 401);
        begun.elapsed()
    };
    assert!(late("/") >= Duration::from_millis(300));
    assert_eq!(server.get_with("/", "Authorization: Basic YTpi\r\n").status, 404);
}

#[test]
fn cookies_of_the_server_are_rewritten() {
    let origin = Origin::start(|_, conn| {
        conn.reply(
            "200 OK",
            "Set-Cookie: a=b; Domain=in.test; Path=/x\r\nSet-Cookie: c=d; Secure\r\n",
            "",
        );
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%ORIGIN%%;
            proxy_cookie_domain in.test out.test; proxy_cookie_flags a httponly samesite=lax;
            proxy_cookie_flags ~ nosecure; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let r = server.get("/");
    let cookies = r.all("Set-Cookie");
    assert_eq!(cookies, ["a=b; Domain=out.test; Path=/x; HttpOnly; SameSite=Lax", "c=d"]);
}

#[test]
fn a_head_is_asked_for_as_such_where_it_is_not_converted() {
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { proxy_cache_path %%DIR%%/c keys_zone=z:1m; server { listen 127.0.0.1:%%PORT_0%%;
            proxy_cache z; proxy_cache_valid 1m; proxy_cache_key $request_method$uri;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /as/it/is { proxy_pass http://%%ORIGIN%%; proxy_cache_convert_head off; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    server.head("/");
    assert_eq!(origin.last_request().method(), "GET");
    server.head("/as/it/is");
    assert_eq!(origin.last_request().method(), "HEAD");
}

#[test]
fn a_mirror_may_do_without_the_body() {
    let copies = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /bare { mirror /less; mirror_request_body off; proxy_pass http://127.0.0.1:%%PORT_0%%/end; }
            location /full { mirror /copy; proxy_pass http://127.0.0.1:%%PORT_0%%/end; }
            location = /end { return 200 end; }
            location = /less { internal; proxy_pass http://%%ORIGIN%%; proxy_set_header Content-Length \"\"; }
            location = /copy { internal; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", copies.address())
    .start();
    assert_eq!(server.post("/full", "body").text(), "end");
    copies.expect_requests(1);
    assert_eq!(server.post("/bare", "body").text(), "end");
    copies.expect_requests(2);
    let bodies: Vec<String> = copies.requests().iter().map(|r| r.text()).collect();
    assert_eq!(bodies, ["body", ""]);
}

#[test]
fn a_uwsgi_server_is_told_a_string() {
    let origin = Origin::start_raw(|conn, _| {
        let head = conn.read_exactly(4).unwrap_or_default();
        let length = usize::from(head[1]) + 256 * usize::from(head[2]);
        let packet = conn.read_exactly(length).unwrap_or_default();
        conn.write("Status: 200\r\n\r\n");
        conn.write(packet);
    });
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location / { %%F%%_pass %%TO%%; uwsgi_string \"run this\"; uwsgi_pass_request_headers off; } } }";
    let server = Family::Uwsgi.setup(conf, &origin).start();
    assert!(server.get("/").text().ends_with("run this"));
}

/// When trailers are made, the server has said all.
#[test]
fn trailers_show_how_long_the_server_took() {
    for answer in ["Content-Length: 4\r\n\r\nbody", "\r\nbody"] {
        let answer = format!("HTTP/1.0 200 OK\r\n{answer}").replace("OK\r\n\r\n\r\n", "OK\r\n\r\n");
        let origin = Origin::replying(answer.as_str());
        let server = Setup::new(
            "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://%%ORIGIN%%; add_trailer X-Time t$upstream_response_time; } } }",
        )
        .set("ORIGIN", origin.address())
        .start();
        let r = server.get("/");
        assert_eq!(r.text(), "body");
        let [(name, value)] = &r.trailers[..] else { panic!("{:?}", r.trailers) };
        assert!(name.eq_ignore_ascii_case("X-Time"));
        assert!(value.starts_with("t0.") || value.starts_with("t1."), "{value}");
    }
}
