//! Names that a system may take for another file's than they say: none of them leads to what a rule keeps from clients,
//! and nothing is made, changed or removed by them. Windows has most of these traps; they lead nowhere else either.

use std::collections::BTreeMap;
use std::path::Path;
use weir_tests::{cgi, is_windows, Next, Origin, Server, Setup};

/// Nobody is to read it, and everything that is kept from clients has it.
const SECRET: &str = "nobody reads this";

fn setup() -> Setup {
    Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/root;
            location / { autoindex on; }
            location = /secret.txt { deny all; }
            location ~ \.(php|key)$ { return 403; }
            location ~ /\.ht { deny all; }
            location ^~ /admin/ { deny all; }
            location ^~ /.git/ { return 404; }
            location /files/ { dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on; }
            location /kept/ { alias %%DIR%%/root/admin/none/; } } }"#,
    )
    .file("root/index.html", "index")
    .file("root/secret.txt", SECRET)
    .file("root/long name of a secret.php", SECRET)
    .file("root/longfilename.php", SECRET)
    .file("root/server.key", SECRET)
    .file("root/.htaccess", SECRET)
    .file("root/.git/config", SECRET)
    .file("root/admin/index.html", SECRET)
    .file("root/admin/page.txt", SECRET)
    .file("root/files/own.txt", "own")
    .file("outside.txt", SECRET)
}

/// What stands for the name of something that is kept, behind which each of the endings below is put.
const KEPT: [&str; 8] = [
    "/secret.txt",
    "/longfilename.php",
    "/server.key",
    "/.htaccess",
    "/.git/config",
    "/admin/page.txt",
    "/admin/index.html",
    "/long%20name%20of%20a%20secret.php",
];

const ENDINGS: [&str; 17] = [
    "::$DATA",
    "::$data",
    "%3A%3A$DATA",
    ":$DATA",
    ":stream",
    ":stream:$DATA",
    ":",
    ".",
    "..",
    "%2e",
    "%20",
    "%20%20",
    ".%20.",
    "%00",
    "%00.html",
    "%5c",
    "/.",
];

/// Ways that go round a name, or out of the folder.
const WAYS: [&str; 60] = [
    "/admin./page.txt",
    "/admin%20/page.txt",
    "/admin../page.txt",
    "/admin.../page.txt",
    "/admin.%20/page.txt",
    "/admin::$INDEX_ALLOCATION/page.txt",
    "/admin:$I30:$INDEX_ALLOCATION/page.txt",
    "/admin%5cpage.txt",
    "/admin%5c%2e%2e%5csecret.txt",
    "/files%5c..%5cadmin%5cpage.txt",
    "/files/..%5cadmin%5cpage.txt",
    "/files/..%5c..%5coutside.txt",
    "/..%5coutside.txt",
    "/%5c..%5coutside.txt",
    "/..%2foutside.txt",
    "/%2e%2e/outside.txt",
    "/%2e%2e%2foutside.txt",
    "/%2e%2e%5coutside.txt",
    "/....//outside.txt",
    "/.../outside.txt",
    "/..%c0%afoutside.txt",
    "/..%c1%9coutside.txt",
    "/..%e0%80%afoutside.txt",
    "/%c0%ae%c0%ae/outside.txt",
    "/%uff0e%uff0e/outside.txt",
    "/%ef%bc%8e%ef%bc%8e/outside.txt",
    "/%252e%252e/outside.txt",
    "/%252e%252e%255coutside.txt",
    "/kept/../page.txt",
    "/kept/..%5cpage.txt",
    "/kept/%2e%2e/page.txt",
    "/SECRET~1.TXT",
    "/secret~1.txt",
    "/LONGFI~1.PHP",
    "/longfi~1.php",
    "/LONGNA~1.PHP",
    "/longna~1.php",
    "/HTACCE~1",
    "/HTA~1",
    "/GIT~1/config",
    "/git~1/CONFIG",
    "/ADMIN~1/page.txt",
    "/c:/windows/win.ini",
    "/C:%5cwindows%5cwin.ini",
    "/%5c%5c.%5cc:",
    "/%5c%5c%3f%5cc:%5cwindows%5cwin.ini",
    "/%5c%5c127.0.0.1%5cc$%5cwindows%5cwin.ini",
    "/file:///c:/windows/win.ini",
    "/secret.tx%3f",
    "/secret.*",
    "/secret%3c",
    "/secret%3e%3e%3e%3e",
    "/sec%22ret",
    "/sec%3c%3c.txt",
    "/*.php",
    "/server.%6bey%00",
    "/secret.txt%0a",
    "/secret.txt%0d%0a",
    "/secret.txt%1f",
    "/secret.txt%7c",
];

const DEVICES: [&str; 20] = [
    "con",
    "CON",
    "con.txt",
    "prn",
    "aux",
    "AUX.html",
    "nul",
    "NUL.txt",
    "nul.tar.gz",
    "com1",
    "COM9",
    "com1.txt",
    "lpt1",
    "LPT9.x",
    "conin$",
    "CONOUT$",
    "con%20.txt",
    "com%c2%b9",
    "lpt%c2%b3.txt",
    "nul%20",
];

/// What is in a folder, and in those below it.
fn tree(folder: &Path, all: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let text = match path.is_dir() {
            true => {
                tree(&path, all);
                String::new()
            }
            false => std::fs::read_to_string(&path).unwrap_or_default(),
        };
        all.insert(path.display().to_string(), text);
    }
}

fn all(server: &Server) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    tree(&server.dir().join("root"), &mut all);
    all
}

fn ask(server: &Server, method: &str, path: &str, fields: &str) -> (u16, String) {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    let answer = String::from_utf8_lossy(&server.raw(head.as_bytes())).into_owned();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}")), answer)
}

/// Short names as wine makes them, of a file and of its own tree, are not another way to what is kept.
#[test]
fn short_names_of_other_kinds_are_no_way_either() {
    let setup = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/root;
            location = /secretfile.txt { deny all; } location ~ /\.ht { deny all; }
            location ^~ /.git/ { deny all; } location ^~ /administration/ { deny all; }
            location /w/ { dav_methods PUT DELETE; } location ^~ /w/protected/ { deny all; } } }"#,
    )
    .file("root/secretfile.txt", SECRET)
    .file("root/.htaccess", SECRET)
    .file("root/.git/config", SECRET)
    .file("root/administration/page.txt", SECRET)
    .file("root/w/protected/file.txt", SECRET)
    .file("root/w/a~b.txt", "own");
    let server = setup.start();
    let dir = server.dir().to_path_buf();
    for path in ["/SECR~DXL.TXT", "/_HTA~DGQ", "/_GIT~IBP/config", "/ADMI~11Z/page.txt"] {
        let (status, answer) = ask(&server, "GET", path, "");
        assert!(status == 404 && !answer.contains(SECRET), "{path}: {answer}");
    }
    let kept = || std::fs::read_to_string(dir.join("root/w/protected/file.txt")).unwrap();
    for method in ["PUT", "DELETE"] {
        let (status, answer) =
            ask(&server, method, "/w/PROT~2RG/file.txt", "Content-Length: 0\r\n");
        assert!(status >= 400, "{method}: {answer}");
        assert_eq!(kept(), SECRET);
    }
    // What has such a name itself is there, and may be new.
    assert_eq!(server.get("/w/a~b.txt").text(), "own");
    assert_eq!(ask(&server, "PUT", "/w/c~d.txt", "Content-Length: 0\r\n").0, 201);
}

/// A `..` behind what is no folder leads nowhere, as the path of a log too.
#[test]
fn logs_stay_where_they_are_said_to_be() {
    let setup = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            access_log %%DIR%%/logs/of-$arg_n.log; location / { return 200 ok; } } }"#,
    )
    .file("logs/none", "");
    let server = setup.start();
    for name in ["a/../../escaped", "a\\..\\..\\escaped", "a%2f..%2f..%2fescaped", "good"] {
        let (status, _) = ask(&server, "GET", &format!("/?n={name}"), "");
        assert!(matches!(status, 200 | 400), "{name}: {status}");
    }
    weir_tests::expect_soon("a log", || server.dir().join("logs/of-good.log").exists());
    assert!(!server.dir().join("escaped.log").exists());
}

/// The same of files of certificates, whose names begin in the configuration's folder.
#[test]
fn certificates_are_where_they_are_said_to_be() {
    let pair = weir_tests::tls::self_signed("localhost");
    let setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / {
                proxy_pass https://127.0.0.1:%%PORT_1%%; proxy_ssl_certificate certs/x-$arg_c.crt;
                proxy_ssl_certificate_key certs/x-$arg_c.key; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_verify_client optional_no_ca;
                ssl_certificate other.crt; ssl_certificate_key other.key;
                return 200 shown-$ssl_client_serial; } }",
    );
    let server = ["other", "certs/x-good"]
        .iter()
        .fold(setup, |setup, name| {
            let setup = setup.file(format!("{name}.crt"), &pair.cert);
            setup.file(format!("{name}.key"), &pair.key)
        })
        .start();
    let (status, answer) = ask(&server, "GET", "/?c=good", "");
    assert!(status == 200 && answer.contains("shown-") && !answer.ends_with("shown-"), "{answer}");
    for name in ["a/../../other", "a/../../certs/x-good", "none/../../other"] {
        let (status, answer) = ask(&server, "GET", &format!("/?c={name}"), "");
        assert!(status >= 500 && !answer.contains("shown-"), "{name}: {answer}");
    }
}

fn checked_include(pattern: &str) -> String {
    let conf = format!("events {{}} http {{ include {pattern}; }}");
    weir_tests::run_cli(&["-t"], &conf).stderr
}

/// Where names are alike, two locations that differ in case alone are one, and a pattern finds what it names.
#[test]
fn rules_are_not_lost_by_how_they_are_written() {
    let twice = "events {} http { server { location ^~ /P/ { deny all; } location /p/ { } } }";
    let said = weir_tests::run_cli(&["-t"], twice).stderr;
    assert_eq!(said.contains("duplicate location \"/p/\""), is_windows(), "{said}");
    let nested =
        "events {} http { server { location /\u{fc}/ { location /\u{dc}/X { deny all; } } } }";
    let said = weir_tests::run_cli(&["-t"], nested).stderr;
    assert_eq!(said.contains("is outside location"), !is_windows(), "{said}");
    let pattern = if is_windows() { r"rules\*.CONF" } else { "rules/*.conf" };
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root root; include PATTERN;
            location ^~ /\u{dc}bung/ { deny all; } } }";
    let server = Setup::new(&conf.replace("PATTERN", pattern))
        .file("rules/a.conf", "location = /secret.txt { deny all; }")
        .file("root/secret.txt", SECRET)
        .file("root/\u{dc}bung/a.txt", SECRET)
        .start();
    assert_eq!(server.get("/secret.txt").status, 403);
    for (uri, is_one) in [
        ("/%c3%9cbung/a.txt", true),
        ("/%c3%bcBUNG/a.txt", is_windows()),
        ("/%c3%9cbung/a.txt/%ff", true),
        ("/%c3%bcbung/%ff", is_windows()),
    ] {
        assert_eq!(server.get(uri).status, if is_one { 403 } else { 404 }, "{uri}");
    }
    // What is not looked for in full is not left out without a word.
    let files = Setup::new("").file("ours/deny~1.conf", "").file("rules/deny.conf", "");
    let there = files.dir().display();
    for pattern in ["ours/*", "none/../rules/*", "rules./*", "rules~1/*", "rules/*"] {
        let said = checked_include(&format!("{there}/{pattern}.conf"));
        let is_refused = is_windows() && pattern != "rules/*";
        assert_eq!(said.contains("[emerg]"), is_refused, "{pattern}: {said}");
    }
    assert_eq!(checked_include("//?/C:/rules/*.conf").contains("[emerg]"), is_windows());
}

#[test]
fn nothing_that_is_kept_is_read() {
    let server = setup().start();
    for path in KEPT {
        let (status, answer) = ask(&server, "GET", path, "");
        assert!(matches!(status, 403 | 404) && !answer.contains(SECRET), "{path}: {answer}");
    }
    let endings = KEPT.iter().flat_map(|path| ENDINGS.map(|ending| format!("{path}{ending}")));
    let devices = DEVICES.iter().flat_map(|name| [format!("/{name}"), format!("/files/{name}")]);
    let mut asked = 0;
    for path in endings.chain(devices).chain(WAYS.map(String::from)) {
        let (status, answer) = ask(&server, "GET", &path, "");
        assert!(!answer.contains(SECRET) && !answer.contains("[fonts]"), "{path}: {answer}");
        // No device and no drive is opened, and nothing of that is the server's fault.
        assert!(matches!(status, 301 | 400 | 403 | 404 | 414), "{path}: {answer}");
        asked += 1;
    }
    assert!(asked > 200, "{asked}");
    assert_eq!(server.get("/index.html").text(), "index");
    assert!(!server.error_log().contains("[crit]"), "{}", server.error_log());
}

/// Below a folder whose files may be changed: on Windows none of these names is taken, elsewhere some are a file's there.
#[test]
fn nothing_else_is_changed() {
    let server = setup().start();
    let before = all(&server);
    let ways = [
        "own.txt::$DATA",
        "own.txt:x",
        "own.txt:x:$data",
        "...",
        "%20",
        ".%20.",
        "own~1.txt",
        "OWN~1.TXT",
    ];
    let ways = ways.into_iter().chain(DEVICES).map(|way| format!("/files/{way}"));
    // Those that are a plain name here, whatever another program may make of it.
    // A backslash is a slash there, and may name something new; ends that are cut off leave another plain name.
    let is_plain = |way: &&str| {
        let parts = ["/kept/", "%25", "%ef", "admin%5c", "%5c127", "admin.", "admin%20"];
        parts.iter().any(|part| way.contains(part))
    };
    let odd = WAYS.into_iter().filter(|way| !is_plain(way));
    let ways = ways.chain(odd.map(|way| format!("/files{way}")));
    let mut asked = 0;
    for path in ways {
        let to_it = format!("Destination: {path}\r\n");
        for (method, path, fields) in [
            ("PUT", &*path, "Content-Length: 0\r\n"),
            ("DELETE", &path, ""),
            ("MKCOL", &path, ""),
            ("MOVE", &path, "Destination: /files/moved\r\n"),
            ("COPY", "/files/own.txt", &to_it),
        ] {
            let (status, answer) = ask(&server, method, path, fields);
            let is_refused = (400..=415).contains(&status);
            assert!(is_refused || !is_windows(), "{method} {path} {fields}: {answer}");
            asked += 1;
        }
    }
    assert!(asked >= 350, "{asked}");
    let mut after = all(&server);
    if !is_windows() {
        let files = server.dir().join("root/files/").display().to_string();
        after.retain(|path, _| !path.starts_with(&files) || before.contains_key(path));
    }
    assert_eq!(after, before);
    assert_eq!(std::fs::read_to_string(server.dir().join("outside.txt")).unwrap(), SECRET);
}

/// Dots and spaces at a name's end are not part of it there, and streams are named by `:$`: a location is chosen by what is
/// left, for programs and servers behind open files too. What these are sent is the URI as it came.
#[test]
fn a_location_is_chosen_by_what_the_system_makes_of_a_name() {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", request.target());
        Next::Keep
    });
    let conf = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location ^~ /admin/ { deny all; } location = /secret.php { deny all; }
        location / { return 200 $uri; } location /up/ { proxy_pass http://%%O%%; } } }"#;
    let server = Setup::new(conf).set("O", origin.address()).start();
    let odd = [
        ("/admin./x.php", 403),
        ("/admin%20/x.php", 403),
        ("/x/../admin.%20/x.php", 403),
        ("/secret.php.", 403),
        ("/secret.php%20%2e", 403),
        ("/secret.php::$DATA", 400),
        ("/admin:$I30:$INDEX_ALLOCATION/x.php", 400),
        ("/a/.../b", 400),
        ("/a/%20/b", 400),
    ];
    for (path, refused) in odd {
        let (status, answer) = ask(&server, "GET", path, "");
        assert_eq!(status, if is_windows() { refused } else { 200 }, "{path}: {answer}");
    }
    let (_, answer) = ask(&server, "GET", "/a./b.c/d%20", "");
    assert!(answer.ends_with(if is_windows() { "/a/b.c/d" } else { "/a./b.c/d " }), "{answer}");
    for path in ["/up/D.C.", "/up/a:b", "/up/x.%20/y"] {
        let (status, answer) = ask(&server, "GET", path, "");
        assert!(status == 200 && answer.ends_with(path), "{path}: {answer}");
    }
}

/// A program is told of no script by a name that leads to another's. What follows a file is no name.
#[test]
fn scripts_are_what_their_names_say() {
    let origin = Origin::fastcgi(|asked, conn| {
        let file = asked.param("SCRIPT_FILENAME").unwrap_or_default();
        conn.write(cgi::answer(&format!("Content-Type: text/plain\r\n\r\n[{file}]")));
        Next::Close
    });
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/www;
        location ^~ /administration/ { deny all; } rewrite ^/rw/(.*)_x(.*)$ /$1$2; location ~ \\.php { fastcgi_pass %%O%%;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; } } }";
    let server = Setup::new(conf)
        .set("O", origin.address())
        .file("www/administration/page.php", "")
        .file("www/index.php", "")
        .start();
    for (path, is_told) in [
        ("/index.php", true),
        ("/index.php/File:What%3F", true),
        ("/none/File:x.php", true),
        ("/ADMINI~1/page.php", false),
        ("/ADMI~11Z/page.php", false),
        ("/administration/../index%3c.php", false),
        ("/rw/none/.._x/index.php", false),
        ("/rw/none/.._x/index.php/%ff", false),
        ("/nul.php", false),
        ("/index.php%00", false),
    ] {
        let (status, answer) = ask(&server, "GET", path, "");
        let is_it = status == 200 && answer.contains("/www/") && !answer.contains("<no name>");
        assert_eq!(is_it, is_told || !is_windows() && status == 200, "{path}: {answer}");
    }
}

/// Where a backslash is a slash to the system it is one in the URI, too: what a part of the URI names (a capture, a
/// program's script) is below its folder. Lists of names (`concat`) have their own.
#[test]
fn backslashes_lead_nowhere_else() {
    let server = Setup::new(
        r#"events {} http { types { application/javascript js; } server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/root;
            location ~ ^/log/(.*)$ { access_log %%DIR%%/logs/$1.log; return 200 "$1"; }
            location / { return 200 $uri; }
            location /js/ { concat on; } } }"#,
    )
    .file("root/js/a.js", "a")
    .file("root/js/b/c.js", "c")
    .file("root/b.js", SECRET)
    .file("logs/none", "")
    .start();
    for (path, windows) in [
        ("/a%5cb", Some("/a/b")),
        ("/a%5c..%5cc", Some("/c")),
        ("/log/x%5c..%5c..%5cevil", None),
        ("/..%5cc", None),
    ] {
        let (status, answer) = ask(&server, "GET", path, "");
        match windows.filter(|_| is_windows()) {
            Some(uri) => assert!(answer.ends_with(uri), "{path}: {answer}"),
            None => assert!(
                status == 400 && is_windows()
                    || status == 200 && !is_windows()
                    || path.starts_with("/log"),
                "{path}: {answer}"
            ),
        }
    }
    assert!(!server.dir().join("evil.log").exists());
    for list in ["a.js,..%5cb.js", "..%5cb.js", "a.js,b%5c..%5c..%5cb.js", "a.js::$DATA,a.js"] {
        let (_, answer) = ask(&server, "GET", &format!("/js/??{list}"), "");
        assert!(!answer.contains(SECRET), "{list}: {answer}");
    }
    let (_, answer) = ask(&server, "GET", "/js/??a.js,b/c.js", "");
    assert!(answer.ends_with("ac"), "{answer}");
}

/// What a location has seen is what a server behind is sent, to which a backslash may be no slash: what one that refuses
/// stands for would be reached by a location that does not, and its answers kept under another's name.
#[test]
fn a_server_behind_is_sent_what_locations_have_seen() {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", request.target());
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { proxy_cache_path %%DIR%%/cache keys_zone=c:1m; server { listen 127.0.0.1:%%PORT_0%%;
            location /closed/ { deny all; }
            location /open/ { proxy_pass http://%%O%%; }
            location /kept/ { proxy_cache c; proxy_cache_key $uri; proxy_cache_valid 1m; proxy_pass http://%%O%%; } } }",
    )
    .set("O", origin.address())
    .start();
    for (path, windows) in [
        ("/closed/..\\open/x?a", "/open/x?a"),
        ("/closed/..%5Copen/%20x", "/open/%20x"),
        ("/kept/evil\\..\\victim", "/kept/victim"),
    ] {
        let (status, answer) = ask(&server, "GET", path, "");
        match is_windows() {
            true => assert!(status == 200 && answer.ends_with(windows), "{path}: {answer}"),
            false => assert!(status == 403 || answer.ends_with(path), "{path}: {answer}"),
        }
    }
    let (_, answer) = ask(&server, "GET", "/kept/victim", "");
    assert!(answer.ends_with("/kept/victim"), "{answer}");
}

/// A folder has several names where case is nothing; a tree that is copied into itself would have no end.
#[test]
fn a_tree_is_not_copied_into_itself() {
    let server = setup().file("root/files/dir/a.txt", "a").start();
    for (from, to) in [("dir", "dir/new"), ("dir", "DIR/new"), ("dir", "DIR"), ("dir", "Dir/x/y")] {
        for method in ["COPY", "MOVE"] {
            let fields = format!("Destination: /files/{to}/\r\nOverwrite: T\r\n");
            let before = all(&server);
            let (status, answer) = ask(&server, method, &format!("/files/{from}/"), &fields);
            if is_windows() || to == "dir/new" {
                assert_eq!((status, all(&server)), (403, before), "{method} to {to}: {answer}");
            } else {
                assert!([201, 204, 404, 409].contains(&status), "{method} to {to}: {answer}");
            }
        }
    }
}
