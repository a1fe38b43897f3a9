"""What verl's `npu` and `torch` tools and `tool: marey` have in common: the life of a back end around verl's calls.

No method raises into training or runs a stage twice: faults of a back end are told once and end the recording.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, TypeVar, cast

from marey._log import log_once
from marey.verl import _micro_batches, _runs
from marey.verl._options import ToolOptions, continuous, resolve, role_of, setting

F = TypeVar("F", bound=Callable[..., Any])

_members = itertools.count(1)
#: How long stop() waits for files that a finish command is to find.
_HOOK_WAIT_S = 60.0
#: Roles whose workers never call step(): a schedule there would record nothing.
_UNSTEPPED_ROLES = ("ref", "rollout", "reward")

_request = threading.local()


class Request:
    """What a tool knows beyond the keywords of verl's factory functions, which tests compare word by word."""

    def __init__(self, tool: Tool, *, role: str, options: ToolOptions, train_step: int | None, scheduled_stages: bool) -> None:
        self.rank = tool.rank
        self.role = role
        self.options = options
        self.train_step = train_step
        #: Mini-batches are counted in stages declared scheduled alone.
        self.scheduled_stages = scheduled_stages


@contextmanager
def _requesting(request: Request) -> Iterator[None]:
    before = getattr(_request, "now", None)
    _request.now = request
    try:
        yield
    finally:
        _request.now = before


def current_request() -> Request | None:
    """The tool that the running factory call is for; None: somebody else called the factory."""
    return getattr(_request, "now", None)


class Tool:
    """One instance per role and worker. Subclasses say which factory and which marks they use."""

    #: "npu", "torch" or "marey".
    tool: ClassVar[str] = ""
    #: Running back ends of this class in this process.
    _define_count: ClassVar[int] = 0
    #: The back end that a step() reaches when nothing says whose it is: the one started last.
    _active_prof: ClassVar[Any] = None

    def __init__(self, rank: int, config: Any = None, tool_config: Any = None, save_file_prefix: str | None = None) -> None:
        enabled = bool(setting(config, "enable", False))
        assert tool_config or not enabled, "tool_config must be set when profiler is enabled"
        self.rank = rank
        self.config = config
        self.tool_config = tool_config
        self.save_file_prefix = save_file_prefix
        self.options = resolve(tool_config)
        self.discrete = self.options.discrete
        self.save_path = _path(setting(config, "save_path"))
        self._member = next(_members)
        self._ever_started = False
        self._start_role: str | None = None
        self._profile_step: int | None = None
        #: The worker's update runs in a stage that is declared scheduled, so nothing else is counted.
        self._worker_has_scheduled_stage = False

    # ---- what subclasses say ----

    def _make_backend(self, schedule: dict[str, int] | None, *, role: str | None, window_names: bool) -> Any:
        """Calls this module's factory function."""
        raise NotImplementedError

    def _mark(self, name: str) -> AbstractContextManager[Any]:
        """A range of this tool's kind around a stage."""
        raise NotImplementedError

    def _backend_made(self, backend: Any) -> None:
        """Keeps the attribute by which verl's class of this tool knows its back end."""

    # ---- verl's calls ----

    def attach(self, save_file_prefix: str | None) -> None:
        """The dispatcher's label of this worker: `npu` is not told it by verl."""
        self.save_file_prefix = save_file_prefix

    def attach_worker(self, worker_type: type) -> None:
        """Which kind of worker this belongs to: some update in a stage that is declared scheduled."""
        self._worker_has_scheduled_stage = hasattr(worker_type, "update_actor") or self.role == "critic"

    @property
    def role(self) -> str:
        return role_of(self.save_file_prefix, self._start_role)

    @property
    def _key(self) -> _runs.Key:
        return _runs.Key(self.tool, self.role, self.save_path, self.options)

    def start(self, **kwargs: Any) -> None:
        """Begins a continuous run; a discrete tool waits for its stages. role and profile_step (or global_step) are the
        trainer's. A second start of a running role changes nothing."""
        try:
            role = kwargs.get("role")
            self._start_role = None if role is None else str(role)
            step = kwargs.get("profile_step", kwargs.get("global_step"))
            self._profile_step = _step_number(step)
            self._ever_started = True
            self._forget_what_was_reset()
            if not self.discrete:
                self._start_run()
        except Exception as error:  # noqa: BLE001 - a profiler's fault is never the run's
            self._told("start", error)

    def _start_run(self) -> None:
        run = _runs.reserve(self._key, self._member)
        if run is None:
            return
        schedule = self._schedule_that_applies(continuous(self.options.schedule_keywords))
        run.scheduled = schedule is not None
        run.unit = self.options.unit
        try:
            backend = self._build(schedule, self._start_role, role=self.role, window_names=False)
            self._backend_made(backend)
            backend.start()
        except BaseException:
            _runs.release(run)
            self._backend_made(None)
            raise
        run.backend = backend
        self._count()
        type(self)._active_prof = backend

    def step(self) -> None:
        """One mini-batch is over, of the role that this instance belongs to."""
        try:
            run = self._find_run()
            if run is not None:
                self._step_run(run)
            elif type(self)._active_prof is not None and not _runs.of_tool(self.tool):
                type(self)._active_prof.step()  # put there by the caller's own hand
        except Exception as error:  # noqa: BLE001
            self._told("step", error)

    def _find_run(self, *, for_stop: bool = False) -> _runs.Run | None:
        return _runs.find(self._key, self._member, ever_started=self._ever_started, for_stop=for_stop)

    def _step_run(self, run: _runs.Run) -> None:
        if run.backend is None:
            return
        if run.scheduled or self._steps_unscheduled:
            run.backend.step()
        else:
            mark = getattr(run.backend, "mini_batch_over", None)
            if mark is not None:
                mark()

    #: A step reaches the back end even without a schedule.
    _steps_unscheduled: ClassVar[bool] = False

    def stop(self) -> None:
        """Ends the run of this instance's role, whoever started it. Safe twice, and after any failure."""
        try:
            self._forget_what_was_reset()
            run = None if self.discrete else self._find_run(for_stop=True)
            if run is not None and _runs.release(run):
                self._stop_run(run)
        except Exception as error:  # noqa: BLE001
            self._told("stop", error)
        finally:
            self._wait_for_hook()

    def _stop_run(self, run: _runs.Run) -> None:
        # State first: whatever the back end does, the next start() begins afresh.
        backend, run.backend = run.backend, None
        self._count()
        if type(self)._active_prof is backend:
            type(self)._active_prof = next((other.backend for other in reversed(_runs.of_tool(self.tool))), None)
        if backend is None:
            return
        trailing = self._trailing_step(run) and getattr(backend, "needs_trailing_step", True)
        self._before_stop(backend, run)
        try:
            if trailing:
                backend.step()
        finally:
            backend.stop()
            _remember(self, backend)

    def _trailing_step(self, run: _runs.Run) -> bool:
        """verl steps a back end of this kind once more before it stops it."""
        raise NotImplementedError

    def _before_stop(self, backend: Any, run: _runs.Run) -> None:
        """A last word to the back end of a run that ends."""

    def annotate(self, message: str | None = None, role: str | None = None, **kwargs_outer: Any) -> Callable[[F], F]:
        """Decorator of a stage: a range of its own, and with `discrete` windows of its own. scheduled=True: the stage whose
        mini-batches the schedule counts. The stage runs exactly once, and its exceptions pass through."""
        scheduled = bool(kwargs_outer.get("scheduled", False))

        def decorator(function: F) -> F:
            name = str(message or role or function.__name__)

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self.stage(name, role=role or name, scheduled=scheduled):
                    return function(*args, **kwargs)

            return cast(F, wrapper)

        return decorator

    @contextmanager
    def stage(self, name: str, *, role: str, scheduled: bool) -> Iterator[None]:
        """What annotate() puts around a stage."""
        guard = _Stage(self, name, role, scheduled)
        guard.enter()
        try:
            yield
        except BaseException:
            guard.leave(failed=True)
            raise
        guard.leave(failed=False)

    # ---- one place each ----

    def _schedule_that_applies(self, schedule: dict[str, int] | None) -> dict[str, int] | None:
        if schedule is not None and self.role in _UNSTEPPED_ROLES:
            log_once(
                f"verl schedule {self.role}",
                f"the schedule of role '{self.role}' is left out: nothing steps there, so it would record nothing; its stages are "
                "recorded whole. Give the schedule to the actor or the critic",
            )
            return None
        return schedule

    def _build(self, schedule: dict[str, int] | None, factory_role: str | None, *, role: str, window_names: bool) -> Any:
        request = Request(
            self,
            role=role,
            options=self.options,
            train_step=self._profile_step,
            scheduled_stages=self._worker_has_scheduled_stage and not window_names,
        )
        with _requesting(request):
            return self._make_backend(schedule, role=factory_role, window_names=window_names)

    def _count(self) -> None:
        type(self)._define_count = len(_runs.of_tool(self.tool))

    def _forget_what_was_reset(self) -> None:
        """Somebody set _define_count to 0 by hand: nothing runs any more, they say."""
        if type(self)._define_count == 0:
            for run in _runs.of_tool(self.tool):
                if run.backend is not None and _runs.release(run):
                    self._stop_run(run)

    def _wait_for_hook(self) -> None:
        if not setting(self.config, "finish_hook_cmd"):
            return
        if not wait(_HOOK_WAIT_S):
            log_once("verl hook", f"traces were not sealed after {_HOOK_WAIT_S:.0f} s; the finish command runs without them")

    def _told(self, what: str, error: BaseException) -> None:
        log_once(
            f"verl {self.tool} {what} {error}",
            f"{what} of verl's '{self.tool}' profiler failed on rank {self.rank}, role '{self.role}': {error!r}; "
            "training goes on, this is not recorded",
        )


class _Stage:
    """One call of an annotated stage."""

    def __init__(self, tool: Tool, name: str, role: str, scheduled: bool) -> None:
        self._tool = tool
        self._name = name
        self._role = role
        self._scheduled = scheduled
        self._run: _runs.Run | None = None  # made for this stage
        self._exits: list[AbstractContextManager[Any]] = []
        self._entered: _runs.Run | None = None

    def enter(self) -> None:
        try:
            self._enter()
        except Exception as error:  # noqa: BLE001
            self._tool._told("a stage's begin", error)

    def _enter(self) -> None:
        tool = self._tool
        inside = _runs.current_stage(tool.tool)
        if tool.discrete and inside is None:
            self._open_window()
        run = self._run or inside or tool._find_run()
        if run is not None and run.backend is not None:
            if self._scheduled and inside is None:
                _runs.enter_stage(run)
                self._entered = run
                self._note_next_train_step(run)
                if run.unit == "micro_batch" and run.scheduled:
                    self._push(_micro_batches.watched(run))
            native = getattr(run.backend, "stage", None)
            if callable(native) and getattr(run.backend, "is_marey_backend", False) is True:
                self._push(native(self._name, self._scheduled and inside is None))
        self._push(tool._mark(self._name))

    def _push(self, manager: AbstractContextManager[Any]) -> None:
        manager.__enter__()
        self._exits.append(manager)

    def _open_window(self) -> None:
        """A discrete tool: this stage is a run of its own."""
        tool = self._tool
        schedule = tool._schedule_that_applies(tool.options.schedule_keywords) if self._scheduled else None
        run = _runs.open_stage(tool._key, tool._member, self._name)
        run.scheduled = schedule is not None
        run.unit = tool.options.unit
        try:
            role = self._role if tool.role in self._role or self._role != "train_batch" else f"{tool.role}_{self._role}"
            backend = tool._build(schedule, self._role, role=role, window_names=run.scheduled)
            backend.start()
        except BaseException:
            _runs.release(run)
            raise
        run.backend = backend
        self._run = run
        tool._backend_made(backend)
        if run.scheduled:
            type(tool)._active_prof = backend

    def _note_next_train_step(self, run: _runs.Run) -> None:
        """A run over several train steps: the same stage again means the next one."""
        seen = run.stages_seen.get(self._name, 0)
        run.stages_seen[self._name] = seen + 1
        if seen:
            next_step = getattr(run.backend, "train_step_over", None)
            if callable(next_step) and getattr(run.backend, "is_marey_backend", False) is True:
                next_step()

    def leave(self, failed: bool) -> None:
        for manager in reversed(self._exits):
            try:
                manager.__exit__(None, None, None)
            except Exception as error:  # noqa: BLE001
                self._tool._told("a stage's end", error)
        if self._entered is not None:
            _runs.leave_stage(self._entered)
        if self._run is not None:
            try:
                self._close_window(self._run, failed)
            except Exception as error:  # noqa: BLE001
                self._tool._told("a stage's end", error)

    def _close_window(self, run: _runs.Run, failed: bool) -> None:
        tool, backend = self._tool, run.backend
        if not _runs.release(run):
            return
        run.backend = None
        if type(tool)._active_prof is backend:
            type(tool)._active_prof = None
        tool._backend_made(None)
        tool._before_stop(backend, run)
        try:
            if tool._trailing_step(run) and getattr(backend, "needs_trailing_step", True):
                backend.step()
        finally:
            if failed and getattr(backend, "is_marey_backend", False) is True:
                backend.stop(failed=True)
            else:
                backend.stop()
            _remember(tool, backend)


#: Back ends that are stopped and may still write.
_stopped: list[Any] = []
_stopped_lock = threading.Lock()


def _remember(tool: Tool, backend: Any) -> None:
    if getattr(backend, "is_marey_backend", False) is not True:
        return
    with _stopped_lock:
        _stopped[:] = [other for other in _stopped if not other.wait(0.0)]
        _stopped.append(backend)


def wait(timeout: float | None = None) -> bool:
    """Until all that verl's profilers stopped so far is sealed and indexed. False: the time ran out. The limit holds for each
    profiler."""
    with _stopped_lock:
        stopped = list(_stopped)
    done = [backend.wait(timeout) for backend in stopped]
    with _stopped_lock:
        _stopped[:] = [backend for backend in _stopped if backend not in stopped]
    return all(done)


def _path(value: Any) -> str:
    # OmegaConf's "???" stands for a path that nobody gave.
    text = "" if value is None else os.fspath(value)
    return "outputs/profile" if text in ("", "???") else text


def _step_number(step: Any) -> int | None:
    if step is None:
        return None
    try:
        number = int(step)
    except (TypeError, ValueError):
        log_once(f"verl step {step!r}", f"profile_step={step!r} is no number; files are named without it")
        return None
    return number if number >= 0 else None


def _after_fork_in_child() -> None:
    global _stopped_lock
    _stopped_lock = threading.Lock()
    _stopped.clear()
    _runs.after_fork_in_child()
    for kind in Tool.__subclasses__():
        kind._define_count = 0
        kind._active_prof = None


os.register_at_fork(after_in_child=_after_fork_in_child)
