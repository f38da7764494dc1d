//! `dav_ext_methods`: files are listed and locked.

use weir_tests::tools::{self, finish};
use weir_tests::{expect_soon, Response, Server, Setup};

const CONF: &str = "events {} http { access_log off; dav_ext_lock_zone zone=locks:1m timeout=1h;
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/www; create_full_put_path on; dav_methods PUT DELETE MKCOL COPY MOVE;
        dav_ext_methods PROPFIND OPTIONS LOCK UNLOCK; dav_ext_lock zone=locks;
        location /free/ { dav_ext_methods off; } location = /stub { stub_status; }
        location /i/ { alias %%DIR%%/www/; } } }";

fn start() -> Server {
    let server = Setup::new(CONF).file("www/a & b", "four").file("www/d/x", "x").start();
    server.write("www/d/.hidden", "");
    server
}

fn send(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> Response {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
    server.exchange(method, format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())
}

const LOCKINFO: &str =
    "<?xml version=\"1.0\"?>\n<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
    <D:locktype><D:write/></D:locktype><D:owner>me &amp; &lt;you></D:owner></D:lockinfo>\n";

/// Its token.
fn lock(server: &Server, path: &str, headers: &str) -> String {
    let answer = send(server, "LOCK", path, headers, LOCKINFO);
    assert!(matches!(answer.status, 200 | 201), "{}", answer.status);
    let token = answer.header("Lock-Token").unwrap().trim_matches(['<', '>']).to_string();
    assert!(answer.text().contains(&format!("<D:locktoken><D:href>{token}</D:href>")));
    token
}

#[test]
fn files_are_listed() {
    let server = start();
    let found = send(&server, "PROPFIND", "/", "Depth: 1\r\n", "");
    assert_eq!(
        (found.status, found.header("Content-Type")),
        (207, Some("text/xml; charset=utf-8"))
    );
    let text = found.text();
    for part in [
        "<D:href>/</D:href>",
        "<D:href>/a%20&amp;%20b</D:href>",
        "<D:displayname>a &amp; b</D:displayname>",
        "<D:getcontentlength>4</D:getcontentlength>",
        "<D:href>/d/</D:href>",
        "<D:resourcetype><D:collection/></D:resourcetype>",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("/d/x") && !text.contains("hidden"), "{text}");
    let etag = server.get("/d/x").header("ETag").unwrap().replace('"', "&quot;");
    let all = send(&server, "PROPFIND", "/", "", "").text();
    assert!(all.contains("<D:href>/d/x</D:href>") && all.contains(&etag), "{all}");
    let these =
        "<propfind xmlns='DAV:'><prop><getetag/><e:other xmlns:e='urn:a&amp;b'/></prop></propfind>";
    let asked = send(&server, "PROPFIND", "/d/x", "Depth: 0\r\n", these).text();
    assert!(asked.contains(&format!("<D:getetag>{etag}</D:getetag>")), "{asked}");
    assert!(
        asked.contains("<other xmlns=\"urn:a&amp;b\"/>") && asked.contains("404 Not Found"),
        "{asked}"
    );
    assert!(!asked.contains("displayname"), "{asked}");
}

#[test]
fn what_cannot_be_listed_is_refused() {
    let server = start();
    let long = format!("<propfind xmlns='DAV:'>{}</propfind>", " ".repeat(70_000));
    for (path, headers, body, status) in [
        ("/nobody", "", "", 404),
        ("/d/x", "Depth: 2\r\n", "", 400),
        ("/d/x", "", "<a", 400),
        (
            "/d/x",
            "",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><propfind xmlns='DAV:'><allprop/></propfind>",
            400,
        ),
        ("/d/x", "", long.as_str(), 413),
        ("/free/x", "", "", 405),
    ] {
        assert_eq!(
            send(&server, "PROPFIND", path, headers, body).status,
            status,
            "{path} {headers}"
        );
    }
    let options = send(&server, "OPTIONS", "/", "", "");
    assert_eq!((options.status, options.header("DAV")), (200, Some("1, 2")));
    assert!(options.header("Allow").unwrap().contains("PROPFIND"));
}

#[test]
fn who_has_no_lock_changes_nothing() {
    let server = start();
    let token = lock(&server, "/d/x", "Timeout: Second-100, Infinite\r\n");
    let shown = format!("If: (<{token}>)\r\n");
    for (method, path, headers) in [
        ("PUT", "/d/x", ""),
        ("PUT", "/i/d/x", ""),
        ("DELETE", "/d/x", ""),
        ("DELETE", "/d/", ""),
        ("MOVE", "/d/x", "Destination: /y\r\n"),
        ("COPY", "/a%20&%20b", "Destination: /d/x\r\n"),
        ("PUT", "/d/x", "If: (Not <DAV:no-lock>)\r\n"),
        ("LOCK", "/d/x", ""),
        ("LOCK", "/d/", ""),
    ] {
        let body = if method == "LOCK" { LOCKINFO } else { "" };
        assert_eq!(
            send(&server, method, path, headers, body).status,
            423,
            "{method} {path} {headers}"
        );
    }
    assert_eq!(send(&server, "PUT", "/d/x", "If: (<urn:uuid:other>)\r\n", "").status, 412);
    assert_eq!(send(&server, "PUT", "/d/x", "If: (<a>\r\n", "").status, 400);
    assert_eq!(server.read("www/d/x"), "x");
    assert_eq!(send(&server, "COPY", "/d/x", "Destination: /copy\r\n", "").status, 204);
    assert_eq!(send(&server, "PUT", "/d/x", &shown, "new").status, 204);
    let etag = server.get("/d/x").header("ETag").unwrap().to_string();
    let both = format!("If: </nobody> (<{token}>) </d/x> (<{token}> [{etag}])\r\n");
    assert_eq!(send(&server, "PUT", "/d/x", &both, "newer").status, 204);
    let listed = send(&server, "PROPFIND", "/d/x", "Depth: 0\r\n", "").text();
    assert!(listed.contains("<D:timeout>Second-100</D:timeout>"), "{listed}");
    assert!(listed.contains("<D:owner>me &amp; &lt;you&gt;</D:owner>"), "{listed}");
    let again = send(&server, "LOCK", "/d/x", &format!("{shown}Timeout: Second-9999999\r\n"), "");
    assert!(again.text().contains("<D:timeout>Second-3600</D:timeout>"), "{}", again.text());
    let unlock = |token: &str| {
        let header = format!("Lock-Token: <{token}>\r\n");
        send(&server, "UNLOCK", "/d/x", &header, "").status
    };
    assert_eq!((unlock("urn:uuid:other"), unlock(&token), unlock(&token)), (409, 204, 409));
    assert_eq!(send(&server, "DELETE", "/d/x", "", "").status, 204);
}

#[test]
fn a_locked_collection_holds_what_is_in_it() {
    let server = start();
    let token = lock(&server, "/d/", "");
    assert_eq!(send(&server, "PUT", "/d/new", "", "").status, 423);
    assert_eq!(send(&server, "MKCOL", "/d/new/", "", "").status, 423);
    let tagged = format!("If: <http://localhost/d/> (<{token}>)\r\n");
    assert_eq!(send(&server, "PUT", "/d/new", &tagged, "").status, 201);
    assert_eq!(send(&server, "DELETE", "/d/", &tagged, "").status, 204);
    // Its locks have gone with it.
    assert_eq!(send(&server, "MKCOL", "/d/", "", "").status, 201);
    assert_eq!(send(&server, "PUT", "/d/new", "", "").status, 201);
    // What is locked before it is there is an empty file.
    let made = send(&server, "LOCK", "/fresh", "Depth: 0\r\n", LOCKINFO);
    assert_eq!((made.status, server.read("www/fresh")), (201, String::new()));
    let shared = LOCKINFO.replace("exclusive", "shared");
    assert_eq!(send(&server, "LOCK", "/other", "", &shared).status, 403);
    // It would be said again for every file.
    let owner = format!("<D:owner>{}</D:owner></D:lockinfo>", "o".repeat(2000));
    let long = LOCKINFO.replace("</D:lockinfo>", &owner);
    assert_eq!(send(&server, "LOCK", "/other", "", &long).status, 413);
    assert_eq!(send(&server, "LOCK", "/no/such/dir", "", LOCKINFO).status, 409);
    assert_eq!(send(&server, "LOCK", "/other", "", "").status, 412);
}

/// What was not done has not taken the lock away.
#[test]
fn a_change_that_fails_keeps_the_lock() {
    let server = start();
    let token = lock(&server, "/d/x", "");
    let shown = format!("If: (<{token}>)\r\n");
    assert_eq!(send(&server, "DELETE", "/d/x", &shown, "body").status, 415);
    let kept = format!("{shown}Destination: /a%20&%20b\r\nOverwrite: F\r\n");
    assert_eq!(send(&server, "MOVE", "/d/x", &kept, "").status, 412);
    assert_eq!(send(&server, "PUT", "/d/x", "", "").status, 423);
    // A link leads to the same file.
    std::os::unix::fs::symlink("d", server.dir().join("www/link")).unwrap();
    assert_eq!(send(&server, "PUT", "/link/x", "", "").status, 423);
    assert_eq!(send(&server, "PUT", "/link/x", &shown, "").status, 204);
}

/// Folders that are made on the way, links in front of them, and a lock on what is not there are no way around.
#[test]
fn a_lock_holds_for_what_is_made_below_it() {
    let server = start();
    std::os::unix::fs::symlink("d", server.dir().join("www/link")).unwrap();
    let token = lock(&server, "/d/", "");
    for path in ["/d/n/x", "/link/n/x", "/link/n/m/x"] {
        assert_eq!(send(&server, "PUT", path, "", "").status, 423, "{path}");
    }
    let tagged = format!("If: <http://localhost/d/> (<{token}>)\r\n");
    assert_eq!(send(&server, "PUT", "/link/n/x", &tagged, "").status, 201);
    assert_eq!(send(&server, "MKCOL", "/col/", "", "").status, 201);
    lock(&server, "/col/", "Depth: 0\r\n");
    assert_eq!(send(&server, "PUT", "/col/new/x", "", "").status, 423);
    assert_eq!(send(&server, "LOCK", "/col/new", "Depth: 0\r\n", LOCKINFO).status, 423);
    let there = "Destination: /col/sub/x\r\n";
    assert_eq!(send(&server, "PUT", "/plain", "", "x").status, 201);
    assert_eq!(send(&server, "MOVE", "/plain", there, "").status, 423);
    assert_eq!(send(&server, "COPY", "/plain", there, "").status, 423);
}

/// One that comes while the body is under way holds, too.
#[test]
fn a_lock_holds_for_a_body_that_is_under_way() {
    let server = start();
    let mut slow = server.connect();
    slow.send(b"PUT /d/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nne");
    expect_soon("it is being read", || server.get("/stub").text().contains("Writing: 2"));
    lock(&server, "/d/x", "");
    slow.send(b"w!");
    assert_eq!((slow.response().status, server.read("www/d/x")), (423, "x".into()));
}

/// `If` is no way to ask for files that are not served.
#[test]
fn conditions_are_about_the_file_itself() {
    let server = start();
    let etag = server.get("/d/x").header("ETag").unwrap().to_string();
    let of = |path: &str| format!("If: <{path}> ([{etag}])\r\n");
    assert_eq!(send(&server, "PUT", "/other", &of("/d/x"), "").status, 412);
    assert_eq!(send(&server, "PUT", "/d/x", &of("/d/x"), "x").status, 204);
}

/// Little is asked, and little is said.
#[test]
fn long_names_are_not_repeated_for_each_file() {
    let server = start();
    let body = |bytes: usize| {
        let space = "n".repeat(bytes);
        format!("<p:propfind xmlns:p='DAV:' xmlns:x='{space}'><p:prop><x:a/><x:b/></p:prop></p:propfind>")
    };
    assert_eq!(send(&server, "PROPFIND", "/", "", &body(60_000)).status, 400);
    assert_eq!(send(&server, "PROPFIND", "/", "", &body(1000)).status, 207);
}

/// A reload keeps them.
#[test]
fn locks_outlive_a_reload() {
    let mut server = start();
    let token = lock(&server, "/d/x", "");
    let peer = server.on(0);
    let conf = CONF.replace("location /free/", "location = /new { return 204; } location /free/");
    server.reload(&conf, || peer.get("/new").status == 204);
    assert_eq!(send(&server, "PUT", "/d/x", "", "").status, 423);
    assert_eq!(send(&server, "PUT", "/d/x", &format!("If: (<{token}>)\r\n"), "").status, 204);
}

/// litmus, which asks what RFC 4918 says: all of it but what nginx answers otherwise (a collection named without
/// its slash), shared locks and properties of the client's own (PROPPATCH).
#[test]
fn litmus_is_content() {
    let Some(basic) = tools::file("usr/libexec/litmus", "basic") else {
        return tools::skip("there is no litmus");
    };
    let Some(htdocs) = tools::file("usr/share/litmus", "htdocs") else {
        return tools::skip("there is no litmus");
    };
    let server = start();
    let url = format!("http://127.0.0.1:{}/", server.port(0));
    for (suite, summary) in [
        ("basic", "16 tests run: 16 passed, 0 failed"),
        ("copymove", "13 tests run: 10 passed, 3 failed"),
        ("locks", "34 tests run: 31 passed, 3 failed"),
        ("http", "4 tests run: 4 passed, 0 failed"),
    ] {
        let litmus = tools::Tool::at(&basic.with_file_name(suite));
        let mut command = litmus.command();
        command.current_dir(server.dir()).arg("--htdocs").arg(&htdocs).arg(&url);
        let said = finish(&mut command, b"").stdout;
        assert!(said.contains(summary), "{suite}: {said}");
    }
}
