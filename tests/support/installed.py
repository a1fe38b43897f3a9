"""For tests of an installed Marey: environments of its own, and running what lies there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what points at the build tree."""
    hidden = {"PYTHONPATH", "LD_LIBRARY_PATH", "MAREY_BUILD_DIR", "MAREY_OUT", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    kept["PATH"] = os.pathsep.join(folder for folder in kept["PATH"].split(os.pathsep) if not folder.startswith(str(ROOT)))
    return kept | more


def run(*words: object, cwd: Path | None = None, **more: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=1200, cwd=cwd, env=clean_environment(**more)
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_environment(folder: Path) -> Path:
    """A virtual environment without the packages of the one that runs the tests; returns its Python."""
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    return folder / "bin" / "python"


def site_packages(python: Path) -> Path:
    return Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def lend_torch(python: Path) -> None:
    """Lets an environment use the PyTorch that the tests run with, by links to it and its neighbours: it is too large to
    install again."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    theirs, ours = Path(spec.origin).parent.parent, site_packages(python)
    not_lent = ("marey", "pip", "setuptools", "_distutils_hack", "distutils", "__pycache__", "nanobind", "scikit_build_core")
    for entry in theirs.iterdir():
        if not entry.name.startswith(not_lent) and entry.suffix != ".pth" and not (ours / entry.name).exists():
            (ours / entry.name).symlink_to(entry)


def install_from_source(python: Path) -> None:
    """What a person types, with the environment that pip gives a build."""
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ROOT)
