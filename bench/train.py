#!/usr/bin/env python3
"""Have a profiling build serve what servers serve most, so that the next build knows which code is hot.

    train.py --binary target/pgo/generate/…/release/weir [--requests 6000] [--only return,tls]

`cargo xtask release` runs it.  The scenarios are `TRAINED` of scenarios.py, one after the other, each in a
process of its own, one request at a time over eight connections.  What is large or long is asked for less
often: how often code runs is what the compiler sees, and a page compressed is not more of a reason to call
the rest cold than a page sent.
Needs: python3, openssl.  Loopback only, a fixed number of requests.
"""
import argparse, shutil, sys, tempfile, time
from pathlib import Path

import clients, scenarios

CONNECTIONS = 8


def train(binary, name, scenario, requests, work, origins):
    server, port = scenarios.start([binary], scenario, work, origins)
    try:
        clients.wait_for_port(server, port)
        statuses = scenarios.ask(port, scenario, max(CONNECTIONS, int(requests * scenario.share)), CONNECTIONS)
    finally:
        clients.stop(server)
    if server.returncode or max(statuses) >= 500:
        raise SystemExit(f'{name}: the server ended with {server.returncode}, answers were {sorted(statuses)}')
    return statuses


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--requests', type=int, default=6000, help='of each scenario (6000)')
    ap.add_argument('--only', default='', help='these scenarios, separated by commas')
    a = ap.parse_args()
    if not shutil.which('openssl'):
        raise SystemExit('openssl is not installed')
    with tempfile.TemporaryDirectory(prefix='train-') as tmp:
        work = Path(tmp)
        clients.prepare(work)
        origins = scenarios.Origins(work)
        for name in [n for n in a.only.split(',') if n] or scenarios.TRAINED:
            begin = time.monotonic()
            statuses = train(a.binary.resolve(), name, scenarios.TRAINED[name], a.requests, work, origins)
            print(f'{name:14} {time.monotonic() - begin:6.1f} s  {" ".join(map(str, sorted(statuses)))}', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
