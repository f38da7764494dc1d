-- ngx.var, ngx.arg.

local weir = ...
local raw, op, check, C, out, ngx = weir.raw, weir.op, weir.check, weir.C, weir.out, weir.ngx
local ffi_string = require("ffi").string
local error, type, tostring, setmetatable, tonumber = error, type, tostring, setmetatable, tonumber

local OP_VAR, OP_SET_VAR, OP_CAPTURE = op "var", op "set_var", op "capture"

ngx.var = setmetatable({}, {
    __index = function(_, name)
        local code
        if type(name) == "number" then
            if name < 0 then
                error("bad argument \"" .. name .. "\" to ngx.var (non-negative number expected)", 2)
            end
            code = C(OP_CAPTURE, name, "", 0, "", 0, 0, 0)
        else
            if type(name) ~= "string" then
                error("bad variable name", 2)
            end
            code = C(OP_VAR, 0, name, #name, "", 0, 0, 0)
        end
        if code == 2 then
            return ffi_string(out.p, out.n)
        end
        check(code)
        return nil
    end,
    __newindex = function(_, name, value)
        if type(name) ~= "string" then
            error("bad variable name", 2)
        end
        local kind = type(value)
        local text = ""
        if kind == "string" or kind == "number" then
            text = tostring(value)
        elseif kind == "nil" then
            text = nil
        elseif kind == "boolean" then
            text = tostring(value)
        else
            error("bad variable value type: " .. kind, 2)
        end
        check(raw(OP_SET_VAR, text and 1 or 0, name, text))
    end,
})

local OP_ARG, OP_SET_ARG = op "arg", op "set_arg"

ngx.arg = setmetatable({}, {
    __index = function(_, n)
        local code = check(C(OP_ARG, tonumber(n) or 0, "", 0, "", 0, 0, 0))
        if code == 2 then
            return ffi_string(out.p, out.n)
        elseif code == 1 then
            return true
        elseif code == 4 then
            return false
        end
        return nil
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
        check(raw(OP_SET_ARG, n, value == nil and "" or tostring(value)))
    end,
})

local OP_RESULT, OP_SET_ARGS = op "result", op "set_args"

function weir.arguments()
    if weir.phase() ~= "set" then
        return
    end
    weir.run().on_return = function(value)
        if value ~= nil then
            local text = tostring(value)
            C(OP_RESULT, 0, text, #text, "", 0, 0, 0)
        end
    end
    local code = C(OP_SET_ARGS, 0, "", 0, "", 0, 0, 0)
    if code == 5 then
        local t, n = weir.list()
        return unpack(t, 1, n)
    end
end
