//! The configuration language: spans stay inside their file, errors can be shown, and what
//! parses prints to text that parses to the same words.

use super::Target;
use crate::random::Random;
use std::io;
use std::sync::Arc;
use weir_conf::{format, parse_partial, Body, Directive, Loader, Options, Parsed, Sources, Span};

pub const TARGET: Target = Target {
    name: "configuration",
    seeds: &[
        b"user a;\nhttp { server { listen 80; location ~ \\.php$ { return 200 \"a b\"; } } }",
        b"map $a ${b} { default 'x\\'y'; \"~^(?<c>.*)$\" $c; } # end\nif ($a = \"b\") { c; }",
        b"content_by_lua_block { local s = [==[ } ]==] -- } \n x('}') }\ninclude a;",
        b"log_format a '$b \"$c\"' ${d}{e \\\\ \\n;};\tq\r\n{ } \xc3\xa9",
        b"include conf.d/*.conf;\nupstream u { server unix:/x weight=2; keepalive 8; }",
        b"\xef\xbb\xbfevents{}\r\nhttp{\r\n\tset $x \"${y}z\\\"\";\r\n}",
    ],
    pieces: &[
        b"{",
        b"}",
        b";",
        b"\"",
        b"'",
        b"\\",
        b"$",
        b"${",
        b"#",
        b"\n",
        b" ",
        b")",
        b"(",
        b"--",
        b"[[",
        b"]]",
        b"[=[",
        b"a",
        b"include a;",
        b"_by_lua_block ",
        b"\t",
        b"\r",
        b"\0",
        b"\xe9",
    ],
    check,
};

const MAIN: &[u8] = b"/etc/main.conf";

/// The main file, and one that any other name gives.
struct InMemory<'a>(&'a [u8]);

impl Loader for InMemory<'_> {
    fn read(&self, path: &[u8]) -> io::Result<Arc<[u8]>> {
        let text = if path == MAIN { self.0 } else { b"included \"a b\" { c; }" };
        Ok(text.into())
    }

    fn glob(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(vec![b"/etc/conf.d/x.conf".to_vec()])
    }
}

fn parse(text: &[u8]) -> (Sources, Parsed) {
    let mut sources = Sources::new();
    let parsed = parse_partial(&mut sources, &InMemory(text), MAIN, &Options::for_main(MAIN));
    (sources, parsed)
}

fn check(text: &[u8], random: &mut Random) {
    let (sources, parsed) = parse(text);
    check_tree(&sources, &parsed.directives);
    if let Some(error) = &parsed.error {
        error.span.into_iter().for_each(|span| check_span(&sources, span));
        assert!(error.render(&sources, "nginx").starts_with("nginx: [emerg] "));
        return;
    }
    let pretty = format(&parsed.directives);
    let (_, again) = parse(&pretty);
    assert!(again.error.is_none(), "{}", pretty.escape_ascii());
    assert_same(&again.directives, &parsed.directives);
    assert_eq!(format(&again.directives), pretty);
    let bundle = sources.to_bundle();
    let unpacked = Sources::from_bundle(&bundle).map(|s| s.to_bundle());
    assert_eq!(unpacked.as_ref(), Ok(&bundle));
    // A damaged one is an error or another tree, never a panic.
    let mut damaged = bundle;
    let at = random.below(damaged.len());
    if let Some(byte) = damaged.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
    let _ = Sources::from_bundle(&damaged);
}

fn check_span(sources: &Sources, span: Span) {
    let len = sources.file(span.file).map_or(0, |file| file.text.len());
    assert!(span.start <= span.end && span.end as usize <= len, "{span:?}");
}

fn check_tree(sources: &Sources, directives: &[Directive]) {
    for directive in directives {
        check_span(sources, directive.span);
        assert!(directive.head_end < directive.span.end);
        for word in directive.args.iter().chain([&directive.name]) {
            check_span(sources, word.span);
        }
        if let Body::Raw(text) = &directive.body {
            check_span(sources, text.span);
        }
        check_tree(sources, directive.children());
    }
}

fn assert_same(a: &[Directive], b: &[Directive]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.name.text, b.name.text);
        let words = |d: &Directive| d.args.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
        assert_eq!(words(a), words(b));
        match (&a.body, &b.body) {
            (Body::None, Body::None) => {}
            (Body::Block(a), Body::Block(b)) => assert_same(a, b),
            (Body::Raw(a), Body::Raw(b)) => assert_eq!(a.text, b.text),
            (a, b) => panic!("{a:?} is not {b:?}"),
        }
    }
}
