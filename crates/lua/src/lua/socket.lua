-- ngx.socket

local weir = ...
local raw, finish, op, check, C, out, ngx = weir.raw, weir.finish, weir.op, weir.check, weir.C, weir.out, weir.ngx
local ffi_string = require("ffi").string
local error, type, tostring, tonumber, setmetatable, select, floor = error, type, tostring, tonumber, setmetatable, select, math.floor

local OP_NEW, OP_CONNECT, OP_POOLED, OP_SEND = op "sock_new", op "sock_connect", op "sock_pooled", op "sock_send"
local OP_READ, OP_CLOSE, OP_SHUTDOWN, OP_KEEP = op "sock_read", op "sock_close", op "sock_shutdown", op "sock_keep"
local OP_TIMEOUTS, OP_DEFAULTS = op "sock_timeouts", op "sock_defaults"

local Tcp = {}
local meta = { __index = Tcp }
local socket = {}
ngx.socket = socket

local function log(sock, text)
    if sock.logs then
        weir.report(4, text)
    end
end

function socket.tcp()
    check(raw(OP_NEW))
    local id = out.x
    raw(OP_DEFAULTS)
    local size, keep, logs = unpack((weir.list()))
    return setmetatable({ id = id, size = size, keep = keep, logs = logs, run = weir.run() }, meta)
end
socket.stream = socket.tcp

function socket.connect(host, port, ...)
    local sock = socket.tcp()
    local ok, e = sock:connect(host, port, ...)
    if not ok then
        return nil, e
    end
    return sock
end

-- Of the request that made it only.
local function own(sock, what)
    if type(sock) ~= "table" or not sock.id then
        error("bad argument #1 to '" .. what .. "' (table expected, got " .. (sock == nil and "nil" or type(sock)) .. ")", 3)
    end
    if sock.run ~= weir.run() then
        error("bad request", 3)
    end
    return sock.id
end

function Tcp.connect(sock, host, port, options)
    local id = own(sock, "connect")
    if type(host) ~= "string" then
        if type(host) ~= "number" then
            error("bad argument #1 to 'connect' (string expected, got " .. (host == nil and "nil" or type(host)) .. ")", 2)
        end
        host = tostring(host)
    end
    local pool
    if host:sub(1, 5) == "unix:" then
        if type(port) == "table" then
            options = port
        end
        port = 0
        pool = host
    else
        local n = tonumber(port)
        if not n then
            error("bad argument #2 to 'connect' (number expected, got " .. (port == nil and "nil" or type(port)) .. ")", 2)
        end
        if n < 0 or n > 65535 then
            return nil, "bad port number: " .. n
        end
        port = floor(n)
        pool = host .. ":" .. port
    end
    sock.pool_size, sock.pool = nil, pool
    if type(options) == "table" then
        if options.pool ~= nil then
            if type(options.pool) ~= "string" and type(options.pool) ~= "number" then
                error('bad argument #3 to \'connect\' (bad "pool" option type: ' .. type(options.pool) .. ")", 2)
            end
            sock.pool = tostring(options.pool)
        end
        if options.pool_size ~= nil then
            if type(options.pool_size) ~= "number" or options.pool_size <= 0 then
                error("bad \"pool_size\" option value: " .. tostring(options.pool_size), 2)
            end
            sock.pool_size = options.pool_size
        end
        if options.backlog ~= nil and (type(options.backlog) ~= "number" or options.backlog < 0) then
            error("bad \"backlog\" option value: " .. tostring(options.backlog), 2)
        end
    end
    if sock.connected then
        raw(OP_CLOSE, id)
    end
    sock.connected, sock.eof = false, false
    if raw(OP_POOLED, id, sock.pool) == 3 then
        sock.connected = true
        sock.reused = out.x
        return 1
    end
    sock.reused = 0
    local code = raw(OP_CONNECT, id, host, nil, port)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    local ok, e = weir.await(out.i)
    if ok then
        sock.connected = true
        return 1
    end
    local words, system = e:match("^([^\n]*)\n(.*)$")
    if words then
        log(sock, "connect() failed " .. system)
        return nil, words
    end
    if e == "timeout" then
        log(sock, "lua tcp socket connect timed out, when connecting to " .. host .. (port > 0 and ":" .. port or ""))
    end
    return nil, e
end

local function closed(sock)
    if not sock.connected then
        log(sock, "attempt to send data on a closed socket: u:nil, c:nil, ft:0 eof:0")
        return true
    end
end

local function flatten(parts, n, value, level)
    local kind = type(value)
    if kind == "table" then
        for at = 1, #value do
            n = flatten(parts, n, value[at], level + 1)
        end
        return n
    elseif kind == "string" then
        parts[n + 1] = value
    elseif kind == "number" or kind == "boolean" or kind == "nil" then
        parts[n + 1] = tostring(value)
    else
        error("bad argument #1 to 'send' (string, number, boolean, nil, or array table expected, got " .. kind .. ")", level)
    end
    return n + 1
end

function Tcp.send(sock, data)
    local id = own(sock, "send")
    local text = data
    if type(data) ~= "string" then
        local parts = {}
        flatten(parts, 0, data, 4)
        text = table.concat(parts)
    end
    if not sock.connected then
        log(sock, "attempt to send data on a closed socket: u:0000000000000000, c:0000000000000000, ft:0 eof:0")
        return nil, "closed"
    end
    local code = check(C(OP_SEND, id, text, #text, "", 0, 0, 0))
    if code == 3 then
        return out.x
    elseif code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    local n, e = weir.await(out.i)
    if n then
        return n
    end
    if e == "timeout" then
        log(sock, "lua tcp socket write timed out")
    else
        sock.connected = false
    end
    return nil, e
end

-- A text and whether it is the last piece; or nil, an error and what there was.
local function read(sock, kind, n, pattern)
    if not sock.connected then
        if sock.logs then
            weir.report(4, "attempt to receive data on a closed socket: u:0000000000000000, c:0000000000000000, ft:0 eof:0")
        end
        return nil, "closed"
    end
    local code = C(OP_READ, sock.id, pattern or "", pattern and #pattern or 0, "", 0, n, kind)
    if code == 5 then
        local t = weir.list()
        return t[1], t[2]
    elseif code == -1 then
        return nil, ffi_string(out.p, out.n)
    elseif code ~= 100 then
        check(code)
    end
    local text, e, partial = weir.await(out.i)
    if text == nil then
        if e == "timeout" then
            log(sock, "lua tcp socket read timed out")
        else
            sock.connected = false
        end
    end
    return text, e, partial
end

function Tcp.receive(sock, pattern)
    own(sock, "receive")
    local kind, n = 1, 0
    if pattern ~= nil then
        local number = tonumber(pattern)
        if type(pattern) == "number" or type(pattern) == "string" and number then
            if number < 0 then
                error("bad argument #1 to 'receive' (bad pattern argument)", 2)
            end
            if number == 0 then
                return ""
            end
            kind, n = 0, floor(number)
        elseif pattern == "*a" then
            kind = 2
        elseif pattern ~= "*l" then
            if type(pattern) == "string" then
                error("bad argument #1 to 'receive' (bad pattern argument: " .. pattern .. ")", 2)
            end
            error("bad argument #1 to 'receive' (bad pattern argument)", 2)
        end
    end
    local text, e, partial = read(sock, kind, n)
    if text then
        return text
    end
    return nil, e, partial
end

function Tcp.receiveany(sock, max)
    own(sock, "receiveany")
    local n = tonumber(max)
    if not n then
        error("bad argument #2 to 'receiveany' (number expected, got " .. (max == nil and "nil" or type(max)) .. ")", 2)
    end
    if n < 1 then
        error("bad argument #2 to 'receiveany' (bad max argument)", 2)
    end
    local text, e, partial = read(sock, 3, floor(n))
    if text then
        return text
    end
    return nil, e
end

function Tcp.receiveuntil(sock, pattern, options)
    own(sock, "receiveuntil")
    if type(pattern) ~= "string" then
        pattern = tostring(pattern)
    end
    if #pattern == 0 then
        return nil, "pattern is empty"
    end
    local kind = 4
    if options ~= nil then
        if type(options) ~= "table" then
            error("bad argument #2 to 'receiveuntil' (table expected, got " .. type(options) .. ")", 2)
        end
        if options.inclusive ~= nil then
            if type(options.inclusive) ~= "boolean" then
                error('bad argument #2 to \'receiveuntil\' (bad "inclusive" option value type: ' .. type(options.inclusive) .. ")", 2)
            end
            if options.inclusive then
                kind = 5
            end
        end
    end
    local over = false
    return function(size)
        own(sock, "receiveuntil")
        if over then
            over = false
            return nil, nil, nil
        end
        local n = 0
        if size ~= nil then
            n = tonumber(size) or 0
            if n < 0 then
                n = 0
            end
        end
        local text, last, partial = read(sock, kind, n, pattern)
        if text then
            if last and n > 0 then
                over = true
            end
            return text
        end
        return nil, last, partial
    end
end

function Tcp.close(sock)
    local id = own(sock, "close")
    if not sock.connected then
        return nil, "closed"
    end
    local code = raw(OP_CLOSE, id)
    if code == -1 then
        local e = ffi_string(out.p, out.n)
        if e == "closed" then
            sock.connected = false
        end
        return nil, e
    end
    sock.connected = false
    return 1
end

function Tcp.shutdown(sock, how)
    local id = own(sock, "shutdown")
    if how ~= "send" then
        error("bad shutdown 'direction' argument: " .. tostring(how), 2)
    end
    if not sock.connected then
        return nil, "closed"
    end
    return finish(raw(OP_SHUTDOWN, id))
end

function Tcp.settimeout(sock, ms)
    own(sock, "settimeout")
    local n = tonumber(ms)
    if not n then
        return
    end
    if n <= 0 then
        return
    end
    raw(OP_TIMEOUTS, sock.id, "connect", nil, n)
    raw(OP_TIMEOUTS, sock.id, "send", nil, n)
    raw(OP_TIMEOUTS, sock.id, "read", nil, n)
end

function Tcp.settimeouts(sock, connect, send, receive)
    own(sock, "settimeouts")
    for name, ms in pairs { connect = connect or 0, send = send or 0, read = receive or 0 } do
        if ms < 0 or ms > 2147483647 then
            error("bad timeout value", 2)
        end
        if ms > 0 then
            raw(OP_TIMEOUTS, sock.id, name, nil, ms)
        end
    end
end

function Tcp.setkeepalive(sock, timeout, size)
    local id = own(sock, "setkeepalive")
    if not sock.connected then
        return nil, "closed"
    end
    local ms = tonumber(timeout) or sock.keep
    if ms < 0 then
        error("bad argument #1 to 'setkeepalive' (bad \"timeout\" argument)", 2)
    end
    local most = sock.pool_size or tonumber(size) or sock.size
    if most <= 0 then
        error("bad \"pool_size\" option value: " .. tostring(size), 2)
    end
    local code = raw(OP_KEEP, id, sock.pool, nil, ms, most)
    if code == -1 then
        return nil, ffi_string(out.p, out.n)
    end
    sock.connected = false
    return 1
end

function Tcp.getreusedtimes(sock)
    own(sock, "getreusedtimes")
    if not sock.connected then
        return nil, "closed"
    end
    return sock.reused
end

local OP_OPTION = op "sock_option"
function Tcp.setoption(sock, option, value)
    local id = own(sock, "setoption")
    if option == nil then
        return nil, "missing the \"option\" argument"
    end
    if value == nil then
        return nil, "missing the \"value\" argument"
    end
    local ok, e = finish(raw(OP_OPTION, id, tostring(option), nil, (value == true or value == 1) and 1 or 0))
    return ok and 1, e
end
