//! The error log: levels, places, and what a line looks like.

use weir_tests::Server;

#[test]
fn a_line_has_time_level_process_and_context() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; server_name name.test;
            error_log %%DIR%%/own.log; root %%DIR%%/html; } }",
    );
    server.get_with("/none?a=b", "Referer: http://r/\r\n");
    let line = server.log_lines("own.log", 1)[0].clone();
    let (time, rest) = line.split_at(20);
    assert!(time.starts_with("20") && time.as_bytes()[4] == b'/' && time.as_bytes()[10] == b' ');
    assert!(rest.starts_with("[error] "), "{line}");
    let (ids, message) = rest["[error] ".len()..].split_once(": *").expect("ids");
    let (pid, thread) = ids.split_once('#').expect("two ids");
    assert!(pid.parse::<u32>().is_ok() && thread.parse::<u32>().is_ok(), "{line}");
    let context = ", client: 127.0.0.1, server: name.test, request: \"GET /none?a=b HTTP/1.1\", \
                   host: \"localhost\", referrer: \"http://r/\"";
    assert!(message.ends_with(context), "{line}");
    assert!(message.contains(" open() \""), "{line}");
    assert!(message.contains("/html/none\" failed (2: No such file or directory)"), "{line}");
}

#[test]
fn levels_and_several_logs() {
    let server = Server::start(
        "error_log %%DIR%%/main.log; events {} http { error_log %%DIR%%/http.log;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
                location /inherit { }
                location /own { error_log %%DIR%%/own.log; error_log %%DIR%%/crit.log crit; }
                location /info { error_log %%DIR%%/info.log info; auth_basic x;
                    auth_basic_user_file %%DIR%%/users; }
            } }",
    );
    server.get("/inherit");
    server.get("/own");
    assert!(server.log_lines("http.log", 1)[0].contains("/html/inherit"));
    assert!(server.log_lines("own.log", 1)[0].contains("/html/own"));
    assert_eq!(server.read("crit.log"), "");
    server.get("/info");
    assert!(server.log_lines("http.log", 1).iter().all(|line| !line.contains("/own")));
    assert!(!server.read("main.log").contains("open()"));
}

#[test]
fn starting_and_stopping_are_noticed() {
    let mut server = Server::start(
        "error_log %%DIR%%/notice.log notice; events {}
        http { server { listen 127.0.0.1:%%PORT_0%%; } }",
    );
    weir_tests::expect_soon("the start is logged", || {
        server.read("notice.log").contains("start worker process")
    });
    server.signal(weir_tests::Signal::Term);
    assert_eq!(server.wait_exit(), Some(0));
    let log = server.read("notice.log");
    assert!(
        log.contains("[notice]") && log.lines().last().is_some_and(|l| l.ends_with(": exit")),
        "{log}"
    );
}
