-- ngx.timer, ngx.worker, semaphores, ngx.config.

local weir = ...
local raw, op, check, C, ngx = weir.raw, weir.op, weir.check, weir.C, weir.ngx
local ask = weir.ask
local ffi = require "ffi"
-- Windows' library calls it by another name.
pcall(ffi.cdef, "int getpid(void)" .. (ffi.os == "Windows" and ' __asm__("_getpid")' or "") .. ";")
local error, type, setmetatable, getmetatable, select = error, type, setmetatable, getmetatable, select
local tonumber, unpack, max = tonumber, unpack, math.max

local OP_TIMER, OP_COUNT, OP_ENDING, OP_PATHS = op "timer", op "timer_count", op "is_ending", op "paths"

local timer = {}
ngx.timer = timer
local next_timer = 0

-- `repeats` is 1 where it is to come again if it cannot run.
local function begin(repeats, delay, f, n, ...)
    next_timer = next_timer + 1
    local number = next_timer
    weir.timers[number] = { f = f, n = n, ... }
    -- For what is told when it cannot run.
    local info = debug.getinfo(f, "S")
    local place = info.source .. ":" .. info.linedefined
    local code = C(OP_TIMER, number, place, #place, "", 0, delay, repeats)
    if code ~= 1 then
        weir.timers[number] = nil
    end
    return code
end

local function arguments(name, delay, f)
    if type(delay) ~= "number" then
        local n = tonumber(delay)
        if not n then
            error("bad argument #1 to '" .. name .. "' (number expected, got " .. (delay == nil and "nil" or type(delay)) .. ")", 3)
        end
        delay = n
    end
    if type(f) ~= "function" then
        error("bad argument #2 to '" .. name .. "' (function expected, got " .. (f == nil and "nil" or type(f)) .. ")", 3)
    end
    return delay
end

function timer.at(delay, f, ...)
    -- As OpenResty has it, what is overdue is due.
    delay = max(arguments("at", delay, f), 0)
    local code = begin(0, delay, f, select("#", ...), ...)
    if code == -1 then
        return nil, weir.text()
    end
    check(code)
    return 1
end

function timer.every(delay, f, ...)
    delay = arguments("every", delay, f)
    if delay == 0 then
        error("delay cannot be zero", 2)
    elseif delay < 0 then
        error("delay cannot be negative", 2)
    end
    local n, args = select("#", ...), { ... }
    local function again(is_early)
        if not is_early then
            begin(1, delay, again, 0)
        end
        return f(is_early, unpack(args, 1, n))
    end
    local code = begin(1, delay, again, 0)
    if code == -1 then
        return nil, weir.text()
    end
    check(code)
    return 1
end

function timer.pending_count()
    return ask(OP_COUNT, 0)
end

function timer.running_count()
    return ask(OP_COUNT, 1)
end

local OP_ARG_LAST = op "timer_is_early"
function weir.is_early()
    return C(OP_ARG_LAST, 0, "", 0, "", 0, 0, 0) == 1
end

----------------------------------------------------------------------------------------------------- semaphores

package.preload["ngx.semaphore"] = function()
    local M = { version = "0.1", _VERSION = "0.1" }
    local meta = { __index = M }
    local native = weir.native
    local new, wait, post, count, free = native "sem_new", native "sem_wait", native "sem_post", native "sem_count", native "sem_free"

    -- What is collected is noted, and let go of when a further one is made: the collector works in the middle of
    -- everything.
    ffi.cdef "struct weir_semaphore { double id; };"
    local handle_type = ffi.typeof("struct weir_semaphore")
    local dead, dead_n = {}, 0

    local function collected(handle)
        dead_n = dead_n + 1
        dead[dead_n] = handle.id
    end

    local function id_of(sem)
        if type(sem) ~= "table" or getmetatable(sem) ~= meta then
            error("not a semaphore", 3)
        end
        return sem.id
    end

    function M.new(n)
        n = tonumber(n) or 0
        if n < 0 then
            error("no negative number", 2)
        end
        while dead_n > 0 do
            local id = dead[dead_n]
            dead_n = dead_n - 1
            free(id)
        end
        local id = new(0, nil, nil, n)
        return setmetatable({ id = id, sem = ffi.gc(handle_type(id), collected) }, meta)
    end

    function M.wait(sem, timeout)
        local id = id_of(sem)
        timeout = tonumber(timeout) or 0
        if timeout < 0 then
            error("no negative number", 2)
        end
        local ok, e = wait(id, nil, nil, timeout)
        if e == "timeout" and timeout >= 0.001 then
            -- It has waited.
            return false, e
        end
        if e == nil then
            return ok
        end
        return ok, e
    end

    function M.post(sem, n)
        local id = id_of(sem)
        n = tonumber(n) or 1
        if n < 1 then
            error("positive number expected", 2)
        end
        return post(id, nil, nil, n)
    end

    function M.count(sem)
        return (count(id_of(sem)))
    end

    return M
end

----------------------------------------------------------------------------------------------------- the worker

check(raw(OP_PATHS))
local paths = weir.list()
local function expanded(path, default)
    if path:find(";;", 1, true) then
        path = path:gsub(";;", (";" .. default .. ";"):gsub("%%", "%%%%"), 1):gsub("^;", ""):gsub(";$", "")
    end
    return path
end
do
    -- The usual places are LuaJIT's, and behind these OpenResty's own.
    local path, cpath = package.path, package.cpath
    for at = 5, #paths do
        path, cpath = path .. ";" .. paths[at] .. "/?.lua", cpath .. ";" .. paths[at] .. "/?.so"
    end
    package.path, package.cpath = expanded(paths[1], path), expanded(paths[2], cpath)
end

local worker_id = paths[4] or nil
local OP_COUNT = weir.op "worker_count"

-- A reload may change it.
local function worker_count()
    C(OP_COUNT, 0, "", 0, "", 0, 0, 0)
    return weir.number()
end

ngx.config = {
    debug = false, subsystem = "http", nginx_version = 1031003, ngx_lua_version = 10032,
    prefix = function() return paths[3] .. "/" end,
    nginx_configure = function() return "" end,
    is_console = false,
}

ngx.worker = {
    id = function() return worker_id end,
    count = worker_count,
    pid = function()
        return tonumber(ffi.C.getpid())
    end,
    pids = function()
        local t = {}
        for at = 1, worker_count() do
            t[at] = tonumber(ffi.C.getpid())
        end
        return t
    end,
    exiting = function()
        return C(OP_ENDING, 0, "", 0, "", 0, 0, 0) == 1
    end,
}
