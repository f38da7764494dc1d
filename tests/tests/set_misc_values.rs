//! set-misc: variables that are made of one string.

use weir_tests::{run_cli, Setup};

/// What `return` shows of `$a` behind these directives.
fn shown(directives: &str, args: &str) -> String {
    let conf = format!(
        "events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%;
            location / {{ {directives} return 200 \"[$a]\"; }} }} }}"
    );
    let answer = Setup::new(&conf).start().get(&format!("/{args}"));
    assert_eq!(answer.status, 200, "{directives}");
    let text = answer.text();
    text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or_default().to_owned()
}

#[test]
fn strings_are_quoted() {
    for (directives, args, expected) in [
        (r#"set $a "hello\n\r'\"\\"; set_quote_sql_str $a;"#, "", r#"'hello\n\r\'\"\\'"#),
        (r#"set_quote_sql_str $a "it's";"#, "", r"'it\'s'"),
        ("set_quote_sql_str $a;", "", "''"),
        (
            "set_unescape_uri $b $arg_a; set_quote_sql_str $a $b;",
            "?a=a%00%08%09%1a$",
            r"'a\0\b\t\Z\$'",
        ),
        ("set_quote_pgsql_str $a \"it's\";", "", r"E'it\'s'"),
        ("set_quote_pgsql_str $a '';", "", "''"),
        ("set_unescape_uri $b $arg_a; set_quote_pgsql_str $a $b;", "?a=%c4%e3a", r"E'\\304\\343a'"),
        ("set_unescape_uri $b $arg_a; set_quote_pgsql_str $a $b;", "?a=%e4%bd%a0", "E'\u{4f60}'"),
        (r#"set $a "a\n\"\\"; set_quote_json_str $a;"#, "", r#""a\n\"\\""#),
        ("set_quote_json_str $a;", "", "null"),
    ] {
        assert_eq!(shown(directives, args), expected, "{directives}");
    }
}

#[test]
fn parts_of_uris_are_decoded_and_encoded() {
    for (directives, args, expected) in [
        ("set_unescape_uri $a $arg_k;", "?k=hello+world%21", "hello world!"),
        ("set $a $arg_k; set_unescape_uri $a;", "?k=%e4%bd%a0", "\u{4f60}"),
        ("set_unescape_uri $a $arg_k;", "?k=%zz%4zb%", "zzb"),
        ("set_escape_uri $a 'hello world';", "", "hello%20world"),
        ("set $a 'a/b?c=d&e+f'; set_escape_uri $a;", "", "a%2Fb%3Fc%3Dd%26e%2Bf"),
        ("set_escape_uri $a \"~-_.!*'(),@|\u{4f60}\";", "", "~-_.!*'(),@|%E4%BD%A0"),
        ("set_escape_uri $a '';", "", ""),
    ] {
        assert_eq!(shown(directives, args), expected, "{directives}");
    }
}

#[test]
fn bytes_are_encoded_and_decoded() {
    let standard = "set_base32_alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZ234567;";
    for (directives, expected) in [
        ("set_encode_base32 $a abcde;", "c5h66p35"),
        ("set_encode_base32 $a '!';", "44======"),
        ("set_base32_padding off; set_encode_base32 $a '!';", "44"),
        ("set_misc_base32_padding off; set_encode_base32 $a '!';", "44"),
        (&format!("{standard} set_encode_base32 $a abcdef;"), "MFRGGZDFMY======"),
        (&format!("{standard} set_decode_base32 $a MFRGGZDFMY;"), "abcdef"),
        ("set_decode_base32 $a 'c5h66p35';", "abcde"),
        ("set_decode_base32 $a 'c5h66p3';", "abcd"),
        ("set_decode_base32 $a c5h;", ""),
        ("set_encode_base64 $a abcde;", "YWJjZGU="),
        ("set_decode_base64 $a YWJjZGU=;", "abcde"),
        ("set_encode_base64url $a '?b><d?';", "P2I-PGQ_"),
        ("set_encode_base64url $a abcde;", "YWJjZGU"),
        ("set_decode_base64url $a P2I-PGQ_;", "?b><d?"),
        ("set_encode_hex $a \u{7ae0};", "e7aba0"),
        ("set_decode_hex $a 616263;", "abc"),
        ("set_sha1 $a hello;", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        ("set_md5 $a hello;", "5d41402abc4b2a76b9719d911017c592"),
        ("set_md5 $a '';", "d41d8cd98f00b204e9800998ecf8427e"),
    ] {
        assert_eq!(shown(directives, ""), expected, "{directives}");
    }
}

#[test]
fn what_is_invalid_ends_in_500() {
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
        location /64 { set_decode_base64 $a $arg_a; return 200 $a; }
        location /url { set_decode_base64url $a $arg_a; return 200 $a; }
        location /hex { set_decode_hex $a $arg_a; return 200 $a; }
        location /alphanum { set_secure_random_alphanum $a $arg_a; return 200 $a; }
        location /lcalpha { set_secure_random_lcalpha $a $arg_a; return 200 $a; } } }";
    let server = Setup::new(conf).start();
    for path in ["/64?a=!!!!", "/url?a=++++", "/hex?a=1", "/hex?a=zz", "/alphanum?a=0"] {
        assert_eq!(server.get(path).status, 500, "{path}");
    }
    for length in ["", "-4", "65", "bob"] {
        assert_eq!(server.get(&format!("/lcalpha?a={length}")).status, 500, "{length}");
    }
    server.expect_error("set_decode_base64: invalid value");
    let letters = server.get("/alphanum?a=64").text();
    assert_eq!(letters.chars().filter(char::is_ascii_alphanumeric).count(), 64, "{letters}");
    let letters = server.get("/lcalpha?a=1").text();
    assert!(letters.len() == 1 && letters.as_bytes()[0].is_ascii_lowercase(), "{letters}");
}

#[test]
fn times_are_written() {
    let now = "set_formatted_gmt_time $a '%s %Y-%m-%d';";
    assert!(shown(now, "").ends_with(&shown("set_formatted_gmt_time $a %Y-%m-%d;", "")[4..]));
    let local = shown("set_local_today $a;", "");
    assert_eq!((local.len(), local.matches('-').count()), (10, 2), "{local}");
    assert_eq!(shown("set_formatted_local_time $a '100%%';", ""), "100%");
    assert_eq!(shown("set_formatted_local_time $a '';", ""), "");
}

#[test]
fn the_configuration_is_checked() {
    for (directives, message) in [
        ("set_base32_alphabet abc;", "alphabet of"),
        ("set_md5 a b;", "invalid variable name \"a\""),
        ("set_md5 $host x;", "the duplicate \"host\" variable"),
        ("set_hashed_upstream $a none $uri;", "upstream list \"none\""),
    ] {
        let output = run_cli(&["-t"], &format!("events {{}} http {{ server {{ {directives} }} }}"));
        assert!(output.code != 0 && output.stderr.contains(message), "{}", output.stderr);
    }
}
