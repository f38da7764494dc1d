#!/usr/bin/env python3
"""Find the memory that workers take from each other while they serve requests, under valgrind's lackey.

    shared.py --binary target/release/weir [--only return,cache_small]
    shared.py --binary target/release/weir --check

Two workers answer requests over connections that each of them has some of.  Every load and store is traced and
said of the thread on whose stack the last one before it was.  Listed are the lines of 64 bytes that one worker
writes to for at least every fifth of its requests and that the other loads from or writes to for as many of its
own: a processor must have such a line alone to write to it, which costs more the more workers there are.  What a
line has been touched by is shown with the source, the innermost first.

What the system shares between them (sockets, the scheduler) is not seen.  --check looks at the scenarios of
`CHECKED` and fails when one has more lines than are written down there.
Needs: Linux on x86-64, valgrind, openssl, binutils (addr2line), a binary with line numbers.  Loopback only.
"""
import argparse, re, shutil, subprocess, sys, tempfile
from collections import Counter, defaultdict
from pathlib import Path

import clients, scenarios
from atomics import source

CONNECTIONS, WARM, REQUESTS = 16, 48, 192
# Of a worker's requests, those that must touch a line; and of all requests, those that a worker must have had.
OFTEN, PART = 0.2, 0.15
LINE_BYTES = 64
# How often a scenario is run until both workers have served.
TRIES = 3
SCENARIOS = {**scenarios.COUNTED, **scenarios.TRAINED}
STACK_BYTES = range(1 << 18, (1 << 27) + 1)
# Where valgrind puts the first thread's.
FIRST_STACK = 0x1ffe000000, 0x1fff001000
# What `--check` looks at, and how many lines each may share: with a reason.
CHECKED = {
    'return': 0, 'static1k': 0, 'log': 0, 'gzip': 0, 'tls': 0, 'h2': 0, 'ssi': 0, 'rewrite': 0, 'proxy_small': 0, 'proxy_tls': 0, 'stream': 0,
    # Not `close` (1: a connection has a number that no other has): who accepts is the system's choice, and it may be one worker.
    # A hit is counted, and its turn renewed, under the lock of its part of the zone; and the answer is held while it is sent.
    # They are seven, and eight where small blocks of two workers come to lie in one line: three builds with the same code for a hit had 8, 7 and 8.
    'cache_small': 8,
}


class Maps:
    """Where a process has its files and its threads' stacks."""

    def __init__(self, pid):
        rows = [line.split(maxsplit=5) for line in Path(f'/proc/{pid}/maps').read_text().splitlines()]
        spans = [(*(int(n, 16) for n in row[0].split('-')), row[1], int(row[2], 16), row[5] if len(row) > 5 else '') for row in rows]
        self.files = [(start, end, offset, path) for start, end, _, offset, path in spans if path.startswith('/')]
        # A stack is memory without a name behind a page that must not be touched.
        self.stacks = [FIRST_STACK] + [(start, end) for before, (start, end, mode, _, path) in zip(spans, spans[1:])
                       if not path and mode.startswith('rw-p') and end - start in STACK_BYTES and before[1] == start and before[2].startswith('---')]

    def place(self, address):
        """The file and the address in it."""
        for start, end, offset, path in self.files:
            if start <= address < end:
                first = min(s for s, _, _, p in self.files if p == path)
                return path, address - first
        return None, address


def number(text):
    """The address in a line of the trace."""
    return int(text[3:text.index(b',')], 16)


class Trace:
    """Who has touched which line how often, and how much each thread has done."""

    def __init__(self, path, span, stacks):
        self.path, self.span, self.stacks = path, span, stacks
        self.stores, self.touches, self.instructions = defaultdict(Counter), defaultdict(Counter), Counter()
        for thread, line, is_store, _ in self.accesses():
            self.touches[line][thread] += 1
            if is_store:
                self.stores[line][thread] += 1

    def accesses(self):
        """Thread, line, whether it is a store, and the instruction, of all that is not on a stack."""
        thread, instruction, n = None, b'', 0
        low, (at, end) = min(s for s, _ in self.stacks), self.span
        with open(self.path, 'rb') as lines:
            lines.seek(at)
            lines.readline()
            for text in lines:
                at += len(text)
                if at > end:
                    break
                kind = text[:3]
                if kind == b'I  ':
                    instruction, n = text, n + 1
                elif kind in (b' S ', b' L ', b' M '):
                    address = number(text)
                    if low <= address:
                        owner = next((i for i, (start, end_) in enumerate(self.stacks) if start <= address < end_), None)
                        if owner is not None:
                            self.instructions[owner] += n
                            thread, n = owner, 0
                            continue
                    if thread is not None:
                        yield thread, address // LINE_BYTES, kind != b' L ', instruction

    def places(self, wanted):
        """For each of these lines the instructions that touched it, by thread, and whether they write."""
        found = defaultdict(Counter)
        for thread, line, is_store, instruction in self.accesses():
            if line in wanted:
                found[line][thread, is_store, number(instruction)] += 1
        return found


def shared(trace, workers):
    """The lines, and how often a request touches each."""
    for line, stores in trace.stores.items():
        writers = {w for w in workers if stores[w] >= OFTEN * workers[w]}
        users = {w for w in workers if trace.touches[line][w] >= OFTEN * workers[w]}
        if writers and len(users) > 1:
            yield line


def ask(port, scenario, trace):
    """The statuses of the answers, and where the trace was before those that count: what opens a connection does not."""
    if scenario.each < REQUESTS:
        scenarios.ask(port, scenario, WARM, CONNECTIONS)
        begin = trace.stat().st_size
        return scenarios.ask(port, scenario, REQUESTS, CONNECTIONS), begin
    conns = [scenarios.connect(port, scenario) for _ in range(CONNECTIONS)]
    statuses = {answer(conn) for _ in range(WARM // CONNECTIONS) for conn in conns}
    begin = trace.stat().st_size
    return statuses | {answer(conn) for _ in range(REQUESTS // CONNECTIONS) for conn in conns}, begin


def answer(conn):
    conn.send()
    return conn.receive()


def run(binary, name, work, origins):
    """Serves the requests; the trace and the process's maps."""
    path = work / 'trace'
    path.unlink(missing_ok=True)
    command = ['valgrind', '--tool=lackey', '--trace-mem=yes', '--basic-counts=no', f'--log-file={path}', binary]
    scenario = SCENARIOS[name]
    server, port = scenarios.start(command, scenario, work, origins, workers=2)
    try:
        clients.wait_for_port(server, port)
        statuses, begin = ask(port, scenario, path)
        span, maps = (begin, path.stat().st_size), Maps(server.pid)
    finally:
        clients.stop(server)
    if statuses != {200}:
        raise SystemExit(f'{name}: answers that are not 200: {sorted(statuses)}')
    return Trace(path, span, maps.stacks), maps


class OneSided(Exception):
    """Who accepts is the system's choice: there was nothing to be shared."""


def measure(binary, name, work, origins):
    """The shared lines with what touches them, busiest first."""
    trace, maps = run(binary, name, work, origins)
    busy = [thread for thread, n in trace.instructions.most_common(2)]
    total = sum(trace.instructions[w] for w in busy)
    workers = {w: REQUESTS * trace.instructions[w] / total for w in busy}
    if len(busy) < 2 or min(workers.values()) < PART * REQUESTS:
        raise OneSided(f'{name}: one worker has served nearly all')
    lines = set(shared(trace, workers))
    rows = []
    for line, touched in trace.places(lines).items():
        often = [(n / workers[t], store, address) for (t, store, address), n in touched.items() if t in workers and n >= OFTEN * workers[t]]
        rows.append((sum(n for n, _, _ in often) / 2, line, sorted({(store, *maps.place(address)) for _, store, address in often}, reverse=True)))
    return sorted(rows, reverse=True)


def report(name, rows):
    print(f'{name}: {len(rows)} shared lines', flush=True)
    for n, line, places in rows:
        print(f'  {n:6.1f} a request, at {line * LINE_BYTES:#x}')
        for store, path, address in places:
            print(f'      {"writes" if store else "loads "} {source(path, address) if path else hex(address)}', flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--only', default='', help='these scenarios of instructions.py or train.py')
    ap.add_argument('--check', action='store_true', help='fail when workers share more than is known')
    a = ap.parse_args()
    missing = [tool for tool in ('valgrind', 'openssl', 'addr2line') if not shutil.which(tool)]
    if missing:
        print(f'skipped: {", ".join(missing)} is not installed')
        return 0
    with tempfile.TemporaryDirectory(prefix='shared-') as tmp:
        work = Path(tmp)
        clients.prepare(work)
        origins = scenarios.Origins(work)
        grown = []
        for name in [n for n in a.only.split(',') if n] or CHECKED:
            rows = None
            for _ in range(TRIES):
                try:
                    rows = measure(a.binary.resolve(), name, work, origins)
                    break
                except OneSided as e:
                    print(e)
            if rows is None:
                print(f'{name}: not looked at')
                continue
            report(name, rows)
            if len(rows) > CHECKED.get(name, 0):
                grown.append(name)
    if a.check and grown:
        print(f'workers share more than is known of: {", ".join(grown)}')
    return 1 if a.check and grown else 0


if __name__ == '__main__':
    sys.exit(main())
