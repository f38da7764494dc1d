//! `weir help '$'` lists the variables, `weir help '$name'` where one is.

use weir_tests::{run_cli, skip};

#[test]
fn variables_are_listed() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("it has no such command");
    }
    let all = run_cli(&["help", "$"], "").stdout;
    for line in ["  $arg_* http", "  $remote_addr http stream", "  $memcached_key http"] {
        assert!(all.lines().any(|l| l == line), "{line} in {all}");
    }
    assert!(run_cli(&["help", "$arg_x"], "").stdout.contains("Context:  http"));
    let unknown = run_cli(&["help", "$nothing_at_all"], "");
    assert!(unknown.code != 0 && unknown.stderr.contains("no module has a variable"));
}
