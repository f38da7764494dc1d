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
]]

-- LuaJIT puts them there when they are first wanted, which lua-resty-core does.
require "table.new"
require "table.clear"

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
        if at and at ~= 0 then
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
        if not id or id <= 0 then
            return nil
        end
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
    "uri", "hash", "base64", "exit", "shdict", "var", "phase", "ndk", "socket", "coroutine", "param", "utils",
} do
    part(name)
end

part("ctx", function()
    return {
        get_ctx_table = function()
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
        -- There is no buffer of Lua's own that would grow.
        set_buf_grow_ratio = function(ratio)
            if type(ratio) ~= "number" then
                error("bad argument #1 to 'set_buf_grow_ratio' (number expected, got " .. type(ratio) .. ")", 2)
            end
        end,
    }
end)

part("request", function()
    local req = ngx.req or {}
    return {
        get_headers = req.get_headers, get_uri_args = req.get_uri_args, get_method = req.get_method,
        set_method = req.set_method, set_header = req.set_header, clear_header = req.clear_header,
        start_time = req.start_time,
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
    }
end)

part("time", function()
    return {
        now = ngx.now, time = ngx.time, update_time = ngx.update_time, today = ngx.today, localtime = ngx.localtime,
        utctime = ngx.utctime, cookie_time = ngx.cookie_time, http_time = ngx.http_time,
        parse_http_time = ngx.parse_http_time,
    }
end)

part("worker", function()
    local worker = ngx.worker
    return {
        id = worker.id, count = worker.count, pid = worker.pid, pids = worker.pids, exiting = worker.exiting,
    }
end)
