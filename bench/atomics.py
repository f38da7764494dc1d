#!/usr/bin/env python3
"""List the atomic read-modify-writes of a request: the instructions that make a processor own a line alone.

    atomics.py --binary target/release/weir [--peer nginx] [--only return,proxy_small]

`instructions.py` knows how often a request executes each instruction; here those that lock (`lock …`, and
`xchg` with memory) are picked out of the disassembly.  Each is listed with how often a request executes it
and the lines of source that it was made from, the innermost first.  Whether others write to the same place
is for the reader to find out: one that a worker has for itself costs some 20 cycles, one that workers share
grows with their number.
Needs: Linux on x86-64, valgrind, openssl, binutils (objdump, addr2line), a binary with line numbers.
"""
import argparse, re, shutil, subprocess, sys, tempfile
from functools import cache
from pathlib import Path

import clients, scenarios
from instructions import measure

LOCKING = re.compile(r'^\s*([0-9a-f]+):\t(?:[^\t]*\t)?\s*(lock .*|xchg .*\(.*)$')
# Files between an atomic and the line that wants it.
LIBRARY = re.compile(r'/(?:library|rustlib)/')


@cache
def locking(path):
    """Address and text of each such instruction of a file."""
    if not Path(path).is_file():
        return {}
    listing = subprocess.Popen(['objdump', '-d', '--no-show-raw-insn', path], stdout=subprocess.PIPE, text=True)
    found = (LOCKING.match(line) for line in listing.stdout)
    return {int(m[1], 16): ' '.join(m[2].split()) for m in found if m}


def source(path, address):
    """Functions and lines, innermost first, without the library's own."""
    out = subprocess.run(['addr2line', '-Cfie', path, hex(address)], capture_output=True, text=True).stdout.splitlines()
    frames = [(name, place) for name, place in zip(out[::2], out[1::2]) if not LIBRARY.search(place)]
    return ' < '.join(f'{short(place)} {name.rsplit("::", 1)[-1]}' for name, place in frames[:3]) or (out[0] if out else '?')


def short(place):
    return re.sub(r'^.*/(?:registry/src/[^/]+|crates)/', '', place.split(' ')[0])


def report(name, binary, work, origins):
    steady = measure(binary, name, work, origins)
    rows = [(n, obj, address) for (obj, address), n in steady.at.items() if address in locking(obj)]
    print(f'{name}, {Path(binary).name}: {sum(n for n, _, _ in rows):.1f} a request')
    for n, obj, address in sorted(rows, reverse=True):
        print(f'  {n:5.1f}  {locking(obj)[address]:34} {source(obj, address)}', flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--binary', required=True, type=Path)
    ap.add_argument('--peer', type=Path, help='another program, after it')
    ap.add_argument('--only', default='return,static1k,proxy_small,cache_small', help='these scenarios of instructions.py')
    a = ap.parse_args()
    missing = [tool for tool in ('valgrind', 'openssl', 'objdump', 'addr2line') if not shutil.which(tool)]
    if missing:
        print(f'skipped: {", ".join(missing)} is not installed')
        return 0
    with tempfile.TemporaryDirectory(prefix='atomics-') as tmp:
        work = Path(tmp)
        clients.prepare(work)
        origins = scenarios.Origins(work)
        for name in a.only.split(','):
            for binary in filter(None, (a.binary, a.peer)):
                report(name, binary.resolve(), work, origins)
    return 0


if __name__ == '__main__':
    sys.exit(main())
