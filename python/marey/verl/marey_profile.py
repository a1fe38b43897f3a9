"""`tool: marey`: Marey under its own name, whatever the device. Settings: `tool_config.marey`, MareyToolConfig."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import marey
from marey.verl import _backends, _runs
from marey.verl._options import setting
from marey.verl._tool import Tool, current_request


def get_marey_profiler(contents: list[str] | None, save_path: str, role: str, schedule: dict[str, int] | None) -> Any:
    """An object with start(), step() and stop(). Called by the tool's instances alone."""
    request = current_request()
    if request is None:
        raise RuntimeError("get_marey_profiler() is called by marey.verl.MareyProfiler; use marey.Profiler by itself")
    backend = _backends.choose("marey", request.options.backend)
    words = tuple(word for word in contents or () if word not in ("cuda", "npu", "cpu"))
    outline = backend != "marey" or request.options.level == "level_none"
    around = _backends.MareyBackend(
        contents=("outline",) if outline else ("cpu", *words),
        out=save_path,
        role=request.role or role,
        rank=request.rank,
        train_step=request.train_step,
        schedule=schedule,
        unit=request.options.unit,
        scheduled_stages=request.scheduled_stages,
    )
    if backend == "marey":
        return around
    from marey.verl import _platform

    if backend == "torch":
        return _platform.torch_backend(around, list(contents or []), schedule, device_word="cuda")
    return _platform.torch_npu_backend(
        around,
        list(contents or []),
        schedule,
        level=request.options.level,
        analysis=request.options.analysis,
        role=role,
        profile_step=None,
    )


class MareyProfiler(Tool):
    """The object behind verl's DistProfiler with `tool: marey`."""

    tool = "marey"
    _define_count: ClassVar[int] = 0
    _active_prof: ClassVar[Any] = None
    _steps_unscheduled = True

    def _make_backend(self, schedule: dict[str, int] | None, *, role: str | None, window_names: bool) -> Any:
        return get_marey_profiler(
            contents=list(setting(self.tool_config, "contents", [])), save_path=self.save_path, role=role or "", schedule=schedule
        )

    def _trailing_step(self, run: _runs.Run) -> bool:
        return False

    def _mark(self, name: str) -> AbstractContextManager[Any]:
        return marey.range(name)
