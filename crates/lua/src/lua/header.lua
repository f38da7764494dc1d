-- ngx.header, ngx.resp.

local weir = ...
local raw, op, check, ngx, C, finish = weir.raw, weir.op, weir.check, weir.ngx, weir.C, weir.finish
local error, type, tostring, setmetatable = error, type, tostring, setmetatable

local OP_SET = op "set_header_out"
local OP_STATUS_LINE, OP_BYPASS = op "set_status_line", op "bypass_if_checks"

local function value_of(value, what)
    local kind = type(value)
    if kind == "string" then
        return value
    elseif kind == "number" or kind == "boolean" then
        return tostring(value)
    end
    return nil
end

local function put(name, value, level)
    local kind = type(name)
    if kind ~= "string" then
        if kind ~= "number" then
            error("bad argument #1 to '__newindex' (string expected, got " .. kind .. ")", level)
        end
        name = tostring(name)
    end
    if type(value) == "table" then
        local n = #value
        if n == 0 then
            return raw(OP_SET, 0, name, nil)
        end
        local code = 1
        for at = 1, n do
            local text = value_of(value[at])
            if not text then
                error("attempt to use " .. type(value[at]) .. " as a header value", level)
            end
            code = raw(OP_SET, at == 1 and 1 or 2, name, text)
            if code < 0 then
                return code
            end
        end
        return code
    end
    if value == nil then
        return raw(OP_SET, 0, name, nil)
    end
    return raw(OP_SET, 1, name, tostring(value))
end

local native = weir.native
local get, all_headers = native "get_header_out", native("headers_out", 2)
local OP_GET = op "get_header_out"

ngx.header = setmetatable({}, {
    __index = function(_, name)
        if type(name) ~= "string" then
            name = tostring(name)
        end
        local code = C(OP_GET, 0, name, #name, "", 0, 0, 0)
        if code == 5 then
            return { get(0, name) }
        end
        return finish(code)
    end,
    __newindex = function(_, name, value)
        if type(name) == "string" and type(value) == "string" then
            return finish(C(OP_SET, 1, name, #name, value, #value, 0, 0))
        end
        check(put(name, value, 3))
    end,
})

ngx.resp = {}

local lower = {
    __index = function(t, name)
        if type(name) ~= "string" then
            return nil
        end
        return rawget(t, (name:gsub("_", "-"):lower()))
    end,
}
weir.lower_meta = lower

function ngx.resp.get_headers(max, keep_case)
    if max ~= nil and type(max) ~= "number" then
        error("bad argument #1 to 'get_headers' (number expected, got " .. type(max) .. ")", 2)
    end
    local all, e = all_headers(max or 100, keep_case and "1" or nil)
    if not keep_case then
        setmetatable(all, lower)
    end
    if e then
        max = max or 100
        weir.debug("lua exceeding response header limit ", max + 1, " > ", max)
        return all, e
    end
    return all
end

function ngx.resp.add_header(name, value)
    local kind = type(name)
    if kind ~= "string" and kind ~= "number" then
        error("bad argument #1 to 'add_header' (string expected, got " .. (name == nil and "nil" or kind) .. ")", 2)
    end
    if type(value) == "table" then
        for at = 1, #value do
            check(raw(OP_SET, 2, tostring(name), tostring(value[at])))
        end
        return
    end
    if value == nil then
        error("bad 'value' argument: string or table expected, got nil", 2)
    end
    check(raw(OP_SET, 2, tostring(name), tostring(value)))
end

package.preload["ngx.resp"] = function()
    return {
        version = weir.core_version,
        add_header = ngx.resp.add_header,
        set_status = function(status, reason)
            check(raw(OP_STATUS_LINE, status, reason and tostring(reason) or nil))
        end,
        -- What the request asks for under conditions is sent whole.
        bypass_if_checks = function()
            check(raw(OP_BYPASS))
        end,
    }
end
