"""Which units to record."""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass, fields

from marey import _core


class ScheduleError(ValueError, AssertionError):
    """A number that no schedule can have. Also an AssertionError, which is what torch.profiler.schedule raises."""


class ProfilerAction(enum.IntEnum):
    """What the schedule says for one unit. Names and values are torch.profiler.ProfilerAction's."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def whole_number(field: str, value: object) -> int:
    """An int, or whatever counts as one (NumPy's integers); a boolean is none."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{field}={value!r} is a {type(value).__name__}; give a whole number")


@dataclass(frozen=True)
class Schedule:
    """Skips ``skip_first`` units, then repeats: ``wait`` units of nothing, ``warmup`` units with sources armed, ``active``
    recorded units. ``repeat`` is the number of cycles (0: for ever); ``skip_first_wait`` non-zero leaves out the first wait.
    ``active=0`` means no schedule: everything from start to stop is recorded.

    Called with the number of a unit, from 0, it gives the action, like the function of torch.profiler.schedule.
    """

    skip_first: int = 0
    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 0
    skip_first_wait: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = whole_number(field.name, getattr(self, field.name))
            if not -(2**63) <= value < 2**63:
                raise ScheduleError(f"{field.name}={value} is not between 0 and 2^40")
            object.__setattr__(self, field.name, value)
        try:
            _core.schedule_validate(self.numbers)
        except ValueError as error:
            raise ScheduleError(str(error)) from None

    @property
    def numbers(self) -> tuple[int, int, int, int, int, int]:
        return (self.skip_first, self.wait, self.warmup, self.active, self.repeat, self.skip_first_wait)

    def __call__(self, step: int) -> ProfilerAction:
        number = whole_number("step", step)
        if number < 0:
            raise ScheduleError(f"step={number} is negative; units are numbered from 0")
        return ProfilerAction(_core.schedule_action(self.numbers, min(number, 2**62)))
