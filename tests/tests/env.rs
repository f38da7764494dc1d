//! `env`: of the environment that it is started in, a server passes on what is named.

use weir_tests::Setup;

#[test]
fn what_is_not_named_is_gone() {
    let server = Setup::new(
        r#"env PATH; env GIVEN=there; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { content_by_lua_block {
                local found = {}
                for _, name in ipairs { "PATH", "GIVEN", "HOME", "CARGO_MANIFEST_DIR" } do
                    found[#found + 1] = name .. ":" .. tostring(os.getenv(name) ~= nil)
                end
                local env = require "ngx.pipe".spawn { "env" }
                local seen = env:stdout_read_all()
                found[#found + 1] = tostring(seen:find("GIVEN=there", 1, true) ~= nil)
                found[#found + 1] = tostring(seen:find("CARGO_", 1, true) ~= nil)
                ngx.print(table.concat(found, " "))
            } } } }"#,
    )
    .start();
    let expected = "PATH:true GIVEN:true HOME:false CARGO_MANIFEST_DIR:false true false";
    assert_eq!(server.get("/").text(), expected);
}

#[test]
fn scripts_see_nothing_where_nothing_is_named() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / {
            content_by_lua_block { ngx.print(tostring(os.getenv "CARGO_MANIFEST_DIR")) } } } }"#,
    )
    .start();
    assert_eq!(server.get("/").text(), "nil");
}
