-- ngx.errlog: lines of the error log, written and read.

local weir = ...
local C, raw = weir.C, weir.raw
local OP_NEXT, OP_FILTER, OP_ENABLED = weir.op "captured_line", weir.op "captured_least", weir.op "log_enabled"
local error, type, tonumber, unpack = error, type, tonumber, unpack
local DEFAULT_MAX = 10

local M = { version = weir.core_version, _VERSION = "0.1" }

function M.raw_log(level, text)
    if type(level) ~= "number" then
        error("bad argument #1 to 'raw_log' (must be a number)", 2)
    end
    if type(text) ~= "string" then
        error("bad argument #2 to 'raw_log' (must be a string)", 2)
    end
    if level > 8 or level < 0 then
        error("bad log level", 2)
    end
    weir.report(level, text)
end

function M.get_sys_filter_level()
    for level = 8, 1, -1 do
        if raw(OP_ENABLED, level) == 1 then
            return level
        end
    end
    return 0
end

function M.set_filter_level(level)
    if not level then
        return nil, 'missing "level" argument'
    end
    local number = tonumber(level)
    if not number then
        error("bad argument #1 to 'set_filter_level' (number expected, got " .. type(level) .. ")", 2)
    end
    if C(OP_FILTER, number, "", 0, "", 0, 0, 0) ~= 1 then
        return nil, weir.text()
    end
    return true
end

function M.get_logs(max, logs)
    max = tonumber(max) or DEFAULT_MAX
    if max <= 0 then
        max = math.huge
    end
    logs = logs or {}
    local n = 0
    while n < max * 3 do
        local code = C(OP_NEXT, 0, "", 0, "", 0, 0, 0)
        if code == -1 then
            return nil, weir.text()
        elseif code ~= 5 then
            break
        end
        logs[n + 1], logs[n + 2], logs[n + 3] = unpack((weir.list()), 1, 3)
        n = n + 3
    end
    logs[n + 1] = nil
    return logs
end

package.preload["ngx.errlog"] = function()
    return M
end
