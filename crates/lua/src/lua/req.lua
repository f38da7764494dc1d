-- ngx.req.

local weir = ...
local raw, op, check, ngx = weir.raw, weir.op, weir.check, weir.ngx
local ask = weir.ask
local error, type, tostring, setmetatable = error, type, tostring, setmetatable

local req = {}
ngx.req = req

local native = weir.native
local headers, uri_args, post_args = native("headers_in", 2), native("uri_args", 2), native("post_args", 2)
local OP_SET_METHOD, OP_VERSION = op "set_method", op "http_version"
local OP_SET_HEADER, OP_RAW_HEADER = op "set_header_in", op "raw_header"
local OP_SET_ARGS, OP_SET_URI = op "set_uri_args", op "set_uri"
local OP_DISCARD, OP_BODY, OP_BODY_FILE = op "discard_body", op "body_data", op "body_file"
local OP_SET_BODY, OP_SET_BODY_FILE = op "set_body_data", op "set_body_file"
local OP_INIT_BODY, OP_APPEND_BODY, OP_FINISH_BODY = op "init_body", op "append_body", op "finish_body"
local OP_IS_INTERNAL, OP_START_TIME = op "is_internal", op "start_time"

local get_method = native "method"
function req.get_method()
    return get_method()
end

function req.set_method(method)
    if type(method) ~= "number" then
        error("bad method number", 2)
    end
    check(raw(OP_SET_METHOD, method))
end

function req.http_version()
    return ask(OP_VERSION)
end

function req.start_time()
    return ask(OP_START_TIME)
end

function req.is_internal()
    return ask(OP_IS_INTERNAL)
end

function req.raw_header(no_line)
    return ask(OP_RAW_HEADER, no_line and 1 or 0)
end

local function count(max, name)
    if max == nil then
        return 100
    elseif type(max) ~= "number" then
        error("bad argument #1 to '" .. name .. "' (number expected, got " .. type(max) .. ")", 3)
    elseif max < 0 then
        return 100
    end
    return max
end

function req.get_headers(max, keep_case)
    local n = count(max, "get_headers")
    local all, e = headers(n, keep_case and "1" or nil)
    if not keep_case then
        setmetatable(all, weir.lower_meta)
    end
    if e then
        weir.debug("lua exceeding request header limit ", n + 1, " > ", n)
        return all, e
    end
    return all
end

local function name_of(name, who)
    if type(name) ~= "string" then
        if type(name) ~= "number" then
            error("bad argument #1 to '" .. who .. "' (string expected, got " .. (name == nil and "nil" or type(name)) .. ")", 3)
        end
        name = tostring(name)
    end
    return name
end

-- Tail called by what code calls, so that errors name the code.
local function set(name, value, how, who)
    name = name_of(name, who)
    if type(value) == "table" then
        if #value == 0 then
            check(raw(OP_SET_HEADER, 0, name, nil))
            return
        end
        for at = 1, #value do
            check(raw(OP_SET_HEADER, at == 1 and how or 2, name, tostring(value[at])))
        end
        return
    elseif value == nil then
        check(raw(OP_SET_HEADER, 0, name, nil))
        return
    end
    check(raw(OP_SET_HEADER, how, name, tostring(value)))
end

function req.set_header(name, value, ...)
    if select("#", ...) > 0 then
        error("expecting two arguments, but got " .. 2 + select("#", ...), 2)
    end
    local kind = type(value)
    if kind == "function" or kind == "thread" or kind == "userdata" then
        error("bad argument #2 to 'set_header' (string, number, or array table expected, got " .. kind .. ")", 2)
    end
    return set(name, value, 1, "set_header")
end

function req.clear_header(name)
    return set(name, nil, 1, "clear_header")
end

package.preload["ngx.req"] = function()
    return {
        version = weir.core_version,
        add_header = function(name, value)
            if type(value) == "table" and #value == 0 then
                error("bad 'header_value' argument: got empty table", 2)
            elseif value == nil then
                error("bad 'header_value' argument: string or table expected, got nil", 2)
            end
            return set(name, value, 2, "add_header")
        end,
    }
end

function req.get_uri_args(max, t)
    if type(max) == "table" then
        max, t = nil, max
    end
    local n = count(max, "get_uri_args")
    local all, e = uri_args(n)
    if type(t) == "table" then
        for key in pairs(t) do
            t[key] = nil
        end
        for key, value in pairs(all) do
            t[key] = value
        end
        all = t
    end
    if e then
        weir.debug("lua hit query args limit ", n)
        return all, e
    end
    return all
end
req.get_query_args = req.get_uri_args

function req.get_post_args(max)
    local n = count(max, "get_post_args")
    local all, e = post_args(n)
    if e then
        if all then
            weir.debug("lua hit query args limit ", n)
        end
        return all, e
    end
    return all
end

function req.set_uri_args(args)
    local kind = type(args)
    local text
    if kind == "table" then
        text = weir.encode_args(args, 3)
    elseif kind == "string" or kind == "number" then
        text = tostring(args)
    else
        error("bad argument #1 to 'set_uri_args' (string, number, or table expected, but got " .. (args == nil and "nil" or kind) .. ")", 2)
    end
    check(raw(OP_SET_ARGS, 0, text))
end

function req.set_uri(uri, jump, binary)
    if type(uri) ~= "string" then
        if type(uri) ~= "number" then
            error("bad argument #1 to 'set_uri' (string expected, got " .. (uri == nil and "nil" or type(uri)) .. ")", 2)
        end
        uri = tostring(uri)
    end
    if jump ~= nil and type(jump) ~= "boolean" then
        error("bad argument #2 to 'set_uri' (boolean expected, got " .. type(jump) .. ")", 2)
    end
    if uri == "" then
        error("attempt to use zero-length uri", 2)
    end
    check(raw(OP_SET_URI, (jump and 1 or 0) + (binary and 2 or 0), uri))
    if jump then
        weir.leave()
    end
end

local read_body, exit = native("read_body", 2), native "exit"

function req.read_body()
    local status = read_body()
    if type(status) == "number" then
        exit(status, nil, nil, 1)
    end
end

function req.discard_body()
    check(raw(OP_DISCARD))
end

function req.get_body_data(max)
    return ask(OP_BODY, max or 0)
end

function req.get_body_file()
    return ask(OP_BODY_FILE)
end

function req.set_body_data(text)
    if type(text) ~= "string" then
        text = name_of(text, "set_body_data")
    end
    local code = check(raw(OP_SET_BODY, 0, text))
end

function req.set_body_file(path, clean)
    check(raw(OP_SET_BODY_FILE, clean and 1 or 0, name_of(path, "set_body_file")))
end

function req.init_body(size)
    if size ~= nil and (type(size) ~= "number" or size < 0) then
        error("bad argument #1 to 'init_body' (bad buffer size)", 2)
    end
    check(raw(OP_INIT_BODY, size or -1))
end

function req.append_body(text)
    check(raw(OP_APPEND_BODY, 0, name_of(text, "append_body")))
end

function req.finish_body()
    check(raw(OP_FINISH_BODY))
end
