//! SSI: what each command does.

use weir_tests::{Server, Setup};

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
    ssi on; set $mine own;
    location = /seen { internal; default_type text/html; return 200 '[$uri $args $request_uri]'; }
    location = /nothing { return 204; }
    location = /bad { proxy_pass http://127.0.0.1:1; }
    location /quiet/ { ssi_silent_errors on; alias %%DIR%%/html/; }
    location /off/ { ssi off; alias %%DIR%%/html/; }
    location /short/ { ssi_value_length 3; alias %%DIR%%/html/; }
    location /kept/ { ssi_last_modified on; alias %%DIR%%/html/; }
    location /types/ { ssi_types text/plain; types { text/plain txt; } alias %%DIR%%/html/; } } }";

fn start() -> Server {
    Setup::new(CONF).file("html/part.html", "PART").file("html/d/part.html", "DEEP").start()
}

/// What a page becomes.
fn page(server: &Server, text: &str) -> String {
    server.write("html/d/page.html", text);
    server.on(0).get("/d/page.html?a=<1>&b=two").text()
}

const FAILED: &str = "[an error occurred while processing the directive]";

#[test]
fn echo_and_set() {
    let server = start();
    for (text, expected) in [
        ("plain <!-- x --> <b>", "plain <!-- x --> <b>"),
        ("<!--#echo var='arg_b' -->!", "two!"),
        ("<!--#echo var=\"ARG_a\" -->", "&lt;1&gt;"),
        ("<!--#echo var='arg_a' encoding='none' --><!--#echo var='arg_a' -->", "<1><1>"),
        ("<!--#echo var='arg_a' encoding='url' -->", "%3C1%3E"),
        ("<!--#echo var='no' -->", "(none)"),
        ("<!--#echo var='no' default='d' -->", "d"),
        ("<!--#echo var='no' default='' -->", ""),
        ("<!--#echo var='mine' -->", "own"),
        ("<!--#set var='x' value='1$arg_b${mine}\\$x' --><!--#echo var='X' -->", "1twoown$x"),
        (
            "<!--#set var='x' value='1' --><!--#set var='x' value='$x$x' --><!--#echo var='x' -->",
            "11",
        ),
        ("<!--#set var='x' value='a\\'b\\c' --><!--#echo var='x' encoding='none' -->", "a'b\\c"),
    ] {
        assert_eq!(page(&server, text), expected, "{text}");
    }
}

#[test]
fn conditions() {
    let server = start();
    for (expr, is_true) in [
        ("$arg_b", true),
        ("$arg_c", false),
        ("$arg_b = two", true),
        ("$arg_b=TWO", false),
        ("$arg_b != two", false),
        ("TWO = two", true),
        ("$arg_b = /^t(w)/", true),
        ("$arg_b != /x/", true),
        ("$arg_b = \\/x/", false),
    ] {
        let text = format!("<!--#if expr=\"{expr}\" -->yes<!--#else -->no<!--#endif -->.");
        assert_eq!(page(&server, &text), if is_true { "yes." } else { "no." }, "{expr}");
    }
    let captures = "<!--#if expr='$arg_b = /(?<first>t)(.)/' --><!--#echo var='2' -->\
                    <!--#echo var='first' --><!--#elif expr='x' -->no<!--#endif -->";
    assert_eq!(page(&server, captures), "wt");
    let elif = "<!--#if expr='$no' -->1<!--#elif expr='$arg_b' -->2<!--#elif expr='x' -->3\
                <!--#else -->4<!--#endif -->";
    assert_eq!(page(&server, elif), "2");
}

#[test]
fn what_is_wrong_is_said() {
    let server = start();
    for (text, expected, logged) in [
        ("<!--#nope -->", FAILED, "invalid SSI command: \"nope\""),
        ("<!--#echo -->", FAILED, "mandatory \"var\" parameter is absent in \"echo\" SSI command"),
        ("<!--#echo var='a' var='b' -->", FAILED, "duplicate \"var\" parameter in \"echo\""),
        ("<!--#echo x='a' -->", FAILED, "invalid parameter name: \"x\" in \"echo\""),
        (
            "<!--#echo var=a -->",
            FAILED,
            "before value of \"var\" parameter in \"echo\" SSI command",
        ),
        ("<!--#else -->", FAILED, "invalid context of SSI command: \"else\""),
        ("<!--#include -->", FAILED, "no parameter in \"include\" SSI command"),
        ("<!--#include virtual='../x' -->", FAILED, "unsafe URI \"/d/../x\" was detected"),
        (
            "<!--#include virtual='/a' stub='s' -->",
            FAILED,
            "\"stub\"=\"s\" for \"include\" not found",
        ),
        ("<!--#if expr='a ~ b' -->", FAILED, "invalid expression in \"a ~ b\""),
        ("<!--#if expr='a = /(/' -->", FAILED, "missing closing parenthesis"),
        ("<!--#config errmsg='oh' --><!--#nope -->", "oh", ""),
        (
            "<!--#set var='x' value='${y' -->",
            FAILED,
            "the closing bracket in \"y\" variable is missing",
        ),
    ] {
        assert_eq!(page(&server, text), expected, "{text}");
        server.expect_error(logged);
    }
    assert_eq!(server.on(0).get("/quiet/d/page.html").text(), "");
    assert!(server.on(0).get("/off/d/page.html").text().starts_with("<!--#set"));
    page(&server, "<!--#echo var='abcd' -->");
    assert_eq!(server.on(0).get("/short/d/page.html").text(), FAILED);
}

#[test]
fn include_takes_addresses() {
    let server = start();
    for (text, expected) in [
        ("<!--#include virtual='/part.html' -->", "PART"),
        ("<!--#include virtual='part.html' -->", "DEEP"),
        ("<!--#include file='part.html' -->", "DEEP"),
        (
            "<!--#include virtual='/seen?x=$arg_b' -->",
            "[/seen x=two /d/page.html?a=&lt;1&gt;&b=two]",
        ),
        ("<!--#include virtual='/se%65n%3fx' -->", "404"),
        ("<!--#include virtual='/nothing' -->", ""),
    ] {
        let got = page(&server, text);
        match expected {
            "404" => assert!(got.contains("404 Not Found"), "{text}"),
            _ => assert_eq!(got, expected.replace("&lt;1&gt;", "<1>"), "{text}"),
        }
    }
}

#[test]
fn blocks_stand_in_for_what_is_not_there() {
    let server = start();
    let block = "<!--#block name='b' -->B<!--#echo var=\"arg_q\" --><!--#endblock -->";
    // An answer that has begun is no page: its type is known, and the block stays text there.
    for (include, expected) in [
        ("<!--#include virtual='/nothing?q=1' stub='b' -->", "B<!--#echo var=\"arg_q\" -->"),
        ("<!--#include virtual='/no?q=1' stub='b' -->", "B1"),
        ("<!--#include virtual='/bad?q=1' stub='b' -->", "B1"),
        ("<!--#include virtual='/part.html?q=1' stub='b' -->", "PART"),
    ] {
        assert_eq!(page(&server, &format!("{block}[{include}]")), format!("[{expected}]"));
    }
}

#[test]
fn include_may_set_a_variable() {
    let server = start();
    let set = |uri: &str| {
        let text = format!(
            "<!--#include virtual='{uri}' set='x' -->[<!--#echo var='x' encoding='none' -->]"
        );
        page(&server, &text)
    };
    assert_eq!(set("/part.html"), "[PART]");
    assert_eq!(set("/nothing"), "[]");
    assert_eq!(set("/no"), "[]", "an error's text is no value");
}

#[test]
fn parts_share_variables_and_blocks() {
    let server = start();
    server.write("html/a.html", "<!--#set var='x' value='from a' --><!--#echo var='y' -->");
    let text = "<!--#set var='y' value='up' --><!--#include virtual='/a.html' wait='yes' -->\
                /<!--#echo var='x' -->";
    assert_eq!(page(&server, text), "up/from a");
}

#[test]
fn dates_in_the_format_of_the_page() {
    let server = start();
    let text = "<!--#config timefmt='%Y-%m' --><!--#echo var='date_gmt' -->|\
                <!--#echo var='date_local' -->|<!--#config timefmt='%s' --><!--#echo var='date_gmt' -->";
    let got = page(&server, text);
    let parts: Vec<&str> = got.split('|').collect();
    assert!(parts[0].starts_with("20") && parts[0].len() == 7, "{got}");
    assert!(parts[1].starts_with("20") && parts[1].len() == 7, "{got}");
    assert!(parts[2].parse::<u64>().is_ok_and(|n| n > 1_700_000_000), "{got}");
    assert!(page(&server, "<!--#echo var='date_gmt' -->").ends_with(" GMT"));
}

#[test]
fn header_of_a_page() {
    let server = start();
    page(&server, "<!--#echo var='arg_a' -->");
    let plain = server.on(0).get_with("/d/page.html", "Range: bytes=0-1\r\n");
    assert_eq!((plain.status, plain.is_chunked()), (200, true));
    for name in ["Last-Modified", "ETag", "Accept-Ranges", "Content-Length"] {
        assert_eq!(plain.header(name), None, "{name}");
    }
    let kept = server.on(0).get("/kept/d/page.html");
    assert!(kept.header("Last-Modified").is_some());
    assert!(kept.header("ETag").is_some_and(|tag| tag.starts_with("W/")));
    let head = server.on(0).head("/d/page.html");
    assert_eq!((head.status, head.header("Content-Length")), (200, None));
    server.write("html/x.txt", "<!--#echo var='arg_a' -->");
    assert_eq!(server.on(0).get("/types/x.txt?a=1").text(), "1");
    assert_eq!(server.on(0).get("/x.txt?a=1").text(), "<!--#echo var='arg_a' -->");
}
