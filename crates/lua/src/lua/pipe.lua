-- ngx.pipe.

local weir = ...
local native, pack = weir.native, weir.pack
local ffi = require "ffi"
local error, type, tostring, tonumber, ipairs = error, type, tostring, tonumber, ipairs
local concat, pairs, select = table.concat, pairs, select

-- What is collected is noted, and let go of by the next call that has to do with processes: the collector works in the
-- middle of everything. A request's go with it at the latest.
local dead, dead_n = {}, 0
local free = native "pipe_free"

local function let_go()
    while dead_n > 0 do
        local id = dead[dead_n]
        dead_n = dead_n - 1
        free(id)
    end
end

ffi.cdef [[
struct weir_process {
    double id; double number;
    double write_timeout; double stdout_read_timeout; double stderr_read_timeout; double wait_timeout;
};
]]

local OPTIONS = { "write_timeout", "stdout_read_timeout", "stderr_read_timeout", "wait_timeout" }
local DEFAULT_MS, MAX_MS = 10000, 0xffffffff

-- In the name of who has called the caller.
local function set_timeouts(proc, ...)
    for at, name in ipairs(OPTIONS) do
        local ms = select(at, ...)
        if ms then
            if ms < 0 or ms > MAX_MS then
                error("bad " .. name .. " option", 3)
            end
            proc[name] = ms
        end
    end
end

local process_type
local is_process = ffi.istype

local function own(proc)
    if type(proc) ~= "cdata" or not is_process(process_type, proc) then
        error("not a process instance", 3)
    end
    if dead_n > 0 then
        let_go()
    end
    return proc.id
end

local P = {}
-- Who waits here has the process as long, which a tail call would let go of.
local read, write, wait = native("pipe_read", 2), native("pipe_write", 2), native("pipe_wait", 2)
local shutdown, kill = native "pipe_shutdown", native "pipe_kill"

for name, errors in pairs { stdout = "", stderr = "e" } do
    local timeout = name .. "_read_timeout"

    P[name .. "_read_all"] = function(proc)
        local text, e, partial = read(own(proc), "a", errors, 0, proc[timeout])
        return text, e, partial
    end

    P[name .. "_read_line"] = function(proc)
        local text, e, partial = read(own(proc), "l", errors, 0, proc[timeout])
        return text, e, partial
    end

    P[name .. "_read_bytes"] = function(proc, len)
        local id = own(proc)
        if len <= 0 then
            if len < 0 then
                error("bad len argument", 2)
            end
            return ""
        end
        local text, e, partial = read(id, "b", errors, len, proc[timeout])
        return text, e, partial
    end

    P[name .. "_read_any"] = function(proc, max)
        local id = own(proc)
        max = tonumber(max)
        if not max or max <= 0 then
            error("bad max argument", 2)
        end
        local text, e, partial = read(id, "any", errors, max, proc[timeout])
        return text, e, partial
    end
end

function P.write(proc, data)
    local id = own(proc)
    local kind = type(data)
    if kind == "table" then
        data = concat(data)
    elseif kind ~= "string" and kind ~= "number" then
        error("bad data arg: string, number, or table expected, got " .. kind, 2)
    end
    local n, e = write(id, data, nil, nil, proc.write_timeout)
    if n then
        return n
    end
    return nil, e
end

function P.wait(proc)
    local ok, reason, status = wait(own(proc), nil, nil, nil, proc.wait_timeout)
    if status == nil and reason ~= "timeout" then
        return ok, reason
    end
    return ok, reason, status
end

function P.shutdown(proc, direction)
    local id = own(proc)
    if direction ~= "stdin" and direction ~= "stdout" and direction ~= "stderr" then
        error("bad shutdown arg: " .. tostring(direction), 2)
    end
    return shutdown(id, direction)
end

function P.kill(proc, signal)
    local id = own(proc)
    if type(signal) ~= "number" then
        error("bad signal arg: number expected, got " .. tostring(signal), 2)
    end
    return kill(id, nil, nil, signal)
end

function P.pid(proc)
    own(proc)
    return proc.number
end

function P.set_timeouts(proc, ...)
    own(proc)
    set_timeouts(proc, ...)
end

process_type = ffi.metatype("struct weir_process", {
    __index = P,
    __gc = function(proc)
        dead_n = dead_n + 1
        dead[dead_n] = proc.id
    end,
})

local spawn = native "pipe_spawn"
local SHELL, MERGED, ENVIRON = 1, 2, 4

local function environ_of(environ)
    if type(environ) ~= "table" then
        error("bad environ option: table expected, got " .. type(environ), 3)
    end
    local n = 0
    for i, variable in ipairs(environ) do
        n = i
        local bad = "bad value at index " .. i .. " of environ option: "
        if type(variable) ~= "string" then
            error(bad .. "string expected, got " .. type(variable), 3)
        end
        if not variable:find("=", 2, true) then
            error(bad .. "'name=[value]' format expected, got '" .. variable .. "'", 3)
        end
    end
    return n > 0 and pack(environ, n)
end

local pipe = { version = "0.1.31" }
package.preload["ngx.pipe"] = function()
    return pipe
end

function pipe.spawn(args, opts)
    if weir.phase() == "init" then
        error("API disabled in the current context", 2)
    end
    let_go()
    local kind, how, words = type(args), 0, args
    if kind == "string" then
        how = SHELL
    elseif kind == "table" then
        local n = 0
        for _ in ipairs(args) do
            n = n + 1
        end
        if n == 0 then
            error("bad args arg: non-empty table expected", 2)
        end
        words = pack(args, n)
    else
        error("bad args arg: table expected, got " .. kind, 2)
    end
    local size, environ = 4096, nil
    local proc = process_type(0, 0, DEFAULT_MS, DEFAULT_MS, DEFAULT_MS, DEFAULT_MS)
    if opts then
        if opts.merge_stderr then
            how = how + MERGED
        end
        if opts.buffer_size then
            size = tonumber(opts.buffer_size)
            if not size or size < 1 then
                error("bad buffer_size option", 2)
            end
        end
        environ = opts.environ and environ_of(opts.environ)
        if environ then
            how = how + ENVIRON
        end
        set_timeouts(proc, opts.write_timeout, opts.stdout_read_timeout, opts.stderr_read_timeout, opts.wait_timeout)
    end
    local id, number = spawn(how, words, environ or nil, size)
    if not id then
        return nil, number
    end
    proc.id, proc.number = id, number
    return proc
end
