//! `weir lua`: scripts without a server.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use weir_tests::{binary, printed, Origin};

/// Runs it, with a directory of its own to be in.
fn run(words: &[&str], files: &[(&str, &str)], input: &str) -> (Output, String) {
    let name = format!("weir-lua-{}-{:?}", std::process::id(), std::thread::current().id());
    let dir = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let mut child = Command::new(binary());
    child.arg("lua").args(words).current_dir(&dir);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = printed(&out.stdout);
    let _ = std::fs::remove_dir_all(&dir);
    (out, said)
}

fn says(words: &[&str], expected: &str) {
    let (out, said) = run(words, &[], "a line\nmore\n");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert_eq!((said.as_str(), out.status.code()), (expected, Some(0)), "{words:?}: {errors}");
}

#[test]
fn code_of_the_command_line() {
    says(&["-e", "print('hello')"], "hello\n");
    says(&["-e", "ngx.say(ngx.md5('hello'))"], "5d41402abc4b2a76b9719d911017c592\n");
    says(
        &["-e", "ngx.print(1, nil, {'a', {true}}, ngx.null) ngx.sleep(0.01) io.write(' end')"],
        "1nilatruenull end",
    );
    says(&["-e", "print('got ', io.stdin:read('*l'))"], "got a line\n");
    says(&["-e", "local t = {} for i = 1, 3 do t[i] = ngx.thread.spawn(function() ngx.sleep(0.01 * i) print(i) end) end for i = 1, 3 do ngx.thread.wait(t[i]) end"], "1\n2\n3\n");
    says(
        &["--shdict", "d 1m", "-e", "ngx.shared.d:set('a', 1) print(ngx.shared.d:incr('a', 2))"],
        "3\n",
    );
    says(&["-j", "off", "-e", "print((jit.status()))"], "false\n");
    says(&["-l", "table.new", "-e", "print(type(package.loaded['table.new']))"], "function\n");
    says(
        &[
            "--http-conf",
            "lua_shared_dict d 1m; lua_max_run_time 10s;",
            "--errlog-level=error",
            "-c",
            "32",
            "-e",
            "print(ngx.shared.d ~= nil, ngx.get_phase())",
        ],
        "truetimer\n",
    );
    says(
        &["-e", "ngx.timer.at(0, function(early) print('later') end) print('first')"],
        "first\nlater\n",
    );
}

#[test]
fn a_file_with_arguments() {
    let files = [
        ("a.lua", "#!/usr/bin/env weir\nlocal m = require 'm'\nprint(arg[0], ' ', arg[1], ' ', arg[2], ' ', (...), ' ', m.name)"),
        ("m.lua", "return { name = 'a module' }"),
    ];
    let (out, said) = run(&["-I", ".", "a.lua", "-e", "}\"]]"], &files, "");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert_eq!(said, "a.lua -e }\"]] -e a module\n", "{errors}");
    let (_, said) = run(&["-"], &[], "print('of standard input')");
    assert_eq!(said, "of standard input\n");
}

#[test]
fn how_it_ends() {
    for (code, status, expected) in [
        ("os.exit(3)", 3, ""),
        ("ngx.exit(4)", 4, ""),
        ("error('on purpose')", 1, "ERROR: (command line -e):1: on purpose\nstack traceback:"),
        ("this is no code", 1, "ERROR: "),
    ] {
        let (out, _) = run(&["-e", code], &[], "");
        let errors = printed(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{code}: {errors}");
        assert!(errors.contains(expected), "{code}: {errors}");
    }
    for (words, expected) in [
        (&["--valgrind", "-e", ""][..], "write the other program in front of"),
        (&["-e"], "requires a value"),
        (&[], "needs a file"),
        (&["-c", "none", "-e", ""], "invalid value of \"-c\": \"none\""),
        (&["--http-conf", "no_such_thing;", "-e", ""], "unknown directive \"no_such_thing\""),
    ] {
        let (out, _) = run(words, &[], "");
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && errors.contains(expected), "{words:?}: {errors}");
    }
    let (out, said) = run(&["--help"], &[], "");
    assert!(out.status.success() && said.contains("--shdict 'NAME SIZE'"));
}

#[test]
fn it_talks_to_others() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let code = format!(
        "local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {})) s:send('GET / HTTP/1.0\\r\\n\\r\\n') print(s:receive('*l'))
         local p = require 'ngx.process' print(p.type(), ' ', p.get_master_pid() == ngx.worker.pid())",
        origin.port()
    );
    says(&["-e", &code], "HTTP/1.1 200 OK\nsingle true\n");
}

#[test]
fn it_starts_programs() {
    let code = "local ok, how, number = require 'ngx.pipe'.spawn('exit 3'):wait() print(ok, ' ', how, ' ', number)";
    says(&["-e", code], "false exit 3\n");
}

/// A link of that name is what scripts for OpenResty begin with.
#[test]
fn a_link_named_resty_runs_scripts() {
    let dir = std::env::temp_dir().join(format!("weir-resty-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let link = dir.join("resty");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(binary(), &link).unwrap();
    let run = |words: &[&str]| Command::new(&link).args(words).output().unwrap();
    let said = run(&["-e", "print(ngx.md5('a'), ' ', arg[1])", "/dev/null", "b"]);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "0cc175b9c0f1b6a831c399e269772661 b\n");
    assert!(String::from_utf8_lossy(&run(&["-V"]).stderr).contains("configure arguments: --"));
    let _ = std::fs::remove_dir_all(&dir);
}
