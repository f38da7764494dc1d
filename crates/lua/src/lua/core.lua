-- Parts of lua-resty-core that libraries load by name: what is ngx.* there is the same here.

local weir = ...
local ngx = weir.ngx
local ffi = require "ffi"
local ffi_new, ffi_cast = ffi.new, ffi.cast
local error, type, select = error, type, select

local version = weir.core_version
local preload = package.preload
local core = { version = version }
preload["resty.core"] = function()
    return core
end
-- It is loaded from the beginning, which libraries insist on; and where the tables of ngx.ctx are they know as well.
package.loaded["resty.core"] = core
debug.getregistry().ngx_lua_ctx_tables = weir.contexts

---------------------------------------------------------------------------------------------------- resty.core.base

ffi.cdef [[
typedef intptr_t ngx_int_t;
typedef uintptr_t ngx_uint_t;
typedef struct { size_t len; const unsigned char *data; } ngx_str_t;
typedef struct ngx_http_request_s ngx_http_request_t;
typedef struct ngx_stream_lua_request_s ngx_stream_lua_request_t;
typedef struct { int len; const unsigned char *data; } ngx_http_lua_ffi_str_t;
typedef struct { int len; const unsigned char *data; } ngx_stream_lua_ffi_str_t;
int ngx_http_lua_ffi_raw_log(ngx_http_request_t *r, int level, const unsigned char *text, size_t length);
int ngx_stream_lua_ffi_raw_log(ngx_stream_lua_request_t *r, int level, const unsigned char *text, size_t length);
int ngx_http_lua_ffi_get_ctx_ref(ngx_http_request_t *r, int *in_ssl_phase, int *ssl_ctx_ref);
int ngx_http_lua_ffi_set_ctx_ref(ngx_http_request_t *r, int ref);
int ngx_stream_lua_ffi_get_ctx_ref(ngx_stream_lua_request_t *r, int *in_ssl_phase, int *ssl_ctx_ref);
int ngx_stream_lua_ffi_set_ctx_ref(ngx_stream_lua_request_t *r, int ref);
int ngx_lua_ffi_disable_listening_unix_socket(ngx_str_t *name);
]]

-- LuaJIT puts them there when they are first wanted, which lua-resty-core does.
require "table.new"
require "table.clear"

local fresh_ctx = weir.native "ctx_fresh"

preload["resty.core.base"] = function()
    local M = {
        version = version, new_tab = require "table.new", clear_tab = require "table.clear",
        FFI_OK = 0, FFI_ERROR = -1, FFI_AGAIN = -2, FFI_BUSY = -3, FFI_DONE = -4, FFI_DECLINED = -5, FFI_ABORT = -6,
        FFI_NO_REQ_CTX = -100, FFI_BAD_CONTEXT = -101,
    }

    -- Room that its callers share, each until it calls something else.
    local buffer_size, buffer, size_ptr = 4096, nil, nil
    local message_ptr = ffi_new("unsigned char *[1]")

    function M.get_errmsg_ptr()
        return message_ptr
    end

    function M.get_string_buf_size()
        return buffer_size
    end

    function M.set_string_buf_size(size)
        if size <= 0 then
            return
        end
        buffer, buffer_size = nil, math.ceil(size)
    end

    function M.get_size_ptr()
        if not size_ptr then
            size_ptr = ffi_new("size_t[1]")
        end
        return size_ptr
    end

    function M.get_string_buf(size, must_alloc)
        if size > buffer_size or must_alloc then
            return ffi_new("unsigned char[?]", size)
        end
        if not buffer then
            buffer = ffi_new("unsigned char[?]", buffer_size)
        end
        return buffer
    end

    -- The number of a value that is kept in a table. Free places are a list, which begins at 0.
    function M.ref_in_table(t, value)
        if value == nil then
            return -1
        end
        local at = t[0]
        if t == weir.contexts then
            -- Its numbers are given by Rust, which takes them out as well.
            at = fresh_ctx()
        elseif at and at ~= 0 then
            t[0] = t[at]
        else
            at = #t + 1
        end
        t[at] = value
        return at
    end

    local subsystem = weir.stream and "stream" or "http"

    function M.allows_subsystem(...)
        for at = 1, select("#", ...) do
            if select(at, ...) == subsystem then
                return
            end
        end
        error("unsupported subsystem: " .. subsystem, 2)
    end

    -- Something that is the same for one request, and is no pointer to it: nothing looks behind it.
    local request_type = ffi.typeof(weir.stream and "ngx_stream_lua_request_t *" or "ngx_http_request_t *")
    function M.get_request()
        local id = weir.ctx_id()
        if not id then
            return nil
        end
        -- Who asks for the context's number next finds a table there.
        local _ = ngx.ctx
        return ffi_cast(request_type, id)
    end

    return M
end

-------------------------------------------------------------------------------------------------------- other parts

-- A part with functions, which are looked up when it is loaded: all of ngx is there then.
local function part(name, make)
    preload["resty.core." .. name] = function()
        local M = make and make() or {}
        M.version, M._VERSION = version, version
        return M
    end
end

for _, name in ipairs {
    "uri", "hash", "base64", "exit", "shdict", "var", "phase", "ndk", "socket", "coroutine", "param",
} do
    part(name)
end

part("utils", function()
    return {
        -- One character in place of another.
        str_replace_char = function(text, find, replace)
            return (text:gsub("%" .. find:sub(1, 1), { [find:sub(1, 1)] = replace:sub(1, 1) }))
        end,
    }
end)

-- Phases by OpenResty's numbers.
do
    local numbers, at = {}, 1
    for name in ("set rewrite access content log header_filter body_filter timer init_worker balancer ssl_cert ssl_session_store "
        .. "ssl_session_fetch exit_worker ssl_client_hello server_rewrite proxy_ssl_verify precontent proxy_ssl_cert"):gmatch "%S+" do
        numbers[name], at = at, at * 2
    end
    function ngx.get_raw_phase()
        return numbers[weir.phase()]
    end
end

part("ctx", function()
    return {
        -- If there is none yet, it is to be that.
        get_ctx_table = function(t)
            if t and not weir.has_ctx() then
                ngx.ctx = t
            end
            return ngx.ctx
        end,
    }
end)

part("misc", function()
    return {
        register_ngx_magic_key_getter = function(key, f)
            weir.getters[key] = f
        end,
        register_ngx_magic_key_setter = function(key, f)
            weir.setters[key] = function(value)
                return f(ngx, value)
            end
        end,
    }
end)

part("regex", function()
    local re = ngx.re
    return {
        match = re.match, find = re.find, sub = re.sub, gsub = re.gsub, gmatch = re.gmatch,
        re_match_compile = weir.re.compile, re_sub_compile = weir.re.compile_sub,
        destroy_compiled_regex = weir.re.destroy, is_regex_cache_empty = weir.re.is_empty,
        -- There is no buffer of Lua's own that would grow.
        set_buf_grow_ratio = function(ratio)
            if type(ratio) ~= "number" then
                error("bad argument #1 to 'set_buf_grow_ratio' (number expected, got " .. type(ratio) .. ")", 2)
            end
        end,
        -- Room for so many bytes, in place of what is too small; where writing goes on, and how much is written then.
        check_buf_size = function(buffer, size, pos, length, wanted, must_alloc)
            if wanted > size then
                size = math.max(size * 2, wanted)
                local larger = require "resty.core.base".get_string_buf(size, must_alloc)
                ffi.copy(larger, buffer, length)
                buffer, pos = larger, larger + length
            end
            return buffer, size, pos, wanted
        end,
    }
end)

part("request", function()
    local req = ngx.req or {}
    return {
        get_headers = req.get_headers, get_uri_args = req.get_uri_args, get_method = req.get_method,
        set_method = req.set_method, set_header = req.set_header, clear_header = req.clear_header,
        start_time = req.start_time,
        -- In place of what there is of that name, or besides.
        set_req_header = function(name, value, override)
            if override then
                return req.set_header(name, value)
            end
            return require "ngx.req".add_header(name, value)
        end,
    }
end)

part("response", function()
    return {
        set_resp_header = function(_, name, value)
            ngx.header[name] = value
        end,
        get_resp_header = function(_, name)
            return ngx.header[name]
        end,
        bypass_if_checks = not weir.stream and require "ngx.resp".bypass_if_checks or nil,
    }
end)

local monotonic = weir.native "monotonic"

part("time", function()
    return {
        now = ngx.now, time = ngx.time, update_time = ngx.update_time, today = ngx.today, localtime = ngx.localtime,
        utctime = ngx.utctime, cookie_time = ngx.cookie_time, http_time = ngx.http_time,
        parse_http_time = ngx.parse_http_time,
        monotonic_msec = monotonic,
        monotonic_time = function()
            return monotonic() / 1000
        end,
    }
end)

part("worker", function()
    local worker = ngx.worker
    return {
        id = worker.id, count = worker.count, pid = worker.pid, pids = worker.pids, exiting = worker.exiting,
    }
end)
