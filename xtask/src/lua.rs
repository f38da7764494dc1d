//! `docs/lua.md`: what of OpenResty's Lua is there, of `docs/inventory/lua_api.tsv`. That what the table calls done is
//! there is tested (`tests/tests/lua_inventory.rs`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# Lua

What of OpenResty's interface this version has: every entry of lua-nginx-module and of the libraries that come with
it. Written by `cargo xtask docs` of `docs/inventory/lua_api.tsv`, so change that and not this page.

*done*: as OpenResty's documentation says. *differs*: the note says how. *refused*: it is not there, or answers with an
error; the note says what to do. *library*: text that runs as it is, and is not shipped.

## For libraries

Where modules are looked for: `lua_package_path` and `lua_package_cpath`; behind these (or in the place of `;;`) as
Debian's LuaJIT does, below `/usr/local` and `/usr` (`/usr/share/lua/5.1`, `/usr/lib/x86_64-linux-gnu/lua/5.1`), and where
OpenResty has its own: `lualib` and `site/lualib` beside the prefix and in `/usr/local/openresty`, if they are there.

By the FFI (`ffi.C`) code reaches what the system's C library has and, of nginx's own functions, those that libraries
call: `ngx_hex_dump`, `ngx_atoi`, `ngx_hextoi`, `ngx_parse_time`, `ngx_escape_uri`, `ngx_murmur_hash2`,
`ngx_http_lua_ffi_raw_log`, `…_get_ctx_ref` and `…_set_ctx_ref` and the same of `ngx_stream_lua_ffi_`, and
`ngx_lua_ffi_disable_listening_unix_socket` (lua-resty-events). For the others there is `ngx.*`.

OpenSSL's functions are the system's: when code first declares one (`ffi.cdef` of `EVP_…`, `SHA256`, `RSA_…`, `SSL_…`),
or makes a certificate or a key by `ngx.ssl`, `libcrypto` and `libssl` are loaded (OpenSSL 3, else 1.1), and `ffi.C` has
them. lua-resty-string, -jwt, -openssl and what is made with these run so. Where they are not installed the log
says what to install (`libssl3` on Debian). Weir's own TLS is not OpenSSL's: there is no `SSL *` to be had of a
connection; certificates and keys go from the one to the other (`setclientcert`, `ngx.ssl.set_cert`) in both directions.

## Workers

Workers are threads of one process, each with a Lua state of its own. `init_by_lua` therefore runs once in the process that
reads the configuration (under a master that is the master, as root where that is root), whose state is thrown away, and then
in each worker's state and in the privileged agent's, before `init_worker_by_lua`, with the rights of `user`. An error in the first ends the
start, or refuses the reload; in the others requests are answered with 500. What it does outside is done as often: let `init_worker_by_lua` of worker 0 write
files. Keys that only root may read are read by the first run and not by the workers': have `user` read them
(a group, an ACL), or name them in directives, which the master reads (`ssl_certificate_key`). `weir -t` runs it where there is no
`lua_shared_dict`, as OpenResty does.

The privileged agent (`enable_privileged_agent`) is one more such thread, without listening sockets: timers, sockets,
dictionaries and `init_worker_by_lua` are there, root's rights are not.

## How much

";

/// Parts of the page, by the kinds of entries that stand there.
const PARTS: &[(&str, &[&str])] = &[
    ("Phases", &["phase_context", "phase_name"]),
    ("Functions, fields and tables", &["function", "field", "table", "overrides"]),
    ("Methods", &["method", "option"]),
    ("Modules", &["module", "lua_module", "lua_module_function"]),
    (
        "Constants",
        &["constant:core", "constant:http_method", "constant:http_status", "constant:log_level"],
    ),
    ("Libraries", &["resty_lib"]),
    ("For modules in C", &["c_api", "ffi_c_symbol"]),
];

pub fn path(root: &Path) -> PathBuf {
    root.join("docs").join("lua.md")
}

struct Entry<'a> {
    name: &'a str,
    kind: &'a str,
    phases: &'a str,
    state: &'a str,
    note: &'a str,
}

pub fn page(root: &Path) -> Result<String, String> {
    let from = root.join("docs/inventory/lua_api.tsv");
    let text = std::fs::read_to_string(&from).map_err(|e| format!("{}: {e}", from.display()))?;
    let entries =
        text.lines().skip(1).map(|line| entry(line).ok_or_else(|| format!("bad line: {line}")));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let mut out = HEAD.to_owned();
    for state in ["done", "differs", "refused", "library"] {
        let count = entries.iter().filter(|e| e.state == state).count();
        let _ = writeln!(out, "* {count} {state}");
    }
    let mut shown = 0;
    for (title, kinds) in PARTS {
        let of_part: Vec<_> = entries.iter().filter(|e| kinds.contains(&e.kind)).collect();
        shown += of_part.len();
        let _ = write!(
            out,
            "\n## {title}\n\n| name | state | phases | note |\n| --- | --- | --- | --- |\n"
        );
        for Entry { name, phases, state, note, .. } in of_part {
            let phases = phases.replace("_by_lua*", "").replace(',', ", ").replace('*', "\\*");
            let _ = writeln!(out, "| `{name}` | {state} | {phases} | {note} |");
        }
    }
    match shown == entries.len() {
        true => Ok(out),
        false => Err(format!(
            "{}: {} entries have no part of the page",
            from.display(),
            entries.len() - shown
        )),
    }
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let words: Vec<&str> = line.split('\t').collect();
    let [_, name, kind, phases, state, note] = words[..] else { return None };
    ["done", "differs", "refused", "library"].contains(&state).then_some(())?;
    // Only what is as documented needs no words.
    (note.is_empty() == (state == "done")).then_some(())?;
    Some(Entry { name, kind, phases, state, note })
}
