//! A body that is passed on as it comes is there once. A request that is redirected behind a part of it goes on
//! without any body, or not at all: never with one that has a hole. (nginx asks the second server with the
//! length of the whole and sends it nothing.)

use std::sync::mpsc::{self, Receiver};
use std::sync::Mutex;
use weir_tests::cgi::{self, Asked};
use weir_tests::family::{Family, FAMILIES};
use weir_tests::h2::{request, H2};
use weir_tests::{Client, Conn, Origin, Server, Setup, PATIENCE};
use weir_wire::http2::frame;

const CONF: &str = "events {} http { error_log %%DIR%%/error.log info; proxy_http_version 1.1;
    server { listen 127.0.0.1:%%PORT_0%%; http2 on; %%PARAMS%% %%F%%_request_buffering off;
        %%F%%_intercept_errors on;
        location / { %%F%%_pass %%TO%%; error_page 502 504 = @backup; error_page 404 /second; }
        location /bare { %%F%%_pass %%TO%%; error_page 502 504 = @bare; }
        location /page { %%F%%_pass %%TO%%; error_page 502 504 = @page; }
        location @backup { %%F%%_pass %%SECOND%%; }
        location @bare { %%F%%_pass_request_body off; %%F%%_pass %%SECOND%%; }
        location @page { return 200 page; }
        location /second { internal; %%F%%_pass %%SECOND%%; } } }";

struct Given {
    family: Family,
    server: Server,
    /// Notes that the first part has come, so that the next is one of its own.
    first_came: Receiver<()>,
    second: Receiver<Asked>,
    _origins: (Origin, Origin),
}

/// The first server ends with that text when it has two parts of a body.
fn start(family: Family, says: &'static str) -> Given {
    let (tell, first_came) = mpsc::channel();
    let first = Origin::start_raw(move |conn: &mut Conn, _| {
        if conn.read_until(b"first;").is_none() {
            return;
        }
        tell.send(()).unwrap();
        if conn.read_until(b"second;").is_some() {
            let text = match family {
                Family::Proxy => says.replace("Status: ", "HTTP/1.1 ").into_bytes(),
                Family::Fastcgi if !says.is_empty() => cgi::answer(says),
                _ => says.into(),
            };
            conn.write(text);
        }
    });
    let (tell, second) = mpsc::channel();
    let tell = Mutex::new(tell);
    let backup = family.origin(move |asked, answer| {
        tell.lock().unwrap().send(asked.clone()).unwrap();
        answer.reply("200 OK", "", "backup");
    });
    let scheme = if family == Family::Proxy { "http://" } else { "" };
    let conf = CONF.replace("%%SECOND%%", &format!("{scheme}{}", backup.address()));
    let server = family.setup(&conf, &first).start();
    Given { family, server, first_came, second, _origins: (first, backup) }
}

impl Given {
    /// Uploads in parts of which the last comes behind the answer, on a connection that is then used again.
    fn upload(&self, client: &mut Client, method: &str, path: &str) -> (u16, String) {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 19\r\n\r\n");
        client.send(format!("{head}first;").as_bytes());
        self.first_came.recv_timeout(PATIENCE).expect("the first part came");
        client.send(b"second;");
        let response = client.response();
        client.send(b"third;");
        (response.status, response.text())
    }

    #[track_caller]
    fn was_asked_without_a_body(&self) {
        let asked = self.second.recv_timeout(PATIENCE).expect("the second server is asked");
        // Of CGI's HTTP_ fields nothing follows.
        let prefix = if self.family == Family::Proxy { "HTTP_" } else { "" };
        let said = |name: &str| asked.param(&format!("{prefix}{name}")).unwrap_or("");
        assert_eq!((&asked.body[..], said("TRANSFER_ENCODING")), (&b""[..], ""), "{asked:?}");
        assert!(matches!(said("CONTENT_LENGTH"), "" | "0"), "{asked:?}");
    }
}

#[test]
fn a_request_that_changes_something_is_not_repeated_without_its_body() {
    for family in FAMILIES {
        let given = start(family, "");
        let mut client = given.server.connect();
        assert_eq!(given.upload(&mut client, "POST", "/").0, 502, "{family:?}");
        given
            .server
            .expect_error("a part of the client request body has been passed on unbuffered");
        assert!(given.second.try_recv().is_err(), "{family:?}: the second server was asked");
        assert_eq!(given.upload(&mut client, "PUT", "/page"), (200, "page".to_string()));
        assert_eq!(given.upload(&mut client, "GET", "/"), (200, "backup".to_string()));
        given.was_asked_without_a_body();
    }
}

#[test]
fn a_location_that_sends_no_body_is_asked() {
    let given = start(Family::Proxy, "");
    let mut client = given.server.connect();
    assert_eq!(given.upload(&mut client, "POST", "/bare"), (200, "backup".to_string()));
    given.was_asked_without_a_body();
}

#[test]
fn what_has_become_a_get_goes_on_without_a_body() {
    for family in FAMILIES {
        for (says, status) in [
            ("Status: 200 OK\r\nX-Accel-Redirect: /second\r\nContent-Length: 5\r\n\r\nearly", 200),
            ("Status: 404 Not Found\r\nContent-Length: 5\r\n\r\nearly", 404),
        ] {
            let given = start(family, says);
            let mut client = given.server.connect();
            for _ in 0..2 {
                let answer = given.upload(&mut client, "POST", "/");
                assert_eq!(answer, (status, "backup".to_string()), "{family:?}");
                given.was_asked_without_a_body();
            }
        }
    }
}

#[test]
fn the_same_over_http2() {
    let given = start(Family::Proxy, "");
    let mut h2 = H2::connect(&given.server);
    for (method, expected) in [("POST", 502), ("GET", 200)] {
        let fields = [&request(method, "/")[..], &[("content-length", "19")]].concat();
        let stream = h2.open(&fields, false);
        h2.send(frame::DATA, 0, stream, b"first;");
        given.first_came.recv_timeout(PATIENCE).expect("the first part came");
        h2.send(frame::DATA, 0, stream, b"second;");
        assert_eq!(h2.answer(stream).status, expected, "{method}");
    }
    given.was_asked_without_a_body();
}

/// Of which nothing has gone out: the other server gets all of it.
#[test]
fn a_body_that_is_whole_still_goes_to_the_backup() {
    let backup = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; proxy_http_version 1.1;
            proxy_request_buffering off;
            location / { proxy_pass http://%%NOBODY%%; error_page 502 = @backup; }
            location @backup { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", backup.address())
    .set("NOBODY", format!("127.0.0.1:{}", weir_tests::free_port()))
    .start();
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\nfirst;");
    client.send(b"second;");
    assert!(client.response().text().ends_with("\r\n\r\nfirst;second;"));
}
