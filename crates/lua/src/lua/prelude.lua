-- The ground of the Lua side: the call to Rust, runs and their threads, entry from Rust.
-- Given the function to call, the place of its answers, a null pointer and the function from which Lua may
-- be entered; answers the entry function.

local call_ptr, out_ptr, null, call_in = ...

local ffi = require "ffi"
local ffi_string, ffi_cast = ffi.string, ffi.cast
ffi.cdef [[
struct weir_out { const uint8_t *p; size_t n; double x; int32_t i; int32_t k; };
struct weir_number { double x; };
struct weir_length { uint32_t n; };
]]
local C = ffi_cast("int (*)(int, int, const char *, size_t, const char *, size_t, double, double)", call_ptr)
local out = ffi_cast("struct weir_out *", out_ptr)
local number_ptr = ffi.typeof("const struct weir_number *")
local length_ptr = ffi.typeof("const struct weir_length *")

local error, type, tostring, pairs, ipairs, select = error, type, tostring, pairs, ipairs, select
local setmetatable, getmetatable, rawset, setfenv = setmetatable, getmetatable, rawset, setfenv
local concat, unpack, floor = table.concat, unpack, math.floor
local traceback, loadstring, xpcall = debug.traceback, loadstring, xpcall
local co_create, co_resume, co_yield = coroutine.create, coroutine.resume, coroutine.yield
local co_status, co_running = coroutine.status, coroutine.running

-- `call_in(op, i, text)` is for operations from which Lua may be entered anew.
local weir = { null = null, out = out, C = C, call_in = call_in }
local G = _G

-- Operations by their names.
local ops = {}
do
    C(0, 0, "", 0, "", 0, 0, 0)
    local at = 0
    for name in ffi_string(out.p, out.n):gmatch("[^\n]+") do
        ops[name] = at
        at = at + 1
    end
end
weir.ops = ops

local function op_of(name)
    return ops[name] or error("no operation " .. name)
end
weir.op = op_of

local function raw(op, i, a, b, x, y)
    a, b = a or "", b or ""
    return C(op, i or 0, a, #a, b, #b, x or 0, y or 0)
end
weir.raw = raw

local OP_REPLY, OP_REPORT, OP_CODE, OP_PIECE = op_of "reply", op_of "report", op_of "code", op_of "piece"
local OP_CANCEL, OP_OUTCOME = op_of "cancel", op_of "outcome"

-- Values that Rust has written one after the other.
local function decode(p, stop, t)
    local n = 0
    while p < stop do
        local tag = p[0]
        p = p + 1
        n = n + 1
        if tag == 2 then
            local length = tonumber(ffi_cast(length_ptr, p).n)
            t[n] = ffi_string(p + 4, length)
            p = p + 4 + length
        elseif tag == 3 then
            t[n] = tonumber(ffi_cast(number_ptr, p).x)
            p = p + 8
        elseif tag == 1 then
            t[n] = true
        elseif tag == 4 then
            t[n] = false
        end
    end
    return t, n
end

-- As a table; items that are nil are holes.
local function list()
    return decode(out.p, out.p + out.n, {})
end
weir.list = list

local MARK, LEAVE = {}, {}
weir.MARK, weir.LEAVE = MARK, LEAVE
local finish

local function await(id)
    co_yield(MARK, id)
    return finish(C(OP_REPLY, 0, "", 0, "", 0, 0, 0))
end
weir.await = await

-- What an operation has answered, for the API function that returns it by a tail call: errors name its caller.
-- (`error` is not tail called: it would count the levels from who has called this.)
finish = function(code)
    if code == 2 then
        return ffi_string(out.p, out.n)
    elseif code == 3 then
        return out.x
    elseif code == 1 then
        return true
    elseif code == 0 then
        return nil
    elseif code == 4 then
        return false
    elseif code == -1 then
        return nil, ffi_string(out.p, out.n)
    elseif code == 5 then
        local t, n = list()
        return unpack(t, 1, n)
    elseif code == 100 then
        return await(out.i)
    elseif code == -2 then
        error(ffi_string(out.p, out.n), 2)
    elseif code == -3 then
        error("no request found", 2)
    elseif code == -4 then
        error("API disabled in the context of " .. ffi_string(out.p, out.n), 2)
    elseif code == -5 then
        error("API disabled in the current context", 2)
    end
    error("internal error", 2)
end
weir.finish = finish

-- Raises what an operation has refused, in the name of who has called the API function; for operations whose answer
-- is looked at by the function itself.
-- The error of a code, if it is one.
local function error_of(code)
    if code == -2 then
        return ffi_string(out.p, out.n)
    elseif code == -3 then
        return "no request found"
    elseif code == -4 then
        return "API disabled in the context of " .. ffi_string(out.p, out.n)
    elseif code == -5 then
        return "API disabled in the current context"
    end
    return "internal error"
end

function weir.check(code)
    if code < -1 then
        error(error_of(code), 3)
    end
    return code
end

-- The same for what is called by a metamethod.
function weir.check_property(code)
    if code < -1 then
        error(code == -4 and error_of(-5) or error_of(code), 4)
    end
    return code
end

function weir.text()
    return ffi_string(out.p, out.n)
end

function weir.bad(n, name, what)
    error("bad argument #" .. n .. " to '" .. name .. "' (" .. what .. ")", 3)
end

-- Strings behind their lengths, for Rust.
function weir.pack(t, n)
    local parts = {}
    for at = 1, n or #t do
        local text = tostring(t[at])
        parts[at] = #text .. ":" .. text
    end
    return concat(parts)
end

----------------------------------------------------------------------------------------------------------- runs

local runs = {}
local current
local threads = setmetatable({}, { __mode = "k" })
weir.threads = threads

function weir.run()
    return current
end

local function report(level, text)
    C(OP_REPORT, level, text, #text, "", 0, 0, 0)
end
weir.report = report

local function lines_of(co)
    local text = traceback(co, "", 0)
    return (text:gsub("^\n?stack traceback:\n?", ""))
end

local function message_of(e)
    local kind = type(e)
    if kind == "string" or kind == "number" then
        return tostring(e)
    elseif kind == "table" and getmetatable(e) and getmetatable(e).__tostring then
        return tostring(e)
    end
    return "unknown reason"
end

local function report_abort(what, co, e)
    local text = what .. " aborted: runtime error: " .. message_of(e)
    local lines = "stack traceback:\ncoroutine 0:\n" .. lines_of(co)
    C(OP_REPORT, 4, text, #text, lines, #lines, 0, 0)
end

local function push(run, co)
    local tail = run.tail + 1
    run.tail = tail
    run[tail] = co
end

-- Lets the thread go on that waits in `co`.
local function ready(run, co)
    push(run, co)
end
weir.ready = ready

-- Phases whose code does not wait.
local plain = {
    set = "set_by_lua*", header_filter = "header_filter_by_lua*", body_filter = "body_filter_by_lua*",
    log = "log_by_lua*", balancer = "balancer_by_lua*", init = "init_by_lua*", init_worker = "init_worker_by_lua*", exit_worker = "exit_worker_by_lua*",
    ssl_session_store = "session_store_by_lua*",
}

local function thread_over(run, co, ok, ...)
    run.alive = run.alive - 1
    local info = threads[co]
    if co == run.entry then
        if not ok then
            local phase = run.phase
            if plain[phase] then
                local lines = "stack traceback:\n" .. lines_of(co)
                local text = "failed to run " .. plain[phase] .. ": " .. message_of((...))
                C(OP_REPORT, 4, text, #text, lines, #lines, 0, 0)
            else
                report_abort("lua entry thread", co, (...))
            end
            C(OP_OUTCOME, -1, "", 0, "", 0, 0, 0)
            run.left = true
        elseif run.on_return then
            run.on_return(...)
        end
        return
    end
    if not ok then
        report_abort("lua user thread", co, (...))
    end
    info.dead = true
    info.n = select("#", ...) + 1
    info.results = { ok, ... }
    local waiter = info.waiter
    if waiter then
        for _, other in ipairs(waiter.threads) do
            other.waiter = nil
        end
        waiter.found = info
        push(run, waiter.co)
    end
end

local function after(run, co, ok, ...)
    if co_status(co) == "dead" then
        return thread_over(run, co, ok, ...)
    end
    local mark, id = ...
    if mark == MARK then
        if id > 0 then
            run.waiting[id] = co
            threads[co].wait = id
        end
    elseif mark == LEAVE then
        run.left = true
    else
        push(run, co)
    end
end

local function step(run, co, ...)
    run.co = co
    return after(run, co, co_resume(co, ...))
end

local function over(run)
    runs[run.id] = nil
    -- A table by weak keys keeps a key that its own value leads to: nothing of a run leads to a coroutine any more.
    for _, info in pairs(run.threads) do
        info.dead = true
        info.co, info.run, info.parent, info.waiter, info.results = nil, nil, nil, nil, nil
    end
    run.threads, run.waiting = {}, {}
    run.co, run.entry, run.first, run.on_abort = nil, nil, nil, nil
end

local function go_on(run)
    while not run.left and (run.first or run.head <= run.tail) do
        local first = run.first
        if first then
            run.first = nil
            step(run, first[1], unpack(first, 3, first[2] + 2))
        end
        if first or run.left then
            goto continue
        end
        local co = run[run.head]
        run[run.head] = nil
        run.head = run.head + 1
        if co_status(co) == "suspended" and not threads[co].dead then
            step(run, co)
        end
        ::continue::
    end
    if run.left or run.alive == 0 then
        over(run)
        if weir.at_run_end then
            weir.at_run_end()
        end
        return 0
    end
    return 1
end

local function new_thread(run, f, parent)
    local co = co_create(f)
    local info = { co = co, parent = parent, run = run }
    threads[co] = info
    run.threads[co] = info
    run.alive = run.alive + 1
    return co, info
end
weir.new_thread = new_thread

-- Runs a thread until it first waits; who has begun it goes on behind those that are ready already.
function weir.run_thread(co, ...)
    local run = current
    push(run, run.co)
    run.first = { co, select("#", ...), ... }
    co_yield(MARK, 0)
end

-- Ends the run, from wherever it is.
local function leave()
    co_yield(LEAVE)
end
weir.leave = leave

-- Waits for nothing that Rust knows of.
function weir.rest()
    co_yield(MARK, 0)
end

function weir.cancel(id)
    C(OP_CANCEL, id, "", 0, "", 0, 0, 0)
end

local function new_run(id)
    local run = { id = id, waiting = {}, threads = {}, early = {}, alive = 0, head = 1, tail = 0 }
    runs[id] = run
    return run
end

----------------------------------------------------------------------------------------------------- compiled code

local codes = {}
local env_meta = { __index = G }

local function fail_load(text)
    report(4, text)
    C(OP_OUTCOME, -1, "", 0, "", 0, 0, 0)
    return nil
end

local function factory(text, chunk)
    -- A chunk that is precompiled is one as it is.
    if text:byte() == 27 then
        local f, e = loadstring(text, chunk)
        return f and function() return loadstring(text, chunk) end, e
    end
    if text:byte() == 35 then
        text = text:gsub("^#[^\n]*", "", 1)
    end
    -- The code itself first, so that its errors are told as they are.
    local whole, e = loadstring(text, chunk)
    if not whole then
        return nil, e
    end
    local made = loadstring("return function(...) " .. text .. "\nend", chunk)
    if made then
        return made
    end
    return function() return loadstring(text, chunk) end
end

local files = {}

local function compile(n)
    if C(OP_CODE, n, "", 0, "", 0, 0, 0) ~= 5 then
        return fail_load(ffi_string(out.p, out.n))
    end
    local chunk, text, is_file, keep = unpack((list()))
    if is_file and files[chunk] then
        return files[chunk]
    end
    local made, e = factory(text, chunk)
    if not made then
        if is_file then
            return fail_load('failed to load external Lua file "' .. chunk:sub(2) .. '": ' .. e)
        end
        return fail_load("failed to load inlined Lua code: " .. e)
    end
    if is_file then
        files[chunk] = made
    end
    if keep then
        codes[n] = made
    end
    return made
end

-- Globals of this code are everybody's.
local shares_globals = {
    init = true, init_worker = true, exit_worker = true, ssl_client_hello = true, ssl_cert = true,
    ssl_session_fetch = true, ssl_session_store = true,
}

local function start(id, n)
    local run = new_run(id)
    current = run
    run.phase = weir.phase()
    local made = codes[n] or compile(n)
    if not made then
        runs[id] = nil
        return 0
    end
    local f = made()
    local env = G
    if not shares_globals[run.phase] then
        env = setmetatable({}, env_meta)
        env._G = env
    end
    setfenv(f, env)
    local co = new_thread(run, f)
    run.entry = co
    local before = weir.before
    if before then
        before(run)
    end
    step(run, co, weir.arguments())
    return go_on(run)
end

-- What a run's code is called with.
function weir.arguments()
end

----------------------------------------------------------------------------------------------------------- entry

local free = {}
-- What is to be done when a request is over, given its number.
function weir.on_free(f)
    free[#free + 1] = f
end

local timers = {}
weir.timers = timers

local function timer(id, number, is_early)
    local t = timers[number]
    timers[number] = nil
    if not t then
        return 0
    end
    local run = new_run(id)
    current = run
    local f = t.f
    local co = new_thread(run, f)
    run.entry = co
    step(run, co, is_early, unpack(t, 1, t.n))
    return go_on(run)
end

local function load_pieces()
    local n = 0
    while C(OP_PIECE, n, "", 0, "", 0, 0, 0) == 5 do
        local name, text = unpack((list()))
        local f = assert(loadstring(text, "=" .. name))
        f(weir)
        n = n + 1
    end
    return 0
end

local function enter(what, x, y)
    if what == 1 then
        return start(y, x)
    elseif what == 2 then
        local run = runs[y]
        if not run then
            return 0
        end
        local co = run.waiting[x]
        run.waiting[x] = nil
        current = run
        if co then
            threads[co].wait = nil
            step(run, co)
        else
            run.early[x] = true
        end
        return go_on(run)
    elseif what == 3 then
        local run = runs[x]
        if run then
            over(run)
        end
        return 0
    elseif what == 4 then
        for _, f in ipairs(free) do
            f(x)
        end
        return 0
    elseif what == 5 then
        return timer(y, x, weir.is_early())
    elseif what == 7 then
        local run = runs[y]
        if not run or not run.on_abort then
            return 0
        end
        current = run
        run.alive = run.alive + 1
        step(run, run.on_abort)
        return go_on(run)
    elseif what == 6 then
        return load_pieces()
    end
    return 0
end

-- An entry may be within an operation of another one.
return function(what, x, y)
    local before = current
    if what == 3 and before and before.id == x then
        -- It has failed where it could not be put back.
        before = nil
    end
    local answer = enter(what, x, y)
    current = before
    return answer
end
