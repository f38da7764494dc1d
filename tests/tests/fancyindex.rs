//! `fancyindex`: listings in a table, sorted, with heads and feet of one's own.

use weir_tests::{run_cli, Server, Setup, Signal};

fn start() -> Server {
    let setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; fancyindex on; fancyindex_time_format %F;
            location /short/ { alias %%DIR%%/html/; fancyindex_exact_size off; fancyindex_hide_parent_dir on; fancyindex_css_href /own.css; }
            location /mixed/ { alias %%DIR%%/html/; fancyindex_directories_first off; fancyindex_case_sensitive off; fancyindex_localtime on; }
            location /size/ { alias %%DIR%%/html/; fancyindex_default_sort size_desc; fancyindex_ignore ^a; fancyindex_ignore '\\.bin$' ^none; fancyindex_hide_symlinks on; }
            location /dots/ { alias %%DIR%%/html/; fancyindex_show_dotfiles on; }
            location /parts/ { alias %%DIR%%/html/; fancyindex_header /head; fancyindex_footer foot local; }
            location /bare/ { alias %%DIR%%/html/; fancyindex_header head local; fancyindex_show_path off; fancyindex_footer /none/; }
            location = /head { return 200 '<b>uri '; } location = /none/ { return 200 end; }
            location /off/ { alias %%DIR%%/html/; fancyindex off; } } }",
    )
    .file("html/small", "abc")
    .file("html/Large.bin", vec![b'x'; 20_000])
    .file("html/a <b>&\".txt", "x")
    .file("html/.hidden", "x")
    .file("html/dir/in", "x")
    .file("head", "<b>local ")
    .file("foot", "<i>foot");
    std::os::unix::fs::symlink("small", setup.dir().join("html/link")).unwrap();
    setup.start()
}

/// The names of a page in their order.
fn names(server: &Server, path: &str) -> String {
    let text = server.get(path).text();
    let cell = |row: &str| {
        row.split("title=\"").nth(1).and_then(|c| c.split('"').next()).map(str::to_string)
    };
    text.split("<tr>").filter_map(cell).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_page_with_directories_first() {
    let server = start();
    let page = server.get("/");
    assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html")));
    let text = page.text();
    assert!(text.contains("<h1>Index of /</h1>\n<table id=\"list\">"), "{text}");
    assert!(!text.contains("Parent directory") && !text.contains("hidden"), "{text}");
    let row = "<tr><td colspan=\"2\" class=\"link\"><a href=\"a%20%3Cb%3E%26%22.txt\" title=\"a &lt;b&gt;&amp;&quot;.txt\">\
               a &lt;b&gt;&amp;&quot;.txt</a></td><td class=\"size\">                  1</td><td class=\"date\">20";
    assert!(text.contains(row), "{text}");
    assert!(
        text.contains("<a href=\"dir/\" title=\"dir\">dir/</a></td><td class=\"size\">-</td>"),
        "{text}"
    );
    assert!(text.ends_with("</tbody></table></body>\n</html>\n"), "{text}");
    assert!(server.get("/dir/").text().contains("<a href=\"../\">Parent directory/</a>"));
    let of = |path: &str| server.get(path).status;
    assert_eq!(
        (of("/off/"), of("/dir"), of("/no/"), server.post("/", "").status),
        (403, 301, 404, 403)
    );
    let head = server.head("/short/");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn orders() {
    let server = start();
    for (path, expected) in [
        ("/", "dir Large.bin a &lt;b&gt;&amp;&quot;.txt link small"),
        ("/?C=N&O=D", "dir small link a &lt;b&gt;&amp;&quot;.txt Large.bin"),
        ("/?C=S&O=D", "dir Large.bin link small a &lt;b&gt;&amp;&quot;.txt"),
        ("/?C=S", "dir a &lt;b&gt;&amp;&quot;.txt link small Large.bin"),
        ("/?c=S", "dir Large.bin a &lt;b&gt;&amp;&quot;.txt link small"),
        ("/mixed/", "a &lt;b&gt;&amp;&quot;.txt dir Large.bin link small"),
        ("/size/", "dir small"),
        ("/dots/", "dir .hidden Large.bin a &lt;b&gt;&amp;&quot;.txt link small"),
    ] {
        assert_eq!(names(&server, path), expected, "{path}");
    }
    let text = server.get("/dots/?C=M&O=D").text();
    assert!(
        text.contains("<a href=\"dir/?C=M&amp;O=D\"") && text.contains("../?C=M&amp;O=D"),
        "{text}"
    );
    assert!(server.get("/size/?C=S&O=D").text().contains("<a href=\"dir/\""));
}

#[test]
fn sizes_and_parts() {
    let server = start();
    let text = server.get("/short/").text();
    assert!(text.contains(">19.5 KiB<") && text.contains(">3 B<"), "{text}");
    assert!(
        !text.contains("Parent directory")
            && text.contains("<link rel=\"stylesheet\" href=\"/own.css\">"),
        "{text}"
    );
    let text = server.get("/parts/").text();
    assert!(
        text.starts_with("<b>uri /parts/</h1>\n<table") && text.ends_with("</table><i>foot"),
        "{text}"
    );
    let text = server.get("/bare/").text();
    assert!(text.starts_with("<b>local <table") && text.ends_with("</table>end"), "{text}");
}

#[test]
fn what_is_refused() {
    for (line, error) in [
        (
            "fancyindex_show_path off;",
            "fancyindex_show_path can be off only with a head of one's own",
        ),
        ("fancyindex_header nowhere local;", "No such file or directory"),
        ("fancyindex_footer /a remote;", "it must be one of"),
        ("fancyindex_ignore '(';", "missing closing parenthesis"),
        ("fancyindex_default_sort kind;", "it must be one of"),
    ] {
        let conf =
            format!("events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; {line} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.code == 1 && said.stderr.contains(error), "{line}: {}", said.stderr);
    }
}

/// More names than a worker looks at by itself: others are answered meanwhile.
#[test]
fn a_large_directory_is_read_beside_the_worker() {
    let setup = Setup::new(
        "worker_processes 1; master_process off; events {} http { log_format uri $uri; access_log %%DIR%%/uri.log uri;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; fancyindex on; location = /small { return 204; } } }",
    )
    .file("html/many/a-directory/in", "x");
    for n in 0..20_000 {
        std::fs::File::create(setup.dir().join(format!("html/many/file-{n:05}"))).unwrap();
    }
    let server = setup.start();
    let (mut large, mut small) = (server.connect(), server.connect());
    assert_eq!((large.get("/small").status, small.get("/small").status), (204, 204));
    server.signal(Signal::Stop);
    large.send_get("/many/");
    small.send_get("/small");
    server.signal(Signal::Cont);
    assert_eq!(
        (small.response().status, large.response().text().matches("<tr><td").count()),
        (204, 20_002)
    );
    assert_eq!(server.log_lines("uri.log", 4)[2..], ["/small", "/many/"]);
}
