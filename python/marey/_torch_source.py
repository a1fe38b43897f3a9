"""Finds, builds and loads the PyTorch source: a small C++ library that fits exactly one PyTorch.

It lies in the package when PyTorch could be found at installation. Otherwise it is built at first use, from the source that
the package carries, into a cache folder that all ranks of a machine share.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from marey import _core

_PACKAGE = Path(__file__).resolve().parent
#: Not resolved: in a build tree the package is made of links, and its libraries lie beside them.
_FOLDER = Path(os.path.abspath(__file__)).parent
_BUILD_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class State:
    """What is known of the source: `state` is "loaded", "available", "buildable", "unavailable" or "torch not imported"."""

    state: str
    path: str | None = None
    reason: str | None = None


_loaded: State | None = None


def torch_version() -> str | None:
    """Version of the PyTorch that `import torch` would give, without importing it; None: there is none."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(getattr(torch, "__version__", "")) or None
    folder = _torch_folder()
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        match = re.search(r"^__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)['\"]", (folder / "version.py").read_text(), re.MULTILINE)
        return match.group(1) if match else None
    return None


def _torch_folder() -> Path | None:
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch, "__file__", None):
        return Path(str(torch.__file__)).parent
    import importlib.util

    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return None


def _cache_folder() -> Path:
    configured = os.environ.get("MAREY_CACHE")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "marey"


def _source_file() -> Path | None:
    for candidate in (_FOLDER / "torch_source" / "observer.cpp", _PACKAGE.parent.parent / "src/sources/torch/observer.cpp"):
        if candidate.is_file():
            return candidate
    return None


def _include_folder() -> Path | None:
    for candidate in (_FOLDER / "include", _PACKAGE.parent.parent / "include"):
        if (candidate / "marey" / "marey.h").is_file():
            return candidate
    return None


def _compiler() -> str | None:
    return next(
        (path for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (path := shutil.which(name))), None
    )


def _candidates(version: str) -> Iterator[Path]:
    name = f"libmarey_torch-{version}.so"
    yield _FOLDER / "lib" / name
    source = _source_file()
    if source is not None:
        # The key holds all that the library depends on, so that an upgrade of anything builds anew.
        key = hashlib.sha256(source.read_bytes() + f"{version} {_core.__version__} {_FOLDER}".encode()).hexdigest()[:12]
        yield _cache_folder() / f"{version}-{key}" / name


def status() -> State:
    """What ensure_loaded() would find, without building or loading anything."""
    if _loaded is not None:
        return _loaded
    version = torch_version()
    if version is None:
        return State("unavailable", reason="PyTorch is not installed")
    for path in _candidates(version):
        if path.is_file():
            return State("available", path=str(path))
    missing = _why_not_buildable()
    if missing is None:
        return State("buildable", reason=f"it is built for PyTorch {version} at first use")
    return State("unavailable", reason=missing)


def _why_not_buildable() -> str | None:
    if _compiler() is None:
        return "no C++ compiler was found to build it with; install g++, or set CXX"
    if _source_file() is None or _include_folder() is None:
        return "the package carries no source to build it from; reinstall marey"
    return None


def ensure_loaded() -> State:
    """Loads the source for the imported PyTorch, building it if need be. Never raises: a failure is told once and recorded."""
    global _loaded
    if _loaded is not None:
        return _loaded
    if "torch" not in sys.modules:
        return State("torch not imported")
    version = torch_version()
    if version is None:
        return State("torch not imported")
    try:
        _loaded = _load(version)
    except Exception as error:  # noqa: BLE001 - whatever it is, training goes on without operators
        _loaded = State("unavailable", reason=f"{type(error).__name__}: {error}")
    if _loaded.state != "loaded":
        _core.source_unavailable("torch", _loaded.reason or "unknown reason")
        print(f"marey: PyTorch operators will not be recorded: {_loaded.reason}", file=sys.stderr)
    return _loaded


def _load(version: str) -> State:
    path = next((path for path in _candidates(version) if path.is_file()), None)
    if path is None:
        missing = _why_not_buildable()
        if missing is not None:
            return State("unavailable", reason=missing)
        path = _build(version, list(_candidates(version))[-1])
    # RTLD_LOCAL, and PyTorch is loaded already: its symbols come from the libraries that the process uses.
    library = ctypes.CDLL(str(path))
    built_for = library.marey_torch_built_for
    built_for.restype = ctypes.c_char_p
    found = (built_for() or b"").decode()
    if found.split("+")[0] != version.split("+")[0]:
        return State("unavailable", path=str(path), reason=f"{path.name} was built for PyTorch {found}, not {version}; remove it")
    _core.source_load(str(path))
    return State("loaded", path=str(path))


def _build(version: str, target: Path) -> Path:
    """Compiles for the imported PyTorch. Ranks of one machine take turns; the first builds, the others find it done."""
    source, include, torch, compiler = _source_file(), _include_folder(), _torch_folder(), _compiler()
    assert source is not None and include is not None and torch is not None and compiler is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file():
            return target
        begin = time.monotonic()
        torch_module = sys.modules["torch"]
        abi = int(bool(getattr(getattr(torch_module, "_C", None), "_GLIBCXX_USE_CXX11_ABI", True)))
        libmarey = _FOLDER / "lib" / "libmarey.so.0"
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch) / target.name
            command = [
                compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                f"-I{include}", f"-isystem{torch / 'include'}", f"-isystem{torch / 'include/torch/csrc/api/include'}",
                str(source), "-o", str(built), str(libmarey), str(torch / "lib/libtorch_cpu.so"), str(torch / "lib/libc10.so"),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"building it for PyTorch {version} failed: {done.stderr.strip()[-400:]}")
            os.replace(built, target)
        print(
            f"marey: built the PyTorch source for {version} in {time.monotonic() - begin:.0f} s (once): {target}", file=sys.stderr
        )
    return target
