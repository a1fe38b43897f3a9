"""Brings the PyTorch source in: at once when PyTorch is imported, else right after it will be. Never imports it itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from marey._log import log_once

__all__ = ["source", "want_torch"]

try:
    from marey import _torch_source as source
except ImportError:  # a package without the source: ranges and units are recorded, operators are not
    source = None  # type: ignore[assignment]

#: Contents that PyTorch's events belong to.
_TORCH_CONTENTS = frozenset({"outline", "cpu", "shapes", "memory", "stack", "module"})


def want_torch(contents: Sequence[str]) -> None:
    """A profiler with these contents starts."""
    if source is None or _TORCH_CONTENTS.isdisjoint(contents):
        return
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    if torch is None:
        _Finder.install()
    elif not getattr(spec, "_initializing", False):
        _load()


def _load() -> None:
    try:
        source.ensure_loaded()
    except Exception as error:  # noqa: BLE001 - whatever it is, training goes on without operators
        log_once("torch source", f"PyTorch operators will not be recorded: {type(error).__name__}: {error}")


class _Loader(Loader):
    """PyTorch's own loader, and the source after it."""

    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # What PyTorch sees of itself is as without us.
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        _Finder.remove()
        _load()


class _Finder(MetaPathFinder):
    """Waits for `import torch`, and goes when it came."""

    def __init__(self) -> None:
        self._looking = False

    @classmethod
    def install(cls) -> None:
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    @classmethod
    def remove(cls) -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, cls)]

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "torch" or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec
