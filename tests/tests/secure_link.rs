//! `secure_link`: links that end, and links that are signed by a secret.

use weir_tests::{Server, Setup};

fn start() -> Server {
    Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { secure_link $arg_md5,$arg_expires; secure_link_md5 \"$secure_link_expires$uri secret\";
                return 200 \"[$secure_link]\"; }
            location /forever/ { secure_link $arg_md5; secure_link_md5 \"$uri secret\"; return 200 \"[$secure_link]\"; }
            location /p/ { secure_link_secret secret; if ($secure_link = \"\") { return 403; }
                return 200 \"[$secure_link]\"; } } }",
    )
    .start()
}

// printf '2147483647/a secret' | openssl md5 -binary | openssl base64 | tr +/ -_ | tr -d =
const LATE: &str = "xg4k20F2EdOEmC4ciVanOw";
// printf '1/a secret' | …
const EARLY: &str = "hdrZ_JVZ8Qp43qi6bVnEMg";
// printf '/forever/a secret' | …
const FOREVER: &str = "mTfw99LUA9tJAl6X_-JjxQ";
// printf 'dir/linksecret' | openssl md5 -hex
const SECRET: &str = "80d0001ed01edd2b8df6d81c5287f841";

#[test]
fn a_link_holds_until_it_ends() {
    let server = start();
    let get = |path: String| server.get(&path).text();
    assert_eq!(get(format!("/a?md5={LATE}&expires=2147483647")), "[1]");
    assert_eq!(get(format!("/a?md5={EARLY}&expires=1")), "[0]");
    assert_eq!(get(format!("/b?md5={LATE}&expires=2147483647")), "[]");
    assert_eq!(get(format!("/a?md5={LATE}&expires=2147483646")), "[]");
    assert_eq!(get(format!("/forever/a?md5={FOREVER}")), "[1]");
    assert_eq!(get("/forever/a?md5=short".to_string()), "[]");
    assert_eq!(get("/forever/a".to_string()), "[]");
}

#[test]
fn a_secret_signs_the_rest_of_the_path() {
    let server = start();
    assert_eq!(server.get(&format!("/p/{SECRET}/dir/link")).text(), "[dir/link]");
    assert_eq!(server.get(&format!("/p/{SECRET}/dir/other")).status, 403);
    assert_eq!(server.get("/p/dir/link").status, 403);
}
