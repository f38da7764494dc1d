//! What the program shows to libraries that it loads.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // Modules of Lua's in C (`lua_package_cpath`) look for its interface in the program, and code in Lua for
        // some of nginx's functions (`ffi.C.ngx_hex_dump`).
        for names in ["lua_*", "luaL_*", "ngx_*"] {
            println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={names}");
        }
    }
}
