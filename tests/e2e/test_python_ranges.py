"""Ranges and marks from Python: nesting, arguments, threads, generators, coroutines, decorators."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import asyncio, contextlib, copy, functools, inspect, json, pickle, sys, threading
import marey
profiler = marey.Profiler(out="out", quiet=True, skeleton=False)
"""
TAIL = """
profiler.stop()
assert profiler.wait(30)
"""

Record = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def record(run_python: Callable[..., subprocess.CompletedProcess[str]], marey: Callable[..., Any], tmp_path: Path) -> Record:
    """Runs a program between start and stop of a profiler (or with its own, after `started=False`); gives the user's events."""

    def run(code: str, started: bool = True) -> list[dict[str, Any]]:
        done = run_python(HEAD + ("profiler.start()\n" if started else "") + code + TAIL, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr, done.stderr
        (path,) = (tmp_path / "out").glob("*.pftrace")
        return [event for event in marey("dump", path, "--json") if event["category"] == "user"]

    return run


def by_name(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


def one(events: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (event,) = by_name(events, name)
    return event


def holds(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    end = inner["begin_ns"] + (inner["duration_ns"] or 0)
    return bool(outer["begin_ns"] <= inner["begin_ns"] and end <= outer["begin_ns"] + outer["duration_ns"])


def test_ranges_nest_as_the_program_does(record: Record) -> None:
    events = record("""
a, b = marey.range("a"), marey.range("b")
with a:
    with b, marey.range("c"):
        marey.mark("m")
    with b:
        pass
""")
    assert [(event["name"], event["depth"]) for event in events] == [("a", 0), ("b", 1), ("c", 2), ("m", 3), ("b", 1)]
    assert all(holds(events[0], event) for event in events[1:])
    assert not any(event["truncated"] for event in events)


def test_arguments_are_recorded_as_what_they_are(record: Record) -> None:
    events = record("""
import fractions
class Broken:
    def __repr__(self): raise ValueError("no")
with marey.range("r", i=-3, f=0.5, b=True, s="é", none=None, big=2**70, long="x" * 300, obj=["y"] * 300, broken=Broken(),
                 number=fractions.Fraction(1, 2)):
    marey.mark("m", layer=7, text="t")
""")
    args = one(events, "r")["args"]
    assert (args["i"], args["f"], args["b"], args["s"], args["none"]) == (-3, 0.5, True, "é", "None")
    assert args["big"] == str(2**70)
    assert args["long"] == "x" * 300
    assert args["obj"] == repr(["y"] * 300)[:256]
    assert args["broken"] == "<repr of Broken failed>"
    assert args["number"] == 0.5
    assert one(events, "m")["args"] == {"layer": 7, "text": "t"}


def test_numpy_numbers_are_numbers(record: Record) -> None:
    pytest.importorskip("numpy")
    (event,) = record("""
import numpy
with marey.range("r", i=numpy.int64(5), f=numpy.float32(0.5), b=numpy.uint8(7)):
    pass
""")
    assert event["args"] == {"i": 5, "f": 0.5, "b": 7}


def test_names_may_be_anything(record: Record) -> None:
    events = record(r"""
for name in ('quote"', "new\nline", "日本", "\ud800", ""):
    with marey.range(name):
        pass
""")
    assert [event["name"] for event in events][:4] == ['quote"', "new\nline", "日本", "?"]
    assert len(events) == 5


def test_an_object_may_be_used_within_itself(record: Record) -> None:
    events = record("""
r = marey.range("r")
def recurse(n):
    with r:
        if n:
            recurse(n - 1)
recurse(9)
with r:
    pass
""")
    assert [event["depth"] for event in events] == [*range(10), 0]
    assert all(holds(outer, inner) for outer, inner in itertools.pairwise(events[:10]))


def test_threads_may_share_an_object(record: Record) -> None:
    events = record("""
r = marey.range("shared")
inside, leave = threading.Barrier(3), threading.Barrier(3)
def work():
    for _ in range(20):
        with r:
            inside.wait()
            with r:
                marey.mark("m")
            leave.wait()
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
""")
    shared = by_name(events, "shared")
    assert len(shared) == 3 * 20 * 2
    assert len({event["tid"] for event in shared}) == 3
    for tid in {event["tid"] for event in shared}:
        depths = [event["depth"] for event in shared if event["tid"] == tid]
        assert depths == [0, 1] * 20
    assert not any(event["truncated"] for event in shared)


def test_an_exception_passes_and_ends_the_range(record: Record) -> None:
    events = record("""
try:
    with marey.range("failing"):
        raise KeyError("mine")
except KeyError as error:
    assert error.args == ("mine",)
with marey.range("after"):
    pass
""")
    assert [(event["name"], event["depth"], event["truncated"]) for event in events] == [
        ("failing", 0, False),
        ("after", 0, False),
    ]


def test_a_range_that_began_with_the_shutter_closed_is_not_recorded(record: Record) -> None:
    events = record(
        """
r = marey.range("r")
with r:
    profiler.start()
    with r:
        marey.mark("inner")
    marey.mark("outer")
marey.mark("last")
""",
        started=False,
    )
    assert [(event["name"], event["depth"]) for event in events] == [("r", 0), ("inner", 1), ("outer", 0), ("last", 0)]


def test_a_range_that_is_open_at_the_end_is_closed_and_marked(record: Record) -> None:
    events = record("""
r = marey.range("r")
with r:
    profiler.stop()
with r:
    marey.mark("too late")
""")
    assert [(event["name"], event["truncated"]) for event in events] == [("r", True)]


def test_functions_of_all_kinds_can_be_decorated(record: Record) -> None:
    events = record("""
@marey.range("plain")
def plain(a, *, b):
    "doc"
    return a + b
assert plain(1, b=2) == 3 and plain.__name__ == "plain" and plain.__doc__ == "doc"

class C:
    @marey.range("method")
    def method(self):
        return self
    @staticmethod
    @marey.range("static")
    def static():
        return 7
c = C()
assert c.method() is c and C.static() == 7

@marey.range("generator")
def generator():
    got = yield 1
    try:
        yield got
    except ValueError as error:
        yield error
    return "end"
assert inspect.isgeneratorfunction(generator)
g = generator()
assert next(g) == 1 and g.send("sent") == "sent"
error = ValueError()
assert g.throw(error) is error
try:
    next(g)
except StopIteration as stop:
    assert stop.value == "end"

@marey.range("coroutine")
async def coroutine():
    await asyncio.sleep(0)
    return 5
assert inspect.iscoroutinefunction(coroutine)

closed = []
@marey.range("asyncgen")
async def asyncgen():
    try:
        got = yield 1
        try:
            yield got
        except ValueError:
            yield "caught"
        yield "never"
    finally:
        closed.append(1)
assert inspect.isasyncgenfunction(asyncgen)

async def main():
    assert await coroutine() == 5
    a = asyncgen()
    assert await a.__anext__() == 1
    assert await a.asend("sent") == "sent"
    assert await a.athrow(ValueError()) == "caught"
    await a.aclose()
    assert closed == [1]
    assert [item async for item in asyncgen()][0] == 1
asyncio.run(main())
""")
    assert [event["name"] for event in events] == ["plain", "method", "static", "generator", "coroutine", "asyncgen", "asyncgen"]
    assert not any(event["truncated"] for event in events)


@pytest.mark.parametrize("what", ["staticmethod(print)", "int", "5"])
def test_what_is_no_function_is_refused(record: Record, what: str) -> None:
    events = record(f"""
try:
    marey.range("r")({what})
except TypeError as error:
    assert "range('r')" in str(error) or "staticmethod" in str(error)
    marey.mark("refused")
""")
    assert [event["name"] for event in events] == ["refused"]


def test_a_generators_range_covers_its_life_and_crosses_others(record: Record) -> None:
    events = record("""
def items():
    with marey.range("load"):
        yield 1
        yield 2
        marey.mark("load.end")
source = items()
with marey.range("first"):
    next(source)
    with marey.range("inner"):
        pass
with marey.range("second"):
    next(source)
list(source)
""")
    first, second, load = one(events, "first"), one(events, "second"), one(events, "load")
    assert (first["depth"], second["depth"], one(events, "inner")["depth"]) == (0, 0, 1)
    assert not any(event["truncated"] for event in events)
    assert first["begin_ns"] < load["begin_ns"] < first["begin_ns"] + first["duration_ns"]
    assert holds(load, second)
    assert holds(load, one(events, "load.end"))


def test_a_generator_that_is_a_context_managers_body_nests(record: Record) -> None:
    events = record("""
@contextlib.contextmanager
def phase(name):
    with marey.range(name):
        yield
with phase("outer"):
    with phase("inner"), contextlib.ExitStack() as stack:
        stack.enter_context(phase("stacked"))
        marey.mark("m")
""")
    assert [(event["name"], event["depth"]) for event in events] == [("outer", 0), ("inner", 1), ("stacked", 2), ("m", 3)]


@pytest.mark.parametrize(
    "use",
    [
        "with RANGE:\n        await body(i)",
        "async with RANGE:\n        await body(i)",
        "with phase(i):\n        await body(i)",
        "with contextlib.ExitStack() as stack:\n        stack.enter_context(RANGE)\n        await body(i)",
        "await marey.range('task', i=i)(body)(i)",
    ],
)
def test_ranges_of_interleaved_coroutines_keep_their_own_ends(record: Record, use: str) -> None:
    events = record(f"""
@contextlib.contextmanager
def phase(i):
    with marey.range("task", i=i):
        yield
# Task i ends i-th, though it began i-th as well: every pair of them crosses.
async def body(i):
    marey.mark("begin", i=i)
    for _ in range(4 + i):
        await asyncio.sleep(0)
    marey.mark("end", i=i)
async def task(i):
    RANGE = marey.range("task", i=i)
    {use}
async def main():
    with marey.range("main"):
        await asyncio.gather(*(task(i) for i in range(5)))
asyncio.run(main())
with marey.range("after"):
    marey.mark("nested")
""")
    tasks = {event["args"]["i"]: event for event in by_name(events, "task")}
    assert sorted(tasks) == [0, 1, 2, 3, 4]
    for i, event in tasks.items():
        begin, end = (next(m for m in by_name(events, name) if m["args"]["i"] == i) for name in ("begin", "end"))
        assert holds(event, begin)
        assert holds(event, end)
        next_ends = [m["begin_ns"] for m in by_name(events, "end") if m["args"]["i"] == i + 1]
        assert all(event["begin_ns"] + event["duration_ns"] <= ns for ns in next_ends)
    assert not any(event["truncated"] for event in events)
    assert one(events, "nested")["depth"] == 1


def test_one_object_in_interleaved_coroutines_keeps_each_ones_end(record: Record) -> None:
    events = record("""
shared = marey.range("shared")
async def task(i):
    with shared:
        marey.mark("begin", i=i)
        for _ in range(4 + i):
            await asyncio.sleep(0)
        marey.mark("end", i=i)
async def main():
    await asyncio.gather(*(task(i) for i in range(4)))
asyncio.run(main())
""")
    shared = by_name(events, "shared")
    begins, ends = (sorted(m["begin_ns"] for m in by_name(events, name)) for name in ("begin", "end"))
    assert len(shared) == 4
    # They begin and end in the same order, so the n-th range holds the n-th begin and the n-th end.
    for n, event in enumerate(shared):
        assert event["begin_ns"] <= begins[n] <= ends[n] <= event["begin_ns"] + event["duration_ns"]
        assert n == 3 or event["begin_ns"] + event["duration_ns"] <= ends[n + 1]


def test_a_synchronous_function_in_a_coroutine_nests(record: Record) -> None:
    events = record("""
def work():
    with marey.range("outer"), marey.range("inner"):
        marey.mark("m")
async def main():
    work()
asyncio.run(main())
""")
    assert [(event["name"], event["depth"]) for event in events] == [("outer", 0), ("inner", 1), ("m", 2)]


def test_a_range_can_be_copied_pickled_and_subclassed(record: Record) -> None:
    events = record("""
r = marey.range("r", layer=1)
with r:
    for twin in (copy.copy(r), copy.deepcopy(r), pickle.loads(pickle.dumps(r))):
        assert twin.name == "r" and repr(twin) == "marey.range('r')"
        with twin:
            pass
class Mine(marey.range):
    def __init__(self, name, **args):
        self.extra = 1
with Mine("mine", x=1) as mine:
    assert mine.extra == 1
""")
    assert [(event["name"], event["args"]) for event in events] == [("r", {"layer": 1})] * 4 + [("mine", {"x": 1})]


def test_misuse_is_told_with_the_remedy(record: Record) -> None:
    record("""
for wrong in (lambda: marey.range(print), lambda: marey.range(), lambda: marey.range("a", "b"), lambda: marey.mark(3)):
    try:
        wrong()
    except TypeError as error:
        assert 'marey.' in str(error) and '("forward"' in str(error), error
    else:
        raise AssertionError("not refused")
marey.mark("done")
""")


def test_what_a_repr_must_not_swallow_passes(record: Record) -> None:
    record("""
class Interrupted:
    def __repr__(self): raise KeyboardInterrupt
try:
    with marey.range("r", x=Interrupted()):
        raise AssertionError("entered")
except KeyboardInterrupt:
    marey.mark("done")
""")


def test_ranges_leave_no_memory_behind(record: Record) -> None:
    record("""
import gc, weakref
class Owner: pass
owner = Owner()
owner.range = marey.range("cycle", owner=owner)
gone = weakref.ref(owner)
del owner
gc.collect()
assert gone() is None
r = marey.range("r")
before = sys.getrefcount(r)
for _ in range(1000):
    with r:
        with r:
            pass
assert sys.getrefcount(r) == before
none = sys.getrefcount(None)
for _ in range(1000):
    with r:
        pass
    marey.mark("m", a=1)
assert abs(sys.getrefcount(None) - none) < 100
""")
