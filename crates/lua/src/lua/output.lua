-- What goes to the client, and to the log.

local weir = ...
local op, C = weir.op, weir.C
local ngx, null = weir.ngx, weir.null
local error, type, tostring, select, getmetatable = error, type, tostring, select, getmetatable
local concat, floor = table.concat, math.floor
local debug_getinfo = debug.getinfo

local native = weir.native
local send_headers = native "send_headers"
local OP_LOG, OP_LOG_ENABLED = op "log", op "log_enabled"

-- An argument's text, appended to parts; tables are arrays of the same.
local function append(parts, n, value, at, name, what)
    local kind = type(value)
    if kind == "string" then
        n = n + 1
        parts[n] = value
    elseif kind == "number" or kind == "boolean" then
        n = n + 1
        parts[n] = tostring(value)
    elseif kind == "nil" then
        n = n + 1
        parts[n] = "nil"
    elseif value == null then
        n = n + 1
        parts[n] = "null"
    elseif kind == "table" then
        local meta = getmetatable(value)
        if what == nil and meta and meta.__tostring then
            n = n + 1
            parts[n] = tostring(value)
            return n
        end
        local last = 0
        for key in pairs(value) do
            if type(key) ~= "number" or key <= 0 or key ~= floor(key) then
                error("bad argument #" .. at .. " to '" .. name .. "' (non-array table found)", 4)
            end
            if key > last then
                last = key
            end
        end
        for key = 1, last do
            local item = value[key]
            local of = type(item)
            if of == "userdata" or of == "function" or of == "thread" or of == "cdata" then
                if item ~= null then
                    error("bad argument #" .. at .. " to '" .. name .. "' (bad data type " .. (of == "userdata" and "userdata" or of) .. " found)", 4)
                end
            end
            n = append(parts, n, item, at, name, true)
        end
    else
        error("bad argument #" .. at .. " to '" .. name
            .. "' (string, number, boolean, nil, ngx.null, or array table expected, but got " .. kind .. ")", 4)
    end
    return n
end

local function text_of(name, newline, n, first, ...)
    if n == 1 and type(first) == "string" then
        return newline and first .. "\n" or first
    end
    local parts, m = {}, 0
    for at = 1, n do
        m = append(parts, m, (select(at, first, ...)), at, name, true)
    end
    if newline then
        parts[m + 1] = "\n"
    end
    return concat(parts)
end
weir.text_of = text_of

-- What puts out by these operations: of a request, or of a session of stream.
function weir.put_out(print_name, flush_name, eof_name, at_eof)
    local flush, eof = native(flush_name), native(eof_name)
    ngx.print = weir.texts(print_name, "", function(n, ...)
        return text_of("print", false, n, ...)
    end)
    ngx.say = weir.texts(print_name, "\n", function(n, ...)
        return text_of("say", false, n, ...)
    end)

    function ngx.flush(...)
        if select("#", ...) > 1 then
            error("attempt to pass " .. select("#", ...) .. " arguments, but accepted 0 or 1", 2)
        end
        local wait = ...
        if wait ~= nil and type(wait) ~= "boolean" then
            error("bad argument #1 to 'flush' (boolean expected, got " .. type(wait) .. ")", 2)
        end
        return flush(wait and 1 or 0)
    end

    function ngx.eof(...)
        if select("#", ...) ~= 0 then
            error("no argument is expected", 2)
        end
        if at_eof and weir.debugs() then
            weir.report(8, at_eof)
        end
        return eof()
    end
end
weir.put_out("print", "flush", "eof")

function ngx.send_headers()
    return send_headers()
end

local function log_text(...)
    local n = select("#", ...)
    local parts, m = {}, 0
    for at = 1, n do
        local value = select(at, ...)
        local kind = type(value)
        m = m + 1
        if kind == "string" then
            parts[m] = value
        elseif value == null then
            parts[m] = "null"
        elseif kind == "table" then
            local meta = getmetatable(value)
            if not (meta and meta.__tostring) then
                error("bad argument #" .. at + weir.log_offset .. " to 'log' (expected table to have __tostring metamethod)", 3)
            end
            parts[m] = tostring(value)
        elseif kind == "number" or kind == "boolean" or kind == "nil" then
            parts[m] = tostring(value)
        else
            error("bad argument #" .. at + weir.log_offset
                .. " to 'log' (string, number, boolean, or nil expected, got " .. kind .. ")", 3)
        end
    end
    return concat(parts)
end
weir.log_offset = 1

-- "[lua] nginx.conf:42: say(): "
local function place(level)
    local info = debug_getinfo(level, "nSl")
    if not info then
        return (weir.stream or "") .. "[lua] "
    end
    local text = (weir.stream or "") .. "[lua] " .. info.short_src:gsub("^.*/", "") .. ":" .. (info.currentline or 0) .. ": "
    if info.name then
        text = text .. info.name .. "(): "
    end
    return text
end

function ngx.log(level, ...)
    if type(level) ~= "number" then
        error("bad argument #1 to 'log' (number expected, got " .. (level == nil and "no value" or type(level)) .. ")", 2)
    end
    if level < 0 or level > 8 then
        error("bad log level: " .. level, 2)
    end
    if C(OP_LOG_ENABLED, level, "", 0, "", 0, 0, 0) ~= 1 then
        return
    end
    local text = log_text(...)
    text = place(3) .. text
    C(OP_LOG, level, text, #text, "", 0, 0, 0)
end

function print(...)
    if C(OP_LOG_ENABLED, 6, "", 0, "", 0, 0, 0) ~= 1 then
        return
    end
    local text = log_text(...)
    text = place(3) .. text
    C(OP_LOG, 6, text, #text, "", 0, 0, 0)
end

-- In stream the log's lines say so, but for those of datagrams.
function weir.named(text)
    if weir.stream and text:find("^lua ") and not text:find("^lua udp") then
        return weir.stream .. text
    end
    return text
end

-- Whether lines of the level debug go anywhere.
function weir.debugs()
    return C(OP_LOG_ENABLED, 8, "", 0, "", 0, 0, 0) == 1
end

function weir.debug(...)
    if weir.debugs() then
        weir.report(8, weir.named(concat { ... }))
    end
end
