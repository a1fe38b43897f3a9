"""verl's configuration classes with the keys that Marey adds, and the class of `tool: marey`.

The additions, for every tool that Marey stands behind:

    schedule: {skip_first, wait, warmup, active, repeat}   verl's own; for `npu` new
        skip_first_wait   non-zero: no wait before the first window
        unit              mini_batch (default) or micro_batch
    backend               auto (default), marey, torch_npu or torch
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from marey.verl._options import BACKENDS, CONTENTS, LEVELS, SCHEDULE_KEYS, UNITS


def check_contents(tool: str, contents: Any) -> None:
    """AssertionError unless contents is a list of words that the tool knows."""
    assert isinstance(contents, list), f"Profiler contents must be of type list, got {type(contents)}"
    for word in contents:
        assert word in CONTENTS[tool], f"contents {word!r} is not known; choose from {', '.join(CONTENTS[tool])}"


def _set(config: Any, name: str, value: Any) -> None:
    # verl's configurations are frozen once a field has a value.
    object.__setattr__(config, name, value)


def _listed(value: Any) -> Any:
    # OmegaConf hands over its own list type, which is a list in all but name.
    return list(value) if not isinstance(value, (str, bytes)) and hasattr(value, "__iter__") else value


def extend(module: ModuleType, *, npu: bool) -> None:
    """Puts subclasses with Marey's keys into verl.utils.profiler.config, where YAML's `_target_` and verl's imports find
    them. npu: also give NPUToolConfig a schedule, which verl's own does not have in every version."""
    if getattr(module, "_marey_extended", False):
        return
    base_schedule: Any = module.TorchProfilerScheduleConfig

    @dataclass
    class TorchProfilerScheduleConfig(base_schedule):  # type: ignore[misc]
        __doc__ = base_schedule.__doc__
        skip_first_wait: int = 0
        unit: str = "mini_batch"

        def __post_init__(self) -> None:
            super().__post_init__()
            assert isinstance(self.skip_first_wait, int), f"skip_first_wait must be int, got {type(self.skip_first_wait)}"
            assert self.unit in UNITS, f"schedule.unit={self.unit!r} is not known; choose from {', '.join(UNITS)}"

    def as_schedule(value: Any) -> Any:
        if value is None or not isinstance(value, Mapping) or isinstance(value, base_schedule):
            return value
        known = {entry.name for entry in dataclasses.fields(TorchProfilerScheduleConfig)}
        given = {str(key): value[key] for key in value}
        for key in given:
            assert key in known, (
                f"schedule.{key} is not known; choose from {', '.join((*SCHEDULE_KEYS, 'skip_first_wait', 'unit'))}"
            )
        return TorchProfilerScheduleConfig(**given)

    def extended(base: Any, *, schedule: bool) -> Any:
        missing = schedule and "schedule" not in {entry.name for entry in dataclasses.fields(base)}

        def finish(self: Any) -> None:
            if "schedule" in self.__dict__:
                _set(self, "schedule", as_schedule(self.schedule))
            base.__post_init__(self)
            assert self.backend is None or self.backend in BACKENDS, (
                f"backend={self.backend!r} is not known; choose from {', '.join(BACKENDS)}"
            )

        fields: list[Any] = [("schedule", Any, field(default=None))] if missing else []
        fields.append(("backend", Any, field(default=None)))
        made = dataclasses.make_dataclass(
            base.__name__, fields, bases=(base,), namespace={"__post_init__": finish, "__doc__": base.__doc__}
        )
        made.__module__, made.__qualname__ = module.__name__, base.__qualname__
        return made

    TorchProfilerScheduleConfig.__module__ = module.__name__
    TorchProfilerScheduleConfig.__qualname__ = "TorchProfilerScheduleConfig"
    names: dict[str, Any] = {
        "TorchProfilerScheduleConfig": TorchProfilerScheduleConfig,
        "TorchProfilerToolConfig": extended(module.TorchProfilerToolConfig, schedule=False),
    }
    if npu:
        names["NPUToolConfig"] = extended(module.NPUToolConfig, schedule=True)
    for name, value in names.items():
        setattr(module, name, value)
    module._marey_extended = True  # type: ignore[attr-defined]


@dataclass
class MareyToolConfig(Mapping[str, Any]):
    """`tool_config.marey`: what `tool: marey` records. Reads like verl's configurations: by attribute, by key, with get()."""

    #: npu, cuda, cpu, memory, shapes, module, stack; empty: CPU and device. CPU is always recorded.
    contents: list[str] = field(default_factory=list)
    #: Each stage in windows of its own; False: one run from start to stop.
    discrete: bool = False
    #: verl's five numbers, skip_first_wait and unit; None or active 0: everything.
    schedule: Any = None
    #: level_none: stages, units and ranges only.
    level: str = "level0"
    analysis: bool = False
    profile_token_start: int | None = None
    profile_token_end: int | None = None
    backend: str = "auto"
    name: str = "marey"

    def __post_init__(self) -> None:
        self.contents = _listed(self.contents)
        check_contents("marey", self.contents)
        assert self.level in LEVELS, f"level={self.level!r} is not known; choose from {', '.join(LEVELS)}"
        assert self.backend in BACKENDS, f"backend={self.backend!r} is not known; choose from {', '.join(BACKENDS)}"

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __iter__(self) -> Any:
        return (entry.name for entry in dataclasses.fields(self))

    def __len__(self) -> int:
        return len(dataclasses.fields(self))
