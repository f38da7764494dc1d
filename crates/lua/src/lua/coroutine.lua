-- Coroutines of the user's, light threads, semaphores.

local weir = ...
local MARK, LEAVE, threads, entries = weir.MARK, weir.LEAVE, weir.threads, weir.entries
local co_create, co_resume, co_yield = coroutine.create, coroutine.resume, coroutine.yield
local co_status = coroutine.status
local error, type, unpack, select, ipairs, setmetatable = error, type, unpack, select, ipairs, setmetatable
local raw, op, check = weir.raw, weir.op, weir.check

-- All that stays known of a thread that was waited for or killed.
local OVER = { joined = true, dead = true }

-- Coroutines of the user's that wait for something which only who they wait for may let go on.
local waiting = setmetatable({}, { __mode = "k" })
local resumed

-- Each coroutine within another takes of the worker's own stack, which has an end: little by itself, much where it was
-- resumed by what C calls.
local NESTED_MAX = 25000
local nested, has_room = 0, weir.has_room

local function woken(co, ...)
    waiting[co] = nil
    nested = nested + 1
    return resumed(co, co_resume(co, ...))
end

-- A wait goes up through whoever has resumed the coroutine, to the thread.
resumed = function(co, ...)
    nested = nested - 1
    local ok, mark, id = ...
    if ok and mark == MARK then
        waiting[co] = true
        return woken(co, co_yield(MARK, id))
    elseif ok and mark == LEAVE then
        co_yield(mark)
        return
    end
    return ...
end

local function resume(co, ...)
    if threads[co] or entries[co] then
        -- Threads are the run's to go on with.
        return false, "cannot resume " .. (co_status(co) == "dead" and "dead" or "non-suspended") .. " coroutine"
    elseif waiting[co] then
        return false, "cannot resume running coroutine"
    elseif nested > 0 and (nested >= NESTED_MAX or not has_room()) then
        return false, "C stack overflow"
    end
    nested = nested + 1
    return resumed(co, co_resume(co, ...))
end

local function raised(ok, ...)
    if not ok then
        error((...), 0)
    end
    return ...
end

coroutine.resume = resume
function coroutine.status(co)
    local info = type(co) == "thread" and threads[co]
    if info and info.dead and info ~= OVER and info.parent and co_status(info.parent) ~= "dead" then
        return "zombie"
    end
    -- What waits for something that is not code's is at work.
    if info and info.wait and not info.dead or waiting[co] then
        return "running"
    end
    return co_status(co)
end
function coroutine.wrap(f)
    local co = co_create(f)
    return function(...)
        return raised(resume(co, ...))
    end
end
coroutine.__yield, coroutine.__create = co_yield, co_create
function coroutine.__resume(co, ...)
    if not has_room() then
        return false, "C stack overflow"
    end
    return co_resume(co, ...)
end

local thread = {}
ngx.thread = thread
local OP_THREADS = op "threads"
-- What that answers a finalizer (`said` in `border.rs`). Whoever it interrupts cannot be made to wait.
local LATE, NO_WAIT = 12, "attempt to yield across C-call boundary"

function thread.spawn(f, ...)
    if type(f) ~= "function" then
        error("bad argument #1 to 'spawn' (function expected, got " .. type(f) .. ")", 2)
    end
    if check(raw(OP_THREADS)) == LATE then
        error(NO_WAIT, 2)
    end
    local run = weir.run()
    local co = weir.new_thread(run, f, run.co)
    weir.run_thread(co, ...)
    return co
end

local function taken(info)
    info.run.threads[info.co] = nil
    threads[info.co] = OVER
    return unpack(info.results, 1, info.n)
end

function thread.wait(...)
    if check(raw(OP_THREADS)) == LATE then
        error(NO_WAIT, 2)
    end
    local n = select("#", ...)
    local run = weir.run()
    local infos = {}
    for at = 1, n do
        local co = select(at, ...)
        local info = type(co) == "thread" and threads[co]
        if not info or info ~= OVER and info.run ~= run or co == run.entry then
            error("attempt to wait on a coroutine that is not a user thread", 2)
        end
        if info ~= OVER and info.parent ~= run.co then
            error("only the parent coroutine can wait on the thread", 2)
        end
        infos[at] = info
    end
    for _, info in ipairs(infos) do
        if info == OVER then
            return nil, "already waited or killed"
        elseif info.dead then
            return taken(info)
        end
    end
    if n == 0 then
        return nil, "no threads"
    end
    local waiter = { co = run.co, threads = infos }
    for _, info in ipairs(infos) do
        info.waiter = waiter
    end
    weir.rest()
    return taken(waiter.found)
end

function thread.kill(co)
    check(raw(OP_THREADS))
    local info = type(co) == "thread" and threads[co]
    local run = weir.run()
    if not info or co == run.entry then
        return nil, "not user thread"
    end
    if info == OVER then
        return nil, "already waited or killed"
    elseif info.parent ~= run.co then
        return nil, "killer not parent"
    elseif info.dead then
        return nil, "already terminated"
    end
    if info.wait then
        weir.cancel(info.wait)
        run.waiting[info.wait] = nil
    end
    info.dead = true
    run.alive = run.alive - 1
    run.threads[co] = nil
    threads[co] = OVER
    return 1
end

local OP_ON_ABORT = op "on_abort"

function ngx.on_abort(f)
    if type(f) ~= "function" then
        error("bad argument #1 to 'on_abort' (function expected, got " .. (f == nil and "nil" or type(f)) .. ")", 2)
    end
    local code = check(raw(OP_ON_ABORT))
    if code == -1 then
        return nil, weir.text()
    end
    local run = weir.run()
    run.on_abort = weir.new_thread(run, f)
    -- It does not keep the run from ending.
    run.alive = run.alive - 1
    return 1
end
