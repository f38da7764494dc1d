-- OpenSSL's functions for libraries that call them by the FFI (`ffi.C.EVP_DigestInit_ex`), as nginx's own are there:
-- the system's libcrypto and libssl are loaded when code first declares some of them. TLS itself is not theirs.

local weir = ...
local ffi = require "ffi"
local cdef, load, C = ffi.cdef, ffi.load, ffi.C
local pcall, type, tostring, ipairs = pcall, type, tostring, ipairs
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

local libraries
local function has(name)
    return (pcall(function() return C[name] end))
end

-- Once for a state; the system has them once for the process.
local function load_libraries(name)
    libraries = {}
    for _, release in ipairs(RELEASES) do
        local ok, crypto = pcall(load, "libcrypto" .. release, true)
        if ok then
            local has_ssl, ssl = pcall(load, "libssl" .. release, true)
            libraries.crypto, libraries.ssl = crypto, has_ssl and ssl or nil
            return
        end
    end
    weir.report(4, "code declares OpenSSL's function " .. name .. ", and the system has no libcrypto (OpenSSL 3 or 1.1) "
        .. "to take it from: install the package libssl3 (Debian, Ubuntu), openssl-libs (Fedora) or libssl3 and libcrypto3 (Alpine)")
end

local function declared(text)
    for name in gmatch(text, "([%a_][%w_]*)%s*%(") do
        if FAMILIES[match(name, "^[^_]+")] then
            return name
        end
    end
end

function ffi.cdef(text, ...)
    cdef(text, ...)
    local name = not libraries and type(text) == "string" and declared(text)
    if name and not has(name) then
        load_libraries(name)
    end
end

------------------------------------------------------------------------------------------------- objects of OpenSSL's

local is_ready = false
local function ready()
    if not is_ready then
        cdef [[
        int weir_sk_num(const void *) __asm__("OPENSSL_sk_num");
        const void *weir_sk_value(const void *, int) __asm__("OPENSSL_sk_value");
        int weir_i2d_X509(const void *, unsigned char **) __asm__("i2d_X509");
        int weir_i2d_PrivateKey(const void *, unsigned char **) __asm__("i2d_PrivateKey");
        ]]
        is_ready = true
    end
    if not libraries and not has "weir_i2d_X509" then
        load_libraries "i2d_X509"
    end
    return has "weir_i2d_X509"
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
