-- ngx.proxyssl, ngx.ssl.proxysslcert and ngx.ssl.proxysslverify: what code says of handshakes with servers.

local weir = ...
local raw, op = weir.raw, weir.op
local ask = weir.ask
local error, type = error, type

local OP_CERT, OP_VERSION, OP_VERIFY = op "toward_cert", op "toward_version", op "toward_verify"
local version = "0.1.31"

local function allowed(phase)
    if weir.phase() ~= phase then
        error("API disabled in the current context", 3)
    end
end

local function text(value)
    if type(value) ~= "string" then
        error("bad argument #1 (string expected, got " .. type(value) .. ")", 3)
    end
    return value
end

package.preload["ngx.proxyssl"] = function()
    local proxyssl = {
        version = version, SSL3_VERSION = 0x0300, TLS1_VERSION = 0x0301, TLS1_1_VERSION = 0x0302,
        TLS1_2_VERSION = 0x0303, TLS1_3_VERSION = 0x0304,
    }
    local names = { [0x0303] = "TLSv1.2", [0x0304] = "TLSv1.3" }

    function proxyssl.get_tls1_version()
        return ask(OP_VERSION)
    end

    function proxyssl.get_tls1_version_str()
        local number, e = proxyssl.get_tls1_version()
        return names[number], e
    end

    return proxyssl
end

package.preload["ngx.ssl.proxysslcert"] = function()
    local cert = { version = version }

    function cert.clear_certs()
        allowed "proxy_ssl_cert"
        return ask(OP_CERT, 0)
    end

    function cert.set_der_cert(der)
        allowed "proxy_ssl_cert"
        return ask(OP_CERT, 1, text(der))
    end

    function cert.set_der_priv_key(der)
        allowed "proxy_ssl_cert"
        return ask(OP_CERT, 2, text(der))
    end

    function cert.set_cert(made)
        allowed "proxy_ssl_cert"
        local der = weir.ssl_text_of("cert", made)
        if not der then
            return nil, "invalid certificate chain"
        end
        return ask(OP_CERT, 1, der)
    end

    function cert.set_priv_key(made)
        allowed "proxy_ssl_cert"
        local der = weir.ssl_text_of("key", made)
        if not der then
            return nil, "invalid private key"
        end
        return ask(OP_CERT, 2, der)
    end

    return cert
end

package.preload["ngx.ssl.proxysslverify"] = function()
    local verify = { version = version }

    function verify.get_verify_result()
        allowed "proxy_ssl_verify"
        return ask(OP_VERIFY, 0)
    end

    function verify.set_verify_result(number)
        allowed "proxy_ssl_verify"
        return ask(OP_VERIFY, 1, nil, nil, number)
    end

    function verify.get_verify_cert()
        allowed "proxy_ssl_verify"
        local code = raw(OP_VERIFY, 2)
        if code == 2 or code == 11 then
            return weir.ssl_object("cert", weir.text())
        end
        return nil, weir.text()
    end

    return verify
end
