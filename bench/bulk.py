#!/usr/bin/env python3
"""Bulk data through the stream proxy: CPU time of the proxy per megabyte, beside nginx in one run.

One connection carries so many megabytes from a server on this machine to a client, plain on both
sides; the programs take turns. CPU time is user and system time of all of the proxy's processes.

    python3 bench/bulk.py --binary target/release/weir --peer /usr/sbin/nginx [--megabytes 1024] [--rounds 5]
"""
import argparse, os, signal, socket, statistics, subprocess, tempfile, threading, time, pathlib

TICK = os.sysconf('SC_CLK_TCK')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def family(pid):
    """A process and those that it has started."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for task in pathlib.Path(f'/proc/{pid}/task').glob('*/children'):
            todo += [int(child) for child in task.read_text().split()]
    return found


def cpu_seconds(pid):
    total = 0
    for one in family(pid):
        fields = pathlib.Path(f'/proc/{one}/stat').read_text().rsplit(')', 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def serve(listener, file, size):
    """Sends the file to whoever comes, from the page cache."""
    while True:
        try:
            conn, _ = listener.accept()
        except OSError:
            return
        with conn, open(file, 'rb') as f:
            sent = 0
            while sent < size:
                try:
                    sent += os.sendfile(conn.fileno(), f.fileno(), sent, min(size - sent, 1 << 20))
                except OSError:
                    break


def fetch(port, size):
    buffer, got = bytearray(1 << 20), 0
    with socket.create_connection(('127.0.0.1', port)) as s:
        while got < size:
            n = s.recv_into(buffer)
            if n == 0:
                break
            got += n
    assert got == size, f'{got} of {size} bytes'


def start(binary, upstream, directory):
    port = free_port()
    conf = directory / 'nginx.conf'
    (directory / 'logs').mkdir(exist_ok=True)
    conf.write_text(f'''daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 512; }}
stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{upstream}; }} }}
''')
    child = subprocess.Popen([binary, '-p', directory, '-c', conf], stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(('127.0.0.1', port)).close()
            return child, port
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f'{binary} does not start: {(directory / "error.log").read_text()[-400:]}')


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--binary', required=True)
    p.add_argument('--peer', default='nginx')
    p.add_argument('--megabytes', type=int, default=1024)
    p.add_argument('--rounds', type=int, default=5)
    a = p.parse_args()
    size = a.megabytes << 20
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        file = top / 'data'
        with open(file, 'wb') as f:
            block = os.urandom(1 << 20)
            for _ in range(64):
                f.write(block)
            f.truncate(size)
        listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        threading.Thread(target=serve, args=(listener, file, size), daemon=True).start()
        running = {}
        for name, binary in (('weir', a.binary), ('nginx', a.peer)):
            directory = top / name
            directory.mkdir()
            running[name] = start(binary, listener.getsockname()[1], directory)
        costs = {name: [] for name in running}
        for _ in range(a.rounds):
            for name, (child, port) in running.items():
                before = cpu_seconds(child.pid)
                fetch(port, size)
                costs[name].append((cpu_seconds(child.pid) - before) * 1e6 / a.megabytes)
        for name, (child, _) in running.items():
            child.send_signal(signal.SIGTERM)
            child.wait()
        for name, each in costs.items():
            shown = ' '.join(f'{c:.0f}' for c in each)
            print(f'{name:6} {statistics.median(each):8.0f} us CPU per MB   ({shown})')
        ratio = statistics.median(costs['nginx']) / max(statistics.median(costs['weir']), 1e-9)
        print(f'nginx / weir {ratio:.2f}')
        listener.close()


main()
