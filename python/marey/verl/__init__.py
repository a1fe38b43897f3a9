"""Marey behind verl's profilers.

Importing this module makes `tool: marey` known to verl and puts Marey behind the tools that the environment variable
MAREY_VERL names (`npu`, `torch`; with commas). verl imports it by itself, in every worker: through the entry point
`verl.plugins` of the installed package, or through VERL_USE_EXTERNAL_MODULES=marey.verl. Nothing of verl is changed on disk.

The classes and functions with verl's names are here as well, for direct use: NPUProfiler, Profiler, get_npu_profiler,
get_torch_profiler, mark_start_range, mark_end_range, mark_annotate, marked_timer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from marey.verl._install import asked_by_environment, install, installed

if TYPE_CHECKING:
    from marey.verl._tool import wait
    from marey.verl.config import MareyToolConfig
    from marey.verl.marey_profile import MareyProfiler
    from marey.verl.mstx_profile import (
        NPUProfiler,
        get_npu_profiler,
        mark_annotate,
        mark_end_range,
        mark_start_range,
        marked_timer,
    )
    from marey.verl.torch_profile import Profiler, get_torch_profiler

__all__ = [
    "MareyProfiler",
    "MareyToolConfig",
    "NPUProfiler",
    "Profiler",
    "get_npu_profiler",
    "get_torch_profiler",
    "install",
    "installed",
    "mark_annotate",
    "mark_end_range",
    "mark_start_range",
    "marked_timer",
    "wait",
]

# Taken when asked for: this module is imported by every process that imports verl.
_HOMES = {
    "wait": "_tool",
    "MareyToolConfig": "config",
    "MareyProfiler": "marey_profile",
    "NPUProfiler": "mstx_profile",
    "get_npu_profiler": "mstx_profile",
    "mark_annotate": "mstx_profile",
    "mark_end_range": "mstx_profile",
    "mark_start_range": "mstx_profile",
    "marked_timer": "mstx_profile",
    "Profiler": "torch_profile",
    "get_torch_profiler": "torch_profile",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


install(asked_by_environment())
