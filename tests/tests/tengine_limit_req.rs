//! What Tengine adds to limit_req: keys of several variables, rates that a variable says, forbid_action, a whitelist.

use weir_tests::{run_cli, Setup};

#[test]
fn limits() {
    let server = Setup::new(
        r#"events {} http { error_log %%DIR%%/error.log;
        limit_req_zone $arg_a $arg_b zone=two:1m rate=1r/m;
        limit_req_zone $arg_a zone=one:1m rate=1r/m;
        limit_req_zone $arg_a zone=said:1m rate=$arg_rate;
        geo $arg_ip $white { default 0; 10.0.0.0/8 1; }
        server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location /two { limit_req zone=two; try_files /f =404; }
        location /one { limit_req zone=one forbid_action=@other; try_files /f =404; }
        location /uri { limit_req zone=one burst=1 nodelay forbid_action=/there; try_files /f =404; }
        location /said { limit_req zone=said burst=1 nodelay; try_files /f =404; }
        location /white { limit_req zone=two; limit_req_whitelist geo_var_name=white geo_var_value=1; try_files /f =404; }
        location /off { limit_req zone=two; location /off/in { limit_req off; try_files /f =404; } try_files /f =404; }
        location @other { limit_req zone=one; return 200 "other $args"; }
        location /there { limit_req zone=one; try_files /there =404; }
        } }"#,
    )
    .file("f", "file")
    .file("there", "there")
    .start();
    let say = |path: &str| {
        let answer = server.get(path);
        if answer.status == 200 {
            answer.text()
        } else {
            answer.status.to_string()
        }
    };
    for (path, expected) in [
        ("/two?a=1&b=1", "file"),
        ("/two?a=1&b=2", "file"),
        ("/two?a=1&b=1", "503"),
        ("/two", "file"),
        ("/two", "file"),
        ("/one?a=1", "file"),
        ("/one?a=1", "other a=1"),
        ("/uri?a=2", "file"),
        ("/uri?a=2", "file"),
        ("/uri?a=2", "there"),
        ("/said?a=1&rate=1r/m", "file"),
        ("/said?a=1&rate=1r/m", "file"),
        ("/said?a=1&rate=1r/m", "503"),
        ("/said?a=2&rate=x", "500"),
        ("/said?a=2", "500"),
        ("/white?a=9&b=9&ip=10.1.1.1", "file"),
        ("/white?a=9&b=9&ip=10.1.1.1", "file"),
        ("/white?a=9&b=9&ip=11.1.1.1", "file"),
        ("/white?a=9&b=9&ip=11.1.1.1", "503"),
        ("/off?a=8&b=8", "file"),
        ("/off?a=8&b=8", "503"),
        ("/off/in?a=8&b=8", "file"),
    ] {
        assert_eq!(say(path), expected, "{path}");
    }
    server.expect_error("limiting requests, forbid_action is @other");
    server.expect_error("variable for limit rate is wrong");
}

#[test]
fn what_is_set_must_make_sense() {
    for (line, error) in [
        ("limit_req_zone $a zone=a:1m rate=1r/s $b;", "invalid parameter \"$b\""),
        (
            "limit_req_zone $uri zone=a:1m; limit_req zone=a forbid_action=x;",
            "invalid forbid_action",
        ),
        ("limit_req_whitelist geo_var_name=uri geo_var=1;", "invalid parameter \"geo_var=1\""),
        ("limit_req_whitelist geo_var_name=uri geo_var_name=uri;", "must have both"),
        ("limit_req off; limit_req off;", "is duplicate"),
    ] {
        let told = run_cli(&["-t"], &format!("events {{}} http {{ {line} }}")).stderr;
        assert!(told.contains(error), "{line}: {told}");
    }
}
