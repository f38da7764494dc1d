//! set-misc: variables that are made of several strings, and their place in the program.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { upstream_list universe moon sun earth; upstream_list weighted 3:one two;
    server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
    location /empty { set $a 32; set_if_empty $a 56; set $b $arg_b; set_if_empty $b "x$uri"; set_if_empty $c 72;
        return 200 "$a|$b|$c"; }
    location /arg { set_if_empty $arg_x 15; return 200 $arg_x; }
    location /sha1 { set $s thisisverysecretstuff; set_hmac_sha1 $a $s 'some string we want to sign';
        set_encode_base64 $a; return 200 $a; }
    location /sha256 { set_hmac_sha256 $a 'thisisverysecretstuff' 'some string we want to sign';
        set_encode_base64 $a; return 200 $a; }
    location /keyless { set_hmac_sha256 $a '' ''; set_encode_base64 $a; return 200 $a; }
    location /random { set_random $a $arg_from $arg_to; return 200 $a; }
    location /rotate { set $a $arg_a; set_rotate $a 1 3; return 200 $a; }
    location /round { set_rotate $a 0 2; return 200 $a; }
    location /other { set_rotate $a 0 2; return 200 $a; }
    location /wrong { set_rotate $a x 2; return 200 $a; }
    location /hashed { set_hashed_upstream $a universe $arg_k; return 200 $a; }
    location /named { set_hashed_upstream $a $arg_l $arg_k; return 200 $a; }
    location /weights { set_hashed_upstream $a weighted $arg_k; return 200 $a; }
    location /order { set $a one; set_quote_sql_str $b $a; set $a two; if ($arg_x) { set_quote_sql_str $b "$a$arg_x"; }
        set $c "$b!"; return 200 $c; }
    location /stops { set $a 1; break; set_md5 $a x; return 200 $a; }
    location ~ ^/captured/(.*)$ { set_quote_sql_str $a $1; return 200 $a; }
    set_md5 $of_server 'x';
    location /server { return 200 $of_server; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).start()
}

#[test]
fn values_are_made_in_order() {
    let server = start();
    for (path, expected) in [
        ("/empty", "32|x/empty|72"),
        ("/empty?b=1", "32|1|72"),
        ("/arg?x=71", "71"),
        ("/arg", "15"),
        ("/sha1", "R/pvxzHC4NLtj7S+kXFg/NePTmk="),
        ("/sha256", "4pU3GRQrKKIoeLb9CqYsavHE2l6Hx+KMmRmesU+Cfrs="),
        ("/keyless", "thNnmggU2ex3L5XXeMNfxf8Wl8STcVZTxscSFEKSxa0="),
        ("/order", "'one'!"),
        ("/order?x=y", "'twoy'!"),
        ("/captured/a'b", "'a\\'b'"),
        ("/server", "9dd4e461268c8034f5c8564e155c67a6"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
}

#[test]
fn numbers_are_random_within_their_range() {
    let server = start();
    let number = |from: &str, to: &str| server.get(&format!("/random?from={from}&to={to}"));
    for _ in 0..20 {
        assert!(["5", "6", "7"].contains(&number("5", "7").text().as_str()));
        assert!(["35", "36"].contains(&number("36", "35").text().as_str()));
    }
    assert_eq!(number("117", "117").text(), "117");
    assert_eq!(number("0", "0").text(), "0");
    for (from, to) in [("-2", "4"), ("2", "-4"), ("", "4"), ("2", "")] {
        assert_eq!(number(from, to).status, 500, "{from} {to}");
    }
}

#[test]
fn values_go_round_in_each_location() {
    let server = start();
    let get = |path: &str| server.get(path).text();
    for (path, expected) in [("1", "2"), ("2", "3"), ("3", "1"), ("0", "1"), ("9", "1")] {
        assert_eq!(get(&format!("/rotate?a={path}")), expected, "{path}");
    }
    let both: Vec<_> = (0..4).flat_map(|_| [get("/round"), get("/other")]).collect();
    assert_eq!(both, ["0", "0", "1", "1", "2", "2", "0", "0"]);
    assert_eq!(get("/rotate?a=abc"), "2");
    server.expect_error("set_rotate: bad current value: \"abc\"");
    assert_eq!(server.get("/wrong").status, 500);
}

#[test]
fn upstreams_are_chosen_by_a_hash() {
    let server = start();
    for (key, expected) in [("", "moon"), ("hello", "sun"), ("world", "moon"), ("larry", "earth")] {
        assert_eq!(server.get(&format!("/hashed?k={key}")).text(), expected, "{key}");
        assert_eq!(server.get(&format!("/named?l=Universe&k={key}")).text(), expected, "{key}");
    }
    let keys = ["a", "b", "c", "d"].map(|key| server.get(&format!("/weights?k={key}")).text());
    assert_eq!(keys.iter().filter(|name| *name == "one").count(), 3, "{keys:?}");
    assert_eq!(server.get("/named?l=none").status, 500);
}
