-- The ground of the Lua side: the call to Rust, runs and their threads, entry from Rust.
-- Given the function to call, the place of its answers, a null pointer, the function that makes functions of one
-- operation, the one that keeps values for Rust, the one that knows the coroutine that Rust goes on with, what
-- yields are for, the function that reads answers, and the engine with functions of its dictionaries; answers the entry
-- function.

local call_ptr, out_ptr, null, make, keep, running, MARK, LEAVE, said, engine, get_ptr, set_ptr, incr_ptr = ...

-- OpenResty's LuaJIT's measures. By LuaJIT's own, 1,000 traces in 2 MB, a larger application's are all thrown away, and
-- made and thrown away again.
require "jit.opt".start("maxtrace=8000", "maxrecord=16000", "minstitch=3", "maxmcode=40960")

local ffi = require "ffi"
local ffi_string, ffi_cast = ffi.string, ffi.cast
ffi.cdef [[
struct weir_out { const uint8_t *p; size_t n; double x; double context; };
struct weir_length { uint32_t n; };
]]
-- Answers are for Rust to read out, but for what loops are made of: behind `out` a finalizer has its own.
local C = ffi_cast("int (*)(int, double, const char *, size_t, const char *, size_t, double, double)", call_ptr)
local out = ffi_cast("struct weir_out *", out_ptr)

local error, type, tostring, pairs, ipairs, select = error, type, tostring, pairs, ipairs, select
local setmetatable = setmetatable
local concat, unpack = table.concat, unpack
local traceback, loadstring, pcall, debug_getmetatable = debug.traceback, loadstring, pcall, debug.getmetatable
local co_create, co_resume, co_yield = coroutine.create, coroutine.resume, coroutine.yield
local co_status = coroutine.status

local weir = { null = null, out = out, C = C, MARK = MARK, LEAVE = LEAVE }
weir.engine = ffi_cast("void *", engine)
weir.dict_get = ffi_cast("int (*)(void *, uint32_t, const char *, size_t)", get_ptr)
weir.dict_set = ffi_cast("int (*)(void *, uint32_t, uint32_t, const char *, size_t, const char *, size_t, double, double)", set_ptr)
weir.dict_incr = ffi_cast("int (*)(void *, uint32_t, const char *, size_t, double, double, int)", incr_ptr)
weir.keep = keep

-- Operations by their names.
local ops = {}
do
    C(0, 0, "", 0, "", 0, 0, 0)
    local at = 0
    for name in said(1):gmatch("[^\n]+") do
        ops[name] = at
        at = at + 1
    end
end

local function op_of(name)
    return ops[name] or error("no operation " .. name)
end
weir.op = op_of

-- The function of an operation, of a number, two texts and two numbers, each of which may be missing. It returns the
-- operation's values, waits where that does, and raises what it refuses: in the name of its caller, or of who has
-- called so many levels above. What code calls by itself or by a tail call is a function like this.
function weir.native(name, level)
    return make(op_of(name), level or 1)
end

-- The function of an operation whose text is all arguments; `other(n, ...)` makes the text where they are tables.
function weir.texts(name, ending, other)
    return make(op_of(name), ending, other)
end

-- The same for an operation by its number, for who calls it by a tail call.
local by_number = {}
function weir.ask(op, i, a, b, x, y)
    local f = by_number[op]
    if not f then
        f = make(op, 1)
        by_number[op] = f
    end
    return f(i, a, b, x, y)
end

local function raw(op, i, a, b, x, y)
    a, b = a or "", b or ""
    return C(op, i or 0, a, #a, b, #b, x or 0, y or 0)
end
weir.raw = raw

local OP_REPLY, OP_REPORT, OP_CODE, OP_PIECE = op_of "reply", op_of "report", op_of "code", op_of "piece"
local OP_CANCEL, OP_OUTCOME, OP_EARLY = op_of "cancel", op_of "outcome", op_of "early"

-- The last answer's text, its number, and its values as a table (where they are nil it has holes) and how many.
local function text_said()
    local text = said(1)
    return text
end
weir.text = text_said

local function number_said()
    local number = said(3)
    return number
end
weir.number = number_said

-- Whether the worker's own stack has room for the code of one more coroutine.
function weir.has_room()
    local has = said(4)
    return has
end

local function list()
    return said(2)
end
weir.list = list

local finish

-- Waits for what Rust knows by that number; its values.
local function await(id)
    return co_yield(MARK, id)
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
        return nil, text_said()
    elseif code == 11 then
        return text_said()
    elseif code == 12 then
        return number_said()
    elseif code == 5 then
        local t, n = list()
        return unpack(t, 1, n)
    elseif code == 100 then
        return await(number_said())
    elseif code == -2 then
        error(text_said(), 2)
    elseif code == -3 then
        error("no request found", 2)
    elseif code == -4 then
        error("API disabled in the context of " .. text_said(), 2)
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
        return text_said()
    elseif code == -3 then
        return "no request found"
    elseif code == -4 then
        return "API disabled in the context of " .. text_said()
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

-- A run has one coroutine that Rust goes on with, and nothing of it is known here; until code asks for its run, to
-- begin more of them. From then on their order is kept here.

local runs = {}
local threads = setmetatable({}, { __mode = "k" })
weir.threads = threads
-- What code begins on, which is Rust's to go on with.
local entries = setmetatable({}, { __mode = "k" })
weir.entries = entries
local run_id, schedule = weir.native "run", weir.native "schedule"
weir.run_id = run_id
local new_run

function weir.run()
    local id = run_id()
    local run = runs[id]
    if not run then
        schedule()
        local entry = running()
        run = new_run(id)
        run.entry, run.co, run.alive = entry, entry, 1
        local info = { co = entry, run = run }
        threads[entry] = info
        run.threads[entry] = info
    end
    return run
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
    end
    local meta = kind == "table" and debug_getmetatable(e)
    if meta and meta.__tostring then
        local ok, text = pcall(tostring, e)
        if ok then
            return text
        end
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

-- Phases whose code does not wait.
local plain = {
    set = "set_by_lua*", header_filter = "header_filter_by_lua*", body_filter = "body_filter_by_lua*",
    log = "log_by_lua*", balancer = "balancer_by_lua*", init = "init_by_lua*", init_worker = "init_worker_by_lua*", exit_worker = "exit_worker_by_lua*",
    ssl_session_store = "session_store_by_lua*",
}

-- Told of the error of such code, where it is raised.
keep(0, function(e)
    local lines = "stack traceback:\n" .. (traceback("", 2):gsub("^\n?stack traceback:\n?", ""))
    local phase = weir.phase()
    local text = "failed to run " .. (plain[phase] or phase) .. ": " .. message_of(e)
    C(OP_REPORT, 4, text, #text, lines, #lines, 0, 0)
    C(OP_OUTCOME, -1, "", 0, "", 0, 0, 0)
    return true
end)

-- A coroutine that Rust goes on with has ended by an error.
keep(3, function(co, e)
    report_abort("lua entry thread", co, e)
    C(OP_OUTCOME, -1, "", 0, "", 0, 0, 0)
end)

keep(5, entries)

local function thread_over(run, co, ok, ...)
    run.alive = run.alive - 1
    local info = threads[co]
    if co == run.entry then
        if not ok then
            report_abort("lua entry thread", co, (...))
            C(OP_OUTCOME, -1, "", 0, "", 0, 0, 0)
            run.left = true
        end
        return
    end
    if not ok then
        report_abort((weir.stream or "") .. "lua user thread", co, (...))
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

local function stopped(run, co, mark, id)
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

local function after(run, co, ok, ...)
    if co_status(co) == "dead" then
        return thread_over(run, co, ok, ...)
    end
    return stopped(run, co, ...)
end

local function step(run, co, ...)
    run.co = co
    return after(run, co, co_resume(co, ...))
end

local function over(run)
    runs[run.id] = nil
    -- What is known of a thread holds the thread: it would stay for ever.
    for co, info in pairs(run.threads) do
        info.dead = true
        threads[co] = nil
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
    local run = weir.run()
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

new_run = function(id)
    local run = { id = id, waiting = {}, threads = {}, alive = 0, head = 1, tail = 0 }
    runs[id] = run
    return run
end

----------------------------------------------------------------------------------------------------- compiled code

local function fail_load(text)
    report(4, text)
    C(OP_OUTCOME, -1, "", 0, "", 0, 0, 0)
    return 0
end

local function function_of(text, chunk)
    -- A chunk that is precompiled is one as it is.
    if text:byte() == 27 then
        return loadstring(text, chunk)
    end
    -- What editors on Windows put before a text.
    if text:sub(1, 3) == "\239\187\191" then
        text = text:sub(4)
    end
    if text:byte() == 35 then
        text = text:gsub("^#[^\n]*", "", 1)
    end
    -- The code itself first, so that its errors are told as they are.
    local whole, e = loadstring(text, chunk)
    if not whole then
        return nil, e
    end
    -- LuaJIT compiles no function of variable arguments as a whole, and none of these is given any.
    local made = loadstring("return function() " .. text .. "\nend", chunk)
    made = made or loadstring("return function(...) " .. text .. "\nend", chunk)
    return made and made() or whole
end

local files = {}
local CODES, HELD = 8, 6

local function compile(n)
    if C(OP_CODE, n, "", 0, "", 0, 0, 0) ~= 5 then
        return fail_load(text_said())
    end
    local chunk, text, is_file, keeps = unpack((list()))
    local f, e = is_file and files[chunk], nil
    if not f then
        f, e = function_of(text, chunk)
    end
    if not f then
        if is_file then
            return fail_load('failed to load external Lua file "' .. chunk:sub(2) .. '": ' .. e)
        end
        return fail_load("failed to load inlined Lua code: " .. e)
    end
    if is_file then
        files[chunk] = f
    end
    keep(keeps and CODES + n or HELD, f)
    return 1
end

----------------------------------------------------------------------------------------------------------- entry

local timers = {}
weir.timers = timers

local function timer(id, number, is_early)
    local t = timers[number]
    timers[number] = nil
    if not t then
        return 0
    end
    local run = new_run(id)
    local co = new_thread(run, t.f)
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

-- The coroutine that Rust has gone on with so far has stopped: how, and by which error.
local stops = { [-3] = LEAVE }

local function taken_over(how, id, co, e)
    local run = runs[id]
    if not run then
        return 0
    end
    if how == -1 then
        thread_over(run, co, true)
    elseif how == -2 then
        thread_over(run, co, false, e)
    elseif how >= 0 then
        stopped(run, co, MARK, how)
    else
        stopped(run, co, stops[how])
    end
    return go_on(run)
end

local function enter(what, x, y, co, e)
    if what == 1 then
        return compile(x)
    elseif what == 2 then
        local run = runs[y]
        if not run then
            return 0
        end
        local co = run.waiting[x]
        run.waiting[x] = nil
        if co then
            threads[co].wait = nil
            step(run, co, finish(C(OP_REPLY, 0, "", 0, "", 0, 0, 0)))
        else
            C(OP_EARLY, x, "", 0, "", 0, 0, 0)
        end
        return go_on(run)
    elseif what == 8 then
        return taken_over(x, y, co, e)
    elseif what == 3 then
        local run = runs[x]
        if run then
            over(run)
        end
        return 0
    elseif what == 5 then
        return timer(y, x, weir.is_early())
    elseif what == 7 then
        local run = runs[y]
        if not run or not run.on_abort then
            return 0
        end
        run.alive = run.alive + 1
        step(run, run.on_abort)
        return go_on(run)
    elseif what == 9 then
        timers[x] = nil
        return 0
    elseif what == 6 then
        return load_pieces()
    end
    return 0
end

return enter
