-- ngx.shared

local weir = ...
local raw, finish, op, check, C, out, ngx = weir.raw, weir.finish, weir.op, weir.check, weir.C, weir.out, weir.ngx
local ffi_string = require("ffi").string
local error, type, tostring, setmetatable, tonumber = error, type, tostring, setmetatable, tonumber
local bor, lshift = bit.bor, bit.lshift
local null = weir.null

local OP_GET, OP_GET_STALE, OP_SET, OP_FLAGS = op "dict_get", op "dict_get_stale", op "dict_set", op "dict_flags"
local OP_DELETE, OP_INCR, OP_INIT, OP_PUSH, OP_POP = op "dict_delete", op "dict_incr", op "dict_init", op "dict_push", op "dict_pop"
local OP_LLEN, OP_TTL, OP_EXPIRE = op "dict_llen", op "dict_ttl", op "dict_expire"
local OP_FLUSH_ALL, OP_FLUSH_EXPIRED, OP_KEYS, OP_SPACE = op "dict_flush_all", op "dict_flush_expired", op "dict_keys", op "dict_space"

local Dict = {}
local meta = { __index = Dict }

local function number_of(dict)
    local n = type(dict) == "table" and dict[1]
    if type(n) ~= "number" then
        error('bad "zone" argument', 3)
    end
    return n
end

-- The key, or nil and why not.
local function key_of(key)
    if type(key) ~= "string" then
        if key == nil then
            return nil, "nil key"
        end
        key = tostring(key)
    end
    if #key == 0 then
        return nil, "empty key"
    elseif #key > 65535 then
        return nil, "key too long"
    end
    return key
end

local function value_of(code)
    if code == 2 then
        return ffi_string(out.p, out.n)
    elseif code == 3 then
        return out.x
    elseif code == 1 then
        return true
    elseif code == 4 then
        return false
    end
    return nil
end

function Dict.get(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    local code = C(OP_GET, n, key, #key, "", 0, 0, 0)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    local flags = out.k
    local value = value_of(code)
    if flags ~= 0 and code > 0 then
        return value, flags
    end
    return value
end

function Dict.get_stale(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    local code = C(OP_GET_STALE, n, key, #key, "", 0, 0, 0)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    elseif code == 0 then
        return nil
    end
    local flags, stale = out.k, out.i == 1
    return value_of(code), flags ~= 0 and flags or nil, stale
end

local function store(n, mode, key, value, exptime, flags)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    local kind, text, number = type(value), "", 0
    local as
    if kind == "string" then
        as, text = 0, value
    elseif kind == "number" then
        as, number = 1, value
    elseif kind == "boolean" then
        as = value and 2 or 3
    elseif kind == "nil" then
        if mode == 2 or mode == 3 or mode == 4 then
            return nil, mode == 4 and "attempt to replace with nil values" and "not found" or "attempt to add or replace nil values"
        end
        C(OP_DELETE, n, key, #key, "", 0, 0, 0)
        return true, nil, false
    else
        return nil, "bad value type"
    end
    if exptime ~= nil then
        exptime = tonumber(exptime)
        if not exptime or exptime < 0 then
            error('bad "exptime" argument', 4)
        end
    end
    if flags ~= nil then
        flags = tonumber(flags)
        if not flags then
            error('bad "flags" argument', 4)
        end
        if flags ~= 0 then
            C(OP_FLAGS, 0, "", 0, "", 0, flags, 0)
        end
    end
    local code = C(OP_SET, bor(n, lshift(mode, 8), lshift(as, 12)), key, #key, text, #text, number, exptime or 0)
    local forcible = out.k == 1
    if code == -1 then
        local why = ffi_string(out.p, out.n)
        if why == "no memory" then
            return false, why, forcible
        end
        return false, why, forcible
    end
    return true, nil, forcible
end

function Dict.set(dict, key, value, exptime, flags)
    local n = number_of(dict)
    local a, b, c = store(n, 0, key, value, exptime, flags)
    return a, b, c
end

function Dict.safe_set(dict, key, value, exptime, flags)
    local n = number_of(dict)
    local a, b, c = store(n, 1, key, value, exptime, flags)
    return a, b, c
end

function Dict.add(dict, key, value, exptime, flags)
    local n = number_of(dict)
    local a, b, c = store(n, 2, key, value, exptime, flags)
    return a, b, c
end

function Dict.safe_add(dict, key, value, exptime, flags)
    local n = number_of(dict)
    local a, b, c = store(n, 3, key, value, exptime, flags)
    return a, b, c
end

function Dict.replace(dict, key, value, exptime, flags)
    local n = number_of(dict)
    local a, b, c = store(n, 4, key, value, exptime, flags)
    return a, b, c
end

function Dict.delete(dict, key)
    local a, b, c = Dict.set(dict, key, nil)
    return a, b, c
end

function Dict.incr(dict, key, by, init, init_ttl)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    if type(by) ~= "number" then
        by = tonumber(by)
        if not by then
            error('cannot convert \'nil\' to \'double\'', 2)
        end
    end
    if init ~= nil then
        init = tonumber(init)
        if not init then
            error("bad init arg: number expected, got " .. type(init), 2)
        end
    end
    if init_ttl ~= nil then
        local ttl = tonumber(init_ttl)
        if not ttl then
            error("bad init_ttl arg: number expected, got " .. type(init_ttl), 2)
        end
        if ttl < 0 then
            error('bad "init_ttl" argument', 2)
        end
        if not init then
            error('must provide "init" when providing "init_ttl"', 2)
        end
        init_ttl = ttl
    end
    if init then
        C(OP_INIT, 0, "", 0, "", 0, init, init_ttl or 0)
    end
    local code = C(OP_INCR, n, key, #key, "", 0, by, 0)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    if init then
        return out.x, nil, out.k == 1
    end
    return out.x
end

local function push(n, left, key, value)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    local kind = type(value)
    local code
    if kind == "number" then
        code = C(OP_PUSH, bor(n, lshift(left, 8), lshift(1, 12)), key, #key, "", 0, value, 0)
    elseif kind == "string" then
        code = C(OP_PUSH, bor(n, lshift(left, 8)), key, #key, value, #value, 0, 0)
    else
        return nil, "bad value type"
    end
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    return out.x
end

function Dict.lpush(dict, key, value)
    local a, b = push(number_of(dict), 1, key, value)
    return a, b
end

function Dict.rpush(dict, key, value)
    local a, b = push(number_of(dict), 0, key, value)
    return a, b
end

local function pop(n, left, key)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return finish(C(OP_POP, bor(n, lshift(left, 8)), key, #key, "", 0, 0, 0))
end

function Dict.lpop(dict, key)
    local a, b = pop(number_of(dict), 1, key)
    return a, b
end

function Dict.rpop(dict, key)
    local a, b = pop(number_of(dict), 0, key)
    return a, b
end

function Dict.llen(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return finish(C(OP_LLEN, n, key, #key, "", 0, 0, 0))
end

function Dict.ttl(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return finish(C(OP_TTL, n, key, #key, "", 0, 0, 0))
end

function Dict.expire(dict, key, exptime)
    local n = number_of(dict)
    if not exptime then
        error('bad "exptime" argument', 2)
    end
    exptime = tonumber(exptime)
    if not exptime or exptime < 0 then
        error('bad "exptime" argument', 2)
    end
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return finish(C(OP_EXPIRE, n, key, #key, "", 0, exptime, 0))
end

function Dict.flush_all(dict)
    C(OP_FLUSH_ALL, number_of(dict), "", 0, "", 0, 0, 0)
end

function Dict.flush_expired(dict, max)
    return finish(C(OP_FLUSH_EXPIRED, number_of(dict), "", 0, "", 0, tonumber(max) or 0, 0))
end

function Dict.get_keys(dict, max)
    C(OP_KEYS, number_of(dict), "", 0, "", 0, tonumber(max) or 1024, 0)
    return (weir.list())
end

function Dict.capacity(dict)
    return finish(C(OP_SPACE, number_of(dict), "", 0, "", 0, 0, 0))
end

function Dict.free_space(dict)
    return finish(C(OP_SPACE, number_of(dict), "", 0, "", 0, 1, 0))
end

ngx.shared = {}
raw(op "dict_names")
local names = weir.list()
for at, name in ipairs(names) do
    ngx.shared[name] = setmetatable({ at - 1 }, meta)
end
