"""marey.Schedule: its rules, its errors, and that its actions are torch.profiler.schedule's."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FIELDS = ("skip_first", "wait", "warmup", "active", "repeat", "skip_first_wait")


@pytest.fixture(scope="module")
def package(build_dir: Path) -> Iterator[ModuleType]:
    """The built package, in this process: schedules hold no state."""
    sys.path.insert(0, str(build_dir / "python"))
    try:
        yield importlib.import_module("marey")
    finally:
        sys.path.remove(str(build_dir / "python"))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [-1, -(2**70), 2**70])
def test_an_impossible_number_is_an_error_that_names_field_and_value(package: ModuleType, field: str, value: int) -> None:
    with pytest.raises(package.ScheduleError, match=field) as caught:
        package.Schedule(**{field: value})
    assert str(value) in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [True, 1.0, "2", None])
def test_what_is_no_whole_number_is_an_error_that_names_field_and_value(package: ModuleType, field: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{field}={value!r}"):
        package.Schedule(**{field: value})


def test_integers_of_other_libraries_are_taken(package: ModuleType) -> None:
    class Three:
        def __index__(self) -> int:
            return 3

    schedule = package.Schedule(wait=Three())
    assert schedule.wait == 3
    assert type(schedule.wait) is int


def test_a_schedule_cannot_be_changed_and_compares_by_value(package: ModuleType) -> None:
    schedule = package.Schedule(wait=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.wait = 2
    assert schedule == package.Schedule(0, 1)
    assert len({schedule, package.Schedule(wait=1)}) == 1


def test_without_active_every_unit_is_recorded(package: ModuleType) -> None:
    schedule = package.Schedule(active=0)
    assert [schedule(n) for n in range(3)] == [package.ProfilerAction.RECORD] * 3


def test_a_negative_or_fractional_step_is_an_error(package: ModuleType) -> None:
    schedule = package.Schedule()
    with pytest.raises(AssertionError, match="-1"):
        schedule(-1)
    with pytest.raises(TypeError, match=r"step=0\.5"):
        schedule(0.5)


def test_actions_equal_those_of_torch(package: ModuleType) -> None:
    profiler = pytest.importorskip("torch.profiler")
    for wait, warmup, active, repeat, skip_first, skip_wait in itertools.product(
        (0, 1, 3), (0, 2), (1, 2, 5), (0, 1, 2), (0, 4), (0, 1)
    ):
        words: dict[str, Any] = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first}
        words["skip_first_wait"] = skip_wait
        with pytest.warns(UserWarning, match="warmup") if warmup == 0 else _nothing():
            theirs = profiler.schedule(**words)
        for ours in (package.Schedule(**words), package.schedule(**words)):
            assert [ours(n).name for n in range(40)] == [theirs(n).name for n in range(40)], words


class _nothing:  # noqa: N801 - used like a function
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"wait": 1, "warmup": 1}, TypeError),
        ({"wait": 1, "warmup": 1, "active": 0}, AssertionError),
        ({"wait": -1, "warmup": 1, "active": 1}, AssertionError),
        ({"wait": 1, "warmup": -1, "active": 1}, AssertionError),
        ({"wait": 1, "warmup": 1, "active": 1, "repeat": -1}, AssertionError),
        ({"wait": 1, "warmup": 1, "active": 1, "skip_first": -1}, AssertionError),
    ],
)
def test_the_function_of_torchs_name_refuses_what_torch_refuses(
    package: ModuleType, words: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        package.schedule(**words)
    theirs = pytest.importorskip("torch.profiler").schedule
    with pytest.raises(error):
        theirs(**words)


def test_torchs_documented_switch_is_taken(package: ModuleType) -> None:
    schedule = package.schedule(wait=5, warmup=0, active=1, skip_first_wait=True)
    assert schedule(0) == package.ProfilerAction.RECORD_AND_SAVE


def test_actions_have_torchs_names_and_values(package: ModuleType) -> None:
    theirs = pytest.importorskip("torch.profiler").ProfilerAction
    for action in package.ProfilerAction:
        assert theirs[action.name].value == action.value
