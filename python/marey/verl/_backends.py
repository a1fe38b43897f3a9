"""Who records: Marey itself, or the platform's own profiler with Marey's schedule, ownership and skeleton around it."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

from marey import _core
from marey._log import log, log_once
from marey._profiler import Profiler
from marey._schedule import Schedule
from marey.verl import _index
from marey.verl._options import Backend, Unit


class _IndexedProfiler(Profiler):
    """Adds each sealed trace to the index of its step."""

    def __init__(self, *, rank: int, world_size: int, role: str, out: str, **options: Any) -> None:
        self._index_entry = {"rank": rank, "world_size": world_size, "role": role}
        self._index_folder = out
        self.lease_step: int | None = None
        # The callback's thread is what hears of sealed traces; what it is to do is _deliver.
        super().__init__(rank=rank, world_size=world_size, role=role, out=out, on_trace_ready=lambda _: None, **options)

    def _deliver(self, raw: _core.WindowDict) -> None:
        keys = (
            "stage",
            "first_unit",
            "last_unit",
            "recorded_units",
            "planned_units",
            "complete",
            "events",
            "lost",
            "bytes",
            "error",
        )
        step = raw["train_step"] if raw["train_step"] is not None else self.lease_step
        entry = {
            **self._index_entry,
            "kind": "skeleton" if raw["is_skeleton"] else "window",
            "unit": ("train_step", "mini_batch", "micro_batch")[raw["unit"]],
            **{key: raw[key] for key in keys},  # type: ignore[literal-required]
            "file": os.path.basename(raw["path"]),
        }
        _index.append(self._index_folder, step, entry)


def world_of(rank: int) -> tuple[int, int]:
    """Rank and number of ranks, as torch.distributed says when it is set up, else as given; RANK's companion WORLD_SIZE then
    says how many there are."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    try:
        size = int(os.environ.get("WORLD_SIZE", ""))
    except ValueError:
        size = 0
    return rank, max(size, rank + 1)


class MareyBackend:
    """Marey records. One lease; not to be started twice.

    contents: Marey's words. scheduled_stages: mini-batches are counted in stages begun as scheduled alone.
    """

    is_marey_backend = True
    #: step() says that a mini-batch is over; one more at the end would be an empty one.
    needs_trailing_step = False

    def __init__(
        self,
        *,
        contents: tuple[str, ...],
        out: str,
        role: str,
        rank: int,
        train_step: int | None,
        schedule: dict[str, int] | None,
        unit: Unit = "mini_batch",
        scheduled_stages: bool = False,
    ) -> None:
        rank, world_size = world_of(rank)
        # A name of no stage: none but those begun as scheduled count.
        stages = ("marey.scheduled",) if schedule is not None and scheduled_stages else None
        self._train_step = train_step
        self._unit = unit
        self.profiler = _IndexedProfiler(
            schedule=None if schedule is None else Schedule(**schedule),
            unit=unit,
            role=role,
            out=out,
            contents=contents,
            rank=rank,
            world_size=world_size,
            stages=stages,
        )

    def start(self) -> None:
        self.profiler.lease_step = self._train_step
        self.profiler.start(self._train_step)

    def step(self) -> None:
        """One mini-batch is over."""
        self.profiler.tick("mini_batch")

    mini_batch_over = step

    def micro_batch_over(self) -> None:
        self.profiler.tick("micro_batch")

    def train_step_over(self) -> None:
        self.profiler.tick("train_step")

    def stage(self, name: str, scheduled: bool) -> AbstractContextManager[Any]:
        return self.profiler.stage(name, scheduled)

    def stop(self, failed: bool = False) -> None:
        self.profiler.stop(failed)

    def wait(self, timeout: float | None = None) -> bool:
        return self.profiler.wait(timeout)


def _imports(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def cuda_is_there() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def npu_is_there() -> bool:
    return _imports("torch_npu")


def choose(tool: str, wanted: Backend) -> Backend:
    """Who records for this tool on this machine, told once. auto: the platform's own profiler where there is a device whose
    records Marey cannot take yet, else Marey."""
    chosen: Backend = wanted
    reason = "as asked"
    if wanted == "auto":
        if tool in ("npu", "marey") and npu_is_there():
            chosen, reason = "torch_npu", "it has the NPU's records, for which Marey has no source yet"
        elif tool in ("torch", "marey") and cuda_is_there():
            chosen, reason = "torch", "it has the GPU's records, for which Marey has no source yet"
        else:
            chosen, reason = "marey", "no device here has records that only its own profiler takes"
    elif wanted == "torch_npu" and not npu_is_there():
        chosen, reason = "marey", "torch_npu, which was asked for, cannot be imported here"
    log_once(f"verl backend {tool} {chosen}", f"verl's '{tool}' profiler records with {chosen}: {reason}")
    return chosen


class PlatformBackend:
    """The platform's own profiler, one of its objects a window, between Marey's boundaries.

    The object is made when its warm-up begins and closed by the step that ends its last unit, so no empty window trails, and
    building one never redirects another's output. A run that ends in the warm-up or in the middle of a window is driven out
    of it before it is stopped: torch_npu keeps its collectors running when it is stopped in the warm-up, and reports of crashes
    follow a stop in the middle of a recording.

    make_profile(schedule, window, last_whole): a torch-like profile whose schedule is that function of its own step number;
    window: first and last mini-batch planned, None without a schedule; last_whole(): the last one that is over.
    A fault of the platform's profiler is told once and ends its part; Marey's goes on.
    """

    is_marey_backend = True
    needs_trailing_step = False

    #: One device profiler at a time in a process: a second would fail or spoil the first.
    _owner: PlatformBackend | None = None

    def __init__(self, around: MareyBackend, make_profile: Any, schedule: dict[str, int] | None, actions: Any) -> None:
        self._around = around
        self._make_profile = make_profile
        self._schedule = None if schedule is None else Schedule(**schedule)
        self._actions = actions  # the platform's ProfilerAction
        self._number = 0
        self._profile: Any = None
        self._ending = False
        self._running = False

    @property
    def profile(self) -> Any:
        return self._profile

    # ---- Marey's side ----

    def start(self) -> None:
        self._around.start()
        self._running = True
        self._guarded(self._move)

    def step(self) -> None:
        self._around.step()
        if not self._running:
            return
        self._number += 1
        self._guarded(lambda: self._move(stepped=True))

    mini_batch_over = step

    def micro_batch_over(self) -> None:
        self._around.micro_batch_over()

    def train_step_over(self) -> None:
        self._around.train_step_over()

    def stage(self, name: str, scheduled: bool) -> AbstractContextManager[Any]:
        if scheduled and self._schedule is not None:
            self._restart_numbers()
        return self._around.stage(name, scheduled)

    def stop(self, failed: bool = False) -> None:
        self._around.stop(failed)
        self._running = False
        self._guarded(self._close)

    def wait(self, timeout: float | None = None) -> bool:
        return self._around.wait(timeout)

    # ---- the platform's side ----

    def _guarded(self, call: Any) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the platform's fault is never the run's
            self._release()
            log_once(
                f"verl platform {error}", f"the platform's profiler failed ({error!r}); its records are missing from here on"
            )

    def _restart_numbers(self) -> None:
        self._guarded(self._close)
        self._number = 0
        self._guarded(self._move)

    def _action(self, number: int) -> int:
        return 2 if self._schedule is None else int(self._schedule(number))

    def _move(self, stepped: bool = False) -> None:
        """Brings the platform's profiler to what the schedule says of the current unit."""
        if self._profile is not None and stepped:
            self._profile.step()
            if self._action(self._number - 1) == 3:  # its last unit is over, and the step has saved it
                self._profile.stop()
                self._release()
        if self._profile is None and self._action(self._number) != 0:
            self._open()

    def _open(self) -> None:
        if PlatformBackend._owner is not None:
            log_once(
                "verl device owner",
                "another role's window is being recorded by the platform's profiler, which takes one at a time; this window has "
                "Marey's skeleton alone",
            )
            return
        base = self._number
        last = base
        if self._schedule is not None:
            while self._action(last) != 3:
                last += 1
        first = base
        while self._schedule is not None and self._action(first) == 1:
            first += 1
        self._ending = False

        def schedule(number: int) -> Any:
            if self._ending or (self._schedule is not None and base + number > last):
                return self._actions.NONE
            return (self._actions.NONE, self._actions.WARMUP, self._actions.RECORD, self._actions.RECORD_AND_SAVE)[
                self._action(base + number)
            ]

        PlatformBackend._owner = self
        try:
            self._profile = self._make_profile(
                schedule, None if self._schedule is None else (first, last), lambda: self._number - 1
            )
            self._profile.start()
        except BaseException:
            self._release()
            raise

    def _close(self) -> None:
        """Ends what is open, in the middle of whatever it is."""
        profile = self._profile
        if profile is None:
            return
        try:
            self._ending = True
            if profile.current_action == self._actions.RECORD:
                profile.current_action = self._actions.RECORD_AND_SAVE  # so that the step below saves what there is
            profile.step()
            profile.stop()
        finally:
            self._release()

    def _release(self) -> None:
        self._profile = None
        if PlatformBackend._owner is self:
            PlatformBackend._owner = None


def say_saved(path: str) -> None:
    log(f"saved {path}")
