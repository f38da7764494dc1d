//! The wording of errors, checked against nginx 1.31.5.

use super::*;

#[track_caller]
fn assert_error(text: &str, expected: &str) {
    let (sources, parsed) = parse_bytes(text.as_bytes());
    let error = parsed.error.unwrap_or_else(|| panic!("no error in {text}"));
    let rendered = error.render(&sources, "nginx");
    let first = rendered.lines().next().unwrap_or_default();
    assert_eq!(first, format!("nginx: [emerg] {expected}"), "{text}");
}

#[test]
fn as_nginx_says() {
    let end = "unexpected end of file, expecting \";\" or \"}\" in /etc/nginx/nginx.conf";
    let at = "in /etc/nginx/nginx.conf";
    for (text, expected) in [
        (";", format!("unexpected \";\" {at}:1")),
        ("\n{", format!("unexpected \"{{\" {at}:2")),
        ("}", format!("unexpected \"}}\" {at}:1")),
        ("a { } }", format!("unexpected \"}}\" {at}:1")),
        ("a }", format!("unexpected \"}}\" {at}:1")),
        ("a { b }", format!("unexpected \"}}\" {at}:1")),
        ("a {\n b {} ; }", format!("unexpected \";\" {at}:2")),
        ("a \"b\"c;", format!("unexpected \"c\" {at}:1")),
        ("a \"b\"\"c\";", format!("unexpected \"\"\" {at}:1")),
        ("a \"b\"};", format!("unexpected \"}}\" {at}:1")),
        ("a", format!("{end}:1")),
        ("a\n\nb\n", format!("{end}:4")),
        ("\n\na #c\n", format!("{end}:4")),
        ("a \"b", format!("{end}:1")),
        ("a \"b\"", format!("{end}:1")),
        ("a 'b\n\n\\", format!("{end}:3")),
        ("a b\\", format!("{end}:1")),
        ("a { b; \n", format!("unexpected end of file, expecting \"}}\" {at}:2")),
        ("include;", format!("invalid number of arguments in \"include\" directive {at}:1")),
        ("include a\n b;", format!("invalid number of arguments in \"include\" directive {at}:2")),
        ("include a {", format!("directive \"include\" is not terminated by \";\" {at}:1")),
        (
            "include\nnope;",
            format!("open() \"/etc/nginx/nope\" failed (2: No such file or directory) {at}:2"),
        ),
        (
            "a_by_lua_block {\n",
            format!(
                "unexpected end of file, expecting terminating characters for lua code block {at}:2"
            ),
        ),
    ] {
        assert_error(text, &expected);
    }
}

#[test]
fn too_long() {
    let started = |head: &str, line: u32| {
        format!("too long parameter \"{head}...\" started in /etc/nginx/nginx.conf:{line}")
    };
    let quoted = |quote: char, line: u32| {
        format!(
            "too long parameter, probably missing terminating \"{quote}\" character \
             in /etc/nginx/nginx.conf:{line}"
        )
    };
    let long = "a".repeat(5000);
    assert_error(&format!("b;\n{long};"), &started("aaaaaaaaaa", 2));
    assert_error(&format!("# {long}\n"), &started("# aaaaaaaa", 1));
    assert_error(&format!("b;\nc \"{long}\";"), &quoted('"', 2));
    assert_error(&format!("b 'x\n{long}"), &quoted('\'', 1));

    // The byte that ends the word must be among the 4096.
    let limit = "a".repeat(4095);
    assert!(parse_bytes(format!("{limit}; b;").as_bytes()).1.error.is_none());
    assert_error(&format!("{limit}a; b;"), &started("aaaaaaaaaa", 1));
    assert!(parse_bytes(format!("b \"{}\"; b;", &limit[1..]).as_bytes()).1.error.is_none());
    assert_error(&format!("b \"{limit}\"; b;"), &started("aaaaaaaaaa", 1));
    assert_error(&format!("b \"{limit}a\"; b;"), &quoted('"', 1));
    assert!(parse_bytes(format!("b; #{limit}").as_bytes()).1.error.is_none());
}

#[test]
fn in_included_files() {
    let loader = MemLoader::with(&[
        ("/etc/nginx/nginx.conf", "a {\n include x; }"),
        ("/etc/nginx/x", "b;\n }"),
    ]);
    let mut sources = Sources::new();
    let error = parse(&mut sources, &loader, MAIN, &options()).unwrap_err();
    assert_eq!(error.first_line(&sources), "unexpected \"}\" in /etc/nginx/x:2");
}

#[test]
fn endless_includes() {
    let loader = MemLoader::with(&[
        ("/etc/nginx/nginx.conf", "include x;"),
        ("/etc/nginx/x", "\ninclude nginx.conf;"),
    ]);
    let mut sources = Sources::new();
    let error = parse(&mut sources, &loader, MAIN, &options()).unwrap_err();
    assert_eq!(
        error.first_line(&sources),
        "file \"/etc/nginx/nginx.conf\" includes itself in /etc/nginx/x:2"
    );

    let path = |n: usize| format!("/etc/nginx/{n}");
    let mut loader = MemLoader::with(&[("/etc/nginx/nginx.conf", "include 0;")]);
    for n in 0..MAX_INCLUDE_DEPTH {
        // Twice each: without a bound on files this would be 2^64 of them.
        let text = format!("include {0}; include {0};", n + 1);
        loader.0.insert(path(n).into_bytes(), text.into_bytes());
    }
    let error = parse(&mut Sources::new(), &loader, MAIN, &options()).unwrap_err();
    assert!(error.message.ends_with("more than 64 files deep"), "{}", error.message);
    loader.0.insert(path(40).into_bytes(), Vec::new());
    let error = parse(&mut Sources::new(), &loader, MAIN, &options()).unwrap_err();
    assert!(error.message.ends_with("more than 65536 files"), "{}", error.message);
}

#[test]
fn deep_blocks() {
    let fits = "a{".repeat(MAX_BLOCK_DEPTH) + &"}".repeat(MAX_BLOCK_DEPTH);
    assert!(parse_bytes(fits.as_bytes()).1.error.is_none());
    assert_error(
        &"a{".repeat(1_000_000),
        "blocks are nested more than 256 deep in /etc/nginx/nginx.conf:1",
    );
}

#[test]
fn main_file_missing() {
    let mut sources = Sources::new();
    let error = parse(&mut sources, &MemLoader::default(), MAIN, &options()).unwrap_err();
    assert_eq!(
        error.render(&sources, "nginx"),
        "nginx: [emerg] open() \"/etc/nginx/nginx.conf\" failed (2: No such file or directory)\n"
    );
}

#[test]
fn on_the_command_line() {
    for (text, expected) in [
        ("foo", "unexpected end of parameter, expecting \";\" in command line"),
        ("a {}", "block directives are not supported in -g option in command line"),
        ("}", "unexpected \"}\" in command line"),
        (";", "unexpected \";\" in command line"),
        (
            "include x;",
            "open() \"/etc/nginx/x\" failed (2: No such file or directory) in command line",
        ),
    ] {
        let mut sources = Sources::new();
        let loader = MemLoader::default();
        let parsed = parse_command_line(&mut sources, &loader, text.as_bytes(), &options());
        let error = parsed.error.unwrap();
        assert_eq!(error.first_line(&sources), expected, "{text}");
        assert!(error.render(&sources, "nginx").contains("--> command line:1:"), "{text}");
    }
}
