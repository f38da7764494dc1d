//! The crate as its callers use it, over files in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::*;

mod errors;

#[derive(Default)]
struct MemLoader(BTreeMap<Vec<u8>, Vec<u8>>);

impl MemLoader {
    fn with(files: &[(&str, &str)]) -> Self {
        let bytes = |text: &str| text.as_bytes().to_vec();
        MemLoader(files.iter().map(|(path, text)| (bytes(path), bytes(text))).collect())
    }
}

impl Loader for MemLoader {
    fn read(&self, path: &[u8]) -> io::Result<Arc<[u8]>> {
        let missing = || io::Error::from_raw_os_error(2);
        self.0.get(path).map(|text| text.as_slice().into()).ok_or_else(missing)
    }

    /// Knows `DIR/*` alone.
    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let prefix = pattern.strip_suffix(b"*").unwrap_or(pattern);
        Ok(self.0.keys().filter(|path| path.starts_with(prefix)).cloned().collect())
    }
}

const MAIN: &[u8] = b"/etc/nginx/nginx.conf";

fn options() -> Options {
    Options::for_main(MAIN)
}

fn parse_bytes(text: &[u8]) -> (Sources, Parsed) {
    let mut loader = MemLoader::default();
    loader.0.insert(MAIN.to_vec(), text.to_vec());
    let mut sources = Sources::new();
    let parsed = parse_partial(&mut sources, &loader, MAIN, &options());
    (sources, parsed)
}

/// Every directive as one line, words in brackets.
fn shape(directives: &[Directive]) -> String {
    let mut out = String::new();
    for directive in directives {
        out.push_str(&format!("[{}]", directive.name));
        for arg in &directive.args {
            out.push_str(&format!("[{arg}]"));
        }
        match &directive.body {
            Body::None => out.push(';'),
            Body::Block(children) => out.push_str(&format!("{{{}}}", shape(children))),
            Body::Raw(text) => out.push_str(&format!("<{text}>")),
        }
    }
    out
}

#[track_caller]
fn assert_shape(text: &str, expected: &str) {
    let (sources, parsed) = parse_bytes(text.as_bytes());
    if let Some(error) = parsed.error {
        panic!("{}", error.render(&sources, "nginx"));
    }
    assert_eq!(shape(&parsed.directives), expected, "{text}");
}

#[test]
fn words() {
    assert_shape("", "");
    assert_shape("a b  c\t\r\nd;", "[a][b][c][d];");
    assert_shape("a;b;", "[a];[b];");
    assert_shape("a{b c;}d;", "[a]{[b][c];}[d];");
    assert_shape("a \"b c\" 'd;e' \"{\";", "[a][b c][d;e][{];");
    assert_shape("a \"\" '';", "[a][][];");
    assert_shape("\"a b\" c;", "[a b][c];");
    assert_shape("a\"b c;", "[a\"b][c];");
    assert_shape("a b}c;", "[a][b}c];");
    assert_shape("a b#c;", "[a][b#c];");
    assert_shape("if ($a = \"b\") { c; }", "[if][($a][=][b][)]{[c];}");
    assert_shape("a \"b\")c;", "[a][b][)c];");
    assert_shape("a \"b\"{c;}", "[a][b]{[c];}");
}

#[test]
fn comments() {
    assert_shape("# a { ;\nb; # c", "[b];");
    assert_shape("a # b;\n c;", "[a][c];");
    assert_shape("a \"# b\";", "[a][# b];");
}

#[test]
fn variables() {
    assert_shape("a ${b}c$d;", "[a][${b}c$d];");
    assert_shape("a $b{c;}", "[a][$b]{[c];}");
    assert_shape("a ${{b}};", "[a][${{b}}];");
    assert_shape("a x${b};", "[a][x${b}];");
}

#[test]
fn escapes() {
    assert_shape(r#"a \"b\' c\\d;"#, r#"[a]["b'][c\d];"#);
    assert_shape(r#"a "x\"y" 'x\'y';"#, r#"[a][x"y][x'y];"#);
    assert_shape(r"a x\ty x\ny x\ry;", "[a][x\ty][x\ny][x\ry];");
    assert_shape(r"location ~ \.php$ {}", r"[location][~][\.php$]{}");
    assert_shape(r"a b\ c\;d\{e;", r"[a][b\ c\;d\{e];");
    assert_shape(r"a \$ {}", r"[a][\$]{}");
}

#[test]
fn latin1_and_crlf() {
    let (_, parsed) = parse_bytes(b"a \xe9;\r\nb;\r\n");
    assert_eq!(parsed.directives[0].args[0].as_bytes(), b"\xe9");
    assert_eq!(parsed.directives.len(), 2);
}

#[test]
fn raw_blocks() {
    assert_shape(
        "content_by_lua_block { if a then b = { '}' } end } c;",
        "[content_by_lua_block]< if a then b = { '}' } end >[c];",
    );
    assert_shape("set_by_lua_block $a { return '{' }", "[set_by_lua_block][$a]< return '{' >");
    assert_shape("s { init_by_lua_block{} d; }", "[s]{[init_by_lua_block]<>[d];}");
}

#[test]
fn spans_and_lines() {
    let text = "a {\n  b \"c d\"\n   e;\n}\n";
    let (sources, parsed) = parse_bytes(text.as_bytes());
    let outer = &parsed.directives[0];
    let inner = &outer.children()[0];
    assert_eq!(sources.text(inner.args[0].span), b"\"c d\"");
    assert!(inner.args[0].quoted && !inner.args[1].quoted);
    assert_eq!(sources.text(inner.span), b"b \"c d\"\n   e;");
    assert_eq!(sources.text(outer.span), text.trim_end().as_bytes());
    assert_eq!(sources.line(inner.position()), 3);
    assert_eq!(sources.line(outer.position()), 1);
    assert_eq!(sources.line(outer.end_position()), 4);
}

fn tree() -> MemLoader {
    MemLoader::with(&[
        ("/etc/nginx/nginx.conf", "user a; http { include mime; include conf.d/*; b; }"),
        ("/etc/nginx/mime", "types { x y; }"),
        ("/etc/nginx/conf.d/2", "two; include /abs;"),
        ("/etc/nginx/conf.d/1", "one { include mime; }"),
        ("/abs", "abs;"),
    ])
}

const TREE: &str = "[user][a];[http]{[types]{[x][y];}[one]{[types]{[x][y];}}[two];[abs];[b];}";

#[test]
fn includes() {
    let mut sources = Sources::new();
    let directives = parse(&mut sources, &tree(), MAIN, &options()).unwrap();
    assert_eq!(shape(&directives), TREE);
    let read: Vec<_> =
        sources.files().iter().map(|f| String::from_utf8_lossy(&f.path).into_owned()).collect();
    assert_eq!(
        read,
        [
            "/etc/nginx/nginx.conf",
            "/etc/nginx/mime",
            "/etc/nginx/conf.d/1",
            "/etc/nginx/conf.d/2",
            "/abs"
        ]
    );
    assert_eq!(dump(&sources).windows(6).filter(|w| w == b"types ").count(), 1);
}

#[test]
fn from_a_bundle_the_same() {
    let mut sources = Sources::new();
    parse(&mut sources, &tree(), MAIN, &options()).unwrap();
    let bundle = sources.to_bundle();
    let loader = BundleLoader::new(&Sources::from_bundle(&bundle).unwrap());
    let mut again = Sources::new();
    let directives = parse(&mut again, &loader, MAIN, &options()).unwrap();
    assert_eq!(shape(&directives), TREE);
    assert_eq!(again.to_bundle(), bundle);
    let error = parse(&mut again, &loader, b"/other", &options()).unwrap_err();
    assert_eq!(error.message, "open() \"/other\" failed (not in the bundle)");
}

#[test]
fn what_came_before_an_error() {
    let (_, parsed) = parse_bytes(b"a; b { c; d { e; } f");
    assert_eq!(shape(&parsed.directives), "[a];[b]{[c];[d]{[e];}}");
    assert!(parsed.error.is_some());
}

#[test]
fn command_line() {
    let mut sources = Sources::new();
    let loader = MemLoader::with(&[("/etc/nginx/x", "y { z; }")]);
    let parsed = parse_command_line(&mut sources, &loader, b"a b; include x; c;", &options());
    assert_eq!(shape(&parsed.into_result().unwrap()), "[a][b];[y]{[z];}[c];");
    let long = "a".repeat(10_000) + ";";
    let parsed = parse_command_line(&mut sources, &loader, long.as_bytes(), &options());
    assert!(parsed.error.is_none());
}

#[test]
fn formatting() {
    let text = "a  b;c 'd e' \"f'g\" ${h} \\. x\\\\ny \"\" '\"';d{e{f;}\ng;}\nx_by_lua_block { y }";
    let (_, parsed) = parse_bytes(text.as_bytes());
    assert!(parsed.error.is_none());
    let pretty = format(&parsed.directives);
    assert_eq!(
        String::from_utf8_lossy(&pretty),
        "a b;\nc \"d e\" \"f'g\" ${h} \\. x\\\\ny \"\" '\"';\n\nd {\n    e {\n        f;\n    }\n\n    \
         g;\n}\n\nx_by_lua_block { y }\n"
    );
    let (_, again) = parse_bytes(&pretty);
    assert_eq!(shape(&again.directives), shape(&parsed.directives));
    assert_eq!(format(&again.directives), pretty);
}

#[test]
fn names_of_files() {
    assert_eq!(full_name(b"/etc/", b"a"), b"/etc/a");
    assert_eq!(full_name(b"/etc/", b"/a"), b"/a");
    assert_eq!(Options::for_main(b"/etc/nginx/nginx.conf").conf_prefix, b"/etc/nginx/");
    assert_eq!(Options::for_main(b"nginx.conf").conf_prefix, b"");
}
