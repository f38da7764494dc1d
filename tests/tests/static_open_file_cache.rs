//! Open files remembered: what is noticed at once, and what after a while.

use weir_tests::{expect_soon, Setup};

#[test]
fn changes_are_seen_when_the_entry_is_no_longer_valid() {
    let server = Setup::new(
        "events {} http { open_file_cache max=10 inactive=10s; open_file_cache_valid 1s;
            open_file_cache_errors on;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }",
    )
    .file("html/a", "old")
    .start();
    assert_eq!(server.get("/a").text(), "old");
    assert_eq!(server.get("/later").status, 404);
    std::fs::rename(server.dir().join("html/a"), server.dir().join("html/gone")).unwrap();
    server.write("html/a", "new!");
    server.write("html/later", "here");
    assert_eq!(server.get("/a").text(), "old");
    assert_eq!(server.get("/later").status, 404);
    expect_soon("the new file is served", || server.get("/a").text() == "new!");
    expect_soon("the error is forgotten", || server.get("/later").status == 200);
}

#[test]
fn without_the_cache_changes_are_seen_at_once() {
    let server =
        Setup::new("events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }")
            .file("html/a", "old")
            .start();
    for content in ["one", "other", "x"] {
        server.write("html/a", content);
        assert_eq!(server.get("/a").text(), content);
    }
}
