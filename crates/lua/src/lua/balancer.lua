-- ngx.balancer

local weir = ...
local raw, finish, op = weir.raw, weir.finish, weir.op
local ask = weir.ask
local error, type, tonumber, tostring = error, type, tonumber, tostring

local set_peer = weir.native "balancer_peer"
local OP_TRIES, OP_LAST, OP_WAITS = op "balancer_tries", op "balancer_last", op "balancer_waits"
local OP_KEEP, OP_BIND, OP_REWRITE, OP_TLS = op "balancer_keep", op "balancer_bind", op "balancer_rewrite", op "balancer_tls"

local balancer = { version = weir.core_version }

function balancer.set_current_peer(address, port, host)
    if type(address) ~= "string" then
        error("bad argument #1 to 'set_current_peer' (string expected, got " .. type(address) .. ")", 2)
    end
    port = port and tonumber(port) or 0
    if host ~= nil and type(host) ~= "string" then
        error("bad argument #3 to 'set_current_peer' (string expected, got " .. type(host) .. ")", 2)
    end
    return set_peer(host and 1 or 0, address, host, port)
end

function balancer.enable_keepalive(seconds, requests)
    if not seconds then
        seconds = 60
    elseif type(seconds) ~= "number" then
        error("bad argument #1 to 'enable_keepalive' (number expected, got " .. type(seconds) .. ")", 2)
    elseif seconds < 0 then
        error("bad argument #1 to 'enable_keepalive' (expected >= 0)", 2)
    end
    if not requests then
        requests = 100
    elseif type(requests) ~= "number" then
        error("bad argument #2 to 'enable_keepalive' (number expected, got " .. type(requests) .. ")", 2)
    elseif requests < 0 then
        error("bad argument #2 to 'enable_keepalive' (expected >= 0)", 2)
    end
    return ask(OP_KEEP, 0, nil, nil, seconds * 1000, requests)
end

function balancer.set_more_tries(count)
    local ok, e = ask(OP_TRIES, 0, nil, nil, tonumber(count) or 0)
    if ok == false then
        return true, "reduced tries due to limit"
    end
    return ok, e
end

function balancer.get_last_failure()
    local code = raw(OP_LAST)
    if code == -1 then
        return nil, nil, weir.text()
    end
    return finish(code)
end

function balancer.set_timeouts(connect, send, read)
    for at, pair in ipairs { { "connect", connect }, { "send", send }, { "read", read } } do
        local seconds = pair[2]
        if seconds then
            if type(seconds) ~= "number" or seconds <= 0 then
                error("bad " .. pair[1] .. " timeout", 2)
            end
            local ok, e = ask(OP_WAITS, at - 1, nil, nil, seconds * 1000)
            if not ok then
                return false, e
            end
        end
    end
    return true
end

function balancer.bind_to_local_addr(address)
    if type(address) ~= "string" then
        error("bad argument #1 to 'bind_to_local_addr' (string expected, got " .. type(address) .. ")", 2)
    end
    return ask(OP_BIND, 0, address)
end

function balancer.recreate_request()
    return ask(OP_REWRITE)
end

function balancer.set_upstream_tls(on)
    return ask(OP_TLS, (on == 0 or on == false) and 0 or 1)
end

-- In stream connections are for no name, and are not kept.
if weir.stream then
    local set_current_peer = balancer.set_current_peer
    function balancer.set_current_peer(address, port, host)
        if host ~= nil then
            error("bad argument #3 to 'set_current_peer' ('host' is for requests; in stream proxy_ssl_name names the server)", 2)
        end
        return set_current_peer(address, port)
    end
    function balancer.enable_keepalive()
        error("'enable_keepalive' is for requests: a session of stream has its connection to the server for itself", 2)
    end
    balancer.recreate_request, balancer.set_upstream_tls = nil, nil
end

package.preload["ngx.balancer"] = function()
    return balancer
end
