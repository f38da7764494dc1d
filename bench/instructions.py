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
import argparse, platform, shutil, subprocess, sys, tempfile
from pathlib import Path

import callgrind, clients, scenarios

CONNECTIONS = 8
FEW = 200
INSTRUCTIONS_MAX, CODE_MAX = 1.02, 1.03


def chosen(name):
    return {**scenarios.COUNTED, **scenarios.NAMED}[name]


def count(binary, name, work, origins, requests):
    """What a whole run with so many requests has executed."""
    out = work / 'callgrind.out'
    out.unlink(missing_ok=True)
    command = ['valgrind', '--tool=callgrind', f'--callgrind-out-file={out}', *callgrind.OPTIONS, '--quiet', binary]
    scenario = chosen(name)
    server, port = scenarios.start(command, scenario, work, origins)
    try:
        clients.wait_for_port(server, port)
        statuses = scenarios.ask(port, scenario, requests, CONNECTIONS)
    finally:
        clients.stop(server)
    if statuses != {200}:
        raise SystemExit(f'{name}: answers that are not 200: {sorted(statuses)}')
    counts = callgrind.read(out) if out.exists() else None
    if not counts or not counts.total:
        raise SystemExit(f'{name}: callgrind left no count')
    return counts


def measure(binary, name, work, origins):
    most = chosen(name).many
    few, many = (count(binary, name, work, origins, n) for n in (FEW, most))
    return callgrind.Steady(few, many, most - FEW)


def peers(binary, name, work, origins):
    """Nothing where the peer was built without what the scenario needs."""
    try:
        return measure(binary, name, work, origins)
    except SystemExit as e:
        return print(f'{name}: the peer: {str(e).strip()}')


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


def row(name, ours, peer):
    """A line of the table: instructions and KiB, and each beside the peer's."""
    line = f'{name:14}'
    for mine, other, digits in ((ours.instructions, peer and peer.instructions, 0), (ours.kib(), peer and peer.kib(), 1)):
        line += f' {mine:12.{digits}f}'
        line += f' {other:8.{digits}f} {other / mine:6.2f}' if peer else ''
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
    names, found = [n for n in a.only.split(',') if n] or list(scenarios.COUNTED), {}
    peer = f' {"peer":>8} {"ratio":>6}' if a.peer else ''
    print(f'{"per request":14} {"instructions":>12}{peer} {"KiB of code":>12}{peer}')
    with tempfile.TemporaryDirectory(prefix='instructions-') as tmp:
        work = Path(tmp)
        clients.prepare(work)
        origins = scenarios.Origins(work)
        for name in names:
            found[name] = measure(a.binary, name, work, origins)
            print(row(name, found[name], peers(a.peer, name, work, origins) if a.peer else None), flush=True)
            for lines, cost, function in found[name].functions()[:a.functions]:
                print(f'{lines:6} lines {cost:7.0f} instructions  {function}', flush=True)
    if a.write:
        write(found, a.write)
    return check(found, a.check) if a.check else 0


if __name__ == '__main__':
    sys.exit(main())
