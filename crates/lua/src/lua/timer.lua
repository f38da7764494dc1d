-- ngx.timer, ngx.worker, semaphores, ngx.config.

local weir = ...
local raw, finish, op, check, C, out, ngx = weir.raw, weir.finish, weir.op, weir.check, weir.C, weir.out, weir.ngx
local ask = weir.ask
local ffi = require "ffi"
local ffi_string = ffi.string
pcall(ffi.cdef, "int getpid(void);")
local error, type, tostring, setmetatable, getmetatable, select = error, type, tostring, setmetatable, getmetatable, select
local tonumber, unpack = tonumber, unpack

local OP_TIMER, OP_COUNT, OP_ENDING, OP_PATHS = op "timer", op "timer_count", op "is_ending", op "paths"
local OP_TOLD, OP_TELL = op "told", op "tell"

local timer = {}
ngx.timer = timer
local next_timer = 0

local function begin(delay, f, n, ...)
    next_timer = next_timer + 1
    local number = next_timer
    weir.timers[number] = { f = f, n = n, ... }
    -- For what is told when it cannot run.
    local info = debug.getinfo(f, "S")
    local place = info.source .. ":" .. info.linedefined
    local code = C(OP_TIMER, number, place, #place, "", 0, delay, 0)
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
    if delay < 0 then
        error("delay cannot be negative", 3)
    end
    if type(f) ~= "function" then
        error("bad argument #2 to '" .. name .. "' (function expected, got " .. (f == nil and "nil" or type(f)) .. ")", 3)
    end
    return delay
end

function timer.at(delay, f, ...)
    delay = arguments("at", delay, f)
    local code = begin(delay, f, select("#", ...), ...)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    check(code)
    return 1
end

function timer.every(delay, f, ...)
    delay = arguments("every", delay, f)
    if delay == 0 then
        error("delay cannot be zero", 2)
    end
    local n, args = select("#", ...), { ... }
    local function again(is_early)
        if not is_early then
            begin(delay, again, 0)
        end
        return f(is_early, unpack(args, 1, n))
    end
    local code = begin(delay, again, 0)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
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

    function M.new(n)
        n = tonumber(n) or 0
        if n < 0 then
            error("no negative number", 2)
        end
        return setmetatable({ resources = n, waiters = {}, head = 1, tail = 0 }, meta)
    end

    function M.wait(sem, timeout)
        if type(sem) ~= "table" or getmetatable(sem) ~= meta then
            error("not a semaphore", 2)
        end
        timeout = tonumber(timeout) or 0
        if timeout < 0 then
            error("no negative number", 2)
        end
        local code
        if sem.resources > 0 and sem.head > sem.tail then
            check(raw(op "threads"))
            sem.resources = sem.resources - 1
            return true
        end
        if timeout == 0 then
            check(raw(op "threads"))
            return nil, "timeout"
        end
        check(raw(OP_TOLD, 0, nil, nil, timeout))
        local id = out.x
        sem.tail = sem.tail + 1
        local place = sem.tail
        sem.waiters[place] = id
        local ok, e = weir.await(id)
        if sem.waiters[place] == id then
            sem.waiters[place] = nil
            while sem.head <= sem.tail and sem.waiters[sem.head] == nil do
                sem.head = sem.head + 1
            end
        end
        if not ok then
            return nil, e
        end
        return true
    end

    function M.post(sem, n)
        if type(sem) ~= "table" or getmetatable(sem) ~= meta then
            error("not a semaphore", 2)
        end
        n = tonumber(n) or 1
        if n < 1 then
            error("positive number expected", 2)
        end
        sem.resources = sem.resources + n
        while sem.resources > 0 and sem.head <= sem.tail do
            local id = sem.waiters[sem.head]
            sem.waiters[sem.head] = nil
            sem.head = sem.head + 1
            if id and C(OP_TELL, id, "", 0, "", 0, 0, 0) == 1 then
                sem.resources = sem.resources - 1
            end
        end
        return true
    end

    function M.count(sem)
        local waiting = 0
        for at = sem.head, sem.tail do
            if sem.waiters[at] then
                waiting = waiting + 1
            end
        end
        return sem.resources - waiting
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
package.path = expanded(paths[1], package.path)
package.cpath = expanded(paths[2], package.cpath)

local worker_id = paths[4]
local OP_COUNT = weir.op "worker_count"

-- A reload may change it.
local function worker_count()
    C(OP_COUNT, 0, "", 0, "", 0, 0, 0)
    return weir.out.x
end

ngx.config = {
    debug = false, subsystem = "http", nginx_version = 1031003, ngx_lua_version = 10030,
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
