-- cjson and cjson.safe, for programs that expect OpenResty's lua-cjson.
--
-- The chunk takes the light userdata NULL (which is ngx.null, too) and gives both modules:
--
--     local cjson, safe = chunk(null)
--
-- Neither encode nor decode recurses: a document may be as deep as its settings allow. Settings belong to
-- one instance; what writes and reads text is shared by all, and gets the settings as a table.

local null = ...

local byte, char, find, format, gsub, lower, match, rep, sub = string.byte, string.char, string.find,
  string.format, string.gsub, string.lower, string.match, string.rep, string.sub
local debug_info, metatable_of = debug.getinfo, debug.getmetatable
local error, next, pcall, rawget, select, setmetatable, tonumber, tostring, type =
  error, next, pcall, rawget, select, setmetatable, tonumber, tostring, type
local concat, floor, huge = table.concat, math.floor, math.huge
local tobit = bit.tobit

local MAX_INT = 2147483647

-- Written as an empty array. It only has to be a value that nothing else is, and of type userdata.
local empty_array = newproxy()
local array_mt, empty_array_mt = {}, {}

-- ---------------------------------------------------------------------------------------------------------
-- Buffers

local new_buffer
do
  local there, buffer = pcall(require, "string.buffer")
  if there then
    new_buffer = buffer.new
  else
    -- The few methods that are used here, for a LuaJIT without string.buffer.
    local methods = {}
    methods.__index = methods

    function methods:put(...)
      local n = self.n
      for i = 1, select("#", ...) do
        local piece = select(i, ...)
        n = n + 1
        self[n] = type(piece) == "number" and format("%.14g", piece) or piece
      end
      self.n = n
    end

    function methods:reset()
      if self.n > 0 then
        for i = self.n, 1, -1 do self[i] = nil end
        self.n = 0
      end
    end
    methods.free = methods.reset

    function methods:tostring()
      return concat(self, "", 1, self.n)
    end

    new_buffer = function() return setmetatable({ n = 0 }, methods) end
  end
end

-- A buffer is taken while it is used, and given back after: a finalizer may encode or decode in between.
local spare_buffer = new_buffer()

local function take_buffer()
  local buf = spare_buffer
  if buf then
    spare_buffer = false
    return buf
  end
  return new_buffer()
end

local function give_buffer(buf, keep)
  buf:reset()
  if not keep then buf:free() end
  spare_buffer = buf
end

-- ---------------------------------------------------------------------------------------------------------
-- Encoding

-- What stands for a byte within a string, or false where the byte stands for itself.
local escapes, escapes_but_slash = {}, {}
for c = 0, 255 do
  escapes[c] = (c < 32 or c == 127) and format("\\u%04x", c) or false
end
for name, c in next, { b = 8, t = 9, n = 10, f = 12, r = 13, ['"'] = 34, ["/"] = 47, ["\\"] = 92 } do
  escapes[c] = "\\" .. name
end
for c = 0, 255 do escapes_but_slash[c] = c ~= 47 and escapes[c] end
-- The same by character, for gsub.
for c = 0, 255 do
  escapes[char(c)], escapes_but_slash[char(c)] = escapes[c], escapes_but_slash[c]
end

local function put_escaped(buf, s, escapes, at)
  local from = 1
  buf:put('"')
  for i = at, #s do
    local escape = escapes[byte(s, i)]
    if escape then
      if i > from then buf:put(sub(s, from, i - 1)) end
      buf:put(escape)
      from = i + 1
    end
  end
  buf:put(sub(s, from), '"')
end

local function put_string(buf, s, escapes)
  for i = 1, #s do
    if escapes[byte(s, i)] then return put_escaped(buf, s, escapes, i) end
  end
  buf:put('"', s, '"')
end

-- Keys come again and again: the short ones are kept as they are written, with their colon.
local KEPT, KEPT_LENGTH = 2000, 60
local kept, kept_but_slash = { n = 0, keys = {} }, { n = 0, keys = {} }

local function put_key(buf, key, set)
  local known = set.kept.keys[key]
  if known then
    buf:put(known)
    return
  end
  if #key > KEPT_LENGTH then
    put_string(buf, key, set.escapes)
    buf:put(":")
    return
  end
  local text = '"' .. gsub(key, '[%c"\\/\127]', set.escapes) .. '":'
  local kept = set.kept
  if kept.n >= KEPT then kept.n, kept.keys = 0, {} end
  kept.n = kept.n + 1
  kept.keys[key] = text
  buf:put(text)
end

-- Gives an error's text where the number cannot be written.
local function put_number(buf, v, set)
  local int = tobit(v)
  if int == v and int ~= 0 then
    if set.number_format then buf:put(format(set.number_format, v)) else buf:put(int) end
  elseif v - v ~= 0 then
    local invalid = set.encode_invalid
    if invalid == "null" then
      buf:put("null")
    elseif invalid then
      buf:put(v ~= v and "NaN" or v > 0 and "Infinity" or "-Infinity")
    else
      return "Cannot serialise number: must not be NaN or Infinity"
    end
  elseif set.number_format then
    buf:put(format(set.number_format, v))
  else
    buf:put(v)
  end
end

-- The greatest index of an array, -1 of an object, or nil and an error.
local function array_length(t, set)
  local max, items = 0, 0
  for k in next, t do
    if type(k) ~= "number" or k < 1 or k > MAX_INT or floor(k) ~= k then return -1 end
    if k > max then max = k end
    items = items + 1
  end
  local ratio = set.sparse_ratio
  if ratio > 0 and max > items * ratio and max > set.sparse_safe then
    if set.sparse_convert then return -1 end
    return nil, "Cannot serialise table: excessively sparse array"
  end
  return max
end

-- How many elements of a table are written as an array, or -1 where it is an object, or nil and an error.
local function elements(t, set)
  local mt = metatable_of(t)
  if mt then
    if mt == array_mt then return #t end
    local len = rawget(mt, "__len")
    if len ~= nil then
      local n = tonumber((len(t))) or 0
      return n >= 1 and floor(n) or 0
    end
  end
  local n, err = array_length(t, set)
  if not n then return nil, err end
  if n > 0 then return n end
  if mt and mt == empty_array_mt then return #t end
  if n == 0 and not set.empty_as_object then return 0 end
  return -1
end

local supported = { ["nil"] = true, boolean = true, number = true, string = true, table = true }

local function encode(set, root)
  local buf = take_buffer()
  local escapes, skip, indent, max_depth = set.escapes, set.skip_unsupported, set.indent, set.encode_max_depth
  if indent == "" then indent = nil end

  -- Of the table that is being written: itself, its elements (-1: an object), the last index or key, whether
  -- nothing of it was written yet. Those around it are on the stack, four places each.
  local t, n, i, k, first = root, 1, 0, false, true
  local stack, depth = nil, 0
  local v, err, kind = root, nil, nil

  -- The root is like the only element of an array without brackets.
  while true do
    if depth > 0 then
      if n >= 0 then
        if i >= n then
          if indent then buf:put("\n", rep(indent, depth - 1)) end
          buf:put("]")
          goto close
        end
        i = i + 1
        v = t[i]
      else
        k, v = next(t, k or nil)
        if k == nil then
          if indent then buf:put("\n", rep(indent, depth - 1)) end
          buf:put("}")
          goto close
        end
        kind = type(k)
        if kind == "number" then
          if k - k ~= 0 and not set.encode_invalid then
            err = "Cannot serialise number: must not be NaN or Infinity"
            break
          end
        elseif kind ~= "string" then
          err = "Cannot serialise " .. kind .. ": table key must be a number or string"
          break
        end
      end
      if skip and v ~= null and v ~= empty_array and not supported[type(v)] then goto continue end
      if first then first = false else buf:put(",") end
      if indent then buf:put("\n", rep(indent, depth)) end
      if n < 0 then
        if kind == "string" then
          put_key(buf, k, set)
        else
          buf:put('"')
          put_number(buf, k, set)
          buf:put('":')
        end
        if indent then buf:put(" ") end
      end
    end

    kind = type(v)
    if kind == "string" then
      put_string(buf, v, escapes)
    elseif kind == "number" then
      err = put_number(buf, v, set)
      if err then break end
    elseif kind == "table" then
      if depth >= max_depth then
        err = "Cannot serialise, excessive nesting (" .. format("%d", depth + 1) .. ")"
        break
      end
      local count
      count, err = elements(v, set)
      if not count then break end
      if count == 0 then
        buf:put("[]")
      elseif count < 0 and next(v) == nil then
        buf:put("{}")
      else
        if depth > 0 then
          if not stack then stack = {} end
          local at = depth * 4
          stack[at - 3], stack[at - 2], stack[at - 1], stack[at] = t, n, i, k
        end
        depth = depth + 1
        t, n, i, k, first = v, count, 0, false, true
        if count < 0 then buf:put("{") else buf:put("[") end
        goto continue
      end
    elseif v == true then
      buf:put("true")
    elseif v == false then
      buf:put("false")
    elseif v == nil or v == null then
      buf:put("null")
    elseif v == empty_array then
      buf:put("[]")
    elseif not skip then
      err = "Cannot serialise " .. kind .. ": type not supported"
      break
    end
    if depth == 0 then break end
    goto continue

    ::close::
    depth = depth - 1
    if depth == 0 then break end
    do
      local at = depth * 4
      t, n, i, k, first = stack[at - 3], stack[at - 2], stack[at - 1], stack[at], false
    end

    ::continue::
  end

  local text = not err and buf:tostring() or nil
  give_buffer(buf, set.keep_buffer)
  return text, err
end

-- ---------------------------------------------------------------------------------------------------------
-- Decoding

-- What a number begins that is not written as JSON writes it, with the place behind it.
local function odd_number(s, at)
  local sign, from, text = 1, at, nil
  local c = byte(s, at)
  if c == 45 then sign, from = -1, at + 1 elseif c == 43 then from = at + 1 end
  text = match(s, "^0x%x*%.?%x*", from)
  if text and find(text, "%x", 3) then
    text = text .. (match(s, "^[pP][-+]?%d+", from + #text) or "")
    local v = tonumber(text)
    if v then return sign * v, from + #text end
  end
  text = lower(sub(s, from, from + 7))
  if text == "infinity" then return sign * huge, from + 8 end
  text = sub(text, 1, 3)
  if text == "inf" then return sign * huge, from + 3 end
  if text == "nan" then
    local behind = match(s, "^%([%w_]*%)()", from + 3)
    return huge - huge, behind or from + 3
  end
end

-- A number of any kind: its value, the place behind it, whether an error calls it an integer. Or nil, where
-- there is none.
local function any_number(s, at, invalid)
  if not invalid then
    if match(s, "^%+", at) or match(s, "^-?0[%dxX]", at) then return nil end
  else
    local v, behind = odd_number(s, at)
    if v then return v, behind, false end
  end
  local whole = match(s, "^[-+]?%d*", at)
  local text = whole .. (match(s, "^%.%d*", at + #whole) or "")
  if not find(text, "%d") then return nil end
  text = text .. (match(s, "^[eE][-+]?%d+", at + #text) or "")
  local behind = at + #text
  local v = tonumber(text)
  if not v then
    -- An exponent that tonumber refuses: there is nothing left of the number, or no end to it.
    v = (find(text, "^[-+0.]*[eE]") or find(text, "[eE]%-")) and 0 or huge
    if byte(text) == 45 then v = -v end
  end
  if #text == #whole then return 0 + v, behind, not find(s, "^[.eEx]", behind) end
  return v, behind, false
end

local powers = {}
for e = 0, 22 do powers[e] = tonumber("1e" .. e) end

-- A number that begins with a digit or minus. Up to 15 digits and a power of ten that is exact make an exact
-- result by one multiplication or division; the rest is for tonumber.
local function number(s, at, c, invalid)
  local i, minus = at, false
  if c == 45 then
    minus = true
    i = i + 1
    c = byte(s, i)
    if not c or c < 48 or c > 57 then return any_number(s, at, invalid) end
  end
  local m = c - 48
  i = i + 1
  c = byte(s, i) or 0
  -- A zero before more digits, and 0x.
  if m == 0 and (c == 120 or c == 88 or c >= 48 and c <= 57) then return any_number(s, at, invalid) end
  local from = i
  while c >= 48 and c <= 57 do
    m = m * 10 + (c - 48)
    i = i + 1
    c = byte(s, i) or 0
  end
  if c ~= 46 and c ~= 69 and c ~= 101 then
    if i - from > 14 then return tonumber(sub(s, at, i - 1)), i end
    return minus and 0 - m or m, i
  end
  local digits, power = i - from, 0
  if c == 46 then
    from = i + 1
    i = from
    c = byte(s, i) or 0
    while c >= 48 and c <= 57 do
      m = m * 10 + (c - 48)
      i = i + 1
      c = byte(s, i) or 0
    end
    power = from - i
    digits = digits - power
  end
  if c == 69 or c == 101 then
    from = i + 1
    c = byte(s, from) or 0
    if c == 43 or c == 45 then
      from = from + 1
      c = byte(s, from) or 0
    end
    -- Without digits it is no exponent, and what follows the number is for others to refuse.
    if c >= 48 and c <= 57 then
      i = from
      while c >= 48 and c <= 57 do
        i = i + 1
        c = byte(s, i) or 0
      end
      local v = tonumber(sub(s, at, i - 1))
      if not v then return any_number(s, at, invalid) end
      return v, i
    end
  end
  if digits > 14 then return tonumber(sub(s, at, i - 1)), i end
  m = m / powers[-power]
  return minus and -m or m, i
end

local unescapes = {
  [34] = '"', [47] = "/", [92] = "\\", [98] = "\b", [102] = "\f", [110] = "\n", [114] = "\r", [116] = "\t",
}

-- The four hexadecimal digits at a place.
local function hex4(s, at)
  local digits = match(s, "^%x%x%x%x", at)
  return digits and tonumber(digits, 16)
end

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 0x40), 0x80 + code % 0x40) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 0x1000), 0x80 + floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
  end
  return char(0xF0 + floor(code / 0x40000), 0x80 + floor(code / 0x1000) % 0x40,
    0x80 + floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
end

-- The character of \u at a place, and the place behind it.
local function unicode(s, at)
  local code = hex4(s, at + 2)
  if not code then return nil end
  if code >= 0xD800 and code <= 0xDFFF then
    if code >= 0xDC00 or sub(s, at + 6, at + 7) ~= "\\u" then return nil end
    local low = hex4(s, at + 8)
    if not low or low < 0xDC00 or low > 0xDFFF then return nil end
    return utf8(0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00)), at + 12
  end
  return utf8(code), at + 6
end

-- A string with escapes, of which the first is known: its value, the place behind the quote, the place of the
-- next backslash from there. Or nil, an error and its place.
local function escaped_string(s, at, slash)
  local buf = take_buffer()
  local last = #s + 1
  local quote = find(s, '"', at, true) or last
  local err
  while slash < quote do
    if slash > at then buf:put(sub(s, at, slash - 1)) end
    local c = byte(s, slash + 1)
    local plain = unescapes[c or 0]
    if plain then
      buf:put(plain)
      at = slash + 2
    elseif c == 117 then
      local text, behind = unicode(s, slash)
      if not text then
        err = "invalid unicode escape code"
        break
      end
      buf:put(text)
      at = behind
    else
      err = "invalid escape code"
      break
    end
    if quote < at then quote = find(s, '"', at, true) or last end
    slash = find(s, "\\", at, true) or last
  end
  if not err and quote == last then
    err, slash = "unexpected end of string", last
  end
  if err then
    give_buffer(buf, true)
    return nil, err, slash
  end
  if quote > at then buf:put(sub(s, at, quote - 1)) end
  local text = buf:tostring()
  give_buffer(buf, true)
  return text, quote + 1, slash
end

-- The place behind a comment, or nil and the place of an error: where there is none the comment's, with false.
local function comment(s, at)
  local c = byte(s, at + 1)
  if c == 47 then return find(s, "\n", at, true) or #s + 1 end
  if c == 42 then
    local behind = find(s, "*/", at + 2, true)
    if behind then return behind + 2 end
    return nil, "unclosed multi-line comment", #s + 1
  end
  return nil, "invalid token", at
end

local names = {
  [34] = "T_STRING", [44] = "T_COMMA", [58] = "T_COLON", [91] = "T_ARR_BEGIN", [93] = "T_ARR_END",
  [123] = "T_OBJ_BEGIN", [125] = "T_OBJ_END",
}

-- What is at a place where something else should be, as an error's text tells it.
local function found(set, s, at, wanted)
  local c = byte(s, at)
  local name, place = names[c or 0], at
  if not c then
    name = "T_END"
  elseif c == 34 then
    local slash = find(s, "\\", at, true) or #s + 1
    local quote = find(s, '"', at + 1, true) or #s + 1
    if slash < quote or quote > #s then
      local text, err, where = escaped_string(s, at + 1, slash)
      if not text then name, place = err, where end
    end
  elseif c == 45 or c == 43 or c >= 48 and c <= 57 then
    if c == 43 and not set.decode_invalid then
      name = "invalid token"
    else
      local v, _, whole = any_number(s, at, set.decode_invalid)
      name = not v and "invalid number" or whole and "T_INTEGER" or "T_NUMBER"
    end
  elseif sub(s, at, at + 3) == "true" or sub(s, at, at + 4) == "false" then
    name = "T_BOOLEAN"
  elseif sub(s, at, at + 3) == "null" then
    name = "T_NULL"
  elseif c == 47 and set.comments then
    local _, err, where = comment(s, at)
    name, place = err, where
  elseif not name then
    name = set.decode_invalid and odd_number(s, at) and "T_NUMBER" or "invalid token"
  end
  return nil, format("Expected %s but found %s at character %d", wanted, name, place)
end

local function decode(set, s)
  local last = #s + 1
  if last > 2 and (byte(s, 1) == 0 or byte(s, 2) == 0) then
    return nil, "JSON parser does not support UTF-16 or UTF-32"
  end
  local stop = find(s, "\0", 1, true)
  if stop then
    s = sub(s, 1, stop - 1)
    last = stop
  end

  local invalid, comments, max_depth = set.decode_invalid, set.comments, set.decode_max_depth
  local mt = set.decode_array_mt and array_mt or nil

  -- The table that is being read, its last index (-1: an object) and key. Those around it are on the stack,
  -- three places each. The outermost is an array for the one value.
  local root = {}
  local t, n, key = root, 0, ""
  local stack, depth = nil, 0
  -- The place of the next byte, and of the next backslash.
  local i, slash = 1, find(s, "\\", 1, true) or last
  local c, v, wanted

  while true do
    ::value::
    c = byte(s, i)
    while c == 32 or c == 10 or c == 13 or c == 9 do
      i = i + 1
      c = byte(s, i)
    end
    if c == 34 then
      local quote = find(s, '"', i + 1, true)
      if quote and quote < slash then
        v = sub(s, i + 1, quote - 1)
        i = quote + 1
      else
        v, i, slash = escaped_string(s, i + 1, slash)
        if not v then return nil, format("Expected value but found %s at character %d", i, slash) end
      end
    elseif c == 123 or c == 91 then
      if depth >= max_depth then
        return nil, format("Found too many nested data structures (%d) at character %d", depth + 1, i)
      end
      depth = depth + 1
      if not stack then stack = {} end
      stack[depth * 3 - 2], stack[depth * 3 - 1], stack[depth * 3] = t, n, key
      i = i + 1
      t = {}
      if c == 123 then
        n = -1
        goto first_key
      end
      n, key = 0, ""
      if mt then setmetatable(t, mt) end
      goto first_element
    elseif c == 45 or c and c >= 48 and c <= 57 then
      local behind
      v, behind = number(s, i, c, invalid)
      if not v then return found(set, s, i, "value") end
      i = behind
    elseif c == 116 and sub(s, i, i + 3) == "true" then
      v = true
      i = i + 4
    elseif c == 102 and sub(s, i, i + 4) == "false" then
      v = false
      i = i + 5
    elseif c == 110 and sub(s, i, i + 3) == "null" then
      v = null
      i = i + 4
    else
      local behind
      if c == 47 and comments then
        behind = comment(s, i)
        if not behind then return found(set, s, i, "value") end
        i = behind
        goto value
      end
      if invalid and (c == 43 or c == 73 or c == 105 or c == 78 or c == 110) then
        v, behind = any_number(s, i, true)
      end
      if not behind then return found(set, s, i, "value") end
      i = behind
    end

    ::store::
    if n >= 0 then
      n = n + 1
      t[n] = v
    else
      t[key] = v
    end

    ::behind_value::
    c = byte(s, i)
    while c == 32 or c == 10 or c == 13 or c == 9 do
      i = i + 1
      c = byte(s, i)
    end
    if c == 44 and depth > 0 then
      i = i + 1
      if n < 0 then goto next_key end
      goto value
    elseif c == 125 and n < 0 or c == 93 and n >= 0 and depth > 0 then
      i = i + 1
      goto close
    elseif c == nil and depth == 0 then
      return root[1]
    end
    wanted = depth == 0 and "the end" or n < 0 and "comma or object end" or "comma or array end"
    if c == 47 and comments then
      local behind = comment(s, i)
      if behind then
        i = behind
        goto behind_value
      end
    end
    do return found(set, s, i, wanted) end

    ::first_element::
    c = byte(s, i)
    while c == 32 or c == 10 or c == 13 or c == 9 do
      i = i + 1
      c = byte(s, i)
    end
    if c ~= 93 then
      if c == 47 and comments then
        local behind = comment(s, i)
        if behind then
          i = behind
          goto first_element
        end
      end
      goto value
    end
    i = i + 1
    goto close

    ::first_key::
    c = byte(s, i)
    while c == 32 or c == 10 or c == 13 or c == 9 do
      i = i + 1
      c = byte(s, i)
    end
    if c == 125 then
      i = i + 1
      goto close
    end
    if c == 47 and comments then
      local behind = comment(s, i)
      if behind then
        i = behind
        goto first_key
      end
    end

    ::next_key::
    c = byte(s, i)
    while c == 32 or c == 10 or c == 13 or c == 9 do
      i = i + 1
      c = byte(s, i)
    end
    if c == 34 then
      local quote = find(s, '"', i + 1, true)
      if quote and quote < slash then
        key = sub(s, i + 1, quote - 1)
        i = quote + 1
      else
        key, i, slash = escaped_string(s, i + 1, slash)
        if not key then return nil, format("Expected object key string but found %s at character %d", i, slash) end
      end
    else
      if c == 47 and comments then
        local behind = comment(s, i)
        if behind then
          i = behind
          goto next_key
        end
      end
      do return found(set, s, i, "object key string") end
    end

    ::colon::
    c = byte(s, i)
    while c == 32 or c == 10 or c == 13 or c == 9 do
      i = i + 1
      c = byte(s, i)
    end
    if c == 58 then
      i = i + 1
      goto value
    end
    if c == 47 and comments then
      local behind = comment(s, i)
      if behind then
        i = behind
        goto colon
      end
    end
    do return found(set, s, i, "colon") end

    ::close::
    v = t
    t, n, key = stack[depth * 3 - 2], stack[depth * 3 - 1], stack[depth * 3]
    depth = depth - 1
    goto store
  end
end

-- ---------------------------------------------------------------------------------------------------------
-- Arguments and settings

-- Raises what a function written in C would raise. Called by the function itself, whose caller is told.
local function bad_argument(n, what)
  local info = debug_info(2, "n")
  local name = info and info.name or "?"
  if info and info.namewhat == "method" then
    n = n - 1
    if n == 0 then error(format("calling '%s' on bad self (%s)", name, what), 3) end
  end
  error(format("bad argument #%d to '%s' (%s)", n, name, what), 3)
end

-- The value of an integer's setting, or nil and what is wrong.
local function integer(v, min, max)
  local n = (type(v) == "number" or type(v) == "string") and tonumber(v)
  if not n then return nil, "number expected, got " .. type(v) end
  n = n < 0 and -floor(-n) or floor(n)
  if not (n >= min and n <= max) then return nil, format("expected integer between %d and %d", min, max) end
  return n
end

-- The value of a switch, or nil and what is wrong.
local function switch(v, third)
  if v == true or v == "on" then return true end
  if v == false or v == "off" then return false end
  if third and v == third then return third end
  if type(v) ~= "string" and type(v) ~= "number" then return nil, "string expected, got " .. type(v) end
  return nil, format("invalid option '%s'", tostring(v))
end

local function switch_setting(set, name, third)
  return function(...)
    local count, v, err = select("#", ...), ..., nil
    if count > 1 then bad_argument(2, "found too many arguments") end
    if v ~= nil then
      v, err = switch(v, third)
      if err then bad_argument(1, err) end
      set[name] = v
    end
    return set[name]
  end
end

local function integer_setting(set, name, min, max)
  return function(...)
    local count, v, err = select("#", ...), ..., nil
    if count > 1 then bad_argument(2, "found too many arguments") end
    if v ~= nil then
      v, err = integer(v, min, max)
      if err then bad_argument(1, err) end
      set[name] = v
    end
    return set[name]
  end
end

local function new_instance(is_safe)
  local set = {
    encode_invalid = false,
    encode_max_depth = 1000,
    sparse_convert = false,
    sparse_ratio = 2,
    sparse_safe = 10,
    precision = 14,
    number_format = false,
    keep_buffer = true,
    empty_as_object = true,
    escape_slash = true,
    escapes = escapes,
    kept = kept,
    skip_unsupported = false,
    indent = "",
    decode_invalid = true,
    decode_max_depth = 1000,
    decode_array_mt = false,
    comments = false,
  }

  local module = {
    _NAME = "cjson",
    _VERSION = "2.1.0.11",
    null = null,
    empty_array = empty_array,
    array_mt = array_mt,
    empty_array_mt = empty_array_mt,
    encode_max_depth = integer_setting(set, "encode_max_depth", 1, MAX_INT),
    decode_max_depth = integer_setting(set, "decode_max_depth", 1, MAX_INT),
    encode_invalid_numbers = switch_setting(set, "encode_invalid", "null"),
    decode_invalid_numbers = switch_setting(set, "decode_invalid"),
    encode_keep_buffer = switch_setting(set, "keep_buffer"),
    encode_empty_table_as_object = switch_setting(set, "empty_as_object"),
    encode_skip_unsupported_value_types = switch_setting(set, "skip_unsupported"),
    decode_array_with_array_mt = switch_setting(set, "decode_array_mt"),
    decode_allow_comment = switch_setting(set, "comments"),
  }

  function module.encode_escape_forward_slash(...)
    local count, v, err = select("#", ...), ..., nil
    if count > 1 then bad_argument(2, "found too many arguments") end
    if v ~= nil then
      v, err = switch(v)
      if err then bad_argument(1, err) end
      set.escape_slash = v
      set.escapes = v and escapes or escapes_but_slash
      set.kept = v and kept or kept_but_slash
    end
    return set.escape_slash
  end

  function module.encode_number_precision(...)
    local count, v, err = select("#", ...), ..., nil
    if count > 1 then bad_argument(2, "found too many arguments") end
    if v ~= nil then
      v, err = integer(v, 1, 16)
      if err then bad_argument(1, err) end
      set.precision = v
      set.number_format = v ~= 14 and "%." .. v .. "g"
    end
    return set.precision
  end

  function module.encode_indent(...)
    local count, v = select("#", ...), ...
    if count > 1 then bad_argument(2, "found too many arguments") end
    if v ~= nil then
      if type(v) ~= "string" and type(v) ~= "number" then bad_argument(1, "string expected, got " .. type(v)) end
      set.indent = tostring(v)
    end
    return set.indent
  end

  function module.encode_sparse_array(...)
    local count, convert, ratio, safe = select("#", ...), ...
    local v, err
    if count > 3 then bad_argument(4, "found too many arguments") end
    -- A number out of its range is always called the first argument, as lua-cjson does.
    if convert ~= nil then
      v, err = switch(convert)
      if err then bad_argument(1, err) end
      set.sparse_convert = v
    end
    if ratio ~= nil then
      v, err = integer(ratio, 0, MAX_INT)
      if err then bad_argument(find(err, "^number") and 2 or 1, err) end
      set.sparse_ratio = v
    end
    if safe ~= nil then
      v, err = integer(safe, 0, MAX_INT)
      if err then bad_argument(find(err, "^number") and 3 or 1, err) end
      set.sparse_safe = v
    end
    return set.sparse_convert, set.sparse_ratio, set.sparse_safe
  end

  function module.new() return new_instance(is_safe) end

  if is_safe then
    function module.encode(...)
      if select("#", ...) ~= 1 then bad_argument(1, "expected 1 argument") end
      local ok, text, err = pcall(encode, set, (...))
      if not ok then return nil, text end
      if text == nil then return nil, err end
      return text
    end

    function module.decode(...)
      if select("#", ...) ~= 1 then bad_argument(1, "expected 1 argument") end
      local s = ...
      if type(s) ~= "string" then
        if type(s) ~= "number" then
          return nil, format("bad argument #1 to '?' (string expected, got %s)", type(s))
        end
        s = tostring(s)
      end
      local v, err = decode(set, s)
      if v == nil then return nil, err end
      return v
    end
  else
    function module.encode(...)
      if select("#", ...) ~= 1 then bad_argument(1, "expected 1 argument") end
      local text, err = encode(set, (...))
      if text == nil then error(err, 2) end
      return text
    end

    function module.decode(...)
      if select("#", ...) ~= 1 then bad_argument(1, "expected 1 argument") end
      local s = ...
      if type(s) ~= "string" then
        if type(s) ~= "number" then bad_argument(1, "string expected, got " .. type(s)) end
        s = tostring(s)
      end
      local v, err = decode(set, s)
      if v == nil then error(err, 2) end
      return v
    end
  end

  return module
end

return new_instance(false), new_instance(true)
