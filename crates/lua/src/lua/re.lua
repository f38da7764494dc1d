-- ngx.re.

local weir = ...
local op, C, ngx = weir.op, weir.C, weir.ngx
local out, late = weir.out, weir.out + 1
local ffi = require "ffi"
local ffi_cast = ffi.cast
local error, type, tostring, setmetatable, tonumber = error, type, tostring, setmetatable, tonumber
local sub, find, format, concat, char = string.sub, string.find, string.format, table.concat, string.char
local band, rshift, min, ipairs = bit.band, bit.rshift, math.min, ipairs
local ffi_string = ffi.string
local new_tab = require "table.new"
local pairs_t = ffi.typeof("const uint32_t *")

local OP_COMPILE, OP_EXEC, OP_FREE, OP_REPLACE = op "re_compile", op "re_exec", op "re_free", op "re_replace"
local UNSET = 0xffffffff

local re = {}
ngx.re = re

local KNOWN = {}
for letter in ("adDijJmosuUx"):gmatch "." do
    KNOWN[letter] = true
end

-- By options, then by patterns. (There are not many options that differ, but any number of ways to write them.)
local KEPT_MAX = 256
local kept, kept_n = {}, 0

local function compile(regex, options)
    local of = kept[options]
    if of then
        local compiled = of[regex]
        if compiled then
            return compiled
        end
    else
        for at = 1, #options do
            local letter = sub(options, at, at)
            if not KNOWN[letter] then
                error(format('unknown flag "%s" (flags "%s")', letter, options), 4)
            end
        end
        of = {}
        if kept_n < KEPT_MAX then
            kept_n = kept_n + 1
            kept[options] = of
        end
    end
    if C(OP_COMPILE, 0, regex, #regex, options, #options, 0, 0) ~= 5 then
        return nil, weir.text()
    end
    local t, n = weir.list()
    local compiled = {
        id = t[1], groups = t[2], kept = t[3], dups = find(options, "D", 1, true) and true or false,
        regex = regex, options = options, names_n = (n - 3) / 2,
    }
    if find(options, "d", 1, true) then
        -- All ways are gone at once: there is no group but the whole match.
        compiled.groups = 0
    end
    if n > 3 then
        compiled.names = { unpack(t, 4, n) }
    end
    if compiled.kept then
        of[regex] = compiled
    end
    return compiled
end

local function done(compiled)
    if not compiled.kept then
        C(OP_FREE, compiled.id, "", 0, "", 0, 0, 0)
    end
end

local COMPILED_AGAIN_MAX = 100

-- Matches an expression that others may have been compiled behind: if it was let go of, it is compiled again.
local function ask(what, compiled, subject, with, x)
    local code = C(what, compiled.id, subject, #subject, with, #with, x, 0)
    if code ~= 4 then
        return code
    end
    local regex, options = compiled.regex, compiled.options
    -- A finalizer may run behind each of these as well.
    for _ = 1, COMPILED_AGAIN_MAX do
        if C(OP_COMPILE, 0, regex, #regex, options, #options, 0, 0) ~= 5 then
            return -1
        end
        compiled.id = weir.list()[1]
        code = C(what, compiled.id, subject, #subject, with, #with, x, 0)
        if code ~= 4 then
            return code
        end
    end
    -- Whether there is a match is not known.
    error("an expression is let go of again and again", 0)
end

local function go_on(compiled, subject, pos)
    return ask(OP_EXEC, compiled, subject, "", pos)
end

local function why_not()
    return "pcre_exec() failed: " .. weir.text()
end

-- Where the groups are that a call has found, by its code. What that points to stays as it is until the next call.
local FOUND, FOUND_LATE = 9, 10
local function places(code)
    if code == FOUND then
        return ffi_cast(pairs_t, out.p)
    elseif code == FOUND_LATE then
        -- This is a finalizer.
        return ffi_cast(pairs_t, late.p)
    end
end

local function collect(compiled, subject, at, res)
    local count = compiled.groups
    -- One that grew would be made three times.
    res = res or new_tab(count, compiled.names_n)
    for n = 0, count do
        local from = at[n * 2]
        if from == UNSET then
            res[n] = false
        else
            res[n] = sub(subject, tonumber(from) + 1, tonumber(at[n * 2 + 1]))
        end
    end
    local names = compiled.names
    if names then
        for n = 1, #names, 2 do
            local name, value = names[n], res[names[n + 1]]
            if compiled.dups then
                if value then
                    local known = res[name]
                    if known then
                        known[#known + 1] = value
                    else
                        res[name] = { value }
                    end
                end
            else
                res[name] = value
            end
        end
    end
    return res
end

local function text(value)
    return type(value) == "string" and value or tostring(value)
end

local function begin(regex, options)
    local compiled, e = compile(text(regex), options == nil and "" or text(options))
    return compiled, e
end

-- As `resty.core.regex` has them: what others have compiled is theirs to let go of, if it is not kept.
local function compiled_for(regex, options)
    local compiled, e = begin(regex, options)
    if not compiled then
        return nil, e
    end
    return compiled, compiled.kept, 0
end

weir.re = { compile = compiled_for }

function weir.re.destroy(compiled)
    done(compiled)
end

function weir.re.is_empty()
    for _, of in pairs(kept) do
        if next(of) then
            return false
        end
    end
    return true
end

local function position(ctx)
    local pos = ctx and ctx.pos
    if not pos or pos <= 0 then
        return 0
    end
    return pos - 1
end

function re.match(subject, regex, options, ctx, res)
    subject = text(subject)
    local compiled, e = begin(regex, options)
    if not compiled then
        return nil, e
    end
    local code = go_on(compiled, subject, position(ctx))
    local at = places(code)
    if not at then
        local why = code == -1 and why_not() or nil
        done(compiled)
        if why then
            return nil, why
        end
        return nil
    end
    if ctx then
        ctx.pos = tonumber(at[1]) + 1
    end
    local found = collect(compiled, subject, at, res)
    done(compiled)
    return found
end

function re.find(subject, regex, options, ctx, nth)
    subject = text(subject)
    local compiled, e = begin(regex, options)
    if not compiled then
        return nil, nil, e
    end
    local code = go_on(compiled, subject, position(ctx))
    local at = places(code)
    if not at then
        local why = code == -1 and why_not() or nil
        done(compiled)
        if why then
            return nil, nil, why
        end
        return nil
    end
    if ctx then
        ctx.pos = tonumber(at[1]) + 1
    end
    local n = nth or 0
    if n < 0 then
        n = 0
    end
    local groups = compiled.groups
    local from, to
    if n <= groups and at[n * 2] ~= UNSET then
        from, to = tonumber(at[n * 2]) + 1, tonumber(at[n * 2 + 1])
    end
    done(compiled)
    if n > groups then
        return nil, nil, "nth out of bound"
    end
    if not from then
        return nil, nil
    end
    return from, to
end

local function iterate(self)
    local compiled, pos = self.compiled, self.pos
    if not compiled or pos < 0 then
        return nil
    end
    local subject = self.subject
    local code = go_on(compiled, subject, pos)
    local at = places(code)
    if not at then
        local why = code == -1 and why_not() or nil
        done(compiled)
        self.compiled = nil
        if why then
            return nil, why
        end
        return nil
    end
    local from, to = tonumber(at[0]), tonumber(at[1])
    local found = collect(compiled, subject, at)
    pos = to
    if from == to then
        pos = pos + 1
        if pos > #subject then
            done(compiled)
            self.compiled = nil
        end
    end
    self.pos = pos
    return found
end

local iterator = { __call = iterate }

function re.gmatch(subject, regex, options)
    subject = text(subject)
    local compiled, e = begin(regex, options)
    if not compiled then
        return nil, e
    end
    return setmetatable({ compiled = compiled, subject = subject, pos = 0 }, iterator)
end

-- Templates as Rust reads them. Those that code makes anew each time do not stay.
local TEMPLATES_MAX = 1024
local templates, templates_n = {}, 0

-- Texts and numbers of groups: whether it is a group, and its number, or the length of the text and the text.
local function packed(parts)
    local all = {}
    for i, part in ipairs(parts) do
        local is_group = type(part) == "number"
        -- There are no groups beyond those.
        local n = is_group and min(part, 65536) or #part
        all[i] = char(is_group and 1 or 0, band(n, 255), band(rshift(n, 8), 255), band(rshift(n, 16), 255), rshift(n, 24))
            .. (is_group and "" or part)
    end
    return concat(all)
end

local function template_of(replace)
    local known = templates[replace]
    if known then
        return known
    end
    local parts = {}
    local at, n = 1, 0
    while true do
        local from = find(replace, "$", at, true)
        if not from then
            break
        end
        if from > at then
            n = n + 1
            parts[n] = sub(replace, at, from - 1)
        end
        local following = sub(replace, from + 1, from + 1)
        if following == "$" then
            n = n + 1
            parts[n] = "$"
            at = from + 2
        elseif find(following, "^%d") then
            local _, stop = find(replace, "^%d+", from + 1)
            n = n + 1
            parts[n] = tonumber(sub(replace, from + 1, stop))
            at = stop + 1
        elseif following == "{" then
            local _, stop, number = find(replace, "^{(%d+)}", from + 1)
            if not stop then
                local name = replace:match("^{([%w_]+)}", from + 1)
                if name then
                    return nil, 'attempt to use named capturing variable "' .. name .. '" (named captures not supported yet)'
                end
                return nil, 'the closing bracket in "' .. (replace:match("^[%w_]+", from + 2) or "") .. '" variable is missing'
            end
            n = n + 1
            parts[n] = tonumber(number)
            at = stop + 1
        else
            local name = replace:match("^[%w_]+", from + 1)
            if name then
                return nil, 'attempt to use named capturing variable "' .. name .. '" (named captures not supported yet)'
            end
            return nil, 'invalid capturing variable name found in "' .. replace .. '"'
        end
    end
    if at <= #replace then
        parts[n + 1] = sub(replace, at)
    end
    if templates_n == TEMPLATES_MAX then
        templates, templates_n = {}, 0
    end
    local template = packed(parts)
    templates[replace], templates_n = template, templates_n + 1
    return template
end

function weir.re.compile_sub(regex, options, replace, func)
    local compiled, e = begin(regex, options)
    if not compiled then
        return nil, e
    end
    if not func and not template_of(replace) then
        done(compiled)
        return nil, "failed to compile the replacement template"
    end
    return compiled, compiled.kept, 0
end

local TEXT, TEXT_LATE = 2, 11

local function by_template(compiled, subject, template, global)
    local code = ask(OP_REPLACE, compiled, subject, template, global and 1 or 0)
    if code == 0 then
        return subject, 0
    elseif code ~= TEXT and code ~= TEXT_LATE then
        return nil, nil, why_not()
    end
    local from = code == TEXT and out or late
    return ffi_string(from.p, from.n), tonumber(from.x)
end

local function by_function(compiled, subject, replace, global)
    local result, n, count, pos, copied = {}, 0, 0, 0, 0
    local length = #subject
    while true do
        local code = go_on(compiled, subject, pos)
        local at = places(code)
        if code == -1 then
            return nil, nil, why_not()
        elseif not at then
            break
        end
        count = count + 1
        local from, to = tonumber(at[0]), tonumber(at[1])
        if from > copied then
            n = n + 1
            result[n] = sub(subject, copied + 1, from)
        end
        n = n + 1
        result[n] = tostring(replace(collect(compiled, subject, at)))
        copied, pos = to, to
        if from == to then
            pos = pos + 1
            if pos > length then
                break
            end
        end
        if not global then
            break
        end
    end
    if count == 0 then
        return subject, 0
    end
    if copied < length then
        n = n + 1
        result[n] = sub(subject, copied + 1)
    end
    return concat(result), count
end

local function substitute(subject, regex, replace, options, global)
    subject = text(subject)
    local how, with = by_function, replace
    if type(replace) ~= "function" then
        local e
        how = by_template
        with, e = template_of(text(replace))
        if not with then
            weir.report(2, e)
            -- What the expression itself lacks is told first.
            local compiled, why = begin(regex, options)
            if not compiled then
                return nil, nil, why
            end
            done(compiled)
            return nil, nil, "failed to compile the replacement template"
        end
    end
    local compiled, e = begin(regex, options)
    if not compiled then
        return nil, nil, e
    end
    local whole, count, why = how(compiled, subject, with, global)
    done(compiled)
    if why then
        return nil, nil, why
    end
    return whole, count
end

function re.sub(subject, regex, replace, options)
    return substitute(subject, regex, replace, options, false)
end

function re.gsub(subject, regex, replace, options)
    return substitute(subject, regex, replace, options, true)
end

package.preload["ngx.re"] = function()
    local M = { version = "0.1", _VERSION = "0.1" }

    local OP_JIT_STACK = op "re_jit_stack"
    local JIT_STACK_MAX_BYTES = 64 * 1024 * 1024

    function M.opt(option, value)
        if option == "jit_stack_size" then
            if type(value) ~= "number" then
                error("wrong type of value: number expected", 2)
            elseif not (value >= 1 and value <= JIT_STACK_MAX_BYTES) then
                error("jit_stack_size is up to 64 MB, for each worker: " .. value, 2)
            elseif C(OP_JIT_STACK, 0, "", 0, "", 0, value, 0) ~= 1 then
                error("failed to set pcre jit stack: no memory", 2)
            end
            return
        end
        error("unrecognized option name", 2)
    end

    function M.split(subject, regex, options, ctx, max, res)
        subject = text(subject)
        max = max or 0
        local compiled, e = begin(regex, options)
        if not compiled then
            return nil, e
        end
        res = res or {}
        local length = #subject
        local pos = position(ctx)
        local n, count, from_at = 0, 1, pos
        if pos > length then
            done(compiled)
            return res
        end
        local search = pos
        while max <= 0 or count < max do
            local code = go_on(compiled, subject, search)
            local at = places(code)
            if code == -1 then
                local why = why_not()
                done(compiled)
                return nil, why
            elseif not at then
                break
            end
            local from, to = tonumber(at[0]), tonumber(at[1])
            if from == to then
                -- Between characters, but not at the ends.
                if from >= length then
                    break
                end
                if from == from_at then
                    search = from + 1
                    local again = go_on(compiled, subject, search)
                    at = places(again)
                    if again == -1 then
                        local why = why_not()
                        done(compiled)
                        return nil, why
                    elseif not at then
                        break
                    end
                    from, to = tonumber(at[0]), tonumber(at[1])
                    if from >= length and from == to then
                        break
                    end
                end
            end
            n = n + 1
            res[n] = sub(subject, from_at + 1, from)
            count = count + 1
            -- The first group is told, and no other.
            if compiled.groups > 0 and at[2] ~= UNSET then
                n = n + 1
                res[n] = sub(subject, tonumber(at[2]) + 1, tonumber(at[3]))
            end
            from_at = to
            search = to
            if ctx then
                ctx.pos = to + 1
            end
        end
        done(compiled)
        if max > 0 and count > max then
            count = max
        end
        n = n + 1
        res[n] = sub(subject, from_at + 1)
        if max <= 0 then
            -- As Perl does: what is empty at the end is left out.
            while n > 0 and res[n] == "" do
                res[n] = nil
                n = n - 1
            end
        end
        if ctx and n then
            ctx.pos = length + 1
        end
        local extra = n + 1
        while res[extra] ~= nil do
            res[extra] = nil
            extra = extra + 1
        end
        return res
    end

    return M
end
