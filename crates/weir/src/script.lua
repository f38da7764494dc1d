local stdout, stderr, exit = io.stdout, io.stderr, os.exit
local null, concat, select, type, tostring = ngx.null, table.concat, select, type, tostring
local process = require "ngx.process"

local function append(parts, value)
    if type(value) == "table" then
        for at = 1, table.maxn(value) do
            append(parts, value[at])
        end
    else
        parts[#parts + 1] = value == null and "null" or tostring(value)
    end
end

local function put(ending, ...)
    local parts = {}
    for at = 1, select("#", ...) do
        append(parts, (select(at, ...)))
    end
    parts[#parts + 1] = ending
    local ok, e = stdout:write(concat(parts))
    if not ok then
        return nil, e
    end
    return 1
end

function ngx.print(...)
    return put("", ...)
end
function ngx.say(...)
    return put("\n", ...)
end
print = ngx.say
function ngx.flush()
    stdout:flush()
    return 1
end
function ngx.eof()
    stdout:close()
    return 1
end
ngx.exit = exit

local function fail(e)
    stdout:flush()
    stderr:write("ERROR: ", tostring(e), "\n")
    exit(1)
end

local function run()
    rawset(_G, "arg", { [0] = given.file or "-e" })
    for at, word in ipairs(given.args) do
        arg[at] = word
    end
    for at = #given.dirs, 1, -1 do
        local dir = given.dirs[at]
        package.path = dir .. "/?.lua;" .. dir .. "/?/init.lua;" .. package.path
        package.cpath = dir .. "/?.so;" .. package.cpath
    end
    if given.jit == "off" then
        jit.off()
    elseif given.jit then
        require("jit." .. given.jit).on()
    end
    for _, name in ipairs(given.libs) do
        require(name)
    end
    local all = {}
    for at, text in ipairs(given.codes) do
        all[at] = assert(loadstring(text, "=(command line -e)"))
    end
    if given.file then
        local name = given.file
        if name == "-" then
            name = nil
        end
        all[#all + 1] = assert(loadfile(name))
    end
    for _, code in ipairs(all) do
        code(unpack(given.args))
    end
end

local ok, e = ngx.timer.at(0, function()
    xpcall(run, function(e)
        if type(e) == "string" then
            e = debug.traceback(e, 2)
        end
        fail(e)
    end)
    stdout:flush()
    -- Timers that wait come now, as where a worker ends.
    if ngx.timer.pending_count() > 0 then
        process.expire_timers()
    end
    while ngx.timer.pending_count() > 0 or ngx.timer.running_count() > 1 do
        ngx.sleep(0.001)
    end
    exit(0)
end)
if not ok then
    fail(e)
end
