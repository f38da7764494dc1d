-- ngx.var, ngx.arg.

local weir = ...
local ngx, op, C, finish = weir.ngx, weir.op, weir.C, weir.finish
local error, type, tostring, setmetatable, tonumber = error, type, tostring, setmetatable, tonumber

local native = weir.native
local capture, unset = native "capture", native "unset_var"
local OP_GET, OP_SET = op "var", op "set_var"

local function set(name, value)
    return C(OP_SET, 0, name, #name, value, #value, 0, 0)
end

ngx.var = setmetatable({}, {
    __index = function(_, name)
        if type(name) == "string" then
            return finish(C(OP_GET, 0, name, #name, "", 0, 0, 0))
        elseif type(name) ~= "number" then
            error("bad variable name", 2)
        elseif name < 0 then
            error("bad argument \"" .. name .. "\" to ngx.var (non-negative number expected)", 2)
        end
        return capture(name)
    end,
    __newindex = function(_, name, value)
        if type(name) ~= "string" then
            error("bad variable name", 2)
        end
        local kind = type(value)
        if kind == "string" then
            return finish(C(OP_SET, 0, name, #name, value, #value, 0, 0))
        elseif kind == "number" then
            return finish(set(name, tostring(value)))
        elseif kind == "nil" then
            return unset(0, name)
        elseif kind == "boolean" then
            return finish(set(name, tostring(value)))
        end
        error("bad variable value type: " .. kind, 2)
    end,
})

local arg, set_arg = native "arg", native "set_arg"

ngx.arg = setmetatable({}, {
    __index = function(_, n)
        return arg(tonumber(n) or 0)
    end,
    __newindex = function(_, n, value)
        local kind = type(value)
        if n == 1 and kind == "table" then
            value = weir.text_of("arg", false, 1, value)
        elseif n == 2 then
            value = value and "1" or ""
        elseif kind ~= "string" and kind ~= "number" and kind ~= "nil" then
            error("bad chunk data type: " .. kind, 2)
        end
        if n ~= 1 and n ~= 2 then
            error("bad index", 2)
        end
        return set_arg(n, value)
    end,
})

-- Code of `set_by_lua` gets its arguments, and its value is told.
local set_args, result = native "set_args", native "result"

weir.keep(1, function(f)
    return f(set_args())
end)
weir.keep(2, function(value)
    result(0, tostring(value))
end)
