-- OpenSSL's functions for libraries that call them by the FFI (`ffi.C.EVP_DigestInit_ex`), as nginx's own are there:
-- the system's libcrypto and libssl are loaded when code first declares some of them. TLS itself is not theirs.

local weir = ...
local ffi = require "ffi"
local cdef, load, C = ffi.cdef, ffi.load, ffi.C
local error, pcall, type, tostring, ipairs = error, pcall, type, tostring, ipairs
local gmatch, match, find, concat = string.gmatch, string.match, string.find, table.concat

-- What their names begin with.
local FAMILIES = {}
for name in ("AES ASN1 BIO BN CMAC CMS CONF CRYPTO DES DH DSA DTLS EC ECDH ECDSA ENGINE ERR EVP HMAC MD4 MD5 NCONF OBJ "
    .. "OCSP OPENSSL OSSL OpenSSL PEM PKCS12 PKCS5 PKCS7 PKCS8 RAND RC4 RIPEMD160 RSA SHA1 SHA224 SHA256 SHA384 SHA512 "
    .. "SSL SSLeay TLS X509 X509V3 d2i i2d"):gmatch "%S+" do
    FAMILIES[name] = true
end

-- The releases that libraries know, the newest first.
local RELEASES = { ".so.3", ".so.1.1", ".3.dylib", ".1.1.dylib" }

-- What is loaded; false where there is nothing.
local libraries
local function has(name)
    return (pcall(function() return C[name] end))
end

-- As servers that are linked with it begin: openssl.cnf is read, and the usual provider is there, which would not be
-- there by itself once code has loaded another one.
local function begin()
    cdef [[
    int weir_init_ssl(uint64_t, const void *) __asm__("OPENSSL_init_ssl");
    int weir_provider_available(void *, const char *) __asm__("OSSL_PROVIDER_available");
    ]]
    local LOAD_CONFIG = 0x40
    pcall(function() C.weir_init_ssl(LOAD_CONFIG, nil) end)
    pcall(function() C.weir_provider_available(nil, "default") end)
end

-- Once for a state; the system has them once for the process.
local function find_libraries()
    if libraries ~= nil then
        return libraries
    end
    libraries = false
    for _, release in ipairs(RELEASES) do
        local ok, crypto = pcall(load, "libcrypto" .. release, true)
        if ok then
            local has_ssl, ssl = pcall(load, "libssl" .. release, true)
            libraries = { crypto = crypto, ssl = has_ssl and ssl or nil }
            begin()
            break
        end
    end
    return libraries
end

local function declared(text)
    for name in gmatch(text, "([%a_][%w_]*)%s*%(") do
        if FAMILIES[match(name, "^[^_]+")] then
            return name
        end
    end
end

local is_told = false

function ffi.cdef(text, ...)
    -- Errors are of the place that declares.
    local ok, e = pcall(cdef, text, ...)
    if not ok then
        error(e, 2)
    end
    local name = not libraries and not is_told and type(text) == "string" and declared(text)
    if not name or has(name) or find_libraries() then
        return
    end
    is_told = true
    weir.report(4, "code declares OpenSSL's function " .. name .. ", and the system has no libcrypto (OpenSSL 3 or 1.1) "
        .. "to take it from: install the package libssl3 (Debian, Ubuntu), openssl-libs (Fedora) or libssl3 and libcrypto3 (Alpine)")
end

------------------------------------------------------------------------------------------------- objects of OpenSSL's

-- `ngx.ssl` has certificates and keys as text, and code that it hands them to may know how to take them apart by
-- OpenSSL's functions: where these are, what it is handed are OpenSSL's objects.

local is_ready
local function ready()
    if is_ready == nil then
        cdef [[
        int weir_sk_num(const void *) __asm__("OPENSSL_sk_num");
        const void *weir_sk_value(const void *, int) __asm__("OPENSSL_sk_value");
        void *weir_sk_new_null(void) __asm__("OPENSSL_sk_new_null");
        int weir_sk_push(void *, const void *) __asm__("OPENSSL_sk_push");
        void weir_sk_pop_free(void *, void (*)(void *)) __asm__("OPENSSL_sk_pop_free");
        int weir_i2d_X509(const void *, unsigned char **) __asm__("i2d_X509");
        int weir_i2d_PrivateKey(const void *, unsigned char **) __asm__("i2d_PrivateKey");
        void *weir_d2i_X509(void **, const unsigned char **, long) __asm__("d2i_X509");
        void *weir_d2i_AutoPrivateKey(void **, const unsigned char **, long) __asm__("d2i_AutoPrivateKey");
        void weir_X509_free(void *) __asm__("X509_free");
        void weir_EVP_PKEY_free(void *) __asm__("EVP_PKEY_free");
        void weir_ERR_clear_error(void) __asm__("ERR_clear_error");
        ]]
        is_ready = has "weir_d2i_X509" or (find_libraries() and has "weir_d2i_X509") or false
    end
    return is_ready
end

local function free_chain(chain)
    C.weir_sk_pop_free(chain, C.weir_X509_free)
end

-- A chain (as void *) or a key of that text; nil where there is no OpenSSL, or it does not take the text.
function weir.openssl_object(kind, der)
    if not ready() then
        return nil
    end
    local bytes = ffi.cast("const unsigned char *", der)
    local at, stop = ffi.new("const unsigned char *[1]", bytes), bytes + #der
    if kind == "key" then
        local key = C.weir_d2i_AutoPrivateKey(nil, at, #der)
        if key == nil then
            return C.weir_ERR_clear_error()
        end
        return ffi.gc(key, C.weir_EVP_PKEY_free)
    end
    local chain = ffi.gc(C.weir_sk_new_null(), free_chain)
    while at[0] < stop do
        local cert = C.weir_d2i_X509(nil, at, stop - at[0])
        if cert == nil then
            return C.weir_ERR_clear_error()
        end
        C.weir_sk_push(chain, cert)
    end
    return chain
end

-- What `i2d` writes of an object.
local function der_of(i2d, object)
    local length = i2d(object, nil)
    if length <= 0 then
        return nil
    end
    local room = ffi.new("unsigned char[?]", length)
    local at = ffi.new("unsigned char *[1]", room)
    if i2d(object, at) ~= length then
        return nil
    end
    return ffi.string(room, length)
end

local CHAIN_MAX = 100

-- The certificates of a chain (STACK_OF(X509) *, also as void *) or the one that is pointed to, one behind the other;
-- or the key that is. Whose pointer is none of these is its giver's matter, as in OpenResty.
function weir.openssl_der(kind, object)
    local name = tostring(ffi.typeof(object))
    if not find(name, "*", 1, true) or object == nil or not ready() then
        return nil
    end
    if kind == "key" then
        return der_of(C.weir_i2d_PrivateKey, object)
    elseif find(name, "x509_st", 1, true) then
        return der_of(C.weir_i2d_X509, object)
    end
    local count, all = C.weir_sk_num(object), {}
    if count < 1 or count > CHAIN_MAX then
        return nil
    end
    for at = 0, count - 1 do
        local der = der_of(C.weir_i2d_X509, C.weir_sk_value(object, at))
        if not der then
            return nil
        end
        all[at + 1] = der
    end
    return concat(all)
end
