from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, TypedDict, TypeVar

from typing_extensions import Self

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_Numbers = tuple[int, int, int, int, int, int]

__version__: str

class WindowDict(TypedDict):
    sequence: int
    path: str
    error: str
    stage: str
    is_skeleton: bool
    complete: bool
    train_step: int | None
    unit: int
    first_unit: int
    last_unit: int
    recorded_units: int
    planned_units: int
    events: int
    lost: int
    bytes: int

class StatusDict(TypedDict):
    running: bool
    action: int
    train_step: int | None
    stage: str
    unit_number: int | None
    units_seen: int
    first_planned_unit: int | None
    windows_open: int
    windows_sealed: int
    windows_failed: int
    events: int
    lost: int
    starts_ignored: int
    message: str

class Profiler:
    def __init__(
        self,
        schedule: _Numbers | None,
        unit: int,
        role: str,
        out: str | None,
        contents: Sequence[str],
        steps: Sequence[int],
        stages: Sequence[str],
        rank: int | None,
        world_size: int | None,
        parallel: str | None,
        skeleton: bool,
        quiet: bool,
    ) -> None: ...
    def start(self, train_step: int | None) -> None: ...
    def step(self) -> None: ...
    def tick(self, unit: int) -> None: ...
    def end_units(self) -> None: ...
    def stop(self, failed: bool) -> None: ...
    def stage_begin(self, name: str, scheduled: bool) -> None: ...
    def stage_end(self, name: str) -> None: ...
    def wait(self, timeout_s: float) -> bool: ...
    def next_window(self, after: int, timeout_s: float) -> tuple[bool, WindowDict | None]: ...
    def status(self) -> StatusDict: ...

class range:  # noqa: N801 - as in Python
    """A named stretch of time: a context manager, an async one and a decorator.

    Arguments that are int, float, bool or str are recorded as such; anything else as its repr, cut to 256 characters.
    One object may be used again and again, within itself and by several threads. In coroutines and generators it may
    cross other ranges.
    """

    def __new__(cls, name: str, /, **args: object) -> Self: ...
    @property
    def name(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Awaitable[Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Awaitable[None]: ...
    def __call__(self, function: _F, /) -> _F: ...

class UnitIterator(Generic[_T]):
    def __new__(cls, items: Iterable[_T], on_end_of_unit: Callable[[], object], on_end_of_loop: Callable[[], object]) -> Self: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __next__(self) -> _T: ...

def mark(name: str, /, **args: object) -> None: ...
def finish(timeout_s: float) -> None: ...
def close_waiters() -> None: ...
def schedule_validate(numbers: _Numbers) -> None: ...
def schedule_action(numbers: _Numbers, number: int) -> int: ...
def enabled() -> bool: ...
def source_load(path: str) -> None: ...
def source_unavailable(name: str, reason: str) -> None: ...
