"""What Marey costs a PyTorch operator and a whole training step. A part of bench/run.py, or alone:

    python bench/torch_ops.py --build build/release [--table]

Segments of every variant follow each other in rounds, in an order drawn anew for each round; a variant's cost is the median
over the rounds of its difference from the same round's segment without any observer. Starting, stopping and sealing lie
outside what is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

Variant = Callable[[], AbstractContextManager[object]]
MARKS = ("outline", "cpu", "shapes")
ROOT = Path(__file__).resolve().parent.parent


def build_empty_callback(folder: Path, torch_folder: Path) -> ctypes.CDLL:
    compiler = next(
        (path for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (path := shutil.which(name))), None
    )
    if compiler is None:
        raise FileNotFoundError("no C++ compiler was found to build bench/empty_callback.cpp with; install g++, or set CXX")
    target = folder / "libempty_callback.so"
    words = [
        compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", f"-isystem{torch_folder / 'include'}",
        str(ROOT / "bench" / "empty_callback.cpp"), "-o", str(target),
        str(torch_folder / "lib/libtorch_cpu.so"), str(torch_folder / "lib/libc10.so"),
    ]  # fmt: skip
    subprocess.run(words, check=True)
    return ctypes.CDLL(str(target))


class Variants:
    """The observers that are compared, each as a context manager around a segment."""

    def __init__(self, marey: Any, torch: Any, folder: Path) -> None:
        self._marey, self._torch, self._folder = marey, torch, folder
        self._empty = build_empty_callback(folder, Path(torch.__file__).parent)
        self.events: dict[str, int] = dict.fromkeys(MARKS, 0)
        self.lost = 0
        self.all: dict[str, Variant] = {
            "none": contextlib.nullcontext,
            "none_again": contextlib.nullcontext,
            "empty_outline": lambda: self.empty(0, 0),
            "empty": lambda: self.empty(1, 0),
            "empty_inputs": lambda: self.empty(1, 1),
            "outline": lambda: self.marey("outline"),
            "cpu": lambda: self.marey("cpu"),
            "shapes": lambda: self.marey("shapes"),
            "torch": lambda: self.torch(shapes=False),
            "torch_shapes": lambda: self.torch(shapes=True),
        }

    @contextlib.contextmanager
    def empty(self, operators: int, inputs: int) -> Iterator[None]:
        self._empty.empty_callback_add(operators, inputs)
        try:
            yield
        finally:
            self._empty.empty_callback_remove()

    @contextlib.contextmanager
    def marey(self, contents: str) -> Iterator[None]:
        profiler = self._marey.Profiler(contents=contents, out=self._folder / "traces", skeleton=False, quiet=True)
        profiler.start()
        self._marey.mark("the window is open")
        try:
            yield
        finally:
            profiler.stop()
            profiler.wait(60)
            for window in profiler.windows:
                self.events[contents] += window.events - 1
                self.lost += window.lost
                window.path.unlink()

    @contextlib.contextmanager
    def torch(self, shapes: bool) -> Iterator[None]:
        profiler = self._torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=shapes):
            yield


def rounds(count: int, body: Callable[[], object], turns: int, variants: dict[str, Variant]) -> dict[str, list[float]]:
    """ns per turn of `body` by variant, one value a round."""
    found: dict[str, list[float]] = {name: [] for name in variants}
    order, draw = list(variants), random.Random(0)
    for _ in range(count):
        draw.shuffle(order)
        for name in order:
            with variants[name]():
                for _ in range(max(1, turns // 20)):
                    body()
                begin = time.perf_counter_ns()
                for _ in range(turns):
                    body()
                found[name].append((time.perf_counter_ns() - begin) / turns)
    return found


def over(times: dict[str, list[float]], name: str, base: str = "none") -> float:
    return statistics.median(a - b for a, b in zip(times[name], times[base], strict=True))


def training_step(torch: Any) -> Callable[[], object]:
    """One step of a two-layer transformer: about 2,000 operators, most of them short."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=128, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    batch = torch.randn(4, 16, 64)

    def step() -> None:
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(smoke: bool) -> dict[str, Any]:
    try:
        import marey
        import torch
    except ImportError as error:
        return {"absent": f"{error.name} cannot be imported ({error})"}
    from marey import _torch_source

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        try:
            variants = Variants(marey, torch, Path(name))
        except FileNotFoundError as error:
            return {"absent": str(error)}
        state = _torch_source.ensure_loaded()
        if state.state != "loaded":
            return {"absent": f"the PyTorch source is {state.state}: {state.reason}"}
        one, other = torch.ones(1), torch.ones(1)
        with torch.no_grad():
            operator = rounds(3 if smoke else 150, lambda: one.add_(other), 200 if smoke else 4000, variants.all)
        recorded = dict(variants.events)
        work = training_step(torch)
        for _ in range(3):
            work()
        step = rounds(2 if smoke else 60, work, 1 if smoke else 4, variants.all)
        if not recorded["cpu"] or not recorded["shapes"] or variants.events["outline"] <= recorded["outline"]:
            sys.exit("bench: a window of torch_ops.py holds no operators; what was measured says nothing")
    return {
        "machine": f"{platform.node()}, {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, PyTorch {torch.__version__}",
        "lost": variants.lost,
        "operator_ns": summary(operator, 1.0),
        "step_us": summary(step, 1e-3),
        "rows": rows(operator, step, variants.lost),
    }


def summary(times: dict[str, list[float]], scale: float) -> dict[str, dict[str, float]]:
    return {
        name: {"median": statistics.median(values) * scale, "over_none": over(times, name) * scale}
        for name, values in times.items()
    }


def rows(operator: dict[str, list[float]], step: dict[str, list[float]], lost: int) -> list[dict[str, Any]]:
    base = statistics.median(operator["none"])
    after = statistics.median(a / b for a, b in zip(operator["none_again"], operator["none"], strict=True))
    note = f"{lost} events lost" if lost else ""
    empty, inputs = over(operator, "empty"), over(operator, "empty_inputs")
    found = [
        row("PyTorch operator, over an empty callback", over(operator, "cpu", "empty"), "ns", 30, 15,
            f"a bare add_ {base:.0f} ns, the empty callback +{empty:.0f} ns, torch.profiler +{over(operator, 'torch'):.0f} ns {note}"),
        row("the same with shapes, over an empty callback that asks for inputs", over(operator, "shapes", "empty_inputs"), "ns", None, None,
            f"that one +{inputs:.0f} ns, torch.profiler with shapes +{over(operator, 'torch_shapes'):.0f} ns"),
        row("PyTorch operator after windows, against before", after, "x", 1.01, 1.0, "removed callbacks leave nothing"),
    ]  # fmt: skip
    bare = statistics.median(step["none"])
    for name, contents, peer, nothing, gate in (
        ("operators", "cpu", "torch", "empty", 0.65),
        ("with shapes", "shapes", "torch_shapes", "empty_inputs", 0.5),
        ("outline", "outline", "torch", "empty_outline", 0.3),
    ):
        theirs = over(step, peer)
        percent = [100 * over(step, each) / bare for each in (contents, nothing, peer)]
        found.append(
            row(f"training step's slowdown, {name}, over torch.profiler's", over(step, contents) / theirs, "x", gate, over(step, nothing) / theirs,
                f"a step {bare / 1e6:.2f} ms: {percent[0]:+.1f} %, the empty callback {percent[1]:+.1f} %, torch.profiler {percent[2]:+.1f} %")
        )  # fmt: skip
    return found


def row(path: str, measured: float, unit: str, gate: float | None, aim: float | None, note: str) -> dict[str, Any]:
    return {"path": path, "measured": measured, "unit": unit, "gate": gate, "aim": aim, "note": note.strip()}


def print_table(result: dict[str, Any]) -> None:
    if "absent" in result:
        print(f"nothing was measured: {result['absent']}")
        return
    print(result["machine"])
    for what, key, unit in (("one add_", "operator_ns", "ns"), ("a training step", "step_us", "us")):
        print(f"{what:<20}{'median ' + unit:>14}{'over none':>12}{'ratio':>8}")
        base = result[key]["none"]["median"]
        for name, values in result[key].items():
            print(f"{name:<20}{values['median']:>14.1f}{values['over_none']:>+12.1f}{1 + values['over_none'] / base:>8.3f}")
    for each in result["rows"]:
        bounds = "" if each["gate"] is None else f"  gate {each['gate']:g}, aim {each['aim']:.2f}"
        print(f"{each['path']}: {each['measured']:.2f} {each['unit']}{bounds}  ({each['note']})")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of Marey per PyTorch operator and training step; prints one JSON object.")
    parser.add_argument("--build", type=Path, required=True, help="build folder that holds python/marey")
    parser.add_argument("--f-ns", type=float, help="two counter reads, as bench/run.py measured them; not needed here")
    parser.add_argument("--smoke", action="store_true", help="a few short segments that say nothing about time")
    parser.add_argument("--table", action="store_true", help="print text instead of JSON")
    options = parser.parse_args()
    sys.path.insert(0, str((options.build / "python").resolve()))
    result = measure(options.smoke)
    if options.table:
        print_table(result)
    else:
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
