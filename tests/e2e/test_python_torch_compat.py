"""torch.profiler's names over Marey: a script changes its import and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runs = Callable[..., Any]

#: A script as its author wrote it for PyTorch; only PROFILER is replaced.
SCRIPT = """
import torch
from PROFILER import ProfilerActivity, profile, record_function, schedule
linear = torch.nn.Linear(4, 4)
calls = []
def ready(prof):
    rows = {row.key: row.count for row in prof.key_averages()}
    calls.append({name: rows.get(name, 0) for name in ("aten::linear", "aten::relu", "forward", "aten::tanh")})
numbers = dict(NUMBERS)
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(**numbers), on_trace_ready=ready, record_shapes=True) as prof:
    for i in range(STEPS):
        with record_function("forward"):
            linear(torch.ones(2, 4)).relu()
        if i % 2:
            torch.ones(1).tanh()
        prof.step()
print(json.dumps({"calls": calls, "step_num": prof.step_num}))
"""


@pytest.mark.parametrize(
    ("numbers", "steps"),
    [
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2}, 9),
        ({"wait": 1, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 1}, 12),
        ({"wait": 2, "warmup": 1, "active": 2, "repeat": 0, "skip_first_wait": 1}, 12),
        ({"wait": 1, "warmup": 1, "active": 4, "repeat": 1}, 4),
    ],
)
def test_a_script_records_the_same_with_either_import(run: Runs, numbers: dict[str, int], steps: int) -> None:
    pytest.importorskip("torch")
    code = SCRIPT.replace("NUMBERS", repr(numbers)).replace("STEPS", str(steps))
    theirs, ours = (run(code.replace("PROFILER", module)).json for module in ("torch.profiler", "marey"))
    assert ours == theirs
    assert theirs["calls"]


def test_without_a_schedule_the_table_holds_everything(run: Runs) -> None:
    pytest.importorskip("torch")
    code = """
import torch
from PROFILER import profile, record_function
with profile() as prof:
    with record_function("mine"):
        for _ in range(3):
            torch.ones(2).add(1)
averages = prof.key_averages()
text = averages.table(sort_by="cpu_time_total", row_limit=10)
assert "Name" in text and "# of Calls" in text and "Self CPU time total" in text
rows = {row.key: row for row in averages}
mine = rows["mine"]
assert mine.count == 1 and mine.cpu_time_total >= mine.self_cpu_time_total > 0
print(json.dumps({name: rows[name].count for name in ("mine", "aten::add", "aten::ones")}))
"""
    theirs, ours = (run(code.replace("PROFILER", module)).json for module in ("torch.profiler", "marey"))
    assert ours == theirs == {"mine": 1, "aten::add": 3, "aten::ones": 3}


def test_the_table_is_sorted_cut_and_limited_as_asked(run: Runs) -> None:
    outcome = run("""
with marey.profile() as prof:
    with marey.record_function("once", "with args"):
        for _ in range(5):
            with marey.record_function("n" * 80):
                pass
averages = prof.key_averages()
assert len(averages) == 2 and averages[0].key == "once" and [row.key for row in averages[:1]] == ["once"]
by_count = averages.table(sort_by="count", row_limit=1, max_name_column_width=20, header="HEADER", time_unit="ms")
print(json.dumps([by_count.splitlines(), averages.table(row_limit=-1).count("once"), averages.table(row_limit=0).count("once")]))
averages.table(sort_by="self_cuda_time_total"); averages.table(sort_by="cuda_time_total")
for wrong in ({"sort_by": "beauty"}, {"time_unit": "h"}):
    try:
        averages.table(**wrong)
    except ValueError as error:
        assert list(wrong.values())[0] in str(error) and "choose from" in str(error)
    else:
        raise AssertionError
""")
    lines, unlimited, none = outcome.json
    assert lines[1] == "HEADER"
    assert lines[5].split()[0] == "n" * 17 + "..."
    assert lines[5].split()[-1] == "5"
    assert lines[5].count("ms") == 3
    assert (unlimited, none) == (1, 0)
    assert outcome.stderr.count("sort_by='self_cuda_time_total': devices are not recorded yet") == 1


def test_averages_are_of_the_last_window_or_accumulated(run: Runs) -> None:
    code = """
with marey.profile(schedule=marey.schedule(wait=0, warmup=0, active=1), acc_events=ACC, quiet=True) as prof:
    for i in range(3):
        for _ in range(i + 1):
            marey.mark("m")
        prof.step()
print(json.dumps({row.key: row.count for row in prof.key_averages()}))
"""
    assert run(code.replace("ACC", "False")).json == {"m": 3}
    assert run(code.replace("ACC", "True")).json == {"m": 6}


def test_no_window_gives_an_empty_table(run: Runs) -> None:
    outcome = run("""
with marey.profile(schedule=marey.schedule(wait=5, warmup=0, active=1)) as prof:
    prof.step()
assert len(prof.key_averages()) == 0
print(prof.key_averages().table())
""")
    assert "Self CPU time total: 0.000us" in outcome.stdout


def test_stop_and_leaving_return_when_on_trace_ready_has_run(run: Runs) -> None:
    outcome = run("""
calls = []
prof = marey.profile(on_trace_ready=lambda p: calls.append(p.step_num))
prof.start()
marey.mark("m"); prof.step(); prof.step()
prof.stop()
assert calls == [2] and prof.step_num == 2
with prof:
    marey.mark("n")
assert calls == [2, 2]
print(prof.get_trace_id() == prof.windows[-1].path.stem.split("_")[-1])
""")
    assert outcome.stdout == "True\n"
    assert len(outcome.windows) == 2


def test_torchs_own_schedule_function_is_understood(run: Runs) -> None:
    pytest.importorskip("torch")
    outcome = run("""
import torch
given = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
with marey.profile(schedule=given) as prof:
    assert prof.schedule == marey.Schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
    for i in range(8):
        marey.mark(f"{i}")
        prof.step()
        assert prof.current_action.name == given(i + 1).name
""")
    assert outcome.units() == [(3, 4, 2, True)]
    assert outcome.names() == ["3", "4"]


def test_schedule_objects_of_other_modules_are_understood(run: Runs) -> None:
    outcome = run("""
class Schedule:  # torch_npu's
    def __init__(self): self.wait, self.warmup, self.active, self.repeat, self.skip_first = 1, 0, 1, 1, 0
    def __call__(self, step): raise AssertionError
with marey.profile(schedule=Schedule()) as prof:
    assert prof.schedule == marey.Schedule(wait=1, active=1, repeat=1)
    marey.mark("0"); prof.step(); marey.mark("1")
""")
    assert outcome.names() == ["1"]


def test_any_function_of_the_step_can_be_the_schedule(run: Runs) -> None:
    outcome = run("""
A = marey.ProfilerAction
def choose(step):
    return {2: A.RECORD, 3: A.RECORD_AND_SAVE, 5: A.RECORD_AND_SAVE, 6: A.RECORD_AND_SAVE, 8: 2}.get(step, A.NONE)
calls = []
with marey.profile(schedule=choose, on_trace_ready=lambda p: calls.append(p.windows[-1].events)) as prof:
    for i in range(10):
        marey.mark(f"{i}")
        marey.step()
assert prof.step_num == 10
print(json.dumps(len(calls)))
""")
    assert [outcome.names(i) for i in range(len(outcome.windows))] == [["2", "3"], ["5"], ["6"], ["8"]]
    assert outcome.json == 4
    assert outcome.skeletons == []


def test_a_function_that_gives_no_action_is_told_by_name(run: Runs) -> None:
    outcome = run("""
try:
    marey.profile(schedule=lambda step: "now")
except ValueError as error:
    assert "schedule(0)" in str(error)
else:
    raise AssertionError
with marey.profile(schedule=lambda step: 1 // (2 - step) * 0) as prof:
    for _ in range(5):
        prof.step()
""")
    assert outcome.stderr.count("schedule(2) gave no action") == 1
    assert "nothing was recorded because the schedule's function gave no RECORD for steps 0 to 5" in outcome.stderr


def test_what_is_not_supported_yet_is_said_once_by_name(run: Runs) -> None:
    outcome = run("""
for _ in range(2):
    with marey.profile(
        activities=[marey.ProfilerActivity.CPU, marey.ProfilerActivity.CUDA, marey.ProfilerActivity.XPU],
        with_flops=True, with_stack=True, with_modules=True, profile_memory=True, experimental_config=object(),
        execution_trace_observer=object(), custom_trace_id_callback=lambda: "x", post_processing_timeout_s=1.0, quiet=True,
    ) as prof:
        marey.mark("m")
    prof.key_averages(group_by_input_shape=True, group_by_stack_n=5)
    prof.export_chrome_trace("trace.json"); prof.export_stacks("stacks.txt"); prof.export_memory_timeline("m.html")
    prof.add_metadata("k", "v"); prof.add_metadata_json("k", "{}"); prof.preset_metadata_json("k", "{}")
    prof.toggle_collection_dynamic(True, []); prof.set_custom_trace_id_callback(lambda: "x")
    try:
        prof.events()
    except NotImplementedError as error:
        assert "marey dump" in str(error)
    else:
        raise AssertionError
print(json.dumps(str(prof.windows[-1].path)))
""")
    for name in (
        "with_flops", "experimental_config", "execution_trace_observer", "custom_trace_id_callback=", "post_processing_timeout_s",
        "activity XPU", "contents 'cuda'", "contents 'stack'", "contents 'module'", "contents 'memory'",
        "group_by_input_shape", "group_by_stack_n", "export_chrome_trace()", "export_stacks()", "export_memory_timeline()",
        "add_metadata()", "add_metadata_json()", "preset_metadata_json()", "toggle_collection_dynamic()",
        "set_custom_trace_id_callback()",
    ):  # fmt: skip
        assert outcome.stderr.count(name) == 1, (name, outcome.stderr)
    assert "is a Perfetto trace" in outcome.stderr
    assert outcome.windows[0]["contents"] == ["cpu"]


def test_arguments_choose_the_contents(run: Runs) -> None:
    outcome = run("""
for i, words in enumerate([{}, {"record_shapes": True}, {"use_cuda": False}, {"contents": ["outline"]}]):
    with marey.profile(role=f"r{i}", **words):
        marey.mark("m")
for wrong, kind in (({"activities": []}, AssertionError), ({"activities": [3]}, TypeError), ({"schedule": 3}, TypeError)):
    try:
        marey.profile(**wrong)
    except kind:
        pass
    else:
        raise AssertionError(wrong)
""")
    contents = {window["role"]: window["contents"] for window in outcome.windows}
    assert contents == {"r0": ["cpu"], "r1": ["cpu", "shapes"], "r2": ["cpu"], "r3": ["outline"]}
    assert outcome.stderr.count("use_cuda is deprecated") == 1


def test_the_tensorboard_handler_puts_traces_into_its_folder(run: Runs, tmp_path: Path) -> None:
    outcome = run("""
import pathlib
handler = marey.tensorboard_trace_handler("log", worker_name="w0", use_gzip=True)
with marey.profile(on_trace_ready=handler) as prof:
    marey.mark("m")
with marey.profile(on_trace_ready=handler, out="elsewhere") as other:
    marey.mark("m")
assert prof.windows[-1].path.parent == pathlib.Path("log")
""")
    ours = {path.name for path in (tmp_path / "log").glob("*.pftrace") if "skeleton" not in path.name}
    other = {path.name for path in (tmp_path / "elsewhere").glob("*.pftrace") if "skeleton" not in path.name}
    assert len(ours) == 2
    assert other < ours
    for word in ("tensorboard_trace_handler:", "worker_name", "use_gzip"):
        assert outcome.stderr.count(word) == 1


def test_torchs_own_handler_is_told_where_the_trace_is(run: Runs) -> None:
    pytest.importorskip("torch")
    outcome = run("""
import torch
with marey.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler("log")) as prof:
    marey.mark("m")
""")
    assert "export_chrome_trace() is not supported yet" in outcome.stderr
    assert "Error" not in outcome.stderr


def test_signatures_hold_all_of_torchs_arguments(run: Runs) -> None:
    pytest.importorskip("torch")
    outcome = run("""
import inspect, torch
found = {}
for name in ("profile", "schedule", "tensorboard_trace_handler", "record_function"):
    theirs = getattr(torch.profiler, name)
    ours = getattr(marey, name)
    ours = ours.__new__ if name == "record_function" else ours
    found[name] = sorted(set(inspect.signature(theirs).parameters) - set(inspect.signature(ours).parameters))
for name in ("export_chrome_trace", "key_averages", "step", "start", "stop", "events", "export_stacks", "add_metadata",
             "add_metadata_json", "preset_metadata_json", "export_memory_timeline", "toggle_collection_dynamic"):
    assert callable(getattr(marey.profile, name)), name
print(json.dumps(found))
""")
    assert outcome.json == {"profile": [], "schedule": [], "tensorboard_trace_handler": [], "record_function": []}


def test_the_activities_have_torchs_names_and_values(run: Runs) -> None:
    pytest.importorskip("torch")
    outcome = run("""
import torch
theirs = {name: int(value) for name, value in torch.profiler.ProfilerActivity.__members__.items()}
ours = {name: int(value) for name, value in marey.ProfilerActivity.__members__.items()}
print(json.dumps([theirs.items() <= ours.items(), sorted(a.name for a in marey.supported_activities())]))
""")
    assert outcome.json == [True, ["CPU"]]


def test_record_function_decorates_and_nests(run: Runs, marey: Callable[..., Any]) -> None:
    outcome = run("""
@marey.record_function("outer")
def work():
    with marey.record_function("inner", "arg text") as inner:
        assert isinstance(inner, marey.range)
with marey.profile():
    work()
""")
    events = marey("dump", outcome.windows[0]["path"], "--json")
    found = [(event["name"], event["depth"], event["args"]) for event in events if event["category"] == "user"]
    assert found == [("outer", 0, {}), ("inner", 1, {"args": "arg text"})], json.dumps(found)
