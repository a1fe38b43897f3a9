"""Places that Marey is installed into, made once a test run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.installed import install_from_source, lend_torch, make_environment, run


@pytest.fixture(scope="session")
def prefix(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`cmake --install`, then moved to another place: an installed tree may not know where it was put."""
    folder = tmp_path_factory.mktemp("cpp_package")
    run("cmake", "--install", build_dir, "--prefix", folder / "installed")
    return (folder / "installed").rename(folder / "moved")


@pytest.fixture(scope="session")
def python_with_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no PyTorch here")
    python = make_environment(tmp_path_factory.mktemp("with_torch") / "venv")
    lend_torch(python)
    install_from_source(python)
    return python


@pytest.fixture(scope="session")
def python_without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = make_environment(tmp_path_factory.mktemp("without_torch") / "venv")
    install_from_source(python)
    return python
