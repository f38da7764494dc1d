#!/usr/bin/env python3
"""What `weir profile` costs the requests that are served meanwhile: processor time a request, with and without one.

    profile.py --binary target/release/weir [--frequency 99] [--rounds 8] [--secs 3]

One worker serves a page of 10 KB from memory to wrk.  Rounds with and without a profile take turns, so that what
else the machine does meets both alike.  The figure is the median, over pairs of rounds, of the serving process'
processor time a request (the thread that finds the callers belongs to it) with a profile, divided by that without.
The symbols are read at a profile's end, behind the round: that is not in it, and is no worker's.
Needs: Linux, wrk.  Loopback only, a fixed time.
"""
import argparse, os, re, statistics, subprocess, sys, tempfile, time
from pathlib import Path

from clients import free_port, stop, wait_for_port

CONF = '''daemon off; master_process off; worker_processes 1; pid {dir}/pid; error_log {dir}/err error;
events {{ worker_connections 512; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {dir}/html; }} }}
'''
CONNECTIONS = 32


def processor_secs(pid):
    ticks = Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf('SC_CLK_TCK')


def load(port, secs):
    command = ['wrk', '-t1', f'-c{CONNECTIONS}', f'-d{secs}s', f'http://127.0.0.1:{port}/10k.html']
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if 'Non-2xx' in text:
        raise SystemExit('answers that are not 200')
    return int(re.search(r'(\d+) requests in', text).group(1))


def profile(args, work, secs):
    command = [args.binary, 'profile', '-c', work / 'conf', '--seconds', str(secs), '--frequency', str(args.frequency),
               '-o', work / 'profile.pb']
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def measure(args, server, work, port, profiled):
    # It lasts as long as the round, and is there when that begins.
    asked = profile(args, work, args.secs + 1) if profiled else None
    time.sleep(0.5)
    before = processor_secs(server.pid)
    requests = load(port, args.secs)
    took = processor_secs(server.pid) - before
    if asked and asked.wait(60):
        raise SystemExit(asked.stderr.read())
    return took * 1e6 / requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', required=True)
    parser.add_argument('--frequency', type=int, default=99)
    parser.add_argument('--rounds', type=int, default=8)
    parser.add_argument('--secs', type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work, port = Path(name), free_port()
        (work / 'html').mkdir()
        (work / 'html/10k.html').write_bytes(b'x' * 10240)
        (work / 'conf').write_text(CONF.format(dir=work, port=port))
        server = subprocess.Popen([args.binary, '-c', work / 'conf', '-p', work], stderr=subprocess.PIPE, text=True)
        try:
            wait_for_port(server, port)
            load(port, 1)
            pairs = []
            for n in range(args.rounds):
                order = (False, True) if n % 2 else (True, False)
                figures = {profiled: measure(args, server, work, port, profiled) for profiled in order}
                pairs.append((figures[False], figures[True]))
        finally:
            stop(server)
    ratios = [with_one / without for without, with_one in pairs]
    print(f'{args.frequency} Hz: {statistics.median(p[0] for p in pairs):.2f} us a request without, '
          f'{statistics.median(p[1] for p in pairs):.2f} us with a profile; '
          f'ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})')


if __name__ == '__main__':
    sys.exit(main())
