"""A Python range, closed and recorded, against an empty context manager in plain C. A part of bench/run.py."""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from typing import Any

TURNS = 2000


def build_empty_context(folder: Path) -> AbstractContextManager[object]:
    """Compiled as CPython compiles its own C code."""
    source = Path(__file__).resolve().parent / "empty_context.c"
    target = folder / f"empty_context{sysconfig.get_config_var('EXT_SUFFIX')}"
    words = ["cc", "-O2", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}", str(source), "-o", str(target)]
    subprocess.run(words, check=True)
    spec = importlib.util.spec_from_file_location("empty_context", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manager: AbstractContextManager[object] = module.Empty()
    return manager


def empty_loop() -> float:
    begin = time.perf_counter_ns()
    for _ in repeat(None, TURNS):
        pass
    return (time.perf_counter_ns() - begin) / TURNS


def with_loop(context: AbstractContextManager[object]) -> Callable[[], float]:
    def measure() -> float:
        begin = time.perf_counter_ns()
        for _ in repeat(None, TURNS):
            with context:
                pass
        return (time.perf_counter_ns() - begin) / TURNS

    return measure


def medians(batches: int, *bodies: Callable[[], float], pause_s: float = 0) -> list[float]:
    """Of batches of each body in turn."""
    found: list[list[float]] = [[] for _ in bodies]
    for batch in range(batches):
        for values, body in zip(found, bodies, strict=True):
            values.append(body())
        if pause_s and batch % 10 == 9:
            time.sleep(pause_s)
    return [statistics.median(values) for values in found]


def measure(f_ns: float, smoke: bool) -> dict[str, Any]:
    try:
        import marey
    except ImportError as error:
        return {"absent": f"the Python package is not built ({error})"}
    batches = 5 if smoke else 300
    with tempfile.TemporaryDirectory() as name:
        empty = with_loop(build_empty_context(Path(name)))
        ranged = with_loop(marey.range("bench"))
        loop, bare, closed = medians(batches, empty_loop, empty, ranged)
        profiler = marey.Profiler(out=Path(name) / "traces", skeleton=False, quiet=True)
        profiler.start()
        loop_open, bare_open, recorded = medians(batches, empty_loop, empty, ranged, pause_s=0.005)
        profiler.stop()
        profiler.wait(60)
        (window,) = [window for window in profiler.windows if not window.is_skeleton]
        if window.events < batches * TURNS:
            sys.exit(f"the window holds {window.events} of {batches * TURNS} ranges")
    bare, closed, recorded = bare - loop, closed - loop, recorded - loop_open
    bare_open -= loop_open
    return {
        "rows": [
            {
                "path": "Python range, closed, over an empty context manager in plain C",
                "measured": closed / bare,
                "unit": "x",
                "gate": 1.25,
                "aim": 1.0,
                "note": f"{closed:.1f} ns, the empty one {bare:.1f} ns (a loop's own turn taken off)",
            },
            {
                "path": "Python range, recorded",
                "measured": recorded,
                "unit": "ns",
                "gate": 1.25 * bare_open + 1.5 * f_ns,
                "aim": bare_open + 1.1 * f_ns,
                "note": f"Python {sys.version.split()[0]}; gate 1.25 x the empty one + 1.5 F",
            },
        ]
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--f-ns", type=float, required=True)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(options.build / "python"))
    json.dump(measure(options.f_ns, options.smoke), sys.stdout)


if __name__ == "__main__":
    main()
