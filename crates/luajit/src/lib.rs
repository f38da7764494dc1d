//! LuaJIT 2.1, linked into whoever uses this crate, and the parts of it that are written in Lua.
//!
//! `build/` makes it with a C compiler alone. Lua's 5.2 habits that LuaJIT can have (`LUAJIT_ENABLE_LUA52COMPAT`)
//! are there, as in OpenResty's build.

#![warn(missing_docs, unreachable_pub)]

/// The modules that come with LuaJIT as text (`jit.*`), by the names that `require` knows them by.
pub const MODULES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/modules.rs"));
