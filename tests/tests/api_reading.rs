//! `api`: what is counted is shown by paths, and begins anew when somebody may say so.

use weir_tests::{Response, Server, Setup};

const CONF: &str = "worker_processes 1; events {} http {
    server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
        location / { return 200 ok; }
        location /counted/ { status_zone 'odd/na me\u{e9}'; return 200 counted; }
        location /api/ { api; }
        location /write { api write=on; allow 127.0.0.1; deny all; } } }";

fn start() -> Server {
    Setup::new(CONF).start()
}

fn code(response: &Response) -> (u16, String) {
    let text = response.text();
    let at = text.find("\"code\":\"").unwrap_or_else(|| panic!("{text}")) + 8;
    (response.status, text[at..].split('"').next().unwrap_or_default().to_string())
}

#[test]
fn versions_and_folders_are_listed() {
    let server = start();
    let versions = server.get("/api/");
    assert_eq!(versions.text(), "[1,2,3,4,5,6,7,8,9]");
    assert_eq!(versions.header("Content-Type"), Some("application/json"));
    assert_eq!(versions.header("Cache-Control"), Some("no-store"));
    assert_eq!(versions.header("ETag"), None);
    assert_eq!(
        server.get("/api/9/").text(),
        "[\"nginx\",\"processes\",\"connections\",\"slabs\",\"http\",\"resolvers\",\"ssl\",\"workers\",\"ship\",\"figures\",\"otel\"]"
    );
    assert_eq!(
        server.get("/api/1/http/").text(),
        "[\"requests\",\"server_zones\",\"caches\",\"upstreams\",\"keyvals\"]"
    );
    assert_eq!(server.get("/api/5/http").text().matches("location_zones").count(), 1);
    let head = server.head("/api/9/");
    assert_eq!(
        (head.status, head.content_length()),
        (200, Some(server.get("/api/9/").text().len()))
    );
    // Without a block there is nothing of it.
    assert_eq!(code(&server.get("/api/9/stream/")), (404, "PathNotFound".to_string()));
}

#[test]
fn figures_are_shown_whole_one_by_one_and_by_fields() {
    let server = start();
    server.get_host("a.test", "/counted/");
    let all = server.get("/api/9/http/server_zones/").text();
    assert!(all.starts_with("{\"a.test\":{\"processing\":1,\"requests\":2,"), "{all}");
    let one = server.get("/api/9/http/server_zones/a.test").text();
    assert!(one.starts_with("{\"processing\":1,\"requests\":3,"), "{one}");
    assert_eq!(
        server.get("/api/9/http/server_zones/a.test?fields=requests,none").text(),
        "{\"requests\":4}"
    );
    assert_eq!(
        server.get("/api/9/http/server_zones?fields=processing").text(),
        "{\"a.test\":{\"processing\":1}}"
    );
    assert_eq!(server.get("/api/9/http/server_zones?fields=").text(), "[\"a.test\"]");
    for path in ["odd/na%20me%C3%A9", "odd%2Fna%20me%c3%a9"] {
        let odd = server.get(&format!("/api/9/http/location_zones/{path}?fields=requests"));
        assert_eq!(odd.text(), "{\"requests\":1}", "{path}");
    }
    let connections = server.get("/api/9/connections").text();
    assert!(connections.contains("\"accepted\":9,") && connections.contains("\"active\":"));
    assert_eq!(server.get("/api/9/processes").text(), "{\"respawned\":0}");
}

#[test]
fn the_program_is_told_of() {
    let server = start();
    let text = server.get("/api/9/nginx").text();
    let pids = [server.children(), vec![server.own_pid()]].concat();
    assert!(pids.iter().any(|pid| text.contains(&format!("\"pid\":{pid},"))), "{text}");
    assert!(
        text.contains("\"address\":\"127.0.0.1\"") && text.contains("\"generation\":1"),
        "{text}"
    );
    let at = text.find("\"load_timestamp\":\"").expect(&text) + 18;
    let stamp = &text[at..at + 25];
    assert!(stamp.ends_with("Z\"") && &stamp[10..11] == "T" && &stamp[19..20] == ".", "{text}");
    let part = server.get("/api/9/nginx?fields=version,build").text();
    assert_eq!(part.matches(':').count(), 2, "{part}");
}

#[test]
fn what_came_in_later_versions_is_left_out() {
    let server = start();
    server.get("/");
    let zone = |version| server.get(&format!("/api/{version}/http/server_zones/a.test")).text();
    assert!(zone(7).contains("\"codes\":{\"200\":"), "{}", zone(7));
    assert!(!zone(6).contains("codes") && zone(6).contains("\"2xx\":"), "{}", zone(6));
    let error = server.get("/api/3/none").text();
    assert!(error.starts_with("{\"path\":\"\",\"method\":\"\",\"error\":"), "{error}");
}

#[test]
fn errors_are_the_apis_own() {
    let server = start();
    for (path, status, expected) in [
        ("/api/10/", 404, "UnknownVersion"),
        ("/api/9/none", 404, "PathNotFound"),
        ("/api/9/license", 404, "PathNotFound"),
        ("/api/8/workers/", 404, "PathNotFound"),
        ("/api/9/nginx/more", 404, "PathNotFound"),
        ("/api/9/http/server_zones/b.test", 404, "ServerZoneNotFound"),
        ("/api/9/http/location_zones/x", 404, "LocationZoneNotFound"),
        ("/api/9/http/caches/x", 404, "CacheNotFound"),
        ("/api/9/resolvers/x", 404, "ResolverZoneNotFound"),
    ] {
        assert_eq!(code(&server.get(path)), (status, expected.to_string()), "{path}");
    }
    let text = server.get("/api/9/none").text();
    assert!(
        text.starts_with("{\"error\":{\"status\":404,\"text\":\"path not found\",\"code\":\"PathNotFound\"},\"request_id\":\""),
        "{text}"
    );
    assert!(text.ends_with("\"href\":\"https://nginx.org/en/docs/http/ngx_http_api_module.html\"}"));
}

#[test]
fn figures_begin_anew_where_it_is_allowed() {
    let server = start();
    let requests = |from: &str| {
        let text = server.get(&format!("{from}/9/http/server_zones/a.test?fields=requests")).text();
        text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().expect(&text)
    };
    server.get("/");
    assert_eq!(requests("/api"), 2);
    let refused = server.request("DELETE", "/api/9/http/server_zones/a.test", "");
    assert_eq!(code(&refused), (405, "MethodDisabled".to_string()));
    for (path, status) in [
        ("/write/9/http/server_zones/a.test", 204),
        ("/write/9/http/server_zones/none", 404),
        ("/write/9/http/server_zones/", 405),
        ("/write/9/nginx", 405),
        ("/write/9/http/requests", 204),
        ("/write/9/connections", 204),
    ] {
        assert_eq!(server.request("DELETE", path, "").status, status, "{path}");
    }
    // Those after the first of them, and this one.
    assert_eq!(requests("/api"), 6);
    let total = server.get("/api/9/http/requests?fields=total").text();
    assert_eq!(total, "{\"total\":3}");
    let connections = server.get("/api/9/connections?fields=accepted").text();
    assert_eq!(connections, "{\"accepted\":3}");
}

#[test]
fn other_sites_change_nothing() {
    let server = start();
    let delete = |headers: &str| server.request("DELETE", "/write/9/connections", headers);
    for refused in [
        "Origin: http://evil.test\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: same-origin\r\nOrigin: http://evil.test\r\n",
    ] {
        assert_eq!(code(&delete(refused)), (403, "CrossSiteRequest".to_string()), "{refused}");
    }
    assert_eq!(delete("Sec-Fetch-Site: none\r\n").status, 204);
    let own = format!("DELETE /write/9/connections HTTP/1.1\r\nHost: a.test:{0}\r\nOrigin: http://A.test:{0}\r\nConnection: close\r\n\r\n", server.port(0));
    assert_eq!(server.status_of(own.as_bytes()), 204);
    // A page of a name that was made to lead here; and addresses, which no one else has.
    for (host, status) in
        [("evil.test", 403), ("127.0.0.1", 204), ("[::1]", 204), ("localhost", 204)]
    {
        let rebound = own.replace("a.test", host).replace("A.test", host);
        assert_eq!(server.status_of(rebound.as_bytes()), status, "{host}");
    }
}

#[test]
fn who_may_write_must_be_said() {
    let told = |conf: &str| {
        let conf = format!("events {{}} http {{ server {{ listen 127.0.0.1:1; {conf} }} }}");
        weir_tests::run_cli(&["-t"], &conf).stderr
    };
    let open = "in a location that anybody may reach";
    for refused in [
        "location /api { api write=on; }",
        "location /api { api write=on; satisfy any; auth_basic off; }",
        "location /api { api write=on; limit_except GET POST { deny all; } }",
        "location /a { allow all; } location /api { api write=on; }",
        "location /api { api write=on; allow all; }",
        "location /api { api write=on; allow 127.0.0.1; }",
        "location /api { api write=on; deny 10.0.0.1; }",
        "location /api { api write=on; allow 0.0.0.0/0; deny all; }",
        "location /api { api write=on; limit_except GET { allow 127.0.0.1; } }",
        "location /api { api write=on; satisfy any; allow all; auth_request /ok; }",
        "ssl_verify_client off; location /api { api write=on; }",
        "location /api { api write=on; allow 0.0.0.0/1; allow 128.0.0.0/1; deny all; }",
        "location /api { api write=on; auth_basic $http_x; auth_basic_user_file p; }",
    ] {
        let said = told(refused);
        assert!(said.contains(open) && said.contains("deny all;"), "{refused}: {said}");
    }
    for taken in [
        "location /api { api; }",
        "location /api { api write=off; }",
        "location /api { api write=on; deny all; }",
        "location /api { api write=on; auth_basic a; auth_basic_user_file p; }",
        "location /api { api write=on; allow 10.0.0.0/8; allow fc00::/7; deny all; }",
        "location /api { api write=on; limit_except GET { deny all; } }",
        "deny all; location /api { api write=on; }",
        "location /api { api write=on; auth_request /ok; }",
        "location /api { api write=on; allow 127.0.0.1; deny all; }",
        "location /api { api write=on; allow all; auth_request /ok; }",
        "location /api { api write=on; satisfy any; deny all; auth_request /ok; }",
    ] {
        assert!(told(taken).contains("test is successful"), "{taken}: {}", told(taken));
    }
    // A server that asks for certificates does so where it speaks TLS.
    let pair = weir_tests::tls::self_signed("a");
    let pem = std::env::temp_dir().join(format!("weir-guard-{}.pem", std::process::id()));
    std::fs::write(&pem, pair.cert + &pair.key).unwrap();
    let pem_name = pem.display().to_string();
    let asks = |listen: &str| {
        let server = "ssl_certificate PEM; ssl_certificate_key PEM; ssl_client_certificate PEM; \
             ssl_verify_client on; location /api { api write=on; }";
        let conf = format!("events {{}} http {{ server {{ {listen} {server} }} }}");
        weir_tests::run_cli(&["-t"], &conf.replace("PEM", &pem_name)).stderr
    };
    assert!(asks("listen 127.0.0.1:1 ssl;").contains("test is successful"));
    assert!(asks("listen 127.0.0.1:1; listen 127.0.0.1:2 ssl;").contains(open));
    std::fs::remove_file(pem).unwrap();
    assert!(told("location /api { api on; }").contains("invalid parameter \"on\""));
    assert!(told("location ~ ^/api { api; }").contains("\"api\" is for a location with a prefix"));
    assert!(told("location /api { api; api; }").contains("is duplicate"));
}
