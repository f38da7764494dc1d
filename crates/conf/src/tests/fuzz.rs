//! Thousands of broken configurations from a fixed seed: no panic, no span out of bounds,
//! and whatever parses prints to text that parses to the same tree.

use super::*;

const SEEDS: [&str; 4] = [
    "user a;\nhttp { server { listen 80; location ~ \\.php$ { return 200 \"a b\"; } } }",
    "map $a ${b} { default 'x\\'y'; \"~^(?<c>.*)$\" $c; } # end\nif ($a = \"b\") { c; }",
    "content_by_lua_block { local s = [==[ } ]==] -- } \n x('}') }\ninclude x;",
    "log_format a '$b \"$c\"' ${d}{e \\\\ \\n;};\tq\r\n{ } \u{e9}",
];
const PIECES: [&str; 24] = [
    "{",
    "}",
    ";",
    "\"",
    "'",
    "\\",
    "$",
    "${",
    "#",
    "\n",
    " ",
    ")",
    "(",
    "--",
    "[[",
    "]]",
    "[=[",
    "a",
    "include /etc/nginx/*;",
    "_by_lua_block ",
    "\t",
    "\r",
    "\u{0}",
    "\u{e9}",
];

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        mixed as usize % limit.max(1)
    }
}

fn mutate(random: &mut Random) -> Vec<u8> {
    let mut text = SEEDS[random.below(SEEDS.len())].as_bytes().to_vec();
    for _ in 0..=random.below(6) {
        let from = random.below(text.len() + 1);
        let to = (from + random.below(8)).min(text.len());
        match random.below(4) {
            0 => drop(text.drain(from..to)),
            1 => text.truncate(from),
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                text.splice(from..from, piece.bytes());
            }
            _ => {
                let copy = text[from..to].to_vec();
                let at = random.below(text.len() + 1);
                text.splice(at..at, copy);
            }
        }
    }
    text
}

fn check_span(sources: &Sources, span: Span) {
    let file = sources.file(span.file).unwrap();
    assert!(span.start <= span.end && span.end as usize <= file.text.len(), "{span:?}");
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

#[test]
fn broken_configurations() {
    let mut random = Random(0x5eed);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..5000 {
        let text = mutate(&mut random);
        let (sources, parsed) = parse_bytes(&text);
        check_tree(&sources, &parsed.directives);
        if let Some(error) = &parsed.error {
            error.span.into_iter().for_each(|span| check_span(&sources, span));
            assert!(error.render(&sources, "nginx").starts_with("nginx: [emerg] "));
            bad += 1;
            continue;
        }
        good += 1;
        let pretty = format(&parsed.directives);
        let (_, again) = parse_bytes(&pretty);
        assert!(again.error.is_none(), "{}", String::from_utf8_lossy(&pretty));
        assert_eq!(shape(&again.directives), shape(&parsed.directives));
    }
    assert!(good > 100 && bad > 100, "{good} {bad}");
}

#[test]
fn broken_bundles() {
    let mut sources = Sources::new();
    parse(&mut sources, &tree(), MAIN, &options()).unwrap();
    let bundle = sources.to_bundle();
    let mut random = Random(7);
    for _ in 0..2000 {
        let mut damaged = bundle.clone();
        let at = random.below(damaged.len());
        damaged[at] ^= 1 << random.below(8);
        let _ = Sources::from_bundle(&damaged);
    }
}
