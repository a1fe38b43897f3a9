"""Programs that record, as children: what they printed, how they ended and what they left."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Outcome:
    """What a program printed and left."""

    def __init__(self, done: subprocess.CompletedProcess[str], folder: Path, marey: Callable[..., Any]) -> None:
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        paths = sorted(folder.glob("*.pftrace")) if folder.is_dir() else []
        self._marey = marey
        infos = marey("info", *paths, "--json") if paths else []
        infos.sort(key=lambda info: info["begin_ns"])
        self.windows = [info for info in infos if info["kind"] == "window"]
        self.skeletons = [info for info in infos if info["kind"] == "skeleton"]
        self.partial_files = sorted(folder.glob("*.partial")) if folder.is_dir() else []

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def names(self, window: int = 0) -> list[str]:
        """The user's ranges and marks of a window, in order."""
        dump = self._marey("dump", self.windows[window]["path"], "--json")
        return [event["name"] for event in dump if event["category"] == "user"]

    def units(self) -> list[tuple[int, int, int, bool]]:
        keys = ("first_unit", "last_unit", "recorded_units", "complete")
        return [tuple(window[key] for key in keys) for window in self.windows]


@pytest.fixture
def run(
    run_python: Callable[..., subprocess.CompletedProcess[str]], marey: Callable[..., Any], tmp_path: Path
) -> Callable[..., Outcome]:
    """Runs a program that has marey imported, with $MAREY_OUT set; checks its exit code and reads what it left."""

    def run(code: str, code_of_exit: int = 0, **env: str) -> Outcome:
        done = run_python(
            "import json, os, sys, threading\nimport marey\n" + code, cwd=tmp_path, MAREY_OUT=str(tmp_path / "out"), **env
        )
        assert done.returncode == code_of_exit, done.stderr
        return Outcome(done, tmp_path / "out", marey)

    return run
