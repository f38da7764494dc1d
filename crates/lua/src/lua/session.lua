-- The session of stream: what goes to the client, and its connection as a socket.

local weir = ...
local raw, op, check, C, ngx = weir.raw, weir.op, weir.check, weir.C, weir.ngx
local ask = weir.ask
local error, type, tostring, tonumber, setmetatable, select, floor = error, type, tostring, tonumber, setmetatable, select, math.floor
local own, log, Tcp = weir.own_socket, weir.log_of_socket, weir.tcp

local OP_SOCKET, OP_PEEK, OP_TAKE = op "session_socket", op "session_peek", op "session_take"
local OP_SHUTDOWN, OP_ANSWER, OP_DEFAULTS = op "session_shutdown", op "session_answer", op "sock_defaults"

ngx.send_headers, ngx.arg = nil, nil
ngx.req.start_time = weir.request_start

local native = weir.native
local look, secure = native "session_peek", native "session_secure"
weir.put_out("session_print", "session_flush", "session_eof", "lua send eof")

-- Whoever looks for what code waits for finds it in the log.
local sleep = ngx.sleep
function ngx.sleep(...)
    local time = tonumber((...))
    if not time or time < 0 or select("#", ...) ~= 1 or not weir.debugs() then
        return sleep(...)
    end
    weir.report(8, ("lua ready to sleep for %d ms"):format(time * 1000))
    sleep(time)
    weir.report(8, "stream lua sleep timer expired")
end

----------------------------------------------------------------------------------------------------- the client's connection

local Session = {
    send = Tcp.send, settimeout = Tcp.settimeout, settimeouts = Tcp.settimeouts, getfd = Tcp.getfd,
}
local meta = { __index = Session }

-- What was read before the socket was there is the first that it reads.
local OP_GIVE = op "session_give"
local function consume(sock)
    if sock.peeking or sock.securing then
        return "socket busy reading"
    end
    if not sock.consumed then
        sock.consumed = true
        check(raw(OP_GIVE, sock.id))
    end
end

for _, name in ipairs { "receive", "receiveany" } do
    local f = Tcp[name]
    Session[name] = function(sock, ...)
        own(sock, name)
        local busy = consume(sock)
        if busy then
            return nil, busy
        end
        return f(sock, ...)
    end
end

function Session.receiveuntil(sock, ...)
    own(sock, "receiveuntil")
    local next_piece, e = Tcp.receiveuntil(sock, ...)
    if not next_piece then
        return nil, e
    end
    return function(...)
        local busy = consume(sock)
        if busy then
            return nil, busy
        end
        return next_piece(...)
    end
end

function Session.peek(...)
    local n = select("#", ...)
    if n ~= 2 then
        error("expecting 2 arguments (including the object), but got " .. n, 2)
    end
    local sock, size = ...
    if weir.phase() ~= "preread" then
        check(raw(OP_PEEK))
    end
    if type(sock) == "table" and sock.consumed then
        error("attempt to peek on a consumed socket", 2)
    end
    own(sock, "peek")
    if not sock.connected then
        return nil, "closed"
    end
    if sock.peeking then
        return nil, "socket busy reading"
    end
    size = tonumber(size)
    if not size then
        error("argument must be a number", 2)
    end
    if size < 0 then
        error("bad argument #2 to 'peek' (bytes can not be negative)", 2)
    end
    if size < 1 then
        return ""
    end
    sock.peeking = true
    local text = look(0, nil, nil, floor(size))
    sock.peeking = false
    if type(text) == "number" then
        -- They do not come: the session is over.
        ngx.exit(text)
    end
    return text
end

function Session.serversslhandshake(...)
    local n = select("#", ...)
    if n ~= 1 then
        error("ngx.socket serversslhandshake: expecting 1 argument (the object), but seen " .. n, 2)
    end
    local sock = ...
    own(sock, "serversslhandshake")
    weir.debug("lua tcp socket server ssl handshake")
    if not sock.connected or sock.closed_for_sending then
        return nil, "closed"
    end
    if sock.peeking or sock.securing then
        return nil, "socket busy reading"
    end
    -- Nothing else is read meanwhile.
    sock.securing = true
    local ok, e = secure(sock.id)
    sock.securing = false
    if not ok then
        if e == "timeout" or e == "handshake failed" then
            sock.connected = false
        end
        return nil, e
    end
    sock.consumed = true
    local var = ngx.var
    return { protocol = var.ssl_protocol, cipher = var.ssl_cipher, session_reused = var.ssl_session_reused == "r" }
end

function Session.shutdown(...)
    local n = select("#", ...)
    if n ~= 2 then
        error("expecting 2 arguments (including the object) but seen " .. n, 2)
    end
    local sock, how = ...
    own(sock, "shutdown")
    if not sock.connected then
        return nil, "closed"
    end
    if how ~= "send" then
        error("bad argument #2 to 'shutdown' (bad shutdown argument: " .. tostring(how) .. ")", 2)
    end
    local code = check(raw(OP_SHUTDOWN))
    if code == -1 then
        return nil, weir.text()
    end
    sock.closed_for_sending = true
    weir.debug("lua shutdown socket write direction")
    return 1
end

function Session.send(sock, data)
    own(sock, "send")
    if sock.securing then
        return nil, "socket busy connecting"
    end
    if sock.closed_for_sending then
        log(sock, "attempt to send data on a closed socket: u:0000000000000000, c:0000000000000000, ft:0 eof:0")
        return nil, "closed"
    end
    return Tcp.send(sock, data)
end

----------------------------------------------------------------------------------------------------- the client's datagrams

local Datagrams = {}
local datagrams_meta = { __index = Datagrams }

function Datagrams.receive(sock, size)
    own(sock, "receive")
    size = math.min(tonumber(size) or 65536, 65536)
    return ask(OP_TAKE, 0, nil, nil, size)
end

function Datagrams.send(sock, data)
    own(sock, "send")
    local text = data
    if type(data) ~= "string" then
        text = weir.text_of("send", false, 1, data)
    end
    local code = check(C(OP_ANSWER, 0, text, #text, "", 0, 0, 0))
    if code == -1 then
        return nil, weir.text()
    end
    return 1
end

-- A datagram is there or not.
function Datagrams.settimeout(sock)
    own(sock, "settimeout")
end

function ngx.req.socket(...)
    if select("#", ...) > 1 then
        error("expecting zero arguments, but got " .. select("#", ...), 2)
    end
    local code = check(raw(OP_SOCKET))
    if code == -1 then
        return nil, weir.text()
    elseif code == 1 then
        return setmetatable({ id = 0, run = weir.run_id() }, datagrams_meta)
    end
    local id = weir.number()
    raw(OP_DEFAULTS)
    local _, _, logs, read_ms, send_ms = unpack((weir.list()))
    return setmetatable({
        id = id, logs = logs, run = weir.run_id(), read_ms = read_ms, send_ms = send_ms, connected = true,
    }, meta)
end

ngx.config.subsystem = "stream"
ngx.config.ngx_lua_version = 20
