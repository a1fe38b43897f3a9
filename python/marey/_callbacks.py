"""Runs on_trace_ready on a helper thread: in order, once per window, after its file is sealed."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable

from marey import _core
from marey._log import log_once


class CallbackThread:
    """Waits for sealed traces of one profiler. A thread lives from start() to the end of the lease's last trace."""

    def __init__(self, native: _core.Profiler) -> None:
        self._native = native
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._starts = 0
        self._taken = 0  # sequence of the trace that is being delivered, or was last
        self._finished = 0  # sequence of the last trace whose delivery is over

    def start(self, deliver: Callable[[_core.WindowDict], None]) -> None:
        """The profiler was started: traces may come, each is for `deliver`. Only the thread keeps it, so that a profiler
        that is done with is freed at once."""
        with self._changed:
            self._starts += 1
            if self._thread is None:
                # A daemon, so that it never keeps a program alive; at exit it is waited for, bounded.
                self._thread = threading.Thread(target=self._run, args=(deliver,), name="marey-callbacks", daemon=True)
                self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        thread = self._thread
        return thread is not None and thread.ident == threading.get_ident()

    @property
    def delivering(self) -> int:
        """Sequence of the trace that is being delivered, or was last."""
        return self._taken

    def wait(self, sequence: int, timeout: float | None) -> bool:
        """True when everything up to `sequence` was delivered. In a callback: at once."""
        if self.is_current_thread:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._finished < sequence and self._thread is not None:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                self._changed.wait(remaining)
            return self._finished >= sequence

    def _run(self, deliver: Callable[[_core.WindowDict], None]) -> None:
        starts = 0
        while True:
            more, window = self._native.next_window(self._taken, -1.0)
            if window is not None:
                self._taken = window["sequence"]
                self._call(deliver, window)
                with self._changed:
                    self._finished = window["sequence"]
                    self._changed.notify_all()
                continue
            with self._changed:
                # Nothing more of this lease; a start() that came meanwhile goes on with this thread.
                if more or starts == self._starts:
                    self._thread = None
                    self._changed.notify_all()
                    return
                starts = self._starts

    @staticmethod
    def _call(deliver: Callable[[_core.WindowDict], None], window: _core.WindowDict) -> None:
        try:
            deliver(window)
        except BaseException:  # noqa: BLE001 - a callback's fault is told and changes nothing else
            lines = traceback.format_exc().rstrip()
            log_once(f"on_trace_ready {lines}", f"on_trace_ready failed for {window['path']}; the trace is whole:\n{lines}")
