#!/usr/bin/env python3
"""Climb the tuning ladder of a reverse proxy, step by step, on weir and on a peer.

    ladder.py --weir target/release/weir [--peer nginx] [--quick] [--write BENCHMARKS.md --svg docs/ladder.svg]

Each step adds a few directives to the step before.  Both programs read the same text, run on
their own ports and the same CPUs, and get the load one after the other.  A round is the whole
ladder, so that a machine that grows slower does so for every step.  The upstream has a port for
each of the two, and CPUs that the servers do not use.  Printed are medians over the rounds:
answers per second (2xx and 3xx only), mean latency with its standard deviation, CPU time per
answer and how busy the servers' CPUs were; and sums over the rounds: socket errors and other
statuses.

A second table is the reuseport measurement: accept_mutex on, off, and `listen ... reuseport`,
answering the string OK from several workers, with the evenness over the workers: the client
connections that each holds in the middle of a round (what its epoll instance watches) and the
CPU time of each.  That way counts a worker that is a process and one that is a thread alike.

A third table is the upstream's `keepalive 128` with fewer and with more clients than that: CPU time
per answer, and how many connections the upstream has accepted for a hundred requests (its own count,
`stub_status`): over the whole round, with the first connection of every client, and over its second half.

A step that a program refuses has a row with its message; the steps after it run without that
part on that program, and say so.  Needs: Linux, root, wrk, curl, taskset, an nginx.  Loopback
only; every load is bounded in time.
"""
import argparse, os, platform, re, shutil, statistics, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
from compare import cpu_ns, start, stop, tree  # noqa: E402

WHO = ('weir', 'peer')
UP_PORT = {'weir': 18300, 'peer': 18301}
STATUS_PORT = 18302
MARK = '<!-- ladder -->'
# Upstream connections as nginx made them before 1.29.7: one for each request.  Since then (and in
# Weir) HTTP/1.1 and 32 kept connections are the defaults, and the keepalive step would show nothing.
ONE_EACH = 'proxy_http_version 1.0; proxy_set_header Connection close;'

# key, label, what it puts into which slot of the configuration.  A slot is replaced, not added to.
STEPS = [
    ('default', 'defaults', {}),
    ('connections', 'worker_connections 100000', {'connections': 'worker_connections 100000;'}),
    ('auto', 'worker_processes auto', {'processes': 'worker_processes @AUTO@;'}),
    ('keepalive', 'upstream keepalive 128', {
        'upstream': 'keepalive 128;',
        'pass': 'proxy_http_version 1.1; proxy_set_header Connection "";'}),
    ('affinity', 'CPU affinity, priority -20', {
        'main': 'worker_cpu_affinity auto@MASK@; worker_priority -20;'}),
    ('log', 'access log buffer=1m', {'log': 'access_log @DIR@/@NAME@.log combined buffer=1m;'}),
    ('nolog', '(no access log)', {'log': 'access_log off;'}),
    ('cache', 'proxy_cache', {
        'http': 'proxy_cache_path @DIR@/@NAME@.cache levels=1:2 keys_zone=c:10m inactive=60m;',
        'cache': 'proxy_cache c; proxy_cache_valid 200 1h;'}),
    ('gzip', 'gzip level 1', {'gzip': 'gzip on; gzip_comp_level 1;'}),
    ('accept', 'multi_accept, accept_mutex 1ms', {
        'accept': 'multi_accept on; accept_mutex on; accept_mutex_delay 1ms;'}),
]
# Steps that the ones after them do not build on.
ASIDE = {'nolog'}
FIRST = {
    'connections': '', 'processes': 'worker_processes 1;', 'upstream': '', 'pass': ONE_EACH, 'main': '',
    'log': 'access_log @DIR@/@NAME@.log combined;', 'http': '', 'cache': '', 'gzip': '', 'accept': '',
}
CONF = '''@USER@ pid @DIR@/@NAME@.pid; error_log @DIR@/@NAME@.err;
{processes} {main}
events {{ {connections} {accept} }}
http {{
    default_type text/html;
    {log}
    {http} {gzip}
    upstream app {{ server 127.0.0.1:@UP@; {upstream} }}
    server {{
        listen 127.0.0.1:@PORT@;
        location / {{ proxy_pass http://app; {pass} {cache} }}
    }}
}}
'''
UPSTREAM = '''@USER@ pid @DIR@/@NAME@.pid; error_log @DIR@/@NAME@.err; worker_processes @AUTO@;
events { worker_connections 20000; }
http {
    access_log off; default_type text/html; keepalive_requests 1000000000; keepalive_timeout 300s;
    open_file_cache max=100; root @DIR@/html;
    server { listen 127.0.0.1:18300 backlog=4096; listen 127.0.0.1:18301 backlog=4096; }
    server { listen 127.0.0.1:18302; location / { stub_status; } }
}
'''
MODES = [
    ('accept_mutex on', 'accept_mutex on;', ''),
    ('accept_mutex off', 'accept_mutex off;', ''),
    ('reuseport', '', ' reuseport'),
]
# Clients at once where the upstream keeps 128 connections.
CLIENTS = (64, 400, 800, 1000)
# A round begins with as many connects as there are clients; one of some seconds would show little else.
REUSE_SECS = 15
OK_CONF = '''@USER@ pid @DIR@/@NAME@.pid; error_log @DIR@/@NAME@.err; worker_processes @WORKERS@;
events {{ worker_connections 20000; {events} }}
http {{
    access_log off; keepalive_requests 1000000000;
    server {{ listen 127.0.0.1:@PORT@{listen}; location / {{ return 200 "OK"; }} }}
}}
'''


# The machine

def cpu_list(text):
    """CPU numbers of a list as taskset takes it: 0,2-3"""
    found = []
    for part in text.split(','):
        low, _, high = part.partition('-')
        found += range(int(low), int(high or low) + 1)
    return found


def default_cpus():
    """Lists for the servers, the upstream and the load; the last two share one of two CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit('at least two CPUs are needed: one for the servers, one for the load and the upstream')
    half = max(1, len(cpus) // 2)
    rest = cpus[half:]
    split = max(1, len(rest) // 2)
    sets = (cpus[:half], rest[:split], rest[split:] or rest[:split])
    return [','.join(map(str, s)) for s in sets]


def fill(text, a, name, port, up=0, cpus=None):
    """Put this run's values for the @WORDS@ of a configuration."""
    server = cpu_list(a.server_cpus if cpus is None else cpus)
    whole = len(server) == os.cpu_count()
    # nginx's auto counts the CPUs of the machine, Weir's those it may use: where the servers
    # have a part of the machine, the number is written so that both start as many.
    values = {
        'USER': 'user root;' if os.geteuid() == 0 else '',
        'AUTO': 'auto' if whole else len(server),
        'MASK': '' if whole else ' ' + format(sum(1 << c for c in server), 'b'),
        'DIR': a.dir, 'NAME': name, 'PORT': port, 'UP': up, 'WORKERS': a.workers,
    }
    for key, value in values.items():
        text = text.replace(f'@{key}@', str(value))
    return text


def why(a, name):
    """What a program said when it did not start, in one line without this run's paths."""
    text = (a.dir/f'{name}.stderr').read_text(errors='replace')
    error = re.search(r'\[emerg\] (.*)', text) or re.search(r'(\S.*)', text)
    advice = re.search(r'= help: (.*)', text)
    said = re.sub(r' in /\S+:\d+', '', error[1]) if error else 'no message'
    return said.replace(str(a.dir), '').strip() + (f' ({advice[1].strip()})' if advice else '')


# One load

def to_ms(text):
    number, unit = re.fullmatch(r'([\d.]+)(us|ms|s|m|h)', text).groups()
    return float(number) * {'us': .001, 'ms': 1, 's': 1000, 'm': 60e3, 'h': 3600e3}[unit]


def parse(out):
    """What wrk printed, as numbers; None when it printed no result."""
    done = re.search(r'(\d+) requests in ([\d.]+)(ms|s|m)', out)
    latency = re.search(r'Latency\s+(\S+)\s+(\S+)', out)
    if not done or not latency or latency[1].startswith('-'):
        return None
    seconds = to_ms(done[2] + done[3]) / 1000
    errors = re.search(r'Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)', out)
    refused = re.search(r'Non-2xx or 3xx responses: (\d+)', out)
    bad = int(refused[1]) if refused else 0
    good = int(done[1]) - bad
    return {
        'good': good, 'rps': good / seconds, 'mean': to_ms(latency[1]), 'stdev': to_ms(latency[2]),
        'socket': sum(map(int, errors.groups())) if errors else 0, 'status': bad,
    }


def load(a, port, path, secs, watch=None):
    """One bounded wrk; `watch` is called in the middle of it."""
    threads = len(cpu_list(a.load_cpus))
    wrk = subprocess.Popen(
        ['taskset', '-c', a.load_cpus, 'wrk', f'-t{threads}', f'-c{a.conns}', f'-d{secs}s',
         '-H', 'Accept-Encoding: gzip', f'http://127.0.0.1:{port}{path}'],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if watch:
        time.sleep(secs / 2)
        watch()
    return parse(wrk.communicate(timeout=secs + 30)[0])


def round_of(a, proc, port, path, watch=None):
    """One measured load on a program that just started; a single request goes before."""
    subprocess.run(['curl', '-s', '-o', os.devnull, '-m', '5', f'http://127.0.0.1:{port}{path}'])
    before, clock = cpu_ns(proc.pid), time.monotonic()
    row = load(a, port, path, a.secs, watch)
    spent, clock = cpu_ns(proc.pid) - before, time.monotonic() - clock
    if not row:
        return {'message': 'no answer to any request'}
    busy = 100 * spent / 1e9 / clock / len(cpu_list(a.server_cpus))
    return row | {'us': spent / max(row['good'], 1) / 1000, 'busy': busy}


def middle(key, values):
    """Sums of what went wrong, medians of the rest."""
    if key in ('socket', 'status'):
        return sum(values)
    if isinstance(values[0], list):
        return [statistics.median(x) for x in zip(*values)]
    return values[0] if key == 'without' else statistics.median(values)


def rounds(a, once):
    """All steps, then all again: a machine that grows slower does so for every step."""
    runs = [once(a, turn) for turn in range(a.rounds)]
    out = []
    for same in zip(*runs):
        got = {}
        for who in WHO:
            rows = [row[who] for _, row in same]
            failed = [r for r in rows if 'message' in r]
            got[who] = failed[0] if failed else {k: middle(k, [r[k] for r in rows]) for k in rows[0]}
        out.append((same[0][0], got))
    return out


# The ladder

def on_both(a, texts, ports, label, turn, measure):
    """Start both on their text, measure one after the other; who begins changes by the round."""
    procs, got = start_both(a, texts, ports, label)
    try:
        for who in sorted(procs, reverse=turn % 2 == 0):
            got[who] = measure(procs[who], ports[who])
    finally:
        for proc in procs.values():
            stop(proc)
        for log in a.dir.glob('*.log'):
            log.unlink()
    return got


def start_both(a, texts, ports, label):
    """Processes of those that started, messages of those that did not."""
    procs, messages = {}, {}
    for who in texts:
        name = f'{who}-{label}'
        text = fill(texts[who], a, name, ports[who], UP_PORT[who])
        proc = start(getattr(a, who), text, name, a.dir, ports[who], a.server_cpus)
        if proc:
            procs[who] = proc
        else:
            messages[who] = {'message': why(a, name), 'refused': True}
    return procs, messages


def climb(a, turn):
    """Each step once: (label, {who: figures or message, and what the program runs without})."""
    slots = {who: dict(FIRST) for who in WHO}
    without = {who: '' for who in WHO}
    out = []
    for at, (key, label, part) in enumerate(STEPS):
        ports = {'weir': 18310 + 2 * at, 'peer': 18311 + 2 * at}
        texts = {who: CONF.format(**slots[who] | part) for who in WHO}
        got = on_both(a, texts, ports, key, turn, lambda proc, port: round_of(a, proc, port, '/1k.html'))
        for who in WHO:
            got[who]['without'] = without[who]
            if got[who].get('refused'):
                without[who] += f' without {label}'
            elif key not in ASIDE:
                slots[who] |= part
        out.append((label, got))
        progress(turn, label, got)
    return out


def progress(turn, label, got):
    for who in WHO:
        row = got[who]
        text = row.get('message') or f'{row["rps"]:9.0f}/s {row["mean"]:8.2f} ms +- {row["stdev"]:<8.2f}' \
            f' socket errors {row["socket"]}, other statuses {row["status"]}, CPU {row["busy"]:.0f} %'
        print(f'{turn + 1} {label:32} {who:5} {text}', file=sys.stderr, flush=True)


# The reuseport measurement

def client_inodes(port):
    """Inodes of the established connections that were accepted on this port."""
    found = set()
    for line in Path('/proc/net/tcp').read_text().splitlines()[1:]:
        field = line.split()
        if int(field[1].split(':')[1], 16) == port and field[3] == '01':
            found.add(int(field[9]))
    return found


def held(pid, port, workers):
    """Client connections of each worker: what each epoll instance of the process tree watches."""
    ours, sets = client_inodes(port), set()
    for p in tree(pid):
        for info in Path(f'/proc/{p}/fdinfo').glob('*'):
            try:
                inodes = re.findall(r'^tfd:.* ino:([0-9a-f]+)', info.read_text(), re.M)
            except OSError:
                continue
            watched = frozenset(int(i, 16) for i in inodes) & ours
            # Two descriptors of one instance show the same set.
            if watched:
                sets.add(watched)
    counts = [len(s) for s in sets]
    return sorted(counts + [0] * (workers - len(counts)))


def worker_times(pid):
    """CPU time of each worker: threads named so, or else the children of the first process."""
    threads, children = {}, {}
    for p in tree(pid):
        for task in Path(f'/proc/{p}/task').glob('*'):
            try:
                spent = int((task/'schedstat').read_text().split()[0])
                if (task/'comm').read_text().startswith('worker '):
                    threads[task.name] = spent
            except OSError:
                continue
            if p != pid:
                children[p] = children.get(p, 0) + spent
    return threads or children


def shares(before, after):
    spent = [after[k] - before.get(k, 0) for k in after]
    return sorted(100 * s / max(sum(spent), 1) for s in spent)


def accepting(a, turn):
    """Each way of accepting once, with what each worker holds and does."""
    def measure(proc, port):
        seen, before = [], worker_times(proc.pid)
        row = round_of(a, proc, port, '/', lambda: seen.append(held(proc.pid, port, a.workers)))
        return row | {'cpu': shares(before, worker_times(proc.pid)), 'conns': seen[0]}

    out = []
    for at, (label, events, listen) in enumerate(MODES):
        ports = {'weir': 18350 + 2 * at, 'peer': 18351 + 2 * at}
        texts = {who: OK_CONF.format(events=events, listen=listen) for who in WHO}
        got = on_both(a, texts, ports, f'mode{at}', turn, measure)
        out.append((label, got))
        progress(turn, label, got)
    return out


# The connections to the upstream

def counted():
    """Connections and requests that the upstream has had, this one among them."""
    with urllib.request.urlopen(f'http://127.0.0.1:{STATUS_PORT}/', timeout=10) as answer:
        text = answer.read().decode()
    accepted, requests = re.search(r'\n\s*(\d+)\s+\d+\s+(\d+)', text).groups()
    return int(accepted), int(requests)


def per_hundred(before, after):
    """Connects per hundred requests between two counts, of which one is both itself."""
    accepted, requests = (b - a - 1 for a, b in zip(before, after))
    return 100 * accepted / max(requests, 1)


def reusing(a, turn):
    """`keepalive 128` with each number of clients: figures, and what the upstream has accepted."""
    secs = a.secs if a.quick else max(a.secs, REUSE_SECS)

    def measure(proc, port):
        counts = [counted()]
        of_count = argparse.Namespace(**vars(a) | {'conns': count, 'secs': secs})
        row = round_of(of_count, proc, port, '/1k.html', lambda: counts.append(counted()))
        counts.append(counted())
        # The one in the middle counts itself too.
        first, middle, last = counts[0], counts[1], counts[2]
        whole = per_hundred((first[0] + 1, first[1] + 1), last)
        return row | {'connects': whole, 'later': per_hundred(middle, last)}

    slots = dict(FIRST)
    for key, _, part in STEPS:
        if key in ('connections', 'keepalive', 'nolog'):
            slots |= part
    out = []
    for at, count in enumerate(CLIENTS):
        ports = {'weir': 18360 + 2 * at, 'peer': 18361 + 2 * at}
        texts = {who: CONF.format(**slots) for who in WHO}
        got = on_both(a, texts, ports, f'reuse{count}', turn, measure)
        if all('us' in row for row in got.values()):
            for row in got.values():
                row['ratio'] = got['peer']['us'] / row['us']
        out.append((f'{count} clients', got))
        progress(turn, out[-1][0], got)
    return out


# What is printed

def version(binary):
    out = subprocess.run([binary, '-v'], capture_output=True, text=True)
    found = re.search(r'version: (\S+)', out.stderr + out.stdout)
    return found[1] if found else 'unknown version'


def head(a):
    cpu = re.search(r'^model name\s*: (.*)', Path('/proc/cpuinfo').read_text(), re.M)
    return (f'{a.rounds} round{"s" * (a.rounds > 1)} of {a.secs} s for each program, `wrk` with {a.conns} connections. '
            f'{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release().split("-")[0]}: '
            f'servers on CPU {a.server_cpus}, upstream on {a.upstream_cpus}, load on {a.load_cpus}. '
            f'Beside {version(a.peer)}.')


def figures(row):
    return [f'{row["rps"]:,.0f}', f'{row["mean"]:.2f}', f'{row["stdev"]:.2f}', f'{row["us"]:.1f}',
            f'{row["busy"]:.0f}', f'{row["socket"]:,}', f'{row["status"]:,}']


def line(cells):
    return '| ' + ' | '.join(cells) + ' |'


def clean(text):
    return text.replace('|', '\\|')


def table(a, first, results, extra=()):
    titles = ['req/s', 'mean ms', 'stdev ms', 'CPU us/req', 'CPU %', 'socket errors', 'non-2xx']
    out = [line([first, 'server', *titles, *(t for t, _ in extra)])]
    out.append(line(['---'] * (2 + len(titles) + len(extra))))
    for label, got in results:
        for who in WHO:
            row, name = got[who], a.names[who]
            name += row.get('without', '')
            if 'message' in row:
                cells = [clean(row['message'])] + [''] * (len(titles) + len(extra) - 1)
            else:
                cells = figures(row) + [cell(row) for _, cell in extra]
            out.append(line([f'`{label}`' if who == 'weir' else '', name, *cells]))
    return out


def spread(values, digits):
    return ' / '.join(f'{v:.{digits}f}' for v in values)


def accepting_text(a, modes):
    extra = [('connections', lambda r: spread(r['conns'], 0)), ('share of CPU %', lambda r: spread(r['cpu'], 0))]
    return [f'Accepting, {a.workers} workers, `return 200 "OK"`; connections and CPU time of each worker,'
            ' the least loaded first:', '', *table(a, 'mode', modes, extra)]


def reusing_text(a, reuse):
    fewest = {who: next((got[who]['us'] for _, got in reuse if 'us' in got[who]), 0) for who in WHO}
    for _, got in reuse:
        for who in WHO:
            got[who]['growth'] = got[who].get('us', 0) / (fewest[who] or 1)
    extra = [('connects / 100 req', lambda r: f'{r["connects"]:.2f}'),
             ('second half', lambda r: f'{r["later"]:.2f}'),
             (f'CPU to {CLIENTS[0]} clients', lambda r: f'{r["growth"]:.2f}'),
             ('CPU nginx to this', lambda r: f'{r["ratio"]:.2f}' if 'ratio' in r else '')]
    return [f'`keepalive 128` and as many clients at once, one worker, no log, rounds of {REUSE_SECS} s or more; the'
            ' connections that the upstream has accepted:', '', *table(a, 'clients', reuse, extra)]


def markdown(a, ladder, modes, reuse):
    parts = [[head(a)], ladder and table(a, 'step', ladder), modes and accepting_text(a, modes),
             reuse and reusing_text(a, reuse)]
    return '\n\n'.join('\n'.join(part) for part in parts if part) + '\n'


STYLE = '''
 .b { fill: #ffffff } .t { fill: #1f2328 } .m { fill: #59636e } .g { stroke: #d1d9e0 }
 .weir { fill: #0969da } .peer { fill: #9a6700 } .s-weir { stroke: #0969da } .s-peer { stroke: #9a6700 }
 text { font: 12px system-ui, sans-serif } .h { font-weight: 600 } .n { font-size: 11px }
 @media (prefers-color-scheme: dark) {
  .b { fill: #0d1117 } .t { fill: #f0f6fc } .m { fill: #9198a1 } .g { stroke: #3d444d }
  .weir { fill: #4493f8 } .peer { fill: #d29922 } .s-weir { stroke: #4493f8 } .s-peer { stroke: #d29922 }
 }
'''
TOP, ROW, LEFT, BARS, GAP, DOTS = 76, 44, 245, 380, 70, 250


def escape(text):
    return text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')


def ticks(most):
    """Round numbers from 0 to above `most`, about four of them."""
    unit = 10 ** len(str(int(max(most, 1)))) / 10
    step = next(s * unit for s in (.2, .25, .5, 1, 2, 2.5) if s * unit * 4.5 >= most)
    return [i * step for i in range(int(most / step) + 2)]


def axis(x, width, marks, bottom, title):
    out = [f'<text class="t h" x="{x}" y="{TOP - 24}">{title}</text>']
    for mark in marks:
        at = x + width * mark / marks[-1]
        out.append(f'<path class="g" d="M{at:.1f} {TOP}V{bottom}"/>')
        out.append(f'<text class="m n" x="{at:.1f}" y="{TOP - 6}" text-anchor="middle">{mark:,g}</text>')
    return out


def whisker(row, who, y, x, scale):
    """Mean latency as a dot, one standard deviation to both sides as a line."""
    low, high = max(0, row['mean'] - row['stdev']), row['mean'] + row['stdev']
    a, b, c = (x + min(v * scale, DOTS) for v in (low, row['mean'], high))
    return [f'<path class="s-{who}" stroke-width="2" d="M{a:.1f} {y}H{c:.1f}"/>',
            f'<circle class="{who}" cx="{b:.1f}" cy="{y}" r="4"/>',
            f'<text class="m n" x="{c + 6:.1f}" y="{y + 4}">{row["mean"]:.1f} &#177; {row["stdev"]:.1f}</text>']


def svg(a, ladder):
    rows = [r for _, got in ladder for r in got.values() if 'rps' in r]
    speed = ticks(max(r['rps'] for r in rows))
    # A step that fails has a deviation of many times the mean: its line ends at the edge.
    delay = ticks(1.2 * max(r['mean'] for r in rows))
    bottom, right = TOP + ROW * len(ladder), LEFT + BARS + GAP
    width, height = right + DOTS + 90, bottom + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
           f' viewBox="0 0 {width} {height}" role="img">',
           '<title>Requests per second and latency at each step of the tuning ladder</title>',
           f'<style>{STYLE}</style>', f'<rect class="b" width="{width}" height="{height}"/>']
    for i, who in enumerate(WHO):
        out.append(f'<rect class="{who}" x="{16 + 90 * i}" y="14" width="12" height="12"/>')
        out.append(f'<text class="t" x="{34 + 90 * i}" y="24">{escape(a.names[who])}</text>')
    if any(r.get('without') for r in rows):
        out.append('<text class="m n" x="245" y="24">* without a step before, which it refuses: see the table</text>')
    out += axis(LEFT, BARS, speed, bottom, 'requests per second (more is better)')
    out += axis(right, DOTS, delay, bottom, 'latency in ms: mean, &#177; one stdev (less is better)')
    for at, (label, got) in enumerate(ladder):
        y = TOP + ROW * at
        out.append(f'<text class="t" x="16" y="{y + 26}">{"+ " * (0 < at and label[0] != "(")}{escape(label)}</text>')
        for i, who in enumerate(WHO):
            out += marks_of(got[who], who, y + 6 + 16 * i, BARS / speed[-1], right, DOTS / delay[-1])
    return '\n'.join(out + ['</svg>', ''])


def marks_of(row, who, y, speed, right, delay):
    if 'rps' not in row:
        return [f'<text class="m n" x="{LEFT + 6}" y="{y + 11}">does not run here: see the table</text>']
    wide = row['rps'] * speed
    partly = ' *' if row.get('without') else ''
    return [f'<rect class="{who}" x="{LEFT}" y="{y}" width="{wide:.1f}" height="14"/>',
            f'<text class="m n" x="{LEFT + wide + 6:.1f}" y="{y + 11}">{row["rps"]:,.0f}{partly}</text>',
            *whisker(row, who, y + 7, right, delay)]


def write_between(path, text):
    """Replace what is between the two markers of a file."""
    parts = path.read_text().split(MARK)
    if len(parts) != 3:
        sys.exit(f'{path}: {len(parts) - 1} of {MARK}; there must be two')
    path.write_text(f'{parts[0]}{MARK}\n{text}{MARK}{parts[2]}')


PARTS = {'ladder': climb, 'accepting': accepting, 'reusing': reusing}


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    servers, upstream, loads = default_cpus()
    ap.add_argument('--weir', required=True)
    ap.add_argument('--peer', default=shutil.which('nginx') or 'nginx', help='an nginx; it also is the upstream')
    ap.add_argument('--secs', type=int, default=2, help='seconds a round')
    ap.add_argument('--rounds', type=int, default=3, help='rounds for each program')
    ap.add_argument('--conns', type=int, default=200, help='connections at once')
    ap.add_argument('--workers', type=int, default=4, help='workers of the reuseport measurement')
    ap.add_argument('--only', default=','.join(PARTS), help=f'of these tables: {", ".join(PARTS)}')
    ap.add_argument('--quick', action='store_true', help='one round of a second: does it run at all?')
    ap.add_argument('--server-cpus', default=servers, help='as taskset takes them')
    ap.add_argument('--upstream-cpus', default=upstream)
    ap.add_argument('--load-cpus', default=loads)
    ap.add_argument('--out', type=Path, help='the Markdown, also into this file')
    ap.add_argument('--svg', type=Path, help='the picture')
    ap.add_argument('--write', type=Path, help=f'the Markdown between the two {MARK} of this file')
    a = ap.parse_args()
    if a.quick:
        a.secs = a.rounds = 1
    a.only = a.only.split(',')
    if unknown := set(a.only) - set(PARTS):
        sys.exit(f'--only knows {", ".join(PARTS)}, not {", ".join(sorted(unknown))}')
    if a.svg and 'ladder' not in a.only:
        sys.exit('--svg needs the ladder')
    a.names = {'weir': 'Weir', 'peer': 'nginx'}
    return a


def prepare(a):
    """The run's directory, a page of 1 KB, and the upstream."""
    a.dir.chmod(0o755)
    for name in ('html', 'logs'):
        (a.dir/name).mkdir()
    words = '<p class="item"> lorem ipsum <a href="/x/{}"> dolor sit </a> '
    page = ''.join(words.format(i * 7919 % 10007) for i in range(30))
    (a.dir/'html'/'1k.html').write_text(page[:1024])
    text = fill(UPSTREAM, a, 'up', 0, cpus=a.upstream_cpus)
    up = start(a.peer, text, 'up', a.dir, UP_PORT['weir'], a.upstream_cpus)
    return up or sys.exit(f'the upstream ({a.peer}) did not start: {why(a, "up")}')


def main():
    a = arguments()
    a.dir = Path(tempfile.mkdtemp(prefix='weir-ladder-'))
    up = None
    try:
        up = prepare(a)
        parts = [rounds(a, once) if name in a.only else [] for name, once in PARTS.items()]
    finally:
        stop(up)
        shutil.rmtree(a.dir, ignore_errors=True)
    text = markdown(a, *parts)
    print(text)
    if a.out:
        a.out.write_text(text)
    if a.svg:
        a.svg.write_text(svg(a, parts[0]))
    if a.write:
        link = os.path.relpath(a.svg, a.write.parent) if a.svg else ''
        picture = f'\n![Requests per second and latency at each step]({link})\n' if a.svg else ''
        write_between(a.write, f'\n{text}{picture}\n')


if __name__ == '__main__':
    main()
