-- ngx.location

local weir = ...
local raw, op, check, ngx = weir.raw, weir.op, weir.check, weir.ngx
local error, type, tostring, pairs, select = error, type, tostring, pairs, select

local OP_ALLOWED = op "capture_allowed"
local native = weir.native
local issue, set_body, set_var = native("capture_begin", 3), native("capture_body", 3), native("capture_var", 3)
local context_of, take = native "capture_context", native "capture_take"

local wait_for = native "capture_wait"

local location = {}
ngx.location = location

-- What it has answered, if it is there `at_once`, or what is to be waited for.
local function begin(uri, options, level, at_once)
    local query, method, body, sum, vars, ctx = "", ngx.HTTP_GET, nil, at_once and 16 or 0, nil, nil
    if options ~= nil then
        if type(options) ~= "table" then
            error("expecting table as the 2nd argument for subrequest " .. level .. ", but got " .. type(options), 4)
        end
        local args = options.args
        if args ~= nil then
            local kind = type(args)
            if kind == "table" then
                query = weir.encode_args(args, 4)
            elseif kind == "string" or kind == "number" then
                query = tostring(args)
            else
                error("Bad args option value", 4)
            end
        end
        if options.method ~= nil then
            if type(options.method) ~= "number" then
                error("Bad http request method", 4)
            end
            method = options.method
        end
        if options.body ~= nil then
            if type(options.body) ~= "string" and type(options.body) ~= "number" then
                error("Bad http request body", 4)
            end
            body = tostring(options.body)
        end
        if options.share_all_vars then
            sum = sum + 4
        elseif options.copy_all_vars then
            sum = sum + 2
        end
        if options.always_forward_body then
            sum = sum + 8
        end
        if options.ctx ~= nil then
            if type(options.ctx) ~= "table" then
                error("Bad ctx option value type " .. type(options.ctx) .. ", expected a Lua table", 4)
            end
            ctx = options.ctx
            sum = sum + 32
        end
        if options.vars ~= nil then
            if type(options.vars) ~= "table" then
                error("Bad vars option value", 4)
            end
            vars = options.vars
        end
    end
    if vars then
        for name, value in pairs(vars) do
            if type(name) ~= "string" then
                error("attempt to use a non-string key in the \"vars\" option table", 4)
            end
            local kind = type(value)
            if kind ~= "string" and kind ~= "number" then
                error("attempt to use bad variable value type " .. kind, 4)
            end
        end
        for name, value in pairs(vars) do
            set_var(0, name, value)
        end
    end
    if body then
        set_body(0, body)
    end
    local id, truncated, text, header = issue(method, uri, query, sum)
    if ctx then
        weir.contexts[context_of(id)] = ctx
    end
    return id, truncated, text, header
end

local function wait(id)
    wait_for(id)
    local status, truncated, body, header = take(id)
    return { status = status, truncated = truncated, body = body, header = header }
end

function location.capture(uri, options, ...)
    if type(uri) ~= "string" and type(uri) ~= "number" then
        error("bad argument #1 to 'capture' (string expected, got " .. (uri == nil and "no value" or type(uri)) .. ")", 2)
    end
    if select("#", ...) > 0 then
        error("expecting one or two arguments", 2)
    end
    local status, truncated, body, header = begin(tostring(uri), options, 1, true)
    if truncated == nil then
        local result = wait(status)
        return result
    end
    return { status = status, truncated = truncated, body = body, header = header }
end

-- As many as one call may return; and so many run at a time.
local MOST, AT_A_TIME = 7000, 1000

function location.capture_multi(list, ...)
    if type(list) ~= "table" then
        error("bad argument #1 to 'capture_multi' (table expected, got " .. (list == nil and "nil" or type(list)) .. ")", 2)
    end
    check(raw(OP_ALLOWED))
    local n = #list
    if n == 0 then
        error("at least one subrequest should be specified", 2)
    end
    if n > MOST then
        error("too many subrequests: " .. n .. " of at most " .. MOST, 2)
    end
    local ids, results = {}, {}
    for at = 1, n do
        local item = list[at]
        if type(item) ~= "table" then
            error("the query argument " .. at .. " is not a table, but a " .. type(item), 2)
        end
        local uri = item[1]
        if type(uri) ~= "string" and type(uri) ~= "number" then
            error("expecting a string uri for subrequest " .. at, 2)
        end
        local ended = at - AT_A_TIME
        if ended > 0 then
            results[ended] = wait(ids[ended])
        end
        ids[at] = begin(tostring(uri), item[2], at)
    end
    for at = #results + 1, n do
        results[at] = wait(ids[at])
    end
    return unpack(results, 1, n)
end
