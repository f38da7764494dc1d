//! `ngx.location.capture`: what is captured is what the location has made, before filters change it.

use weir_tests::{expect_soon, Next, Origin, Server, Setup};

/// `/ask?path` says what code captures there: status, whether it is cut off, body, and some fields.
const ASK: &str = r#"location = /ask { content_by_lua_block {
    local r = ngx.location.capture(ngx.var.args, { method = ngx.req.get_headers()["X-Head"] and ngx.HTTP_HEAD or nil })
    local fields = {}
    for name, value in pairs(r.header) do fields[#fields + 1] = name .. "=" .. value end
    table.sort(fields)
    ngx.print(r.status, " ", r.truncated, " ", r.body, " ", table.concat(fields, " "))
} }"#;

fn serve(locations: &str) -> Server {
    let conf = format!(
        "worker_processes 1; events {{}} http {{ default_type text/plain;
            log_format ends '$uri [$request_completion]'; log_subrequest on; access_log %%DIR%%/access.log ends;
            server {{ listen 127.0.0.1:%%PORT_0%%; {ASK} {locations} }} }}"
    );
    Setup::new(&conf).start()
}

/// Filters of nginx and of modules that come behind Lua's leave it alone, and so its length stays true.
#[test]
fn filters_do_not_see_what_is_captured() {
    let server = serve(
        r#"location /more { return 200 "more"; }
        location /ssi { ssi on; ssi_types *; return 200 '<!--#include virtual="/more"-->'; }
        location /sub { sub_filter old new; sub_filter_types *; return 200 "old"; }
        location /subs { sub_filter old new; sub_filter_types *; content_by_lua_block { ngx.print("old") } }
        location /addition { add_before_body /more; add_after_body /more; addition_types *; return 200 "own"; }
        location /charset { charset utf-8; return 200 "text"; }
        location /gzip { gzip on; gzip_min_length 0; gzip_types *; return 200 "text"; }
        location /fields { add_header X-Added 1; expires 1h; userid on; return 200 "text"; }
        location /echo { echo own; echo_before_body before; echo_after_body after; }
        location /exec { content_by_lua_block { ngx.exec("/sub") } }
        location /page { ssi on; ssi_types *; return 200 '<!--#include virtual="/sub"-->|<!--#include virtual="/echo"-->'; }"#,
    );
    for (path, expected) in [
        (
            "/ssi",
            "200 false <!--#include virtual=\"/more\"--> Content-Length=31 Content-Type=text/plain",
        ),
        ("/sub", "200 false old Content-Length=3 Content-Type=text/plain"),
        ("/subs", "200 false old Content-Type=text/plain"),
        ("/addition", "200 false own Content-Length=3 Content-Type=text/plain"),
        ("/charset", "200 false text Content-Length=4 Content-Type=text/plain"),
        ("/gzip", "200 false text Content-Length=4 Content-Type=text/plain"),
        ("/fields", "200 false text Content-Length=4 Content-Type=text/plain"),
        ("/echo", "200 false own\n Content-Type=text/plain"),
        ("/exec", "200 false old Content-Length=3 Content-Type=text/plain"),
    ] {
        let answer = server.get_with(&format!("/ask?{path}"), "Accept-Encoding: gzip\r\n");
        assert_eq!(answer.text(), expected, "{path}");
    }
    // Other parts go through them as before, and so does the answer to a client.
    assert_eq!(server.get("/page").text(), "new|before\nown\nafter\n");
    assert_eq!(server.get("/sub").text(), "new");
}

/// The location's own code does, and in front of it what sets fields: the order of OpenResty's modules.
#[test]
fn code_of_the_location_does() {
    let server = serve(
        r#"location /own { return 200 "own";
            more_set_headers "X-More: more"; add_header X-Added added; sub_filter OWN other; sub_filter_types *;
            header_filter_by_lua_block { ngx.header["X-Lua"] = "saw " .. (ngx.header["X-More"] or "nothing") }
            body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } }"#,
    );
    let expected =
        "200 false OWN Content-Length=3 Content-Type=text/plain X-Lua=saw more X-More=more";
    assert_eq!(server.get("/ask?/own").text(), expected);
    let own = server.get("/own");
    assert_eq!((own.header("X-Lua"), own.header("X-Added")), (Some("saw more"), Some("added")));
}

/// A captured header can be sent with the captured body.
#[test]
fn a_captured_answer_can_be_passed_on() {
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "ETag: \"1\"\r\nContent-Type: text/plain\r\n", "old and old");
        Next::Keep
    });
    let server = serve(&format!(
        r#"location /origin {{ sub_filter old "something new"; sub_filter_once off; sub_filter_types *;
            proxy_pass http://127.0.0.1:{}; }}
        location /on {{ content_by_lua_block {{
            local r = ngx.location.capture("/origin")
            for name, value in pairs(r.header) do ngx.header[name] = value end
            ngx.print(r.body)
        }} }}"#,
        origin.port()
    ));
    let mut client = server.connect();
    for _ in 0..2 {
        let answer = client.get("/on");
        assert_eq!((answer.text().as_str(), answer.header("ETag")), ("old and old", Some("\"1\"")));
        assert_eq!(answer.header("Content-Length"), Some("11"));
    }
}

/// Of a body that there is not a server is told nothing, of an empty one that it is.
#[test]
fn a_request_without_a_body_has_no_length() {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", request.header("Content-Length").unwrap_or("none"));
        Next::Keep
    });
    let server = serve(&format!(
        r#"location /origin {{ proxy_pass http://127.0.0.1:{}; }}
        location /all {{ content_by_lua_block {{
            ngx.req.read_body()
            for _, name in ipairs {{ "GET", "DELETE", "PATCH", "POST" }} do
                local method = ngx["HTTP_" .. name]
                for _, options in ipairs {{ {{}}, {{ body = "" }}, {{ body = "abc" }}, {{ always_forward_body = true }} }} do
                    options.method = method
                    ngx.print(ngx.location.capture("/origin", options).body, " ")
                end
            end
        }} }}"#,
        origin.port()
    ));
    assert_eq!(server.get("/all").text(), "none 0 3 none ".repeat(4));
    let posted = "none 0 3 6 ".repeat(3) + "6 0 3 6 ";
    assert_eq!(server.post("/all", "parent").text(), posted);
}

/// What has no end to be seen says so.
#[test]
fn what_is_cut_off_is_not_complete() {
    let origin = Origin::start(|_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        Next::Close
    });
    let server = serve(&format!(
        r#"location /broken {{ proxy_pass http://127.0.0.1:{}; }} location /whole {{ return 200 whole; }}
        location /refused {{ header_filter_by_lua_block {{ ngx.exit(403) }} return 200 whole; }}"#,
        origin.port()
    ));
    assert_eq!(server.get("/ask?/broken").text(), "200 true half Content-Length=100");
    assert_eq!(
        server.get_with("/ask?/whole", "X-Head: 1\r\n").text(),
        "200 true  Content-Length=5 Content-Type=text/plain"
    );
    assert_eq!(server.get("/ask?/refused").text(), "403 true  Content-Type=text/plain");
    let lines = ["/broken []", "/ask [OK]", "/whole []", "/ask [OK]", "/refused []", "/ask [OK]"];
    expect_soon("the log has all", || server.read("access.log").lines().eq(lines));
}
