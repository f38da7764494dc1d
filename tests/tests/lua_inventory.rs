//! `docs/inventory/lua_api.tsv`, which `docs/lua.md` is made of: what it calls done is there, and no phase that it names
//! refuses it; what it calls refused is not there, or says so.

use std::collections::BTreeSet;
use weir_tests::{wait_for, Server, Setup, AT_LAST};

const TABLE: &str = include_str!("../../docs/inventory/lua_api.tsv");

/// Finds what has a name, and calls it without arguments: `ok`, `missing`, or that the phase refuses it.
const PROBE: &str = r#"
local M = {}
local function find(name)
    local parts = {}
    for part in name:gmatch("[^.]+") do parts[#parts + 1] = part end
    local value = rawget(_G, parts[1])
    for at = 2, #parts do
        if value == nil then break end
        value = value[parts[at]]
    end
    if value ~= nil then return value end
    for n = #parts, 1, -1 do
        local ok, module = pcall(require, table.concat(parts, ".", 1, n))
        if ok and type(module) == "table" then
            local value = module
            for at = n + 1, #parts do value = type(value) == "table" and value[parts[at]] or nil end
            if value ~= nil then return value end
        end
    end
end
local function of(name)
    local kind, method = name:match("^(%a+)sock:([%w_]+)")
    if kind then return ngx.socket[kind]()[method] end
    local key = name:match("^ngx%.shared%.DICT%.?(.*)")
    if key then return key == "" and ngx.shared.d or ngx.shared.d[key] end
    local last = { ["ngx.var.VARIABLE"] = ngx.var, ["ngx.header.HEADER"] = ngx.header, ["ndk.set_var.DIRECTIVE"] = ndk.set_var }
    return last[name] or find(name)
end
local function is_forbidden(e)
    return tostring(e):find("API disabled", 1, true) or tostring(e):find("no request", 1, true)
end
function M.of(name, calls)
    local ok, value = pcall(of, name)
    if not ok then return is_forbidden(value) and "forbidden" or "error: " .. tostring(value) end
    if value == nil then return "missing" end
    if calls and type(value) == "function" and name ~= "coroutine.yield" then
        local ok, e = pcall(value)
        if not ok and is_forbidden(e) then return "forbidden" end
    end
    return "ok"
end
function M.note(phase, name)
    ngx.shared.found:set(phase .. "/" .. name, M.of(name, true))
end
function M.all(phase)
    for name in io.lines(M.dir .. "/" .. phase .. ".names") do M.note(phase, name) end
end
return M
"#;

const CONF: &str = r#"events {} error_log %%DIR%%/error.log crit; http { default_type text/plain;
    lua_package_path "%%DIR%%/lib/?.lua;;"; lua_shared_dict d 1m; lua_shared_dict found 10m;
    init_by_lua_block { probe = require "probe" probe.dir = "%%DIR%%" probe.all("init") }
    init_worker_by_lua_block { probe.all("init_worker") ngx.timer.at(0, function() probe.all("timer") end) }
    server { listen 127.0.0.1:%%PORT_0%%;
    set $n $arg_n;
    location /set { set_by_lua_block $x { probe.note("set", ngx.var.n) } return 200; }
    location /rewrite { rewrite_by_lua_block { probe.note("rewrite", ngx.var.n) } content_by_lua_block { } }
    location /access { access_by_lua_block { probe.note("access", ngx.var.n) } content_by_lua_block { } }
    location /content { content_by_lua_block { probe.note("content", ngx.var.n) } }
    location /header_filter { header_filter_by_lua_block { probe.note("header_filter", ngx.var.n) } return 200; }
    location /body_filter { body_filter_by_lua_block { probe.note("body_filter", ngx.var.n) } return 200 text; }
    location /log { log_by_lua_block { probe.note("log", ngx.var.n) } return 200; }
    location = /is { content_by_lua_block { ngx.say(probe.of(ngx.var.n)) } }
    location = /found { content_by_lua_block { ngx.say(ngx.shared.found:get(ngx.var.n)) } }
} }"#;

/// Phases that requests reach, and those that run by themselves.
const REQUESTS: [&str; 7] =
    ["set", "rewrite", "access", "content", "header_filter", "body_filter", "log"];
const OTHERS: [&str; 3] = ["init", "init_worker", "timer"];

struct Entry {
    name: &'static str,
    kind: &'static str,
    phases: &'static str,
    state: &'static str,
}

fn entries() -> Vec<Entry> {
    let entry = |line: &'static str| {
        let words: Vec<&str> = line.split('\t').collect();
        let [_, name, kind, phases, state, note] = words[..] else { panic!("{line}") };
        assert!(["done", "differs", "refused", "library"].contains(&state), "{line}");
        assert_eq!(note.is_empty(), state == "done", "{line}");
        Entry { name, kind, phases, state }
    };
    TABLE.lines().skip(1).map(entry).collect()
}

fn is_in(entry: &Entry, phase: &str) -> bool {
    let shown =
        if phase == "timer" { "ngx.timer.*".to_owned() } else { format!("{phase}_by_lua*") };
    let there = matches!(entry.state, "done" | "differs");
    there
        && ["function", "field", "method"].contains(&entry.kind)
        && entry.phases.split(',').any(|p| p == shown)
}

fn start(all: &[Entry]) -> Server {
    let mut setup = Setup::new(CONF).file("lib/probe.lua", PROBE);
    for phase in OTHERS {
        let names: BTreeSet<&str> =
            all.iter().filter(|e| is_in(e, phase)).map(|e| e.name).collect();
        let text: String = names.iter().map(|name| format!("{name}\n")).collect();
        setup = setup.file(format!("{phase}.names"), &text);
    }
    setup.start()
}

fn found(server: &Server, phase: &str, name: &str) -> String {
    server.get(&format!("/found?n={phase}/{name}")).text().trim().to_owned()
}

#[test]
fn what_is_done_is_there() {
    let all = entries();
    let server = start(&all);
    let mut wrong = Vec::new();
    for entry in &all {
        let is_code =
            !["ffi_c_symbol", "c_api", "phase_name", "phase_context", "resty_lib", "option"]
                .contains(&entry.kind);
        if is_code && matches!(entry.state, "done" | "differs") {
            let said = server.get(&format!("/is?n={}", entry.name)).text();
            if said != "ok\n" {
                wrong.push(format!("{}: {}", entry.name, said.trim()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn no_phase_refuses_what_it_has() {
    let all = entries();
    let server = start(&all);
    let mut wrong = Vec::new();
    for phase in REQUESTS {
        let names: BTreeSet<&str> =
            all.iter().filter(|e| is_in(e, phase)).map(|e| e.name).collect();
        assert!(names.len() > 20, "{phase}");
        for name in names {
            let mut client = server.connect();
            client.send(format!("GET /{phase}?n={name} HTTP/1.0\r\n\r\n").as_bytes());
            client.read_to_end();
            let in_time = wait_for(|| found(&server, phase, name) != "nil", AT_LAST);
            let said = found(&server, phase, name);
            if !in_time || said != "ok" {
                wrong.push(format!("{phase}: {name}: {said}"));
            }
        }
    }
    for phase in OTHERS {
        for entry in all.iter().filter(|e| is_in(e, phase)) {
            let in_time = wait_for(|| found(&server, phase, entry.name) != "nil", AT_LAST);
            let said = found(&server, phase, entry.name);
            if !in_time || said != "ok" {
                wrong.push(format!("{phase}: {}: {said}", entry.name));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}
