"""`pip install .` into an environment of its own: with PyTorch, and in one that has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.installed import ROOT, run, site_packages

# One process installs both, so that the compiler's cache serves the second.
pytestmark = [pytest.mark.install, pytest.mark.xdist_group("python_package")]

RECORD = """
import sys
import marey

profiler = marey.Profiler(schedule=marey.Schedule(wait=1, warmup=1, active=2, repeat=1), role="installed", out=sys.argv[1])
with profiler:
    for batch in profiler.mini_batches(range(6)):
        with marey.range("forward"):
            WORK
profiler.wait()
print(next(window.path for window in profiler.windows if not window.is_skeleton))
"""


def record(python: Path, folder: Path, prelude: str = "", work: str = "pass") -> Path:
    program = folder / "train.py"
    program.write_text(prelude + RECORD.replace("WORK", work))
    return Path(run(python, program, folder / "traces", cwd=folder).strip())


def names(python: Path, trace: Path) -> list[str]:
    dump = run(python.parent / "marey", "dump", "--json", trace)
    return [json.loads(line)["name"] for line in dump.splitlines()]


def doctor(python: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """The checks of `marey doctor`, as the environment's own command line says them."""
    said = json.loads(run(python.parent / "marey", "doctor", "--json", cwd=folder))
    return {check["check"]: check for check in said["checks"]}


def version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    return text.split("project(marey VERSION ")[1].split()[0]


def test_it_records_ranges_and_operators(python_with_torch: Path, tmp_path: Path) -> None:
    work = "torch.ones(8).add_(1)"
    found = names(python_with_torch, record(python_with_torch, tmp_path, "import torch\n", work))
    assert found.count("forward") == 2
    assert found.count("aten::add_") == 2


def test_the_pytorch_source_was_built_at_installation(python_with_torch: Path, tmp_path: Path) -> None:
    libraries = {path.name for path in (site_packages(python_with_torch) / "marey" / "lib").iterdir()}
    assert "libmarey.so.0" in libraries
    assert [name for name in libraries if name.startswith("libmarey_torch-")]
    assert doctor(python_with_torch, tmp_path)["pytorch"]["state"] == "ok"


def test_without_pytorch_everything_else_works(python_without_torch: Path, tmp_path: Path) -> None:
    trace = record(python_without_torch, tmp_path)
    assert names(python_without_torch, trace).count("forward") == 2
    assert "installed" in run(python_without_torch.parent / "marey", "info", trace)


def test_without_pytorch_doctor_says_so(python_without_torch: Path, tmp_path: Path) -> None:
    checks = doctor(python_without_torch, tmp_path)
    assert checks["pytorch"]["state"] == "warn"
    assert "PyTorch is not installed" in checks["pytorch"]["detail"]
    assert checks["python"]["state"] == "ok"


def test_the_package_is_whole(python_without_torch: Path) -> None:
    package = site_packages(python_without_torch) / "marey"
    for name in (
        "py.typed",
        "__init__.py",
        "lib/libmarey.so.0",
        "include/marey/marey.h",
        "include/marey/detail/slot.h",
        "torch_source/observer.cpp",
    ):
        assert (package / name).is_file(), name
    modules = {
        path.relative_to(ROOT / "python" / "marey")
        for path in (ROOT / "python" / "marey").rglob("*.py*")
        if path.suffix != ".pyc"
    }
    assert {name for name in modules if not (package / name).is_file()} == set()
    libraries = list(package.rglob("libmarey.so*"))
    assert len(libraries) == 1, "the library is in the package once"


def test_its_metadata_says_what_it_is(python_without_torch: Path) -> None:
    code = "import importlib.metadata as m, json, marey; print(json.dumps([dict(m.metadata('marey')), m.requires('marey'), marey.__version__]))"
    metadata, requires, package_version = json.loads(run(python_without_torch, "-c", code))
    assert (metadata["Name"], metadata["Version"], package_version) == ("marey", version(), version())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert not requires, "the package needs nothing at run time"
