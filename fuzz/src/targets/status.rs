//! What the API and the figures of another process are read from: paths, bodies, a zone's file, lines of figures.

use super::Target;
use crate::random::Random;
use weir_core::counts;
use weir_status::readers::{body_is_read, file_goes_round, path_leads};

pub const API: Target = Target {
    name: "api",
    seeds: &[
        b"/9/http/upstreams/backend/servers/3",
        b"/1/slabs/",
        b"/9/stream/keyvals/zone",
        b"{\"server\":\"127.0.0.1:80\",\"weight\":3,\"down\":true}",
        b"{\"key\":\"value\",\"other\":{\"value\":\"a\",\"expire\":99999999999999}}",
    ],
    pieces: &[
        b"/",
        b"/9/",
        b"/0/",
        b"http",
        b"servers",
        b"/servers/",
        b"keyvals",
        b"workers/",
        b"%2f",
        b"..",
        b"\xc3\xa9",
        b"{",
        b"}",
        b"[",
        b"\"",
        b":",
        b",",
        b"null",
        b"\\u0000",
        b"\\ud800",
        b"1e999",
        b"-1",
        b"\"expire\":",
        b"\"value\":",
        b"18446744073709551615",
    ],
    check: check_api,
};

fn check_api(input: &[u8], _: &mut Random) {
    path_leads(&String::from_utf8_lossy(input));
    let members = body_is_read(input);
    // What is a file is an object.
    assert!(!file_goes_round(input) || members.is_some() || input.len() > 1 << 20);
}

pub const FIGURES: Target = Target {
    name: "figures",
    seeds: &[
        b"[6120620a server zone\nbegun 0 2\nresponses 404 3\nlatency.max 0 70\n[ tls\nhandshakes 0 1\n",
        b"[00 a\nx 4294967295 18446744073709551615\n",
    ],
    pieces: &[b"[", b"\n", b" ", b"61 a", b".max", b"-1", b"18446744073709551616", b"4294967296", b"\xff", b"["],
    check: check_figures,
};

/// What has come since nothing is all of it, and since itself nothing; pieces have what the whole has.
fn check_figures(input: &[u8], random: &mut Random) {
    let text = String::from_utf8_lossy(input);
    let all = counts::since(&text, "");
    let again = counts::since(&all, "");
    assert_eq!(all.len(), again.len());
    assert!(counts::since(&all, &all)
        .lines()
        .all(|line| line.starts_with('[') || line.contains(".max ")));
    let longest = all.lines().map(|line| line.len() + 1).max().unwrap_or(0);
    let pieces = counts::pieces(&all, 2 * longest + random.below(100));
    let joined = counts::since(&pieces.concat(), "");
    assert_eq!(joined.len(), all.len());
}
