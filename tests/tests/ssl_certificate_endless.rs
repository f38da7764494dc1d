//! A certificate or key that variables name is a small file: of one that has no end only so much is read.
//! (nginx reads on.)

use std::fs::OpenOptions;
use std::io::Write;
use weir_tests::tls::{self, Pair, Tls};
use weir_tests::{Origin, Setup};

const TOO_LARGE: &str = "the file has more than 1048576 bytes";

/// What would be right, behind more than is read.
fn put_behind(setup: &Setup, name: &str, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(setup.dir().join(name));
    let mut file = file.unwrap();
    file.write_all(&[b'\n'; 1024 * 1024]).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn with_pairs(conf: &str, pair: &Pair) -> Setup {
    let setup = Setup::new(conf)
        .file("good.test.crt", &pair.cert)
        .file("good.test.key", &pair.key)
        .file("large-key.test.crt", &pair.cert)
        .file("large.test.key", &pair.key);
    put_behind(&setup, "large.test.crt", &pair.cert);
    put_behind(&setup, "large-key.test.key", &pair.key);
    setup
}

#[test]
fn a_client_leads_to_no_large_file() {
    let pair = tls::self_signed("good.test");
    for block in [
        "http { server { listen 127.0.0.1:%%PORT_0%% ssl; %%OWN%% return 200 ok; } }",
        "stream { server { listen 127.0.0.1:%%PORT_0%% ssl; %%OWN%% return ok; } }",
    ] {
        let own = "ssl_certificate %%DIR%%/$ssl_server_name.crt;
            ssl_certificate_key %%DIR%%/$ssl_server_name.key;";
        let block = block.replace("%%OWN%%", own);
        let conf = format!("events {{}} error_log %%DIR%%/error.log info; {block}");
        let server = with_pairs(&conf, &pair).start();
        for name in ["large.test", "large-key.test"] {
            assert!(Tls::default().connect(server.port(0), name).is_err(), "{name}");
        }
        let told = server.error_log().matches(TOO_LARGE).count();
        assert_eq!(told, 2, "{}", server.error_log());
        assert!(Tls::default().connect(server.port(0), "good.test").is_ok());
    }
}

#[test]
fn nor_does_a_request_that_is_passed_on() {
    let pair = tls::self_signed("good.test");
    let origin = Origin::echo();
    let server = with_pairs(
        "events {} http { error_log %%DIR%%/error.log info;
            server { listen 127.0.0.1:%%PORT_0%%;
                proxy_ssl_certificate %%DIR%%/$arg_name.crt;
                proxy_ssl_certificate_key %%DIR%%/$arg_name.key;
                location / { proxy_pass https://%%ORIGIN%%; } } }",
        &pair,
    )
    .set("ORIGIN", origin.address())
    .start();
    for name in ["large.test", "large-key.test"] {
        assert_eq!(server.get(&format!("/?name={name}")).status, 500);
    }
    assert_eq!(server.error_log().matches(TOO_LARGE).count(), 2);
}
