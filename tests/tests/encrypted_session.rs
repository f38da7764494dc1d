//! encrypted-session: set_encrypt_session and set_decrypt_session.

use weir_tests::{run_cli, Server, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
    encrypted_session_key "abcdefghijklmnopqrstuvwxyz123456"; encrypted_session_expires 0;
    location /default { set_encrypt_session $s abc; set_encode_base32 $t $s; set_decrypt_session $b $s; return 200 "$t $b"; }
    location /iv { encrypted_session_iv 12345678; set_encrypt_session $s abc; set_encode_base32 $t $s; set_decrypt_session $b $s;
        return 200 "$t $b"; }
    location /long { encrypted_session_expires 1d; set_encrypt_session $s "$arg_a-$uri"; set_encode_base32 $s; return 200 $s; }
    location /short { encrypted_session_expires 1s; set_encrypt_session $s abc; set_encode_base32 $s; return 200 $s; }
    location /if { if ($arg_x) { encrypted_session_iv 12345678; } set_encrypt_session $s abc; set_encode_base32 $s; return 200 $s; }
    location /open { set_decode_base32 $s $arg_s; set_decrypt_session $s; return 200 "[$s]"; }
    location /list { array_split , a,b to=$l; array_map_op set_encrypt_session $l; array_map_op set_decrypt_session $l;
        array_join - $l; return 200 $l; }
    }
    server { listen 127.0.0.1:%%PORT_1%%; location / { set_encrypt_session $s abc; return 200 $s; } } }"#;

/// What OpenResty makes of `abc` with that key, for ever, and with the other vector.
const KNOWN: &str = "ktrp3n437q42laejppc9d4bg0jpv0ejie106ooo65od9lf5huhs0====";
const OTHER: &str = "ktrp3n437q42laejppc9d4bg0hul4pmqhc8tn2laae40aakqfoh0====";

fn start() -> Server {
    Setup::new(CONF).start()
}

#[test]
fn sessions_are_those_of_others_with_the_same_key() {
    let server = start();
    assert_eq!(server.get("/default").text(), format!("{KNOWN} abc"));
    assert_eq!(server.get("/iv").text(), format!("{OTHER} abc"));
    assert_eq!(server.get("/if").text(), KNOWN);
    assert_eq!(server.get("/if?x=1").text(), OTHER);
    assert_eq!(server.get("/list").text(), "a-b");
}

#[test]
fn what_is_not_good_is_nothing() {
    let server = start();
    let open = |session: &str| server.get(&format!("/open?s={session}")).text();
    assert_eq!(open(KNOWN), "[abc]");
    let long = server.get("/long?a=x").text();
    assert_eq!(open(&long), "[x-/long]");
    assert_ne!(long, server.get("/long?a=y").text());
    for bad in [
        "",
        "44",
        OTHER,
        &KNOWN.replace("ktrp", "3trp"),
        &KNOWN[..48],
        &KNOWN.replace("5huhs0", "ahuhs0"),
    ] {
        assert_eq!(open(bad), "[]", "{bad}");
    }
    let short = server.get("/short").text();
    weir_tests::expect_soon("it expires", || open(&short) == "[]");
}

#[test]
fn there_must_be_a_key() {
    let server = start();
    assert_eq!(server.on(1).get("/").status, 500);
    server.expect_error("encrypted_session: a key is required to be defined");
    for (directive, message) in [
        ("encrypted_session_key short;", "the key must be of 32 bytes long"),
        ("encrypted_session_iv 12345678901234567;", "longer than 16 bytes"),
        ("encrypted_session_expires soon;", "invalid value"),
    ] {
        let output = run_cli(&["-t"], &format!("events {{}} http {{ {directive} }}"));
        assert!(output.code != 0 && output.stderr.contains(message), "{}", output.stderr);
    }
}
