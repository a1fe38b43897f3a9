"""PyTorch's operators as Marey records them, compared with what torch.profiler writes of the same calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

Run = Callable[..., subprocess.CompletedProcess[str]]
Marey = Callable[..., Any]

#: Every child begins with this: record() leaves one window of `work` and prints nothing.
PRELUDE = """
import json, sys, threading
from pathlib import Path
import marey, torch
from torch.profiler import record_function
torch.set_num_threads(1)

def record(contents, work, out="traces", may_lose=False):
    with marey.Profiler(contents=contents, out=out, skeleton=False, quiet=True) as profiler:
        work()
    assert profiler.wait(60)
    (window,) = profiler.windows
    assert may_lose or window.lost == 0, window
    return window
"""

#: Inputs of every kind that torch.profiler tells apart, a network's training step, and a Function of the user's.
WORK = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=4)

def work():
    a, i = torch.ones(2, 3), torch.arange(4)
    a.add(1)
    a.add(2.5, alpha=2)
    a.mul(True)
    torch.cat([a, a, torch.ones(1, 3)])
    torch.stack((i, i))
    i[torch.tensor([0, 1])]
    a[:, None].expand(2, 4, 3).sum(dim=[0, 1])
    torch.zeros([1] * 30).expand([1] * 31)
    torch.zeros(())
    torch.zeros(2, dtype=torch.bfloat16) + torch.zeros(2, dtype=torch.float16)
    torch.empty(0, 7, dtype=torch.complex64).abs()
    torch.ones(2, dtype=torch.float64).bool().any()
    torch.nn.functional.layer_norm(a, [3])
    torch.nn.functional.pad(a, (1, 1))
    torch.einsum("ij,kj->ik", a, a)
    torch.functional.norm(a)
    torch.tensor([3, 1, 2], dtype=torch.int32).sort(stable=True)
    for x in loader:
        with record_function("my block"):
            Twice.apply(net(x)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

COMPARE = (
    PRELUDE
    + WORK
    + """
work()  # what a first call does alone
record("shapes", work)
record("cpu", work, "cpu")
record("outline", work, "outline")
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as theirs:
    work()
theirs.export_chrome_trace("theirs.json")
"""
)


@pytest.fixture(scope="module")
def compared(run_python: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same work as recorded by Marey (shapes, operators, outline) and by torch.profiler."""
    folder = tmp_path_factory.mktemp("compared")
    done = run_python(COMPARE, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def ours(marey: Marey, path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = marey("dump", path, "--json")
    return events


@pytest.fixture(scope="module")
def theirs(compared: Path) -> list[dict[str, Any]]:
    events = json.loads((compared / "theirs.json").read_text())["traceEvents"]
    chosen = [event for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
    # As Marey orders them: by begin, the enclosing one first.
    return sorted(chosen, key=lambda event: (event["ts"], -event["dur"]))


def test_every_operator_that_torch_profiler_sees_is_recorded(compared: Path, theirs: list[dict[str, Any]], marey: Marey) -> None:
    expected = Counter(event["name"] for event in theirs)
    assert Counter(event["name"] for event in ours(marey, compared / "cpu")) == expected
    assert Counter(event["name"] for event in ours(marey, compared / "traces")) == expected
    assert expected["aten::addmm"] == 4
    assert expected["my block"] == expected["Optimizer.step#AdamW.step"] == 2


def test_operators_nest_as_they_were_called(compared: Path, marey: Marey) -> None:
    events = ours(marey, compared / "cpu")
    assert not any(event["truncated"] for event in events)
    (zeros,) = [i for i, event in enumerate(events) if event["name"] == "aten::zeros"][:1]
    inner = [(event["name"], event["depth"]) for event in events[zeros : zeros + 3]]
    depth = events[zeros]["depth"]
    assert inner == [("aten::zeros", depth), ("aten::empty", depth + 1), ("aten::zero_", depth + 1)]


def test_shapes_and_types_read_as_in_torch_profiler(compared: Path, theirs: list[dict[str, Any]], marey: Marey) -> None:
    def by_name(pairs: list[tuple[str, Any, Any]]) -> dict[str, list[tuple[Any, Any]]]:
        found: dict[str, list[tuple[Any, Any]]] = {}
        for name, dims, types in pairs:
            found.setdefault(name, []).append((dims, types))
        return found

    expected = [
        (e["name"], e["args"].get("Input Dims", []), e["args"].get("Input type", [])) for e in theirs if e["cat"] == "cpu_op"
    ]
    events = [e for e in ours(marey, compared / "traces") if e["category"] in ("operator", "backward")]
    found = [
        (e["name"], json.loads(e["args"].get("Input Dims", "[]")), json.loads(e["args"].get("Input type", "[]"))) for e in events
    ]
    assert by_name(found) == by_name(expected)
    assert any(dims == [[2, 3], [2, 3], [1, 3]] for _, arguments, _ in found for dims in arguments)
    assert not any("Input Dims" in event["args"] for event in ours(marey, compared / "cpu"))


def test_sequence_numbers_and_forward_threads_are_those_of_torch_profiler(
    compared: Path, theirs: list[dict[str, Any]], marey: Marey
) -> None:
    def sequences(pairs: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, int, int]]:
        """The run's first number is taken off: each repetition of the work goes on counting."""
        numbered = [(name, args) for name, args in pairs if args.get("Sequence number", -1) >= 0]
        first = min(args["Sequence number"] for _, args in numbered)
        return sorted((name, args["Sequence number"] - first, args["Fwd thread id"]) for name, args in numbered)

    events = ours(marey, compared / "traces")
    nodes = sequences([(e["name"], e["args"]) for e in events if e["category"] == "backward"])
    assert nodes == sequences([(e["name"], e["args"]) for e in theirs if e["name"] in {name for name, _, _ in nodes}])
    # torch.profiler gives the engine's wrapper of each node the node's number afterwards.
    wrappers = {f"autograd::engine::evaluate_function: {name}" for name, _, _ in nodes}
    forward = sequences([(e["name"], e["args"]) for e in events if e["category"] == "operator"])
    wanted = sequences([(e["name"], e["args"]) for e in theirs if e["name"] not in wrappers | {name for name, _, _ in nodes}])
    assert [each[:2] for each in forward] == [each[:2] for each in wanted]
    assert {thread for _, _, thread in forward} == {thread for _, _, thread in nodes}


def test_each_backward_node_is_reached_by_the_flow_of_its_forward(compared: Path, marey: Marey) -> None:
    events = ours(marey, compared / "cpu")
    begins = {event["flow_id"]: event for event in events if event["flow_id"] is not None}
    pairs = Counter(
        (begins[event["terminating_flow_id"]]["name"], event["name"])
        for event in events
        if event["terminating_flow_id"] in begins and event["category"] == "backward"
    )
    assert pairs["aten::addmm", "AddmmBackward0"] == 4
    assert pairs["aten::mean", "MeanBackward0"] == pairs["aten::pow", "PowBackward0"] == 2
    assert pairs["Twice", "TwiceBackward"] == 2


def test_an_outline_holds_backward_nodes_and_user_scopes_alone(compared: Path, marey: Marey) -> None:
    def chosen(path: Path) -> Counter[tuple[str, str]]:
        events = [(event["category"], event["name"]) for event in ours(marey, path)]
        return Counter(each for each in events if each[0] != "operator")

    outline = ours(marey, compared / "outline")
    assert {event["category"] for event in outline} == {"backward", "user_scope"}
    assert chosen(compared / "outline") == chosen(compared / "cpu")
    names = {event["name"] for event in outline if event["category"] == "user_scope"}
    assert {"my block", "Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"} <= names
    assert any(name.startswith("enumerate(DataLoader)#") for name in names)


THREADS = (
    PRELUDE
    + """
stop = threading.Event()
counts = [0, 0]

def steady(index):
    x = torch.ones(50_000)
    while not stop.is_set():
        x.neg()
        counts[index] += 1

# The outer profiler records all that two threads do; inner ones change what is wanted, forth and back, meanwhile.
outer = marey.Profiler(contents="cpu", out="outer", skeleton=False, quiet=True)
outer.start()
x, mine = torch.ones(3), 0
threads = [threading.Thread(target=steady, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
for i in range(20):
    with marey.Profiler(contents=("shapes", "outline")[i % 2], out=f"inner-{i % 2}", skeleton=False, quiet=True) as inner:
        before = list(counts)
        while any(counts[t] < before[t] + 5 for t in range(2)):
            x.sin()
            mine += 1
stop.set()
for thread in threads:
    thread.join()
outer.stop()
assert inner.wait(60) and outer.wait(60)
print(json.dumps({"sin": mine, "neg": sum(counts), "lost": outer.windows[0].lost}))
"""
)


def test_a_change_of_contents_by_another_window_loses_and_doubles_nothing(run_python: Run, tmp_path: Path, marey: Marey) -> None:
    done = run_python(THREADS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout)
    assert expected["lost"] == 0
    events = ours(marey, tmp_path / "outer")
    names = Counter(event["name"] for event in events)
    assert (names["aten::sin"], names["aten::neg"]) == (expected["sin"], expected["neg"])
    steady = [event for event in events if event["name"] == "aten::neg"]
    assert len({event["tid"] for event in steady}) == 2
    assert {(event["depth"], event["truncated"]) for event in steady} == {(0, False)}
    shaped = [path for path in (tmp_path / "inner-0").iterdir() if path.suffix == ".pftrace"]
    assert len(shaped) == 10
    for path in shaped:
        assert any(event["args"].get("Input Dims") == "[[3]]" for event in ours(marey, path) if event["name"] == "aten::sin")
    # There was nothing for an outline to hold, and no file is made of nothing.
    assert list((tmp_path / "inner-1").iterdir()) == []


DEEP = (
    PRELUDE
    + """
sys.setrecursionlimit(20000)
def nest(levels):
    with record_function(f"level {levels % 7}"):
        if levels > 1:
            nest(levels - 1)
def work():
    nest(1500)
    torch.ones(2).cos()
record("cpu", work, may_lose=True)
first, second = record_function("first"), record_function("second")
def crossing():
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    torch.ones(2).cos()
    second.__exit__(None, None, None)
    torch.ones(2).tan()
record("cpu", crossing, "crossing")
def elsewhere():
    other = record_function("elsewhere")
    thread = threading.Thread(target=other.__enter__)
    thread.start()
    thread.join()
    with record_function("here"):
        other.__exit__(None, None, None)
        torch.ones(2).cos()
record("cpu", elsewhere, "elsewhere")
"""
)


@pytest.fixture(scope="module")
def nested(run_python: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nested")
    done = run_python(DEEP, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_deep_recursion_keeps_the_names_of_what_is_outside(nested: Path, marey: Marey) -> None:
    events = ours(marey, nested / "traces")
    (info,) = marey("info", nested / "traces", "--json")
    levels = [event for event in events if event["name"].startswith("level ")]
    too_deep = sum(loss["count"] for loss in info["losses"] if loss["reason"] == "too_deep")
    assert len(levels) + too_deep == 1500
    assert [event["depth"] for event in levels] == list(range(len(levels)))
    assert not any(event["truncated"] for event in events)
    (last,) = [event for event in events if event["name"] == "aten::cos"]
    assert last["depth"] == 0


def test_a_scope_that_ends_before_one_within_it_ends_under_its_own_name(nested: Path, marey: Marey) -> None:
    events = {event["name"]: event for event in ours(marey, nested / "crossing")}
    first, second, cos, tan = (events[name] for name in ("first", "second", "aten::cos", "aten::tan"))
    assert first["begin_ns"] <= second["begin_ns"]
    assert first["begin_ns"] + first["duration_ns"] <= cos["begin_ns"]
    assert not first["truncated"]
    assert tan["depth"] == 0


def test_a_scope_that_ends_on_another_thread_closes_nothing_there(nested: Path, marey: Marey) -> None:
    events = {event["name"]: event for event in ours(marey, nested / "elsewhere")}
    here, cos = events["here"], events["aten::cos"]
    assert events["elsewhere"]["tid"] != here["tid"]
    assert here["begin_ns"] <= cos["begin_ns"]
    assert cos["begin_ns"] + cos["duration_ns"] <= here["begin_ns"] + here["duration_ns"]
    assert not here["truncated"]


STRADDLE = (
    PRELUDE
    + """
x = torch.ones(2)
with record_function("begun before"):
    profiler = marey.Profiler(contents="cpu", out="traces", skeleton=False, quiet=True)
    profiler.start()
    x.sin()
x.cos()
with record_function("ends after"):
    profiler.stop()
    x.tan()
assert profiler.wait(60)
again = record("cpu", lambda: x.exp(), "again")
"""
)


def test_scopes_across_the_edge_of_a_window_disturb_neither_it_nor_the_next(
    run_python: Run, tmp_path: Path, marey: Marey
) -> None:
    done = run_python(STRADDLE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = ours(marey, tmp_path / "traces")
    assert [(event["name"], event["depth"], event["truncated"]) for event in events] == [
        ("aten::sin", 0, False),
        ("aten::cos", 0, False),
        ("ends after", 0, True),
    ]
    assert [event["name"] for event in ours(marey, tmp_path / "again")] == ["aten::exp"]


NOTHING_LEFT = (
    PRELUDE
    + """
import ctypes
lib = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
has_global = lib._ZN2at18hasGlobalCallbacksEv
has_global.restype = ctypes.c_bool
x = torch.ones(2)
seen = [has_global()]
profiler = marey.Profiler(marey.Schedule(wait=1, warmup=1, active=1, repeat=1), contents="cpu", out="traces", skeleton=False, quiet=True)
profiler.start()
for _ in range(5):
    seen.append(has_global())
    x.sin()
    profiler.step()
profiler.stop()
seen.append(has_global())
assert profiler.wait(60)
print(json.dumps(seen))
"""
)


def test_an_observer_is_there_from_warm_up_to_the_end_of_the_window_alone(run_python: Run, tmp_path: Path, marey: Marey) -> None:
    done = run_python(NOTHING_LEFT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [False, False, True, True, False, False, False]
    assert [event["name"] for event in ours(marey, tmp_path / "traces") if event["category"] == "operator"] == ["aten::sin"]


LONG_SHAPES = (
    PRELUDE
    + """
many = [torch.ones(1, 2, 3) for _ in range(200)]
record("shapes", lambda: torch.cat(many).sin())
"""
)


def test_shapes_that_do_not_fit_are_cut_and_say_so(run_python: Run, tmp_path: Path, marey: Marey) -> None:
    done = run_python(LONG_SHAPES, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cat, sin = (event for event in ours(marey, tmp_path / "traces") if event["name"] in ("aten::cat", "aten::sin"))
    assert cat["args"]["args_truncated"] is True
    assert cat["args"]["Input Dims"].startswith("[[[1, 2, 3], [1, 2, 3], ")
    assert len(cat["args"]["Input Dims"]) > 800
    assert "args_truncated" not in sin["args"]
    assert sin["args"]["Input Dims"] == "[[200, 2, 3]]"


FORK = (
    PRELUDE
    + """
import os
x = torch.ones(2)
profiler = marey.Profiler(contents="cpu", out="traces", skeleton=False, quiet=True)
profiler.start()
x.sin()
child = os.fork()
if child == 0:
    for _ in range(100):
        x.cos()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
x.tan()
profiler.stop()
assert profiler.wait(60)
"""
)


def test_a_forked_child_leaves_nothing_in_the_window(run_python: Run, tmp_path: Path, marey: Marey) -> None:
    done = run_python(FORK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [event["name"] for event in ours(marey, tmp_path / "traces")] == ["aten::sin", "aten::tan"]


# ---- finding, building and refusing the library ----


@pytest.fixture
def package(build_dir: Path, tmp_path: Path) -> Path:
    """The package as a wheel without the PyTorch source's library carries it."""
    root = Path(__file__).resolve().parents[2]
    built = build_dir / "python" / "marey"
    folder = tmp_path / "site" / "marey"
    (folder / "lib").mkdir(parents=True)
    for each in built.iterdir():
        if each.is_file():
            shutil.copy(each.resolve(), folder / each.name)
    for each in (built / "lib").iterdir():
        if not each.name.startswith("libmarey_torch"):
            shutil.copy(each.resolve(), folder / "lib" / each.name)
    (folder / "torch_source").mkdir()
    shutil.copy(root / "src/sources/torch/observer.cpp", folder / "torch_source")
    shutil.copytree(root / "include/marey", folder / "include" / "marey")
    return folder


def environment(package: Path, **more: str) -> dict[str, str]:
    return {"PYTHONPATH": str(package.parent), **more}


USE = PRELUDE + "record('cpu', lambda: torch.ones(2).sin())\n"
ASK = "from marey import _torch_source as s; from dataclasses import asdict; import json; print(json.dumps(asdict(s.status())))"


def test_it_is_built_once_at_first_use_for_all_ranks(package: Path, run_python: Run, tmp_path: Path, marey: Marey) -> None:
    cache = tmp_path / "cache"
    env = environment(package, MAREY_CACHE=str(cache))
    status = json.loads(run_python(ASK, cwd=tmp_path, **env).stdout)
    assert status["state"] == "buildable"
    assert not cache.exists()
    words = [sys.executable, "-c", USE.replace('out="traces"', 'out=f"traces-{sys.argv[1]}"')]
    ranks = [
        subprocess.Popen([*words, str(rank)], cwd=tmp_path, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=240)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told
    assert sum("built the PyTorch source" in text for text in told) == 1
    (library,) = cache.rglob("libmarey_torch-*.so")
    assert [path for path in library.parent.iterdir() if path.name != "lock"] == [library]
    for rank in range(2):
        assert "aten::sin" in {event["name"] for event in ours(marey, tmp_path / f"traces-{rank}")}
    again = run_python(USE, cwd=tmp_path, **environment(package, MAREY_CACHE=str(cache), CXX="/nonexistent", PATH="/nonexistent"))
    assert again.returncode == 0, again.stderr
    assert "built the PyTorch source" not in again.stderr
    assert "aten::sin" in {event["name"] for event in ours(marey, tmp_path / "traces")}


def without_source(run_python: Run, marey: Marey, folder: Path, env: dict[str, str]) -> tuple[str, str]:
    """Runs a program that cannot have the source; returns what was told and the reason in the trace."""
    code = PRELUDE + "record('cpu', lambda: (torch.ones(2).sin(), marey.mark('here')))\n" * 2
    code = code.replace("(window,) = profiler.windows", "window = profiler.windows[0]")
    done = run_python(code, cwd=folder, **env)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "will not be recorded" in line]
    assert len(told) == 1, done.stderr
    path = sorted((folder / "traces").iterdir())[0]
    assert [event["name"] for event in ours(marey, path)] == ["here"]
    (info,) = marey("info", path, "--json")
    (source,) = [source for source in info["sources"] if source["name"] == "torch"]
    assert source["state"] == "unavailable"
    return told[0], source["reason"]


def test_without_a_compiler_it_says_so_once_and_training_goes_on(
    package: Path, run_python: Run, tmp_path: Path, marey: Marey
) -> None:
    env = environment(package, MAREY_CACHE=str(tmp_path / "cache"), CXX="/nonexistent", PATH="/nonexistent")
    told, reason = without_source(run_python, marey, tmp_path, env)
    assert "no C++ compiler" in told
    assert reason in told


def test_a_compiler_that_fails_is_quoted(package: Path, run_python: Run, tmp_path: Path, marey: Marey) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'fatal: it is broken' >&2\nexit 3\n")
    compiler.chmod(0o755)
    told, reason = without_source(
        run_python, marey, tmp_path, environment(package, MAREY_CACHE=str(tmp_path / "cache"), CXX=str(compiler))
    )
    assert "fatal: it is broken" in told
    assert reason in told


def test_a_cache_that_cannot_be_written_is_named(package: Path, run_python: Run, tmp_path: Path, marey: Marey) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    told, _ = without_source(run_python, marey, tmp_path, environment(package, MAREY_CACHE=str(blocked / "cache")))
    assert str(blocked) in told


def test_a_library_for_another_pytorch_is_refused(
    package: Path, build_dir: Path, run_python: Run, tmp_path: Path, marey: Marey
) -> None:
    """One that carries the right name but was built against another version's headers."""
    (library,) = (build_dir / "python" / "marey" / "lib").glob("libmarey_torch-*.so")
    image = library.resolve().read_bytes()
    version = re.sub(r"libmarey_torch-(.*)\.so", r"\1", library.name).split("+")[0].encode()
    found = [match.start() for match in re.finditer(re.escape(b"\0" + version), image)]
    assert found
    other = version[:-1] + b"9"
    (package / "lib" / library.name).write_bytes(image.replace(b"\0" + version, b"\0" + other))
    told, reason = without_source(run_python, marey, tmp_path, environment(package, MAREY_CACHE=str(tmp_path / "cache")))
    assert f"was built for PyTorch {other.decode()}" in told
    assert "remove it" in reason
