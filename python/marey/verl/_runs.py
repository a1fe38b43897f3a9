"""Who runs in this process: the one place that knows which back end belongs to which role, and whom a step or a stop means.

verl starts an outer worker, calls step() on an inner one that was never started, and may stop through any of them; a
colocated process holds several roles. A *run* is one started back end of one role: a continuous one from start() to stop(),
or one stage of a discrete tool. Threads: all functions from any thread; the lock is never held across a back end's call.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from marey.verl._options import ToolOptions, Unit


@dataclass(frozen=True)
class Key:
    """What makes two instances the same one for the process."""

    tool: str
    role: str
    save_path: str
    options: ToolOptions

    def could_be(self, other: Key) -> bool:
        """The same, as far as both know: an inner worker does not know its role."""
        same = (self.tool, self.save_path, self.options) == (other.tool, other.save_path, other.options)
        return same and (self.role == other.role or not self.role or not other.role)


@dataclass(eq=False)
class Run:
    key: Key
    #: The object with start/step/stop; None while it is being made.
    backend: Any = None
    #: Steps of verl's advance a schedule in it.
    scheduled: bool = False
    unit: Unit = "mini_batch"
    #: The stage of a discrete tool; None: a continuous run.
    stage: str | None = None
    #: Instances that started it, or tried to while it ran.
    members: set[int] = field(default_factory=set)
    #: Scheduled stages entered so far, by name.
    stages_seen: dict[str, int] = field(default_factory=dict)


_lock = threading.Lock()
_runs: list[Run] = []
_here = threading.local()  # .stages: scheduled stages that this thread is in, outermost first


def after_fork_in_child() -> None:
    global _lock, _here
    _lock = threading.Lock()
    _here = threading.local()
    _runs.clear()


def _stages() -> list[Run]:
    if not hasattr(_here, "stages"):
        _here.stages = []
    stages: list[Run] = _here.stages
    return stages


def reserve(key: Key, member: int) -> Run | None:
    """A new continuous run, or None: one of this key runs, and `member` now belongs to it."""
    with _lock:
        for run in _runs:
            if run.stage is None and run.key == key:
                run.members.add(member)
                return None
        run = Run(key, members={member})
        _runs.append(run)
        return run


def open_stage(key: Key, member: int, stage: str) -> Run:
    """A new run of one stage of a discrete tool."""
    run = Run(key, stage=stage, members={member})
    with _lock:
        _runs.append(run)
    return run


def release(run: Run) -> bool:
    """Forgets the run. False: somebody else was first."""
    with _lock:
        if run not in _runs:
            return False
        _runs.remove(run)
        return True


def of_tool(tool: str) -> list[Run]:
    """Continuous runs of one tool, oldest first."""
    with _lock:
        return [run for run in _runs if run.key.tool == tool and run.stage is None]


def enter_stage(run: Run) -> None:
    """This thread is now in a scheduled stage of `run`: steps from instances that were never started mean it."""
    _stages().append(run)


def leave_stage(run: Run) -> None:
    stages = _stages()
    if run in stages:
        stages.remove(run)


def current_stage(tool: str) -> Run | None:
    """The innermost scheduled stage of the tool that this thread is in."""
    for run in reversed(_stages()):
        if run.key.tool == tool:
            return run
    return None


def find(key: Key, member: int, *, ever_started: bool, for_stop: bool = False) -> Run | None:
    """The run that a step or stop by this instance means: its own, else the one whose scheduled stage this thread is in, else
    the only one that it could belong to. An instance that was started once means its own alone."""
    with _lock:
        runs = [run for run in _runs if run.stage is None or (run.scheduled and not for_stop)]
    own = [run for run in runs if member in run.members or run.key == key]
    if own:
        return own[-1]
    if ever_started:
        return None
    stage = None if for_stop else current_stage(key.tool)
    if stage is not None and stage in runs:
        return stage
    possible = [run for run in runs if run.key.could_be(key)]
    return possible[0] if len(possible) == 1 else None
