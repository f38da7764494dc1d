//! `ship` blocks: what may stand in them, and what is refused with a word on what to write.

use weir_tests::run_cli;

fn refused(block: &str, expected: &str) {
    let conf =
        format!("events {{}}\n{block}\nhttp {{ server {{ listen 127.0.0.1:%%PORT_0%%; }} }}");
    let output = run_cli(&["-t"], &conf);
    assert_eq!(output.code, 1, "{block}: {}", output.stderr);
    assert!(output.stderr.contains(expected), "{block}: {}", output.stderr);
}

fn taken(block: &str) {
    let conf =
        format!("events {{}}\n{block}\nhttp {{ server {{ listen 127.0.0.1:%%PORT_0%%; }} }}");
    let output = run_cli(&["-t"], &conf);
    assert_eq!(output.code, 0, "{block}: {}", output.stderr);
}

const FILE: &str = "ship a { to file x.json; queue q; }";

#[test]
fn blocks_are_checked() {
    taken(FILE);
    taken("ship a.b-c_1 { to elasticsearch http://h:1/p http://h2; queue q size=2m; batch events=1 size=1k linger=0; retry first=1ms most=1m; timeout 1m; compress none; index i; }");
    for (block, expected) in [
        ("ship a { queue q; }", "no \"to\" in this block"),
        ("ship a { to file x; }", "write \"queue /var/lib/weir/ship/a size=1g;\""),
        ("ship a { to elasticsaerch http://h; queue q; }", "did you mean \"elasticsearch\"?"),
        ("ship a { to elasticsearch h:1; queue q; }", "\"h:1\" is no address of a receiver"),
        (
            "ship a { to elasticsearch http://h; queue q; topic t; }",
            "\"topic\" is not for receivers of kind \"elasticsearch\"",
        ),
        ("ship a { to file x; queue q; index i; }", "it is for elasticsearch, opensearch"),
        ("ship a { to file x y; queue q; }", "has one file"),
        ("ship a { to file x; queue q size=10k; }", "a queue has 1m at least"),
        ("ship a { to file x; queue q size=x; }", "invalid value \"size=x\""),
        ("ship a { to file x; queue q; batch events=0; }", "invalid value \"events=0\""),
        (
            "ship a { to file x; queue q; retry first=2s most=1s; }",
            "\"first\" is more than \"most\"",
        ),
        ("ship a { to file x; queue q; namespace A; }", "a namespace has small letters"),
        ("ship a { to opensearch http://h; queue q; index A; }", "is no name of an index"),
        ("ship a { to opensearch http://h; queue q; user u; }", "password_file"),
        (
            "ship a { to opensearch http://h; queue q; header Host x; }",
            "is made by the server itself",
        ),
        ("ship a { to opensearch http://h; queue q; ssl_verify off; }", "where no address has TLS"),
        ("ship a { to opensearch http://h; queue q; api_key none; }", "open() \"DIR/none\" failed"),
        ("ship 'a b' { to file x; queue q; }", "the name of a receiver has letters"),
        (&format!("{FILE} {FILE}"), "duplicate receiver \"a\""),
        (
            &format!("{FILE} ship b {{ to file y; queue q; }}"),
            "another receiver's queue is in this folder",
        ),
        (&format!("{FILE} ship_errors b;"), "there is no receiver \"b\""),
        (&format!("{FILE} ship_errors a loud;"), "invalid value \"loud\""),
        (&format!("{FILE} ship_metrics a every=1ms;"), "invalid value \"every=1ms\""),
        (&format!("{FILE} ship_metrics none;"), "there is no receiver \"none\""),
    ] {
        refused(block, expected);
    }
}

#[test]
fn names_of_locations_are_checked() {
    for (words, expected) in [
        ("b", "there is no receiver \"b\""),
        ("a x=1", "invalid value \"x=1\""),
        ("off a", "invalid value \"a\""),
    ] {
        let conf = format!(
            "events {{}} {FILE} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; ship_access {words}; }} }}"
        );
        let output = run_cli(&["-t"], &conf);
        assert!(output.stderr.contains(expected), "{words}: {}", output.stderr);
    }
}
