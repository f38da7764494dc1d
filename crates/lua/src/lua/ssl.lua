-- ngx.ssl and its parts: what code says of handshakes.

local weir = ...
local raw, op, check = weir.raw, weir.op, weir.check
local ask = weir.ask
local ffi = require "ffi"
local error, type, tostring, ipairs, setmetatable = error, type, tostring, ipairs, setmetatable

local OP_CERT, OP_KEY, OP_CLEAR, OP_PEM = op "ssl_cert", op "ssl_key", op "ssl_clear", op "ssl_pem"
local OP_ABOUT, OP_VERIFY, OP_HELLO, OP_PROTOCOLS = op "ssl_about", op "ssl_verify", op "ssl_hello", op "ssl_protocols"
local OP_SESSION, OP_SET_SESSION, OP_STAPLE = op "ssl_session", op "ssl_session_set", op "ssl_staple"
local OP_OCSP = op "ocsp"

local version = "0.1.31"

-- Objects that code hands on and does not look into: the text behind each. Code that has objects of OpenSSL's may hand
-- on these instead.
local texts = setmetatable({}, { __mode = "k" })
local object_type = ffi.typeof("struct weir_length")

local function object(kind, text)
    local made = weir.openssl_object(kind, text) or object_type()
    texts[made] = { kind = kind, text = text }
    return made
end

local function text_of(kind, made)
    if type(made) ~= "cdata" then
        return nil
    end
    local known = texts[made]
    if known then
        return known.kind == kind and known.text
    end
    return weir.openssl_der(kind, made)
end
weir.ssl_object, weir.ssl_text_of = object, text_of

local function string_of(value, name)
    if type(value) == "string" then
        return value
    elseif type(value) == "number" then
        return tostring(value)
    end
    error("bad argument #1 to '" .. name .. "' (string expected, got " .. (value == nil and "nil" or type(value)) .. ")", 3)
end

----------------------------------------------------------------------------------------------------------- ngx.ssl

local ssl = {
    version = version,
    SSL3_VERSION = 0x0300, TLS1_VERSION = 0x0301, TLS1_1_VERSION = 0x0302, TLS1_2_VERSION = 0x0303,
    TLS1_3_VERSION = 0x0304,
}
local version_names = {
    [0x0002] = "SSLv2", [0x0300] = "SSLv3", [0x0301] = "TLSv1", [0x0302] = "TLSv1.1", [0x0303] = "TLSv1.2",
    [0x0304] = "TLSv1.3",
}

function ssl.clear_certs()
    return ask(OP_CLEAR)
end

function ssl.set_der_cert(der)
    return ask(OP_CERT, 0, string_of(der, "set_der_cert"))
end

function ssl.set_der_priv_key(der)
    return ask(OP_KEY, 0, string_of(der, "set_der_priv_key"))
end

function ssl.cert_pem_to_der(pem)
    return ask(OP_PEM, 0, string_of(pem, "cert_pem_to_der"))
end

function ssl.priv_key_pem_to_der(pem, password)
    return ask(OP_PEM, 1, string_of(pem, "priv_key_pem_to_der"), password)
end

local function parsed(kind, what, text)
    local code = raw(OP_PEM, what, text)
    if code == 2 or code == 11 then
        return object(kind, weir.text())
    end
    return nil, weir.text()
end

function ssl.parse_pem_cert(pem)
    return parsed("cert", 0, string_of(pem, "parse_pem_cert"))
end

function ssl.parse_pem_priv_key(pem)
    return parsed("key", 1, string_of(pem, "parse_pem_priv_key"))
end

function ssl.parse_der_cert(der)
    return parsed("cert", 2, string_of(der, "parse_der_cert"))
end

function ssl.parse_der_priv_key(der)
    return parsed("key", 3, string_of(der, "parse_der_priv_key"))
end

function ssl.set_cert(cert)
    local der = text_of("cert", cert)
    if not der then
        return nil, "invalid certificate chain"
    end
    return ask(OP_CERT, 0, der)
end

function ssl.set_priv_key(key)
    local der = text_of("key", key)
    if not der then
        return nil, "invalid private key"
    end
    return ask(OP_KEY, 0, der)
end

function ssl.verify_client(client_certs, depth, trusted_certs)
    local names, others = text_of("cert", client_certs), text_of("cert", trusted_certs)
    return ask(OP_VERIFY, 0, names and weir.pack { names }, others and weir.pack { others }, depth or -1)
end

function ssl.server_name()
    return ask(OP_ABOUT, 0)
end

function ssl.server_port()
    return ask(OP_ABOUT, 1)
end

local function address(what)
    local code = check(raw(OP_ABOUT, what))
    if code == -1 then
        return nil, nil, weir.text()
    end
    local t = weir.list()
    return t[1], t[2]
end

function ssl.raw_server_addr()
    return address(2)
end

function ssl.raw_client_addr()
    return address(3)
end

function ssl.get_tls1_version()
    return ask(OP_ABOUT, 4)
end

function ssl.get_tls1_version_str()
    local number, e = ssl.get_tls1_version()
    if not number then
        return nil, e
    end
    local name = version_names[number]
    if not name then
        return nil, "unknown version"
    end
    return name
end

function ssl.get_client_random(length)
    local text, e = ask(OP_ABOUT, 5)
    if not text then
        return nil, e
    end
    if length == 0 then
        return #text
    end
    return length and text:sub(1, length) or text
end

function ssl.get_req_shared_ssl_ciphers(filters)
    local code = check(raw(OP_ABOUT, 6, nil, nil, filters == false and 0 or 1))
    if code == -1 then
        return nil, weir.text()
    end
    return (weir.list())
end

-- What there cannot be, with a word why.
local function refused(why)
    return function()
        return nil, why
    end
end
ssl.get_server_random = refused("the server's random bytes are not told by the TLS library")
ssl.get_session_master_key = refused("the session's keys are not told by the TLS library")
ssl.export_keying_material = refused("keying material is not exported by the TLS library")
ssl.export_keying_material_early = ssl.export_keying_material
ssl.get_req_ssl_pointer = refused("there is no SSL pointer: TLS is not OpenSSL's")
ssl.get_upstream_ssl_pointer = ssl.get_req_ssl_pointer
ssl.ssl_session_reused = refused("bad ssl")

package.preload["ngx.ssl"] = function()
    return ssl
end

----------------------------------------------------------------------------------------------- ngx.ssl.clienthello

package.preload["ngx.ssl.clienthello"] = function()
    local hello = { version = version }

    local function allowed()
        if weir.phase() ~= "ssl_client_hello" then
            error("API disabled in the current context", 3)
        end
    end

    function hello.get_client_hello_server_name()
        allowed()
        return ask(OP_HELLO, 0)
    end

    function hello.get_client_hello_ext(number)
        allowed()
        return ask(OP_HELLO, 1, nil, nil, number)
    end

    local function numbers(what)
        local code = check(raw(OP_HELLO, what))
        if code == -1 then
            return nil, weir.text()
        elseif code == 0 then
            return nil
        end
        return (weir.list())
    end

    function hello.get_client_hello_ext_present()
        allowed()
        return numbers(2)
    end

    function hello.get_client_hello_ciphers()
        allowed()
        return numbers(3)
    end

    function hello.get_supported_versions()
        allowed()
        local all, e = numbers(4)
        if not all then
            return nil, e
        end
        -- The client's last one first.
        local names = {}
        for at = #all, 1, -1 do
            names[#names + 1] = version_names[all[at]]
        end
        return names
    end

    function hello.set_protocols(names)
        allowed()
        for _, name in ipairs(names) do
            if type(name) ~= "string" then
                return nil, "invalid protocols failed"
            end
        end
        return ask(OP_PROTOCOLS, 0, weir.pack(names))
    end

    return hello
end

--------------------------------------------------------------------------------------------------- ngx.ssl.session

package.preload["ngx.ssl.session"] = function()
    return {
        version = version,
        get_serialized_session = function()
            return ask(OP_SESSION, 0)
        end,
        get_session_id = function()
            return ask(OP_SESSION, 1)
        end,
        set_serialized_session = function(text)
            return ask(OP_SET_SESSION, 0, string_of(text, "set_serialized_session"))
        end,
    }
end

---------------------------------------------------------------------------------------------------------- ngx.ocsp

package.preload["ngx.ocsp"] = function()
    local ocsp = { version = version }

    function ocsp.get_ocsp_responder_from_der_chain(chain, most)
        local text, e = ask(OP_OCSP, 0, string_of(chain, "get_ocsp_responder_from_der_chain"))
        if text and most and #text > most then
            return text:sub(1, most), "truncated"
        end
        return text, e
    end

    function ocsp.create_ocsp_request(chain, most)
        local text, e = ask(OP_OCSP, 1, string_of(chain, "create_ocsp_request"))
        if text and #text > (most or 4096) then
            return nil, "output buffer too small: " .. #text .. " > " .. (most or 4096)
        end
        return text, e
    end

    function ocsp.validate_ocsp_response(response, chain)
        local code = check(raw(OP_OCSP, 2, string_of(response, "validate_ocsp_response"), tostring(chain)))
        if code == -1 then
            return nil, weir.text()
        elseif code == 3 or code == 12 then
            -- When the next one will be there.
            return true, weir.number()
        end
        return true
    end

    function ocsp.set_ocsp_status_resp(response)
        local code = check(raw(OP_STAPLE, 0, string_of(response, "set_ocsp_status_resp")))
        if code == -1 then
            return nil, weir.text()
        elseif code == 4 then
            return true, "no status req"
        end
        return true
    end

    return ocsp
end
