-- TLS on cosockets.

local weir = ...
local raw, op, check = weir.raw, weir.op, weir.check
local Tcp, own, log, debug = weir.tcp, weir.own_socket, weir.log_of_socket, weir.debug
local ffi = require "ffi"
local error, type, tostring, select = error, type, tostring, select

local OP_HANDSHAKE, OP_IS_TLS, OP_FREE = op "sock_handshake", op "sock_is_tls", op "ssl_session_free"

-- Sessions that code keeps, as objects with numbers. What is collected is noted, and let go of when a run ends: the
-- collector works in the middle of everything.
ffi.cdef "struct weir_ssl_session { double id; };"
local session_type = ffi.typeof("struct weir_ssl_session")
local dead, dead_n = {}, 0

local function collected(session)
    dead_n = dead_n + 1
    dead[dead_n] = session.id
end

local function free_sessions()
    while dead_n > 0 do
        local id = dead[dead_n]
        dead_n = dead_n - 1
        raw(OP_FREE, id)
        debug(("lua ssl free session: %08X"):format(id))
    end
end
weir.at_run_end = function()
    if dead_n > 0 then
        free_sessions()
    end
end

local function session_of(id)
    -- The end of a run that Lua knows of is told.
    weir.run()
    return ffi.gc(session_type(id), collected)
end
-- The number of a session, if it is one.
local function number_of(session)
    return ffi.istype(session_type, session) and session.id or nil
end

-- In stream they are of the type that they have in OpenResty.
if weir.stream then
    local KEY = {}
    function session_of(id)
        local session = newproxy(true)
        local meta = getmetatable(session)
        meta[KEY] = { id = id }
        meta.__gc = function() collected(meta[KEY]) end
        return session
    end
    function number_of(session)
        local meta = type(session) == "userdata" and getmetatable(session)
        local kept = meta and rawget(meta, KEY)
        return kept and kept.id or nil
    end
end

function Tcp.setclientcert(sock, cert, key)
    own(sock, "setclientcert")
    if not cert and not key then
        sock.client_cert = nil
        return true
    end
    if not cert or not key then
        return nil, "client certificate must be supplied with corresponding private key"
    end
    if type(cert) ~= "cdata" then
        return nil, "bad cert arg: cdata expected, got " .. type(cert)
    end
    if type(key) ~= "cdata" then
        return nil, "bad pkey arg: cdata expected, got " .. type(key)
    end
    local chain, text = weir.ssl_text_of("cert", cert), weir.ssl_text_of("key", key)
    if not chain or not text then
        return nil, "the certificate and the key must be made by ngx.ssl or be OpenSSL's"
    end
    sock.client_cert = weir.pack { chain, text }
    return true
end

-- What a handshake that has failed comes to: words for the log, and words for the code.
local function failed(sock, name, e)
    local words, detail = e:match("^([^\n]*)\n(.*)$")
    if words then
        if detail ~= "closed" then
            weir.report(3, "SSL_do_handshake() failed (" .. detail .. ")")
        else
            log(sock, "peer closed connection in SSL handshake")
        end
        e = words
    elseif e == "certificate host mismatch" then
        log(sock, 'lua ssl certificate does not match host "' .. (name or "") .. '"')
    elseif e:find("^%d+: ") then
        log(sock, "lua ssl certificate verify error: (" .. e .. ")")
    end
    sock.connected = false
    return nil, e
end

function Tcp.sslhandshake(sock, reused, name, verify, status_req, ...)
    local n = select("#", ...)
    if not sock or n > 0 then
        error("ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen " .. (sock and 5 + n or 0), 2)
    end
    local id = own(sock, "sslhandshake")
    debug("lua tcp socket ssl handshake")
    if not sock.connected then
        return nil, "closed"
    end
    local earlier = number_of(reused)
    if raw(OP_IS_TLS, id) == 1 then
        if earlier then
            return reused
        end
        return reused == false or session_of(0)
    end
    if name ~= nil and type(name) ~= "string" then
        error("bad argument #2 to 'sslhandshake' (string expected, got " .. type(name) .. ")", 2)
    end
    free_sessions()
    if earlier then
        debug(("lua ssl set session: %08X"):format(earlier))
    end
    if name then
        debug('lua ssl server name: "', name, '"')
    end
    -- An answer of the server's about its certificate is always asked for.
    local code = raw(OP_HANDSHAKE, id, name, sock.client_cert, verify and 1 or 0, earlier or 0)
    if code == -1 then
        return failed(sock, name, weir.text())
    end
    check(code)
    local made, version, suite, has_resumed = weir.await(weir.number())
    if not made then
        return failed(sock, name, version)
    end
    debug("SSL_do_handshake: 1")
    debug("SSL: ", version, ', cipher: "', suite, " ", version, '"')
    if has_resumed then
        debug("SSL reused session")
    end
    if reused == false then
        raw(OP_FREE, made)
        return true
    end
    debug(("lua ssl save session: %08X"):format(made))
    return session_of(made)
end

local function refused()
    return nil, "there is no pointer to TLS of OpenSSL's: TLS is another library's"
end

function Tcp.getsslpointer(sock)
    own(sock, "getsslpointer")
    return refused()
end
Tcp.getsslctx = Tcp.getsslpointer

function Tcp.settrustedstore(sock)
    own(sock, "settrustedstore")
    if not sock.connected then
        return nil, "closed"
    end
    return nil, "a store of OpenSSL's cannot be trusted here: name the certificates by lua_ssl_trusted_certificate"
end
