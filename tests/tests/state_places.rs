//! Where `state` files are, and what stands beside them: what cannot work is told when the configuration is read.

use std::fs::Permissions;
use std::os::unix::fs::{chown, symlink, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use weir_tests::{run_cli, skip};

fn told(more: &str, conf: &str) -> String {
    let api = "location /api { api write=on; allow 127.0.0.1; deny all; }";
    let conf =
        format!("{more} events {{}} http {{ {conf} server {{ listen 127.0.0.1:1; {api} }} }}");
    run_cli(&["-t"], &conf).stderr
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("weir-places-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions(&self.0, Permissions::from_mode(0o755));
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NOBODY: u32 = 65534;

#[test]
fn a_directory_that_is_not_there_is_told_with_the_mend() {
    let dir = Dir::new("missing");
    let missing = dir.0.join("more");
    let shown = missing.display();
    for conf in [
        format!("keyval_zone zone=a:64k state={shown}/a.json;"),
        format!("upstream u {{ zone u 64k; state {shown}/u.conf; }}"),
    ] {
        let text = told("", &conf);
        assert!(text.contains("[warn]") && text.contains("test is successful"), "{text}");
        assert!(
            text.contains(&format!("its directory \"{shown}\" (2: No such file or directory)")),
            "{text}"
        );
        assert!(text.contains(&format!("mkdir -p \"{shown}\"")), "{text}");
    }
    // What nothing writes is read alone.
    let conf = format!("events {{}} http {{ keyval_zone zone=a:64k state={shown}/a.json; }}");
    assert!(!run_cli(&["-t"], &conf).stderr.contains("[warn]"));
    // Each directory once.
    let both =
        format!("keyval_zone zone=a:64k state={shown}/a; keyval_zone zone=b:64k state={shown}/b;");
    assert_eq!(told("", &both).matches("[warn]").count(), 1);
    std::fs::create_dir_all(&missing).unwrap();
    std::fs::set_permissions(&missing, Permissions::from_mode(0o777)).unwrap();
    assert!(!told("", &both).contains("[warn]"));
}

/// It is read as root when the configuration is; who changes it is not root.
#[test]
fn a_file_that_the_workers_may_not_read_is_told() {
    let dir = Dir::new("roots");
    if dir.0.metadata().unwrap().uid() != 0 {
        return skip("not root");
    }
    chown(&dir.0, Some(NOBODY), None).unwrap();
    let file = dir.0.join("a.json");
    std::fs::write(&file, "{}").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let conf = format!("keyval_zone zone=a:64k state={};", file.display());
    let text = told("user nobody nogroup;", &conf);
    assert!(text.contains("what the api changes is refused: state file"), "{text}");
    assert!(text.contains("cannot be read by user \"nobody\" (13: Permission denied)"), "{text}");
    assert!(text.contains(&format!("chown nobody \"{}\"", file.display())), "{text}");
    chown(&file, Some(NOBODY), None).unwrap();
    assert!(!told("user nobody nogroup;", &conf).contains("[warn]"));
}

#[test]
fn a_directory_that_the_workers_may_not_write_is_told() {
    let dir = Dir::new("closed");
    let is_root = dir.0.metadata().unwrap().uid() == 0;
    if !is_root {
        std::fs::set_permissions(&dir.0, Permissions::from_mode(0o555)).unwrap();
    }
    let conf = format!("keyval_zone zone=a:64k state={}/a.json;", dir.0.display());
    let text = told("user nobody nogroup;", &conf);
    assert!(
        text.contains("(13: Permission denied)") && text.contains("test is successful"),
        "{text}"
    );
    if !is_root {
        return skip("not root");
    }
    assert!(text.contains("by user \"nobody\"") && text.contains("chown nobody"), "{text}");
    chown(&dir.0, Some(NOBODY), None).unwrap();
    assert!(!told("user nobody nogroup;", &conf).contains("[warn]"));
    assert!(!told("user root;", &conf).contains("[warn]"));
}

/// Be it by a link to its directory or to itself, and be it not there yet.
#[test]
fn one_file_is_not_for_two() {
    let dir = Dir::new("links");
    let (a, b) = (dir.0.join("a"), dir.0.join("b"));
    std::fs::create_dir(&a).unwrap();
    symlink("a", &b).unwrap();
    symlink("a/x", dir.0.join("c")).unwrap();
    let shown = dir.0.display();
    for (one, other, is_one) in [
        ("a/x", "b/x", true),
        ("c", "b/x", true),
        ("a/x", "a/../b/./x", true),
        ("a/x", "b/y", false),
    ] {
        let conf = format!(
            "keyval_zone zone=a:64k state={shown}/{one}; upstream u {{ zone u 64k; state {shown}/{other}; }}"
        );
        let text = told("", &conf);
        assert_eq!(text.contains("is another zone's already"), is_one, "{one} {other}: {text}");
    }
}

#[test]
fn servers_stand_in_the_block_or_in_its_file() {
    for conf in [
        "upstream u { zone u 64k; server 127.0.0.1:1; state s.conf; }",
        "upstream u { zone u 64k; state s.conf; server 127.0.0.1:1; }",
    ] {
        let text = told("", conf);
        assert!(text.contains("[emerg] \"state\" may not be used with \"server\""), "{text}");
        assert!(text.contains("move the servers into the file"), "{text}");
    }
}

#[test]
fn messages_say_what_to_write() {
    for (conf, expected) in [
        ("upstream u { zone u 64k; }", "\"state FILE;\" for those that the api puts"),
        ("upstream u { zone u 64k; server 127.0.0.1:1 sid=a; }", "write route="),
        ("server { location /config/ { api /config/; } }", "write \"api write=on;\""),
        ("keyval_zone zone=a:64k type=regex;", "write type=string, type=ip or type=prefix"),
        (
            "analytics_zone a privacy=no;",
            "write privacy=plain, privacy=shortened or privacy=hashed",
        ),
    ] {
        let text = told("", conf);
        assert!(text.contains(expected), "{conf}: {text}");
    }
}
