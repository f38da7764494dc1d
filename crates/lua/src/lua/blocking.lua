-- Calls that block the worker are told of in the log, once for each place, with what does the same and waits.
-- What code gets are functions that end in a tail call of the stock ones: values, errors and their levels are theirs.

local weir = ...
local C, phase = weir.C, weir.phase
local OP_BLOCKS = weir.op "blocks"
local getinfo, type, select, setmetatable = debug.getinfo, type, select, setmetatable

local FILES = "; do it in init_by_lua, or ask a location for the file by ngx.location.capture"
local PIPES = "; use ngx.pipe"
local SOCKETS = "; use ngx.socket.tcp or ngx.socket.udp"

-- A state looks for no more of them.
local PLACES_MAX = 100
local LEVELS_MAX = 20
local told, places = {}, 0

-- The innermost Lua code from a level on that is none of a library that blocks by itself.
local function place_from(level)
    local last
    for at = level + 1, level + LEVELS_MAX do
        local info = getinfo(at, "Sl")
        if not info then
            break
        end
        if info.currentline > 0 then
            last = info.short_src .. ":" .. info.currentline
            if not info.source:find("^@.*/socket%.lua$") and not info.source:find("^@.*/socket/[^/]*%.lua$") then
                break
            end
        end
    end
    return last
end

-- Tells of a call by the function at that level's caller.
local function tell(level, name, instead)
    if places >= PLACES_MAX then
        return
    end
    local place = place_from(level + 1)
    if not place then
        return
    end
    local text = place .. " calls " .. name .. ", which blocks the worker" .. instead
    if not told[text] and C(OP_BLOCKS, 0, text, #text, "", 0, 0, 0) == 1 then
        told[text] = true
        places = places + 1
    end
end

local function wrap(t, key, name, instead)
    local f = t[key]
    if type(f) == "function" then
        t[key] = function(...)
            tell(2, name, instead)
            return f(...)
        end
    end
end

-- Files whose opening was told of are read without another word.
local opened = setmetatable({}, { __mode = "k" })

local function note(f, ...)
    if f then
        opened[f] = true
    end
    return f, ...
end

local function is_text(value)
    return type(value) == "string" or type(value) == "number"
end

local function wrap_open(key, instead)
    local f = io[key]
    io[key] = function(...)
        tell(2, "io." .. key, instead)
        local name, mode = ...
        local now = phase()
        if now == "init" or now == "init_worker" or not is_text(name) or mode ~= nil and not is_text(mode) then
            return f(...)
        end
        return note(f(...))
    end
end

local function wrap_method(methods, key, instead)
    local f = methods[key]
    methods[key] = function(...)
        local file = ...
        if type(file) == "userdata" and not opened[file] then
            tell(2, "file:" .. key, instead)
        end
        return f(...)
    end
end

wrap_open("open", FILES)
wrap_open("popen", PIPES)
wrap(io, "read", "io.read", FILES)
wrap(io, "lines", "io.lines", FILES)
local methods = debug.getmetatable(io.stdout).__index
wrap_method(methods, "read", FILES)
wrap_method(methods, "lines", FILES)
wrap(os, "execute", "os.execute", PIPES)
for _, key in ipairs { "remove", "rename", "tmpname" } do
    wrap(os, key, "os." .. key, "; do it in init_by_lua, or have another program do it")
end

-- luasocket, once it is loaded: what makes its sockets, and what waits by itself.
local function wrap_socket(socket)
    if type(socket) ~= "table" then
        return
    end
    for _, key in ipairs { "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "connect", "connect4", "connect6" } do
        wrap(socket, key, "luasocket's socket." .. key, SOCKETS)
    end
    wrap(socket, "sleep", "luasocket's socket.sleep", "; use ngx.sleep")
    wrap(socket, "select", "luasocket's socket.select", "; use ngx.thread.spawn and ngx.thread.wait")
    if type(socket.dns) == "table" then
        for _, key in ipairs { "toip", "tohostname", "getaddrinfo", "getnameinfo" } do
            wrap(socket.dns, key, "luasocket's socket.dns." .. key, "; connect to the name, which resolver is asked for")
        end
    end
end

local function loaded(made)
    return function(...)
        local socket = made(...)
        wrap_socket(socket)
        return socket
    end
end

-- They stay where they are in the list, for who puts others between.
for at = 2, 4 do
    local load = package.loaders[at]
    package.loaders[at] = function(...)
        if (...) ~= "socket.core" then
            return load(...)
        end
        local made, more = load(...)
        return type(made) == "function" and loaded(made) or made, more
    end
end
