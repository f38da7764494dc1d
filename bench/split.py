#!/usr/bin/env python3
"""Measure how much of a request's CPU time is the program's own and how much is the kernel's.

    split.py --binary target/release/weir [--peer nginx] [--only return,cache] [--secs 6]

One worker on CPU 0, one load after the other from CPU 1, on compare.py's configurations.  The time of the process tree is
schedstat's; the kernel's share of it is counted in ticks of 10 ms, so that a load of 6 seconds is true to about 1 %.
Beside each ratio stands the one that the program would have at no cost of its own: no work on it gets further.
Needs: wrk, openssl, a second CPU, and a server for the upstream (--upstream, nginx).  Loopback only, bounded in time.
"""
import argparse, shutil, sys, tempfile
from pathlib import Path

import clients, compare
from cores import UPSTREAM


def ticks(pid):
    """User's and kernel's, of the whole tree."""
    fields = [Path(f'/proc/{p}/stat').read_text().rsplit(')', 1)[1].split() for p in compare.tree(pid)]
    return sum(int(f[11]) for f in fields), sum(int(f[12]) for f in fields)


def measure(binary, name, dirs, up, a):
    """Microseconds a request, and the kernel's of them."""
    _, body, spec = compare.HTTP[name]
    port = clients.free_port()
    server = compare.start(binary, compare.conf('http', body, name, dirs, port, up, 1), name, dirs, port)
    if not server:
        raise SystemExit(f'{name}: {binary} does not start')
    try:
        compare.load(spec, port, 64, 1)
        user, kernel, cpu = *ticks(server.pid), compare.cpu_ns(server.pid)
        requests, _, _, errors = compare.load(spec, port, 64, a.secs)
        if errors or not requests:
            raise SystemExit(f'{name}: errors under load')
        cpu = (compare.cpu_ns(server.pid) - cpu) / requests / 1000
        user, kernel = (new - old for new, old in zip(ticks(server.pid), (user, kernel)))
        return cpu, cpu * kernel / (user + kernel)
    finally:
        compare.stop(server)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True)
    ap.add_argument('--peer', default=shutil.which('nginx') or 'nginx')
    ap.add_argument('--upstream', default=shutil.which('nginx') or 'nginx')
    ap.add_argument('--only', default='return,proxy_small,static10k,cache', help='these scenarios of compare.py, without TLS')
    ap.add_argument('--secs', type=int, default=6)
    a = ap.parse_args()
    missing = [tool for tool in ('wrk', 'openssl', 'taskset', a.peer, a.upstream) if not shutil.which(tool)]
    if missing:
        print(f'skipped: {", ".join(missing)} is not installed')
        return 0
    with tempfile.TemporaryDirectory(prefix='split-') as tmp:
        dirs = Path(tmp)
        dirs.chmod(0o755)
        clients.prepare(dirs)
        port = clients.free_port()
        up = compare.start(a.upstream, compare.conf('http', UPSTREAM, 'up', dirs, port, 0, 1), 'up', dirs, port, '1')
        try:
            print(f'{"scenario":12} {"us":>6} {"kernel":>7} {"peer us":>8} {"kernel":>7} {"ratio":>6} {"at no cost of its own":>22}')
            for name in a.only.split(','):
                own, peer = (measure(binary, name, dirs, port, a) for binary in (a.binary, a.peer))
                print(f'{name:12} {own[0]:6.2f} {own[1]:7.2f} {peer[0]:8.2f} {peer[1]:7.2f} {peer[0] / own[0]:6.2f} {peer[0] / own[1]:22.2f}', flush=True)
        finally:
            compare.stop(up)
    return 0


if __name__ == '__main__':
    sys.exit(main())
