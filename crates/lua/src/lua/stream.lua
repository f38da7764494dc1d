-- What the table ngx has not in stream: all that is HTTP's.

local weir = ...
local ngx = weir.ngx

for name in pairs(ngx) do
    if name:find("^HTTP_") then
        ngx[name] = nil
    end
end
for _, name in ipairs { "exec", "redirect", "cookie_time", "http_time", "parse_http_time" } do
    ngx[name] = nil
end
for _, name in ipairs { "headers_sent", "is_subrequest" } do
    weir.getters[name] = nil
end
-- What the session has ended with; nobody sets it.
weir.setters.status = nil

-- In front of what the log says of code here.
weir.stream = "stream "
ngx.req = {}
