//! Modules of Lua's that are written in C.

use std::process::Command;
use weir_tests::Setup;

/// LuaJIT's own interface, as a module's sources see it.
const MODULE: &str = r#"
#include <stddef.h>
typedef struct lua_State lua_State;
typedef struct { const char *name; int (*func)(lua_State *); } luaL_Reg;
extern double luaL_checknumber(lua_State *, int);
extern void lua_pushnumber(lua_State *, double);
extern void luaL_register(lua_State *, const char *, const luaL_Reg *);
extern void *lua_newuserdata(lua_State *, size_t);
extern int luaL_error(lua_State *, const char *, ...);
static int add(lua_State *l) { lua_pushnumber(l, luaL_checknumber(l, 1) + luaL_checknumber(l, 2)); return 1; }
static int fail(lua_State *l) { return luaL_error(l, "from %s", "C"); }
static const luaL_Reg all[] = { { "add", add }, { "fail", fail }, { NULL, NULL } };
int luaopen_sums(lua_State *l) { lua_newuserdata(l, 16); luaL_register(l, "sums", all); return 1; }
"#;

/// They find Lua's interface in the program, as in OpenResty.
#[test]
fn modules_in_c_are_loaded() {
    let setup = Setup::new(
        r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; lua_package_cpath "%%DIR%%/?.so;;";
        server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block {
            local sums = require "sums"
            ngx.say(sums.add(1, 2), " ", select(2, pcall(sums.fail)), " ", select(2, pcall(sums.add, 1)))
        } } } }"#,
    )
    .file("sums.c", MODULE);
    let dir = setup.dir().to_path_buf();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([dir.join("sums.so"), dir.join("sums.c")])
        .status()
        .unwrap();
    assert!(made.success());
    let server = setup.start();
    assert_eq!(
        server.get("/").text(),
        "3 from C bad argument #2 to '?' (number expected, got no value)\n"
    );
}
