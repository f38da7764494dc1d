#!/usr/bin/env python3
"""What the system alone costs for a small request: servers that do nothing else, beside a real one.

    floor.py [--weir target/release/weir] [--peer nginx] [--stream] [--rounds 5] [--secs 2] [--clients 1,8,64,400]

`epoll` receives and sends, with nothing in between; `uring` does the same by io_uring (multishot calls,
provided buffers, registered files). With --stream `relay` receives from one side and sends to the other,
as a proxy of TCP connections does at least. Nobody who uses these calls can be cheaper, so their CPU time
per request bounds what any ratio between servers can be. Each runs on CPU 0 and is loaded in turn from CPU 1
(wrk, kept-alive connections); the median of the rounds is printed, in microseconds of CPU a request.

Needs: Linux, a C compiler, wrk; liburing's headers for `uring`, which is left out without them.
"""
import argparse, os, re, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent / 'floor'
CONF = '''user root; worker_processes 1; daemon off; master_process off; pid {dir}/{name}.pid;
error_log {dir}/{name}.err error;
events {{ worker_connections 4096; }}
{block}
'''
HTTP = 'http {{ access_log off; keepalive_requests 1000000000; server {{ listen 127.0.0.1:{port}; location / {{ return 200 "OK\\n"; }} }} }}'
STREAM = 'stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{to}; }} }}'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def built(dir_, names):
    """Those of the floor's servers that can be built here."""
    for name in names:
        more = ['-luring'] if name == 'uring' else []
        out = dir_ / name
        done = subprocess.run(['cc', '-O2', '-o', out, HERE / f'{name}.c', *more], capture_output=True)
        if done.returncode == 0:
            yield name, [str(out)]
        else:
            print(f'left out: {name} (it does not compile here)', file=sys.stderr)


def cpu_us(server):
    """Of all its threads."""
    tasks = Path(f'/proc/{server.pid}/task').glob('*/schedstat')
    return sum(int(t.read_text().split()[0]) for t in tasks) / 1000


def one(server, port, clients, secs):
    before = cpu_us(server)
    load = ['taskset', '-c', '1', 'wrk', '-t1', f'-c{clients}', f'-d{secs}', f'http://127.0.0.1:{port}/']
    text = subprocess.run(load, capture_output=True, text=True, check=True).stdout
    if 'Non-2xx' in text or 'Socket errors' in text:
        sys.exit(text)
    return (cpu_us(server) - before) / int(re.search(r'(\d+) requests in', text)[1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--weir')
    p.add_argument('--peer')
    p.add_argument('--stream', action='store_true')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--secs', type=int, default=2)
    p.add_argument('--clients', default='1,8,64,400')
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        dir_ = Path(d)
        (dir_ / 'logs').mkdir()
        servers, started, to = [], [], free_port()

        def start(name, cpu, command):
            started.append(subprocess.Popen(['taskset', '-c', cpu, *map(str, command)]))
            return started[-1]

        try:
            if args.stream:
                for _, origin in built(dir_, ['epoll']):
                    start('origin', '1', [*origin, to])
            for name, command in built(dir_, ['relay'] if args.stream else ['epoll', 'uring']):
                port = free_port()
                servers.append((name, port, start(name, '0', [*command, port, to])))
            for name, binary in ('weir', args.weir), ('peer', args.peer):
                if binary:
                    port, conf = free_port(), dir_ / f'{name}.conf'
                    block = (STREAM if args.stream else HTTP).format(port=port, to=to)
                    conf.write_text(CONF.format(dir=dir_, name=name, block=block))
                    servers.append((name, port, start(name, '0', [os.path.abspath(binary), '-p', dir_, '-c', conf])))
            time.sleep(1)
            print('us of CPU a request'.ljust(22) + ''.join(name.rjust(10) for name, _, _ in servers))
            for clients in map(int, args.clients.split(',')):
                rounds = [[one(s, port, clients, args.secs) for _, port, s in servers]
                          for _ in range(args.rounds)]
                medians = [statistics.median(r) for r in zip(*rounds)]
                print(f'{clients} clients'.ljust(22) + ''.join(f'{m:10.2f}' for m in medians), flush=True)
        finally:
            for server in started:
                server.kill()


main()
