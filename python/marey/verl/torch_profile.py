"""In the place of verl.utils.profiler.torch_profile: the same names.

get_torch_profiler() is called through this module, so that it can be wrapped or patched here.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from typing import Any, ClassVar

from marey.verl import _backends, _runs
from marey.verl._options import ToolOptions, continuous, resolve_schedule, setting
from marey.verl._tool import Tool, current_request

__all__ = [
    "Callable",
    "Profiler",
    "build_trace_basename",
    "datetime",
    "functools",
    "get_dist_topology",
    "get_torch_profiler",
    "os",
    "re",
    "timezone",
]

_ELSEWHERE = {
    "DistProfiler": ("verl.utils.profiler.profile", "DistProfiler"),
    "ProfilerConfig": ("verl.utils.profiler.config", "ProfilerConfig"),
    "TorchProfilerToolConfig": ("verl.utils.profiler.config", "TorchProfilerToolConfig"),
    "torch": ("torch", None),
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ELSEWHERE[name]
    found = importlib.import_module(module)
    return found if attribute is None else getattr(found, attribute)


def get_dist_topology() -> dict[str, int]:
    """rank and world_size from torch.distributed, and tp, pp, dp and cp from Megatron, as far as they are set up."""
    topology: dict[str, int] = {}
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        topology.update(rank=int(distributed.get_rank()), world_size=int(distributed.get_world_size()))
    from marey import _world

    parallel = _world.detect().parallel
    for part in (parallel or "").split("-"):
        match = re.fullmatch(r"(tp|pp|dp|cp)(\d+)", part)
        if match:
            topology[match[1]] = int(match[2])
    return topology


def _sanitize_name_part(text: object) -> str:
    """Characters that a file name should not have become one hyphen each run."""
    return re.sub(r"[^0-9A-Za-z.=+-]+", "-", str(text)).strip("-")


def build_trace_basename(
    rank: int,
    role: str | None = None,
    save_file_prefix: str | None = None,
    topology: dict[str, int] | None = None,
    profile_step: int | None = None,
) -> str:
    """verl's stem of a trace's name: [<prefix>_][<role>_][step<S>_]rank<r>[-of-<W>]_[<parallel>_]pid<pid>_<time>."""
    if topology is None:
        topology = get_dist_topology()
    parts = [_sanitize_name_part(part) for part in (save_file_prefix, role) if part]
    if profile_step is not None:
        parts.append(f"step{_sanitize_name_part(profile_step)}")
    size = topology.get("world_size")
    parts.append(f"rank{topology.get('rank', rank)}" + (f"-of-{size}" if size else ""))
    axes = "-".join(f"{axis}{topology[axis]}" for axis in ("tp", "pp", "dp", "cp") if axis in topology)
    if axes:
        parts.append(axes)
    now = datetime.now(tz=timezone.utc).astimezone()
    parts += [f"pid{os.getpid()}", now.strftime("%Y%m%d%H%M%S%f")[:-3]]
    return "_".join(parts)


def get_torch_profiler(
    contents: list[str] | None,
    save_path: str,
    role: str | None = None,
    save_file_prefix: str | None = None,
    rank: int = 0,
    profile_step: int | None = None,
    schedule: dict[str, int] | None = None,
    name_mini_batch_window: bool = False,
) -> Any:
    """An object with start(), step() and stop().

    contents: verl's words; None or empty: CPU and CUDA. schedule: keywords of torch.profiler.schedule over mini-batches.
    """
    request = current_request()
    options = ToolOptions(backend="auto") if request is None else request.options
    if request is None:
        from marey.verl._options import resolve_backend

        options = ToolOptions(backend=resolve_backend(None))
    backend = _backends.choose("torch", options.backend)
    os.makedirs(save_path, exist_ok=True)
    if backend == "torch" and request is None:
        from marey.verl import _platform

        return _platform.plain_torch_profiler(
            list(contents or []),
            save_path,
            build_trace_basename(rank, role, save_file_prefix, profile_step=profile_step),
            schedule,
            name_mini_batch_window,
        )
    words = tuple(word for word in contents or () if word not in ("cuda", "cpu"))
    detail = ("cpu", *words)
    if _backends.cuda_is_there() and (not contents or "cuda" in contents):
        detail = ("cpu", "cuda", *words)
    around = _backends.MareyBackend(
        contents=detail if backend == "marey" else ("outline",),
        out=save_path,
        role=(request.role if request is not None else "") or "_".join(part for part in (save_file_prefix, role) if part),
        rank=rank,
        train_step=profile_step,
        schedule=schedule,
        unit=options.unit,
        scheduled_stages=False if request is None else request.scheduled_stages,
    )
    if backend == "marey":
        return around
    from marey.verl import _platform

    if backend == "torch_npu":
        return _platform.torch_npu_backend(
            around, list(contents or []), schedule, level="level0", analysis=False, role=role, profile_step=None
        )
    return _platform.torch_backend(around, list(contents or []), schedule, device_word="cuda")


class Profiler(Tool):
    """verl's `torch` tool. Attributes prof, contents, save_path, discrete are verl's."""

    tool = "torch"
    _define_count: ClassVar[int] = 0
    _active_prof: ClassVar[Any] = None
    _steps_unscheduled = True

    def __init__(self, rank: int, config: Any = None, tool_config: Any = None, save_file_prefix: str | None = None) -> None:
        super().__init__(rank, config, tool_config, save_file_prefix)
        self.prof: Any = None
        self.contents: list[str] = list(setting(tool_config, "contents", []))
        self._schedule_kwargs: dict[str, int] | None = None

    def check(self) -> bool:
        """A profiler was made."""
        return self.prof is not None

    def _resolve_schedule_kwargs(self) -> dict[str, int] | None:
        return resolve_schedule(setting(self.tool_config, "schedule"))

    def _resolve_continuous_schedule_kwargs(self) -> dict[str, int] | None:
        return continuous(self._resolve_schedule_kwargs())

    def _make_backend(self, schedule: dict[str, int] | None, *, role: str | None, window_names: bool) -> Any:
        self._schedule_kwargs = None if window_names else schedule
        more: dict[str, Any] = {"name_mini_batch_window": window_names} if self.discrete else {}
        return get_torch_profiler(
            contents=self.contents,
            save_path=self.save_path,
            role=role,
            save_file_prefix=self.save_file_prefix,
            rank=self.rank,
            profile_step=self._profile_step,
            schedule=schedule,
            **more,
        )

    def _backend_made(self, backend: Any) -> None:
        if backend is not None and not self.discrete:
            self.prof = backend

    def _trailing_step(self, run: _runs.Run) -> bool:
        return run.stage is None and not run.scheduled

    def _before_stop(self, backend: Any, run: _runs.Run) -> None:
        self._schedule_kwargs = None
        if run.scheduled:
            self._flush_partial_window(backend)

    @staticmethod
    def _flush_partial_window(prof: Any) -> None:
        """A window that ends before its last mini-batch is saved as it is."""
        torch: Any = importlib.import_module("torch")
        if getattr(prof, "current_action", None) is torch.profiler.ProfilerAction.RECORD:
            prof.current_action = torch.profiler.ProfilerAction.RECORD_AND_SAVE

    def _mark(self, name: str) -> AbstractContextManager[Any]:
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return nullcontext()
        mark: AbstractContextManager[Any] = torch.profiler.record_function(name)
        return mark
