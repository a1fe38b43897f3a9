"""`python -m marey._doctor`: what this Python knows of Marey, as JSON for `marey doctor`."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from typing import Any

import marey
from marey import _torch_hook


def describe() -> dict[str, Any]:
    source = _torch_hook.source
    if source is None:
        torch: dict[str, Any] = {
            "version": None,
            "source": {"state": "unavailable", "path": None, "reason": "this package was built without it"},
        }
    else:
        torch = {"version": source.torch_version(), "source": asdict(source.status())}
    return {"python": platform.python_version(), "marey": marey.__version__, "torch": torch}


if __name__ == "__main__":
    print(json.dumps(describe()))
