"""In the place of verl.utils.profiler.mstx_profile: the same names, with or without torch_npu.

Functions that make a profiler and marks are called through this module, so that they can be wrapped or patched here.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, TypeVar

from marey.verl import _backends, _marks, _runs
from marey.verl._options import LEVELS, ToolOptions, generation, setting
from marey.verl._tool import Request, Tool, current_request

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "NPUProfiler",
    "functools",
    "get_npu_profiler",
    "logging",
    "mark_annotate",
    "mark_end_range",
    "mark_start_range",
    "marked_timer",
    "os",
]

#: Names that verl's module has by import: taken from where they live, when somebody asks.
_ELSEWHERE = {
    "DistProfiler": ("verl.utils.profiler.profile", "DistProfiler"),
    "ProfilerConfig": ("verl.utils.profiler.config", "ProfilerConfig"),
    "NPUToolConfig": ("verl.utils.profiler.config", "NPUToolConfig"),
    "torch_npu": ("torch_npu", None),
    "mstx": ("torch_npu.npu", "mstx"),
    "version": ("packaging", "version"),
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ELSEWHERE[name]
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {error}") from error
    return found if attribute is None else getattr(found, attribute)


def _mstx() -> Any:
    """torch_npu's mstx where the program has imported it."""
    module: Any = sys.modules.get("torch_npu")
    return getattr(getattr(module, "npu", None), "mstx", None)


def mark_start_range(message: str | None = None) -> Any:
    """Opens a range, in mstx as well where torch_npu is; mark_end_range() takes what this returns."""
    mstx = _mstx()
    if mstx is None:
        return _marks.begin(message)
    return _marks.begin(message, lambda: mstx.range_start(message=message), mstx.range_end)


def mark_end_range(range_id: Any) -> None:
    """Closes a range of mark_start_range()."""
    _marks.end(range_id)


def mark_annotate(message: str | None = None) -> Callable[[F], F]:
    """Decorator: a range around each call; its name is the message, else the function's."""
    return _marks.annotate(message, lambda name: mark_start_range(message=name), lambda mark: mark_end_range(mark))


@contextmanager
def marked_timer(name: str, timing_raw: dict[str, float], *args: Any, **kwargs: Any) -> Generator[None, None, None]:
    """Adds the seconds of the block to timing_raw[name] and marks it with a range. Further arguments are another device's."""
    mark = mark_start_range(message=name)
    begin_s = time.perf_counter()
    try:
        yield
    finally:
        timing_raw[name] = timing_raw.get(name, 0) + time.perf_counter() - begin_s
        mark_end_range(mark)


def get_npu_profiler(
    contents: list[str] | None,
    profile_level: str,
    profile_save_path: str,
    analysis: bool,
    role: str | None = None,
    profile_step: str | None = None,
    schedule: dict[str, int] | None = None,
) -> Any:
    """An object with start(), step() and stop(). ValueError for a level that is none.

    contents: verl's words; None or empty: CPU and NPU. analysis: parse what torch_npu records; Marey's traces need no parsing.
    schedule: keywords of torch.profiler.schedule over mini-batches.
    """
    if profile_level not in LEVELS:
        raise ValueError(f"level only supports level0, 1, 2, and level_none, but gets {profile_level}")
    request = current_request()
    options = ToolOptions() if request is None else request.options
    backend = _backends.choose("npu", options.backend)
    around = _around(request, backend, contents, profile_level, profile_save_path, role, profile_step, schedule)
    if backend == "marey":
        return around
    from marey.verl import _platform

    if backend == "torch":
        return _platform.torch_backend(around, contents or [], schedule, device_word="npu")
    return _platform.torch_npu_backend(
        around, contents or [], schedule, level=profile_level, analysis=analysis, role=role, profile_step=profile_step
    )


def _around(
    request: Request | None,
    backend: str,
    contents: list[str] | None,
    level: str,
    save_path: str,
    role: str | None,
    profile_step: Any,
    schedule: dict[str, int] | None,
) -> _backends.MareyBackend:
    words = tuple(word for word in contents or () if word not in ("npu", "cpu"))
    if backend != "marey" or level == "level_none":
        detail: tuple[str, ...] = ("outline",)
    elif _backends.npu_is_there() and (not contents or "npu" in contents):
        detail = ("cpu", "npu", *words)
    else:
        detail = ("cpu", *words)
    step = request.train_step if request is not None else (int(profile_step) if profile_step is not None else None)
    return _backends.MareyBackend(
        contents=detail,
        out=save_path,
        role=(request.role if request is not None else "") or role or "",
        rank=0 if request is None else request.rank,
        train_step=step,
        schedule=schedule,
        unit="mini_batch" if request is None else request.options.unit,
        scheduled_stages=False if request is None else request.scheduled_stages,
    )


class NPUProfiler(Tool):
    """verl's `npu` tool. Attributes discrete, profile_npu, profile_contents, profile_level, profile_save_path and analysis are
    verl's."""

    tool = "npu"
    _define_count: ClassVar[int] = 0
    _active_prof: ClassVar[Any] = None

    def __init__(self, rank: int, config: Any = None, tool_config: Any = None, **kwargs: Any) -> None:
        super().__init__(rank, config, tool_config, kwargs.get("save_file_prefix"))
        self.profile_npu: Any = None
        self.profile_contents: list[str] = list(setting(tool_config, "contents", []))
        self.profile_level = self.options.level
        self.profile_save_path = self.save_path
        self.analysis = self.options.analysis

    def _make_backend(self, schedule: dict[str, int] | None, *, role: str | None, window_names: bool) -> Any:
        # verl main's factory knows no schedule, 7105's always gets one: tests of both compare the keywords.
        more: dict[str, Any] = {"schedule": schedule} if schedule is not None or generation() == "pr7105" else {}
        return get_npu_profiler(
            contents=self.profile_contents,
            profile_level=self.profile_level,
            profile_save_path=self.profile_save_path,
            analysis=self.analysis,
            role=role,
            **more,
        )

    def _backend_made(self, backend: Any) -> None:
        self.profile_npu = backend

    def _trailing_step(self, run: _runs.Run) -> bool:
        return generation() == "main" and not run.scheduled

    def _mark(self, name: str) -> AbstractContextManager[Any]:
        return _marked(name)


@contextmanager
def _marked(name: str) -> Generator[None, None, None]:
    mark = mark_start_range(message=name)
    try:
        yield
    finally:
        mark_end_range(mark)
