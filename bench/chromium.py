"""Chromium without a window, spoken to through its DevTools pipe: for what is measured and shown of pages."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
]


class Failed(Exception):
    pass


class Chromium:
    """A browser with one page. Its events are kept until they are asked for."""

    def __init__(self, width=1280, height=900):
        self.home = tempfile.mkdtemp(prefix="chromium-")
        to_read, self.out = os.pipe()
        self.inn, to_write = os.pipe()

        def in_child():
            os.setsid()
            # Both are moved out of the way first: one may be 3 or 4 itself.
            a, b = os.dup2(to_read, 103), os.dup2(to_write, 104)
            os.dup2(a, 3)
            os.dup2(b, 4)

        command = [shutil.which("chromium") or "chromium", *FLAGS, f"--user-data-dir={self.home}",
                   f"--window-size={width},{height}", "about:blank"]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=in_child)
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.rest = b""
        self.events = []
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def call(self, method, patience=30, **params):
        self.number += 1
        said = {"id": self.number, "method": method, "params": params}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.out, json.dumps(said).encode() + b"\0")
        number, until = self.number, time.monotonic() + patience
        while True:
            got = self.read(until)
            if got is None:
                raise Failed(f"no answer to {method}")
            if got.get("id") == number:
                if "error" in got:
                    raise Failed(f"{method}: {got['error']}")
                return got["result"]

    def read(self, until):
        """The next message, or None; events are kept, too."""
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.inn], [], [], left)[0]:
                return None
            more = os.read(self.inn, 1 << 16)
            if not more:
                raise Failed("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        got = json.loads(text)
        if "id" not in got:
            self.events.append(got)
        return got

    def size(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, text):
        """What an expression gives."""
        got = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise Failed(f"{text}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def until(self, text, patience=20):
        end = time.monotonic() + patience
        while not self.run(text):
            if time.monotonic() > end:
                raise Failed(f"never true: {text}")
            time.sleep(0.05)

    def errors(self):
        """What the console says that is none of the page's business to say."""
        out = []
        for e in self.events:
            if e["method"] == "Runtime.exceptionThrown":
                out.append(str(e["params"]))
            elif e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning"):
                out.append(str(e["params"]))
            elif e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] in ("error", "warning"):
                out.append(str(e["params"]))
        return out

    def picture(self, path):
        import base64
        got = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as f:
            f.write(base64.b64decode(got["data"]))

    def processes(self):
        """Those of the browser, all of its session."""
        out = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat") as f:
                        words = f.read().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(words[3]) == self.child.pid:
                    out.append((int(name), int(words[11]) + int(words[12])))
        return out

    def close(self):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        os.close(self.inn)
        os.close(self.out)
        shutil.rmtree(self.home, ignore_errors=True)
