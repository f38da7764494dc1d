#!/usr/bin/env python3
"""Memory that a connection costs while it waits, for any binary that reads nginx.conf.

    idle.py --binary target/release/weir [--peer nginx] [--only plain,tls] [--conns 8000]
    idle.py --binary target/release/weir --check bench/idle.tsv
    idle.py --binary target/release/weir --only plain --conns 100000

Opens so many connections, has each answered once where its kind asks for it, and lets them all
wait.  The figure is the growth of the serving process' proportional set size (PSS of
/proc/PID/smaps_rollup) divided by the connections, taken when two readings a second apart are
alike.  The first connections are made and closed before the first reading, so that what a worker
has once is not counted.  Where one process may not have so many descriptors (ulimit -n), as many
processes of the program as it takes share the connections, and the figure is that of all of them.

--check fails when a kind costs over a tenth more than the file says.
Needs: Linux, openssl for the kinds over TLS.
Loopback only, a fixed number of connections.
"""
import argparse, os, re, resource, select, shutil, signal, socket, ssl, subprocess, sys, tempfile, time
from multiprocessing import Pipe, Process
from pathlib import Path
from clients import frame, free_port, wait_for_port
from instructions import environment

CONNECTIONS = 8000
WARM = 64
CLIENTS = 4
SPARE_FILES = 200
WAIT_SECS = 60
SETTLE_SECS = 15
ALIKE_BYTES = 16 * 1024
GROWTH_MAX = 1.1

MAIN = '''user root; worker_processes 1; daemon off; master_process off; pid @DIR@/pid;
error_log @DIR@/err error; worker_rlimit_nofile @FILES@;
events { worker_connections @FILES@; }
http { access_log off; keepalive_timeout 1200s; client_header_timeout 1200s; client_body_timeout 1200s;
proxy_read_timeout 1200s; proxy_send_timeout 1200s; ssl_certificate @DIR@/cert.pem; ssl_certificate_key @DIR@/key.pem;
server { listen 127.0.0.1:@PORT@@LISTEN@; @H2@ location / { return 200 "OK\\n"; }
location /ws { proxy_pass http://127.0.0.1:@UP@; proxy_http_version 1.1;
proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }
stream { server { listen 127.0.0.1:@STREAM@; proxy_pass 127.0.0.1:@UP@; } }
'''

REQUEST = b'GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: idle\r\nAccept: */*\r\n\r\n'
UPGRADE = (b'GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
           b'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n')
SWITCHED = b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'


def receive_until(sock, end):
    text = b''
    while end not in text:
        data = sock.recv(65536)
        if not data:
            raise SystemExit('the connection was closed')
        text += data


def plain(sock):
    sock.sendall(REQUEST)
    receive_until(sock, b'OK\n')


def partial(sock):
    plain(sock)
    sock.sendall(REQUEST[:40])


def websocket(sock):
    sock.sendall(UPGRADE)
    receive_until(sock, b'\r\n\r\n')
    sock.sendall(b'ping')
    receive_until(sock, b'ping')


def h2(sock):
    sock.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b''))
    block = b'\x82\x84\x86' + b'\x01\x09localhost' + b'\x40\x0auser-agent\x04idle'
    sock.sendall(frame(1, 5, 1, block) + frame(4, 1, 0, b''))
    receive_until(sock, b'OK\n')


# name: (what stands behind the port in `listen`, http2, TLS with this protocol, what each connection does, sockets)
KINDS = {
    'plain': ('', False, None, plain, 1),
    'partial': ('', False, None, partial, 1),
    'silent': ('', False, None, lambda _: None, 1),
    'tls': (' ssl', False, 'http/1.1', plain, 1),
    'h2': ('', True, None, h2, 1),
    'h2_tls': (' ssl', True, 'h2', h2, 1),
    'websocket': ('', False, None, websocket, 2),
    'stream': ('', False, None, websocket, 2),
}


def connections(pipe, port, kind, first, count):
    """Opens connections and keeps them until it is told to end."""
    _, _, protocol, act, _ = KINDS[kind]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol or 'http/1.1'])
    kept = []
    for n in range(first, first + count):
        # Addresses in turns: one alone has no more ports than some 28,000.
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_IP, getattr(socket, 'IP_BIND_ADDRESS_NO_PORT', 24), 1)
        sock.bind((f'127.0.1.{1 + n // 20000}', 0))
        sock.settimeout(WAIT_SECS)
        sock.connect(('127.0.0.1', port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if protocol:
            sock = context.wrap_socket(sock)
        act(sock)
        kept.append(sock)
    pipe.send('open')
    pipe.recv()
    os._exit(0)


def echo(pipe):
    """A server that switches protocols and says everything again."""
    listener = socket.create_server(('127.0.0.1', 0), backlog=1024)
    pipe.send(listener.getsockname()[1])
    poll, conns = select.epoll(), {}
    poll.register(listener, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                conn = listener.accept()[0]
                conns[conn.fileno()] = [conn, False]
                poll.register(conn, select.EPOLLIN)
                continue
            conn, open_ = conns[fd]
            try:
                data = conn.recv(65536)
            except ConnectionResetError:
                data = b''
            if not data:
                poll.unregister(conn)
                conns.pop(fd)[0].close()
            else:
                conns[fd][1] = True
                conn.sendall(data if open_ else SWITCHED)


def files_max():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def parts(count, most):
    """The numbers of as few as have so many together, none more than that."""
    n = -(-count // most)
    return [count // n + (i < count % n) for i in range(n)]


class Clients:
    def __init__(self, port, kind, count):
        self.each, first = [], 0
        for part in parts(count, min(-(-count // CLIENTS), files_max() - SPARE_FILES)):
            mine, theirs = Pipe()
            child = Process(target=connections, args=(theirs, port, kind, first, part), daemon=True)
            child.start()
            self.each.append((child, mine))
            theirs.close()
            first += part

    def wait(self, kind):
        for child, pipe in self.each:
            try:
                pipe.recv()
            except EOFError:
                raise SystemExit(f'{kind}: a client failed') from None

    def close(self):
        for child, pipe in self.each:
            pipe.send('end')
            child.join()


def pss_bytes(pid):
    text = Path(f'/proc/{pid}/smaps_rollup').read_text()
    return int(re.search(r'^Pss: +(\d+)', text, re.M)[1]) * 1024


def settled(servers):
    """Bytes once they move no more."""
    def now():
        return sum(pss_bytes(s.process.pid) for s in servers)
    last, end = now(), time.monotonic() + SETTLE_SECS
    while time.monotonic() < end:
        time.sleep(1)
        bytes_ = now()
        if abs(bytes_ - last) <= ALIKE_BYTES * len(servers):
            return bytes_
        last = bytes_
    return last


class Server:
    def __init__(self, binary, kind, count, work, up):
        listen, http2, _, _, sockets = KINDS[kind]
        port, stream = free_port(), free_port()
        text, files = MAIN, count * sockets + SPARE_FILES
        values = {'@DIR@': work, '@PORT@': port, '@STREAM@': stream, '@LISTEN@': listen, '@UP@': up, '@FILES@': files, '@H2@': 'http2 on;' if http2 else ''}
        for key, value in values.items():
            text = text.replace(key, str(value))
        (work / 'nginx.conf').write_text(text)
        (work / 'logs').mkdir()
        command = [str(binary), '-p', str(work), '-c', str(work / 'nginx.conf')]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.count, self.port = count, stream if kind == 'stream' else port
        wait_for_port(self.process, port)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(WAIT_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def certificate(work):
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30',
                    '-subj', '/CN=localhost', '-keyout', work / 'key.pem', '-out', work / 'cert.pem'], check=True, capture_output=True)


def measure(binary, kind, count, tmp, up):
    servers, clients = [], []
    try:
        for part in parts(count, (files_max() - SPARE_FILES) // KINDS[kind][4]):
            work = tmp / str(len(servers))
            work.mkdir()
            certificate(work)
            servers.append(Server(binary, kind, part, work, up))
        for s in servers:
            warm = Clients(s.port, kind, WARM)
            warm.wait(kind)
            warm.close()
        before = settled(servers)
        clients = [Clients(s.port, kind, s.count) for s in servers]
        for c in clients:
            c.wait(kind)
        each = (settled(servers) - before) / count
        for c in clients:
            c.close()
        return each
    finally:
        for s in servers:
            s.end()


def check(figures, path):
    rows = [line.split('\t') for line in path.read_text().splitlines() if line and not line.startswith('#')]
    if rows[0][1] != environment():
        print(f'skipped: the figures in {path.name} were taken with {rows[0][1]}; this is {environment()}')
        return 0
    grown = [f'{name}: {before} before, {figures[name]:.0f} now' for name, before in rows[1:]
             if name in figures and figures[name] > float(before) * GROWTH_MAX]
    for line in grown:
        print(f'grown by more than {GROWTH_MAX - 1:.0%}: {line}')
    return 1 if grown else 0


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--peer', help='another program, measured beside it')
    ap.add_argument('--only', default='', help='these kinds, separated by commas')
    ap.add_argument('--conns', type=int, default=CONNECTIONS, help='connections at once')
    ap.add_argument('--check', type=Path, metavar='FILE', help='fail when a kind has grown')
    ap.add_argument('--write', type=Path, metavar='FILE', help='keep the figures')
    a = ap.parse_args()
    if not shutil.which('openssl'):
        raise SystemExit('openssl is not installed')
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max(), files_max()))
    pipe, theirs = Pipe()
    Process(target=echo, args=(theirs,), daemon=True).start()
    up, figures = pipe.recv(), {}
    print(f'{"bytes a connection":20} {a.binary.name:>10}' + (f' {"peer":>10}' if a.peer else ''))
    for kind in [n for n in a.only.split(',') if n] or list(KINDS):
        # The servers behind it are one process, of this program.
        most = files_max() - SPARE_FILES
        if KINDS[kind][4] > 1 and a.conns > most:
            print(f'{kind:20} skipped: it takes {a.conns} descriptors in one process, and ulimit -n allows {files_max()}')
            continue
        line = ''
        for binary in filter(None, (a.binary, a.peer)):
            with tempfile.TemporaryDirectory(prefix='idle-') as tmp:
                each = measure(binary, kind, a.conns, Path(tmp), up)
            figures.setdefault(kind, each)
            line += f' {each:10.0f}'
        print(f'{kind:20}{line}', flush=True)
    if a.write:
        rows = [('taken with', environment())] + [(name, f'{n:.0f}') for name, n in figures.items()]
        head = '# Bytes of memory for a connection that waits: bench/idle.py --binary target/release/weir --write FILE\n'
        a.write.write_text(head + ''.join('\t'.join(row) + '\n' for row in rows))
    return check(figures, a.check) if a.check else 0


if __name__ == '__main__':
    sys.exit(main())
