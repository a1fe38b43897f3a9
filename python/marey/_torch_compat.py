"""torch.profiler's names and arguments over Marey: a script changes its import and nothing else. PyTorch is not needed.

What has no counterpart yet is said once, by name, on stderr; what would have to return something it cannot raises
NotImplementedError. Nothing is ignored in silence.
"""

from __future__ import annotations

import enum
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

from marey import _averages, _core
from marey._log import log, log_once
from marey._profiler import Profiler, Unit, Window, register
from marey._schedule import ProfilerAction, Schedule, ScheduleError, whole_number

if TYPE_CHECKING:
    from typing_extensions import Self


class ProfilerActivity(enum.IntEnum):
    """torch.profiler.ProfilerActivity, and torch_npu's NPU."""

    CPU = 0
    XPU = 1
    CUDA = 2
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5
    NPU = 6


_CONTENTS_OF_ACTIVITY = {"CPU": "cpu", "CUDA": "cuda", "NPU": "npu", "PrivateUse1": "npu"}


def supported_activities() -> set[ProfilerActivity]:
    """Activities whose events Marey records here."""
    return {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0) -> Schedule:
    """torch.profiler.schedule: a function of the step's number, from 0, that gives the action."""
    if isinstance(skip_first_wait, bool):  # torch documents it as a switch
        skip_first_wait = int(skip_first_wait)
    if whole_number("active", active) == 0:
        raise ScheduleError("active=0 records nothing; give the number of steps to record, from 1")
    return Schedule(
        skip_first=skip_first,
        wait=wait,
        warmup=warmup,
        active=active,
        repeat=repeat,
        skip_first_wait=skip_first_wait,
    )


class record_function(_core.range):  # noqa: N801 - torch's name
    """torch.profiler.record_function: a range with one text as its argument."""

    __slots__ = ()

    def __new__(cls, name: str, args: str | None = None) -> Self:
        if args is None:
            return super().__new__(cls, name)
        return super().__new__(cls, name, args=args)


class _TensorboardTraceHandler:
    """Puts the traces into one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, profiler: Profiler) -> None:
        window = profiler.windows[-1]
        target = Path(self.folder)
        if window.path.parent.resolve() == target.resolve():
            return  # marey.profile() wrote it there in the first place
        target.mkdir(parents=True, exist_ok=True)
        try:
            os.link(window.path, target / window.path.name)
        except OSError:  # another file system
            shutil.copy2(window.path, target / window.path.name)


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[Profiler], None]:
    """torch.profiler.tensorboard_trace_handler: traces go to `dir_name`, as Perfetto traces."""
    log_once(
        "tensorboard_trace_handler",
        f"tensorboard_trace_handler: TensorBoard's JSON is not written yet; traces go to '{dir_name}' as Perfetto traces "
        "(*.pftrace), which ui.perfetto.dev opens",
    )
    if worker_name is not None:
        _unsupported("tensorboard_trace_handler", "worker_name", "file names hold role, rank, host and pid instead")
    if use_gzip:
        _unsupported("tensorboard_trace_handler", "use_gzip", "traces are compressed by themselves")
    if use_python_export:
        _unsupported("tensorboard_trace_handler", "use_python_export", "traces are written while they are recorded")
    return _TensorboardTraceHandler(os.fspath(dir_name))


def _unsupported(what: str, argument: str, instead: str) -> None:
    log_once(f"{what} {argument}", f"{what}({argument}=) is not supported yet and is left out: {instead}")


def _activities(activities: Iterable[Any] | None, use_cuda: bool | None) -> list[str]:
    """Names of the activities that are asked for."""
    if activities is None:
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        names = ["CPU"]
        if use_cuda is None and cuda is not None and cuda.is_available():
            names.append("CUDA")
    else:
        names = []
        for item in activities:
            if isinstance(item, Mapping):
                log_once("activities dict", "activities with lists of single kinds are not supported yet: all kinds are recorded")
            for activity in item if isinstance(item, Mapping) else (item,):
                name = getattr(activity, "name", None)
                if not isinstance(name, str):
                    raise TypeError(f"activities holds {activity!r}; use marey.ProfilerActivity.CPU and its kin")
                names.append(name)
    if use_cuda is not None:
        log_once("use_cuda", "use_cuda is deprecated; use activities=[marey.ProfilerActivity.CPU, ...] instead")
        names = [name for name in names if name != "CUDA"] + (["CUDA"] if use_cuda else [])
    if not names:
        raise ScheduleError("activities is empty; use activities=[marey.ProfilerActivity.CPU]")
    return names


def _contents(names: Iterable[str], flags: Mapping[str, bool]) -> list[str]:
    words = []
    for name in names:
        word = _CONTENTS_OF_ACTIVITY.get(name)
        if word is None:
            log_once(f"activity {name}", f"activity {name} is not supported yet and is left out; supported is CPU")
        else:
            words.append(word)
    words += [word for word, wanted in flags.items() if wanted]
    return list(dict.fromkeys(words)) or ["outline"]


def _as_schedule(given: Any) -> Schedule | Callable[[int], Any] | None:
    """A Schedule where `given` is one, or torch's, whatever module made it; else the function itself."""
    if given is None or isinstance(given, Schedule):
        return given
    fields = ("skip_first", "wait", "warmup", "active", "repeat", "skip_first_wait")
    if isinstance(given, FunctionType) and given.__qualname__ == "schedule.<locals>.schedule_fn":
        cells = dict(zip(given.__code__.co_freevars, given.__closure__ or (), strict=True))
        values = {name: cells[name].cell_contents for name in fields if name in cells}
        if {"wait", "warmup", "active"} <= values.keys():
            return schedule(**values)
    if not isinstance(given, FunctionType) and all(hasattr(given, name) for name in ("wait", "warmup", "active")):
        return schedule(**{name: getattr(given, name) for name in fields if hasattr(given, name)})
    if not callable(given):
        raise TypeError(f"schedule={given!r} is neither marey.schedule(...) nor a function of the step's number")
    return given  # type: ignore[no-any-return]


class profile(Profiler):  # noqa: N801 - torch's name
    """torch.profiler.profile: step() calls are counted from 0, and without a schedule everything from start to stop is one
    window. Leaving the `with` block, or stop(), returns when on_trace_ready has run. Marey's own arguments come after torch's.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[[Any], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: object = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        unit: Unit = "mini_batch",
        role: str = "",
        out: str | os.PathLike[str] | None = None,
        contents: str | Iterable[str] | None = None,
        steps: Iterable[int] | None = None,
        stages: str | Iterable[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        skeleton: bool = True,
        quiet: bool = False,
        parallel: str | None = None,
    ) -> None:
        if with_flops:
            _unsupported("profile", "with_flops", "record_shapes=True keeps the shapes to compute them from")
        if experimental_config is not None:
            _unsupported("profile", "experimental_config", "its options are Kineto's")
        if execution_trace_observer is not None:
            _unsupported("profile", "execution_trace_observer", "start and stop the observer yourself")
        if custom_trace_id_callback is not None:
            _unsupported("profile", "custom_trace_id_callback", "each trace has a random id of its own")
        if post_processing_timeout_s is not None:
            _unsupported("profile", "post_processing_timeout_s", "nothing is processed after a window")
        if contents is None:
            flags = {"shapes": record_shapes, "memory": profile_memory, "stack": with_stack, "module": with_modules}
            contents = _contents(_activities(activities, use_cuda), flags)
        if out is None and isinstance(on_trace_ready, _TensorboardTraceHandler):
            out = on_trace_ready.folder
        planned = _as_schedule(schedule)
        self._function = None if planned is None or isinstance(planned, Schedule) else planned
        # A function of the user's own has no plan to log and no lease that lasts: each of its windows is one.
        super().__init__(
            planned if isinstance(planned, Schedule) else None,
            unit=unit,
            role=role,
            out=out,
            contents=contents,
            steps=steps,
            stages=stages,
            rank=rank,
            world_size=world_size,
            on_trace_ready=on_trace_ready,
            skeleton=skeleton and self._function is None,
            quiet=quiet or self._function is not None,
            parallel=parallel,
        )
        self._acc_events = acc_events
        self.step_num = 0
        self._drive = False
        self._recorded = False
        self.current_action = self._action_of(0, at_construction=True)

    # ---- life ----

    def start(self, train_step: int | None = None) -> None:
        """Begins; the first step is number 0."""
        if self._function is None:
            super().start(train_step)
        elif not self._drive:
            self._drive = True
            self._move_to(self._action_of(self.step_num))
            register(self)

    def step(self) -> None:
        """The next step begins."""
        self.step_num += 1
        if self._function is None:
            super().step()
            if self.schedule is not None:
                self.current_action = self.schedule(self.step_num)
        elif self._drive:
            if self.current_action == ProfilerAction.RECORD:
                super().step()
            self._move_to(self._action_of(self.step_num))
            register(self)

    def stop(self, failed: bool = False) -> None:
        """Ends it, and returns when the traces are sealed and on_trace_ready has run (bounded)."""
        driven, self._drive = self._drive, False
        super().stop(failed)
        if self._callbacks is None or not self._callbacks.is_current_thread:
            self._wait_bounded()
        if driven and not self._recorded:
            log(f"nothing was recorded because the schedule's function gave no RECORD for steps 0 to {self.step_num}")

    def __enter__(self) -> Self:
        if not self._drive:
            return super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop(failed=kind is not None)

    def _action_of(self, step: int, at_construction: bool = False) -> ProfilerAction:
        if self._function is None:
            return ProfilerAction.RECORD if self.schedule is None else self.schedule(step)
        try:
            given = self._function(step)
            return ProfilerAction(getattr(given, "value", given))
        except Exception as error:
            if at_construction:
                raise ValueError(f"schedule({step}) gave no action of marey.ProfilerAction: {error}") from error
            log_once(f"schedule {error}", f"schedule({step}) gave no action ({error}); nothing is recorded in this step")
            return ProfilerAction.NONE

    def _move_to(self, action: ProfilerAction) -> None:
        """From one step to the next where a function decides: a lease is a window."""
        records = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self.status().running and (not records or self.current_action == ProfilerAction.RECORD_AND_SAVE):
            super().stop()
        self.current_action = action
        if records and not self.status().running:
            self._recorded = True
            super().start()

    # ---- results ----

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> _averages.Averages:
        """Rows per name of the last window (of all windows with acc_events=True)."""
        if group_by_input_shape:
            _unsupported("key_averages", "group_by_input_shape", "rows are per name")
        if group_by_stack_n:
            _unsupported("key_averages", "group_by_stack_n", "rows are per name")
        if group_by_overload_name:
            _unsupported("key_averages", "group_by_overload_name", "rows are per name")
        windows = self._sealed_windows()
        chosen = windows if self._acc_events else windows[-1:]
        return _averages.averages_of([window.path for window in chosen])

    def _sealed_windows(self) -> tuple[Window, ...]:
        if self._callbacks is None or not self._callbacks.is_current_thread:
            self._wait_bounded()
        return self.windows

    def events(self) -> Any:
        raise NotImplementedError(
            "marey.profile.events() is not supported yet; `marey dump --json` prints every event of a trace"
        )

    def export_chrome_trace(self, path: str, *args: object, **kwargs: object) -> None:
        """Not yet: the trace lies in its folder as a Perfetto trace already."""
        windows = self._sealed_windows()
        where = f"'{windows[-1].path}'" if windows else "the output folder"
        self._not_yet(
            "export_chrome_trace", f"'{path}' is not written; {where} is a Perfetto trace that ui.perfetto.dev opens as it is"
        )

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        self._not_yet("export_stacks", f"'{path}' is not written; stacks are not recorded yet")

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        self._not_yet("export_memory_timeline", f"'{path}' is not written; memory is not recorded yet")

    def add_metadata(self, key: str, value: str) -> None:
        self._not_yet("add_metadata", "use marey.mark(name, key=value) inside a window")

    def add_metadata_json(self, key: str, value: str) -> None:
        self._not_yet("add_metadata_json", "use marey.mark(name, key=value) inside a window")

    def preset_metadata_json(self, key: str, value: str) -> None:
        self._not_yet("preset_metadata_json", "use marey.mark(name, key=value) inside a window")

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        self._not_yet("toggle_collection_dynamic", "use a schedule, or start() and stop()")

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        self._not_yet("set_custom_trace_id_callback", "each trace has a random id of its own")

    def get_trace_id(self) -> str | None:
        """The id in the last window's file name."""
        windows = self.windows
        return windows[-1].path.stem.rsplit("_", 1)[-1] if windows else None

    @staticmethod
    def _not_yet(method: str, instead: str) -> None:
        log_once(f"profile.{method}", f"marey.profile.{method}() is not supported yet: {instead}")
