#!/usr/bin/env python3
"""Measure how long small requests wait while a server does larger things for others.

    tail.py --binary target/release/weir [--peer nginx] [--only none,gzip,all] [--rounds 3] [--secs 6] [--turns]

Small requests (`return`, a file of 1 KB, a proxied answer of 3 bytes) are sent at a fixed rate, whatever
becomes of those before, and the time of each counts from when it was to be sent: one that had to wait
because the one before it waited has waited too.  Meanwhile one kind of work, or all at once, goes on:

    none        nothing: what machine and client add by themselves
    handshakes  a hundred TLS connections a second
    downloads   files of 100 MB, two readers that are quick and eight that are slow
    gzip        4 MB of text compressed at level 6, from a file and from a server; `level9` at level 9
    listing     a directory of 20,000 files
    logs        a log of a megabyte compressed at level 9
    regex       a text of 4 KB on which an expression gives up late
    filters     the same text through sub_filter and SSI
    heads       requests with 32 KB of fields
    uploads     bodies of 8 MB, buffered and passed on
    streams     HTTP/2, a hundred streams at once
    reloads     a reload a second

Two workers.  The programs take turns, round by round; printed are the medians of the rounds' percentiles and
the longest of all, in milliseconds.  --turns prints for each program instead how long a thread went on at most between two looks at its event
loop, by strace: nobody else of that worker is answered meanwhile.  Of the rounds' longest it is the least,
because what the machine has others do is not there in every round, and a turn that is long by itself is.  As root the servers and the probe are given precedence over whatever
else the machine does, the work is not.  Needs: Linux, python3, openssl.  Loopback only, bounded in time.
"""
import argparse, multiprocessing, os, re, selectors, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

import clients

CONNECTIONS, RATE = 16, 400
WAITS = ['epoll_wait', 'epoll_pwait', 'epoll_pwait2']
SMALL = ['/ok', '/1k.html', '/small/ok']
SLOW_BYTES, SLOW_SECS = 65536, 0.05
TEXT_BYTES, FILE_BYTES = 4 << 20, 100 << 20

CONF = '''user root; worker_processes 2; daemon off; pid @DIR@/@NAME@.pid; error_log @DIR@/@NAME@.err error;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; types { text/html html; text/plain txt; } client_max_body_size 100m;
  large_client_header_buffers 8 16k; client_body_temp_path @DIR@/@NAME@.body; proxy_temp_path @DIR@/@NAME@.proxy;
  log_format long "$request_uri $http_cookie $msec"; @SERVERS@
  ssl_certificate @DIR@/cert.pem; ssl_certificate_key @DIR@/key.pem; sendfile on; gzip_comp_level 6; gzip_types text/plain;
  upstream app { server 127.0.0.1:@UP@; keepalive 32; }
  server { listen 127.0.0.1:@PORT@ default_server; listen 127.0.0.1:@TLS@ ssl; http2 on; root @DIR@/html;
    location = /ok { return 200 "OK\\n"; }
    location /small/ { proxy_pass http://app/; proxy_http_version 1.1; proxy_set_header Connection ""; }
    location /gzip/ { alias @DIR@/html/; gzip on; }
    location /proxied/ { proxy_pass http://app/; proxy_http_version 1.1; proxy_set_header Connection ""; gzip on; }
    location /proxied9/ { proxy_pass http://app/; proxy_http_version 1.1; proxy_set_header Connection ""; gzip on; gzip_comp_level 9; }
    location /level9/ { alias @DIR@/html/; gzip on; gzip_comp_level 9; }
    location /listing/ { autoindex on; }
    location /logs { access_log @DIR@/@NAME@.log.gz long gzip=9 buffer=1m; return 200 "OK\n"; }
    location ~ ^/regex/(a+)+$ { return 200 "OK\n"; }
    location /sub/ { alias @DIR@/html/; @SUB@ }
    location /ssi/ { alias @DIR@/html/; ssi on; ssi_types text/plain; } } }
'''
SUB = 'sub_filter_types text/plain; sub_filter_once off; sub_filter word text;'


class Server:
    def __init__(self, binary, name, work, origin, servers, turns):
        self.name, self.port, self.tls = name, clients.free_port(), clients.free_port()
        text = CONF
        sub = SUB if self.knows(binary, work) else ''
        many = ''.join(f'server {{ listen 127.0.0.1:@PORT@; server_name s{i}.example; location / {{ root /tmp; }} location /a {{ return 204; }} }}\n' for i in range(servers))
        for key, value in {'@SERVERS@': many, '@SUB@': sub, '@PORT@': self.port, '@TLS@': self.tls, '@UP@': origin.port, '@DIR@': work, '@NAME@': name}.items():
            text = text.replace(key, str(value))
        conf = work / f'{name}.conf'
        conf.write_text(text)
        self.traced = open(work / f'{name}.trace', 'w+') if turns else None
        trace = ['strace', '-f', '--seccomp-bpf', '-qq', '-ttt', '-T', '-e', f'trace={",".join(WAITS)}', '-o', self.traced.name] if turns else []
        self.rest, self.file = '', work / f'{name}.pid'
        self.process = subprocess.Popen([*trace, binary, '-p', work, '-c', conf], stderr=subprocess.PIPE, text=True, preexec_fn=lambda: precede(-10))
        clients.wait_for_port(self.process, self.port)

    def signal(self, number):
        os.kill(int(self.file.read_text()), number)

    def stop(self):
        self.signal(signal.SIGTERM)
        self.process.wait(clients.WAIT_SECS)

    def longest_turn(self):
        """Since it was asked last, in ms."""
        left, longest = {}, 0
        *lines, self.rest = (self.rest + self.traced.read()).split('\n')
        for line in lines:
            thread, when, what = line.split(None, 2)
            took = re.search(r'<([\d.]+)>$', what)
            resumed = what.startswith('<... ')
            if not resumed and thread in left:
                longest = max(longest, float(when) - left.pop(thread))
            if took:
                left[thread] = float(when) + (0 if resumed else float(took[1]))
        return 1000 * longest

    @staticmethod
    def knows(binary, work):
        (work / 'try.conf').write_text(f'events {{}} http {{ server {{ listen 127.0.0.1:1; location / {{ {SUB} }} }} }} pid {work}/try.pid;')
        return not subprocess.run([binary, '-t', '-p', work, '-c', work / 'try.conf'], capture_output=True).returncode


def precede(nice):
    """Before what else the machine does, where that is allowed."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        pass


class Probe:
    """Requests at fixed times over kept connections; an answer is known by its length."""

    def __init__(self, port, secs):
        self.port, self.selector, self.times = port, selectors.DefaultSelector(), []
        self.conns = [self.open() for _ in range(CONNECTIONS)]
        begin = time.monotonic() + 0.2
        due = [(begin + i / RATE, i % CONNECTIONS, SMALL[i % len(SMALL)]) for i in range(int(secs * RATE))]
        self.run(due)

    def open(self):
        sock = clients.open_socket(self.port)
        conn = {'sock': sock, 'text': b'', 'waiting': []}
        self.selector.register(sock, selectors.EVENT_READ, conn)
        return conn

    def run(self, due):
        end, at = due[-1][0] + 20, 0
        while at < len(due) or any(c['waiting'] for c in self.conns):
            now = time.monotonic()
            if now > end:
                raise SystemExit('small requests were not answered for 20 s')
            while at < len(due) and due[at][0] <= now:
                when, number, path = due[at]
                self.conns[number]['waiting'].append((when, path))
                if len(self.conns[number]['waiting']) == 1:
                    self.send(number)
                at += 1
            left = due[at][0] - time.monotonic() if at < len(due) else 0.05
            for key, _ in self.selector.select(max(0, left)):
                self.receive(key.data)

    def send(self, number):
        conn = self.conns[number]
        try:
            conn['sock'].sendall(f'GET {conn["waiting"][0][1]} HTTP/1.1\r\nHost: a\r\n\r\n'.encode())
        except OSError:
            self.again(conn)

    def receive(self, conn):
        try:
            data = conn['sock'].recv(65536)
        except OSError:
            data = b''
        if not data:
            return self.again(conn)
        conn['text'] += data
        head, end, body = conn['text'].partition(b'\r\n\r\n')
        if end and len(body) >= int(head.lower().split(b'content-length: ')[1].split(b'\r')[0]):
            if not head.startswith(b'HTTP/1.1 200'):
                raise SystemExit(f'not 200: {head[:60]}')
            self.times.append(time.monotonic() - conn['waiting'].pop(0)[0])
            conn['text'] = b''
            if conn['waiting']:
                self.send(self.conns.index(conn))

    def again(self, conn):
        """The server has closed the connection, as it may: what waits is asked on another, and has waited."""
        number = self.conns.index(conn)
        self.selector.unregister(conn['sock'])
        conn['sock'].close()
        self.conns[number] = self.open()
        self.conns[number]['waiting'] = conn['waiting']
        if conn['waiting']:
            self.send(number)


def repeat(pause_secs, work):
    while True:
        try:
            work()
        except (OSError, SystemExit):
            # A connection that a reload has ended.
            pass
        time.sleep(pause_secs)


def fill(path, files):
    path.mkdir()
    for i in range(files):
        (path / f'a-file-of-many-{i}.txt').touch()


def logged(server):
    conn = clients.Http1(server.port, '/logs', 'Cookie: ' + ''.join(chr(97 + i * i % 23) for i in range(6000)))
    for _ in range(200):
        conn.send()
        conn.receive()
    conn.close()


def get(port, path, fields='', limit=None, pause_secs=0.0):
    with clients.open_socket(port) as sock:
        sock.sendall(f'GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n'.encode())
        buffer = bytearray(limit or 1 << 20)
        while sock.recv_into(buffer):
            time.sleep(pause_secs)


def handshake(server):
    with clients.client_tls().wrap_socket(clients.open_socket(server.tls)) as sock:
        sock.sendall(b'GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
        while sock.recv(4096):
            pass


def upload(server):
    with clients.open_socket(server.port) as sock:
        sock.sendall(b'POST /small/ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % (8 << 20) + bytes(8 << 20))
        while sock.recv(4096):
            pass


def streams(server):
    conn = clients.Http2(server.port, '/10k.html')
    for _ in range(20):
        conn.sock.sendall(b''.join(clients.frame(1, 5, conn.stream + 2 * i, conn.block) for i in range(100)))
        conn.stream += 198
        conn.receive()
    conn.close()


def twice(server, *paths, fields=''):
    return lambda: [get(server.port, path, fields) for path in paths]


# What goes on: for each client that does it, the pause between two goes and the work.
WORK = {
    'none': lambda s: [],
    'handshakes': lambda s: [(0.02, lambda: handshake(s))] * 2,
    'downloads': lambda s: [(0.1, lambda: get(s.port, '/100m.bin'))] * 2 + [(0.1, lambda: get(s.port, '/100m.bin', '', SLOW_BYTES, SLOW_SECS))] * 8,
    'gzip': lambda s: [(0.05, twice(s, '/gzip/4m.txt', '/proxied/4m.txt', fields='Accept-Encoding: gzip\r\n'))],
    'level9': lambda s: [(0.05, twice(s, '/level9/4m.txt', '/proxied9/4m.txt', fields='Accept-Encoding: gzip\r\n'))],
    'listing': lambda s: [(0.2, twice(s, '/listing/'))],
    'logs': lambda s: [(0.05, lambda: logged(s))],
    'regex': lambda s: [(0.2, twice(s, '/regex/' + 'a' * 4000 + '!'))],
    'filters': lambda s: [(0.05, twice(s, '/sub/4m.txt', '/ssi/4m.txt'))],
    'heads': lambda s: [(0.005, twice(s, '/ok', fields=''.join(f'X-Field-{i}: {"v" * 80}\r\n' for i in range(330))))],
    'uploads': lambda s: [(0.1, lambda: upload(s))],
    'streams': lambda s: [(0.05, lambda: streams(s))],
    'reloads': lambda s: [(1, lambda: s.signal(signal.SIGHUP))],
}
WORK['all'] = lambda s: [work for name, make in WORK.items() if name != 'all' for work in make(s)]


def measure(server, name, secs):
    busy = [multiprocessing.Process(target=repeat, args=work, daemon=True) for work in WORK[name](server)]
    for process in busy:
        process.start()
    results = multiprocessing.Queue()
    probe = multiprocessing.Process(target=lambda: (precede(-20), results.put(sorted(Probe(server.port, secs).times))), daemon=True)
    try:
        probe.start()
        times = results.get(timeout=secs + 60)
    finally:
        for process in [*busy, probe]:
            process.kill()
            process.join()
    return [1000 * times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.99, 0.999, 1)]


def prepare(work):
    clients.prepare(work)
    (work / 'html/4m.txt').write_bytes((b''.join(b'a line with a word and the number %d\n' % (i * 7919 % 10007) for i in range(110000)))[:TEXT_BYTES])
    clients.BODY['/4m.txt'] = (work / 'html/4m.txt').read_bytes()
    fill(work / 'html/listing', 20000)
    with open(work / 'html/100m.bin', 'wb') as f:
        f.truncate(FILE_BYTES)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--peer', help='another program, which takes turns with it')
    ap.add_argument('--only', default='', help='these kinds of work, separated by commas')
    ap.add_argument('--rounds', type=int, default=3)
    ap.add_argument('--secs', type=float, default=6)
    ap.add_argument('--servers', type=int, default=0, metavar='N', help='so many servers more in the configuration')
    ap.add_argument('--turns', action='store_true', help='how long workers are at work without a look at others')
    a = ap.parse_args()
    missing = [tool for tool in ('openssl', 'strace')[:1 + a.turns] if not shutil.which(tool)]
    if missing:
        print(f'skipped: {", ".join(missing)} is not installed')
        return 0
    multiprocessing.set_start_method('fork')
    with tempfile.TemporaryDirectory(prefix='tail-') as tmp:
        work = Path(tmp)
        prepare(work)
        up = clients.Origin.__new__(clients.Origin)
        up.listener, up.context = socket.create_server(('127.0.0.1', 0), backlog=64), None
        up.port = up.listener.getsockname()[1]
        asked = multiprocessing.Process(target=up.accept, daemon=True)
        asked.start()
        servers = []
        try:
            servers += [Server(Path(b).resolve(), name, work, up, a.servers, a.turns) for name, b in (('ours', a.binary), ('peer', a.peer)) if b]
            (longest_turns if a.turns else table)(servers, a)
        finally:
            for server in servers:
                server.stop()
            asked.kill()
    return 0


def table(servers, a):
    print('ms          ' + ''.join(f'{s.name:>10} p50     p99   p99.9     max' for s in servers))
    for name in [n for n in a.only.split(',') if n] or WORK:
        rounds = {s.name: [] for s in servers}
        for n in range(a.rounds):
            for server in servers if n % 2 else servers[::-1]:
                rounds[server.name].append(measure(server, name, a.secs))
        line = f'{name:12}'
        for server in servers:
            *parts, longest = zip(*rounds[server.name])
            line += f'{"":6}' + ''.join(f'{v:8.1f}' for v in (*map(statistics.median, parts), max(longest)))
        print(line, flush=True)


def longest_turns(servers, a):
    print('longest turn, ms' + ''.join(f'{s.name:>10}' for s in servers))
    for name in [n for n in a.only.split(',') if n] or WORK:
        line = f'{name:16}'
        for server in servers:
            server.longest_turn()
            line += f'{min((measure(server, name, a.secs), server.longest_turn())[1] for _ in range(a.rounds)):10.1f}'
        print(line, flush=True)


if __name__ == '__main__':
    sys.exit(main())
