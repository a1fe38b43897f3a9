"""The end of each micro-batch. verl's engines do not tell a profiler of it; they name each one with
``torch.profiler.record_function(f"micro_batch{i}")``, and that row's end is the end of the unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marey._log import log_once
from marey.verl import _runs

_NAME = re.compile(r"micro_batch\d+")


@contextmanager
def watched(run: _runs.Run) -> Iterator[None]:
    """While the stage runs, torch.profiler.record_function is a subclass of PyTorch's that ticks `run`; undone after it."""
    import torch

    profiler: Any = torch.profiler
    original: Any = profiler.record_function
    if not isinstance(original, type):
        log_once(
            "verl micro",
            "torch.profiler.record_function was replaced by something that is no class; micro-batches are not counted",
        )
        yield
        return

    class RecordFunction(original):  # type: ignore[misc]
        def __exit__(self, *error: Any) -> Any:
            result = super().__exit__(*error)
            over = getattr(run.backend, "micro_batch_over", None)
            if error[0] is None and over is not None and _NAME.fullmatch(str(self.name)):
                over()
            return result

    profiler.record_function = RecordFunction
    try:
        yield
    finally:
        if profiler.record_function is RecordFunction:
            profiler.record_function = original
