"""verl's tools with Marey behind them, without verl: the calls that verl makes of them, and what is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from marey.verl import _options, _runs, config, mstx_profile, torch_profile
from marey.verl._install import asked_by_environment, install
from marey.verl._tool import Tool

torch = pytest.importorskip("torch")

SCHEDULE = {"skip_first": 0, "wait": 1, "warmup": 1, "active": 2, "repeat": 1}


def tool_config(**more: Any) -> SimpleNamespace:
    given: dict[str, Any] = {"contents": [], "discrete": False, "schedule": None, "level": "level0", "analysis": False}
    return SimpleNamespace(**{**given, **more})


def profiler_config(folder: Path | str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(enable=True, save_path=str(folder), **more)


@pytest.fixture(autouse=True)
def nothing_runs() -> Iterator[None]:
    yield
    for kind in Tool.__subclasses__():
        for run in _runs.of_tool(kind.tool):
            _runs.release(run)
        kind._define_count, kind._active_prof = 0, None


@pytest.fixture
def npu() -> Iterator[MagicMock]:
    with patch("marey.verl.mstx_profile.get_npu_profiler") as factory:
        yield factory


@pytest.fixture
def torch_factory() -> Iterator[MagicMock]:
    with patch("marey.verl.torch_profile.get_torch_profiler") as factory:
        yield factory


def make_npu(**more: Any) -> mstx_profile.NPUProfiler:
    return mstx_profile.NPUProfiler(0, profiler_config("unused"), tool_config(**more))


def make_torch(prefix: str | None = None, **more: Any) -> torch_profile.Profiler:
    return torch_profile.Profiler(0, profiler_config("unused"), tool_config(**more), save_file_prefix=prefix)


# ---- npu: life cycle ----


@pytest.mark.parametrize(("generation", "trailing"), [("main", 1), ("pr7105", 0)])
def test_npu_cycle_steps_once_more_at_stop_in_one_generation(
    npu: MagicMock, monkeypatch: pytest.MonkeyPatch, generation: str, trailing: int
) -> None:
    monkeypatch.setenv("MAREY_VERL_GENERATION", generation)
    profiler = make_npu()
    profiler.step()  # nothing runs: nothing happens
    profiler.start(role="actor", profile_step=1)
    assert mstx_profile.NPUProfiler._define_count == 1
    assert profiler.profile_npu is npu.return_value
    profiler.step()
    npu.return_value.step.assert_not_called()
    profiler.stop()
    assert npu.return_value.start.call_count == npu.return_value.stop.call_count == 1
    assert npu.return_value.step.call_count == trailing
    assert mstx_profile.NPUProfiler._define_count == 0


def test_npu_second_start_of_one_role_changes_nothing(npu: MagicMock) -> None:
    first, second = make_npu(), make_npu()
    first.start()
    first.start()
    second.start()
    assert npu.call_count == 1
    assert mstx_profile.NPUProfiler._define_count == 1
    first.stop()
    second.stop()
    assert npu.return_value.stop.call_count == 1
    assert mstx_profile.NPUProfiler._define_count == 0


def test_npu_schedule_is_handed_on_and_stepped_by_who_was_never_started(npu: MagicMock) -> None:
    outer, inner = make_npu(schedule=SimpleNamespace(**SCHEDULE)), make_npu(schedule=SimpleNamespace(**SCHEDULE))
    outer.start(role="actor")
    assert npu.call_args.kwargs["schedule"] == SCHEDULE
    assert mstx_profile.NPUProfiler._active_prof is npu.return_value
    for _ in range(5):
        inner.step()
    assert npu.return_value.step.call_count == 5
    outer.stop()
    assert npu.return_value.step.call_count == 5
    assert npu.return_value.stop.call_count == 1
    assert mstx_profile.NPUProfiler._active_prof is None


@pytest.mark.parametrize("generation", ["main", "pr7105"])
def test_npu_schedule_with_nothing_active_is_none(npu: MagicMock, monkeypatch: pytest.MonkeyPatch, generation: str) -> None:
    monkeypatch.setenv("MAREY_VERL_GENERATION", generation)
    profiler = make_npu(schedule=SimpleNamespace(**{**SCHEDULE, "active": 0}))
    profiler.start()
    profiler.step()
    assert npu.call_args.kwargs.get("schedule") is None
    npu.return_value.step.assert_not_called()


@pytest.mark.parametrize(("generation", "more"), [("main", {}), ("pr7105", {"schedule": None})])
def test_npu_discrete_calls_the_factory_with_exactly_these_words(
    npu: MagicMock, monkeypatch: pytest.MonkeyPatch, generation: str, more: dict[str, Any]
) -> None:
    monkeypatch.setenv("MAREY_VERL_GENERATION", generation)
    profiler = make_npu(discrete=True)
    profiler.start(role="train", profile_step=1)
    npu.assert_not_called()
    assert mstx_profile.NPUProfiler._define_count == 0
    with (
        patch("marey.verl.mstx_profile.mark_start_range") as begin,
        patch("marey.verl.mstx_profile.mark_end_range") as end,
    ):
        assert profiler.annotate(message="stage", role="r")(lambda x: x + 1)(1) == 2
    begin.assert_called_once_with(message="stage")
    end.assert_called_once_with(begin.return_value)
    npu.assert_called_once_with(contents=[], profile_level="level0", profile_save_path="unused", analysis=False, role="r", **more)
    assert npu.return_value.start.call_count == npu.return_value.stop.call_count == 1
    assert npu.return_value.step.call_count == (1 if generation == "main" else 0)


def test_npu_discrete_schedule_counts_in_the_scheduled_stage_alone(npu: MagicMock) -> None:
    more = {"discrete": True, "schedule": SimpleNamespace(**SCHEDULE)}
    outer, inner = make_npu(**more), make_npu(**more)
    outer.start(role="train", profile_step=1)

    def update() -> None:
        for _ in range(3):
            inner.step()

    outer.annotate(role="compute_log_prob")(update)()
    assert "schedule" not in npu.call_args.kwargs
    before = npu.return_value.step.call_count
    outer.annotate(role="actor_update", scheduled=True)(update)()
    assert npu.call_args.kwargs["schedule"] == SCHEDULE
    assert npu.return_value.step.call_count == before + 3
    assert mstx_profile.NPUProfiler._active_prof is None


def test_npu_continuous_stage_is_marked_even_when_it_fails(npu: MagicMock) -> None:
    profiler = make_npu()
    profiler.start()
    npu.reset_mock()
    calls = []

    def stage() -> None:
        calls.append(1)
        raise ValueError("the stage's own")

    with (
        patch("marey.verl.mstx_profile.mark_start_range") as begin,
        patch("marey.verl.mstx_profile.mark_end_range") as end,
        pytest.raises(ValueError, match="the stage's own"),
    ):
        profiler.annotate()(stage)()
    assert calls == [1]
    begin.assert_called_once_with(message="stage")
    end.assert_called_once_with(begin.return_value)
    npu.assert_not_called()


# ---- torch: life cycle ----


def test_torch_cycle(torch_factory: MagicMock) -> None:
    profiler = make_torch("actor")
    assert not profiler.check()
    profiler.start(role="train", profile_step=7)
    assert torch_factory.call_args.kwargs["role"] == "train"
    assert torch_factory.call_args.kwargs["profile_step"] == 7
    assert torch_factory.call_args.kwargs["save_file_prefix"] == "actor"
    profiler.step()
    assert torch_factory.return_value.step.call_count == 1
    profiler.stop()
    assert torch_factory.return_value.step.call_count == 2  # one trailing without a schedule
    assert torch_factory.return_value.stop.call_count == 1
    assert profiler.check()


def test_torch_schedules_resolve() -> None:
    full = {"skip_first": 3, "wait": 2, "warmup": 1, "active": 2, "repeat": 5}
    assert make_torch(schedule=SimpleNamespace(**full))._resolve_continuous_schedule_kwargs() == full
    short = make_torch(schedule=SimpleNamespace(active=2))
    assert short._resolve_schedule_kwargs() == {"skip_first": 0, "wait": 0, "warmup": 0, "active": 2, "repeat": 0}
    assert short._resolve_continuous_schedule_kwargs() == {"skip_first": 0, "wait": 0, "warmup": 0, "active": 2, "repeat": 1}
    off = make_torch(schedule=SimpleNamespace(active=0))
    assert off._resolve_schedule_kwargs() is off._resolve_continuous_schedule_kwargs() is None


def test_torch_discrete_update_is_scheduled_and_others_are_not(torch_factory: MagicMock) -> None:
    profiler = make_torch(discrete=True, schedule=SimpleNamespace(**SCHEDULE))
    profiler.start(role="train", profile_step=4)
    torch_factory.assert_not_called()
    seen = []

    def stage() -> None:
        seen.append(torch_profile.Profiler._active_prof)

    profiler.annotate(role="compute_log_prob")(stage)()
    assert torch_factory.call_args.kwargs["schedule"] is None
    assert torch_factory.call_args.kwargs["name_mini_batch_window"] is False
    profiler.annotate(role="actor_update", scheduled=True)(stage)()
    assert torch_factory.call_args.kwargs["schedule"] == SCHEDULE
    assert torch_factory.call_args.kwargs["name_mini_batch_window"] is True
    assert torch_factory.call_args.kwargs["profile_step"] == 4
    assert seen == [None, torch_factory.return_value]
    assert torch_profile.Profiler._active_prof is None


def test_torch_scheduled_stop_saves_the_partial_window(torch_factory: MagicMock) -> None:
    profiler = make_torch(schedule=SimpleNamespace(**SCHEDULE))
    profiler.start()
    torch_factory.return_value.current_action = torch.profiler.ProfilerAction.RECORD
    profiler.stop()
    assert torch_factory.return_value.current_action is torch.profiler.ProfilerAction.RECORD_AND_SAVE
    torch_factory.return_value.step.assert_not_called()
    torch_factory.return_value.stop.assert_called_once_with()


def test_torch_factory_makes_the_platforms_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAREY_VERL_BACKEND", "torch")
    contents = ["cpu", "cuda", "stack"]
    with patch("torch.profiler.profile") as profile, patch("torch.profiler.schedule") as schedule:
        made = torch_profile.get_torch_profiler(contents, str(tmp_path), role="train", save_file_prefix="actor")
        keywords = profile.call_args.kwargs
        assert len(keywords["activities"]) == 2
        assert keywords["with_stack"] and not keywords["record_shapes"] and not keywords["profile_memory"]
        assert contents == ["cpu", "cuda", "stack"]
        assert "schedule" not in keywords
        schedule.assert_not_called()
        keywords["on_trace_ready"](made)
        written = Path(made.export_chrome_trace.call_args.args[0])
        assert written.parent == tmp_path
        assert written.name.startswith("actor_train_rank0_pid")
        assert written.name.endswith(".json.gz")
        numbers = {"skip_first": 1, "wait": 1, "warmup": 1, "active": 2, "repeat": 0}
        made = torch_profile.get_torch_profiler([], str(tmp_path), schedule=numbers, name_mini_batch_window=True)
        schedule.assert_called_once_with(**numbers)
        assert made.record_steps is False
        made.step_num = 5
        profile.call_args.kwargs["on_trace_ready"](made)
        assert "_mb3-4" in made.export_chrome_trace.call_args.args[0]


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (
            {
                "rank": 0,
                "role": "train",
                "save_file_prefix": "actor",
                "topology": {"rank": 0, "world_size": 8},
                "profile_step": 7,
            },
            "actor_train_step7_rank0-of-8_pid",
        ),
        (
            {"rank": 5, "save_file_prefix": "value_model", "topology": {"rank": 5, "world_size": 16}},
            "value-model_rank5-of-16_pid",
        ),
        ({"rank": 3, "topology": {}}, "rank3_pid"),
        ({"rank": 1, "role": "a/b c", "topology": {"tp": 1, "cp": 0, "dp": 2, "pp": 0}}, "a-b-c_rank1_tp1-pp0-dp2-cp0_pid"),
    ],
)
def test_torch_names(words: dict[str, Any], start: str) -> None:
    assert torch_profile.build_trace_basename(**words).startswith(start)


# ---- nothing of a profiler's reaches training ----


@pytest.mark.parametrize("method", ["start", "step", "stop"])
@pytest.mark.parametrize("discrete", [False, True])
def test_a_failing_back_end_is_told_once_and_the_next_run_is_whole(
    npu: MagicMock, capfd: pytest.CaptureFixture[str], method: str, discrete: bool
) -> None:
    words = {"discrete": discrete, "schedule": SimpleNamespace(**SCHEDULE)}
    profiler = make_npu(**words)
    broken = MagicMock()
    getattr(broken, method).side_effect = OSError(f"{method} {discrete} failed")
    npu.return_value = broken
    calls = []

    def stage() -> None:
        calls.append(1)
        profiler.step()

    def one_step() -> None:
        profiler.start(role="train", profile_step=1)
        profiler.annotate(role="actor_update", scheduled=True)(stage)()
        profiler.stop()

    one_step()
    one_step()
    assert calls == [1, 1]
    assert capfd.readouterr().err.count(f"{method} {discrete} failed") == 1
    assert mstx_profile.NPUProfiler._define_count == 0
    assert mstx_profile.NPUProfiler._active_prof is None
    npu.return_value = whole = MagicMock()
    one_step()
    assert whole.start.call_count == whole.stop.call_count == 1


def test_a_failing_factory_runs_the_stage_once(npu: MagicMock) -> None:
    npu.side_effect = RuntimeError("no device")
    profiler = make_npu(discrete=True)
    profiler.start(role="train")
    calls = []
    profiler.annotate(role="actor_update")(lambda: calls.append(1))()
    assert calls == [1]
    profiler.stop()


def test_a_disabled_tool_needs_no_settings() -> None:
    for kind in (mstx_profile.NPUProfiler, torch_profile.Profiler):
        profiler = kind(0, SimpleNamespace(enable=False), None)
        profiler.step()
        profiler.stop()
        with pytest.raises(AssertionError, match="tool_config must be set"):
            kind(0, SimpleNamespace(enable=True), None)


def test_roles_do_not_step_or_stop_each_other(npu: MagicMock) -> None:
    """Equal settings, two roles in one process."""
    backends = {"actor": MagicMock(), "critic": MagicMock()}
    npu.side_effect = lambda **words: backends[words["role"]]
    schedule = SimpleNamespace(**SCHEDULE)
    actor, critic, inner = make_npu(schedule=schedule), make_npu(schedule=schedule), make_npu(schedule=schedule)
    actor.attach("actor_rollout_ref")
    inner.attach("language_model")
    critic.attach("value_model")
    actor.start(role="actor")
    critic.start(role="critic")
    assert mstx_profile.NPUProfiler._define_count == 2
    critic.step()
    with actor.stage("actor_update", role="actor_update", scheduled=True):
        inner.step()
        inner.step()
    assert (backends["actor"].step.call_count, backends["critic"].step.call_count) == (2, 1)
    critic.stop()
    critic.stop()
    backends["actor"].stop.assert_not_called()
    inner.step()
    assert backends["actor"].step.call_count == 3
    inner.stop()
    assert backends["actor"].stop.call_count == backends["critic"].stop.call_count == 1
    actor.stop()
    assert backends["actor"].stop.call_count == 1


def test_stop_by_many_threads_stops_once(npu: MagicMock) -> None:
    profiler = make_npu()
    profiler.start()
    threads = [threading.Thread(target=profiler.stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert npu.return_value.stop.call_count == 1


def test_marks_go_to_mstx_as_well_and_close_on_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    mstx = MagicMock()
    monkeypatch.setitem(__import__("sys").modules, "torch_npu", SimpleNamespace(npu=SimpleNamespace(mstx=mstx)))
    timing: dict[str, float] = {}
    with pytest.raises(ZeroDivisionError), mstx_profile.marked_timer("gen", timing):
        raise ZeroDivisionError
    assert timing["gen"] >= 0

    @mstx_profile.mark_annotate("named")
    def function() -> int:
        return 3

    assert function() == 3
    assert [call.kwargs["message"] for call in mstx.range_start.call_args_list] == ["gen", "named"]
    assert mstx.range_end.call_count == 2
    mark = mstx_profile.mark_start_range("once")
    mstx_profile.mark_end_range(mark)
    mstx_profile.mark_end_range(mark)
    mstx_profile.mark_end_range(0)
    assert mstx.range_end.call_count == 3


# ---- settings ----


def test_settings_are_read_from_mappings_and_objects() -> None:
    schedule = {"active": 2, "skip_first_wait": True, "unit": "micro_batch"}
    options = _options.resolve({"contents": ["cpu"], "schedule": schedule, "backend": "marey"})
    assert options.unit == "micro_batch"
    assert options.schedule_keywords == {
        "skip_first": 0,
        "wait": 0,
        "warmup": 0,
        "active": 2,
        "repeat": 0,
        "skip_first_wait": 1,
    }
    with pytest.raises(AssertionError, match="unit='token' is not known; choose from mini_batch, micro_batch"):
        _options.resolve({"schedule": {"active": 1, "unit": "token"}})
    with pytest.raises(AssertionError, match="backend='cann' is not known"):
        _options.resolve({"backend": "cann"})
    with pytest.raises(AssertionError, match="contents 'gpu' is not known"):
        config.MareyToolConfig(contents=["gpu"])
    with pytest.raises(ValueError, match="tool 'nsys' is not known; choose from npu, torch, marey"):
        install("nsys")


def test_the_environment_names_tools(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MAREY_VERL", "npu, torch,nsight")
    assert asked_by_environment() == ("npu", "torch")
    assert "MAREY_VERL names 'nsight', which is no tool" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("prefix", "start_role", "role"),
    [
        ("actor_rollout_ref", "train", "actor"),
        ("value_model", None, "critic"),
        ("ref", None, "ref"),
        ("language_model", None, ""),
        ("language_model", "sft", "sft"),
        (None, "train", "train"),
        (None, None, ""),
    ],
)
def test_roles(prefix: str | None, start_role: str | None, role: str) -> None:
    assert _options.role_of(prefix, start_role) == role


# ---- what is recorded ----

#: An outer worker that starts and stops, and an inner one that steps, as verl has them.
WORKERS = """
from types import SimpleNamespace as S
import torch
from marey.verl import NPUProfiler, Profiler, wait

def make(kind, role, schedule, discrete=False, **more):
    config = S(enable=True, save_path=os.environ["MAREY_OUT"], finish_hook_cmd=None)
    made = kind(0, config, S(contents=["cpu"], discrete=discrete, schedule=S(**schedule) if schedule else None, **more))
    made.attach(role)
    return made

def update(inner, count, name="actor"):
    for i in range(count):
        with marey.range(f"{name}{i}"):
            torch.ones(2).add_(1)
        inner.step()
"""


@pytest.mark.parametrize("kind", ["NPUProfiler", "Profiler"])
@pytest.mark.parametrize("discrete", [False, True])
def test_64_mini_batches_give_one_file_with_the_two_that_were_chosen(run: Callable[..., Any], kind: str, discrete: bool) -> None:
    out = run(
        WORKERS
        + f"""
schedule = dict(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
outer, inner = make({kind}, "actor_rollout_ref", schedule, {discrete}), make({kind}, "language_model", schedule, {discrete})
outer.start(role="train", profile_step=5)
outer.annotate(role="actor_update", scheduled=True)(lambda: update(inner, 64))()
outer.stop()
assert wait(30)
"""
    )
    assert out.units() == [(3, 4, 2, True)]
    window = out.windows[0]
    assert (window["role"], window["train_step"]) == ("actor_update" if discrete else "actor", 5)
    assert "_step5_mini-batch3-4_rank0-of-1_" in window["path"]
    assert out.names() == ["actor3", "actor4"]
    lines = [json.loads(line) for line in (Path(window["path"]).parent / "step5.index.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines if line["kind"] == "window"] == [Path(window["path"]).name]


def test_colocated_roles_with_two_schedules_have_exactly_their_windows(run: Callable[..., Any]) -> None:
    out = run(
        WORKERS
        + """
first, second = dict(active=2, skip_first=1, repeat=1), dict(wait=2, active=1, repeat=2)
actor, inner, critic = (make(NPUProfiler, role, s) for role, s in
                        (("actor_rollout_ref", first), ("language_model", first), ("value_model", second)))
for step in (1, 2):
    actor.start(role="train", profile_step=step)
    critic.start(profile_step=step)
    with critic.stage("critic_update", role="critic_update", scheduled=True):
        update(critic, 8, "critic")
    actor.annotate(role="actor_update", scheduled=True)(lambda: update(inner, 5))()
    actor.stop()
    critic.stop()
assert wait(30)
"""
    )
    found = sorted((w["train_step"], w["role"], w["first_unit"], w["last_unit"], w["complete"]) for w in out.windows)
    assert found == [
        (step, *window) for step in (1, 2) for window in (("actor", 1, 2, True), ("critic", 2, 2, True), ("critic", 5, 5, True))
    ]
    for number, window in enumerate(out.windows):
        expected = [f"{window['role']}{i}" for i in range(window["first_unit"], window["last_unit"] + 1)]
        assert out.names(number) == expected


def test_a_failing_mini_batch_leaves_a_partial_window_and_passes_on(run: Callable[..., Any]) -> None:
    for discrete in (False, True):
        out = run(
            WORKERS
            + f"""
actor = make(Profiler, "actor", dict(active=3), {discrete})
actor.start(role="train", profile_step=1)
def stage():
    update(actor, 2)
    raise KeyError("mini-batch 2")
try:
    actor.annotate(role="actor_update", scheduled=True)(stage)()
except KeyError as error:
    print(json.dumps(str(error)))
actor.stop()
actor.stop()
assert wait(30)
"""
        )
        assert "mini-batch 2" in out.json
        assert out.units()[-1] == (0, 1, 2, False)


def test_micro_batches_are_counted_by_the_rows_that_engines_write(run: Callable[..., Any]) -> None:
    out = run(
        WORKERS
        + """
actor = make(Profiler, "actor", dict(skip_first=1, active=1, repeat=1, unit="micro_batch"))
actor.start(role="train", profile_step=1)
plain = torch.profiler.record_function
def stage():
    for i in range(2):
        for j in range(3):
            with torch.profiler.record_function(f"micro_batch{j}"):
                with marey.range(f"{i}.{j}"):
                    pass
        actor.step()
actor.annotate(role="actor_update", scheduled=True)(stage)()
assert torch.profiler.record_function is plain
actor.stop()
assert wait(30)
"""
    )
    assert [(w["unit"], w["first_unit"], w["last_unit"], w["complete"]) for w in out.windows] == [("micro_batch", 1, 1, True)] * 2
    assert [out.names(number) for number in range(2)] == [["0.1"], ["1.1"]]


def test_without_a_schedule_everything_is_one_window(run: Callable[..., Any]) -> None:
    out = run(
        WORKERS
        + """
actor = make(NPUProfiler, "actor", None)
actor.start(role="train", profile_step=3)
actor.annotate(role="actor_compute_log_prob")(lambda: update(actor, 0))()
actor.annotate(role="actor_update", scheduled=True)(lambda: update(actor, 3))()
actor.stop()
assert wait(30)
"""
    )
    assert len(out.windows) == 1
    assert [name for name in out.names() if name.startswith("actor") and name[5:].isdigit()] == ["actor0", "actor1", "actor2"]


def test_a_schedule_on_ref_is_refused_with_the_reason(run: Callable[..., Any]) -> None:
    out = run(
        WORKERS
        + """
ref = make(NPUProfiler, "ref", dict(active=1, skip_first=3))
ref.start(profile_step=1)
ref.annotate(role="ref_compute_log_prob")(lambda: update(ref, 1, "ref"))()
ref.stop()
assert wait(30)
"""
    )
    assert out.stderr.count("the schedule of role 'ref' is left out: nothing steps there") == 1
    assert "ref0" in out.names()


def test_a_run_that_never_stops_is_written_at_exit(run: Callable[..., Any]) -> None:
    out = run(
        WORKERS
        + """
actor = make(NPUProfiler, "actor", dict(active=2, repeat=2))
actor.start(role="train", profile_step=9)
with actor.stage("actor_update", role="actor_update", scheduled=True):
    update(actor, 3)
"""
    )
    assert out.units() == [(0, 1, 2, True), (2, 2, 1, False)]
    assert {window["train_step"] for window in out.windows} == {9}


def test_the_real_torch_profiler_records_within_mareys_boundaries(run: Callable[..., Any], tmp_path: Path) -> None:
    import gzip

    out = run(
        WORKERS
        + """
outer = make(Profiler, "actor_rollout_ref", dict(skip_first=1, warmup=1, active=2, repeat=0), backend="torch")
inner = make(Profiler, "language_model", dict(skip_first=1, warmup=1, active=2, repeat=0), backend="torch")
def stage():
    for i in range(9):
        with torch.profiler.record_function(f"mini_batch{i}"):
            torch.ones(2).add_(1)
        inner.step()
outer.start(role="train", profile_step=2)
outer.annotate(role="actor_update", scheduled=True)(stage)()
outer.stop()
assert wait(30)
"""
    )
    assert "records with torch: as asked" in out.stderr
    paths = sorted((tmp_path / "out").glob("*.json.gz"))
    assert [path.name.split("_rank")[0] for path in paths] == ["actor_step2_mini-batch2-3"], out.stderr
    with gzip.open(paths[0]) as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    assert {name for name in names if str(name).startswith("mini_batch")} == {"mini_batch2", "mini_batch3"}
    assert out.units() == [(2, 3, 2, True)]
    assert out.skeletons
