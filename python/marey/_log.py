"""Marey's own messages from Python: one line each on stderr, like those of the library."""

from __future__ import annotations

import contextlib
import sys
import threading

_told: set[str] = set()
_lock = threading.Lock()


def log(line: str) -> None:
    """Writes one line. Never raises: stderr may be closed."""
    with contextlib.suppress(Exception):
        print(f"marey: {line}", file=sys.stderr, flush=True)


def log_once(key: str, line: str) -> None:
    """Writes a line at most once per process for one key, so that a fault in a loop is told once."""
    with _lock:
        if key in _told:
            return
        _told.add(key)
    log(line)


def after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
