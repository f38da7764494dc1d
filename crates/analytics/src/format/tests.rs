use super::*;
use crate::event::{Method, Protocol};

const COMBINED: &str = r#"10.0.0.1 - bob [10/Oct/2026:13:55:36 +0000] "GET /a?b=c HTTP/1.1" 200 2326 "http://x.example/y" "Mozilla/5.0 (X11)""#;

struct Seen {
    text: String,
    time_us: Option<u32>,
}

fn seen(format: &Format, line: &str) -> Result<Seen, Invalid> {
    let mut scanner = format.scanner();
    let event = scanner.scan(line.as_bytes()).unwrap()?;
    let text = |t: &[u8]| String::from_utf8_lossy(t).into_owned();
    assert_eq!((event.time.day, event.time.second), (20_736, 50_136), "{line}");
    let words = [
        event.address.to_string(),
        event.method.name().to_owned(),
        text(event.uri),
        event.protocol.name().to_owned(),
        event.status.to_string(),
        event.bytes.to_string(),
        text(event.referrer),
        text(event.agent),
        text(event.host),
    ];
    Ok(Seen { text: words.join(" "), time_us: event.time_us })
}

fn detected(log: &str) -> Format {
    detect(log.as_bytes()).unwrap_or_else(|| panic!("not detected: {log}"))
}

#[test]
fn well_known_ones_are_found() {
    const ALL: &str = "10.0.0.1 GET /a?b=c HTTP/1.1 200 2326 http://x.example/y Mozilla/5.0 (X11)";
    let vhost = format!("www.example.com:443 {COMBINED}");
    let caddy = r#"{"level":"info","ts":1791640536.5,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"5","client_ip":"10.0.0.1","proto":"HTTP/1.1","method":"GET","host":"www.example.com","uri":"/a?b=c","headers":{"User-Agent":["Mozilla/5.0 (X11)"],"Referer":["http:\/\/x.example\/y"]}},"bytes_read":0,"user_id":"","duration":0.25,"size":2326,"status":200,"resp_headers":{"Host":["x"],"Date":["y"]}}"#;
    let nginx = r#"{"time_iso8601": "2026-10-10T13:55:36+00:00", "remote_addr": "10.0.0.1", "request": "GET /a?b=c HTTP/1.1", "status": "200", "body_bytes_sent": "2326", "http_referer": "http://x.example/y", "http_user_agent": "Mozilla/5.0 (X11)", "host": "www.example.com", "request_time": "0.250"}"#;
    let ingress =
        format!("{COMBINED} 512 0.250 [default-web-80] [] 10.1.1.1:80 2326 0.2 200 abcdef");
    let cloudfront = "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query time-taken cs-protocol-version\n2026-10-10\t13:55:36\tFRA2\t2326\t10.0.0.1\tGET\twww.example.com\t/a\t200\thttp://x.example/y\tMozilla/5.0 (X11)\tb=c\t0.250\tHTTP/1.1\n";
    let host = " www.example.com";
    for (log, name, is_hosted, us) in [
        (COMBINED, "combined", false, None),
        (&vhost, "vcombined", true, None),
        (caddy, "json", true, Some(250_000)),
        (nginx, "json", true, Some(250_000)),
        (&ingress, "ingress", false, Some(250_000)),
        (cloudfront, "w3c", true, Some(250_000)),
    ] {
        let format = detected(log);
        assert_eq!(format.name(), name);
        let found =
            seen(&format, log.lines().last().unwrap()).unwrap_or_else(|e| panic!("{log}: {e:?}"));
        let wanted = format!("{ALL}{}", if is_hosted { host } else { " " });
        assert_eq!(found.text, wanted);
        assert_eq!(found.time_us, us, "{log}");
    }
}

#[test]
fn balancers() {
    let elb = r#"2026-10-10T13:55:36.123456Z my-lb 10.0.0.1:2817 10.1.0.1:80 0.000073 0.25 0.000057 200 200 0 2326 "GET http://www.example.com:80/a HTTP/1.1" "curl/7.38.0" - -"#;
    let alb = format!("https {elb}");
    for (log, name) in [(elb, "elb"), (&*alb, "alb")] {
        let format = detected(log);
        assert_eq!(format.name(), name);
        let found = seen(&format, log).unwrap();
        assert_eq!(
            found.text,
            "10.0.0.1 GET http://www.example.com:80/a HTTP/1.1 200 2326  curl/7.38.0 "
        );
        assert_eq!(found.time_us, Some(250_000));
    }
}

#[test]
fn common_and_unknown_ones() {
    let common = r#"10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5"#;
    assert_eq!(detected(common).name(), "common");
    assert_eq!(detected(&format!("nonsense\n\n{common}\nnonsense")).name(), "common");
    for log in ["", "\n\n", "something else\n", "{\"a\": 1}\n"] {
        assert!(detect(log.as_bytes()).is_none(), "{log}");
    }
    for name in NAMED {
        Format::given(name.as_bytes()).unwrap();
    }
    assert!(Format::given(b"nosuch").unwrap_err().contains("combined"));
}

#[test]
fn texts_of_nginx() {
    let text = b"${msec}|$host|$remote_addr|$request_method $request_uri $server_protocol|$status|$bytes_sent|$request_time|$http_referer|$http_user_agent|$args";
    let format = Format::nginx(text, Escape::None).unwrap();
    let line = "1791640536.000|h|::1|GET /a?b=c HTTP/2.0|404|7|1.5|-|a\"b|b=c";
    let found = seen(&format, line).unwrap();
    assert_eq!(
        (&*found.text, found.time_us),
        ("::1 GET /a?b=c HTTP/2 404 7  a\"b h", Some(1_500_000))
    );

    let json = br#"{"at":"$time_iso8601","from":"$remote_addr","what":"$request","agent":"$http_user_agent"}"#;
    let format = Format::nginx(json, Escape::Json).unwrap();
    let line = r#"{"at":"2026-10-10T13:55:36+00:00","from":"::1","what":"GET /\"x\",\" HTTP/1.1","agent":"a"}"#;
    assert_eq!(seen(&format, line).unwrap().text, r#"::1 GET /\"x\",\" HTTP/1.1 0 0  a "#);

    let proxied =
        Format::nginx(b"$http_x_forwarded_for [$time_local] \"$request\"", Escape::Default)
            .unwrap();
    let line = r#"10.0.0.1 [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1""#;
    assert_eq!(seen(&proxied, line).unwrap().text, "10.0.0.1 GET / HTTP/1.1 0 0   ");
}

#[test]
fn texts_that_cannot_be_read() {
    for (text, why) in [
        ("$remote_addr$host $msec $request", "nothing between"),
        ("$host $msec $request", "address"),
        ("$remote_addr $request", "no time"),
        ("$remote_addr $msec", "no request"),
        ("$remote_addr ${msec $request", "not closed"),
        ("$remote_addr $ $request", "no name"),
        ("%h %t %{x", "not closed"),
        ("%h %t %", "nothing behind"),
    ] {
        let error = Format::given(text.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn texts_of_apache() {
    let text = br#"%v:%p %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\" %D"#;
    let format = Format::given(text).unwrap();
    let line = format!("www.example.com:80 {COMBINED} 250000");
    let found = seen(&format, &line).unwrap();
    assert!(found.text.ends_with("http://x.example/y Mozilla/5.0 (X11) www.example.com"));
    assert_eq!(found.time_us, Some(250_000));
}

#[test]
fn quotes_that_are_escaped() {
    let format = detected(COMBINED);
    let line =
        r#"10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "GET /\"a\" HTTP/1.1" 200 5 "-" "a \" 1 \\""#;
    let found = seen(&format, line).unwrap();
    assert_eq!(found.text, r#"10.0.0.1 GET /\"a\" HTTP/1.1 200 5  a \" 1 \\ "#);
}

#[test]
fn what_is_no_request() {
    let format = detected(COMBINED);
    for (line, why) in [
        ("nothing", Invalid::Form),
        (&COMBINED.replace("10.0.0.1", "somebody"), Invalid::Address),
        (&COMBINED.replace("13:55", "25:55"), Invalid::Time),
        (&COMBINED.replace(" 200 ", " 600 "), Invalid::Status),
        (&COMBINED.replace(" 200 ", " - "), Invalid::Status),
        (&COMBINED.replace("/a", &"a".repeat(LINE_MAX_BYTES)), Invalid::TooLong),
    ] {
        assert_eq!(seen(&format, line).err(), Some(why), "{line:.80}");
    }
    let mut scanner = format.scanner();
    assert!(
        scanner.scan(b"").is_none()
            && scanner.scan(b"# x").is_none()
            && scanner.scan(b"\r").is_none()
    );
    let odd = COMBINED.replace("GET /a?b=c HTTP/1.1", "\\x16\\x03");
    let event = scanner.scan(odd.as_bytes()).unwrap().unwrap();
    assert_eq!(
        (event.method, event.uri, event.protocol),
        (Method::None, &b"\\x16\\x03"[..], Protocol::None)
    );
}

#[test]
fn broken_json() {
    let format = Format::json();
    let good = r#"{"ts":"2026-10-10T13:55:36Z","ip":"::1","uri":"/\u00e9\ud83d\ude00\n","a":[{"b":null}]}"#;
    assert_eq!(seen(&format, good).unwrap().text, "::1 - /é😀\n - 0 0   ");
    for end in 0..good.len() {
        assert!(seen(&format, &good[..end.max(1)]).is_err());
    }
    let deep = format!("{{\"a\":{}", "[".repeat(1000));
    assert_eq!(seen(&format, &deep).err(), Some(Invalid::Form));
}
