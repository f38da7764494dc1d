"""The configurations that instructions are counted with and that a profile is made from.

`COUNTED` is what `instructions.py` counts.  `TRAINED` is what `train.py` lets a profiling build serve, and
`HELD` what it must not: what is counted and not trained shows what a profile does to everything else.
"""
import shutil, subprocess
from collections import namedtuple

from clients import BROWSER, FastCgi, Http1, Http2, Origin, Uwsgi, Visitor, client_tls, free_port

# `block`: of `http`, or the whole if it says `stream`; `kind`: `plain`, `tls`, `h2`, `h2s`,
# or how people go from page to page, `visitors`, `mixed` and `fresh`;
# `each`: how many requests a connection is kept for; `many`: with how many requests it is counted;
# `last`: what is asked for behind them.
Scenario = namedtuple('Scenario', 'block path kind field method body each share many last', defaults=('', 'plain', '', 'GET', b'', 10**9, 1.0, 1000, ''))

UP = 'upstream app { server 127.0.0.1:@UP@; keepalive 128; keepalive_requests 1000000000; }'
PASS = 'location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; @MORE@ }'
TLS = 'ssl_certificate @DIR@/cert.pem; ssl_certificate_key @DIR@/key.pem;'
CACHE = 'proxy_cache_path @DIR@/server.cache keys_zone=c:1m inactive=60m;'
FILES = 'server { listen 127.0.0.1:@PORT@; root @DIR@/html; }'
CACHED = 'proxy_cache c; proxy_cache_valid 200 1h;'
OK = 'server { listen 127.0.0.1:@PORT@; location / { return 200 "OK\\n"; } }'
PROXY = f'{UP} server {{ listen 127.0.0.1:@PORT@; {PASS} }}'
LOG = '''log_format main '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"';
access_log @DIR@/access.log main buffer=64k flush=1s;'''
FASTCGI = '''upstream app { server 127.0.0.1:@FASTCGI@; keepalive 16; } server { listen 127.0.0.1:@PORT@; location / {
fastcgi_pass app; fastcgi_keep_conn on; fastcgi_param SCRIPT_FILENAME @DIR@$fastcgi_script_name; fastcgi_param QUERY_STRING $query_string;
fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri; fastcgi_param REMOTE_ADDR $remote_addr; } }'''
STREAM = 'stream { server { listen 127.0.0.1:@PORT@; proxy_pass 127.0.0.1:@UP@; } }'
# As a site has it: names, fields, locations of every kind.
SITE = f'''{LOG} {UP} map $http_upgrade $connection {{ default upgrade; "" ""; }}
server {{ listen 127.0.0.1:@PORT@ default_server; server_name _; return 404; }}
server {{ listen 127.0.0.1:@PORT@; server_name localhost *.example.com; root @DIR@/html; index index.html; client_max_body_size 10m;
  add_header X-Frame-Options SAMEORIGIN; gzip on; gzip_types text/plain; location = /favicon.ico {{ return 204; }}
  location ~* \\.(css|js|png|svg)$ {{ expires 30d; }} location /old/ {{ return 301 /new/; }}
  location /api/ {{ proxy_pass http://app/; proxy_http_version 1.1; proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header Connection $connection; }}
  location / {{ try_files $uri $uri/ =404; }} }}'''
# The receiver is never there: what is counted is what a request pays. What stands before the mark is of the main context.
SHIP = '''ship none { to elasticsearch http://127.0.0.1:9; queue @DIR@/ship size=256m; batch linger=60s; }
#http
server { listen 127.0.0.1:@PORT@; location / { ship_access none; return 200 "OK\\n"; } }'''
# What is counted of a request: nothing, what servers and locations have, and who came and what for (all of them: under
# valgrind a second is long).
UNSEEN = 'server { listen 127.0.0.1:@PORT@; status_zone off; location / { return 200 "OK\\n"; } }'
ZONES = 'server { listen 127.0.0.1:@PORT@; status_zone seen; location / { status_zone place; return 200 "OK\\n"; } }'
ASKED = ZONES.replace('location /', 'location /figures/ { api; } location /')
SEEN = f'analytics_zone all rate=1000000000; analytics all; {ASKED}'
# As a worker at its limit has it, of whose requests all but a few are only counted.
LEFT_OUT = SEEN.replace('rate=1000000000', 'rate=1')
COUNT = '/figures/9/http/analytics_zones/all'
REWRITES = '''map $arg_a $kind { default other; ~^b one; c two; } map $kind$uri $target { default /none; ~^one/(?<rest>.*)$ /$rest/x; }
server { listen 127.0.0.1:@PORT@; set $a $kind; if ($http_x_none) { return 403; } rewrite ^/in/(.*)/x$ /mid/$1?z=$arg_a; rewrite ^/mid/(.*)$ /out/$1;
location /out/ { if ($a = one) { return 200 "$target $args $uri\\n"; } return 404; } }'''
UWSGI = '''server { listen 127.0.0.1:@PORT@; location / { uwsgi_pass 127.0.0.1:@UWSGI@; uwsgi_param QUERY_STRING $query_string;
uwsgi_param REQUEST_METHOD $request_method; uwsgi_param PATH_INFO $document_uri; uwsgi_param SERVER_NAME $server_name; } }'''
SECURED = '''upstream app { server 127.0.0.1:@SECURED@; keepalive 16; } server { listen 127.0.0.1:@PORT@;
location / { proxy_pass https://app; proxy_http_version 1.1; proxy_set_header Connection ""; } }'''


def cached(path, more=''):
    return Scenario(f'{CACHE} {more} {PROXY}'.replace('@MORE@', CACHED), path)


def tls(block, **more):
    return Scenario(f'{TLS} {block}'.replace('@PORT@', '@PORT@ ssl'), **more)


def lua(location):
    return f"""lua_shared_dict hits 1m; {UP} upstream picked {{ server 0.0.0.1; keepalive 128; keepalive_requests 1000000000;
    balancer_by_lua_block {{ local ok, err = require 'ngx.balancer'.set_current_peer('127.0.0.1', @UP@) if not ok then error(err) end }} }}
    server {{ listen 127.0.0.1:@PORT@; location / {{ {location} }} location /files/ {{ internal; alias @DIR@/html/; }}
    location /part {{ internal; content_by_lua_block {{ ngx.print('<p>', ngx.var.arg_a, '</p>') }} }} }}"""


SAME = {
    'return': Scenario(OK, '/'),
    'static1k': Scenario(FILES, '/1k.html'),
    'static10k': Scenario(FILES, '/10k.html'),
    'proxy_small': Scenario(PROXY, '/ok'),
    'proxy10k': Scenario(PROXY, '/10k.html'),
    'cache': cached('/10k.html'),
    'cache_small': cached('/ok'),
    'gzip': Scenario(f'gzip on; gzip_comp_level 1; {FILES}', '/10k.html', field='Accept-Encoding: gzip'),
    'h2': Scenario(f'http2 on; {FILES}', '/1k.html', 'h2'),
    'tls': tls(FILES, path='/1k.html', kind='tls'),
}
HELD = {
    'ssi': Scenario(f'ssi on; {FILES}', '/parts.html'),
    'sub_filter': Scenario(f"sub_filter kilobytes bytes; sub_filter_once off; {FILES}", '/10k.html'),
    'rewrite': Scenario(REWRITES, '/in/some/x?a=b'),
    'uwsgi': Scenario(UWSGI, '/ok'),
    'proxy_tls': Scenario(SECURED, '/ok'),
    'unseen': Scenario(UNSEEN, kind='visitors', path='/'),
    'zones': Scenario(ZONES, kind='visitors', path='/'),
    'seen': Scenario(SEEN, kind='visitors', path='/', many=4000, last=COUNT),
    'ship': Scenario(SHIP, '/', field='\n'.join(BROWSER)),
}
COUNTED = {**SAME, **HELD}
# Counted where they are named.
NAMED = {
    # What `seen` is to be compared with: it has one more location than `zones`.
    'zones_asked': Scenario(ASKED, kind='visitors', path='/', many=4000, last='/figures/9/http/requests'),
    'left_out': Scenario(LEFT_OUT, kind='visitors', path='/', many=4000, last=COUNT),
    'seen_mixed': Scenario(SEEN, kind='mixed', path='/', many=4000, last=COUNT),
    'seen_fresh': Scenario(SEEN, kind='fresh', path='/', many=4000, last=COUNT),
}
# What Lua does in servers: pages and gates, counters, filters, parts, choosing and asking other servers.
LUA = {
    'lua_page': Scenario(lua("""content_by_lua_block { local args = ngx.req.get_uri_args() ngx.header.content_type = 'text/plain'
        ngx.header['X-Request'] = ngx.md5(args.user .. ngx.var.request_uri) ngx.say('user ', args.user, ' of ', ngx.var.host, ' ', ngx.now()) }"""), '/?user=weir&page=2', field='\n'.join(BROWSER)),
    'lua_gate': Scenario(lua("""access_by_lua_block { local agent = ngx.req.get_headers()['user-agent'] or ''
        if ngx.re.find(agent, 'sqlmap|nikto', 'ijo') then return ngx.exit(403) end
        local seen = ngx.shared.hits:incr(ngx.var.remote_addr, 1, 0, 60) if seen > 1e9 then return ngx.exit(429) end
        ngx.ctx.seen = seen } log_by_lua_block { ngx.shared.hits:set('last', ngx.ctx.seen or 0) } root @DIR@/html;"""), '/1k.html', field='\n'.join(BROWSER)),
    'lua_filters': Scenario(lua("""root @DIR@/html; header_filter_by_lua_block { ngx.header.content_length = nil ngx.header['X-Seen'] = ngx.status }
        body_filter_by_lua_block { if ngx.arg[2] then ngx.arg[1] = ngx.arg[1] .. '<!-- end -->' end }"""), '/10k.html'),
    'lua_choose': Scenario(lua("""set $to ''; rewrite_by_lua_block { if ngx.var.http_x_none then return ngx.exit(404) end ngx.var.to = 'app' ngx.req.set_header('X-From', 'lua') }
        proxy_pass http://$to; proxy_http_version 1.1; proxy_set_header Connection "";"""), '/ok'),
    'lua_balancer': Scenario(lua('proxy_pass http://picked; proxy_http_version 1.1; proxy_set_header Connection "";'), '/ok'),
    'lua_parts': Scenario(lua("""content_by_lua_block { local page, more = ngx.location.capture_multi { { '/files/1k.html' }, { '/part', { args = { a = 1 } } } }
        ngx.status = page.status ngx.print(more.body, page.body) }"""), '/'),
    'lua_socket': Scenario(lua("""content_by_lua_block { local sock = ngx.socket.tcp() sock:settimeouts(1000, 1000, 1000)
        local ok, err = sock:connect('127.0.0.1', @UP@) if not ok then ngx.log(ngx.ERR, err) return ngx.exit(502) end
        sock:send('GET /ok HTTP/1.1\\r\\nHost: app\\r\\n\\r\\n') local n = 0
        for line in function() return sock:receive() end do if line == '' then break end
            local length = ngx.re.match(line, '^content-length: *([0-9]+)', 'ijo') if length then n = tonumber(length[1]) end end
        ngx.print(sock:receive(n)) sock:setkeepalive(10000, 100) }"""), '/'),
    'lua_json': Scenario(lua("""content_by_lua_block { ngx.req.read_body() local data = require 'cjson'.decode(ngx.req.get_body_data())
        data.when = ngx.time() ngx.header.content_type = 'application/json' ngx.print(require 'cjson'.encode(data)) }"""), '/',
        method='POST', body=b'{"id":17,"name":"weir","tags":["a","b"],"ok":true,"items":[{"n":1,"price":2.5},{"n":2,"price":3}]}', share=.5),
}
TRAINED = {
    **SAME,
    **LUA,
    'browser': Scenario(OK, '/', field='\n'.join(BROWSER)),
    'log': Scenario(f'{LOG} {OK}', '/', field='\n'.join(BROWSER)),
    'close': Scenario(OK, '/', field='Connection: close', each=1, share=.5),
    'site_file': Scenario(SITE, '/1k.html', field='\n'.join(BROWSER)),
    'site_api': Scenario(SITE, '/api/ok?a=b', field='\n'.join(BROWSER)),
    'site_missing': Scenario(SITE, '/none', share=.3),
    'site_moved': Scenario(SITE, '/old/x', share=.3),
    'unchanged': Scenario(FILES, '/1k.html', field='If-None-Match: *', share=.5),
    'static1m': Scenario(FILES, '/1m.html', share=.03),
    'proxy_chunked': Scenario(PROXY, '/ok?chunked', share=.5),
    'proxy1m': Scenario(PROXY, '/1m.html', share=.03),
    'proxy_post': Scenario(PROXY, '/ok', method='POST', body=b'x' * 1500, share=.5),
    'proxy_anew': Scenario('server { listen 127.0.0.1:@PORT@; location / { proxy_pass http://127.0.0.1:@UP@; proxy_http_version 1.0; } }', '/ok', share=.3),
    'proxy_gzip': Scenario(f'gzip on; gzip_proxied any; {PROXY}', '/10k.html', field='Accept-Encoding: gzip', share=.2),
    'tuned': cached('/10k.html', f'{LOG} gzip on; gzip_proxied any; gzip_vary on;')._replace(field='Accept-Encoding: gzip'),
    'tls_proxy': tls(PROXY, path='/ok', kind='tls', share=.5),
    'handshake': tls(OK, path='/', kind='tls', field='Connection: close', each=1, share=.1),
    'h2_tls': tls(f'http2 on; {FILES}', path='/10k.html', kind='h2s'),
    'h2_proxy': tls(f'http2 on; {PROXY}', path='/ok', kind='h2s', field='\n'.join(BROWSER)),
    'fastcgi': Scenario(FASTCGI, '/index.php?a=b'),
    'stream': Scenario(STREAM, '/ok'),
    'stream_anew': Scenario(STREAM, '/ok', each=1, share=.2),
}

MAIN = '''user root; worker_processes @WORKERS@; daemon off; master_process off; pid @DIR@/server.pid;
error_log @DIR@/server.err error;
events { worker_connections 512; }
'''
HTTP = 'http { access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; types { text/html html; }\n'


class Origins:
    """The servers that a configuration may name, by what it calls their ports."""

    def __init__(self, work):
        certificate = work / 'cert.pem', work / 'key.pem'
        self.ports = {'@UP@': Origin().port, '@FASTCGI@': FastCgi().port, '@UWSGI@': Uwsgi().port, '@SECURED@': Origin(certificate).port}


def start(command, scenario, work, origins, workers=1):
    """Runs a program with a scenario's configuration; the process and its port."""
    port = free_port()
    main, _, block = scenario.block.rpartition('#http\n')
    text = MAIN + main + (block if block.startswith('stream') else f'{HTTP}{block}\n}}\n')
    for key, value in {'@WORKERS@': workers, '@MORE@': '', '@PORT@': port, '@DIR@': work, **origins.ports}.items():
        text = text.replace(key, str(value))
    (work / 'nginx.conf').write_text(text)
    shutil.rmtree(work / 'server.cache', ignore_errors=True)
    command = [*command, '-p', work, '-c', work / 'nginx.conf']
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), port


def connect(port, scenario):
    if scenario.kind in ('h2', 'h2s'):
        return Http2(port, scenario.path, scenario.field, scenario.kind == 'h2s')
    if scenario.kind in ('visitors', 'mixed', 'fresh'):
        return Visitor(port, scenario.kind)
    return Http1(port, scenario.path, scenario.field, scenario.kind == 'tls', scenario.method, scenario.body)


def ask(port, scenario, requests, connections):
    """So many requests, one at a time over the connections in turn; the statuses of the answers."""
    statuses, left = set(), requests
    while left > 0:
        conns = [connect(port, scenario) for _ in range(connections)]
        for _ in range(min(scenario.each, max(1, left // connections))):
            for conn in conns:
                conn.send()
                statuses.add(conn.receive())
                left -= 1
        for conn in conns:
            conn.close()
    if scenario.last:
        conn = Http1(port, scenario.last)
        conn.send()
        statuses.add(conn.receive())
        conn.close()
    return statuses
