"""marey.Profiler from Python: loops, stages, windows, callbacks, ranks, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runs = Callable[..., Any]


LOOP = """
def train(profiler, units, **where):
    for i in range(units):
        with marey.range(f"unit{i}"):
            pass
        profiler.step()
"""


# ---- exact windows ----


def test_a_window_holds_exactly_its_units(run: Runs) -> None:
    outcome = run("""
profiler = marey.Profiler(marey.Schedule(wait=2, warmup=1, active=2, repeat=2), role="actor")
with profiler:
    for i in profiler.mini_batches(range(12)):
        with marey.range(f"unit{i}"):
            marey.mark(f"in{i}")
""")
    assert outcome.units() == [(3, 4, 2, True), (8, 9, 2, True)]
    assert outcome.names(0) == ["unit3", "in3", "unit4", "in4"]
    assert outcome.names(1) == ["unit8", "in8", "unit9", "in9"]
    assert {window["role"] for window in outcome.windows} == {"actor"}
    assert "will record mini_batch 3-4, 8-9" in outcome.stderr


def test_step_and_tick_count_like_the_loop(run: Runs) -> None:
    outcome = run(
        LOOP
        + """
with marey.Profiler(marey.Schedule(wait=1, active=2, repeat=1), quiet=True) as profiler:
    train(profiler, 2)
    profiler.tick("mini_batch")
    profiler.tick("micro_batch")
"""
    )
    assert outcome.units() == [(1, 2, 2, True)]
    assert outcome.names() == ["unit1"]
    assert outcome.stderr == ""


def test_the_last_started_profiler_is_the_one_of_the_module(run: Runs) -> None:
    outcome = run("""
marey.step(); marey.tick("train_step")
first = marey.Profiler(marey.Schedule(active=1, repeat=1), role="first")
second = marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1), role="second")
first.start(); second.start()
marey.step(); marey.mark("m"); marey.tick("mini_batch")
second.stop()
marey.step()
first.stop()
print(json.dumps([first.status().units_seen, second.status().units_seen]))
""")
    assert outcome.json == [1, 2]
    assert sorted((window["role"], window["first_unit"]) for window in outcome.windows) == [("first", 0), ("second", 1)]


def test_without_a_schedule_everything_from_start_to_stop_is_one_window(run: Runs) -> None:
    outcome = run("""
marey.mark("before")
with marey.Profiler() as profiler:
    marey.mark("inside"); profiler.step(); marey.mark("still")
marey.mark("after")
""")
    assert outcome.names() == ["inside", "still"]
    assert outcome.windows[0]["complete"]


def test_two_lives_are_two_windows_with_counters_of_their_own(run: Runs) -> None:
    outcome = run("""
profiler = marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1))
for life in range(3):
    with profiler:
        for i in profiler.mini_batches(range(3)):
            marey.mark(f"{life}.{i}")
profiler.wait()
print(json.dumps([len(profiler.windows), len(profiler.skeletons)]))
""")
    assert outcome.json == [3, 3]
    assert [outcome.names(i) for i in range(3)] == [["0.1"], ["1.1"], ["2.1"]]


# ---- loops ----


def test_epochs_count_through(run: Runs) -> None:
    outcome = run("""
with marey.Profiler(marey.Schedule(skip_first=4, active=2, repeat=1)) as profiler:
    for epoch in range(3):
        for i in profiler.mini_batches(range(3)):
            marey.mark(f"{epoch}.{i}")
""")
    assert outcome.units() == [(4, 5, 2, True)]
    assert outcome.names() == ["1.1", "1.2"]


def test_a_loop_of_just_the_planned_length_leaves_one_whole_window(run: Runs) -> None:
    outcome = run("""
with marey.Profiler(marey.Schedule(active=3)) as profiler:
    for i in profiler.mini_batches(range(3)):
        marey.mark(f"{i}")
    marey.mark("after the loop")
""")
    assert outcome.units()[0] == (0, 2, 3, True)
    assert outcome.names(0) == ["0", "1", "2"]
    assert len(outcome.windows) == 1


def test_break_ends_the_unit_and_the_loop(run: Runs) -> None:
    outcome = run("""
def loop(profiler):
    for i in profiler.mini_batches(range(100)):
        marey.mark(f"{i}")
        if i == 1:
            return
with marey.Profiler(marey.Schedule(active=2, repeat=1)) as profiler:
    loop(profiler)
    marey.mark("after")
    print(json.dumps(profiler.status().units_seen))
""")
    assert outcome.json == 2
    assert outcome.units() == [(0, 1, 2, True)]
    assert outcome.names() == ["0", "1"]


def test_an_exception_in_a_body_leaves_its_unit_unfinished(run: Runs) -> None:
    outcome = run("""
profiler = marey.Profiler(marey.Schedule(active=3, repeat=1))
try:
    with profiler:
        for i in profiler.mini_batches(range(5)):
            marey.mark(f"{i}")
            if i == 1:
                raise ValueError("mine")
except ValueError as error:
    assert error.args == ("mine",) and error.__context__ is None
profiler.wait()
print(json.dumps(profiler.status().units_seen))
""")
    assert outcome.json == 1
    assert outcome.units() == [(0, 1, 1, False)]
    assert outcome.windows[0]["end_reason"] == "exception"


def test_an_exception_that_is_handled_goes_on_with_the_same_unit(run: Runs) -> None:
    outcome = run("""
with marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1)) as profiler:
    for attempt in range(2):
        try:
            for i in profiler.mini_batches(range(2)):
                if attempt == 0:
                    raise RuntimeError
                marey.mark(f"{attempt}.{i}")
        except RuntimeError:
            pass
""")
    assert outcome.names() == ["1.1"]


def test_a_loop_passes_items_length_and_the_loaders_errors(run: Runs) -> None:
    outcome = run("""
def failing():
    yield 1
    raise OSError("loader")
profiler = marey.Profiler(marey.Schedule(active=1), quiet=True)
items = profiler.mini_batches(["a", "b"])
assert len(items) == 2 and list(items) == ["a", "b"] and list(items) == ["a", "b"]
assert list(profiler.micro_batches(iter("xy"))) == ["x", "y"]
got = []
try:
    for item in profiler.mini_batches(failing()):
        got.append(item)
except OSError as error:
    assert got == [1] and str(error) == "loader"
    print("true")
for wrong in (None, 3):
    try:
        iter(profiler.mini_batches(wrong))
    except TypeError:
        pass
    else:
        raise AssertionError
""")
    assert outcome.json is True


def test_micro_batches_restart_in_each_mini_batch(run: Runs, marey: Callable[..., Any]) -> None:
    outcome = run("""
with marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1), unit="micro_batch") as profiler:
    for i in profiler.mini_batches(range(2)):
        for j in profiler.micro_batches(range(3)):
            marey.mark(f"{i}.{j}")
""")
    assert [outcome.names(i) for i in range(len(outcome.windows))] == [["0.1"], ["1.1"]]
    assert {window["unit"] for window in outcome.windows} == {"micro_batch"}


# ---- stages and train steps ----


def test_units_are_counted_in_the_scheduled_stage_of_the_chosen_steps(run: Runs) -> None:
    outcome = run("""
profiler = marey.Profiler(marey.Schedule(wait=1, active=1, repeat=1), steps=[6, 8], role="actor")
profiler.start(train_step=5)
@profiler.stage("rollout")
def rollout():
    assert profiler.status().stage == "rollout"
    marey.mark("rollout")
with profiler:
    for step in range(5, 9):
        rollout()
        with profiler.stage("actor_update", scheduled=True) as stage:
            assert stage.name == "actor_update"
            for i in profiler.mini_batches(range(3)):
                marey.mark(f"{step}.{i}")
        profiler.tick("train_step")
""")
    assert [outcome.names(i) for i in range(2)] == [["6.1"], ["8.1"]]
    assert [(window["train_step"], window["stage"]) for window in outcome.windows] == [(6, "actor_update"), (8, "actor_update")]
    assert "runs already" not in outcome.stderr


def test_stages_can_be_named_up_front(run: Runs) -> None:
    outcome = run("""
with marey.Profiler(marey.Schedule(active=1, repeat=1), stages=["update"]) as profiler:
    for name in ("rollout", "update"):
        with profiler.stage(name):
            for i in profiler.mini_batches(range(2)):
                marey.mark(f"{name}{i}")
""")
    assert outcome.names() == ["update0"]


def test_a_stage_ends_when_an_exception_leaves_it(run: Runs) -> None:
    outcome = run("""
with marey.Profiler(quiet=True) as profiler:
    try:
        with profiler.stage("a"):
            raise KeyError
    except KeyError:
        print(json.dumps(profiler.status().stage))
""")
    assert outcome.json == ""


# ---- results ----


def test_windows_and_status_are_typed(run: Runs) -> None:
    outcome = run("""
from pathlib import Path
profiler = marey.Profiler(marey.Schedule(wait=1, active=2, repeat=1), role="critic", skeleton=False, rank=2, world_size=4)
assert profiler.windows == () and not profiler.status().running
profiler.start(train_step=3)
status = profiler.status()
assert status.running and status.action is marey.ProfilerAction.NONE and status.unit_number == 0
assert status.train_step == 3 and status.first_planned_unit == 1
profiler.step(); marey.mark("a")
assert profiler.status().action is marey.ProfilerAction.RECORD
profiler.step(); profiler.step()
profiler.start()
profiler.stop()
assert profiler.wait(30) is True
(window,) = profiler.windows
assert isinstance(window.path, Path) and window.path.is_file() and window.bytes == window.path.stat().st_size
assert (window.first_unit, window.last_unit, window.recorded_units, window.planned_units) == (1, 2, 2, 2)
assert window.complete and window.unit == "mini_batch" and window.train_step == 3 and window.events == 3 and window.lost == 0
assert window.error == "" and profiler.skeletons == ()
status = profiler.status()
assert (status.starts_ignored, status.windows_sealed, status.units_seen) == (1, 1, 3)
assert "recorded mini_batch 1-2" in status.message
""")
    assert "rank2-of-4" in outcome.windows[0]["path"]


def test_stop_is_safe_twice_and_from_other_threads(run: Runs) -> None:
    outcome = run("""
profiler = marey.Profiler()
profiler.stop()
profiler.start()
marey.mark("m")
threads = [threading.Thread(target=profiler.stop) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
profiler.stop(); profiler.step(); profiler.tick("train_step")
""")
    assert outcome.names() == ["m"]
    assert len(outcome.windows) == 1


# ---- callbacks ----


def test_callbacks_run_once_a_window_in_order_on_a_helper_thread_and_exit_waits(run: Runs) -> None:
    outcome = run("""
calls = []
def ready(profiler):
    window = profiler.windows[-1]
    assert window.path.is_file()
    assert profiler.wait(5)
    calls.append((window.first_unit, len(profiler.windows), threading.current_thread() is threading.main_thread()))
with marey.Profiler(marey.Schedule(wait=1, active=1), on_trace_ready=ready) as profiler:
    for i in profiler.mini_batches(range(10)):
        marey.mark("m")
print(json.dumps(calls))
""")
    assert outcome.json == [[2 * i + 1, i + 1, False] for i in range(5)]


def test_a_failing_callback_is_told_once_and_changes_nothing_else(run: Runs) -> None:
    outcome = run("""
def ready(profiler):
    raise LookupError("callback's own")
with marey.Profiler(marey.Schedule(active=1), on_trace_ready=ready, quiet=True) as profiler:
    for i in profiler.mini_batches(range(4)):
        marey.mark("m")
assert len(profiler.windows) == 4
""")
    assert outcome.stderr.count("marey: on_trace_ready failed for") == 1
    assert outcome.stderr.count("LookupError: callback's own") == 1
    assert len(outcome.windows) == 4


def test_a_callback_never_runs_inside_step(run: Runs) -> None:
    outcome = run("""
may_go = threading.Event()
calls = []
def ready(profiler):
    assert may_go.wait(30)
    calls.append(1)
profiler = marey.Profiler(marey.Schedule(active=1, repeat=1), on_trace_ready=ready)
profiler.start()
marey.mark("m")
profiler.step()  # would wait for ever if it ran the callback
profiler.stop()
assert profiler.wait(0.0) is False and calls == []
may_go.set()
assert profiler.wait(30) is True and calls == [1]
""")
    assert len(outcome.windows) == 1


def test_what_is_no_function_cannot_be_a_callback(run: Runs) -> None:
    run("""
try:
    marey.Profiler(on_trace_ready=3)
except TypeError as error:
    assert "on_trace_ready=3" in str(error)
else:
    raise AssertionError
""")


# ---- misuse at construction ----


@pytest.mark.parametrize(
    ("words", "kind", "texts"),
    [
        ('unit="epoch"', "ValueError", ["epoch", "train_step, mini_batch, micro_batch"]),
        ('contents=["cpu", "everything"]', "ValueError", ["everything", "outline, cpu, shapes"]),
        ('contents="everything"', "ValueError", ["'everything'"]),
        ("rank=4, world_size=4", "ValueError", ["rank 4", "world_size 4"]),
        ("rank=True", "TypeError", ["rank=True"]),
        ("steps=[1, -2]", "ValueError", ["steps", "-2"]),
        ("steps=[1.5]", "TypeError", ["steps=1.5"]),
        ("schedule=lambda step: 0", "TypeError", ["schedule", "marey.profile"]),
        ('out="file/below"', "OSError", ["file/below"]),
    ],
)
def test_misuse_is_an_error_at_once_with_name_and_remedy(
    run: Runs, tmp_path: Path, words: str, kind: str, texts: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    outcome = run(f"""
try:
    marey.Profiler({words})
except {kind} as error:
    print(json.dumps(str(error)))
""")
    assert all(text in outcome.json for text in texts), outcome.json


def test_a_contents_word_that_is_not_supported_yet_is_named_once(run: Runs) -> None:
    outcome = run("""
for _ in range(2):
    with marey.Profiler(contents=["cpu", "stack"], quiet=True):
        marey.mark("m")
""")
    assert outcome.stderr.count("'stack' is not supported yet") == 1
    assert outcome.windows[0]["contents"] == ["cpu"]


# ---- ranks ----


def test_ranks_come_from_the_environment(run: Runs) -> None:
    outcome = run('with marey.Profiler(): marey.mark("m")', RANK="3", WORLD_SIZE="8")
    assert (outcome.windows[0]["rank"], outcome.windows[0]["world_size"]) == (3, 8)


def test_ranks_come_from_torch_and_megatron_when_these_are_set_up(run: Runs) -> None:
    outcome = run(
        """
import types
early = marey.Profiler(role="early")  # made before the ranks are known
distributed = types.ModuleType("torch.distributed")
distributed.is_available = distributed.is_initialized = lambda: True
distributed.get_rank, distributed.get_world_size = lambda: 5, lambda: 16
sys.modules["torch.distributed"] = distributed
state = types.ModuleType("megatron.core.parallel_state")
state.model_parallel_is_initialized = lambda: True
state.get_tensor_model_parallel_rank, state.get_pipeline_model_parallel_rank = lambda: 1, lambda: 0
state.get_data_parallel_rank, state.get_context_parallel_rank = lambda: 2, lambda: 0
sys.modules["megatron.core.parallel_state"] = state
for profiler in (early, marey.Profiler(role="late"), marey.Profiler(role="told", rank=0, world_size=1, parallel="ep3")):
    with profiler:
        marey.mark("m")
""",
        RANK="3",
        WORLD_SIZE="8",
    )
    found = {window["role"]: (window["rank"], window["world_size"], window["parallel"]) for window in outcome.windows}
    assert found == {"early": (5, 16, "tp1-pp0-dp2-cp0"), "late": (5, 16, "tp1-pp0-dp2-cp0"), "told": (0, 1, "ep3")}


def test_torch_that_cannot_be_asked_is_told_once(run: Runs) -> None:
    outcome = run("""
import types
distributed = types.ModuleType("torch.distributed")
distributed.is_available = lambda: True
sys.modules["torch.distributed"] = distributed
for _ in range(2):
    with marey.Profiler(quiet=True):
        marey.mark("m")
""")
    assert outcome.stderr.count("cannot ask torch.distributed") == 1
    assert outcome.windows[0]["rank"] == 0
