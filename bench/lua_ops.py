#!/usr/bin/env python3
"""CPU time of operations of Lua's, in loops within one request, beside a peer with OpenResty's Lua.

    lua_ops.py --weir target/release/weir --peer OPENRESTY [--only dict_get,match] [--rounds 5]

Both programs run at once from the same configuration text.  A request runs one operation some ten thousand times; the
CPU time that the server's whole process tree has spent meanwhile (schedstat, nanoseconds), divided by the operations,
is what one costs.  Rounds alternate between the two.  Those of two workers are asked for over several connections at
once, so that both workers use one dictionary at the same time.

    ratio = peer's CPU an operation / weir's      above 1.00 weir is cheaper

Needs: Linux with two CPUs, a peer with lua-nginx-module and cjson.  Loopback only.
"""
import argparse, http.client, json, shutil, statistics, sys, tempfile, threading
from pathlib import Path

import compare

# name: (what it shows, what is made first, the operation, how often a request runs it, workers)
OPS = {
    'dict_get': ('get of a shared dictionary', "d:set('key', 'value')", "s = d:get('key')", 100_000, 1),
    'dict_set': ('set', '', "d:set('key', i)", 100_000, 1),
    'dict_incr': ('incr', "d:set('n', 0)", "s = d:incr('n', 1)", 100_000, 1),
    'dict_get_all': ('get, from all workers', "d:set('key', 'value')", "s = d:get('key')", 100_000, 2),
    'dict_set_all': ('set, from all workers', '', "d:set('key', i)", 100_000, 2),
    'dict_incr_all': ('incr, from all workers', "d:set('n', 0)", "s = d:incr('n', 1)", 100_000, 2),
    'match': ('ngx.re.match in a loop', '', r's = ngx.re.match("hello, 1234", [[([a-z]+), (\d+)]], "jo")[1]', 30_000, 1),
    'find': ('ngx.re.find in a loop', '', r's = ngx.re.find("hello, 1234", [[(\d+)]], "jo")', 30_000, 1),
    'gsub': ('ngx.re.gsub of five', '', r's = ngx.re.gsub("a1b2c3d4e5", [[\d]], "[$0]", "jo")', 10_000, 1),
    'decode': ('cjson.decode of 10 KB', '', 's = cjson.decode(text)', 200, 1),
    'encode': ('cjson.encode of 10 KB', '', 's = cjson.encode(value)', 200, 1),
    'decode_small': ('cjson.decode of 60 bytes', '', '''s = cjson.decode('{"id":17,"name":"weir","tags":["a","b"],"ok":true,"x":1.5}')''', 20_000, 1),
    'var': ('ngx.var of a request', '', 's = ngx.var.uri', 50_000, 1),
    'headers': ('ngx.req.get_headers', '', 's = ngx.req.get_headers().host', 20_000, 1),
    'header': ('ngx.header, set and get', '', "ngx.header['X-A'] = 'b' s = ngx.header['X-A']", 20_000, 1),
    'ctx': ('ngx.ctx', '', 'ngx.ctx.n = i s = ngx.ctx.n', 100_000, 1),
    'md5': ('ngx.md5', '', "s = ngx.md5('hello')", 50_000, 1),
    'escape': ('ngx.escape_uri', '', "s = ngx.escape_uri('a b&c=d')", 50_000, 1),
    'base64': ('ngx.encode_base64', '', "s = ngx.encode_base64('hello, world')", 50_000, 1),
}


def conf(names, workers, dirs, name, port):
    value = {'items': [{'id': i, 'name': f'item number {i}', 'tags': ['red', 'green'], 'price': i * 1.25, 'ok': True} for i in range(125)]}
    (dirs / 'value.json').write_text(json.dumps(value))
    text = (f'user root; worker_processes {workers}; pid {dirs}/{name}.pid; error_log {dirs}/{name}.err error;\n'
            f'events {{ worker_connections 1000; }}\nhttp {{ access_log off; default_type text/plain; keepalive_requests 1000000;\n'
            f'lua_shared_dict d 10m;\nserver {{ listen 127.0.0.1:{port} reuseport;\n')
    for op in names:
        _, first, what, times, _ = OPS[op]
        text += f'''location = /{op} {{ content_by_lua_block {{
            local cjson = require "cjson"
            local d, s = ngx.shared.d, nil
            local file = io.open("{dirs}/value.json") local text = file:read("*a") file:close()
            local value = cjson.decode(text)
            {first}
            for i = 1, {times} do {what} end
            ngx.say(type(s)) }} }}\n'''
    return text + '} }\n'


def ask(port, path):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    connection.request('GET', path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f'{path}: {answer.status} {body[:200]}')


def spent(proc, port, op):
    """Nanoseconds an operation."""
    times, workers = OPS[op][3:]
    before, failed = compare.cpu_ns(proc.pid), []

    def work():
        try:
            ask(port, f'/{op}')
        except (OSError, RuntimeError) as e:
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(1 if workers == 1 else 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return (compare.cpu_ns(proc.pid) - before) / times / len(threads)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--weir', required=True)
    ap.add_argument('--peer', required=True)
    ap.add_argument('--only', default='')
    ap.add_argument('--rounds', type=int, default=5)
    a = ap.parse_args()
    names = a.only.split(',') if a.only else list(OPS)
    dirs = Path(tempfile.mkdtemp(prefix='weir-lua-'))
    dirs.chmod(0o755)
    (dirs / 'logs').mkdir()
    ratios, port = [], 18700
    print(f'{"operation":14} {"ratio":>6} {"spread":>13}   {"weir":>9} {"peer":>9} ns')
    try:
        for workers in (1, 2):
            of_these = [name for name in names if OPS[name][4] == workers]
            if not of_these:
                continue
            cpus, procs = ('0' if workers == 1 else '0,1'), {}
            for who, binary in (('weir', a.weir), ('peer', a.peer)):
                port += 1
                procs[who] = compare.start(binary, conf(of_these, workers, dirs, f'{who}{workers}', port), f'{who}{workers}', dirs, port, cpus), port
                if not procs[who][0]:
                    sys.exit(f'{who} did not start: {(dirs / f"{who}{workers}.stderr").read_text()[-400:]}')
            for op in of_these:
                rows = {'weir': [], 'peer': []}
                for who in rows:
                    spent(*procs[who], op)
                for n in range(a.rounds):
                    for who in (('weir', 'peer') if n % 2 else ('peer', 'weir')):
                        rows[who].append(spent(*procs[who], op))
                pairs = sorted(p / w for w, p in zip(rows['weir'], rows['peer']))
                ratios.append(statistics.median(pairs))
                weir, peer = (statistics.median(rows[who]) for who in ('weir', 'peer'))
                print(f'{op:14} {ratios[-1]:6.2f} {pairs[0]:6.2f}-{pairs[-1]:<6.2f}   {weir:9.0f} {peer:9.0f}   {OPS[op][0]}', flush=True)
            for proc, _ in procs.values():
                compare.stop(proc)
    finally:
        shutil.rmtree(dirs, ignore_errors=True)
    print(f'geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.2f}')


if __name__ == '__main__':
    main()
