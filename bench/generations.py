#!/usr/bin/env python3
"""Measure the memory of a server after its start and after each of several reloads.

    generations.py --binary target/release/weir [--servers 3000] [--tls] [--locations 3] [--reloads 10]
                   [--idle 200] [--h2 20] [--ask] [--workers 2] [--no-master]
    generations.py --binary target/release/weir --peer nginx --sizes 10,1000,10000,100000 --locations 3 --reloads 2

Starts the program on a configuration of its own with so many servers (names on one address, with a
certificate each when `--tls`), reloads it again and again, and prints in MB the proportional set size
(`Pss` in /proc/PID/smaps_rollup) of the whole tree of processes: after the start, the largest seen while
a reload ran, and what it came down to afterwards; and the time, with the CPU time of all of them.  A reload is over when fresh connections are answered by
the new configuration only; then the memory is read until it is the same three times, for at most
`--settle` seconds.

    --idle N    kept-alive connections that have asked once, before the first reload, and wait
    --h2 N      HTTP/2 connections that have asked once and wait
    --ask       the waiting HTTP/1 connections ask once again after each reload

With `--sizes` there is one row for each number of servers and program: seconds and CPU time of `-t` with
the largest resident set, the same of the start (until it answers) with the memory after it, of the slowest
reload, the largest memory during the last (in which time does not count, if there are others) and the memory after
it, and what a byte of the text costs in CPU time of `-t` and in memory: what grows no
faster than the text stays the same from row to row.  The first number of servers is taken off as what a
program costs without any.

Any program that reads nginx.conf and reloads on SIGHUP will do.  Loopback only; needs Python 3, `openssl`
for `--tls`, and the right to read the processes' smaps.
"""
import argparse, concurrent.futures, os, pathlib, shutil, signal, socket, ssl, subprocess, sys, tempfile, time

PATIENCE_SECS = 600
FRESH_IN_A_ROW = 8
# Of so many starts and -t the shortest counts, and of more while they take no longer together.
STARTS_MIN, STARTS_MAX, STARTS_SECS = 3, 30, 2
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes.fromhex('000000040000000000')
# HEADERS of stream 1: GET, http, /, and :authority "a" as a literal.
H2_REQUEST = bytes.fromhex('000006010500000001') + bytes.fromhex('828684410161')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def certificate(dir_, i):
    subprocess.run(['openssl', 'req', '-x509', '-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256',
                    '-subj', f'/CN=h{i}', '-days', '30', '-keyout', f'{dir_}/{i}.key', '-out', f'{dir_}/{i}.crt'],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def conf(args, turn, port, dir_):
    user = 'user root;' if os.geteuid() == 0 else ''
    master = 'master_process off;' if args.no_master else ''
    out = [f'{user} {master} daemon off; worker_processes {args.workers}; pid {dir_}/pid; '
           f'error_log {dir_}/error.log notice;\nevents {{ worker_connections 4096; }}\n'
           'http { access_log off; keepalive_timeout 600s; keepalive_requests 1000000; http2 on; '
           'server_names_hash_max_size 1048576; server_names_hash_bucket_size 128;\n'
           f'server {{ listen 127.0.0.1:{port}; server_name front; return 200 {turn:08}; }}\n']
    for i in range(args.servers):
        tls = f' ssl; ssl_certificate {args.certs}/{i}.crt; ssl_certificate_key {args.certs}/{i}.key' if args.tls else ''
        more = ''.join(f' location /l{n}/ {{ {args.inside} }}' for n in range(args.locations))
        out.append(f'server {{ listen 127.0.0.1:{port + bool(args.tls)}{tls}; server_name h{i};{more} }}\n')
    return ''.join(out) + '}\n'


def tree(pid):
    """The process and all below it."""
    parents = {}
    for p in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            parents.setdefault(int((p / 'stat').read_text().rsplit(')', 1)[1].split()[1]), []).append(int(p.name))
        except OSError:
            pass
    todo, out = [pid], []
    while todo:
        out.append(todo.pop())
        todo += parents.get(out[-1], [])
    return out


def pss_mb(pid):
    total = 0
    for p in tree(pid):
        try:
            for line in pathlib.Path(f'/proc/{p}/smaps_rollup').read_text().splitlines():
                if line.startswith('Pss:'):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


def cpu_secs(pid):
    """CPU time of the tree so far, that of processes that have ended included."""
    ticks = 0
    for p in tree(pid):
        try:
            ticks += sum(map(int, pathlib.Path(f'/proc/{p}/stat').read_text().rsplit(')', 1)[1].split()[11:15]))
        except OSError:
            pass
    return ticks / os.sysconf('SC_CLK_TCK')


def settled_mb(pid, settle):
    last, same, end = -1.0, 0, time.monotonic() + settle
    while same < 3 and time.monotonic() < end:
        time.sleep(0.25)
        now = pss_mb(pid)
        same = same + 1 if abs(now - last) < 0.2 else 0
        last = now
    return last


def ask(c):
    c.sendall(b'GET / HTTP/1.1\r\nHost: front\r\n\r\n')
    seen = b''
    while not (seen.find(b'\r\n\r\n') >= 0 and len(seen) >= seen.find(b'\r\n\r\n') + 12):
        piece = c.recv(4096)
        if not piece:
            return None
        seen += piece
    return seen[-8:]


def connect(port):
    return socket.create_connection(('127.0.0.1', port), PATIENCE_SECS)


def wait_for(port, child, turn, pid, watched=True):
    """Until only the new configuration answers; the largest memory seen, and the seconds it took.  Watching takes
    CPU time and stops what is watched, tens of milliseconds for a small process: no time is taken of it."""
    begin, row, peak = time.monotonic(), 0, 0.0
    while row < FRESH_IN_A_ROW:
        if child.poll() is not None or time.monotonic() - begin > PATIENCE_SECS:
            sys.exit(f'configuration {turn} does not answer')
        try:
            with connect(port) as c:
                row = row + 1 if ask(c) == b'%08d' % turn else 0
        except OSError:
            row = 0
        if row == 0:
            peak = max(peak, pss_mb(pid) if watched else 0)
            time.sleep(0.02 if watched else 0.001)
    return peak, time.monotonic() - begin


def h2_connection(port, tls_port):
    if tls_port is None:
        c = connect(port)
    else:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(['h2'])
        c = context.wrap_socket(connect(tls_port), server_hostname='h0')
    c.sendall(PREFACE + H2_REQUEST)
    c.recv(65536)
    return c


def start(args, dir_, binary):
    """The text, the program on it, and the seconds until it has answered."""
    port, path = args.port or free_port(), pathlib.Path(dir_, 'nginx.conf')
    path.write_text(conf(args, 0, port, dir_))
    begin = time.monotonic()
    child = subprocess.Popen([binary, '-p', dir_, '-c', str(path), '-e', f'{dir_}/error.log'])
    try:
        wait_for(port, child, 0, child.pid, watched=False)
    except BaseException:
        stop(child)
        raise
    return port, path, child, time.monotonic() - begin


def again_and_again():
    """A turn each time that something is to be measured once more."""
    begin = time.monotonic()
    for turn in range(STARTS_MAX):
        if turn < STARTS_MIN or time.monotonic() - begin < STARTS_SECS:
            yield turn


def started(args, dir_, binary):
    """The last of several starts, and the shortest time."""
    shortest, last = float('inf'), None
    for turn in again_and_again():
        if last:
            stop(last[2])
        last = start(args, dir_, binary)
        shortest = min(shortest, last[3])
    return *last[:3], shortest


def stop(child):
    child.send_signal(signal.SIGTERM)
    child.wait(PATIENCE_SECS)


def reload(args, dir_, port, path, child, turn, watched=True):
    path.write_text(conf(args, turn, port, dir_))
    child.send_signal(signal.SIGHUP)
    return wait_for(port, child, turn, child.pid, watched)


def run(args, dir_):
    port, path, child, took = start(args, dir_, args.binary)
    try:
        idle = [connect(port) for _ in range(args.idle)]
        for c in idle:
            ask(c)
        h2 = [h2_connection(port, port + 1 if args.tls else None) for _ in range(args.h2)]
        first = now = settled_mb(child.pid, args.settle)
        spent = cpu_secs(child.pid)
        print(f'start      {first:8.1f} MB  {took:5.1f} s  cpu {spent:5.1f} s', flush=True)
        for turn in range(1, args.reloads + 1):
            peak, took = reload(args, dir_, port, path, child, turn)
            for c in idle if args.ask else []:
                ask(c)
            now = settled_mb(child.pid, args.settle)
            before, spent = spent, cpu_secs(child.pid)
            print(f'reload {turn:3} {now:8.1f} MB  {took:5.1f} s  cpu {spent - before:5.1f} s  peak {max(peak, now):8.1f}  x {now / first:.2f}', flush=True)
        del idle, h2
        return now / first
    finally:
        stop(child)


def tested(dir_, binary):
    """Seconds, CPU seconds and largest resident set of `-t`, the best of several."""
    best = None
    for _ in again_and_again():
        begin = time.monotonic()
        child = subprocess.Popen([binary, '-t', '-q', '-p', dir_, '-c', f'{dir_}/nginx.conf', '-e', f'{dir_}/error.log'])
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f'{binary} -t failed')
        this = time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        best = this if best is None else tuple(map(min, best, this))
    return best


def sizes(args, dir_):
    print(f'{"":10} {"servers":>8} {"text":>9} {"-t":>8} {"cpu":>8} {"largest":>9} {"start":>8} {"cpu":>7} {"after":>9} '
          f'{"reload":>8} {"cpu":>7} {"peak":>9} {"after":>9} {"ns/byte":>8} {"B/byte":>7}')
    least = {}
    for args.servers in map(int, args.sizes.split(',')):
        for binary in filter(None, (args.binary, args.peer)):
            port, path, child, took = started(args, dir_, binary)
            try:
                first = last = settled_mb(child.pid, args.settle)
                begun, spent, peak, longest = cpu_secs(child.pid), 0.0, first, 0.0
                for turn in range(1, args.reloads + 1):
                    before, is_last = cpu_secs(child.pid), turn == args.reloads
                    high, secs = reload(args, dir_, port, path, child, turn, watched=is_last)
                    peak = max(peak, high)
                    if not is_last or args.reloads == 1:
                        spent, longest = max(spent, cpu_secs(child.pid) - before), max(longest, secs)
                    last = settled_mb(child.pid, args.settle)
            finally:
                stop(child)
            secs, cpu, rss = tested(dir_, binary)
            text = path.stat().st_size
            text0, cpu0, first0 = least.setdefault(binary, (text, cpu, first))
            more = text - text0
            growth = f'{(cpu - cpu0) / more * 1e9:8.0f} {(first - first0) / more * 1048576:7.1f}' if more else ''
            print(f'{pathlib.Path(binary).name:10} {args.servers:8} {text / 1048576:6.2f} MB {secs:6.3f} s {cpu:6.3f} s {rss:6.0f} MB '
                  f'{took:6.3f} s {begun:5.2f} s {first:6.0f} MB {longest:6.3f} s {spent:5.2f} s {peak:6.0f} MB {last:6.0f} MB {growth}', flush=True)


def main():
    p = argparse.ArgumentParser(description='Measure the memory of a server after each of several reloads.')
    p.add_argument('--binary', required=True)
    p.add_argument('--servers', type=int, default=3000)
    p.add_argument('--sizes', help='numbers of servers, a row for each')
    p.add_argument('--peer', help='with --sizes: another program to stand beside it')
    p.add_argument('--locations', type=int, default=0)
    p.add_argument('--inside', default='root /srv;', help='what each location says')
    p.add_argument('--tls', action='store_true')
    p.add_argument('--certs', help='directory of certificates, made there when missing and kept')
    p.add_argument('--reloads', type=int, default=10)
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--idle', type=int, default=0)
    p.add_argument('--h2', type=int, default=0)
    p.add_argument('--ask', action='store_true')
    p.add_argument('--no-master', action='store_true')
    p.add_argument('--settle', type=float, default=8)
    p.add_argument('--port', type=int, help='this and the next (by the kernel)')
    args = p.parse_args()
    dir_ = tempfile.mkdtemp(prefix='weir-generations-')
    os.chmod(dir_, 0o755)
    os.makedirs(f'{dir_}/logs')
    args.certs = args.certs or f'{dir_}/certs'
    try:
        if args.sizes:
            return sizes(args, dir_)
        if args.tls:
            os.makedirs(args.certs, exist_ok=True)
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                missing = (i for i in range(args.servers) if not os.path.exists(f'{args.certs}/{i}.crt'))
                list(pool.map(lambda i: certificate(args.certs, i), missing))
        print(f'{args.binary}: {run(args, dir_):.2f} times the memory after the start')
    finally:
        shutil.rmtree(dir_)


if __name__ == '__main__':
    main()
