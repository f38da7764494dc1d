//! What libraries that were written for OpenResty rely on besides `ngx.*`: nginx's and OpenSSL's functions by the FFI,
//! parts of lua-resty-core, and where modules are looked for.

use crate::lua_mends::start;
use std::net::UdpSocket;
use weir_tests::tls::Authority;
use weir_tests::{skip, Server, Setup};

fn get(server: &Server, path: &str) -> String {
    server.get(path).text()
}

#[test]
fn functions_of_nginx_are_found_by_the_ffi() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local ffi = require "ffi"
            require "resty.core.base"
            ffi.cdef[[
                unsigned char *ngx_hex_dump(unsigned char *dst, const unsigned char *src, size_t len);
                intptr_t ngx_atoi(const unsigned char *line, size_t n);
                intptr_t ngx_hextoi(const unsigned char *line, size_t n);
                intptr_t ngx_parse_time(ngx_str_t *line, uintptr_t is_sec);
                uintptr_t ngx_escape_uri(unsigned char *dst, const unsigned char *src, size_t size, uintptr_t type);
                uint32_t ngx_murmur_hash2(const unsigned char *data, size_t len);
                int ngx_http_lua_ffi_raw_log(ngx_http_request_t *r, int level, const unsigned char *s, size_t len);
            ]]
            local C, room = ffi.C, ffi.new("unsigned char[64]")
            local stop = C.ngx_hex_dump(room, "\0\171z", 3)
            ngx.say(ffi.string(room, stop - room))
            local line = ffi.new("ngx_str_t", { 2, "1h" })
            ngx.say(tonumber(C.ngx_atoi("120", 3)), tonumber(C.ngx_atoi("x", 1)), tonumber(C.ngx_hextoi("fF", 2)), " ",
                tonumber(C.ngx_parse_time(line, 1)), " ", tonumber(C.ngx_parse_time(line, 0)))
            ngx.say(tonumber(C.ngx_escape_uri(nil, "a b?", 4, 0)))
            stop = C.ngx_escape_uri(room, "a b?", 4, 0)
            ngx.say(ffi.string(room, tonumber(stop - ffi.cast("uintptr_t", room))), " ", C.ngx_murmur_hash2("a", 1))
            ngx.say(C.ngx_http_lua_ffi_raw_log(require "resty.core.base".get_request(), ngx.WARN, "a line of its own", 17))
        } }"#,
    );
    assert_eq!(get(&server, "/"), "00ab7a\n120-1255 3600 3600000\n2\na%20b%3F 2456313694\n0\n");
    server.expect_error("a line of its own");
}

#[test]
fn parts_of_resty_core_are_there() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local base, ffi = require "resty.core.base", require "ffi"
            ngx.say(base.FFI_OK, base.FFI_ERROR, base.FFI_DECLINED, base.FFI_NO_REQ_CTX)
            local size = base.get_size_ptr() size[0] = 3
            local room = base.get_string_buf(3) ffi.copy(room, "abc", 3)
            ngx.say(ffi.string(room, size[0]), " ", base.get_string_buf(3) == room, " ", base.get_string_buf(9999) == room)
            base.set_string_buf_size(10) ngx.say(base.get_string_buf_size(), " ", base.get_errmsg_ptr()[0] == nil)
            local t, n = {}, base.ref_in_table
            ngx.say(n(t, "a"), n(t, "b"), n(t), t[2])
            ngx.say(base.get_request() == base.get_request(), pcall(base.allows_subsystem, "stream"))
            ngx.say(ffi.sizeof("ngx_str_t"), " ", ffi.typeof("ngx_http_request_t *") ~= nil)
            require "resty.core.misc".register_ngx_magic_key_getter("answer", function() return 42 end)
            local set require "resty.core.misc".register_ngx_magic_key_setter("answer", function(_, v) set = v end)
            ngx.answer = 7
            ngx.say(ngx.answer, set, require "resty.core.request".get_headers().host, require "resty.core.time".now() == ngx.now(),
                require "resty.core.worker".id(), (require "resty.core.regex".find("xab", "a")))
        } }"#,
    );
    assert_eq!(
        server.get_host("a.test", "/").text(),
        "0-1-5-100\nabc true false\n10 true\n12-1b\n\
         truefalseunsupported subsystem: http\n16 true\n427a.testtrue02\n"
    );
}

/// Who asks for the context's number finds it in the registry until the request ends, in the place that it has gone to
/// as well (where `ngx.ctx` is a fresh one).
#[test]
fn a_context_goes_to_another_location_by_its_number() {
    let server = start(
        "",
        r#"location / { set $ref ""; content_by_lua_block {
            require "resty.core.ctx"
            local base, C = require "resty.core.base", require "ffi".C
            ngx.ctx.mine = "kept"
            ngx.var.ref = C.ngx_http_lua_ffi_get_ctx_ref(base.get_request(), nil, nil)
            ngx.ctx.more = ngx.var.ref == tostring(C.ngx_http_lua_ffi_get_ctx_ref(base.get_request(), nil, nil))
            ngx.exec("/other")
        } }
        location /other { content_by_lua_block {
            ngx.say(ngx.ctx.mine)
            local of = debug.getregistry().ngx_lua_ctx_tables[tonumber(ngx.var.ref)]
            ngx.ctx = of
            ngx.say(ngx.ctx.mine, ngx.ctx.more)
        } }"#,
    );
    assert_eq!(get(&server, "/"), "nil\nkepttrue\n");
}

/// As Debian's LuaJIT, and with it Debian's nginx, does.
#[cfg(target_os = "linux")]
#[test]
fn modules_are_looked_for_where_debian_has_them() {
    let server = start(
        "",
        "location / { content_by_lua_block { ngx.say(package.path) ngx.say(package.cpath) } }",
    );
    let text = get(&server, "/");
    let (path, cpath) = text.trim().split_once('\n').unwrap();
    let has = |list: &str, what: &str| list.split(';').any(|p| p == what);
    for what in [
        "/usr/local/share/lua/5.1/?.lua",
        "/usr/share/lua/5.1/?.lua",
        "/usr/share/lua/5.1/?/init.lua",
    ] {
        assert!(has(path, what), "{path}");
    }
    let system = format!("/usr/lib/{}-linux-gnu/lua/5.1/?.so", std::env::consts::ARCH);
    assert!(has(cpath, &system) && has(cpath, "/usr/local/lib/lua/5.1/?.so"), "{cpath}");
}

/// Code that declares some of OpenSSL's functions finds them, as in a server that is linked with it.
#[test]
fn functions_of_openssl_are_the_systems() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local ffi = require "ffi"
            ffi.cdef "unsigned char *SHA256(const unsigned char *d, size_t n, unsigned char *md);"
            if not pcall(function() return ffi.C.SHA256 end) then return ngx.say("none") end
            local room = ffi.new("unsigned char[32]")
            ffi.C.SHA256("abc", 3, room)
            ngx.say((ffi.string(room, 32):gsub(".", function(c) return ("%02x"):format(c:byte()) end)))
        } }"#,
    );
    let text = get(&server, "/");
    if text == "none\n" {
        server.expect_error(
            "code declares OpenSSL's function SHA256, and the system has no libcrypto",
        );
        return skip("the system has no libcrypto");
    }
    assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n");
}

/// Certificates and keys of OpenSSL's are taken where those of `ngx.ssl` are, which are OpenSSL's to others.
#[test]
fn objects_of_openssl_are_shown_to_servers() {
    let authority = Authority::new("ca");
    let (own, client) = (authority.issue("own.test"), authority.issue("client.test"));
    let conf = r#"events {} error_log %%DIR%%/error.log info; http { default_type text/plain;
        server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key;
            ssl_client_certificate %%DIR%%/ca.crt; ssl_verify_client optional; return 200 "$ssl_client_verify"; }
        server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block {
            local ffi = require "ffi"
            ffi.cdef [[
                void *BIO_new_mem_buf(const void *, int);
                typedef struct x509_st X509; typedef struct evp_pkey_st EVP_PKEY; typedef struct stack_st OPENSSL_STACK;
                X509 *PEM_read_bio_X509(void *, X509 **, void *, void *);
                EVP_PKEY *PEM_read_bio_PrivateKey(void *, EVP_PKEY **, void *, void *);
                OPENSSL_STACK *OPENSSL_sk_new_null(void); int OPENSSL_sk_push(OPENSSL_STACK *, const void *);
                int OPENSSL_sk_num(const OPENSSL_STACK *);
            ]]
            local C = ffi.C
            if not pcall(function() return C.BIO_new_mem_buf end) then return ngx.say("none") end
            local function bio(name)
                local f = assert(io.open("%%DIR%%/" .. name)) local text = f:read("*a") f:close()
                return C.BIO_new_mem_buf(text, #text), text
            end
            local cert, key = C.PEM_read_bio_X509(bio("client.crt"), nil, nil, nil), C.PEM_read_bio_PrivateKey(bio("client.key"), nil, nil, nil)
            local chain = C.OPENSSL_sk_new_null() C.OPENSSL_sk_push(chain, cert)
            local _, text = bio("client.crt")
            local made = assert(require "ngx.ssl".parse_pem_cert(text .. text))
            ngx.say(C.OPENSSL_sk_num(ffi.cast("OPENSSL_STACK *", made)))
            for _, given in ipairs { cert, chain, ffi.cast("void *", chain), ffi.new("void *") } do
                local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", %%PORT_1%%))
                local ok, e = s:setclientcert(given, key)
                if not ok then ngx.say(e) else
                    assert(s:sslhandshake(nil, "own.test", false))
                    s:send("GET / HTTP/1.0\r\n\r\n") ngx.say(s:receive("*a"):match("%u+$"))
                end
            end
        } } } }"#;
    let mut setup = Setup::new(conf).file("ca.crt", &authority.cert);
    for (name, pair) in [("own", &own), ("client", &client)] {
        setup =
            setup.file(format!("{name}.crt"), &pair.cert).file(format!("{name}.key"), &pair.key);
    }
    let text = get(&setup.start(), "/");
    if text == "none\n" {
        return skip("the system has no libcrypto");
    }
    let refused = "the certificate and the key must be made by ngx.ssl or be OpenSSL's\n";
    assert_eq!(text, format!("2\nSUCCESS\nSUCCESS\nSUCCESS\n{refused}"));
}

/// Where init code says for which worker something is, it knows how many there are.
#[test]
fn init_code_knows_how_many_workers_there_are() {
    let conf = r#"worker_processes 3; events {} error_log %%DIR%%/error.log info; http { default_type text/plain;
        init_by_lua_block { workers = ngx.worker.count() assert(workers == 3) }
        init_worker_by_lua_block { assert(ngx.timer.at(0, function() began = true end)) }
        server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block { ngx.say(workers, began) } } } }"#;
    assert_eq!(get(&Setup::new(conf).start(), "/"), "3true\n");
}

/// Whoever is told the name of the body's file may open it, until the request ends.
#[test]
fn the_file_of_a_body_is_there_until_the_request_ends() {
    let server = start(
        "client_body_buffer_size 1k;",
        r#"location / { content_by_lua_block {
            ngx.req.read_body()
            local name = ngx.req.get_body_file()
            local f = assert(io.open(name)) ngx.say(#f:read("*a")) f:close()
            ngx.say(name)
        } }
        location /is { content_by_lua_block { ngx.say(io.open(ngx.var.arg_n) ~= nil) } }"#,
    );
    let mut client = server.connect();
    let body = "x".repeat(5000);
    client.send(format!("POST / HTTP/1.0\r\nContent-Length: 5000\r\n\r\n{body}").as_bytes());
    let answer = String::from_utf8(client.read_to_end()).unwrap();
    let (length, name) = answer.split_once("\r\n\r\n").unwrap().1.trim().split_once('\n').unwrap();
    assert_eq!(length, "5000");
    weir_tests::expect_soon("the file goes", || {
        get(&server, &format!("/is?n={name}")) == "false\n"
    });
}

/// A thread that was killed while it connected has left a socket that connects again.
#[test]
fn a_killed_connect_leaves_the_socket_to_others() {
    // Nobody answers there.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolver = format!("resolver {} ipv6=off;", silent.local_addr().unwrap());
    let server = start(
        &resolver,
        r#"location / { content_by_lua_block {
            local s = ngx.socket.tcp()
            local t = ngx.thread.spawn(s.connect, s, "never.test", 80)
            ngx.say(s:connect("127.0.0.1", ngx.var.server_port))
            ngx.thread.kill(t)
            ngx.say(s:connect("127.0.0.1", ngx.var.server_port))
            ngx.say(s:send("GET /x HTTP/1.0\r\n\r\n")) ngx.say((s:receive()))
        } }
        location /x { return 204; }"#,
    );
    assert_eq!(get(&server, "/"), "nilsocket busy connecting\n1\n19\nHTTP/1.1 204 No Content\n");
}

/// A finalizer runs wherever memory is asked for: what it asks for is not the answer of whoever it has interrupted.
/// The time for a connection begins behind the resolver's (`resolver_timeout`).
#[test]
fn a_resolver_has_a_time_of_its_own() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let conf = r#"resolver 127.0.0.1:%%DNS%%; resolver_timeout 300ms;
        location / { content_by_lua_block {
            local s, u = ngx.socket.tcp(), ngx.socket.udp() s:settimeout(30) u:settimeout(30)
            ngx.say(select(2, s:connect("a.test", 1))) ngx.say(select(2, u:setpeername("a.test", 1)))
        } }"#;
    let server = start("", &conf.replace("%%DNS%%", &port));
    let line = "a.test could not be resolved (110: Operation timed out)\n";
    assert_eq!(server.get("/").text(), line.repeat(2));
}

/// Nor do they begin what whoever they interrupt would wait for.
#[test]
fn finalizers_begin_no_threads() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local why
            local thread = ngx.thread.spawn(function() ngx.sleep(0.02) end)
            local function finalize()
                why = select(2, pcall(ngx.thread.spawn, function() ngx.sleep(0) end)) .. ", " .. select(2, pcall(ngx.thread.wait, thread))
            end
            for n = 1, 50 do getmetatable(newproxy(true)).__gc = finalize end
            collectgarbage() ngx.sleep(0.03) collectgarbage()
            local ok, value = ngx.thread.wait(ngx.thread.spawn(function() ngx.sleep(0.001) return "own" end))
            ngx.say(why, " ", ok, " ", value)
        } }"#,
    );
    let refused = "attempt to yield across C-call boundary";
    assert_eq!(server.get("/").text(), format!("{refused}, {refused} true own\n"));
}

#[test]
fn finalizers_that_ask_change_no_answers() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local ssl, wrong = require "ngx.ssl", 0
            local function finalize()
                ngx.re.find("bbbbbbbbbb7", "[0-9]") ngx.re.gsub("x-y", "[a-z]", "Z") pcall(ngx.decode_args, "z=1")
                ngx.re.find("a", "(")
            end
            local _, why = ssl.parse_pem_cert("none")
            for n = 1, 5000 do
                getmetatable(newproxy(true)).__gc = finalize
                local from, to = ngx.re.find("abc" .. n % 7, "[0-9]")
                local text = ngx.re.gsub("a1b22", "([0-9])([0-9]?)", "<$1$2>")
                local _, e = ssl.parse_pem_cert("none")
                local _, _, bad = ngx.re.sub("a", "[", "")
                local found = {}
                for m in ngx.re.gmatch("a=1,b=2", "([a-z])=([0-9])") do found[#found + 1] = m[1] .. m[2] end
                if from ~= 4 or to ~= 4 or text ~= "a<1>b<22>" or e ~= why or not bad:find("[", 1, true)
                    or table.concat(found) ~= "a1b2" then
                    wrong = wrong + 1
                end
            end
            ngx.say(wrong)
        } }"#,
    );
    assert_eq!(get(&server, "/"), "0\n");
}
