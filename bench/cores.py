#!/usr/bin/env python3
"""Measure what a request costs with two workers on two CPUs beside one worker on one.

    cores.py --binary target/release/weir [--peer nginx] [--only return,cache] [--rounds 15] [--secs 1]

Three servers run the same configuration at once: `one` and `same` have a worker on CPU 0, `two` has two on CPUs 0 and 1.
Load, which may use both CPUs, alternates between them round by round; only the servers' own CPU time is counted, as in
compare.py.  Printed are the medians over the rounds of two/one, and of same/one, which is what the machine adds by
itself: where that is not near 1.00 the other figure says nothing.  Each has the middle half of its rounds behind it.
Needs: wrk, openssl, a second CPU, and a server for the upstream (--upstream, nginx).  Loopback only, bounded in time.
"""
import argparse, re, shutil, statistics, subprocess, sys, tempfile
from pathlib import Path

import clients, compare

SERVERS = {'one': (1, '0'), 'same': (1, '0'), 'two': (2, '0,1')}
UPSTREAM = 'server { listen 127.0.0.1:@PORT@ backlog=4096; root @DIR@/html; location = /ok { return 200 "OK\\n"; } }'


def load(spec, port, conns, secs):
    """One bounded load; how many requests were answered."""
    _, path, *flags = spec.split(' ')
    fields = [x for f in flags for x in ('-H', compare.HEADER[f])]
    out = subprocess.run(['taskset', '-c', '0,1', 'wrk', '-t2', f'-c{conns}', f'-d{secs}s', *fields, f'http://127.0.0.1:{port}{path}'],
                         capture_output=True, text=True).stdout
    if 'Non-2xx' in out or not (done := re.search(r'(\d+) requests in', out)):
        raise SystemExit(f'errors under load: {out}')
    return int(done[1])


def measure(binary, name, dirs, up, a):
    _, body, spec = compare.HTTP[name]
    servers = {}
    try:
        for who, (workers, cpus) in SERVERS.items():
            port = clients.free_port()
            text = compare.conf('http', body, f'{who}-{name}', dirs, port, up, workers)
            servers[who] = compare.start(binary, text, f'{who}-{name}', dirs, port, cpus), port
            if not servers[who][0]:
                raise SystemExit(f'{name}: it does not start')
        rounds = []
        for n in range(a.rounds + 1):
            cost = {}
            for who in list(SERVERS) if n % 2 else list(SERVERS)[::-1]:
                server, port = servers[who]
                before = compare.cpu_ns(server.pid)
                requests = load(spec, port, a.conns, a.secs)
                cost[who] = (compare.cpu_ns(server.pid) - before) / requests / 1000
            rounds.append(cost)
        return rounds[1:]
    finally:
        for server, _ in servers.values():
            compare.stop(server)


def ratio(rounds, who):
    """The median, and the middle half."""
    all_ = [cost[who] / cost['one'] for cost in rounds]
    low, middle, high = statistics.quantiles(all_, n=4)
    return f'{middle:6.2f}  {low:5.2f}-{high:<5.2f}'


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--peer', help='another program, after it')
    ap.add_argument('--upstream', default=shutil.which('nginx') or 'nginx')
    ap.add_argument('--only', default='return,log,static1k,proxy_small,cache', help='these scenarios of compare.py, without TLS')
    ap.add_argument('--rounds', type=int, default=15)
    ap.add_argument('--secs', type=int, default=1)
    ap.add_argument('--conns', type=int, default=64)
    a = ap.parse_args()
    missing = [tool for tool in ('wrk', 'openssl', 'taskset', a.upstream) if not shutil.which(tool)]
    if missing:
        print(f'skipped: {", ".join(missing)} is not installed')
        return 0
    with tempfile.TemporaryDirectory(prefix='cores-') as tmp:
        dirs = Path(tmp)
        dirs.chmod(0o755)
        clients.prepare(dirs)
        port = clients.free_port()
        up = compare.start(a.upstream, compare.conf('http', UPSTREAM, 'up', dirs, port, 0, 1), 'up', dirs, port, '1')
        try:
            print(f'{"scenario":20} {"two/one":>6}  {"middle half":11} {"same/one":>8}  {"middle half":11} {"us/req, one":>11} {"two":>6}')
            for name in a.only.split(','):
                for binary in filter(None, (a.binary, a.peer)):
                    rounds = measure(binary, name, dirs, port, a)
                    us = [statistics.median(cost[who] for cost in rounds) for who in ('one', 'two')]
                    shown = f'{name}, {Path(binary).name}'
                    print(f'{shown:20} {ratio(rounds, "two")}  {ratio(rounds, "same")}  {us[0]:10.2f} {us[1]:6.2f}', flush=True)
        finally:
            compare.stop(up)
    return 0


if __name__ == '__main__':
    sys.exit(main())
