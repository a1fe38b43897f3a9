"""Profilers: who records what, and when."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from marey import _core, _log, _torch_hook, _world
from marey._callbacks import CallbackThread
from marey._decorate import decorate
from marey._log import log_once
from marey._schedule import ProfilerAction, Schedule, whole_number

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Unit = Literal["train_step", "mini_batch", "micro_batch"]

_UNITS: tuple[Unit, ...] = ("train_step", "mini_batch", "micro_batch")
#: How long leaving a `with` block or the program waits for callbacks.
_EXIT_WAIT_S = 30.0
_ATEXIT_WAIT_S = 10.0

_running: list[Profiler] = []
_all: weakref.WeakSet[Profiler] = weakref.WeakSet()


def _unit_index(unit: str) -> int:
    if unit in _UNITS:
        return _UNITS.index(unit)
    raise ValueError(f"unit {unit!r} is not known; choose from {', '.join(_UNITS)}")


@dataclass(frozen=True)
class Window:
    """One sealed trace."""

    path: Path
    #: Every planned unit is whole.
    complete: bool
    #: The scheduled stage it lies in, or "".
    stage: str
    train_step: int | None
    unit: Unit
    first_unit: int
    last_unit: int
    recorded_units: int
    #: 0: no schedule.
    planned_units: int
    events: int
    lost: int
    bytes: int
    #: "" or why the file is not whole.
    error: str
    #: The trace of a lease (the skeleton of its steps) rather than a window.
    is_skeleton: bool
    #: 1, 2, ... in order of sealing.
    sequence: int

    @staticmethod
    def _of(raw: _core.WindowDict) -> Window:
        return Window(
            path=Path(raw["path"]),
            complete=raw["complete"],
            stage=raw["stage"],
            train_step=raw["train_step"],
            unit=_UNITS[raw["unit"]],
            first_unit=raw["first_unit"],
            last_unit=raw["last_unit"],
            recorded_units=raw["recorded_units"],
            planned_units=raw["planned_units"],
            events=raw["events"],
            lost=raw["lost"],
            bytes=raw["bytes"],
            error=raw["error"],
            is_skeleton=raw["is_skeleton"],
            sequence=raw["sequence"],
        )


@dataclass(frozen=True)
class Status:
    """What a profiler does now."""

    running: bool
    #: Of the current unit.
    action: ProfilerAction
    train_step: int | None
    #: Innermost open stage, or "".
    stage: str
    #: Number of the schedule's current unit; None: none is counted now.
    unit_number: int | None
    #: Ticks of the schedule's unit in this lease.
    units_seen: int
    #: First unit that the schedule would record; None: none.
    first_planned_unit: int | None
    windows_open: int
    windows_sealed: int
    windows_failed: int
    events: int
    lost: int
    #: Calls of start() while it ran.
    starts_ignored: int
    #: A sentence for people, e.g. "nothing was recorded because ...".
    message: str


class Stage(AbstractContextManager["Stage"]):
    """What the role does for a while: made by Profiler.stage()."""

    def __init__(self, profiler: Profiler, name: str, scheduled: bool) -> None:
        self._profiler = profiler
        self.name = name
        self.scheduled = scheduled

    def __enter__(self) -> Stage:
        self._profiler._native.stage_begin(self.name, self.scheduled)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._profiler._native.stage_end(self.name)

    def __call__(self, function: F) -> F:
        return decorate(self, function)

    def __repr__(self) -> str:
        return f"stage({self.name!r})"


class _Units(Generic[T]):
    """Items of another iterable; the profiler hears of the end of each loop body and of the loop."""

    def __init__(self, profiler: Profiler, items: Iterable[T], unit: Unit) -> None:
        self._profiler = profiler
        self._items = items
        self._unit: Unit = unit

    def __iter__(self) -> Iterator[T]:
        profiler, unit = self._profiler, self._unit
        return _core.UnitIterator(self._items, lambda: profiler.tick(unit), profiler._end_units)

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


def _words(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


class Profiler:
    """Records the units that its schedule chooses, one trace a window, into a folder.

    Misuse at construction is an error at once; afterwards no call raises into the training loop or waits for I/O.

    schedule: which units; None records everything from start to stop.
    unit: what the schedule counts: "train_step", "mini_batch" or "micro_batch". step() ends one of them.
    role: who works: "actor", "critic", ... Part of the file names.
    out: folder; None: $MAREY_OUT, else "marey-traces".
    contents: the detail: "outline", "cpu", "shapes", ...
    steps: train steps that the schedule applies to; None: all.
    stages: stages in which units are counted, besides those begun with scheduled=True.
    rank, world_size, parallel: None: from torch.distributed and Megatron when the program has set them up, else from RANK
        and WORLD_SIZE, else 0 of 1.
    on_trace_ready: called with the profiler on a helper thread, once per window, after its file is sealed;
        profiler.windows[-1] is that window then.
    skeleton: keep stages and units all the time and leave a trace of each lease.
    quiet: leave out the plan and the closing summary on stderr.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        *,
        unit: Unit = "mini_batch",
        role: str = "",
        out: str | os.PathLike[str] | None = None,
        contents: str | Iterable[str] = ("cpu",),
        steps: Iterable[int] | None = None,
        stages: str | Iterable[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_trace_ready: Callable[[Any], object] | None = None,
        skeleton: bool = True,
        quiet: bool = False,
        parallel: str | None = None,
    ) -> None:
        if schedule is not None and not isinstance(schedule, Schedule):
            raise TypeError(f"schedule={schedule!r} is no marey.Schedule; marey.profile also takes functions of a step")
        if on_trace_ready is not None and not callable(on_trace_ready):
            raise TypeError(f"on_trace_ready={on_trace_ready!r} cannot be called; give a function of the profiler")
        self.schedule = schedule
        self._contents = _words(contents)
        self._given = _world.World(
            None if rank is None else whole_number("rank", rank),
            None if world_size is None else whole_number("world_size", world_size),
            parallel,
        )
        self._options: dict[str, Any] = {
            "schedule": None if schedule is None else schedule.numbers,
            "unit": _unit_index(unit),
            "role": role,
            "out": None if out is None else os.fspath(out),
            "contents": list(self._contents),
            "steps": [] if steps is None else [whole_number("steps", step) for step in steps],
            "stages": [] if stages is None else list(_words(stages)),
            "skeleton": skeleton,
            "quiet": quiet,
        }
        self._on_trace_ready = on_trace_ready
        self._lock = threading.RLock()
        self._traces: list[Window] = []
        self._make_native(self._world_now())
        _all.add(self)

    def _world_now(self) -> _world.World:
        found, given = _world.detect(), self._given
        return _world.World(
            found.rank if given.rank is None else given.rank,
            found.world_size if given.world_size is None else given.world_size,
            found.parallel if given.parallel is None else given.parallel,
        )

    def _make_native(self, world: _world.World) -> None:
        self._world = world
        self._native = _core.Profiler(rank=world.rank, world_size=world.world_size, parallel=world.parallel, **self._options)
        self._started = False
        self._callbacks = CallbackThread(self._native) if self._on_trace_ready is not None else None

    # ---- life ----

    def start(self, train_step: int | None = None) -> None:
        """Takes the lease. A second start of a running profiler changes nothing. train_step: the trainer's number of the
        train step that begins now; None: steps are counted from 0 and not named."""
        number = None if train_step is None else whole_number("train_step", train_step)
        with self._lock:
            world = self._world if self._started else self._world_now()
            if world != self._world:
                self._make_native(world)  # ranks were set up after this profiler was made
            self._started = True
        _torch_hook.want_torch(self._contents)
        try:
            self._native.start(number)
        except RuntimeError as error:
            log_once(f"start {error}", f"profiler {self._options['role']!r} did not start: {error}")
            return
        register(self)
        _finish_with_multiprocessing()
        if self._callbacks is not None:
            self._callbacks.start(self._deliver)

    def step(self) -> None:
        """Ends one unit of the schedule's."""
        self._native.step()

    def tick(self, unit: Unit) -> None:
        """Ends one unit of any kind; numbers of the units below it restart."""
        self._native.tick(_unit_index(unit))

    def stop(self, failed: bool = False) -> None:
        """Ends the lease. Safe twice, from any thread, in any state; files are sealed later: see wait(). failed: an exception
        leaves the loop, so the unit in flight is not whole."""
        with contextlib.suppress(ValueError):  # not running, or another thread was first
            _running.remove(self)
        self._native.stop(failed)

    def wait(self, timeout: float | None = None) -> bool:
        """Until every closed window is sealed and its callback has run. False: the time ran out."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._native.wait(-1.0 if timeout is None else max(timeout, 0.0)):
            return False
        if self._callbacks is None:
            return True
        traces = self._collect()
        remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        return self._callbacks.wait(traces[-1].sequence if traces else 0, remaining)

    def __enter__(self) -> Self:
        if self not in _running:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop(failed=kind is not None)
        if self._on_trace_ready is not None:
            self._wait_bounded()

    def _wait_bounded(self) -> None:
        if not self.wait(_EXIT_WAIT_S):
            log_once(
                "exit wait",
                f"traces or on_trace_ready of profiler {self._options['role']!r} were not done after {_EXIT_WAIT_S:.0f} s; "
                "the program goes on, and they are waited for at its end",
            )

    # ---- units and stages ----

    def stage(self, name: str, scheduled: bool = False) -> Stage:
        """What the role does now, as a context manager or decorator. scheduled: units are counted in it, from 0."""
        return Stage(self, name, scheduled)

    def mini_batches(self, items: Iterable[T]) -> Iterable[T]:
        """The items; each loop body is one mini-batch. `break` ends the last one; an exception leaves it unfinished."""
        return _Units(self, items, "mini_batch")

    def micro_batches(self, items: Iterable[T]) -> Iterable[T]:
        """The items; each loop body is one micro-batch."""
        return _Units(self, items, "micro_batch")

    def _end_units(self) -> None:
        self._native.end_units()

    # ---- results ----

    def _collect(self) -> list[Window]:
        """All traces sealed so far."""
        with self._lock:
            while True:
                _, raw = self._native.next_window(self._traces[-1].sequence if self._traces else 0, 0.0)
                if raw is None:
                    return list(self._traces)
                self._traces.append(Window._of(raw))

    def _visible(self) -> list[Window]:
        traces = self._collect()
        if self._callbacks is not None and self._callbacks.is_current_thread:
            return [trace for trace in traces if trace.sequence <= self._callbacks.delivering]
        return traces

    @property
    def windows(self) -> tuple[Window, ...]:
        """Sealed windows, in order. In on_trace_ready the last one is the one it is called for."""
        return tuple(trace for trace in self._visible() if not trace.is_skeleton)

    @property
    def skeletons(self) -> tuple[Window, ...]:
        """Sealed skeleton traces, one a lease."""
        return tuple(trace for trace in self._visible() if trace.is_skeleton)

    def status(self) -> Status:
        """What the profiler does now."""
        try:
            raw = self._native.status()
        except RuntimeError as error:
            return Status(False, ProfilerAction.NONE, None, "", None, 0, None, 0, 0, 0, 0, 0, 0, str(error))
        return Status(
            running=raw["running"],
            action=ProfilerAction(raw["action"]),
            train_step=raw["train_step"],
            stage=raw["stage"],
            unit_number=raw["unit_number"],
            units_seen=raw["units_seen"],
            first_planned_unit=raw["first_planned_unit"],
            windows_open=raw["windows_open"],
            windows_sealed=raw["windows_sealed"],
            windows_failed=raw["windows_failed"],
            events=raw["events"],
            lost=raw["lost"],
            starts_ignored=raw["starts_ignored"],
            message=raw["message"],
        )

    def _deliver(self, raw: _core.WindowDict) -> None:
        if self._on_trace_ready is not None and not raw["is_skeleton"]:
            self._on_trace_ready(self)

    def _after_fork_in_child(self) -> None:
        # The library's handle is inert here by itself. Locks may have been held by threads that are not here.
        self._lock = threading.RLock()
        self._callbacks = None

    def __repr__(self) -> str:
        return f"<marey.{type(self).__name__} role={self._options['role']!r} schedule={self.schedule!r}>"


# ---- the process ----


def register(profiler: Profiler) -> None:
    """It runs: the one that marey.step() means, unless it did already."""
    if profiler not in _running:
        _running.append(profiler)


def step() -> None:
    """profiler.step() of the profiler that was started last and still runs; nothing when none runs."""
    profiler = _latest()
    if profiler is not None:
        profiler.step()


def tick(unit: Unit) -> None:
    """profiler.tick(unit) of the profiler that was started last and still runs; nothing when none runs."""
    index = _unit_index(unit)
    profiler = _latest()
    if profiler is not None:
        profiler.tick(_UNITS[index])


def _latest() -> Profiler | None:
    try:
        return _running[-1]
    except IndexError:
        return None


def _uncaught_exception() -> bool:
    """The program ends because of an exception that nobody caught."""
    interactive = hasattr(sys, "ps1") or sys.flags.interactive
    return not interactive and getattr(sys, "last_type", None) is not None


def _finish() -> None:
    """At exit: ends what still runs and waits, bounded, for files and callbacks."""
    deadline = time.monotonic() + _ATEXIT_WAIT_S

    def remaining() -> float:
        return max(deadline - time.monotonic(), 0.0)

    if _uncaught_exception():
        for profiler in list(_running):
            profiler.stop(failed=True)
    _running.clear()
    _core.finish(remaining())
    for profiler in list(_all):
        if profiler._callbacks is not None and not profiler.wait(remaining()):
            _log.log("on_trace_ready was still running when the program ended")


def _at_exit() -> None:
    _finish()
    _core.close_waiters()


_finish_registered_in = 0


def _finish_with_multiprocessing() -> None:
    """A child of multiprocessing's that was forked leaves without atexit: there its own way out is used."""
    global _finish_registered_in
    process = sys.modules.get("multiprocessing.process")
    if process is None or _finish_registered_in == os.getpid() or process.parent_process() is None:
        return
    _finish_registered_in = os.getpid()
    from multiprocessing import util

    util.Finalize(None, _finish, exitpriority=100)


def _after_fork_in_child() -> None:
    _log.after_fork_in_child()
    _running.clear()
    for profiler in list(_all):
        profiler._after_fork_in_child()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
