//! Which lines of a password file let whom in.

use weir_tests::{Server, Setup};

const USERS: &str = ":{PLAIN}nouser\n#c:{PLAIN}p\nlocked:*\nempty:\nnone\nbang:!\ndes:x\n\
    star:*0\nodd:$y\nsha:{SHA}\nssha:{SSHA}Zm9v\nunpadded:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g\n\
    crypt:$6$x\nmd:$1$\nu:{PLAIN}p:more\nu:{PLAIN}second\n\rr:{PLAIN}p\nv:{PLAIN}\n";

fn start() -> Server {
    Setup::new(
        "events {} http { error_log %%DIR%%/error.log;
            server { listen 127.0.0.1:%%PORT_0%%; location / { auth_basic closed;
                auth_basic_user_file %%DIR%%/users; } } }",
    )
    .file("users", USERS)
    .file("html/index.html", "open")
    .start()
}

fn ask(server: &Server, credentials: &str) -> u16 {
    let mut encoded = Vec::new();
    weir_base::base64::encode(&mut encoded, credentials.as_bytes());
    let encoded = String::from_utf8(encoded).unwrap();
    server.get_with("/x", &format!("Authorization: Basic {encoded}\r\n")).status
}

#[test]
fn only_a_name_with_its_password_is_let_in() {
    let server = start();
    for refused in [
        ":nouser",
        ":",
        "",
        "nouser",
        ":{PLAIN}nouser",
        "c:p",
        "#c:p",
        "locked:*",
        "locked:",
        "empty:",
        "empty:x",
        "none:",
        "bang:!",
        "bang:",
        "des:x",
        "des:",
        "star:*0",
        "star:*1",
        "odd:$y",
        "sha:",
        "ssha:",
        "unpadded:password",
        "crypt:",
        "md:",
        "u:",
        "u:p:more",
        "u:second",
        "\rr:p",
        "v:x",
        "u\n:p",
    ] {
        assert_eq!(ask(&server, refused), 401, "{refused:?}");
    }
    // There is nothing to find behind it.
    for right in ["u:p", "v:"] {
        assert_eq!(ask(&server, right), 404, "{right:?}");
    }
}

#[test]
fn a_hash_that_cannot_be_read_is_said_in_the_log_alone() {
    if weir_tests::binary().ends_with("nginx") {
        return;
    }
    let server = start();
    assert_eq!(ask(&server, "locked:x"), 401);
    let users = server.dir().join("users");
    server.expect_error(&format!("user \"locked\" in \"{}\": the kind of", users.display()));
}
