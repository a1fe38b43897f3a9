"""Marey records exactly the training steps you choose, down to one mini-batch, and writes one trace file per window.

    import marey

    profiler = marey.Profiler(schedule=marey.Schedule(wait=2, warmup=1, active=2, repeat=1), role="actor")
    with profiler:
        for batch in profiler.mini_batches(loader):
            with marey.range("forward"):
                ...

``marey.profile``, ``marey.schedule`` and ``marey.record_function`` take torch.profiler's arguments, so a script changes its
import and nothing else.
"""

from __future__ import annotations

from marey._core import __version__, mark, range
from marey._profiler import Profiler, Stage, Status, Window, step, tick
from marey._schedule import ProfilerAction, Schedule, ScheduleError
from marey._torch_compat import (
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "Schedule",
    "ScheduleError",
    "Stage",
    "Status",
    "Window",
    "__version__",
    "mark",
    "profile",
    "range",
    "record_function",
    "schedule",
    "step",
    "supported_activities",
    "tensorboard_trace_handler",
    "tick",
]
