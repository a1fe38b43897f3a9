"""Which rank this process is: read from what the program has set up already. Never imports and never communicates."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from marey._log import log_once

_AXES = (
    ("tp", "get_tensor_model_parallel_rank"),
    ("pp", "get_pipeline_model_parallel_rank"),
    ("dp", "get_data_parallel_rank"),
    ("cp", "get_context_parallel_rank"),
)


@dataclass(frozen=True)
class World:
    """None: not known here; the library then looks at RANK and WORLD_SIZE."""

    rank: int | None = None
    world_size: int | None = None
    parallel: str | None = None


def detect() -> World:
    rank, world_size = _torch_ranks()
    return World(rank, world_size, _megatron_ranks())


def _torch_ranks() -> tuple[int | None, int | None]:
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception as error:  # noqa: BLE001 - whatever it is, the environment may still know
        log_once("world torch", f"cannot ask torch.distributed for the rank ({error}); RANK and WORLD_SIZE are used")
    return None, None


def _megatron_ranks() -> str | None:
    state: Any = sys.modules.get("megatron.core.parallel_state")
    if state is None:
        return None
    try:
        if not state.model_parallel_is_initialized():
            return None
        known = [(axis, getattr(state, function, None)) for axis, function in _AXES]
        return "-".join(f"{axis}{int(rank())}" for axis, rank in known if rank is not None) or None
    except Exception as error:  # noqa: BLE001 - the file is named without these ranks then
        log_once("world megatron", f"cannot ask Megatron for its parallel ranks ({error}); traces are named without them")
        return None
