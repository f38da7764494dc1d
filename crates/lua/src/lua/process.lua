-- ngx.process.

local weir = ...
local raw, op, check = weir.raw, weir.op, weir.check
local ask = weir.ask
local type = type
local OP_AGENT = op "process_agent"
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

-- One more worker, that listens nowhere.
function process.enable_privileged_agent(connections)
    if weir.phase() ~= "init" then
        return nil, "API disabled in the current context"
    end
    connections = connections or 512
    if type(connections) ~= "number" or connections < 0 then
        return nil, "bad 'connections' argument: number expected and greater than 0"
    end
    check(raw(OP_AGENT, 0, nil, nil, connections))
    return true
end
