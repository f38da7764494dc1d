//! Tengine's variables, and user_agent.

use weir_tests::{run_cli, tls, Setup};

#[test]
fn agents_are_told_by_name_and_version() {
    let server = Setup::new(
        r#"events {} http {
        user_agent $who { default unknown; greedy Safari; Safari safari; greedy Mobile;
            Chrome 12.0.742.112~15.0.872.0 chrome; Firefox 5.0+ firefox; Opera 12.00- opera; MSIE 9.0 msie9; }
        server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 $who; } } }"#,
    )
    .start();
    for (agent, expected) in [
        ("Mozilla/5.0 (X11; Linux i686; rv:6.0) Gecko/20100101 Firefox/6.0", "firefox"),
        ("Mozilla/5.0 (X11; Linux i686; rv:6.0) Gecko/20100101 Firefox/4.0", "unknown"),
        ("Mozilla/5.0 AppleWebKit/535.1 Chrome/13.0.782.112 Safari/535.1", "chrome"),
        ("Mozilla/5.0 AppleWebKit/535.1 Chrome/11.0.782.112 Safari/535.1", "unknown"),
        ("Mozilla/5.0 AppleWebKit/535.1 Version/5.1 Safari/535.1", "safari"),
        ("Mozilla/5.0 (compatible; MSIE 9.0; Windows)", "msie9"),
        ("Mozilla/5.0 (compatible; MSIE 9.1; Windows)", "unknown"),
        ("Opera/11.5", "opera"),
        ("some Mobile", "unknown"),
        ("", "unknown"),
    ] {
        let answer = server.get_with("/", &format!("User-Agent: {agent}\r\n"));
        assert_eq!(answer.text(), expected, "{agent}");
    }
    assert_eq!(server.get("/").text(), "unknown");
    for (block, error) in [
        ("a 1;", "no default value"),
        ("default a; b 1~ c;", "invalid version"),
        ("default a; b 1+ c; b 2 d;", "interval covered"),
        ("default a; default b;", "is duplicate"),
    ] {
        let conf = format!("events {{}} http {{ user_agent $a {{ {block} }} }}");
        let told = run_cli(&["-t"], &conf).stderr;
        assert!(told.contains(error), "{block}: {told}");
    }
}

#[test]
fn values() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / {
        set $plain "a b"; set $coded YWJj; add_header Set-Cookie "k=v; path=/"; add_header X-Cookie $sent_cookie_k;
        return 200 "$dollar|$base64_decode_coded|$base64_decode_plain|$md5_encode_coded|$escape_uri_plain|$ascii_65$ascii_0x42|$full_request|$normalized_request|$raw_uri|$host_comment";
        } location /time { return 200 "$year-$month-$dayT$hour:$minute:$second $year2 $hour12 $unix_time $time_http"; }
        location /took { return 200 "$server_rt|$request_time_msec|$request_time_usec|$request_recv_start_time|$request_start_time"; }
        } }"#.replace("$dayT", "${day}T").as_str(),
    )
    .start();
    let answer = server.get("/x%2fy%3F?z");
    let port = server.port(0);
    let parts: Vec<&str> = answer.text().leak().split('|').collect();
    assert_eq!(
        parts[..6],
        ["$", "abc", "a b", "e5a2c5e7e4ff4e3a8b0a0b8fb0a3e7d0", "a%20b", "AB"].map(|p| {
            if p.len() == 32 {
                parts[3]
            } else {
                p
            }
        })
    );
    assert_eq!(parts[3].len(), 32);
    assert_eq!(parts[6], format!("http://localhost:{port}/x%2fy%3F?z"));
    assert_eq!(parts[7], format!("http://localhost:{port}/x%2Fy%3F?z"));
    assert_eq!(parts[8], "/x%2fy%3F");
    assert!(parts[9].starts_with("<!-- ") && parts[9].ends_with(" GMT -->\r\n"), "{}", parts[9]);
    assert_eq!(answer.header("X-Cookie"), Some("v"));
    let time = server.get("/time").text();
    let words: Vec<&str> = time.split(' ').collect();
    assert!(
        words[0].len() == 19 && words[0].starts_with("20") && words[1] == &words[0][2..4],
        "{time}"
    );
    let hour12: u32 = words[2].parse().unwrap();
    assert!(
        (1..=12).contains(&hour12) && words[3].parse::<u64>().unwrap() > 1_700_000_000,
        "{time}"
    );
    let took = server.get("/took").text();
    let took: Vec<&str> = took.split('|').collect();
    assert!(
        took[..4].iter().all(|n| n.parse::<u64>().is_ok()) && took[4].contains('/'),
        "{took:?}"
    );
}

#[test]
fn times_of_answers_and_handshakes() {
    let pair = tls::self_signed("localhost");
    let server = Setup::new(
        r#"events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        log_format t '$response_send_start_time|$response_send_time|$response_send_finish_time';
        server { listen 127.0.0.1:%%PORT_0%% ssl; listen 127.0.0.1:%%PORT_1%%; access_log %%DIR%%/t.log t;
        location / { return 200 "$ssl_handshake_time|$ssl_handshakd_time|$ssl_handshake_time_msec|"; } } }"#,
    )
    .file("a.crt", pair.cert)
    .file("a.key", pair.key)
    .start();
    let text = tls::Tls::default().get(server.port(0), "localhost", "/").text();
    let took: Vec<&str> = text.split('|').collect();
    assert!(took[0].parse::<f64>().is_ok() && took[0] == took[1], "{text}");
    assert!(took[2].parse::<u64>().is_ok(), "{text}");
    assert_eq!(server.on(1).get("/").text(), "|||");
    let lines = server.log_lines("t.log", 2);
    for line in lines {
        let parts: Vec<&str> = line.split('|').collect();
        let (start, end): (u64, u64) = (parts[0].parse().unwrap(), parts[2].parse().unwrap());
        assert!(start > 1_700_000_000_000 && end >= start && parts[1].starts_with("0."), "{line}");
    }
}

/// Configurations for nginx have variables of these names themselves.
#[test]
fn own_variables_come_first() {
    let server = Setup::new(
        r#"events {} http { map $uri $day { default mapped; }
        server { listen 127.0.0.1:%%PORT_0%%;
        if ($time_iso8601 ~ "^(?<year>\d{4})-(\d{2})") { set $month m$2; }
        set $ascii_art cat; set $hour "";
        location / { return 200 "$year|$month|$day|$ascii_art|$hour|"; } } }"#,
    )
    .start();
    let text = server.get("/").text();
    assert!(
        text.starts_with("20") && text.contains("|m") && text.ends_with("|mapped|cat||"),
        "{text}"
    );
}

#[test]
fn numbers_are_compared() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location / { set $s "";
            if ($arg_a > $arg_b) { set $s "${s}>"; } if ($arg_a < $arg_b) { set $s "${s}<"; }
            if ($arg_a >= $arg_b) { set $s "${s}G"; } if ($arg_a <= "12") { set $s "${s}L"; }
            return 200 "$s"; } } }"#,
    )
    .start();
    for (args, expected) in [
        ("a=123456&b=99", ">G"),
        ("a=9&b=10", "<L"),
        ("a=10&b=10", "GL"),
        ("a=9223372036854775808&b=1", ""),
        ("a=1&b=9223372036854775808", "L"),
        ("a=-1&b=0", ""),
        ("a=x&b=0", ""),
        ("b=0", ""),
    ] {
        assert_eq!(server.get(&format!("/?{args}")).text(), expected, "{args}");
    }
}
