//! `error_page` for a body that is refused: the error page's server is asked at once, and gets none of it.
//! (nginx announces the length of the body to it all the same.)

use std::sync::mpsc::{self, Receiver};
use std::sync::Mutex;
use weir_tests::cgi::Asked;
use weir_tests::family::{Family, FAMILIES};
use weir_tests::h2::{request, H2};
use weir_tests::{Origin, Server, PATIENCE};
use weir_wire::http2::frame;

const CONF: &str = "events {} http { client_max_body_size 50k; client_body_buffer_size 1k;
    client_body_temp_path %%DIR%%/body; lingering_timeout 1s; proxy_http_version 1.1;
    server { listen 127.0.0.1:%%PORT_0%%; http2 on; %%PARAMS%%
        location / { %%F%%_pass %%TO%%; error_page 413 400 @page; }
        location /streamed { %%F%%_request_buffering off; %%F%%_pass %%TO%%;
            error_page 413 400 @page; }
        location /uri { %%F%%_pass %%TO%%; error_page 413 400 /page; }
        location /mirrored { mirror /off; %%F%%_pass %%TO%%; error_page 413 400 @page; }
        location /off { return 204; }
        location /page { %%F%%_pass %%TO%%; }
        location @page { %%F%%_pass %%TO%%; } } }";

fn start(family: Family) -> (Server, Origin, Receiver<Asked>) {
    let (tell, asked) = mpsc::channel();
    let tell = Mutex::new(tell);
    let origin = family.origin(move |asked, answer| {
        tell.lock().unwrap().send(asked.clone()).unwrap();
        answer.reply("200 OK", "", "explained");
    });
    (family.setup(CONF, &origin).start(), origin, asked)
}

#[track_caller]
fn without_a_body(family: Family, asked: &Receiver<Asked>) {
    let asked = asked.recv_timeout(PATIENCE).expect("the page's server is asked");
    // Of CGI's HTTP_ fields nothing follows.
    let prefix = if family == Family::Proxy { "HTTP_" } else { "" };
    let said = |name: &str| asked.param(&format!("{prefix}{name}")).unwrap_or("");
    assert_eq!((&asked.body[..], said("TRANSFER_ENCODING")), (&b""[..], ""), "{asked:?}");
    assert!(matches!(said("CONTENT_LENGTH"), "" | "0"), "{asked:?}");
}

#[test]
fn it_is_reached_at_once_and_without_the_body() {
    let full = format!("1000\r\n{}\r\nEA60\r\nabcd", "a".repeat(4096));
    for family in FAMILIES {
        let (server, _origin, asked) = start(family);
        for path in ["/", "/streamed", "/uri", "/mirrored"] {
            for (status, body) in [
                (413, "Content-Length: 60000\r\n\r\nabc"),
                (413, "Content-Length: 60000\r\nExpect: 100-continue\r\n\r\n"),
                (413, "Transfer-Encoding: chunked\r\n\r\nEA60\r\nabcd"),
                (413, &*format!("Transfer-Encoding: chunked\r\n\r\n{full}")),
                (400, "Transfer-Encoding: chunked\r\n\r\nZZ\r\n"),
            ] {
                let mut client = server.connect();
                client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{body}").as_bytes());
                let response = client.response();
                let got = (response.status, response.text());
                assert_eq!(got, (status, "explained".to_string()), "{family:?} {path} {body:.60}");
                without_a_body(family, &asked);
            }
        }
        let kept = std::fs::read_dir(server.dir().join("body")).map_or(0, Iterator::count);
        assert_eq!(kept, 0, "{family:?}");
    }
}

#[test]
fn the_same_over_http2() {
    let (server, _origin, asked) = start(Family::Proxy);
    let mut h2 = H2::connect(&server);
    for path in ["/", "/streamed", "/uri"] {
        let fields = [&request("POST", path)[..], &[("content-length", "60000")]].concat();
        let stream = h2.open(&fields, false);
        let answer = h2.answer(stream);
        assert_eq!((answer.status, answer.text().as_str()), (413, "explained"), "{path}");
        without_a_body(Family::Proxy, &asked);
        let stream = h2.open(&request("POST", path), false);
        for _ in 0..4 {
            h2.send(frame::DATA, 0, stream, &[b'x'; 15_000]);
        }
        let answer = h2.answer(stream);
        assert_eq!((answer.status, answer.text().as_str()), (413, "explained"), "{path}");
        without_a_body(Family::Proxy, &asked);
    }
}

/// A handler that throws the body away, and then has no answer.
#[test]
fn what_was_thrown_away_is_not_announced() {
    let origin = Origin::echo();
    let server = weir_tests::Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { root %%DIR%%; autoindex on; autoindex_format jsonp; error_page 400 = @page; }
            location @page { proxy_http_version 1.1; proxy_set_header X-Length $content_length;
                proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(format!("GET /?callback=- HTTP/1.1\r\nHost: a\r\n{body}").as_bytes());
        assert_eq!(client.response().status, 200, "{body}");
        let asked = origin.last_request();
        assert_eq!((asked.text().as_str(), asked.header("Transfer-Encoding")), ("", None));
        assert_eq!((asked.header("Content-Length"), asked.header("X-Length")), (None, None));
    }
}

#[test]
fn who_throws_a_body_away_itself_knows_its_length() {
    let server = weir_tests::Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 $content_length; } }",
    )
    .start();
    assert_eq!(server.on(0).post("/", "hello").text(), "5");
}
