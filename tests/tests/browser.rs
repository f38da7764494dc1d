//! `modern_browser` and `ancient_browser`: who is told by `User-Agent`.

use weir_tests::Server;

const CONF: &str = "events {} http { access_log off;
    server { listen 127.0.0.1:%%PORT_0%%;
        modern_browser msie 5.5; modern_browser gecko 1.0.0; modern_browser opera 9.0;
        modern_browser safari 413; modern_browser konqueror 3.0; ancient_browser Lynx netscape4;
        location / { return 200 '$modern_browser|$ancient_browser|$msie'; }
        location /un { modern_browser unlisted; modern_browser_value new; ancient_browser_value old;
            return 200 '$modern_browser|$ancient_browser|$msie'; }
        location /both { modern_browser unlisted; modern_browser gecko 2;
            return 200 '$modern_browser|$ancient_browser|$msie'; } } }";

#[test]
fn browsers_are_told_apart() {
    let server = Server::start(CONF);
    for (path, agent, expected) in [
        ("/", "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.0.0) Gecko/20020610", "1||"),
        ("/", "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:0.9.9) Gecko/20020610", "|1|"),
        ("/", "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", "1||1"),
        ("/", "Mozilla/4.0 (compatible; MSIE 5.01; Windows NT 5.1)", "|1|1"),
        ("/", "Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50  [en]", "|1|"),
        ("/", "Opera/9.01 (X11; FreeBSD 6 i386; U; en)", "1||"),
        ("/", "Mozilla/5.0 (X11) AppleWebKit/418 (KHTML, like Gecko) Safari/417.9.3", "1||"),
        ("/", "Mozilla/5.0 (compatible; Konqueror/2.9; Linux)", "|1|"),
        ("/", "curl/8", "|1|"),
        ("/", "MSIE", "|1|"),
        ("/un", "curl/8", "new||"),
        ("/un", "Lynx/2.8", "|old|"),
        ("/un", "Mozilla/4.72 [en] (X11)", "|old|"),
        ("/un", "Mozilla/5.0 (anything)", "new||"),
        ("/both", "Mozilla/5.0 (X11; rv:1.9) Gecko/1", "|1|"),
        ("/both", "Opera/99.0", "|1|"),
        ("/both", "curl/8", "1||"),
    ] {
        let answer = server.get_with(path, &format!("User-Agent: {agent}\r\n"));
        assert_eq!(answer.text(), expected, "{path} {agent}");
    }
    assert_eq!(server.get("/").text(), "|1|");
    assert_eq!(server.get("/un").text(), "new||");
}

#[test]
fn what_is_no_browser_or_version_is_refused() {
    for (line, message) in [
        ("modern_browser lynx 1;", "unknown browser name \"lynx\""),
        ("modern_browser msie 1.x;", "invalid browser version \"1.x\""),
        ("modern_browser msie;", "modern_browser"),
    ] {
        let conf =
            format!("events {{}} http {{ {line} server {{ listen 127.0.0.1:%%PORT_0%%; }} }}");
        let said = weir_tests::run_cli(&["-t"], &conf);
        assert_ne!(said.code, 0);
        let is_nginx = weir_tests::binary().ends_with("nginx");
        assert!(said.stderr.contains(message) || is_nginx, "{}", said.stderr);
    }
}
