//! What the program shows to libraries that it loads.

/// What code in Lua finds in the program on Windows, where names are shown one by one. Modules in C have Lua from a
/// library of its own there.
const SHOWN: [&str; 13] = [
    "ngx_hex_dump",
    "ngx_atoi",
    "ngx_hextoi",
    "ngx_parse_time",
    "ngx_escape_uri",
    "ngx_murmur_hash2",
    "ngx_http_lua_ffi_raw_log",
    "ngx_stream_lua_ffi_raw_log",
    "ngx_http_lua_ffi_get_ctx_ref",
    "ngx_stream_lua_ffi_get_ctx_ref",
    "ngx_http_lua_ffi_set_ctx_ref",
    "ngx_stream_lua_ffi_set_ctx_ref",
    "ngx_lua_ffi_disable_listening_unix_socket",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "windows") {
        let Some(folder) = std::env::var_os("OUT_DIR") else { return };
        let file = std::path::Path::new(&folder).join("shown.def");
        if let Err(e) = std::fs::write(&file, format!("EXPORTS\n{}\n", SHOWN.join("\n"))) {
            println!("cargo:error={}: {e}", file.display());
        }
        println!("cargo:rustc-link-arg-bins={}", file.display());
    }
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // Modules of Lua's in C (`lua_package_cpath`) look for its interface in the program, and code in Lua for
        // some of nginx's functions (`ffi.C.ngx_hex_dump`).
        for names in ["lua_*", "luaL_*", "ngx_*"] {
            println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={names}");
        }
    }
}
