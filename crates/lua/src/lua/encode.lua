-- Escapes, digests, check sums, and what tables make of arguments.

local weir = ...
local finish, op, check, C, ngx = weir.finish, weir.op, weir.check, weir.C, weir.ngx
local ask = weir.ask
local error, type, tostring, pairs, tonumber = error, type, tostring, pairs, tonumber
local concat, native = table.concat, weir.native

local function string_of(value, name, at)
    local kind = type(value)
    if kind == "string" then
        return value
    elseif kind == "number" then
        return tostring(value)
    end
    error("bad argument #" .. (at or 1) .. " to '" .. name .. "' (string expected, got " .. (value == nil and "nil" or kind) .. ")", 3)
end
weir.string_of = string_of

-- A function of one text; what is nil counts as empty, numbers and booleans as their text.
local function of_text(name)
    local of = op(name)
    return function(text)
        if type(text) ~= "string" then
            text = text == nil and "" or tostring(text)
        end
        return finish(C(of, 0, text, #text, "", 0, 0, 0))
    end
end

local OP_ESCAPE, OP_UNESCAPE = op "escape_uri", op "unescape_uri"
local escape = native "escape_uri"

function ngx.escape_uri(text, kind)
    if type(text) ~= "string" then
        text = text == nil and "" or tostring(text)
    end
    if kind == nil then
        kind = 2
    elseif type(kind) ~= "number" then
        error('"type" is not a number', 2)
    elseif kind < 0 or kind > 9 then
        error('"type" ' .. kind .. " out of range", 2)
    end
    return finish(C(OP_ESCAPE, kind, text, #text, "", 0, 0, 0))
end

function ngx.unescape_uri(text)
    if type(text) ~= "string" then
        text = text == nil and "" or tostring(text)
    end
    return finish(C(OP_UNESCAPE, 0, text, #text, "", 0, 0, 0))
end

ngx.md5, ngx.md5_bin, ngx.sha1_bin = of_text "md5", of_text "md5_bin", of_text "sha1_bin"
ngx.crc32_short, ngx.crc32_long = of_text "crc32", of_text "crc32"
ngx.quote_sql_str = of_text "quote_sql_str"

local OP_HMAC = op "hmac_sha1"
function ngx.hmac_sha1(key, text)
    key, text = string_of(key, "hmac_sha1"), string_of(text, "hmac_sha1", 2)
    return ask(OP_HMAC, 0, key, text)
end

local OP_ENCODE_64, OP_DECODE_64 = op "encode_base64", op "decode_base64"

function ngx.encode_base64(text, no_padding)
    if type(text) ~= "string" then
        text = text == nil and "" or tostring(text)
    end
    if no_padding == nil then
        no_padding = false
    elseif type(no_padding) ~= "boolean" then
        error("bad argument #2 to 'encode_base64' (boolean expected, got " .. type(no_padding) .. ")", 2)
    end
    return finish(C(OP_ENCODE_64, no_padding and 1 or 0, text, #text, "", 0, 0, 0))
end

function ngx.decode_base64(text)
    if type(text) ~= "string" then
        error("string argument only", 2)
    end
    return finish(C(OP_DECODE_64, 0, text, #text, "", 0, 0, 0))
end

function ngx.decode_base64mime(text)
    if type(text) ~= "string" then
        error("string argument only", 2)
    end
    return finish(C(OP_DECODE_64, 1, text, #text, "", 0, 0, 0))
end

package.preload["ngx.base64"] = function()
    local M = { version = weir.core_version, _VERSION = "0.1" }
    function M.encode_base64url(text)
        if type(text) ~= "string" then
            return nil, "must provide a string"
        end
        return finish(C(OP_ENCODE_64, 2, text, #text, "", 0, 0, 0))
    end
    function M.decode_base64url(text)
        if type(text) ~= "string" then
            return nil, "must provide a string"
        end
        local value = finish(C(OP_DECODE_64, 2, text, #text, "", 0, 0, 0))
        if value == nil then
            return nil, "invalid input"
        end
        return value
    end
    M.encode_base64mime = nil
    M.decode_base64mime = ngx.decode_base64mime
    return M
end

local function escaped(text)
    return escape(2, text)
end

-- `level` is that of errors, seen from here.
function weir.encode_args(t, level)
    local parts, n = {}, 0
    local function put(name, value)
        local kind = type(value)
        if kind == "boolean" then
            if value then
                n = n + 1
                parts[n] = name
            end
        elseif kind == "string" or kind == "number" then
            n = n + 1
            parts[n] = name .. "=" .. escaped(tostring(value))
        else
            error("attempt to use " .. kind .. " as query arg value", level + 1)
        end
    end
    for key, value in pairs(t) do
        if type(key) ~= "string" and type(key) ~= "number" then
            error("attempt to use a non-string key in the \"args\" option table", level)
        end
        local name = escaped(tostring(key))
        if type(value) == "table" then
            for _, item in ipairs(value) do
                put(name, item)
            end
        else
            put(name, value)
        end
    end
    return concat(parts, "&")
end

function ngx.encode_args(t)
    if type(t) ~= "table" then
        error("bad argument #1 to 'encode_args' (table expected, got " .. (t == nil and "nil" or type(t)) .. ")", 2)
    end
    local text = weir.encode_args(t, 3)
    return text
end

-- Names and values in pairs; names that come again have lists.
local decode_args = native "decode_args"

function ngx.decode_args(text, max)
    if type(text) ~= "string" then
        error("bad argument #1 to 'decode_args' (string expected, got " .. (text == nil and "nil" or type(text)) .. ")", 2)
    end
    local all, e = decode_args(max or 100, text)
    if e then
        weir.debug("lua hit query args limit ", max or 100)
        return all, e
    end
    return all
end

-- Tables as OpenResty's LuaJIT knows them.
local next = next
package.preload["table.isempty"] = function()
    return table.isempty
end
function table.isempty(t)
    if type(t) ~= "table" then
        error("bad argument #1 to 'isempty' (table expected, got " .. (t == nil and "nil" or type(t)) .. ")", 2)
    end
    return next(t) == nil
end
function table.isarray(t)
    if type(t) ~= "table" then
        error("bad argument #1 to 'isarray' (table expected, got " .. (t == nil and "nil" or type(t)) .. ")", 2)
    end
    for key in next, t do
        if type(key) ~= "number" or key < 0 or key % 1 ~= 0 then
            return false
        end
    end
    return true
end
function table.nkeys(t)
    if type(t) ~= "table" then
        error("bad argument #1 to 'nkeys' (table expected, got " .. (t == nil and "nil" or type(t)) .. ")", 2)
    end
    local n = 0
    for _ in next, t do
        n = n + 1
    end
    return n
end
function table.clone(t)
    if type(t) ~= "table" then
        error("bad argument #1 to 'clone' (table expected, got " .. (t == nil and "nil" or type(t)) .. ")", 2)
    end
    local copy = {}
    for key, value in next, t do
        copy[key] = value
    end
    return copy
end
for _, name in ipairs { "isarray", "nkeys", "clone" } do
    package.preload["table." .. name] = function()
        return table[name]
    end
end
package.preload["thread.exdata"] = function()
    local kept = setmetatable({}, { __mode = "k" })
    return function(value)
        local co = coroutine.running() or "main"
        if value == nil then
            return kept[co]
        end
        kept[co] = value
    end
end
