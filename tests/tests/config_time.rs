//! How the time to read a configuration grows with its text. Ratios of processor time count, so that
//! the machine's speed does not.

use std::fmt::Write;
use std::process::Command;
use weir_tests::{binary, run_cli, skip, Setup};

/// How much more text the longer of two configurations has.
const GROWTH: usize = 4;
/// Between 4, that of time in proportion to the text, and 16, that of its square.
const RATIO_MAX: f64 = 8.0;
/// A loaded machine disturbs a measurement now and then; what is quadratic is so each time.
const TRIES: usize = 4;

/// Seconds of processor time that a test of this configuration takes, outside the kernel.
fn seconds(conf: &str) -> f64 {
    let setup = Setup::new("");
    std::fs::write(setup.dir().join("nginx.conf"), conf).unwrap();
    std::fs::create_dir_all(setup.dir().join("logs")).unwrap();
    let output = Command::new("bash")
        .args(["-c", "ulimit -n 20000; TIMEFORMAT=%U; time \"$@\"", "bash"])
        .arg(binary())
        .args(["-t", "-q", "-p"])
        .arg(setup.dir())
        .arg("-c")
        .arg(setup.dir().join("nginx.conf"))
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    told.trim().lines().last().and_then(|l| l.parse().ok()).expect("a time")
}

fn conf(entries: usize, before: &str, entry: impl Fn(usize, &mut String), after: &str) -> String {
    let mut conf = "events {} error_log stderr; http { map_hash_max_size 200000; ".to_string();
    conf += "server_names_hash_max_size 200000; access_log off;\n";
    conf += before;
    (0..entries).for_each(|i| entry(i, &mut conf));
    conf + after + "}\n"
}

#[track_caller]
fn grows_with_the_text(
    entries: usize,
    before: &str,
    entry: impl Fn(usize, &mut String),
    after: &str,
) {
    let mut ratios = Vec::new();
    for _ in 0..TRIES {
        let of = |n| seconds(&conf(n, before, &entry, after));
        // Next to nothing is not measured well.
        let (less, more) = (of(entries).max(0.02), of(GROWTH * entries));
        ratios.push(more / less);
        if more < RATIO_MAX * less {
            return;
        }
    }
    panic!("{GROWTH} times the text takes {ratios:.1?} times the time");
}

/// An address of 10.0.0.0/8.
fn ip(i: usize) -> String {
    format!("10.{}.{}.{}", i >> 16 & 255, i >> 8 & 255, i & 255)
}

const SERVER: &str = "server { listen 127.0.0.1:8001;\n";

/// Adds a formatted line; writing into a `String` cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => { writeln!($out, $($format)*).unwrap() };
}

/// nginx looks through all that there is of these for each.
fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

#[test]
fn networks_of_geo() {
    grows_with_the_text(10_000, "geo $g {\n", |i, c| line!(c, "{}/32 g{i};", ip(i)), "}");
}

#[test]
fn networks_of_ipv6() {
    let entry = |i, c: &mut String| line!(c, "2001:db8::{:x}/128 g{i};", i);
    grows_with_the_text(10_000, "geo $g {\n", entry, "}");
}

#[test]
fn ranges_of_geo() {
    let entry = |i, c: &mut String| line!(c, "{0}-{0} g{i};", ip(i));
    grows_with_the_text(10_000, "geo $g { ranges;\n", entry, "}");
}

#[test]
fn locations() {
    let entry = |i, c: &mut String| line!(c, "location /l{i}/ {{ return 200; }}");
    grows_with_the_text(2500, SERVER, entry, "}");
}

#[test]
fn servers_with_locations() {
    let entry = |i, c: &mut String| {
        line!(c, "server {{ listen 127.0.0.1:8001; server_name n{i}; location / {{ return 200; }}");
        line!(c, "location @a {{ return 200; }} }}");
    };
    grows_with_the_text(1000, "", entry, "");
}

#[test]
fn addresses() {
    if !is_weir() {
        return skip("nginx is slow here");
    }
    let entry = |i, c: &mut String| line!(c, "listen {}:8001;", ip(i));
    grows_with_the_text(5000, "server {", entry, "}");
}

#[test]
fn servers_on_addresses() {
    let entry = |i, c: &mut String| line!(c, "server {{ listen {}:8001; }}", ip(i));
    grows_with_the_text(2500, "server { listen 8001; }", entry, "");
}

#[test]
fn upstreams() {
    if !is_weir() {
        return skip("nginx is slow here");
    }
    let entry = |i, c: &mut String| line!(c, "upstream u{i} {{ server 127.0.0.1:1; }}");
    grows_with_the_text(5000, "", entry, "");
}

#[test]
fn servers_passed_to() {
    if !is_weir() {
        return skip("nginx is slow here");
    }
    let entry = |i, c: &mut String| line!(c, "location /l{i} {{ proxy_pass http://{}; }}", ip(i));
    grows_with_the_text(2500, SERVER, entry, "}");
}

#[test]
fn logs_and_formats() {
    if !is_weir() {
        return skip("nginx is slow here");
    }
    let entry = |i, c: &mut String| {
        line!(c, "log_format f{i} '$uri {i}';");
        line!(
            c,
            "server {{ listen 127.0.0.1:8001; access_log logs/{i}.log f{i}; server_name {i}; }}"
        );
    };
    grows_with_the_text(2000, "", entry, "");
}

#[test]
fn zones() {
    if !is_weir() {
        return skip("nginx is slow here");
    }
    let entry = |i, c: &mut String| line!(c, "limit_conn_zone $uri zone=z{i}:32k;");
    grows_with_the_text(2500, "", entry, "");
}

#[test]
fn types_to_compress() {
    if !is_weir() {
        return skip("nginx is slow here");
    }
    grows_with_the_text(5000, "gzip_types", |i, c| line!(c, " a/b{i}"), ";");
}
