//! Lua: what code of a request may ask for.

use weir_tests::{Peer, Server, Setup};

const CONF: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; lua_shared_dict shared 1m;
    server { listen 127.0.0.1:%%PORT_0%%; set $place here;
    location /waits { content_by_lua_block {
        local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) ngx.sleep(0.001) return b * 2 end)
        ngx.say(co(1), " ", co(21)) } }
    location /threads { content_by_lua_block {
        local function f(n) ngx.sleep(n / 100) ngx.say("thread ", n) return n end
        local a, b = ngx.thread.spawn(f, 2), ngx.thread.spawn(f, 1)
        local ok, first = ngx.thread.wait(a, b)
        ngx.say("first: ", first)
        ngx.say(ngx.thread.kill(a)) } }
    location /failing { content_by_lua_block {
        local t = ngx.thread.spawn(function() error("in a thread") end)
        local ok, e = ngx.thread.wait(t)
        ngx.say(ok, " ", e:match("in a thread")) } }
    location /semaphore { content_by_lua_block {
        local s = require("ngx.semaphore").new()
        ngx.thread.spawn(function() ngx.sleep(0.001) s:post() end)
        ngx.say(s:wait(10), " ", s:count())
        ngx.say(select(2, s:wait(0.001))) } }
    location /regex { content_by_lua_block {
        local m = ngx.re.match("on 2026-11-24", [[(\d+)-(?<month>\d+)]], "jo")
        ngx.say(m[0], " ", m[1], " ", m.month)
        ngx.say((ngx.re.gsub("a.b.c", [[\.]], "[$0]")), " ", ngx.re.find("hello", "L+", "i"))
        for m in ngx.re.gmatch("x1 y2", [[([a-z])(\d)]]) do ngx.print(m[2], m[1], " ") end
        ngx.say(select(2, ngx.re.match("a", "(a"))) } }
    location /encode { content_by_lua_block {
        ngx.say(ngx.escape_uri("a b/c"), " ", ngx.unescape_uri("a+b%2Fc"), " ", ngx.md5("hello"))
        ngx.say(ngx.encode_base64("hello"), " ", ngx.decode_base64("aGVsbG8="), " ", ngx.crc32_long("hello"))
        ngx.say(ngx.quote_sql_str("it's"), " ", ngx.http_time(0), " ", ngx.parse_http_time("Thu, 01 Jan 1970 00:00:01 GMT"))
        ngx.say(ngx.encode_args({ a = { 1, "x y" } })) } }
    location /ndk { content_by_lua_block {
        local set_var = require("ndk").set_var
        ngx.say(set_var.set_escape_uri("a b"), " ", set_var.set_decode_hex("6869"), " ", set_var.set_quote_json_str("a\"b"))
        ngx.say(pcall(function() return set_var.set_nothing("a") end))
        ngx.say((select(2, pcall(set_var.set_decode_hex, "no")):gsub("^.-: ", ""))) } }
    location /request { content_by_lua_block {
        ngx.req.read_body()
        local post, query = ngx.req.get_post_args(), ngx.req.get_uri_args()
        ngx.say(ngx.req.get_method(), " ", post.a, " ", query.b[2], " ", ngx.req.get_headers()["X-One"], " ", ngx.req.http_version())
        ngx.req.set_header("X-One", "changed") ngx.say(ngx.var.http_x_one) ngx.say(ngx.var.place) ngx.var.place = "there" ngx.say(ngx.var.place) } }
    location /header { content_by_lua_block {
        ngx.header["Set-Cookie"] = { "a=1", "b=2" } ngx.header.content_type = "text/x" ngx.header.x_y = "z\nInjected: yes" ngx.status = 201
        ngx.say(ngx.header.x_y) } }
    location /capture { content_by_lua_block {
        local r = ngx.location.capture("/inner", { args = { n = 1 }, method = ngx.HTTP_POST, body = "sent" })
        ngx.say(r.status, " ", r.body, " ", r.header["X-Inner"])
        local a, b = ngx.location.capture_multi({ { "/inner?n=2" }, { "/nowhere" } })
        ngx.say(a.body, " ", b.status) } }
    location /inner { content_by_lua_block { ngx.req.read_body() ngx.header["X-Inner"] = "yes" ngx.print(ngx.var.arg_n, ngx.req.get_body_data() or "") } }
    location /dict { content_by_lua_block {
        local d = ngx.shared.shared
        d:set("s", "text", 0, 7) d:set("n", 1)
        ngx.say(d:get("s")) ngx.say(d:incr("n", 2)) ngx.say(d:add("n", 1)) ngx.say(d:rpush("l", 1), d:rpush("l", 2), d:lpop("l"), d:llen("l"))
        d:set("short", true, 0.001) ngx.sleep(0.01) ngx.say(d:get("short")) ngx.say(d:capacity()) } }
    location /count { content_by_lua_block { ngx.say((ngx.shared.shared:incr("count", 1, 0))) } }
    location /socket { content_by_lua_block {
        local s = ngx.socket.tcp() s:settimeout(5000)
        assert(s:connect("127.0.0.1", ngx.var.server_port))
        s:send("GET /inner?n=5 HTTP/1.1\r\nHost: a\r\n\r\n")
        ngx.say((s:receive()))
        local head = s:receiveuntil("\r\n\r\n") head()
        ngx.say((s:receive(3)):byte(1), " ", s:setkeepalive())
        ngx.say(select(2, ngx.socket.tcp():connect("127.0.0.1", 1))) } }
    location /misuse { content_by_lua_block {
        ngx.say(pcall(ngx.say, function() end)) ngx.say(pcall(ngx.exit)) ngx.say(pcall(ngx.re.match, "a", "a", "H")) } }
    location /json { content_by_lua_block {
        local cjson = require "cjson"
        local t = cjson.decode('{"a":[1,2.5,null,"\\u00e9"],"b":{}}')
        ngx.say(t.a[2], t.a[3] == ngx.null, t.a[4], " ", cjson.encode({ list = { 1, "x\n", ngx.null } }))
        ngx.say(require("cjson.safe").decode("[1")) } }
    location /hot { content_by_lua_block {
        local d, sum = ngx.shared.shared, 0
        d:set("one", 1) d:set("many", 1000)
        for i = 1, 1000 do local v = d:get("one") d:get("many") sum = sum + v end
        ngx.say(sum) } }
    location /early { content_by_lua_block { ngx.say("first") ngx.flush(true) ngx.sleep(60) } }
} }"#;

fn start() -> Server {
    Setup::new(CONF).start()
}

#[test]
fn what_waits_lets_others_go_on() {
    let server = start();
    assert_eq!(server.get("/waits").text(), "2 42\n");
    assert_eq!(server.get("/threads").text(), "thread 1\nfirst: 1\n1\n");
    assert_eq!(server.get("/failing").text(), "false in a thread\n");
    assert_eq!(server.get("/semaphore").text(), "true 0\ntimeout\n");
    let mut client = server.connect();
    client.send_get("/early");
    assert!(client.read_until(b"first\n").ends_with(b"first\n"));
}

#[test]
fn expressions_and_encodings() {
    let server = start();
    let regex = "2026-11 2026 11\na[.]b[.]c 34\n1x 2y ";
    let answer = server.get("/regex").text();
    assert!(answer.starts_with(regex) && answer.contains("pcre2_compile() failed"), "{answer}");
    assert_eq!(
        server.get("/encode").text(),
        "a%20b%2Fc a b/c 5d41402abc4b2a76b9719d911017c592\naGVsbG8= hello 907060870\n\
         'it\\'s' Thu, 01 Jan 1970 00:00:00 GMT 1\na=1&a=x%20y\n"
    );
}

#[test]
fn directives_that_make_a_value_are_functions() {
    let answer = start().get("/ndk").text();
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines[0], r#"a%20b hi "a\"b""#);
    assert!(
        lines[1].starts_with("false") && lines[1].contains("\"set_nothing\" not found"),
        "{answer}"
    );
    assert!(lines[2].contains("calling directive \"set_decode_hex\" failed"), "{answer}");
}

#[test]
fn the_request_and_the_answer() {
    let server = start();
    let sent = "POST /request?b=1&b=2 HTTP/1.1\r\nHost: a\r\nX-One: one\r\nContent-Length: 3\r\nConnection: close\r\n\r\na=b";
    let answer = server.exchange("POST", sent.as_bytes());
    assert_eq!(answer.text(), "POST b 2 one 1.1\nchanged\nhere\nthere\n");
    let answer = server.get("/header");
    assert_eq!((answer.status, answer.header("Content-Type")), (201, Some("text/x")));
    assert_eq!(answer.all("Set-Cookie"), ["a=1", "b=2"]);
    assert_eq!(
        (answer.header("Injected"), answer.header("x-y")),
        (None, Some("z%0AInjected: yes"))
    );
}

#[test]
fn subrequests_are_kept() {
    let server = start();
    assert_eq!(server.get("/capture").text(), "200 1sent yes\n2 404\n");
}

#[test]
fn dictionaries_are_shared_and_outlive_a_reload() {
    let mut server = start();
    assert_eq!(server.get("/dict").text(), "text7\n3\nfalseexistsfalse\n1211\nnil\n1048576\n");
    assert_eq!(server.get("/count").text(), "1\n");
    let port = server.port(0);
    let is_new = || Peer::Tcp(port).get("/elsewhere").status == 200;
    server.reload(&CONF.replace("/misuse", "/elsewhere"), is_new);
    assert_eq!(server.get("/count").text(), "2\n");
}

#[test]
fn sockets_are_read_by_lines_bytes_and_patterns() {
    let server = start();
    assert_eq!(
        server.get("/socket").text(),
        "HTTP/1.1 200 OK\n49 nilunread data in buffer\nconnection refused\n"
    );
}

#[test]
fn misuse_is_told_in_openrestys_words() {
    let server = start();
    let answer = server.get("/misuse").text();
    for text in [
        "bad argument #1 to 'say' (string, number, boolean, nil, ngx.null, or array table expected, but got function)",
        "bad argument #1 to 'exit' (number expected, got nil)",
        "unknown flag \"H\" (flags \"H\")",
    ] {
        assert!(answer.contains(text), "{answer}");
    }
}

#[test]
fn json_both_ways() {
    let server = start();
    assert_eq!(
        server.get("/json").text(),
        "2.5true\u{e9} {\"list\":[1,\"x\\n\",null]}\nnilExpected comma or array end but found T_END at character 3\n"
    );
}

/// Loops are compiled. What one operation has answered is not what a later one has.
#[test]
fn compiled_code_sees_what_it_has_asked_for() {
    assert_eq!(start().get("/hot").text(), "1000\n");
}

/// In one go, and by a function for each: what is found and what is said of it is the same.
#[test]
fn replaced_as_openresty_does() {
    let server = Setup::new(
        r#"events {} http { default_type text/plain; server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block {
        local function show(...) ngx.say(table.concat({ ... }, " ")) end
        for _, of in ipairs { { "a1b2", [[\d]], "[$0]", "jo" }, { "hello", "l*", "<$0>" }, { "abc", "(?=c)", "-" }, { "", "x*", "y" },
            { "abc", "(b)|(x)", "$1$2$3$$${1}z", "jo" }, { "aaa", "(?<=a)a", "b" }, { "abc", "x", "y" }, { "\195\188b", ".", "[$0]", "u" } } do
            show(ngx.re.gsub(unpack(of))) show(ngx.re.sub(unpack(of)))
        end
        show(ngx.re.gsub("aa", "a", function(m) return m[0] .. "$0" end))
        -- Longer than what is done in one go.
        ngx.say(#ngx.re.gsub(("a"):rep(300), "a", ("x"):rep(100000), "jo"))
        local _, _, e = ngx.re.gsub("a", "(", "b") ngx.say(e and "an error") } } } }"#,
    )
    .start();
    assert_eq!(
        server.get("/").text(),
        "a[1]b[2] 2\na[1]b2 1\n<>h<>e<ll><>o<> 5\n<>hello 1\nab-c 1\nab-c 1\ny 1\ny 1\nab$bzc 1\nab$bzc 1\n\
         abb 2\naba 1\nabc 0\nabc 0\n[\u{fc}][b] 2\n[\u{fc}]b 1\na$0a$0 2\n30000000\nan error\n"
    );
}

/// As it came, whatever code and the server have made of it.
#[test]
fn a_raw_header_is_what_the_client_has_sent() {
    let server = Setup::new(
        r#"events {} http { default_type text/plain; server { listen 127.0.0.1:%%PORT_0%%; keepalive_timeout 60;
            location / { content_by_lua_block { ngx.say(ngx.req.raw_header(), "|", ngx.req.raw_header(true), "|") } }
            location /changed { content_by_lua_block { ngx.req.set_header("X-New", "1") ngx.req.clear_header("Host") ngx.exec("/") } }
            location /part { content_by_lua_block { ngx.print(ngx.location.capture("/", { method = ngx.HTTP_PUT }).body) } } } }"#,
    )
    .start();
    let mut client = server.connect();
    for path in ["/", "/?a=%20", "/changed", "/part"] {
        let line = format!("GET {path} HTTP/1.1\r\n");
        let fields = "x-SPELT:  two\r\nX_Under: 1\r\nX-Empty:\r\nHost: a\r\nX-Tab:\tt\r\n\r\n";
        client.send(format!("\r\n{line}{fields}").as_bytes());
        assert_eq!(client.response().text(), format!("{line}{fields}|{fields}|\n"), "{path}");
    }
    assert!(server
        .raw(b"GET / HTTP/1.0\nA:b\n\n")
        .ends_with(b"GET / HTTP/1.0\nA:b\n\n|A:b\n\n|\n"));
}
