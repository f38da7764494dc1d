#!/usr/bin/env python3
"""`weir analyze` beside GoAccess, on the same log: time, CPU time, peak memory, and whether the counts agree.

    bench/analyze.py --weir target/release/weir [--log FILE | --lines 5000000] [--rounds 3]

Rounds alternate, so that both meet the same machine; the least of each counts. GoAccess runs once (`--peer-rounds`),
as it takes minutes. Without --log one is made by access_log.py and removed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTS = ["total_requests", "valid_requests", "failed_requests", "unique_visitors", "unique_files",
          "unique_static_files", "unique_not_found"]
LISTS = ["requests", "static_requests", "not_found", "hosts"]
# GoAccess shows so many of a list.
ROWS = 366


def run(command):
    """Seconds, seconds of CPU, and kilobytes at most."""
    start = time.monotonic()
    pid = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(pid.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed: {status}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss


def compare(theirs, ours):
    """Prints what differs; whether something is outside of what was promised."""
    ok = True
    for name in COUNTS:
        a, b = theirs["general"][name], ours["summary"][name]
        error = ours["summary"]["standard_errors"].get(name, 0)
        # Three standard errors: one count of 370 is outside of them by chance.
        good = abs(a - b) <= 3 * error * a
        ok &= good
        print(f"  {name:<20} {a:>12} {b:>12}  {'exact' if a == b else f'{(b - a) / a:+.2%} of ±{error:.2%}'}"
              f"{'' if good else '  OUTSIDE'}")
    a, b = theirs["general"]["bandwidth"], ours["summary"]["bytes"]
    print(f"  {'bytes':<20} {a:>12} {b:>12}  {'exact' if a == b else 'DIFFERS'}")
    ok &= a == b
    for name in LISTS:
        rows = {}
        for row in ours["panels"][name]["rows"]:
            rows[(row["name"], row.get("note", ""))] = row
        exact = missing = outside = 0
        for row in theirs[name]["data"]:
            note = " ".join(filter(None, [row.get("method"), row.get("protocol")]))
            found = rows.get((row["data"], note))
            hits = row["hits"]["count"]
            if found is None:
                missing += 1
                outside += hits > ours["panels"][name]["unlisted_at_most"] + 1 and hits > min(
                    r["hits"] for r in rows.values())
            elif found["hits"] == hits:
                exact += 1
            else:
                outside += not found["hits"] <= hits <= found["hits"] + found["may_have_more"]
        ok &= outside == 0
        print(f"  {name:<20} {len(theirs[name]['data'])} rows, {exact} exact, {missing} not among ours, "
              f"{outside} outside of their bounds")
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", required=True)
    parser.add_argument("--goaccess", default="goaccess")
    parser.add_argument("--log")
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        log = options.log
        if not log:
            log = os.path.join(place, "access.log")
            with open(log, "wb") as out:
                subprocess.run([sys.executable, f"{HERE}/access_log.py", "--lines", str(options.lines)],
                               stdout=out, check=True)
        ours, theirs = os.path.join(place, "ours.json"), os.path.join(place, "theirs.json")
        weir = [options.weir, "analyze", "--output", "json", "--top", str(2 * ROWS), "--write", ours, log]
        peer = [options.goaccess, "-f", log, "--log-format=COMBINED", "--no-progress", "-o", theirs]
        found = {"weir": [], "goaccess": []}
        for n in range(max(options.rounds, options.peer_rounds)):
            if n < options.rounds:
                found["weir"].append(run(weir))
            if n < options.peer_rounds:
                found["goaccess"].append(run(peer))
        least = {name: [min(column) for column in zip(*rounds)] for name, rounds in found.items()}
        print(f"{os.path.getsize(log) / 1e6:.0f} MB")
        for name, (wall, cpu, kb) in least.items():
            print(f"{name:<10} {wall:8.2f} s  {cpu:8.2f} s of CPU  {kb / 1000:8.1f} MB")
        ratios = [a / b for a, b in zip(least["goaccess"], least["weir"])]
        print("times      {:8.1f}    {:8.1f}           {:8.1f}".format(*ratios))
        print(f"  {'':<20} {'goaccess':>12} {'weir':>12}")
        with open(theirs) as a, open(ours) as b:
            sys.exit(0 if compare(json.load(a), json.load(b)) else 1)


if __name__ == "__main__":
    main()
