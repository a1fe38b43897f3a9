"""A tool's settings, read from whatever verl hands over: its dataclasses, OmegaConf nodes, plain dicts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["mini_batch", "micro_batch"]
Backend = Literal["auto", "marey", "torch_npu", "torch"]
#: Where verl's main branch and its pull request 7105 exclude each other: which one is followed.
Generation = Literal["main", "pr7105"]

UNITS: tuple[Unit, ...] = ("mini_batch", "micro_batch")
BACKENDS: tuple[Backend, ...] = ("auto", "marey", "torch_npu", "torch")
GENERATIONS: tuple[Generation, ...] = ("main", "pr7105")
LEVELS = ("level_none", "level0", "level1", "level2")
CONTENTS = {
    "npu": ("npu", "cpu", "memory", "shapes", "module", "stack"),
    "torch": ("cuda", "cpu", "memory", "shapes", "stack"),
    "marey": ("npu", "cuda", "cpu", "memory", "shapes", "module", "stack"),
}
#: The five numbers that verl's schedule has, in the order in which they are handed on.
SCHEDULE_KEYS = ("skip_first", "wait", "warmup", "active", "repeat")


def setting(config: Any, key: str, default: Any = None) -> Any:
    """config's key, whether it is a mapping or an object; default where it is missing or None."""
    if config is None:
        return default
    value = config.get(key, default) if isinstance(config, Mapping) else getattr(config, key, default)
    return default if value is None else value


def generation() -> Generation:
    """MAREY_VERL_GENERATION: which of verl's generations is followed where they differ; read at each call."""
    value = os.environ.get("MAREY_VERL_GENERATION", "main")
    for known in GENERATIONS:
        if value == known:
            return known
    raise ValueError(f"MAREY_VERL_GENERATION={value!r} is not known; choose from {', '.join(GENERATIONS)}")


def resolve_schedule(config: Any) -> dict[str, int] | None:
    """The schedule as keywords of torch.profiler.schedule; None: off (none given, or active <= 0). skip_first_wait is there
    only when it is on, so that back ends which do not know it are not asked for it."""
    if config is None:
        return None
    numbers = {key: int(setting(config, key, 0)) for key in SCHEDULE_KEYS}
    if numbers["active"] <= 0:
        return None
    if setting(config, "skip_first_wait", 0):
        numbers["skip_first_wait"] = 1
    return numbers


def resolve_unit(config: Any) -> Unit:
    """What the schedule counts: its key `unit`."""
    value = str(setting(config, "unit", "mini_batch"))
    for known in UNITS:
        if value == known:
            return known
    raise AssertionError(f"schedule.unit={value!r} is not known; choose from {', '.join(UNITS)}")


def resolve_backend(tool_config: Any) -> Backend:
    """Who records: the tool's key `backend`, else MAREY_VERL_BACKEND, else auto."""
    value = str(setting(tool_config, "backend", "") or os.environ.get("MAREY_VERL_BACKEND", "auto"))
    for known in BACKENDS:
        if value == known:
            return known
    raise AssertionError(f"backend={value!r} is not known; choose from {', '.join(BACKENDS)}")


@dataclass(frozen=True)
class ToolOptions:
    """What one tool of one role is to do."""

    contents: tuple[str, ...] = ()
    discrete: bool = False
    schedule: tuple[tuple[str, int], ...] | None = None
    unit: Unit = "mini_batch"
    level: str = "level0"
    analysis: bool = False
    backend: Backend = "auto"

    @property
    def schedule_keywords(self) -> dict[str, int] | None:
        return None if self.schedule is None else dict(self.schedule)


def resolve(tool_config: Any) -> ToolOptions:
    """From the tool's block of `tool_config`; None: the defaults. AssertionError for a value that no back end knows, as
    verl's own classes raise."""
    schedule_config = setting(tool_config, "schedule")
    schedule = resolve_schedule(schedule_config)
    return ToolOptions(
        contents=tuple(str(word) for word in setting(tool_config, "contents", ())),
        discrete=bool(setting(tool_config, "discrete", False)),
        schedule=None if schedule is None else tuple(schedule.items()),
        unit=resolve_unit(schedule_config),
        level=str(setting(tool_config, "level", "level0")),
        analysis=bool(setting(tool_config, "analysis", False)),
        backend=resolve_backend(tool_config),
    )


def continuous(schedule: dict[str, int] | None) -> dict[str, int] | None:
    """The schedule of a continuous run: one window of each update unless `repeat` says otherwise."""
    return None if schedule is None else {**schedule, "repeat": schedule["repeat"] or 1}


def role_of(save_file_prefix: str | None, start_role: str | None) -> str:
    """One word for who works. verl's worker roles and model types are translated, since the same role has several; "" where
    nothing says who it is (an inner worker of a language model may be anyone's)."""
    prefix = save_file_prefix or ""
    if prefix == "value_model" or "critic" in prefix:
        return "critic"
    for known in ("actor", "ref", "rollout", "reward"):
        if known in prefix.split("_"):
            return known
    if prefix == "language_model":
        return start_role or ""
    return prefix or start_role or ""
