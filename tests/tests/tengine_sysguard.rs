//! Tengine's sysguard: requests are turned away while the machine has too much to do.

use weir_tests::{expect_soon, run_cli, Origin, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    sysguard on; error_log %%DIR%%/error.log info; sysguard_interval 1s;
    location /calm { sysguard_load load=100000; sysguard_mem swapratio=100% free=0; try_files /f =404; }
    location /file { sysguard_mem free=100000g; try_files /f =404; }
    location /sent { sysguard_mem free=100000g action=/there; try_files /f =404; }
    location /named { sysguard_mem free=100000g action=@there; try_files /f =404; }
    location /off { sysguard off; sysguard_mem free=100000g; try_files /f =404; }
    location /and { sysguard_mode and; sysguard_mem free=100000g; sysguard_load load=100000; try_files /f =404; }
    location /both { sysguard_mode and; sysguard_mem free=100000g; sysguard_cpu usage=100.00 period=1s;
        sysguard_log_level notice; try_files /f =404; }
    location /slow { sysguard_rt rt=0.01 period=60s action=/there; proxy_pass http://%%ORIGIN%%; }
    location = /there { sysguard_mem free=100000g; try_files /there =404; }
    location @there { return 200 "named $args"; }
} }"#;

#[test]
fn requests_are_turned_away() {
    let origin = Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(60));
        conn.reply("200 OK", "", "slow");
        weir_tests::Next::Close
    });
    let setup =
        Setup::new(CONF).file("f", "file").file("there", "there").set("ORIGIN", origin.address());
    let server = setup.start();
    for (path, status, text) in [
        ("/calm", 200, "file"),
        ("/file", 503, ""),
        ("/sent", 200, "there"),
        ("/named?x=1", 200, "named x=1"),
        ("/off", 200, "file"),
        ("/and", 200, "file"),
        ("/both", 200, "file"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}");
        if !text.is_empty() {
            assert_eq!(answer.text(), text, "{path}");
        }
    }
    server.expect_error("sysguard free limited, current:");
    assert_eq!(server.get("/slow").text(), "slow");
    expect_soon("slow requests are sent elsewhere", || server.get("/slow").text() == "there");
    server.expect_error("sysguard rt limited, current:0.");
}

#[test]
fn what_is_set_must_make_sense() {
    for (line, error) in [
        ("sysguard_load 5;", "invalid parameter \"5\""),
        ("sysguard_load load=x;", "invalid parameter \"load=x\""),
        ("sysguard_load load=ncpu*1.5 action=there;", "invalid parameter \"action=there\""),
        ("sysguard_mem swapratio=20;", "invalid parameter \"swapratio=20\""),
        ("sysguard_mem free=1m; sysguard_mem free=2m;", "is duplicate"),
        ("sysguard_rt rt=1 period=2h;", "invalid parameter \"period=2h\""),
        ("sysguard_cpu period=3s;", "invalid parameter \"period=3s\""),
        ("sysguard_mode xor;", "invalid value \"xor\""),
    ] {
        let told = run_cli(&["-t"], &format!("events {{}} http {{ {line} }}")).stderr;
        assert!(told.contains(error), "{line}: {told}");
    }
}
