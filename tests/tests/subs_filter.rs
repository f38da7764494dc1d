//! `subs_filter`: strings and expressions replaced line by line.

use weir_tests::{run_cli, Next, Origin, Server, Setup};

const CONF: &str = r#"events {} http { default_type text/html; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    error_log %%DIR%%/error.log warn;
    location /string { subs_filter cat DOG; }
    location /once { subs_filter cat DOG o; }
    location /caseless { subs_filter CAT DOG i; }
    location /captures { subs_filter '(c)(at)' '$2$1' r; }
    location /anchors { subs_filter '^(.)' '<$1>' r; subs_filter 'CAT' x rio; }
    location /chain { subs_filter cat dog; subs_filter dog 'cow $request_method'; }
    location /computed { subs_filter $arg_from $arg_to ig; }
    location /nothing { subs_filter 'x*' - r; }
    location /grows { subs_filter '[acs]' 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' r;
        subs_filter a 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'; }
    location /types { default_type text/plain; subs_filter cat DOG; }
    location /typed { default_type text/plain; subs_filter cat DOG; subs_filter_types text/plain; }
    location /bypass { subs_filter cat DOG; subs_filter_bypass $arg_off $arg_no; subs_buffers 8 4k; subs_line_buffer_size 4k; }
    location /after { subs_filter '(c)' C r; rewrite ^/after/(.*) /$1 break; add_header X-Is $1; }
    location /tries { subs_filter '(*LIMIT_MATCH=20)^([ab]|[ab][ab])*[!?]' - r; }
    location /passed { proxy_pass http://127.0.0.1:%%UP%%; subs_filter cat DOG; subs_filter '[0-9]+' N r; }
} }"#;

const TEXT: &str = "cat one\nCat cat\nno\ncats";
const NAMES: [&str; 14] = [
    "string", "once", "caseless", "captures", "anchors", "chain", "computed", "nothing", "types",
    "typed", "bypass", "plain", "grows", "tries",
];

fn start(up: u16) -> Server {
    let setup = Setup::new(CONF).set("UP", up);
    NAMES.iter().fold(setup, |setup, name| setup.file(name, TEXT)).start()
}

#[test]
fn what_becomes_of_a_page() {
    let server = start(9);
    for (path, expected) in [
        ("/string", "DOG one\nCat DOG\nno\nDOGs"),
        ("/once", "DOG one\nCat cat\nno\ncats"),
        ("/caseless", "DOG one\nDOG DOG\nno\nDOGs"),
        ("/captures", "atc one\nCat atc\nno\natcs"),
        ("/anchors", "<c>at one\n<C>at x\n<n>o\n<c>ats"),
        ("/chain", "cow GET one\nCat cow GET\nno\ncow GETs"),
        ("/computed?from=CAT&to=x", "x one\nx x\nno\nxs"),
        ("/computed?to=x", TEXT),
        ("/nothing", "-c-a-t- -o-n-e-\n-C-a-t- -c-a-t-\n-n-o-\n-c-a-t-s"),
        ("/types", TEXT),
        ("/typed", "DOG one\nCat DOG\nno\nDOGs"),
        ("/bypass?off=0&no=", "DOG one\nCat DOG\nno\nDOGs"),
        ("/bypass?off=1", TEXT),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    let page = server.get("/string");
    assert_eq!(
        (page.header("Content-Length"), page.header("Last-Modified"), page.header("ETag")),
        (None, None, None)
    );
    let part = server.get_with("/string", "Range: bytes=0-1\r\n");
    assert_eq!((part.status, part.header("Accept-Ranges")), (200, None));
}

/// What the request has captured is not what the filter has.
#[test]
fn captures_of_the_request_stay() {
    let server = start(9);
    let page = server.get("/after/plain");
    assert_eq!((page.header("X-Is"), page.text()), (Some("plain"), TEXT.replace('c', "C")));
}

/// Lines that come in pieces, one at a time, and one that is longer than the buffers.
#[test]
fn lines_over_several_pieces() {
    let origin = Origin::start(|_, to| {
        to.write("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n");
        for piece in ["a ca", "t 12", "34", " b\nca", "t", "\n", "last c", "at"] {
            to.write(piece);
        }
        to.write("x1cat".repeat(100_000));
        to.write("\nend");
        Next::Close
    });
    let server = start(origin.port());
    let expected = format!("a DOG N b\nDOG\nlast DOG{}\nend", "xNDOG".repeat(100_000));
    assert!(server.get("/passed").text() == expected);
}

/// A pair may make much of what another has made, but not without end.
#[test]
fn a_line_that_grows_without_end() {
    let server = start(9);
    server.write("grows", "acs".repeat(1000));
    let got = server.raw(b"GET /grows HTTP/1.0\r\n\r\n");
    assert!(got.len() < 1000, "{} bytes", got.len());
    server.expect_error("subs_filter made more than 16777216 bytes of one line");
}

/// What was given up is no text without a match.
#[test]
fn an_expression_that_gives_up() {
    let server = start(9);
    server.write("tries", "ababababab\n");
    let got = server.raw(b"GET /tries HTTP/1.0\r\n\r\n");
    assert!(!String::from_utf8_lossy(&got).contains("abab"));
    server.expect_error("[alert]");
}

#[test]
fn compressed_answers_stay() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\ncat1",
    );
    let server = start(origin.port());
    assert_eq!(server.get("/passed").text(), "cat1");
    server.expect_error("subs_filter leaves a compressed response as it is");
}

#[test]
fn what_is_refused() {
    for (line, error) in [
        ("subs_filter a b x;", "unknown flag \"x\""),
        ("subs_filter '(' b r;", "missing closing parenthesis"),
        ("subs_filter '' b;", "empty search pattern"),
        ("subs_filter a $nowhere;", "unknown \"nowhere\" variable"),
        ("subs_buffers x 4k;", "invalid"),
        ("subs_line_buffer_size x;", "invalid"),
    ] {
        let conf =
            format!("events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; {line} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.code == 1 && said.stderr.contains(error), "{line}: {}", said.stderr);
    }
}
