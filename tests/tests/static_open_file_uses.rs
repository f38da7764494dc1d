//! `open_file_cache`: from which use on a file is kept, and how many are; and large files sent in
//! turns.

use weir_tests::{Server, Setup};

/// Puts another file in place of one, with text of the same length.
fn replace(server: &Server, name: &str, text: &str) {
    server.write("root/fresh", text.repeat(50_000));
    std::fs::rename(server.dir().join("root/fresh"), server.dir().join("root").join(name)).unwrap();
}

#[test]
fn a_file_is_kept_from_its_second_use_on() {
    let server = Setup::new(
        "events {} worker_processes 1; http { server { listen 127.0.0.1:%%PORT_0%%;
            root %%DIR%%/root; open_file_cache max=4 inactive=60s; open_file_cache_valid 60s;
            location / { open_file_cache_min_uses 2; }
            location /few/ { open_file_cache max=1; open_file_cache_min_uses 1; } } }",
    )
    .file("root/file", "1111".repeat(50_000))
    .file("root/few/a", "1111".repeat(50_000))
    .file("root/few/b", "1111".repeat(50_000))
    .file("root/few/c", "1111".repeat(50_000))
    .start();
    let first = |path: &str| server.get(path).text()[..4].to_string();
    assert_eq!(first("/file"), "1111");
    replace(&server, "file", "2222");
    assert_eq!(first("/file"), "2222");
    replace(&server, "file", "3333");
    assert_eq!(first("/file"), "2222");
    // There is room for one: others drive it out.
    for path in ["/few/a", "/few/b", "/few/c", "/few/b", "/few/c"] {
        assert_eq!(first(path), "1111");
    }
    replace(&server, "few/a", "2222");
    assert_eq!(first("/few/a"), "2222");
}

#[test]
fn a_large_file_comes_whole_however_it_is_read() {
    let text = "0123456789".repeat(100_000);
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/root;
            sendfile on; sendfile_max_chunk 5k;
            location /whole { sendfile_max_chunk 0; }
            location /direct { directio 4k; directio_alignment 4k; } } }",
    )
    .file("root/file", &text)
    .file("root/whole", &text)
    .file("root/direct", &text)
    .start();
    for path in ["/file", "/whole", "/direct"] {
        assert!(server.get(path).text() == text, "{path}");
        let part = server.get_with(path, "Range: bytes=4097-9000\r\n");
        assert!(part.status == 206 && part.text() == text[4097..9001], "{path}");
    }
}
