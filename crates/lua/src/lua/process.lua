-- ngx.process.

local weir = ...
local raw, op, check = weir.raw, weir.op, weir.check
local ask = weir.ask
local error, type = error, type
local OP_TYPE, OP_MASTER, OP_QUIT, OP_EXPIRE = op "process_type", op "process_master", op "process_quit", op "process_expire"

local process = { version = "0.1.31" }
package.preload["ngx.process"] = function()
    return process
end

function process.type()
    return ask(OP_TYPE)
end

function process.get_master_pid()
    return ask(OP_MASTER)
end

function process.signal_graceful_exit()
    check(raw(OP_QUIT))
end

-- Weir's own: what waits for its time comes now, and is told so, as where a worker ends. None is begun any more.
function process.expire_timers()
    check(raw(OP_EXPIRE))
end

function process.enable_privileged_agent(connections)
    if connections ~= nil and type(connections) ~= "number" then
        error("bad argument #1 to 'enable_privileged_agent' (number expected, got " .. type(connections) .. ")", 2)
    end
    if weir.phase() ~= "init" then
        error("API disabled in the current context", 2)
    end
    return nil, "there is no privileged agent: workers are threads of one process without the master's rights; "
        .. "have a timer of worker 0 do what needs no more rights"
end
