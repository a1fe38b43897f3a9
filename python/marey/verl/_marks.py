"""Ranges by handle, for verl's mark functions: Marey's, and mstx's or NVTX's as well where they are."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import marey
from marey._log import log_once

F = TypeVar("F", bound=Callable[..., Any])


class Mark:
    """One open range. Ended once; a second end, or none, changes nothing."""

    def __init__(self, name: str, end_other: Callable[[], object] | None = None) -> None:
        self._end_other = end_other
        self._range: Any = marey.range(name)
        self._lock = threading.Lock()
        self._range.__enter__()

    def end(self) -> None:
        with self._lock:
            ended, self._range = self._range, None
        if ended is None:
            return
        ended.__exit__(None, None, None)
        if self._end_other is not None:
            self._end_other()


def begin(
    message: str | None, other_begin: Callable[[], Any] | None = None, other_end: Callable[[Any], object] | None = None
) -> Mark:
    """Opens a range; other_begin and other_end are another annotation library's pair. Never raises."""
    end: Callable[[], object] | None = None
    if other_begin is not None and other_end is not None:
        try:
            handle = other_begin()
            end = functools.partial(_quietly, other_end, handle)
        except Exception as error:  # noqa: BLE001 - an annotation is never the run's fault
            _failed(error)
    return Mark(str(message or "range"), end)


def end(mark: Any) -> None:
    """Closes a range that begin() opened; anything else is left alone."""
    if isinstance(mark, Mark):
        mark.end()


def annotate(message: str | None, begin_mark: Callable[[str], Any], end_mark: Callable[[Any], object]) -> Callable[[F], F]:
    """Decorator: a range around each call, closed by an exception as well."""

    def decorator(function: F) -> F:
        name = message or function.__name__

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            mark = begin_mark(name)
            try:
                return function(*args, **kwargs)
            finally:
                end_mark(mark)

        return cast(F, wrapper)

    return decorator


def _quietly(call: Callable[[Any], object], handle: Any) -> None:
    try:
        call(handle)
    except Exception as error:  # noqa: BLE001
        _failed(error)


def _failed(error: BaseException) -> None:
    log_once(f"verl marks {error}", f"a range could not be handed on ({error!r}); Marey's own is kept")
