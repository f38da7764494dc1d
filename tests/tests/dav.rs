//! `dav_methods`: files are put, removed, copied and moved.

use weir_tests::{expect_soon, Response, Server, Setup};

const CONF: &str = "events {} http { access_log off; client_body_temp_path %%DIR%%/body;
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/www; client_body_buffer_size 1k;
        client_max_body_size 10m; dav_methods PUT DELETE MKCOL COPY MOVE;
        location /full/ { create_full_put_path on; dav_access user:rw group:r all:r; }
        location /group/ { create_full_put_path on; dav_access user:rw group:rw all:r; }
        location /deep/ { min_delete_depth 3; }
        location /i/ { alias %%DIR%%/www/; }
        location /none/ { dav_methods off; }
        location /slow/ { alias %%DIR%%/www/; limit_rate 400k; limit_rate_after 1; } } }";

fn start() -> Server {
    let server = Setup::new(CONF).file("www/a", "one").file("www/tree/x", "x").start();
    server.write("www/tree/sub/y", "y");
    server.write("www/deep/a/b", "b");
    server
}

fn send(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> Response {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    server.exchange(method, request.as_bytes())
}

/// The path of `Location`, which is made absolute.
fn place(answer: &Response) -> String {
    let url = answer.header("Location").unwrap();
    url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap()
}

fn mode(server: &Server, path: &str) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(server.dir().join(path)).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_put() {
    let server = start();
    let new = send(&server, "PUT", "/new%20file", "", "0123456789");
    assert_eq!((new.status, place(&new)), (201, "/new%20file".into()));
    assert_eq!(new.header("Content-Length"), Some("0"));
    assert_eq!(server.read("www/new file"), "0123456789");
    assert_eq!(mode(&server, "www/new file"), 0o600);
    let large = "x".repeat(300_000);
    let dated = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let again = send(&server, "PUT", "/new%20file", dated, &large);
    assert_eq!((again.status, again.header("Content-Length")), (204, None));
    assert_eq!(server.read("www/new file"), large);
    let modified = std::fs::metadata(server.dir().join("www/new file")).unwrap().modified();
    let since = modified.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 784_111_777);
    let full = send(&server, "PUT", "/full/a/b/c", "", "deep");
    assert_eq!((full.status, mode(&server, "www/full/a/b/c")), (201, 0o644));
    assert_eq!(send(&server, "PUT", "/group/a/b", "", "").status, 201);
    let modes = ["www/group", "www/group/a", "www/group/a/b"].map(|path| mode(&server, path));
    // In the foreground nginx leaves the umask of who started it.
    let of_dirs = if weir_tests::binary().ends_with("nginx") { modes[0] } else { 0o775 };
    assert_eq!(modes, [of_dirs, of_dirs, 0o664]);
    assert_eq!(send(&server, "PUT", "/i/alias", "", "aliased").status, 201);
    assert_eq!(server.read("www/alias"), "aliased");
    let chunks = b"PUT /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(server.exchange("PUT", chunks).status, 201);
    assert_eq!(server.read("www/chunks"), "abcde");
    assert_eq!(send(&server, "PUT", "/empty", "", "").status, 201);
    assert_eq!(server.read("www/empty"), "");
}

#[test]
fn what_is_being_downloaded_is_replaced() {
    let server = start();
    let text = |sign: &str| sign.repeat(200_000);
    std::fs::write(server.dir().join("www/from"), text("m")).unwrap();
    let put = |sign: &str| send(&server, "PUT", "/file", "", &text(sign)).status;
    assert_eq!(put("a"), 201);
    let over = |method: &str, from: &str| {
        let to = format!("Destination: http://localhost:{}/file\r\n", server.port(0));
        send(&server, method, from, &to, "").status
    };
    std::fs::write(server.dir().join("www/other"), text("c")).unwrap();
    for (sign, replace) in [
        ("b", &(|| put("b")) as &dyn Fn() -> u16),
        ("c", &|| over("COPY", "/other")),
        ("m", &|| over("MOVE", "/from")),
    ] {
        let before = server.get("/file").text();
        let mut slow = server.connect();
        slow.send_get("/slow/file");
        slow.read_until(b"\r\n\r\n");
        assert_eq!(replace(), 204, "{sign}");
        assert_eq!(server.get("/file").text(), text(sign));
        assert!(slow.read_exactly(before.len()) == Some(before.into_bytes()), "{sign}");
    }
    let is_alone = || {
        let names = std::fs::read_dir(server.dir().join("www")).unwrap();
        let is_other =
            |name: &str| ["file.", "from.", "other."].iter().any(|n| name.starts_with(n));
        names.flatten().all(|e| !is_other(&e.file_name().to_string_lossy()))
    };
    expect_soon("nothing is left beside it once nobody has it open", is_alone);
}

#[test]
fn many_who_put_one_file_leave_it_whole_and_alone() {
    let server = start();
    let text = |sign: usize| ["a", "b", "c"][sign].repeat(200_000);
    assert_eq!(send(&server, "PUT", "/file", "", &text(0)).status, 201);
    std::thread::scope(|scope| {
        for sign in 0..3 {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..20 {
                    let status = send(server, "PUT", "/file", "", &text(sign)).status;
                    // Between two names a file is not there, where a disk does not replace one that is open.
                    assert!(matches!(status, 201 | 204), "{status}");
                    let mut slow = server.connect();
                    slow.send_get("/slow/file");
                    slow.read_until(b"\r\n");
                }
            });
        }
    });
    let last = server.get("/file").text();
    assert!((0..3).any(|sign| last == text(sign)));
    let is_alone = || {
        let names = std::fs::read_dir(server.dir().join("www")).unwrap();
        let body = std::fs::read_dir(server.dir().join("body")).unwrap();
        let left = body.flatten().filter(|e| e.path().is_file()).count();
        let is_other = |name: &str| name.starts_with("file.");
        left == 0 && names.flatten().all(|e| !is_other(&e.file_name().to_string_lossy()))
    };
    expect_soon("nothing is left once nobody has it open", is_alone);
}

#[test]
fn what_cannot_be_put_leaves_nothing() {
    let server = start();
    assert_eq!(send(&server, "PUT", "/tree/", "", "a").status, 409);
    assert_eq!(send(&server, "PUT", "/tree", "", "a").status, 409);
    let range = "Content-Range: bytes 0-0/2\r\n";
    assert_eq!(send(&server, "PUT", "/a", range, "a").status, 501);
    assert_eq!(send(&server, "PUT", "/none/a", "", "a").status, 405);
    let missing = if weir_tests::binary().ends_with("nginx") { 500 } else { 409 };
    assert_eq!(send(&server, "PUT", "/no/such/dir", "", "a").status, missing);
    assert_eq!(server.read("www/a"), "one");
    let left = std::fs::read_dir(server.dir().join("body"))
        .map_or(0, |dir| dir.flatten().filter(|e| e.path().is_file()).count());
    assert_eq!(left, 0);
}

#[test]
fn collections_are_made_and_removed() {
    let server = start();
    let made = send(&server, "MKCOL", "/made/", "", "");
    assert_eq!((made.status, place(&made)), (201, "/made/".into()));
    assert_eq!(mode(&server, "www/made"), 0o700);
    for (path, body, status) in
        [("/made/", "", 405), ("/x", "", 409), ("/q/w/", "", 409), ("/z/", "b", 415)]
    {
        assert_eq!(send(&server, "MKCOL", path, "", body).status, status, "{path}");
    }
    for (path, headers, status) in [
        ("/tree", "", 409),
        ("/tree/", "Depth: 0\r\n", 400),
        ("/a", "Depth: 1\r\n", 400),
        ("/a", "Depth: rubbish\r\n", 400),
        ("/nobody", "", 404),
        ("/a/b", "", 409),
        ("/deep/a/", "", 409),
        ("/deep/a/b", "", 204),
        ("/a", "", 204),
        ("/tree/", "", 204),
    ] {
        assert_eq!(send(&server, "DELETE", path, headers, "").status, status, "{path} {headers}");
    }
    assert_eq!(send(&server, "DELETE", "/made/", "", "b").status, 415);
    assert!(!server.dir().join("www/tree").exists());
    assert!(server.dir().join("www/deep/a").exists());
}

#[test]
fn files_and_trees_are_copied_and_moved() {
    let server = start();
    let to = |path: &str| format!("Destination: {path}\r\n");
    assert_eq!(send(&server, "COPY", "/a", &to("/copy"), "").status, 204);
    assert_eq!(server.read("www/copy"), "one");
    assert_eq!(send(&server, "MOVE", "/copy", &to("http://localhost:8080/moved"), "").status, 204);
    assert_eq!(server.read("www/moved"), "one");
    assert!(!server.dir().join("www/copy").exists());
    let copied = send(&server, "COPY", "/tree/", &to("/twin/"), "");
    assert_eq!((copied.status, copied.header("Content-Length")), (201, Some("0")));
    assert_eq!(server.read("www/twin/sub/y"), "y");
    assert_eq!(send(&server, "COPY", "/tree/", &(to("/bare/") + "Depth: 0\r\n"), "").status, 201);
    assert_eq!(send(&server, "MOVE", "/tree/", &to("/twin/"), "").status, 201);
    assert_eq!(server.read("www/twin/x"), "x");
    assert!(!server.dir().join("www/tree").exists());
}

#[test]
fn what_may_not_be_copied_stays() {
    let server = start();
    let to = |path: &str| format!("Destination: {path}\r\n");
    for (from, headers, status) in [
        ("/a", String::new(), 400),
        ("/a", to("/tree/"), 409),
        ("/a", to("/tree"), 409),
        ("/tree/", to("/copy"), 409),
        ("/a", to("http://other/b"), 400),
        ("/a", to("https://localhost/b"), 400),
        ("/a", to("/../b"), 400),
        ("/a", to("/%2e%2e/b"), 400),
        ("/a", to("/b") + "Depth: 1\r\n", 400),
        ("/a", to("/b") + "Overwrite: maybe\r\n", 400),
        ("/a", to("/tree/x") + "Overwrite: F\r\n", 412),
        ("/a", to("/a"), 403),
        ("/tree/", to("/tree/sub/"), 403),
        ("/tree/sub/", to("/tree/"), 403),
        ("/nobody", to("/b"), 404),
    ] {
        for method in ["COPY", "MOVE"] {
            let answer = send(&server, method, from, &headers, "");
            assert_eq!(answer.status, status, "{method} {from} {headers}");
        }
    }
    assert_eq!((server.read("www/a"), server.read("www/tree/x")), ("one".into(), "x".into()));
    assert_eq!(send(&server, "COPY", "/a", &to("/b"), "body").status, 415);
}

/// A link is nothing to write or to walk through.
#[test]
fn links_are_not_followed() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("it follows them");
    }
    let server = start();
    server.write("outside/secret", "secret");
    let (outside, link) = (server.dir().join("outside"), server.dir().join("www/tree/link"));
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), server.dir().join("www/file")).unwrap();
    let twin = "Destination: /twin/\r\n";
    assert_eq!(send(&server, "COPY", "/tree/", twin, "").status, 201);
    assert!(!server.dir().join("www/twin/link").exists());
    assert_eq!(send(&server, "PUT", "/file", "", "public").status, 204);
    assert_eq!(server.read("www/file"), "public");
    assert_eq!(send(&server, "DELETE", "/tree/", "", "").status, 204);
    assert_eq!(server.read("outside/secret"), "secret");
}
