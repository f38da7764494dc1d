#!/usr/bin/env python3
"""What it costs to see everything: processor time a request with every zone, histogram and analytics, and without.

    observed.py --binary target/release/weir [--peer nginx] [--only return,log,proxy,cache] [--rounds 8] [--secs 2] [--rate 5000]

Two servers of the same program run at once, as in `compare.py` (whose scenarios, pins and loads these are): one as the
scenario has it, one with `status_zone` in server and location, an `analytics_zone` over all requests, and `api`,
`metrics` and `dashboard` to be asked.  The dashboard has a viewer and `metrics` is read each second, as it is
where somebody watches.  The figure is the median, over pairs of rounds, of the second's processor time a request
divided by the first's.  `--rate` is the zone's `rate=`: of more requests a second it looks at every second, fourth, ...
one.  The upstream is the peer's.  Loopback only, a fixed time.
"""
import argparse, shutil, statistics, sys, tempfile, threading, urllib.request
from pathlib import Path

import compare
from clients import free_port

WATCHED = '''server { listen 127.0.0.1:@WATCH@; location /api/ { api; } location /metrics { metrics; }
location /dashboard/ { dashboard api=/api/; } }'''


def observed(block, rate, watch):
    block = block.replace('server {', 'server { status_zone seen;').replace('location / {', 'location / { status_zone place;')
    return (f'analytics_zone all rate={rate}; analytics all; {block} {WATCHED}').replace('@WATCH@', str(watch))


def watcher(port, over):
    """Reads the figures each second and holds a stream of events open; only the other processor's time."""
    def stream():
        while not over.is_set():
            try:
                with urllib.request.urlopen(f'http://127.0.0.1:{port}/dashboard/events', timeout=3) as events:
                    while not over.is_set() and events.readline():
                        pass
            except OSError:
                over.wait(0.2)

    def scrape():
        while not over.wait(1):
            try:
                urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=3).read()
            except OSError:
                pass
    threads = [threading.Thread(target=f, daemon=True) for f in (stream, scrape)]
    for thread in threads:
        thread.start()
    return threads


def measure(name, args, where, up):
    _, block, spec = compare.HTTP[name]
    ports, servers, watch = {}, {}, free_port()
    for kind in ('plain', 'observed'):
        ports[kind] = free_port()
        text = block if kind == 'plain' else observed(block, args.rate, watch)
        text = compare.conf('http', text, f'{kind}-{name}', where, ports[kind], up, 1)
        servers[kind] = compare.start(args.binary, text, f'{kind}-{name}', where, ports[kind])
    over = threading.Event()
    try:
        for kind, server in servers.items():
            if not server:
                raise SystemExit(f'{name}, {kind}: ' + (where / f'{kind}-{name}.stderr').read_text())
        watcher(watch, over)
        rows = {kind: [] for kind in servers}
        for n in range(args.rounds + 1):
            for kind in (('plain', 'observed') if n % 2 else ('observed', 'plain')):
                before = compare.cpu_ns(servers[kind].pid)
                done, _, _, errors = compare.load(spec, ports[kind], 64, args.secs)
                if errors or not done:
                    raise SystemExit(f'{name}, {kind}: {errors} errors')
                rows[kind].append((compare.cpu_ns(servers[kind].pid) - before) / done / 1000)
    finally:
        over.set()
        for server in servers.values():
            compare.stop(server)
    # The first round warms up.
    pairs = list(zip(rows['plain'], rows['observed']))[1:]
    ratios = sorted(seen / plain for plain, seen in pairs)
    plain, seen = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    print(f'{name:12} {statistics.median(ratios):6.3f}  {ratios[0]:.3f}-{ratios[-1]:.3f}   {plain:8.2f} {seen:8.2f}', flush=True)
    return statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', required=True)
    parser.add_argument('--peer', default=shutil.which('nginx') or 'nginx')
    parser.add_argument('--only', default='return,log,proxy,cache')
    parser.add_argument('--rounds', type=int, default=8)
    parser.add_argument('--secs', type=int, default=2)
    parser.add_argument('--rate', type=int, default=5000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='weir-observed-') as name:
        where, up = Path(name), free_port()
        where.chmod(0o755)
        for folder in ('html', 'logs'):
            (where / folder).mkdir()
        (where / 'html/10k.html').write_bytes(b'x' * 10240)
        text = 'server { listen 127.0.0.1:@PORT@ backlog=4096; root @DIR@/html; location = /ok { return 200 "OK\\n"; } }'
        upstream = compare.start(args.peer, compare.conf('http', text, 'up', where, up, 0, 1), 'up', where, up, '1')
        if not upstream:
            raise SystemExit(f'the upstream ({args.peer}) did not start')
        try:
            print(f'{"scenario":12} {"ratio":>6}  {"spread":11}   {"off":>8} {"on":>8} us/req')
            ratios = [measure(scenario, args, where, up) for scenario in args.only.split(',')]
        finally:
            compare.stop(upstream)
    print(f'geometric mean: {statistics.geometric_mean(ratios):.3f}')


if __name__ == '__main__':
    sys.exit(main())
