#!/usr/bin/env python3
"""Count what a request costs in user space, under valgrind's callgrind: instructions, and lines of code.

    instructions.py --binary target/release/weir [--peer nginx] [--only return,tls]
    instructions.py --binary target/release/weir --only proxy_small --functions 30
    instructions.py --binary target/release/weir --check bench/instructions.tsv
    instructions.py --binary target/release/weir --write bench/instructions.tsv

A scenario is one configuration that both programs read unchanged.  Each is run twice, with few
requests and with many, one at a time over eight kept-alive connections in turn; the difference of
the two counts divided by the difference of the requests is what one request costs, without
start-up.
Lines are those of 64 bytes of program and libraries that at least every second request executes
something of: what must be in the processor's caches for it, however often it is executed.
Unlike times these numbers do not depend on what else the machine does.

--check fails when a scenario costs over 2 % more instructions than the file says, or touches over
3 % more lines.  The file names the compiler
and the C library that the figures belong to; with others nothing is compared, which is said.
--functions N lists the functions of each scenario that most lines belong to.
Needs: Linux, valgrind.  Loopback only, a fixed number of requests.
"""
import argparse, platform, re, shutil, signal, socket, ssl, subprocess, sys, tempfile, threading, time
from pathlib import Path

import callgrind

CONNECTIONS = 8
FEW, MANY = 200, 1000
INSTRUCTIONS_MAX, CODE_MAX = 1.02, 1.03
WAIT_SECS = 60
BODY = {'/ok': b'OK\n', '/10k.html': b'<p>ten kilobytes of a page</p>\n' * 330}

UP = 'upstream app { server 127.0.0.1:@UP@; keepalive 128; keepalive_requests 1000000000; }'
PASS = 'location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; @MORE@ }'
TLS = 'ssl_certificate @DIR@/cert.pem; ssl_certificate_key @DIR@/key.pem;'
CACHE = 'proxy_cache_path @DIR@/@NAME@.cache keys_zone=c:1m inactive=60m;'
FILES = 'server { listen 127.0.0.1:@PORT@; root @DIR@/html; }'
CACHED = 'proxy_cache c; proxy_cache_valid 200 1h;'

# name: (http block, path, protocol, header field)
SCENARIOS = {
    'return': ('server { listen 127.0.0.1:@PORT@; location / { return 200 "OK\\n"; } }', '/', 'plain', ''),
    'static1k': (FILES, '/1k.html', 'plain', ''),
    'static10k': (FILES, '/10k.html', 'plain', ''),
    'proxy_small': (f'{UP} server {{ listen 127.0.0.1:@PORT@; {PASS} }}', '/ok', 'plain', ''),
    'proxy10k': (f'{UP} server {{ listen 127.0.0.1:@PORT@; {PASS} }}', '/10k.html', 'plain', ''),
    'cache': (f'{UP} {CACHE} server {{ listen 127.0.0.1:@PORT@; {PASS} }}'.replace('@MORE@', CACHED), '/10k.html', 'plain', ''),
    'cache_small': (f'{UP} {CACHE} server {{ listen 127.0.0.1:@PORT@; {PASS} }}'.replace('@MORE@', CACHED), '/ok', 'plain', ''),
    'gzip': (f'gzip on; gzip_comp_level 1; {FILES}', '/10k.html', 'plain', 'Accept-Encoding: gzip'),
    'h2': (f'http2 on; {FILES}', '/1k.html', 'h2', ''),
    'tls': (f'{TLS} {FILES}'.replace('@PORT@', '@PORT@ ssl'), '/1k.html', 'tls', ''),
}

MAIN = '''user root; worker_processes 1; daemon off; master_process off; pid @DIR@/@NAME@.pid;
error_log @DIR@/@NAME@.err error;
events { worker_connections 512; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; types { text/html html; }
'''


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Origin:
    """Answers the requests of kept-alive connections, each with one write."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            conn, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        text = b''
        while True:
            while b'\r\n\r\n' not in text:
                more = conn.recv(65536)
                if not more:
                    return
                text += more
            head, text = text.split(b'\r\n\r\n', 1)
            body = BODY[head.split(b' ')[1].decode()]
            conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))


class Http1:
    def __init__(self, port, path, field, tls):
        self.sock = socket.create_connection(('127.0.0.1', port), timeout=WAIT_SECS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.sock = context.wrap_socket(self.sock)
        fields = ['Host: localhost', 'User-Agent: instructions', 'Accept: */*', *filter(None, [field])]
        self.request = '\r\n'.join([f'GET {path} HTTP/1.1', *fields, '', '']).encode()

    def send(self):
        self.sock.sendall(self.request)

    def receive(self):
        text = b''
        while b'\r\n\r\n' not in text:
            text += self.some()
        head, body = text.split(b'\r\n\r\n', 1)
        if not head.startswith(b'HTTP/1.1 200'):
            raise SystemExit(f'an answer that is not 200: {head[:80]!r}')
        length = re.search(rb'(?i)content-length: (\d+)', head)
        while (len(body) < int(length[1])) if length else not body.endswith(b'0\r\n\r\n'):
            body += self.some()

    def some(self):
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit('the connection was closed')
        return data


class Http2:
    """Prior knowledge, one stream at a time, windows that do not run out within a run."""

    def __init__(self, port, path, _field, _tls):
        self.sock = socket.create_connection(('127.0.0.1', port), timeout=WAIT_SECS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = b'\x00\x04' + (2**31 - 1).to_bytes(4, 'big')
        more = (2**31 - 1 - 65535).to_bytes(4, 'big')
        self.sock.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, settings) + frame(8, 0, 0, more))
        # GET and http by number; :path and :authority as literals that are not kept.
        self.block = b'\x82\x86' + b''.join(bytes([k, len(v)]) + v for k, v in ((4, path.encode()), (1, b'localhost')))
        self.stream, self.text = 1, b''

    def send(self):
        self.sock.sendall(frame(1, 5, self.stream, self.block))

    def receive(self):
        while True:
            kind, flags, stream = self.next()
            if kind in (3, 7):
                raise SystemExit('the stream or the connection was ended')
            if kind == 4 and not flags & 1:
                self.sock.sendall(frame(4, 1, 0, b''))
            if stream == self.stream and kind in (0, 1) and flags & 1:
                self.stream += 2
                return

    def next(self):
        while len(self.text) < 9 or len(self.text) < 9 + int.from_bytes(self.text[:3], 'big'):
            data = self.sock.recv(65536)
            if not data:
                raise SystemExit('the connection was closed')
            self.text += data
        end = 9 + int.from_bytes(self.text[:3], 'big')
        head, self.text = self.text[:9], self.text[end:]
        return head[3], head[4], int.from_bytes(head[5:9], 'big')


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload


def connect(port, path, protocol, field):
    kind = Http2 if protocol == 'h2' else Http1
    return kind(port, path, field, protocol == 'tls')


def count(binary, name, work, origin, requests):
    """What a whole run with so many requests has executed."""
    block, path, protocol, field = SCENARIOS[name]
    port, out = free_port(), work / 'callgrind.out'
    text = MAIN + block + '\n}\n'
    for key, value in {'@MORE@': '', '@PORT@': port, '@UP@': origin.port, '@DIR@': work, '@NAME@': 'server'}.items():
        text = text.replace(key, str(value))
    (work / 'nginx.conf').write_text(text)
    shutil.rmtree(work / 'server.cache', ignore_errors=True)
    out.unlink(missing_ok=True)
    command = ['valgrind', '--tool=callgrind', f'--callgrind-out-file={out}', *callgrind.OPTIONS, '--quiet', str(binary), '-p', str(work), '-c', str(work / 'nginx.conf')]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_port(server, port)
        conns = [connect(port, path, protocol, field) for _ in range(CONNECTIONS)]
        for _ in range(requests // CONNECTIONS):
            for conn in conns:
                conn.send()
                conn.receive()
        for conn in conns:
            conn.sock.close()
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(WAIT_SECS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    counts = callgrind.read(out) if out.exists() else None
    if not counts or not counts.total:
        raise SystemExit(f'{name}: callgrind left no count')
    return counts


def wait_for_port(server, port):
    end = time.monotonic() + WAIT_SECS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f'it does not start: {server.stderr.read()}')
        try:
            return socket.create_connection(('127.0.0.1', port), timeout=WAIT_SECS).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit('it does not listen')


def measure(binary, name, work, origin):
    few, many = (count(binary, name, work, origin, n) for n in (FEW, MANY))
    return callgrind.Steady(few, many, MANY - FEW)


def prepare(work):
    (work / 'html').mkdir()
    (work / 'logs').mkdir()
    (work / 'html/1k.html').write_bytes(b'x' * 1024)
    (work / 'html/10k.html').write_bytes(BODY['/10k.html'])
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30', '-subj', '/CN=localhost',
                    '-keyout', work / 'key.pem', '-out', work / 'cert.pem'], check=True, capture_output=True)


def environment():
    """What the figures depend on besides the program: compiler, C library, vector instructions."""
    rustc = subprocess.run(['rustc', '--version'], capture_output=True, text=True).stdout.strip()
    flags = set(Path('/proc/cpuinfo').read_text().split())
    return f'{rustc}, {" ".join(platform.libc_ver())}, {"avx2" if "avx2" in flags else "no avx2"}'


def recorded(path):
    """The figures that a file holds, and what they were counted with."""
    lines = path.read_text().splitlines()
    (_, counted_with), *rows = [line.split('\t') for line in lines if line and not line.startswith('#')]
    return {name: [float(n) for n in figures] for name, *figures in rows}, counted_with


def check(found, path):
    rows, counted_with = recorded(path)
    if counted_with != environment():
        print(f'skipped: the figures in {path.name} were counted with {counted_with}; this is {environment()}')
        return 0
    grown = []
    for name in (n for n in rows if n in found):
        for before, (now, what, growth_max) in zip(rows[name], figures(found[name])):
            if now > before * growth_max:
                grown.append(f'by more than {growth_max - 1:.0%}: {name}, {what}: {before:g} before, {now:g} now')
    for line in grown:
        print(f'grown {line}')
    if grown:
        print(f'make it cheaper, or change {path.name} in the same commit (--write) and say why there')
    return 1 if grown else 0


def figures(steady):
    """What is held: the figure, what it is, and by how much it may be more."""
    return (round(steady.instructions), 'instructions', INSTRUCTIONS_MAX), (round(steady.kib(), 1), 'KiB of code', CODE_MAX)


def write(found, path):
    head = ('# User space per request, instructions and KiB of code lines touched: '
            'bench/instructions.py --binary target/release/weir --write FILE\n')
    rows = [('counted with', environment())] + [(name, *(f'{n:g}' for n, _, _ in figures(s))) for name, s in found.items()]
    path.write_text(head + ''.join('\t'.join(row) + '\n' for row in rows))


def row(name, ours, peers):
    """A line of the table: instructions and KiB, and each beside the peer's."""
    line = f'{name:14}'
    for mine, other, digits in ((ours.instructions, peers and peers.instructions, 0), (ours.kib(), peers and peers.kib(), 1)):
        line += f' {mine:12.{digits}f}'
        line += f' {other:8.{digits}f} {other / mine:6.2f}' if peers else ''
    return line


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--peer', help='another program, measured beside it')
    ap.add_argument('--only', default='', help='these scenarios, separated by commas')
    ap.add_argument('--functions', type=int, default=0, metavar='N', help='the functions with most lines')
    ap.add_argument('--check', type=Path, metavar='FILE', help='fail when a scenario has grown')
    ap.add_argument('--write', type=Path, metavar='FILE', help='keep the figures')
    return ap.parse_args()


def main():
    a = arguments()
    missing = [tool for tool in ('valgrind', 'openssl') if not shutil.which(tool)]
    if missing:
        print(f'skipped: {", ".join(missing)} is not installed')
        return 0
    names = [n for n in a.only.split(',') if n] or list(SCENARIOS)
    origin, found = Origin(), {}
    peer = f' {"peer":>8} {"ratio":>6}' if a.peer else ''
    print(f'{"per request":14} {"instructions":>12}{peer} {"KiB of code":>12}{peer}')
    for name in names:
        with tempfile.TemporaryDirectory(prefix='instructions-') as tmp:
            work = Path(tmp)
            prepare(work)
            found[name] = measure(a.binary, name, work, origin)
            print(row(name, found[name], measure(a.peer, name, work, origin) if a.peer else None), flush=True)
        for lines, cost, function in found[name].functions()[:a.functions]:
            print(f'{lines:6} lines {cost:7.0f} instructions  {function}', flush=True)
    if a.write:
        write(found, a.write)
    return check(found, a.check) if a.check else 0


if __name__ == '__main__':
    sys.exit(main())
