-- The table ngx: constants, phases, contexts, time, exits.

local weir = ...
local raw, finish, op, check, C, out = weir.raw, weir.finish, weir.op, weir.check, weir.C, weir.out
local ask = weir.ask
local error, type, tostring, setmetatable, rawset, tonumber = error, type, tostring, setmetatable, rawset, tonumber

-- The release of lua-resty-core whose interface this is.
weir.core_version = "0.1.31"

local ngx = {}
_G.ngx = ngx
package.loaded.ngx = ngx
weir.ngx = ngx

ngx.null = weir.null
ngx.OK, ngx.ERROR, ngx.AGAIN, ngx.DONE, ngx.DECLINED = 0, -1, -2, -4, -5

for name, number in pairs {
    STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5, NOTICE = 6, INFO = 7, DEBUG = 8,
    HTTP_GET = 2, HTTP_HEAD = 4, HTTP_POST = 8, HTTP_PUT = 16, HTTP_DELETE = 32, HTTP_MKCOL = 64,
    HTTP_COPY = 128, HTTP_MOVE = 256, HTTP_OPTIONS = 512, HTTP_PROPFIND = 1024, HTTP_PROPPATCH = 2048,
    HTTP_LOCK = 4096, HTTP_UNLOCK = 8192, HTTP_PATCH = 16384, HTTP_TRACE = 32768,
    HTTP_CONTINUE = 100, HTTP_SWITCHING_PROTOCOLS = 101, HTTP_OK = 200, HTTP_CREATED = 201,
    HTTP_ACCEPTED = 202, HTTP_NO_CONTENT = 204, HTTP_PARTIAL_CONTENT = 206, HTTP_SPECIAL_RESPONSE = 300,
    HTTP_MOVED_PERMANENTLY = 301, HTTP_MOVED_TEMPORARILY = 302, HTTP_SEE_OTHER = 303,
    HTTP_NOT_MODIFIED = 304, HTTP_TEMPORARY_REDIRECT = 307, HTTP_PERMANENT_REDIRECT = 308,
    HTTP_BAD_REQUEST = 400, HTTP_UNAUTHORIZED = 401, HTTP_PAYMENT_REQUIRED = 402, HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404, HTTP_NOT_ALLOWED = 405, HTTP_NOT_ACCEPTABLE = 406, HTTP_REQUEST_TIMEOUT = 408,
    HTTP_CONFLICT = 409, HTTP_GONE = 410, HTTP_UPGRADE_REQUIRED = 426, HTTP_TOO_MANY_REQUESTS = 429,
    HTTP_CLOSE = 444, HTTP_ILLEGAL = 451, HTTP_INTERNAL_SERVER_ERROR = 500,
    HTTP_METHOD_NOT_IMPLEMENTED = 501, HTTP_NOT_IMPLEMENTED = 501, HTTP_BAD_GATEWAY = 502, HTTP_SERVICE_UNAVAILABLE = 503,
    HTTP_GATEWAY_TIMEOUT = 504, HTTP_VERSION_NOT_SUPPORTED = 505, HTTP_INSUFFICIENT_STORAGE = 507,
} do
    ngx[name] = number
end

local native = weir.native
local phase = native "phase"
weir.phase = phase
ngx.get_phase = phase

----------------------------------------------------------------------------------------------------- ngx.ctx

-- By the numbers of what the code runs for: a request, or a run without one (a negative number). Rust takes them out.
local contexts = {}
weir.contexts = contexts
weir.keep(4, contexts)

local OP_CTX = op "ctx"
local ctx_base = native "ctx_base"

local function ctx_id()
    local code = C(OP_CTX, 0, "", 0, "", 0, 0, 0)
    return (code == 3 or code == 12) and finish(code) or nil
end
weir.ctx_id = ctx_id

local id_of_ctx = native("ctx", 3)

local function get_ctx()
    local id = out.context
    if id == 0 then
        id = id_of_ctx()
        out.context = id
    end
    local t = contexts[id]
    if not t then
        -- What the handshake's code has noted is there for all requests of the connection.
        local of_handshake = ctx_base()
        t = {}
        if of_handshake == id then
            t.__index = t
        elseif of_handshake > 0 and contexts[of_handshake] then
            setmetatable(t, contexts[of_handshake])
        end
        contexts[id] = t
    end
    return t
end

-- Whether there is one already.
function weir.has_ctx()
    local id = ctx_id()
    return id and contexts[id] ~= nil
end

local function set_ctx(value)
    contexts[id_of_ctx()] = value
end

----------------------------------------------------------------------------------------------------- properties

local getters, setters = { ctx = get_ctx }, { ctx = set_ctx }
weir.getters, weir.setters = getters, setters

setmetatable(ngx, {
    __index = function(_, name)
        local get = getters[name]
        if get then
            local value = get()
            return value
        end
        return nil
    end,
    __newindex = function(t, name, value)
        local set = setters[name]
        if set then
            set(value)
            return
        end
        rawset(t, name, value)
    end,
})

local check_property = weir.check_property
local OP_STATUS, OP_SET_STATUS, OP_HEADERS_SENT = op "status", op "set_status", op "headers_sent"
local OP_IS_SUBREQUEST = op "is_subrequest"

function getters.status()
    check_property(raw(OP_STATUS))
    return weir.number()
end

function setters.status(value)
    local status = tonumber(value)
    if not status then
        error("number expected, got " .. type(value), 3)
    end
    check_property(C(OP_SET_STATUS, status, "", 0, "", 0, 0, 0))
end

function getters.headers_sent()
    local code = check_property(raw(OP_HEADERS_SENT))
    return code == 1
end

function getters.is_subrequest()
    local code = check_property(raw(OP_IS_SUBREQUEST))
    return code == 1
end

----------------------------------------------------------------------------------------------------- exits

local exit = native "exit"
local OP_EXEC, OP_REDIRECT = op "exec", op "redirect"

function ngx.exit(status)
    if type(status) ~= "number" then
        local n = tonumber(status)
        if not n then
            error("bad argument #1 to 'exit' (number expected, got " .. (status == nil and "nil" or type(status)) .. ")", 2)
        end
        status = n
    end
    if status == -2 or status == -4 then
        error("bad argument to 'ngx.exit': does not accept NGX_AGAIN or NGX_DONE", 2)
    end
    return exit(status)
end

local function encode_args(args, who)
    local kind = type(args)
    if kind == "table" then
        return weir.encode_args(args, 4)
    elseif kind == "string" or kind == "number" then
        return tostring(args)
    elseif args == nil then
        return nil
    end
    error("bad argument #2 to '" .. who .. "' (string, number, or table expected, but got " .. kind .. ")", 3)
end

function ngx.exec(uri, args)
    if type(uri) ~= "string" and type(uri) ~= "number" then
        error("bad argument #1 to 'exec' (string expected, got " .. (uri == nil and "nil" or type(uri)) .. ")", 2)
    end
    local text = encode_args(args, "exec")
    uri = tostring(uri)
    if uri == "" then
        error("The uri argument is empty", 2)
    end
    check(raw(OP_EXEC, text and 1 or 0, uri, text))
    weir.leave()
end

function ngx.redirect(uri, status)
    if type(uri) ~= "string" and type(uri) ~= "number" then
        error("bad argument #1 to 'redirect' (string expected, got " .. (uri == nil and "nil" or type(uri)) .. ")", 2)
    end
    status = status == nil and 302 or status
    if status ~= 301 and status ~= 302 and status ~= 303 and status ~= 307 and status ~= 308 then
        error("only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, "
            .. "ngx.HTTP_SEE_OTHER, and ngx.HTTP_TEMPORARY_REDIRECT are allowed", 2)
    end
    check(raw(OP_REDIRECT, status, tostring(uri)))
    weir.leave()
end

----------------------------------------------------------------------------------------------------- time

local OP_UPDATE, OP_DATE = op "update_time", op "date"
local OP_COOKIE_TIME, OP_HTTP_TIME, OP_PARSE_TIME = op "cookie_time", op "http_time", op "parse_http_time"
local OP_START_TIME = op "start_time"
local sleep = native("sleep", 2)

ngx.now, ngx.time = native "now", native "time"

function ngx.update_time()
    C(OP_UPDATE, 0, "", 0, "", 0, 0, 0)
end

function ngx.today()
    return ask(OP_DATE, 0)
end

function ngx.localtime()
    return ask(OP_DATE, 1)
end

function ngx.utctime()
    return ask(OP_DATE, 2)
end

local function seconds(name, value)
    local n = tonumber(value)
    if not n then
        error("bad argument #1 to '" .. name .. "' (number expected, got " .. (value == nil and "no value" or type(value)) .. ")", 3)
    end
    return n
end

function ngx.cookie_time(time)
    if type(time) ~= "number" then
        error("number argument only", 2)
    end
    return ask(OP_COOKIE_TIME, 0, nil, nil, time)
end

function ngx.http_time(time)
    if type(time) ~= "number" then
        error("number argument only", 2)
    end
    return ask(OP_HTTP_TIME, 0, nil, nil, time)
end

function ngx.parse_http_time(text)
    if type(text) ~= "string" then
        error("string argument only", 2)
    end
    return ask(OP_PARSE_TIME, 0, text)
end

function ngx.sleep(...)
    if select("#", ...) ~= 1 then
        error("attempt to pass " .. select("#", ...) .. " arguments, but accepted 1", 2)
    end
    local time = seconds("sleep", (...))
    if time < 0 then
        error('invalid sleep duration "' .. tostring(time) .. '"', 2)
    end
    sleep(0, nil, nil, time)
end

function weir.request_start()
    check(raw(OP_START_TIME))
    return weir.number()
end
