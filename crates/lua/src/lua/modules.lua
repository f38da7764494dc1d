-- Modules that libraries load by name.

local weir = ...

-- LuaJIT's own, as text.
do
    local n = 0
    while weir.raw(weir.op "config", n) == 5 do
        local name, text = unpack((weir.list()))
        package.preload[name] = function(...)
            return assert(loadstring(text, "=" .. name))(...)
        end
        n = n + 1
    end
end

-- cjson is ours, and made when it is first wanted.
do
    local function make()
        weir.raw(weir.op "cjson")
        local cjson, safe = assert(loadstring(weir.text(), "=cjson"))(weir.null)
        package.loaded.cjson, package.loaded["cjson.safe"] = cjson, safe
        return cjson, safe
    end
    package.preload.cjson = function()
        return (make())
    end
    package.preload["cjson.safe"] = function()
        return (select(2, make()))
    end
end

package.preload["tablepool"] = nil

-- Directives that make a value of one, by their names.
ndk = { set_var = {} }
do
    local OP_NDK = weir.op "ndk_value"
    setmetatable(ndk.set_var, {
        __index = function(t, name)
            name = tostring(name)
            if weir.raw(OP_NDK, 0, name, "") == 0 then
                error('ndk.set_var: directive "' .. name .. '" not found or does not use ndk_set_var_value', 2)
            end
            local function set_var(value)
                local code = weir.raw(OP_NDK, 0, name, tostring(value))
                if code == 4 then
                    error('calling directive "' .. name .. '" failed', 2)
                end
                return weir.finish(code)
            end
            rawset(t, name, set_var)
            return set_var
        end,
        __newindex = function()
            error("not allowed", 2)
        end,
    })
end
package.loaded.ndk = ndk

----------------------------------------------------------------------------------------------------- globals

-- All code of a worker shares them: who makes one while it serves is told of that, where it happens.
local report = weir.op "report"
setmetatable(_G, {
    __newindex = function(t, name, value)
        rawset(t, name, value)
        local now = weir.phase()
        if now ~= "init" and now ~= "init_worker" then
            local text = (weir.stream or "") .. "[lua] writing a global Lua variable ('" .. tostring(name) .. "') which may lead to race "
                .. "conditions between concurrent requests, so prefer the use of 'local' variables"
            weir.raw(report, 5, text, (debug.traceback("", 2):gsub("^\n", "")))
        end
    end,
})
