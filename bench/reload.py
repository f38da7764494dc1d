#!/usr/bin/env python3
"""Count what a server loses while it is reloaded under load.

    reload.py --binary target/release/weir [--secs 5] [--reuseport on|off|toggle] [--workers 4,1,3,2]
              [--how reload|upgrade]

Starts the program on a configuration of its own, puts load on it (connections of one request each, and
kept connections that ask again and again), and reloads it all the while, each time with the next number
of workers; with --how upgrade each reload is an upgrade, SIGUSR2 and then SIGQUIT to the old process.
Printed are

    answered   requests that got their whole answer
    lost       requests on fresh connections that were refused, reset, closed or not answered in 5 s
    cut        kept connections that the server closed, with a request sent on them or not
    told       kept connections that the server ended with "Connection: close", as it may

and the exit status is 0 if nothing was lost or cut.  Any program that reads nginx.conf and reloads on
SIGHUP will do, so that two can be compared.  Loopback only; needs Python 3 alone.
"""
import argparse, collections, os, pathlib, shutil, signal, socket, subprocess, sys, tempfile, threading, time

PATIENCE_SECS = 5
KEPT_PER_THREAD = 16


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def conf(args, turn, port, dir_):
    workers = args.workers[turn % len(args.workers)]
    own = {'on': True, 'off': False, 'toggle': turn % 3 != 0}[args.reuseport]
    user = 'user root;' if os.geteuid() == 0 else ''
    daemon = 'on' if args.how == 'upgrade' else 'off'
    return (f'{user} daemon {daemon}; worker_processes {workers}; pid {dir_}/pid; error_log {dir_}/error.log notice;\n'
            'events { worker_connections 4096; }\n'
            'http { access_log off; keepalive_requests 100000000; '
            f'server {{ listen 127.0.0.1:{port} {"reuseport" if own else ""}; return 200 {turn:08}; }} }}\n')


class Load:
    def __init__(self, port):
        self.port = port
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.why = collections.Counter()

    def count(self, what, why=None):
        with self.lock:
            self.counts[what] += 1
            if why is not None:
                self.why[f'{what}: {why}'] += 1

    def connect(self):
        c = socket.create_connection(('127.0.0.1', self.port), PATIENCE_SECS)
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return c

    def ask(self, c, more=''):
        """One exchange; whether the server will go on. The answer's body has eight bytes."""
        c.sendall(f'GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n'.encode())
        seen = b''
        while True:
            piece = c.recv(4096)
            if not piece:
                raise ConnectionError('closed without an answer')
            seen += piece
            at = seen.find(b'\r\n\r\n')
            if at >= 0 and len(seen) >= at + 12:
                if not seen.startswith(b'HTTP/1.1 200 '):
                    raise ConnectionError(seen[:60])
                return b'Connection: close' not in seen[:at]

    def fresh(self):
        while not self.stop.is_set():
            try:
                with self.connect() as c:
                    self.ask(c, 'Connection: close\r\n')
                self.count('answered')
            except OSError as e:
                self.count('lost', e)

    def kept(self):
        conns = collections.deque()
        while not self.stop.is_set():
            try:
                while len(conns) < KEPT_PER_THREAD:
                    conns.append(self.connect())
            except OSError as e:
                self.count('lost', e)
                continue
            c = conns.popleft()
            try:
                if self.ask(c):
                    conns.append(c)
                else:
                    self.count('told')
                self.count('answered')
            except OSError as e:
                self.count('cut', e)


def wait_up(port, child):
    end = time.monotonic() + PATIENCE_SECS
    while time.monotonic() < end and not child.poll():
        try:
            return socket.create_connection(('127.0.0.1', port), 1).close()
        except OSError:
            time.sleep(0.02)
    sys.exit('the server does not start')


def body(load):
    try:
        with load.connect() as c:
            c.sendall(b'GET / HTTP/1.0\r\n\r\n')
            return b''.join(iter(lambda: c.recv(4096), b''))[-8:]
    except OSError:
        return b''


def running(dir_, other_than=None):
    """The process in the pid file, once it is another one."""
    end = time.monotonic() + PATIENCE_SECS
    while time.monotonic() < end:
        try:
            pid = int(pathlib.Path(dir_, 'pid').read_text())
            if pid != other_than:
                return pid
        except (OSError, ValueError):
            pass
        time.sleep(0.01)
    sys.exit('there is no new process; see the error log')


def wait_gone(pid):
    while pathlib.Path(f'/proc/{pid}').exists():
        time.sleep(0.01)


def change(args, dir_, pid):
    """Puts the new configuration in force; the process to go on with."""
    if args.how == 'reload':
        os.kill(pid, signal.SIGHUP)
        return pid
    os.kill(pid, signal.SIGUSR2)
    new = running(dir_, pid)
    os.kill(pid, signal.SIGQUIT)
    wait_gone(pid)
    return new


def run(args, dir_):
    port, path = free_port(), pathlib.Path(dir_, 'nginx.conf')
    path.write_text(conf(args, 0, port, dir_))
    child = subprocess.Popen([args.binary, '-p', dir_, '-c', str(path), '-e', f'{dir_}/error.log'])
    try:
        wait_up(port, child)
        pid = running(dir_)
        load = Load(port)
        threads = [threading.Thread(target=t) for t in (load.fresh, load.kept) * 2]
        for t in threads:
            t.start()
        turn, end = 0, time.monotonic() + args.secs
        while time.monotonic() < end:
            turn += 1
            path.write_text(conf(args, turn, port, dir_))
            pid = change(args, dir_, pid)
            late = time.monotonic() + PATIENCE_SECS
            while body(load) != b'%08d' % turn and time.monotonic() < late:
                time.sleep(0.01)
            if time.monotonic() >= late:
                print(f'reload {turn} did not come through; see the error log:')
                print(pathlib.Path(dir_, 'error.log').read_text()[-600:])
                break
        load.stop.set()
        for t in threads:
            t.join()
        return turn, load
    finally:
        os.kill(running(dir_), signal.SIGTERM)
        child.wait(PATIENCE_SECS)
        wait_gone(pid)


def main():
    p = argparse.ArgumentParser(description='Count what a server loses while it is reloaded under load.')
    p.add_argument('--binary', required=True)
    p.add_argument('--secs', type=float, default=5)
    p.add_argument('--reuseport', choices=('on', 'off', 'toggle'), default='on')
    p.add_argument('--how', choices=('reload', 'upgrade'), default='reload')
    p.add_argument('--workers', type=lambda t: [int(n) for n in t.split(',')], default=[4, 1, 3, 2])
    args = p.parse_args()
    dir_ = tempfile.mkdtemp(prefix='weir-reload-')
    os.makedirs(f'{dir_}/logs')
    try:
        turns, load = run(args, dir_)
    finally:
        shutil.rmtree(dir_)
    print(f'{turns} reloads:', *(f'{what} {load.counts[what]}' for what in ('answered', 'lost', 'cut', 'told')))
    for why, n in load.why.most_common(5):
        print(f'    {n:6} {why}')
    sys.exit(1 if load.counts['lost'] or load.counts['cut'] else 0)


if __name__ == '__main__':
    main()
