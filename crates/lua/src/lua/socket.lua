-- ngx.socket

local weir = ...
local raw, op, check, C, ngx = weir.raw, weir.op, weir.check, weir.C, weir.ngx
local ask = weir.ask
local error, type, tostring, tonumber, setmetatable, select, floor = error, type, tostring, tonumber, setmetatable, select, math.floor
local sub, find, gsub, concat = string.sub, string.find, string.gsub, table.concat

local native = weir.native
local new, open, pooled, write = native("sock_new", 2), native "sock_connect", native "sock_pooled", native("sock_send", 2)
local receive, keep_alive, defaults = native("sock_read", 3), native "sock_keep", native "sock_defaults"
local OP_CLOSE, OP_SHUTDOWN, OP_TIMEOUTS = op "sock_close", op "sock_shutdown", op "sock_timeouts"

local Tcp = {}
weir.tcp = Tcp
local meta = { __index = Tcp }
local socket = {}
ngx.socket = socket

local debug, run_id, alive = weir.debug, weir.run_id, weir.native "is_alive"

local peer_of = native "sock_peer"

-- Whom a socket is connected to, or was to be, as lines of the log say it.
local function upstream(sock)
    local to = sock.to
    if not to then
        return ""
    end
    local ip = sub(to, 1, 5) == "unix:" and to or peer_of(sock.id)
    return ", upstream: " .. to .. (ip and "(" .. ip .. ")" or "")
end

local function log(sock, text)
    if sock.logs then
        weir.report(4, weir.named(text) .. upstream(sock))
    end
end

-- What the system has refused is told of whether such lines are wanted or not.
local REFUSED = {
    ["connection reset by peer"] = "(104: Connection reset by peer)", ["broken pipe"] = "(32: Broken pipe)",
}
local function tell_refused(sock, what, e)
    if REFUSED[e] then
        weir.report(4, what .. "() failed " .. REFUSED[e] .. upstream(sock))
    end
end

function socket.tcp()
    local id, run, size, keep, logs, read_ms, send_ms, connect_ms = new()
    -- Made of constants it is copied at its size, with room for what connecting adds.
    local sock = {
        id = 0, size = 0, keep = 0, logs = false, run = 0, read_ms = 0, send_ms = 0, connect_ms = 0,
        connected = false, connecting = false, reused = 0, to = false,
    }
    sock.id, sock.size, sock.keep, sock.logs, sock.run = id, size, keep, logs, run
    sock.read_ms, sock.send_ms, sock.connect_ms = read_ms, send_ms, connect_ms
    return setmetatable(sock, meta)
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

local function bad(sock, what, level)
    error("bad argument #1 to '" .. what .. "' (table expected, got " .. (sock == nil and "nil" or type(sock)) .. ")", level + 1)
end

-- It is used by the request that made it only.
local function of_run(sock, level)
    if sock.run ~= run_id() then
        if sock.id == 0 or sock.is_datagrams or alive(0, nil, nil, sock.run) then
            error("bad request", level + 1)
        end
        -- It was closed with what had made it.
        sock.connected = false
    end
end

local function own(sock, what)
    if type(sock) ~= "table" or not sock.id then
        bad(sock, what, 3)
    end
    of_run(sock, 3)
    return sock.id
end
weir.own_socket, weir.log_of_socket = own, log

-- Operations know only sockets of their run: of others they say that they are closed, and only then it is asked whose
-- one is.

-- Who has begun to connect may have been killed meanwhile, which Rust knows.
local OP_CONNECTING = op "sock_is_connecting"
local function is_connecting(sock)
    if C(OP_CONNECTING, sock.id, "", 0, "", 0, 0, 0) ~= 1 then
        sock.connecting = false
    end
    return sock.connecting
end

function Tcp.connect(sock, host, ...)
    local id = type(sock) == "table" and sock.id or bad(sock, "connect", 2)
    local port, options = ...
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
    elseif select("#", ...) == 0 then
        return nil, "missing the port number"
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
    if sock.run ~= run_id() then
        if sock.to then
            error("bad request", 2)
        end
        -- It has only been made elsewhere.
        sock.id, sock.run = new()
        id = sock.id
        raw(OP_TIMEOUTS, id, "connect", nil, sock.connect_ms)
        raw(OP_TIMEOUTS, id, "send", nil, sock.send_ms)
        raw(OP_TIMEOUTS, id, "read", nil, sock.read_ms)
    end
    sock.pool_size, sock.pool, sock.to = nil, pool, pool
    local backlog = -1
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
        if options.backlog ~= nil then
            backlog = floor(options.backlog)
        end
    end
    if sock.connecting and is_connecting(sock) then
        return nil, "socket busy connecting"
    end
    if sock.connected then
        if raw(OP_CLOSE, id) == -1 then
            local e = weir.text()
            if e ~= "closed" then
                return nil, e
            end
        end
        sock.connected = false
    end
    sock.connecting = true
    local used, e = pooled(id, sock.pool, nil, sock.pool_size or sock.size, backlog)
    sock.connecting = false
    if used then
        sock.connected = true
        sock.reused = used
        return 1
    elseif e then
        if e == "timeout" then
            sock.to = false
            log(sock, "lua tcp socket queued connect timed out, when trying to connect to " .. host .. (port > 0 and ":" .. port or ""))
        end
        return nil, e
    end
    sock.reused = 0
    sock.connecting = true
    local ok
    ok, e = open(id, host, nil, port)
    sock.connecting = false
    if ok then
        sock.connected = true
        return 1
    end
    if e == "closed" then
        of_run(sock, 2)
    end
    local words, level, line = e:match("^([^\n]*)\n(%d)(.*)$")
    if words then
        if sock.logs then
            weir.report(tonumber(level), line .. upstream(sock))
        end
        return nil, words
    end
    if e == "timeout" then
        log(sock, "lua tcp socket connect timed out")
    end
    return nil, e
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
    local id = type(sock) == "table" and sock.id or bad(sock, "send", 2)
    local text = data
    if type(data) ~= "string" then
        local parts = {}
        flatten(parts, 0, data, 4)
        text = table.concat(parts)
    end
    if sock.connecting and is_connecting(sock) then
        return nil, "socket busy connecting"
    end
    if not sock.connected then
        log(sock, "attempt to send data on a closed socket: u:0000000000000000, c:0000000000000000, ft:0 eof:0")
        return nil, "closed"
    end
    local n, e = write(id, text)
    if n then
        return n
    end
    if e == "closed" then
        of_run(sock, 2)
    end
    if e == "timeout" then
        log(sock, "lua tcp socket write timed out")
    elseif e ~= "socket busy writing" then
        tell_refused(sock, "send", e)
        sock.connected = false
    end
    return nil, e
end

local function fails(sock, e, more)
    if e == "timeout" then
        log(sock, "lua tcp socket read timed out")
    elseif e == "closed" then
        of_run(sock, 3 + (more or 0))
    else
        tell_refused(sock, "recv", e)
    end
end

-- A text and whether it is the last piece; or nil, an error and what there was.
local function read(sock, kind, n, pattern)
    if sock.connecting and is_connecting(sock) then
        return nil, "socket busy connecting"
    end
    if not sock.connected then
        if sock.logs then
            weir.report(4, "attempt to receive data on a closed socket: u:0000000000000000, c:0000000000000000, ft:0 eof:0" .. upstream(sock))
        end
        return nil, "closed"
    end
    local text, e, partial = receive(sock.id, pattern, nil, n, kind)
    if text == nil then
        fails(sock, e, 1)
    end
    return text, e, partial
end

function Tcp.receive(sock, pattern)
    if type(sock) ~= "table" or not sock.id then
        bad(sock, "receive", 2)
    end
    if sock.connected and (pattern == nil or pattern == "*l") then
        -- As most code asks for most.
        local text, e, partial = receive(sock.id, nil, nil, 0, 1)
        if text then
            return text
        end
        fails(sock, e)
        return nil, e, partial
    end
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
    elseif partial == nil then
        return nil, e
    end
    return nil, e, partial
end

function Tcp.receiveany(sock, max)
    if type(sock) ~= "table" or not sock.id then
        bad(sock, "receiveany", 2)
    end
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
    if partial == nil then
        return nil, e
    end
    return nil, e, partial
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
    if sock.connecting and is_connecting(sock) then
        return nil, "socket busy connecting"
    end
    if not sock.connected then
        return nil, "closed"
    end
    local code = raw(OP_CLOSE, id)
    if code == -1 then
        local e = weir.text()
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
    return ask(OP_SHUTDOWN, id)
end

function Tcp.settimeout(sock, ...)
    own(sock, "settimeout")
    if select("#", ...) ~= 1 then
        error("ngx.socket settimeout: expecting 2 arguments (including the object) but seen " .. select("#", ...) + 1, 2)
    end
    local ms = ...
    local n = tonumber(ms) or 0
    if n < 0 or n > 2147483647 then
        error("bad timeout value", 2)
    end
    n = floor(n)
    if n == 0 then
        return
    end
    sock.connect_ms, sock.send_ms, sock.read_ms = n, n, n
    raw(OP_TIMEOUTS, sock.id, "connect", nil, n)
    raw(OP_TIMEOUTS, sock.id, "send", nil, n)
    raw(OP_TIMEOUTS, sock.id, "read", nil, n)
end

function Tcp.settimeouts(sock, ...)
    own(sock, "settimeouts")
    if select("#", ...) ~= 3 then
        error("ngx.socket settimeouts: expecting 4 arguments (including the object) but seen " .. select("#", ...) + 1, 2)
    end
    local connect, send, receive = ...
    for name, ms in pairs { connect = tonumber(connect) or 0, send = tonumber(send) or 0, read = tonumber(receive) or 0 } do
        if ms < 0 or ms > 2147483647 then
            error("bad timeout value", 2)
        end
        ms = floor(ms)
        if ms > 0 then
            sock[name .. "_ms"] = ms
            raw(OP_TIMEOUTS, sock.id, name, nil, ms)
        end
    end
end

function Tcp.setkeepalive(sock, timeout, size)
    local id = type(sock) == "table" and sock.id or bad(sock, "setkeepalive", 2)
    local ms = timeout == nil and sock.keep or tonumber(timeout)
    if not ms then
        error("bad argument #2 to '?' (number expected, got " .. type(timeout) .. ")", 2)
    end
    if sock.connecting and is_connecting(sock) then
        return nil, "socket busy connecting"
    end
    if not sock.connected then
        return nil, "closed"
    end
    local most = sock.pool_size or tonumber(size) or sock.size
    if most <= 0 then
        error("bad \"pool_size\" option value: " .. tostring(size), 2)
    end
    local ok, e = keep_alive(id, sock.pool, nil, ms, most)
    if not ok then
        if e == "closed" then
            of_run(sock, 2)
        end
        return nil, e
    end
    sock.connected = false
    return 1
end

local OP_BIND, OP_FD = op "sock_bind", op "sock_fd"

function Tcp.bind(sock, ip)
    local id = own(sock, "bind")
    if type(ip) ~= "string" then
        error("bad argument #1 to 'bind' (string expected, got " .. (ip == nil and "nil" or type(ip)) .. ")", 2)
    end
    local ok, e = ask(OP_BIND, id, ip)
    if not ok then
        return nil, e
    end
    debug("lua tcp socket bind ip: ", ip)
    return 1
end

function Tcp.getfd(sock)
    local id = own(sock, "getfd")
    return ask(OP_FD, id)
end

function Tcp.getreusedtimes(sock)
    own(sock, "getreusedtimes")
    if not sock.connected and not (sock.connecting and is_connecting(sock)) then
        return nil, "closed"
    end
    return sock.reused
end

local OP_OPTION = op "sock_option"
-- Whose values are numbers; others there are none.
local OPTIONS = { keepalive = true, reuseaddr = true, ["tcp-nodelay"] = true, sndbuf = true, rcvbuf = true, keepintvl = true, keepcnt = true }

-- One that has never been connected has no options.
local function of_connection(sock)
    if not sock.connected and not sock.to then
        error("socket is never created nor connected", 3)
    end
end

function Tcp.getoption(sock, option)
    local id = own(sock, "getoption")
    of_connection(sock)
    if option == nil then
        return nil, "missing the \"option\" argument"
    end
    return ask(OP_OPTION, id, tostring(option), nil, 0, 0)
end

function Tcp.setoption(sock, option, value)
    local id = own(sock, "setoption")
    if option == nil then
        return nil, "missing the \"option\" argument"
    end
    if value == nil then
        return nil, "missing the \"value\" argument"
    end
    if option == "ip-transparent" then
        return nil, "unsupported option ip-transparent"
    end
    of_connection(sock)
    if value == true then
        value = 1
    elseif value == false then
        value = 0
    elseif type(value) ~= "number" and OPTIONS[option] then
        error("bad argument #3 to 'setoption' (cannot convert '" .. type(value) .. "' to 'int')", 2)
    end
    return ask(OP_OPTION, id, tostring(option), nil, tonumber(value) or 0, 1)
end

----------------------------------------------------------------------------------------------------- datagrams

local OP_UDP_CONNECT, OP_UDP_SEND, OP_UDP_READ = op "udp_connect", op "udp_send", op "udp_read"

local Udp = {}
local udp_meta = { __index = Udp }

function socket.udp(...)
    if select("#", ...) ~= 0 then
        error("expecting zero arguments, but got " .. select("#", ...), 2)
    end
    local id, run, _, _, logs = new()
    return setmetatable({ id = id, logs = logs, run = run, is_datagrams = true }, udp_meta)
end

function Udp.setpeername(sock, ...)
    local n = select("#", ...) + 1
    if n ~= 2 and n ~= 3 then
        error("ngx.socket.udp setpeername: expecting 2 or 3 arguments (including the object) but seen " .. n, 2)
    end
    local id = own(sock, "setpeername")
    local host, port = ...
    host = tostring(host)
    if host:sub(1, 5) == "unix:" then
        port = 0
    else
        port = tonumber(port)
        if not port then
            error("bad argument #2 to 'setpeername' (number expected, got " .. (select(2, ...) == nil and "nil" or type(select(2, ...))) .. ")", 2)
        end
        if port < 0 or port > 65535 then
            return nil, "bad port number: " .. port
        end
    end
    sock.connected = false
    sock.to = port > 0 and host .. ":" .. port or host
    check(raw(OP_UDP_CONNECT, id, host, nil, port))
    local ok, e = weir.await(weir.number())
    if not ok then
        if e == "timeout" then
            log(sock, "lua udp socket connect timed out")
        end
        return nil, e
    end
    sock.connected = true
    return 1
end

function Udp.send(sock, data)
    local id = own(sock, "send")
    local text = data
    if type(data) ~= "string" then
        local parts = {}
        flatten(parts, 0, data, 4)
        text = table.concat(parts)
    end
    if not sock.connected then
        log(sock, "attempt to send data on a closed socket: u:0000000000000000, c:0000000000000000")
        return nil, "closed"
    end
    local code = C(OP_UDP_SEND, id, text, #text, "", 0, 0, 0)
    if code == -1 then
        return nil, weir.text()
    end
    return 1
end

function Udp.receive(sock, size)
    local id = own(sock, "receive")
    local n = 65536
    if size ~= nil then
        n = math.min(tonumber(size) or 65536, 65536)
    end
    if not sock.connected then
        log(sock, "attempt to receive data on a closed socket: u:0000000000000000, c:0000000000000000")
        return nil, "closed"
    end
    if sock.busy then
        return nil, "socket busy"
    end
    if weir.debugs() then
        weir.report(8, "lua udp socket receive buffer size: " .. n)
    end
    check(raw(OP_UDP_READ, id, nil, nil, n))
    sock.busy = true
    local text, e = weir.await(weir.number())
    sock.busy = false
    if not text and e == "timeout" then
        log(sock, "lua udp socket read timed out")
    end
    if text then
        return text
    end
    local words, line = e:match("^([^\n]*)\n(.*)$")
    if words then
        weir.report(4, line)
        e = words
    end
    return nil, e
end

function Udp.close(sock)
    local id = own(sock, "close")
    if not sock.connected then
        return nil, "closed"
    end
    sock.connected = false
    raw(OP_CLOSE, id)
    return 1
end

Udp.settimeout = Tcp.settimeout

function Udp.bind(sock, ip)
    local id = own(sock, "bind")
    if type(ip) ~= "string" then
        error("bad argument #1 to 'bind' (string expected, got " .. (ip == nil and "nil" or type(ip)) .. ")", 2)
    end
    local ok, e = ask(OP_BIND, id, ip)
    if not ok then
        return nil, e
    end
    debug("lua udp socket bind ip: ", ip)
    return 1
end

----------------------------------------------------------------------------------------------------- the request's body

local OP_BODY_BEGIN, OP_BODY_PIECE = op "body_begin", op "body_piece"

-- The client's connection itself has the same methods as one of the code's own, but for those that make or end it.
local Raw = {
    receive = Tcp.receive, receiveany = Tcp.receiveany, receiveuntil = Tcp.receiveuntil, send = Tcp.send,
    settimeout = Tcp.settimeout, settimeouts = Tcp.settimeouts, getfd = Tcp.getfd,
}
local raw_meta = { __index = Raw }
local OP_RAW_BEGIN = op "raw_begin"

local function raw_socket()
    local code = check(raw(OP_RAW_BEGIN))
    if code == -1 then
        return nil, weir.text()
    end
    local id = weir.number()
    local _, _, logs, read_ms, send_ms = defaults()
    return setmetatable({
        id = id, logs = logs, run = run_id(), read_ms = read_ms, send_ms = send_ms, connected = true,
    }, raw_meta)
end

local Body = {}
local body_meta = { __index = Body }

function ngx.req.socket(is_raw)
    if is_raw then
        return raw_socket()
    end
    local code = check(raw(OP_BODY_BEGIN))
    if code == -1 then
        return nil, weir.text()
    end
    check(code)
    local fd = weir.number()
    local _, _, logs, read_ms = defaults()
    return setmetatable({ buf = "", at = 1, n = 0, logs = logs, ms = read_ms, run = run_id(), id = 0, fd = fd }, body_meta)
end

-- What has been read of the body is `buf` from `at` on, and `n` further pieces behind it. Each piece is looked
-- through once, and put together with the others once.

-- A further piece of the body; or nil and why not.
local function more(sock)
    if sock.over then
        return nil, sock.over
    end
    check(raw(OP_BODY_PIECE, 0, nil, nil, sock.ms))
    local text, e = weir.await(weir.number())
    if not text then
        if e == "timeout" then
            log(sock, "lua tcp socket read timed out")
        else
            sock.over = e
        end
        return nil, e
    end
    local n = sock.n + 1
    sock.n, sock[n] = n, text
    return text
end

-- All that is there as one text, which `buf` is then.
local function whole(sock)
    local n = sock.n
    if n > 0 or sock.at > 1 then
        sock[0] = sub(sock.buf, sock.at)
        sock.buf, sock.at, sock.n = concat(sock, "", 0, n), 1, 0
        for at = 0, n do
            sock[at] = nil
        end
    end
    return sock.buf
end

-- The same where a part of it may be behind `buf`.
local function gather(sock)
    if sock.n > 0 then
        whole(sock)
    elseif sock.at > #sock.buf then
        sock.buf, sock.at = "", 1
    end
end

-- The next `n` bytes, without `skipped` more.
local function take(sock, n, skipped)
    local from = sock.at
    sock.at = from + n + (skipped or 0)
    return sub(sock.buf, from, from + n - 1)
end

local function rest(sock, e)
    local partial = whole(sock)
    sock.buf = ""
    return nil, e, partial
end

function Body.receive(sock, pattern)
    own(sock, "receive")
    if pattern == nil or pattern == "*l" then
        gather(sock)
        local from = find(sock.buf, "\n", sock.at, true)
        local length = #sock.buf - sock.at + 1
        local before = from and from - sock.at
        while not before do
            local text, e = more(sock)
            if not text then
                return rest(sock, e)
            end
            from = find(text, "\n", 1, true)
            before = from and length + from - 1
            length = length + #text
        end
        gather(sock)
        return (gsub(take(sock, before, 1), "\r", ""))
    elseif pattern == "*a" then
        while true do
            local text, e = more(sock)
            if not text then
                local partial
                text, e, partial = rest(sock, e)
                if e == "closed" then
                    return partial
                end
                return text, e, partial
            end
        end
    end
    local n = tonumber(pattern)
    if not n or n < 0 then
        error("bad argument #1 to 'receive' (bad pattern argument" .. (type(pattern) == "string" and ": " .. pattern or "") .. ")", 2)
    end
    gather(sock)
    local length = #sock.buf - sock.at + 1
    while length < n do
        local text, e = more(sock)
        if not text then
            return rest(sock, e)
        end
        length = length + #text
    end
    gather(sock)
    return take(sock, n)
end

function Body.getfd(sock)
    own(sock, "getfd")
    return sock.fd
end

function Body.receiveany(sock, max)
    own(sock, "receiveany")
    gather(sock)
    if sock.at > #sock.buf then
        local text, e = more(sock)
        if not text then
            return nil, e
        end
        gather(sock)
    end
    return take(sock, math.min(max, #sock.buf - sock.at + 1))
end

-- How much of the end of a text may be the pattern's beginning.
local function begun(text, pattern)
    for n = math.min(#pattern - 1, #text), 1, -1 do
        if text:sub(-n) == pattern:sub(1, n) then
            return n
        end
    end
    return 0
end

function Body.receiveuntil(sock, pattern, options)
    own(sock, "receiveuntil")
    local inclusive = type(options) == "table" and options.inclusive
    local over = false
    return function(size)
        own(sock, "receiveuntil")
        if over then
            over = false
            return nil, nil, nil
        end
        size = size and tonumber(size) or 0
        gather(sock)
        -- What is looked through is new, behind as much of the text before it as a pattern may begin in.
        local window, length = sub(sock.buf, sock.at), #sock.buf - sock.at + 1
        while true do
            local at = find(window, pattern, 1, true)
            local before = at and length - #window + at - 1
            if before and (size <= 0 or before <= size) then
                gather(sock)
                over = size > 0
                if inclusive then
                    return take(sock, before + #pattern)
                end
                return take(sock, before, #pattern)
            elseif size > 0 and (before or length - begun(window, pattern) >= size) then
                gather(sock)
                return take(sock, size)
            end
            local text, e = more(sock)
            if not text then
                return rest(sock, e)
            end
            length = length + #text
            window = (#pattern > 1 and sub(window, 1 - #pattern) or "") .. text
        end
    end
end

function Body.settimeout(sock, ms)
    own(sock, "settimeout")
    if tonumber(ms) and tonumber(ms) > 0 then
        sock.ms = tonumber(ms)
    end
end

function Body.settimeouts(sock, _, _, receive)
    Body.settimeout(sock, receive)
end
