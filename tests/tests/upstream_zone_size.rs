//! The size of an upstream's zone: one `zone` of that name has it, and all agree.

use weir_tests::run_cli;

fn said(block: &str, inner: &str) -> (i32, String) {
    let output = run_cli(&["-t"], &format!("events {{}} {block} {{\n{inner} }}"));
    let lines = output.stderr.lines();
    let error = lines.filter_map(|l| l.strip_prefix("nginx: [emerg] ")).next();
    (output.code, error.unwrap_or_default().to_string())
}

fn upstreams(zones: &[&str]) -> String {
    let one = |(n, zone): (usize, &&str)| {
        format!("upstream u{n} {{ server 127.0.0.1:1; zone {zone}; }}\n")
    };
    zones.iter().enumerate().map(one).collect()
}

#[test]
fn a_zone_without_a_size() {
    for block in ["http", "stream"] {
        for zones in [&["a"][..], &["a", "a"], &["b 64k", "a"]] {
            let error = "zero size shared memory zone \"a\"".to_string();
            assert_eq!(said(block, &upstreams(zones)), (1, error), "{block} {zones:?}");
        }
        for zones in [&["a 64k"][..], &["a", "a 64k"], &["a 64k", "a"], &["a 64k", "a 64k"]] {
            assert_eq!(said(block, &upstreams(zones)), (0, String::new()), "{block} {zones:?}");
        }
    }
}

#[test]
fn zones_that_do_not_agree() {
    for block in ["http", "stream"] {
        let size =
            "the size 131072 of shared memory zone \"a\" conflicts with already declared size \
                    65536 in DIR/nginx.conf:3";
        assert_eq!(said(block, &upstreams(&["a 64k", "a 128k"])), (1, size.to_string()), "{block}");
        let limits = "limit_conn_zone $binary_remote_addr zone=a:1m;\n";
        let other = "the shared memory zone \"a\" is already declared for a different use in \
                     DIR/nginx.conf:3";
        let conf = format!("{limits}{}", upstreams(&["a 1m"]));
        assert_eq!(said(block, &conf), (1, other.to_string()), "{block}");
    }
}

/// A zone is of one protocol.
#[test]
fn http_and_stream() {
    let u = upstreams(&["a 64k"]);
    let output = run_cli(&["-t"], &format!("events {{}} http {{ {u} }}\nstream {{ {u} }}"));
    let error = "the shared memory zone \"a\" is already declared for a different use in \
                 DIR/nginx.conf:3";
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains(error), "{}", output.stderr);
}
