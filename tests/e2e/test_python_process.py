"""What becomes of the process: early ends, exceptions, exit codes, atexit, fork, PyTorch that is imported late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Runs = Callable[..., Any]


# ---- nothing was recorded ----


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        ("with P(wait=1, warmup=1, active=3): marey.mark('m')", ["step() was never called", "first to record is mini_batch 2"]),
        ("with P(wait=5, active=1) as p:\n    for _ in p.mini_batches(range(3)): pass", ["3 mini_batch", "mini_batch 5"]),
        ("with P(wait=5, active=1, steps=[7]) as p: p.tick('train_step')", ["steps=[7]"]),
        ("with P(active=1, stages=['update']) as p:\n    for _ in p.mini_batches(range(3)): pass", ["no stage", "update"]),
        ("p = P(wait=2, active=1); p.start()", ["step() was never called"]),
    ],
)
def test_a_run_that_records_nothing_says_why(run: Runs, code: str, reasons: list[str]) -> None:
    outcome = run(
        f"""
def P(steps=None, stages=None, **numbers):
    return marey.Profiler(marey.Schedule(**numbers), steps=steps, stages=stages)
{code}
"""
    )
    assert outcome.windows == []
    assert "nothing was recorded because" in outcome.stderr
    assert all(reason in outcome.stderr for reason in reasons), outcome.stderr


def test_an_exception_that_ends_the_loop_early_is_named_as_the_reason(run: Runs) -> None:
    outcome = run(
        """
with marey.Profiler(marey.Schedule(wait=3, active=1)) as profiler:
    for i in profiler.mini_batches(range(5)):
        raise SystemExit(7)
""",
        code_of_exit=7,
    )
    assert "an exception left the loop" in outcome.stderr
    assert outcome.windows == []


# ---- early ends ----


def test_a_loop_shorter_than_the_window_leaves_a_partial_one(run: Runs) -> None:
    outcome = run("""
with marey.Profiler(marey.Schedule(wait=1, active=4, repeat=1)) as profiler:
    for i in profiler.mini_batches(range(3)):
        marey.mark(f"{i}")
""")
    assert outcome.units() == [(1, 2, 2, False)]
    assert outcome.names() == ["1", "2"]


def test_an_exception_leaves_as_it_came_and_the_window_is_whole_up_to_it(run: Runs) -> None:
    outcome = run(
        """
with marey.Profiler(marey.Schedule(active=3, repeat=1), on_trace_ready=lambda p: print(p.windows[-1].recorded_units)) as profiler:
    for i in profiler.mini_batches(range(5)):
        marey.mark(f"{i}")
        if i == 2:
            raise RuntimeError("training's own")
""",
        code_of_exit=1,
    )
    assert outcome.stderr.rstrip().endswith("RuntimeError: training's own")
    assert outcome.stdout == "2\n"
    assert outcome.units() == [(0, 2, 2, False)]
    assert outcome.names() == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(3)", 3), ("raise RuntimeError('mine')", 1), ("pass", 0), ("raise KeyboardInterrupt", 130)]
)
def test_a_profiler_that_nobody_stopped_is_finished_at_exit(run: Runs, end: str, code: int) -> None:
    outcome = run(
        f"""
profiler = marey.Profiler(marey.Schedule(active=5), on_trace_ready=lambda p: print("called", p.windows[-1].path.is_file()))
profiler.start()
for i in range(3):
    marey.mark(f"{{i}}")
    profiler.step()
{end}
""",
        code_of_exit=code if code != 130 else -2,
    )
    assert outcome.stdout == "called True\n"
    assert outcome.units() == [(0, 2, 3, False)]
    assert outcome.partial_files == []
    assert outcome.windows[0]["state"] == "sealed"
    assert outcome.windows[0]["end_reason"] == ("exception" if code in (1, 130) else "exit")


def test_a_profiler_that_nobody_holds_records_on(run: Runs) -> None:
    outcome = run("""
import gc
def set_up():
    marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1)).start()
set_up()
gc.collect()
for i in range(3):
    marey.mark(f"{i}")
    marey.step()
""")
    assert outcome.names() == ["1"]


def test_a_callback_that_never_ends_does_not_keep_the_program(run: Runs) -> None:
    outcome = run("""
import marey._profiler
marey._profiler._ATEXIT_WAIT_S = 0.2
profiler = marey.Profiler(on_trace_ready=lambda p: threading.Event().wait())
profiler.start()
marey.mark("m")
profiler.stop()
""")
    assert "on_trace_ready was still running when the program ended" in outcome.stderr
    assert outcome.names() == ["m"]


def test_a_thread_that_waits_does_not_crash_the_end_of_the_program(run: Runs) -> None:
    outcome = run("""
profiler = marey.Profiler(on_trace_ready=lambda p: None)
profiler.start()
marey.mark("m")
waiting = threading.Thread(target=lambda: marey._core.Profiler.next_window(profiler._native, 99, -1.0), daemon=True)
waiting.start()
""")
    assert outcome.names() == ["m"]


def test_wait_can_be_interrupted(run: Runs) -> None:
    outcome = run(
        """
import signal
may_go = threading.Event()
profiler = marey.Profiler(on_trace_ready=lambda p: may_go.wait(30))
profiler.start()
marey.mark("m")
profiler.stop()
def handler(*_): raise InterruptedError("alarm")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    profiler.wait()
except InterruptedError:
    print("interrupted")
may_go.set()
"""
    )
    assert outcome.stdout == "interrupted\n"


def test_training_goes_on_when_the_folder_vanishes(run: Runs) -> None:
    outcome = run("""
import shutil
profiler = marey.Profiler(marey.Schedule(active=1), out="gone", skeleton=False)
shutil.rmtree("gone")
open("gone", "w").close()
with profiler:
    for i in profiler.mini_batches(range(3)):
        marey.mark("m")
assert profiler.wait(30)
print(profiler.status().units_seen, profiler.status().message)
""")
    assert outcome.stdout.startswith("3 nothing was recorded because cannot create 'gone/")
    assert "training goes on" in outcome.stderr


# ---- fork and multiprocessing ----


def test_after_a_fork_the_childs_profilers_are_inert_and_the_parents_files_whole(run: Runs) -> None:
    outcome = run("""
calls = []
profiler = marey.Profiler(marey.Schedule(active=2, repeat=1), on_trace_ready=lambda p: calls.append(os.getpid()))
profiler.start()
r = marey.range("r")
marey.mark("parent")
with r:
    pid = os.fork()
    if pid == 0:
        for _ in range(1000):
            with r:
                marey.mark("child")
if pid == 0:
    marey.step(); profiler.step(); profiler.tick("train_step"); profiler.start()
    with profiler.stage("s"):
        list(profiler.mini_batches(range(5)))
    status = profiler.status()
    assert not status.running and "fork" in status.message, status
    assert profiler.windows == () and profiler.wait(5)
    profiler.stop()
    sys.exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
profiler.step(); marey.mark("second"); profiler.step()
profiler.stop()
assert profiler.wait(30) and calls == [os.getpid()]
""")
    assert outcome.units() == [(0, 1, 2, True)]
    assert outcome.names() == ["parent", "r", "second"]
    assert len(outcome.windows) == 1
    assert len(outcome.skeletons) == 1
    assert "leaked" not in outcome.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_may_profile_and_leave_without_stopping(run: Runs, tmp_path: Any, method: str) -> None:
    (tmp_path / "job.py").write_text("""
import marey
def job():
    profiler = marey.Profiler(role="child", on_trace_ready=lambda p: print("called", flush=True), quiet=True)
    profiler.start()
    marey.mark("in child")
""")
    outcome = run(f"""
import multiprocessing
sys.path.insert(0, "{tmp_path}")
import job
if __name__ == "__main__":
    with marey.Profiler(role="parent", quiet=True):
        marey.mark("in parent")
        child = multiprocessing.get_context("{method}").Process(target=job.job)
        child.start(); child.join()
        assert child.exitcode == 0
""")
    assert outcome.stdout == "called\n"
    assert sorted((window["role"], window["state"]) for window in outcome.windows) == [("child", "sealed"), ("parent", "sealed")]
    names = {window["role"]: outcome.names(i) for i, window in enumerate(outcome.windows)}
    assert names == {"child": ["in child"], "parent": ["in parent"]}


# ---- PyTorch ----


@pytest.mark.parametrize("early", [True, False])
def test_operators_are_recorded_whether_torch_is_imported_before_or_after_the_start(
    run: Runs, marey: Callable[..., Any], early: bool
) -> None:
    pytest.importorskip("torch")
    outcome = run(f"""
import importlib.util
if {early}: import torch
profiler = marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1))
profiler.start()
assert ("torch" in sys.modules) == {early}
assert importlib.util.find_spec("torch") is not None  # a look is not an import
import torch
assert type(torch.__spec__.loader).__module__ != "marey._torch_hook" and type(torch.__loader__) is type(torch.__spec__.loader)
assert not any("marey" in type(finder).__module__ for finder in sys.meta_path)
for i in profiler.mini_batches(range(3)):
    with marey.range(f"unit{{i}}"):
        torch.ones(3).add(i)
profiler.stop()
""")
    dump = marey("dump", outcome.windows[0]["path"], "--json")
    names = [event["name"] for event in dump if event["category"] in ("user", "operator")]
    assert names.count("aten::add") == 1
    assert "unit1" in names
    assert "unit0" not in names


def test_marey_never_imports_torch_by_itself(run: Runs) -> None:
    outcome = run("""
with marey.profile(schedule=marey.schedule(wait=0, warmup=0, active=1)) as profiler:
    marey.mark("m"); profiler.step()
print(json.dumps([name for name in sys.modules if name.split(".")[0] in ("torch", "numpy", "multiprocessing")]))
""")
    assert outcome.json == []


def test_doctor_prints_what_this_python_knows(run: Runs, build_dir: Any) -> None:
    outcome = run("""
import runpy
runpy.run_module("marey._doctor", run_name="__main__", alter_sys=True)
""")
    found = outcome.json
    assert set(found) == {"python", "marey", "torch"}
    assert found["python"].count(".") == 2
    assert set(found["torch"]["source"]) == {"state", "path", "reason"}
