-- ngx.shared

local weir = ...
local raw, op, ngx, C, out, finish = weir.raw, weir.op, weir.ngx, weir.C, weir.out, weir.finish
local error, type, tostring, setmetatable, tonumber = error, type, tostring, setmetatable, tonumber
local bor, lshift = bit.bor, bit.lshift

local native = weir.native
local get_stale, set_flags = native "dict_get_stale", native "dict_flags"
local OP_GET, OP_SET, OP_INCR = op "dict_get", op "dict_set", op "dict_incr"
local engine, quick_get, quick_set, quick_incr = weir.engine, weir.dict_get, weir.dict_set, weir.dict_incr
local OTHERWISE, FORCED = 99, 13
local delete, push_value, pop_value = native "dict_delete", native "dict_push", native "dict_pop"
local llen, ttl, expire = native "dict_llen", native "dict_ttl", native "dict_expire"
local flush_all, flush_expired, space = native "dict_flush_all", native "dict_flush_expired", native "dict_space"
local OP_KEYS = op "dict_keys"

-- Code that replaces a method finds it in the metatable.
local Dict = {}
Dict.__index = Dict
local meta = Dict

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

function Dict.get(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    local code = quick_get(engine, n, key, #key)
    if code == OTHERWISE then
        code = C(OP_GET, n, key, #key, "", 0, 0, 0)
    end
    return finish(code)
end

function Dict.get_stale(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return get_stale(n, key)
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
        delete(n, key)
        return true, nil, false
    else
        return nil, "bad value type"
    end
    if exptime ~= nil then
        exptime = tonumber(exptime)
        -- Who has called this has called it last, and is no level any more.
        if not exptime or exptime < 0 then
            error('bad "exptime" argument', 2)
        end
    end
    if flags ~= nil then
        flags = tonumber(flags)
        if not flags then
            error('bad "flags" argument', 2)
        end
    end
    local code = OTHERWISE
    if not flags or flags == 0 then
        code = quick_set(engine, n, bor(mode, lshift(as, 4)), key, #key, text, #text, number, exptime or 0)
        if code == FORCED then
            return true, nil, true
        end
    else
        set_flags(0, nil, nil, flags)
    end
    if code == 1 then
        return true, nil, false
    end
    code = C(OP_SET, bor(n, lshift(mode, 16), lshift(as, 20)), key, #key, text, #text, number, exptime or 0)
    if code == 1 then
        return true, nil, false
    end
    return finish(code)
end

function Dict.set(dict, key, value, exptime, flags)
    local n = number_of(dict)
    return store(n, 0, key, value, exptime, flags)
end

function Dict.safe_set(dict, key, value, exptime, flags)
    local n = number_of(dict)
    return store(n, 1, key, value, exptime, flags)
end

function Dict.add(dict, key, value, exptime, flags)
    local n = number_of(dict)
    return store(n, 2, key, value, exptime, flags)
end

function Dict.safe_add(dict, key, value, exptime, flags)
    local n = number_of(dict)
    return store(n, 3, key, value, exptime, flags)
end

function Dict.replace(dict, key, value, exptime, flags)
    local n = number_of(dict)
    return store(n, 4, key, value, exptime, flags)
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
    if not init_ttl then
        local code = quick_incr(engine, n, key, #key, by, init or 0, init and 1 or 0)
        if code == 3 then
            if init then
                return out.x, nil, false
            end
            return out.x
        elseif code == FORCED then
            return out.x, nil, true
        end
    end
    if not init then
        return finish(C(OP_INCR, n, key, #key, "", 0, by, 0))
    end
    local ttl = init_ttl and tostring(init_ttl) or ""
    local code = C(OP_INCR, n + 65536, key, #key, ttl, #ttl, by, init)
    if code == 3 then
        return out.x, nil, false
    elseif code == 12 then
        return finish(code), nil, false
    end
    return finish(code)
end

local function push(n, left, key, value)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    local kind = type(value)
    if kind == "number" then
        return push_value(bor(n, lshift(left, 16), lshift(1, 20)), key, nil, value)
    elseif kind == "string" then
        return push_value(bor(n, lshift(left, 16)), key, value)
    end
    return nil, "bad value type"
end

function Dict.lpush(dict, key, value)
    return push(number_of(dict), 1, key, value)
end

function Dict.rpush(dict, key, value)
    return push(number_of(dict), 0, key, value)
end

local function pop(n, left, key)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return pop_value(bor(n, lshift(left, 16)), key)
end

function Dict.lpop(dict, key)
    return pop(number_of(dict), 1, key)
end

function Dict.rpop(dict, key)
    return pop(number_of(dict), 0, key)
end

function Dict.llen(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return llen(n, key)
end

function Dict.ttl(dict, key)
    local n = number_of(dict)
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return ttl(n, key)
end

function Dict.expire(dict, key, exptime)
    local n = number_of(dict)
    if not exptime then
        error('bad "exptime" argument', 2)
    end
    exptime = tonumber(exptime)
    if not exptime then
        error('bad "exptime" argument', 2)
    end
    local e
    key, e = key_of(key)
    if not key then
        return nil, e
    end
    return expire(n, key, nil, exptime)
end

function Dict.flush_all(dict)
    flush_all(number_of(dict))
end

function Dict.flush_expired(dict, max)
    return flush_expired(number_of(dict), nil, nil, tonumber(max))
end

function Dict.get_keys(dict, max)
    -- There may be more of them than a function can return.
    weir.check(C(OP_KEYS, number_of(dict), "", 0, "", 0, tonumber(max) or 1024, 0))
    return (weir.list())
end

function Dict.capacity(dict)
    return space(number_of(dict))
end

function Dict.free_space(dict)
    return space(number_of(dict), nil, nil, 1)
end

ngx.shared = {}
raw(op "dict_names")
local names = weir.list()
for at, name in ipairs(names) do
    ngx.shared[name] = setmetatable({ at - 1 }, meta)
end
