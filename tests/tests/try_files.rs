//! try_files: files, directories, fallbacks and codes.

use weir_tests::Setup;

#[test]
fn the_first_that_exists_is_served() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / { try_files $uri $uri/ /fallback?from=$uri; }
            location /fallback { return 200 'fallback $args'; }
            location /code { try_files /none =503; }
            location /file/ { try_files $uri.txt $uri.html =404; }
            location /dirs { try_files /dir/ =404; }
            location /alias/ { alias %%DIR%%/other/; try_files $uri $uri.x =410; }
            location /named { try_files /none @named; }
            location @named { return 200 'named $uri'; }
        } }",
    )
    .file("html/a", "file a")
    .file("html/dir/index.html", "index")
    .file("html/file/b.html", "b html")
    .file("other/o", "other o")
    .file("other/p.x", "other p")
    .start();
    for (path, status, text) in [
        ("/a", 200, "file a"),
        ("/dir/", 200, "index"),
        ("/none", 200, "fallback from=/none"),
        ("/file/b", 200, "b html"),
        ("/alias/o", 200, "other o"),
        ("/alias/p", 200, "other p"),
        ("/named", 200, "named /named"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, response.text().as_str()), (status, text), "{path}");
    }
    assert_eq!(server.get("/code").status, 503);
    assert_eq!(server.get("/file/c").status, 404);
    assert_eq!(server.get("/alias/q").status, 410);
    assert_eq!(server.get("/dir").status, 301);
}

/// Arguments go on only where the last parameter names them.
#[test]
fn the_last_one_has_its_own_arguments() {
    let server = weir_tests::Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location / { try_files $uri /end; } location /named/ { try_files $uri /end?$args&more; }
        location = /end { return 200 '$uri $args'; } } }",
    );
    assert_eq!(server.get("/a?x=1").text(), "/end ");
    assert_eq!(server.get("/named/a?x=1").text(), "/end x=1&more");
}

/// As in nginx, also where a variable decides what else it is.
#[test]
fn a_relative_root_begins_in_the_prefix() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location ~ ^/by/([a-z]+)/ { root sites/$1; }
            location ~ ^/as/([a-z]+)$ { alias sites/$1/by/a/file; }
            location ~ ^/try/([a-z]+)$ { root sites/$1; try_files /by/a/file =404; }
            location ~ ^/where/([a-z]+)$ { root sites/$1; return 200 $document_root; }
            location ~ ^/whole/([a-z]+)$ { set $way %%DIR%%/sites/a/by/a; alias $way/$1; } } }"#,
    )
    .file("sites/a/by/a/file", "there")
    .start();
    for path in ["/by/a/file", "/as/a", "/try/a", "/whole/file"] {
        assert_eq!(server.get(path).text(), "there", "{path}");
    }
    let root = server.dir().join("sites/b");
    // By wine it has a drive.
    let said = server.get("/where/b").text();
    assert!(said.ends_with(root.to_str().unwrap()), "{said}");
}
