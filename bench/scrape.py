#!/usr/bin/env python3
"""What who reads all figures costs: `metrics` and `api` of 300 upstreams and 2,000 zones.

    bench/scrape.py --weir target/release/weir [--upstreams 300] [--zones 2000] [--rounds 10]

One worker.  Says for each address how large the answer is, how long it takes and how much processor time, and how long
small requests of other clients, sent a millisecond apart meanwhile, waited for the worker: in the middle and at most.
Last, what memory grows by when a hundred clients ask at once and do not read.  Loopback only, a fixed number of requests.
"""

import argparse
import http.client
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import dashboard

PATHS = ["/metrics", "/api/9/figures", "/api/9/http/server_zones/", "/api/9/http/location_zones/", "/api/9/http/upstreams/"]
UNREAD = 100


def get(client, path, host="dashboard"):
    client.request("GET", path, headers={"Host": host})
    return client.getresponse().read()


class Small(threading.Thread):
    """Small requests meanwhile, and how long each took in milliseconds."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.over, self.took = port, threading.Event(), []

    def run(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port)
        while not self.over.wait(0.001):
            begun = time.monotonic()
            get(client, "/small")
            self.took.append((time.monotonic() - begun) * 1000)
        client.close()


def read(args, server, port, path):
    client = http.client.HTTPConnection("127.0.0.1", port)
    get(client, path)
    # The other client's own moments are the machine's.
    small = Small(port)
    small.start()
    times, before, size = [], dashboard.process_secs(server.pid), 0
    for _ in range(args.rounds):
        begun = time.monotonic()
        size = len(get(client, path))
        times.append((time.monotonic() - begun) * 1000)
        time.sleep(0.05)
    cpu = (dashboard.process_secs(server.pid) - before) * 1000 / args.rounds
    small.over.set()
    small.join()
    took = sorted(small.took)
    print(f"{path:<30} {size / 1e6:8.2f} {statistics.median(times):8.1f} {cpu:8.1f} {took[len(took) // 2]:8.2f} {took[-1]:8.2f}")


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def unread(server, port):
    before, sockets = memory(server.pid), []
    for _ in range(UNREAD):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", port))
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: dashboard\r\n\r\n")
        sockets.append(s)
    most, refused, end = 0, 0, time.monotonic() + 30
    for s in sockets:
        s.settimeout(max(0.1, end - time.monotonic()))
        try:
            refused += not s.recv(12).endswith(b"200")
        except OSError:
            refused += 1
        most = max(most, memory(server.pid))
    print(f"{UNREAD} clients that do not read: {most - before:.0f} MB more, {refused} refused")
    for s in sockets:
        s.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="target/release/weir")
    parser.add_argument("--upstreams", type=int, default=300)
    parser.add_argument("--zones", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    args.workers = 1
    home, ports = tempfile.mkdtemp(prefix="scrape-"), (dashboard.free_port(), dashboard.free_port())
    text, servers, each = dashboard.configuration(args, ports)
    more = "location /metrics { metrics; } location /small { return 200 ok; } location /api/ {"
    path = os.path.join(home, "weir.conf")
    with open(path, "w") as f:
        f.write(text.replace("location /api/ {", more))
    server = subprocess.Popen([args.weir, "-p", home, "-c", path], stdin=subprocess.DEVNULL)
    try:
        dashboard.wait_for_port(ports[0])
        client = http.client.HTTPConnection("127.0.0.1", ports[0])
        for n in range(4 * servers):
            # Every place was asked for, in several classes of time.
            get(client, f"/{n % each}", f"host{n % servers:03}.example")
        client.close()
        print(f"{args.upstreams} upstreams, {args.zones} zones")
        print(f"{'':<30} {'MB':>8} {'ms':>8} {'CPU ms':>8} {'small ms':>8} {'at most':>8}")
        for path in PATHS:
            read(args, server, ports[0], path)
        unread(server, ports[0])
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
