#!/usr/bin/env python3
"""Opens and closes windows under load for a while, and checks each one and the process's memory.

A training-like loop records ranges on its own thread, on workers that record all the time, and on threads that live for one
mini-batch. Every window must be sealed and whole; the loop's own ranges must all be in it, or be counted as lost; and memory
must stay flat once the first windows are through. Exit code 1 and a sentence when something is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import marey

RANGES_PER_BATCH = 2000
WORKERS = 2
ACTIVE = 2
#: Windows until memory has reached its level: lanes, tables and allocator caches have been used once by then.
SETTLED_AFTER = 10
MAY_GROW_BYTES = 48 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_json(*words: object) -> Any:
    done = subprocess.run(["marey", *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Faults(list[str]):
    def expect(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.append(sentence)


def check_window(window: marey.Window, faults: Faults) -> None:
    path = window.path
    said = read_json("info", "--json", path)
    info = said[0] if isinstance(said, list) else said
    faults.expect(info["state"] == "sealed", f"{path.name} is {info['state']}: {info['state_reason']}")
    faults.expect(info["complete"], f"{path.name} has {info['recorded_units']} of {info['planned_units']} units")
    lost = sum(loss["count"] for loss in info["losses"])
    faults.expect(lost == window.lost, f"{path.name} says {lost} events were lost, status says {window.lost}")
    top = read_json("top", "--json", path, "--limit", 0)
    rows = top["rows"] if isinstance(top, dict) else top
    found = sum(row["count"] for row in rows if row["name"] == "work")
    wanted = RANGES_PER_BATCH * ACTIVE
    faults.expect(found <= wanted, f"{path.name} has {found} of the loop's ranges: more than the {wanted} of its units")
    faults.expect(
        found + lost >= wanted, f"{path.name} has {found} of the loop's {wanted} ranges, and only {lost} are counted as lost"
    )


def work_all_the_time(stop: threading.Event) -> None:
    inner = marey.range("worker.inner")
    while not stop.is_set():
        with marey.range("worker.outer", pid=os.getpid()), inner:
            sum(range(100))


def work_for_a_batch(batch: int) -> None:
    for number in range(50):
        with marey.range("short", batch=batch, number=number):
            pass


def soak(seconds: float, out: Path) -> int:
    schedule = marey.Schedule(wait=1, warmup=1, active=ACTIVE, repeat=0)
    profiler = marey.Profiler(schedule=schedule, role="soak", out=out, skeleton=False, quiet=True)
    faults = Faults()
    stop = threading.Event()
    workers = [threading.Thread(target=work_all_the_time, args=(stop,)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    checked = events = lost = batch = settled = 0
    deadline = time.monotonic() + seconds
    work = marey.range("work")
    with profiler:
        while time.monotonic() < deadline and not faults:
            short = threading.Thread(target=work_for_a_batch, args=(batch,))
            short.start()
            for _ in range(RANGES_PER_BATCH):
                with work:
                    pass
            short.join()
            profiler.step()
            batch += 1
            if batch % (ACTIVE + 2) == 0:
                profiler.wait()
                for window in profiler.windows[checked:]:
                    check_window(window, faults)
                    window.path.unlink()
                    events, lost, checked = events + window.events, lost + window.lost, checked + 1
                if checked == SETTLED_AFTER:
                    settled = resident_bytes()
    stop.set()
    for worker in workers:
        worker.join()
    grown = resident_bytes() - settled
    faults.expect(checked > SETTLED_AFTER, f"only {checked} windows were recorded: use more seconds")
    faults.expect(
        checked <= SETTLED_AFTER or grown < MAY_GROW_BYTES, f"memory grew by {grown >> 20} MiB after {SETTLED_AFTER} windows"
    )
    print(
        f"soak: {checked} windows of {batch} mini-batches, {events} events, {lost} lost and counted, memory {grown / 2**20:+.1f} MiB"
    )
    for fault in faults:
        print(f"soak: {fault}", file=sys.stderr)
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Opens and closes windows under load and checks each.")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long (default 120)")
    seconds = parser.parse_args().seconds
    out = Path(tempfile.mkdtemp(prefix="marey-soak-"))
    try:
        return soak(seconds, out)
    finally:
        shutil.rmtree(out)


if __name__ == "__main__":
    sys.exit(main())
