"""Marey's schedule against the installed PyTorch's, action by action over a grid."""

from __future__ import annotations

import itertools
import subprocess
import warnings
from pathlib import Path

import pytest

profiler = pytest.importorskip("torch.profiler")


def test_actions_equal_those_of_torch_over_a_grid(build_dir: Path) -> None:
    grid = list(itertools.product(range(5), range(6), range(5), range(1, 8), range(6), range(2)))
    grid += [(7, 13, 5, 11, repeat, first) for repeat in range(4) for first in range(2)]
    grid += list(itertools.product((0, 9), (0, 17), (0, 3), (1, 20), range(12), range(2)))
    assert len(grid) >= 12_000
    grid += list(itertools.product((5, 6, 11), (1, 2, 7, 8), (0, 1, 2, 9), (1, 2, 3, 8, 9, 12, 15), range(13), range(2)))
    assert len(grid) >= 20_000
    lines = "\n".join(" ".join(map(str, numbers)) for numbers in grid)
    done = subprocess.run(
        [build_dir / "bin" / "print_actions"], input=lines, capture_output=True, text=True, check=True, timeout=60
    )
    ours = done.stdout.split()
    assert len(ours) == len(grid)
    action = profiler.ProfilerAction
    letters = {action.NONE: "N", action.WARMUP: "W", action.RECORD: "R", action.RECORD_AND_SAVE: "S"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of every schedule without a warm-up
        for numbers, actions in zip(grid, ours, strict=True):
            skip_first, wait, warmup, active, repeat, skip_first_wait = numbers
            theirs = profiler.schedule(
                skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first_wait=skip_first_wait
            )
            assert actions == "".join(letters[theirs(number)] for number in range(60)), numbers
