"""Comes in by verl's plug-in doors: no file of verl's is changed, and nothing of verl is imported here.

Modules of verl are extended as they are imported, or at once if they were already:

    verl.utils.profiler.config          schedule for npu, skip_first_wait, unit, backend
    verl.utils.profiler.profile         DistProfiler knows `tool: marey`
    verl.utils.profiler.mstx_profile    stood in for, where Marey was asked for behind `npu`
    verl.utils.profiler.torch_profile   stood in for, where Marey was asked for behind `torch`
    verl.utils.profiler                 its marks are Marey's as well, where Marey was asked for
    verl.workers.engine_workers         TrainingWorker.train_mini_batch is a scheduled stage of its own
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from marey._log import log_once
from marey.verl._options import setting

TOOLS = ("npu", "torch", "marey")
_PROFILER = "verl.utils.profiler"
_STAND_INS = {
    f"{_PROFILER}.mstx_profile": ("npu", "marey.verl.mstx_profile"),
    f"{_PROFILER}.torch_profile": ("torch", "marey.verl.torch_profile"),
}

_asked: set[str] = set()
_lock = threading.RLock()


def installed() -> frozenset[str]:
    """The tools that Marey was asked to stand behind. `tool: marey` is there besides."""
    return frozenset(_asked)


def asked_by_environment() -> tuple[str, ...]:
    """The tools named in MAREY_VERL, a list with commas. An unknown one is told once and left out."""
    words = [word.strip() for word in os.environ.get("MAREY_VERL", "").split(",") if word.strip()]
    for word in words:
        if word not in TOOLS:
            log_once(f"MAREY_VERL {word}", f"MAREY_VERL names {word!r}, which is no tool; choose from {', '.join(TOOLS)}")
    return tuple(word for word in words if word in TOOLS)


def install(tools: str | Iterable[str] = ()) -> None:
    """Puts Marey behind these tools of verl ("npu", "torch"; a list or a string with commas) and makes `tool: marey` known.
    Any number of times, before or after verl was imported; profilers that exist already stay as they are. ValueError for an
    unknown tool."""
    names = [name.strip() for name in tools.split(",")] if isinstance(tools, str) else list(tools)
    names = [name for name in names if name]
    for name in names:
        if name not in TOOLS:
            raise ValueError(f"tool {name!r} is not known; choose from {', '.join(TOOLS)}")
    with _lock:
        _asked.update(names)
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        for name in _EXTENSIONS:
            module = sys.modules.get(name)
            if module is not None:
                _extend(module, name)
        for name, (tool, stand_in) in _STAND_INS.items():
            if tool in _asked and name in sys.modules:
                _stand_in(name, stand_in)


def _stand_in(name: str, stand_in: str) -> ModuleType:
    module = importlib.import_module(stand_in)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the imports that concern Marey and leaves all others alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        stand_in = _STAND_INS.get(fullname)
        if stand_in is not None and stand_in[0] in _asked:
            return importlib.machinery.ModuleSpec(fullname, _StandInLoader(stand_in[1]))
        if fullname not in _EXTENSIONS:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _ExtendingLoader(spec.loader)
                return spec  # type: ignore[no-any-return]
        return None


class _StandInLoader(importlib.abc.Loader):
    """Hands out Marey's module under verl's name: one object, so that patching either is patching both."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: Any = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has put verl's name there


class _ExtendingLoader(importlib.abc.Loader):
    """Another loader, and Marey's extension of the module after it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _extend(module, module.__name__)

    def __getattr__(self, name: str) -> Any:  # get_source() and whatever else the loader can
        return getattr(self._loader, name)


def _extend(module: ModuleType, name: str) -> None:
    try:
        _EXTENSIONS[name](module)
    except Exception as error:  # noqa: BLE001 - a verl of another version is no reason to stop it
        log_once(f"verl extend {name}", f"{name} could not be extended ({error!r}): this version of verl is not known to Marey")


# ---- the extensions ----


def _extend_config(module: ModuleType) -> None:
    from marey.verl import config

    config.extend(module, npu=True)


def _extend_profile(module: ModuleType) -> None:
    dist_profiler: Any = module.DistProfiler
    if hasattr(dist_profiler.__init__, "_marey"):
        return
    original = dist_profiler.__init__

    @functools.wraps(original)
    def dist_profiler_init(
        self: Any, rank: int, config: Any = None, tool_config: Any = None, save_file_prefix: str | None = None, **kwargs: Any
    ) -> None:
        tool = setting(config, "tool")
        if tool == "marey":
            tool_config = _marey_block(config, tool_config)
        original(self, rank, config, tool_config, save_file_prefix, **kwargs)
        if tool == "marey":
            from marey.verl.marey_profile import MareyProfiler

            self._impl = MareyProfiler(rank, config, tool_config)
            self._discrete = self._impl.discrete
        attach = getattr(self._impl, "attach", None)
        if attach is not None:
            attach(save_file_prefix)

    dist_profiler_init._marey = True  # type: ignore[attr-defined]
    dist_profiler.__init__ = dist_profiler_init

    extension: Any = module.DistProfilerExtension
    original_extension = extension.__init__

    @functools.wraps(original_extension)
    def extension_init(self: Any, profiler: Any) -> None:
        original_extension(self, profiler)
        attach = getattr(getattr(profiler, "_impl", None), "attach_worker", None)
        if attach is not None:
            attach(type(self))

    extension.__init__ = extension_init


def _marey_block(config: Any, tool_config: Any) -> Any:
    """`tool_config.marey`; where a run has none, the platform's own block: an existing run then changes its tool alone."""
    from marey.verl._backends import npu_is_there
    from marey.verl.config import MareyToolConfig

    blocks = setting(config, "tool_config")
    chosen = tool_config if tool_config is not None and tool_config is not blocks else None
    for name in ("marey", "npu" if npu_is_there() else "torch", "torch", "npu"):
        chosen = chosen or setting(blocks, name)
    if isinstance(chosen, MareyToolConfig):
        return chosen
    keys = ("contents", "discrete", "schedule", "level", "analysis", "profile_token_start", "profile_token_end", "backend")
    return MareyToolConfig(**{key: setting(chosen, key) for key in keys if setting(chosen, key) is not None})


def _extend_marks(module: ModuleType) -> None:
    """verl chooses its marks by device as this package is imported; Marey's come on top of the chosen ones."""
    if not _asked or hasattr(module.mark_start_range, "_marey"):
        return
    from marey.verl import _marks, mstx_profile

    if module.mark_start_range is mstx_profile.mark_start_range:
        return
    start, end, timer = module.mark_start_range, module.mark_end_range, module.marked_timer

    @functools.wraps(start)
    def mark_start_range(message: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return _marks.begin(message, lambda: start(message, *args, **kwargs), end)

    @functools.wraps(end)
    def mark_end_range(range_id: Any) -> None:
        _marks.end(range_id)

    @functools.wraps(module.mark_annotate)
    def mark_annotate(message: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return _marks.annotate(message, lambda name: mark_start_range(name, *args, **kwargs), mark_end_range)

    from contextlib import contextmanager

    import marey

    @functools.wraps(timer)
    @contextmanager
    def marked_timer(name: str, timing_raw: Any, *args: Any, **kwargs: Any) -> Any:
        with marey.range(name), timer(name, timing_raw, *args, **kwargs):
            yield

    mark_start_range._marey = True  # type: ignore[attr-defined]
    module.mark_start_range = mark_start_range  # type: ignore[attr-defined]
    module.mark_end_range = mark_end_range  # type: ignore[attr-defined]
    module.mark_annotate = mark_annotate  # type: ignore[attr-defined]
    module.marked_timer = marked_timer  # type: ignore[attr-defined]


def _extend_workers(module: ModuleType) -> None:
    worker: Any = module.TrainingWorker
    original = worker.train_mini_batch
    if hasattr(original, "_marey"):
        return

    # verl annotates the actor's update and not this loop, which is the critic's whole update.
    @functools.wraps(original)
    def train_mini_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        stage = _update_stage(getattr(self, "profiler", None))
        if stage is None:
            return original(self, *args, **kwargs)
        with stage:
            return original(self, *args, **kwargs)

    train_mini_batch._marey = True  # type: ignore[attr-defined]
    worker.train_mini_batch = train_mini_batch


def _update_stage(profiler: Any) -> Any:
    """The scheduled stage around one update; None: the caller's stage is one already, or Marey does not profile this."""
    from marey.verl import _runs
    from marey.verl._tool import Tool

    tool = getattr(profiler, "_impl", None)
    if not isinstance(tool, Tool) or not (profiler.check_enable() and profiler.check_this_rank()):
        return None
    if _runs.current_stage(tool.tool) is not None:
        return None
    if not profiler.check_this_step() and (tool.discrete or tool._find_run() is None):
        return None
    name = f"{tool.role or 'train'}_update"
    return tool.stage(name, role=name, scheduled=True)


_EXTENSIONS: dict[str, Callable[[ModuleType], None]] = {
    f"{_PROFILER}.config": _extend_config,
    f"{_PROFILER}.profile": _extend_profile,
    _PROFILER: _extend_marks,
    "verl.workers.engine_workers": _extend_workers,
}
