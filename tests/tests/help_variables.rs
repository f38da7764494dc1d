//! `weir help '$'` lists the variables, `weir help '$name'` where one is.

use std::process::Command;
use weir_tests::skip;

/// What it says, and whether that is no error.
fn help(name: &str) -> (String, bool) {
    let said = Command::new(weir_tests::binary()).args(["help", name]).output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    (String::from_utf8(text).unwrap(), said.status.success())
}

#[test]
fn variables_are_listed() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("it has no such command");
    }
    let all = help("$").0;
    for line in ["  $arg_* http", "  $remote_addr http stream", "  $memcached_key http"] {
        assert!(all.lines().any(|l| l == line), "{line} in {all}");
    }
    assert!(help("$arg_x").0.contains("Context:  http"));
    let (text, is_known) = help("$nothing_at_all");
    assert!(!is_known && text.contains("no module has a variable"));
}

#[test]
fn include_is_told_of() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("it has no such command");
    }
    let (text, is_known) = help("include");
    assert!(
        is_known && text.contains("another file") && text.contains("Context:  everywhere"),
        "{text}"
    );
}
