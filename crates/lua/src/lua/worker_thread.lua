-- ngx.run_worker_thread, and what such a thread runs.

local weir = ...
local native, pack, null = weir.native, weir.pack, weir.null
local type, tostring, pcall, require = type, tostring, pcall, require
local next, pairs, select, unpack, setmetatable = next, pairs, select, unpack, setmetatable
local package, ngx, collectgarbage = package, ngx, collectgarbage
local DEPTH_MAX = 100

-- Why a value cannot be copied to another state, if it cannot.
local refuse
refuse = function(value, depth)
    local kind = type(value)
    if kind == "table" then
        if depth >= DEPTH_MAX then
            return "suspicious circular references, table depth exceed max depth: " .. DEPTH_MAX
        end
        for k, v in next, value do
            local why = refuse(k, depth + 1) or refuse(v, depth + 1)
            if why then
                return why
            end
        end
    elseif kind == "userdata" and value == null or kind == "boolean" or kind == "number" or kind == "string" then
        return nil
    elseif kind == "cdata" then
        return "unsupported Lua type"
    else
        return "unsupported Lua type: LUA_T" .. kind:upper()
    end
end

local buffer

local function packed(n, ...)
    buffer = buffer or require "string.buffer"
    for at = 1, n do
        local value = select(at, ...)
        local why = value ~= nil and refuse(value, 1)
        if why then
            return nil, why
        end
    end
    local ok, text = pcall(buffer.encode, { n = n, ... })
    if not ok then
        return nil, tostring(text)
    end
    return text
end

local function unpacked(text)
    buffer = buffer or require "string.buffer"
    local t = buffer.decode(text)
    return unpack(t, 1, t.n)
end

-- Without metatables: numbers stand for strings, as in C.
local function is_text(value)
    return type(value) == "string" or type(value) == "number"
end

local run = native("worker_thread", 2)

-- Results, behind whether there are any.
local function results(ok, text)
    if not ok then
        return false, text
    end
    return true, unpacked(text)
end

function ngx.run_worker_thread(...)
    local pool, module, name = ...
    local n = select("#", ...)
    if n < 3 then
        return false, "expecting at least 3 arguments"
    elseif not is_text(pool) then
        return false, "threadpool should be a string"
    elseif not is_text(module) then
        return false, "module name should be a string"
    elseif not is_text(name) then
        return false, "function name should be a string"
    end
    local text, why = packed(n - 3, select(4, ...))
    if not text then
        return false, why .. " in the argument"
    end
    return results(run(0, pack { pool, module, name, text, package.path, package.cpath }))
end

------------------------------------------------------------------------------------------------------ in a thread

-- What there is of `ngx` there: nothing that has to do with requests, waits or the worker.
local THERE = {
    "encode_base64", "decode_base64", "decode_base64mime", "hmac_sha1", "encode_args", "decode_args",
    "quote_sql_str", "crc32_short", "crc32_long", "md5", "md5_bin", "sha1_bin", "config", "shared", "null",
}

local function trim()
    local own = {}
    for _, name in pairs(THERE) do
        own[name] = ngx[name]
    end
    _G.ngx = own
    package.loaded.ngx = own
    -- One job at a time has it, which may make what globals it likes.
    setmetatable(_G, nil)
    for _, modules in pairs { package.loaded, package.preload } do
        for name in pairs(modules) do
            if type(name) == "string" and name:find("^ngx%.") and name ~= "ngx.base64" then
                modules[name] = nil
            end
        end
    end
end

local job, done = native "apart_job", native "apart_done"
local is_trimmed, collect_at_kb = false, 4096

local function told(ok, ...)
    if not ok then
        return done(0, "-" .. tostring((...)))
    end
    local text, why = packed(select("#", ...), ...)
    if not text then
        return done(0, "-" .. why .. " in the return value")
    end
    return done(0, "+" .. text)
end

-- Errors without a place: their words are the caller's.
local function of(module, name)
    local ok, functions = pcall(require, module)
    if not ok then
        return nil, functions
    elseif type(functions) ~= "table" then
        return nil, "invalid lua module"
    elseif type(functions[name]) ~= "function" then
        return nil, "invalid function"
    end
    return functions[name]
end

weir.keep(7, function()
    local module, name, text, path, cpath = job()
    if not is_trimmed then
        is_trimmed = true
        trim()
    end
    package.path, package.cpath = path, cpath
    local f, why = of(module, name)
    if f then
        told(pcall(f, unpacked(text)))
    else
        told(false, why)
    end
    -- The next job may be long in coming.
    if collectgarbage "count" > collect_at_kb then
        collectgarbage()
        collect_at_kb = 2 * collectgarbage "count"
    end
end)
