//! The README's HTTPS server: its configuration and its commands, as they are printed.

use std::os::unix::fs::symlink;
use std::process::Command;
use weir_tests::{free_port, run_cli, signal, skip, tools, wait_for, Setup, Signal, PATIENCE};

const README: &str = include_str!("../../README.md");

/// A section from its heading to the next of the same level.
fn section(heading: &str) -> &'static str {
    let from = README.find(&format!("\n## {heading}")).expect("a heading") + 4;
    let rest = &README[from..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// The fenced configuration of a section.
fn configuration(section: &str) -> &str {
    let (_, rest) = section.split_once("```nginx\n").expect("a configuration");
    rest.split_once("```").expect("a fence").0
}

/// The commands of a section: what is indented outside the fences.
fn commands(section: &str) -> String {
    let outside: Vec<&str> = section.split("```").step_by(2).collect();
    let lines = outside.iter().flat_map(|text| text.lines());
    lines.filter_map(|l| l.strip_prefix("    ")).map(|l| format!("{l}\n")).collect()
}

/// Ends the server should a command have failed before the one that does.
struct Ends<'a>(&'a Setup);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.0.dir().join("https.pid")).unwrap_or_default();
        if let Ok(pid) = pid.trim().parse() {
            signal(pid, Signal::Term);
        }
    }
}

#[test]
fn the_https_server_works_as_printed() {
    for tool in ["openssl", "curl", "sh"] {
        if tools::need(tool).is_none() {
            return;
        }
    }
    if !run_cli(&["-v"], "").stderr.contains("weir") {
        return skip("the commands are about weir");
    }
    let text = section("HTTPS, and a redirect to it");
    assert!(configuration(text).lines().count() <= 10, "ten lines are enough");
    // The ports are the only thing that is not as printed.
    let (plain, tls) = (free_port().to_string(), free_port().to_string());
    let here = |text: &str| text.replace("8080", &plain).replace("8443", &tls);
    let setup = Setup::new("");
    let first = commands(section("A first configuration"));
    let (site, _) = first.split_once("seq").expect("the site is made first");
    let script = format!("set -e\nunset http_proxy all_proxy\n{site}{}", here(&commands(text)));
    let setup = setup.file("https.conf", here(configuration(text))).file("script", &script);
    std::fs::create_dir(setup.dir().join("bin")).unwrap();
    symlink(weir_tests::binary(), setup.dir().join("bin/weir")).unwrap();
    let _ends = Ends(&setup);
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}/bin:{path}", setup.dir().display());
    let mut shell = Command::new("sh");
    shell.arg("-x").arg("script").current_dir(setup.dir()).env("PATH", path);
    let said = tools::finish(&mut shell, b"");
    assert_eq!((said.code, said.stdout.as_str()), (0, "<h1>Hello from Weir</h1>\n"), "{said:?}");
    let log = std::fs::read_to_string(setup.dir().join("https.log")).unwrap();
    assert!(log.contains("\"GET / HTTP/1.1\" 301 ") && log.contains("\"GET / HTTP/"), "{log}");
    let gone = || !setup.dir().join("https.pid").exists();
    assert!(wait_for(gone, PATIENCE), "it is told to quit, and does");
}
