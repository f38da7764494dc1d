//! What the variables of the core say.

use weir_tests::Setup;

#[test]
fn a_table_of_variables() {
    let setup = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; server_name name.test localhost;
            root %%DIR%%/html;
            location / { set $v "";
                if ($arg_v = a) { return 200 "$arg_x|$ARG_X|$args|$is_args|$query_string"; }
                if ($arg_v = b) { return 200 "$binary_remote_addr"; }
                if ($arg_v = c) { return 200 "$content_length|$content_type"; }
                if ($arg_v = d) { return 200 "$cookie_a|$cookie_b|$http_cookie|$cookie_none"; }
                if ($arg_v = e) { return 200 "$document_root|$request_filename|$document_uri"; }
                if ($arg_v = m) { return 200 $realpath_root; }
                if ($arg_v = f) { return 200 "$host|$http_host|$hostname|$server_name|$server_addr|$server_port"; }
                if ($arg_v = g) { return 200 "$remote_addr|$remote_port|$remote_user"; }
                if ($arg_v = h) { return 200 "$request|$request_method|$request_uri|$server_protocol|$scheme|$https"; }
                if ($arg_v = i) { return 200 "$http_user_agent|$http_x_y_z|$http_none"; }
                if ($arg_v = j) { return 200 "$request_id|$request_length|$connection|$pid|$nginx_version"; }
                if ($arg_v = k) { return 200 "$limit_rate|$request_completion|$pipe|$sent_http_x|$tcpinfo_rtt"; }
                if ($arg_v = l) { return 200 "$time_local|$time_iso8601|$msec|$request_time"; }
                return 200 "${arg_x}y$uri";
            } } }"#,
    )
    .file("html/x", "");
    let dir = setup.dir().display().to_string();
    let server = setup.start();
    let port = server.port(0);
    for (path, headers, text) in [
        ("/?v=a&x=1&X=2", "", "1|1|v=a&x=1&X=2|?|v=a&x=1&X=2".to_string()),
        ("/?v=b", "", "\u{7f}\0\0\u{1}".into()),
        ("/?v=c", "Content-Length: 0\r\nContent-Type: a/b\r\n", "0|a/b".into()),
        ("/?v=d", "Cookie: a=1; b=2\r\nCookie: c=3\r\n", "1|2|a=1; b=2; c=3|".into()),
        ("/p%20q?v=e", "", format!("{dir}/html|{dir}/html/p q|/p q")),
        ("/?v=h", "", "GET /?v=h HTTP/1.1|GET|/?v=h|HTTP/1.1|http|".into()),
        ("/?v=i", "User-Agent: me\r\nX-Y-Z: 1\r\n", "me|1|".into()),
        ("/z?x=%20", "", "%20y/z".into()),
    ] {
        assert_eq!(server.get_with(path, headers).text(), text, "{path}");
    }
    // Windows names the drive, and has its own separators.
    let real = server.get("/?v=m").text();
    assert_eq!(real.trim_start_matches("Z:").replace('\\', "/"), format!("{dir}/html"), "{real}");
    let hosts = server.get("/?v=f").text();
    assert!(hosts.starts_with("localhost|localhost|"), "{hosts}");
    assert!(hosts.ends_with(&format!("|name.test|127.0.0.1|{port}")), "{hosts}");
    let mut client = server.connect();
    let remote = client.get("/?v=g").text();
    assert_eq!(remote, format!("127.0.0.1|{}|", client.local_port()));
    let user = server.get_with("/?v=g", "Authorization: Basic dTpw\r\n").text();
    assert!(user.ends_with("|u"), "{user}");
    let ids = server.get("/?v=j").text();
    let words: Vec<&str> = ids.split('|').collect();
    assert!(words[0].len() == 32 && words[0].bytes().all(|b| b.is_ascii_hexdigit()), "{ids}");
    assert_eq!(
        words[1],
        format!("{}", "GET /?v=j HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".len())
    );
    assert!(words[2].parse::<u32>().is_ok() && words[3].parse::<u32>().is_ok(), "{ids}");
    let misc = server.get("/?v=k").text();
    assert!(misc.starts_with("0||.||"), "{misc}");
    let times = server.get("/?v=l").text();
    let words: Vec<&str> = times.split('|').collect();
    assert_eq!((words[0].len(), words[1].len(), words[2].len()), (26, 25, 14), "{times}");
}

#[test]
fn variables_of_the_answer_and_of_upstreams() {
    let origin = weir_tests::Origin::start(|_, conn| {
        conn.reply("203 X", "X-O: o1\r\nX-O: o2\r\nSet-Cookie: c=v; Path=/\r\n", "body");
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        r#"events {} http {
            log_format a '$status|$sent_http_content_length|$sent_http_x_added|$body_bytes_sent|$request_completion';
            log_format u '$upstream_addr|$upstream_status|$upstream_http_x_o|$upstream_cookie_c|$upstream_response_length|$upstream_bytes_received';
            log_format t '$upstream_response_time|$upstream_header_time|$upstream_connect_time|$proxy_host|$proxy_port';
            access_log %%DIR%%/a.log a; access_log %%DIR%%/u.log u; access_log %%DIR%%/t.log t;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { add_header X-Added yes; proxy_pass http://%%O%%; } } }"#,
    )
    .set("O", origin.address())
    .start();
    server.get("/");
    assert_eq!(server.log_lines("a.log", 1)[0], "203|4|-|4|OK");
    let upstream = &server.log_lines("u.log", 1)[0];
    assert!(upstream.starts_with(&format!("{}|203|o1, o2|v|4|", origin.address())), "{upstream}");
    let times = &server.log_lines("t.log", 1)[0];
    assert!(times.starts_with("0.0"), "{times}");
    assert!(times.ends_with(&format!("|{}|{}", origin.address(), origin.port())), "{times}");
}

#[test]
fn args_can_be_assigned() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { set $args a=b; return 200 '$args $arg_a $request_uri'; } } }",
    )
    .start();
    assert_eq!(server.get("/?x=y").text(), "a=b b /?x=y");
}
