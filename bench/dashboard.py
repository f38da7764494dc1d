#!/usr/bin/env python3
"""What the dashboard costs: 300 upstreams and 2,000 zones, looked at in Chromium while all of them are asked.

    cargo build --release
    bench/dashboard.py --weir target/release/weir

Says when the page was first painted and when it first had figures, what complaints the console has, and what share of a
core the browser (all its processes) and the server take: the thread that gathers, with a viewer and without, and the
whole process without load, with the viewer and without.
"""

import argparse
import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from chromium import Chromium

WATCH = """
  window.firstFigures = 0;
  new MutationObserver((_, me) => {
    if (!window.firstFigures && document.querySelector('.table tbody tr')) {
      window.firstFigures = performance.now();
      me.disconnect();
    }
  }).observe(document, { childList: true, subtree: true });
"""
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def configuration(args, ports):
    port, back = ports
    upstreams = "".join(
        f"upstream service{n:03} {{ zone service{n:03} 64k; server 127.0.0.1:{back}; server 127.0.0.2:{back}; }}\n"
        for n in range(args.upstreams))
    servers, locations = args.zones // 4, args.zones - args.zones // 4
    each = locations // servers
    blocks = []
    for n in range(servers):
        inner = "".join(
            f"location /{m} {{ status_zone part{n:03}-{m}; proxy_pass http://service{(n * each + m) % args.upstreams:03}; }} "
            for m in range(each))
        blocks.append(f"server {{ listen 127.0.0.1:{port}; server_name host{n:03}.example; {inner} }}\n")
    return f"""
daemon off; master_process off; worker_processes {args.workers}; pid off; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000000; server_names_hash_bucket_size 128;
    {upstreams}
    server {{ listen 127.0.0.1:{port} default_server; server_name dashboard; status_zone off;
        location /dashboard/ {{ dashboard api=/api/; }} location /api/ {{ api; }} }}
    {''.join(blocks)}
    server {{ listen 127.0.0.1:{back}; listen 127.0.0.2:{back}; status_zone off; location / {{ return 200 ok; }} }}
}}
""", servers, each


class Load(threading.Thread):
    """So many requests a second over all zones, until stopped."""

    def __init__(self, port, servers, each, rate):
        super().__init__(daemon=True)
        self.port, self.servers, self.each, self.rate = port, servers, each, rate
        self.stopped = threading.Event()

    def run(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port)
        n, begun = 0, time.monotonic()
        while not self.stopped.is_set():
            host, part = n * 7 % self.servers, n % self.each
            client.request("GET", f"/{part}", headers={"Host": f"host{host:03}.example"})
            client.getresponse().read()
            n += 1
            ahead = begun + n / self.rate - time.monotonic()
            if ahead > 0:
                self.stopped.wait(ahead)
        client.close()


def process_secs(pid):
    with open(f"/proc/{pid}/stat") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def thread_secs(pid, name):
    """Of the threads of that name."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm") as f:
            if f.read().strip() != name:
                continue
        with open(f"/proc/{pid}/task/{task}/schedstat") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def share(secs, read):
    before = read()
    time.sleep(secs)
    return 100 * (read() - before) / secs


def browser_secs(browser):
    return sum(ticks for _, ticks in browser.processes()) / TICKS


def wait_for_port(port):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the server does not start")


def look(args, server, port, servers, each):
    out = []
    gathering = lambda: thread_secs(server.pid, "status")
    load = Load(port, servers, each, args.rate)
    load.start()
    time.sleep(3)
    out.append(("server, gathering thread, nobody looks", share(args.secs, gathering), "%"))
    browser = Chromium(1440, 1000)
    try:
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        browser.open(f"http://127.0.0.1:{port}/dashboard/")
        browser.until("window.firstFigures > 0")
        browser.until("performance.getEntriesByName('first-contentful-paint').length > 0")
        paint = browser.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        out.append(("first paint", paint, "ms"))
        out.append(("first figures", browser.run("window.firstFigures"), "ms"))
        for page in ("overview", "servers", "upstreams"):
            browser.run(f"location.hash = '{page}'")
            time.sleep(5)
            out.append((f"browser, {page}", share(args.secs, lambda: browser_secs(browser)), "%"))
        out.append(("server, gathering thread, one looks", share(args.secs, gathering), "%"))
        load.stopped.set()
        load.join()
        time.sleep(1)
        whole = lambda: process_secs(server.pid)
        out.append(("server, whole process, one looks, no load", share(args.secs, whole), "%"))
        if args.picture:
            browser.run("location.hash = 'overview'")
            time.sleep(1)
            browser.picture(args.picture)
        errors = browser.errors()
    finally:
        load.stopped.set()
        browser.close()
    time.sleep(2)
    out.append(("server, whole process, nobody, no load", share(args.secs, whole), "%"))
    return out, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="target/release/weir")
    parser.add_argument("--upstreams", type=int, default=300)
    parser.add_argument("--zones", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=int, default=200, help="requests a second meanwhile")
    parser.add_argument("--secs", type=int, default=20, help="seconds for each figure")
    parser.add_argument("--picture", help="a file for a picture of the page")
    args = parser.parse_args()
    home = tempfile.mkdtemp(prefix="dashboard-")
    ports = free_port(), free_port()
    text, servers, each = configuration(args, ports)
    path = os.path.join(home, "weir.conf")
    with open(path, "w") as f:
        f.write(text)
    server = subprocess.Popen([args.weir, "-p", home, "-c", path], stdin=subprocess.DEVNULL)
    try:
        wait_for_port(ports[0])
        figures, errors = look(args, server, ports[0], servers, each)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)
    print(f"{args.upstreams} upstreams, {args.zones} zones, {args.rate} requests a second")
    for name, value, unit in figures:
        print(f"{name:<42} {value:8.2f} {unit}")
    print(f"complaints of the console: {len(errors)}")
    for error in errors[:5]:
        print(f"  {error}")


if __name__ == "__main__":
    main()
