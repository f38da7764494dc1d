//! Directives of lua-nginx-module that are settings of memory, or that have nothing to set here and say so.

use weir_tests::{run_cli, Setup};

/// Memory of C's that is free but for its last block, which the system's allocator gives back only when it is told to.
const FILL: &str = r#"local ffi = require "ffi"
    ffi.cdef "void *malloc(size_t); void free(void *); void *memset(void *, int, size_t);"
    local blocks = {}
    for i = 1, 1000 do blocks[i] = ffi.C.malloc(64000) ffi.C.memset(blocks[i], 1, 64000) end
    for i = 1, 999 do ffi.C.free(blocks[i]) end
    ngx.say("filled")"#;

#[test]
fn lua_malloc_trim_gives_memory_back_after_so_many_requests() {
    let conf = format!(
        r#"worker_processes 1; events {{}} error_log %%DIR%%/error.log error; http {{ default_type text/plain; lua_malloc_trim 3;
        server {{ listen 127.0.0.1:%%PORT_0%%;
        location /fill {{ content_by_lua_block {{ {FILL} }} }}
        location /mb {{ content_by_lua_block {{
            for line in io.lines("/proc/self/status") do
                local kb = line:match("^VmRSS:%s*(%d+)") if kb then ngx.say(math.floor(kb / 1024)) end
            end
        }} }} }} }}"#
    );
    let server = Setup::new(&conf).start();
    let mut client = server.connect();
    let mut mb = || client.get("/mb").text().trim().parse::<u64>().unwrap();
    let before = mb();
    assert_eq!(server.get("/fill").text(), "filled\n");
    let filled = mb();
    assert!(filled > before + 50, "{before} {filled}");
    // That was the third.
    let after = mb();
    assert!(after < before + 20, "{before} {filled} {after}");
}

#[test]
fn lua_thread_cache_max_entries_says_how_many_coroutines_are_used_again() {
    for (setting, is_same) in [
        ("", true),
        ("lua_thread_cache_max_entries 1;", true),
        ("lua_thread_cache_max_entries 0;", false),
    ] {
        let conf = format!(
            r#"worker_processes 1; events {{}} http {{ default_type text/plain; {setting}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ content_by_lua_block {{ ngx.say(tostring(coroutine.running())) }} }} }} }}"#
        );
        let server = Setup::new(&conf).start();
        let mut client = server.connect();
        let (first, second) = (client.get("/").text(), client.get("/").text());
        assert!(first.starts_with("thread: "), "{first}");
        assert_eq!(first == second, is_same, "{setting} {first} {second}");
    }
}

#[test]
fn what_has_nothing_to_set_is_told_so() {
    for block in ["http", "stream"] {
        for (setting, told) in [
            ("lua_load_resty_core on", "lua_load_resty_core is deprecated and has no effect"),
            ("lua_load_resty_core off", "resty.core is always there; remove the directive"),
            (
                "lua_socket_send_lowat 4k",
                "\"lua_socket_send_lowat\" has no effect: Linux has no SO_SNDLOWAT",
            ),
        ] {
            let done = run_cli(&["-t"], &format!("events {{}} {block} {{ {setting}; }}"));
            assert!(done.code == 0 && done.stderr.contains(told), "{done:?}");
        }
        for (setting, why) in [
            ("lua_load_resty_core maybe", "invalid value"),
            ("lua_socket_send_lowat x", "invalid value"),
            ("lua_malloc_trim x", "invalid number"),
            ("lua_malloc_trim 1; lua_malloc_trim 2", "is duplicate"),
        ] {
            let done = run_cli(&["-t"], &format!("events {{}} {block} {{ {setting}; }}"));
            assert!(done.code == 1 && done.stderr.contains(why), "{setting}: {done:?}");
        }
        let quiet = "lua_socket_send_lowat 0; lua_malloc_trim 0;";
        let done = run_cli(&["-t"], &format!("events {{}} {block} {{ {quiet} }}"));
        assert!(done.code == 0 && !done.stderr.contains("[warn]"), "{done:?}");
    }
    let done = run_cli(&["-t"], "events {} http { lua_thread_cache_max_entries x; }");
    assert!(done.code == 1 && done.stderr.contains("invalid number"), "{done:?}");
}
