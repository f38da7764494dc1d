//! `load_module`: what is said of files that Weir does not load.

use weir_tests::{run_cli, skip};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

fn first_line(arguments: &[&str], conf: &str) -> (i32, String) {
    let said = run_cli(arguments, conf);
    (said.code, said.stderr.lines().next().unwrap_or_default().to_string())
}

/// Those of OpenResty's that Weir has.
#[test]
fn files_of_modules_that_are_built_in() {
    if !is_weir() {
        return skip("nginx loads modules");
    }
    let conf = "load_module modules/ngx_http_headers_more_filter_module.so;
        load_module modules/ngx_http_echo_module.so;
        events {} http { server { location / { more_set_headers 'X: y'; echo x; } } }";
    let (code, line) = first_line(&["-t"], conf);
    let named = "ngx_http_headers_more_filter_module, ngx_http_echo_module (built in)";
    assert!(code == 0 && line.contains(named), "{line}");
}

/// As a package's site has it, of which most files are there because they are installed.
#[test]
fn files_of_packages() {
    if !is_weir() {
        return skip("nginx loads modules");
    }
    let files = ["ngx_mail_module", "ngx_stream_module", "ngx_http_perl_module", "ndk_http_module"];
    let lines: String = files.map(|f| format!("load_module modules/{f}.so;\n")).concat();
    let conf = format!("{lines}events {{}} http {{}}");
    let line = "nginx: [notice] \"load_module\" loads nothing: ngx_mail_module, ngx_stream_module \
                (built in), ngx_http_perl_module, ndk_http_module (not in Weir, and not used)";
    for arguments in [&["-t"][..], &["-t", "--strict"]] {
        let said = run_cli(arguments, &conf);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert_eq!(said.stderr.lines().next(), Some(line));
        assert_eq!(said.stderr.matches("load_module").count(), 1, "{}", said.stderr);
    }
    assert_eq!(run_cli(&["-t", "-q"], &conf).stderr, "");
    // What needs one of them is refused where it stands.
    let (code, line) = first_line(&["-t"], &conf.replace("http {}", "http {\nperl_require x; }"));
    assert_eq!((code, line.contains("unknown directive \"perl_require\"")), (1, true), "{line}");
}

#[test]
fn a_module_that_nobody_knows() {
    if !is_weir() {
        return skip("nginx refuses a file that is not there");
    }
    let conf = "load_module modules/ngx_foo_module.so;\nevents {} http {}";
    let said = run_cli(&["-t"], conf);
    let warning = "nginx: [warn] module \"ngx_foo_module\" is not in Weir, \"load_module\" loads \
                   nothing in DIR/nginx.conf:1";
    assert_eq!(said.stderr.lines().next(), Some(warning));
    assert!(said.stderr.contains("^^^") && said.stderr.contains("= help: "), "{}", said.stderr);
    assert_eq!(said.code, 0);
    assert_eq!(run_cli(&["-t", "--strict"], conf).code, 1);
}

#[test]
fn behind_a_block() {
    for block in ["events {}", "events {} http {}", "http {}", "stream {}", "mail {}"] {
        let conf = format!("{block}\nload_module modules/ngx_stream_module.so;");
        let (code, line) = first_line(&["-t"], &conf);
        let late = "\"load_module\" directive is specified too late in DIR/nginx.conf:2";
        assert_eq!((code, line), (1, format!("nginx: [emerg] {late}")), "{block}");
    }
}

#[test]
fn the_same_twice() {
    if !is_weir() {
        return skip("nginx says so of a module that it could load");
    }
    let conf = "load_module a/ngx_mail_module.so;\nload_module b/ngx_mail_module.so; events {}";
    let (code, line) = first_line(&["-t"], conf);
    let error = "module \"ngx_mail_module\" is already loaded in DIR/nginx.conf:2";
    assert_eq!((code, line), (1, format!("nginx: [emerg] {error}")));
}
