"""The platform's own profilers, torch.profiler and torch_npu.profiler, as back ends."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marey.verl import _index
from marey.verl._backends import MareyBackend, PlatformBackend, say_saved


def _stem(around: MareyBackend, window: tuple[int, int] | None) -> str:
    """Role, step, mini-batches and rank, as Marey's own names have them."""
    from marey.verl.torch_profile import _sanitize_name_part

    profiler = around.profiler
    entry = profiler._index_entry
    parts = [_sanitize_name_part(entry["role"])] if entry["role"] else []
    if profiler.lease_step is not None:
        parts.append(f"step{profiler.lease_step}")
    if window is not None:
        parts.append(f"mini-batch{window[0]}" + (f"-{window[1]}" if window[1] != window[0] else ""))
    parts.append(f"rank{entry['rank']}-of-{entry['world_size']}")
    parts.append(f"pid{os.getpid()}_{secrets.token_hex(4)}")
    return "_".join(parts)


def _recorded(window: tuple[int, int] | None, last_whole: int) -> tuple[int, int] | None:
    return None if window is None else (window[0], max(window[0], min(window[1], last_whole)))


def torch_backend(around: MareyBackend, contents: list[str], schedule: dict[str, int] | None, *, device_word: str) -> Any:
    """torch.profiler within Marey's boundaries; one gzipped Chrome trace a window."""
    torch: Any = importlib.import_module("torch")
    folder = Path(around.profiler._index_folder)

    def make(schedule_of: Any, window: tuple[int, int] | None, last_whole: Callable[[], int]) -> Any:
        def save(profile: Any) -> None:
            # What is saved may be less than what was planned: the label says what is in it.
            label = _recorded(window, last_whole())
            path = folder / f"{_stem(around, label)}.json.gz"
            partial = path.with_name(f".{path.name[: -len('.json.gz')]}.partial.json.gz")
            profile.export_chrome_trace(str(partial))
            os.rename(partial, path)
            say_saved(str(path))
            _index.append(folder, around.profiler.lease_step, _entry(around, label, "torch", path.name))

        profile = torch.profiler.profile(
            **_torch_keywords(torch, contents, device_word), schedule=schedule_of, on_trace_ready=save
        )
        profile.record_steps = False  # its rows would call mini-batches steps
        return profile

    return PlatformBackend(around, make, schedule, torch.profiler.ProfilerAction)


def _entry(around: MareyBackend, window: tuple[int, int] | None, kind: str, name: str) -> dict[str, Any]:
    first, last = (None, None) if window is None else window
    return {
        **around.profiler._index_entry,
        "kind": kind,
        "unit": "mini_batch",
        "first_unit": first,
        "last_unit": last,
        "file": name,
    }


def _torch_keywords(torch: Any, contents: list[str], device_word: str) -> dict[str, Any]:
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU]
    if not contents or device_word in contents:
        activities.append(activity.CUDA)
    return {
        "activities": activities,
        "with_stack": "stack" in contents,
        "record_shapes": "shapes" in contents,
        "profile_memory": "memory" in contents,
    }


def plain_torch_profiler(
    contents: list[str], save_path: str, stem: str, schedule: dict[str, int] | None, name_mini_batch_window: bool
) -> Any:
    """torch.profiler.profile as verl's factory makes it, for who calls the factory by hand: names
    `<stem>[_mb<i>[-<j>]|_part<n>].json.gz`."""
    torch: Any = importlib.import_module("torch")
    flushes = 0

    def save(profile: Any) -> None:
        nonlocal flushes
        number, flushes = flushes, flushes + 1
        suffix = f"_part{number}" if number else ""
        if schedule and name_mini_batch_window:
            done = getattr(profile, "step_num", None)
            suffix = f"_part{number}"
            if isinstance(done, int):
                last = max(done - 1, 0)
                cycle = schedule["wait"] + schedule["warmup"] + schedule["active"]
                skip = schedule["skip_first"]
                first = skip + max(last - skip, 0) // cycle * cycle + schedule["wait"] + schedule["warmup"]
                first = min(first, last)
                suffix = f"_mb{first}" if first == last else f"_mb{first}-{last}"
        path = Path(save_path) / f"{stem}{suffix}.json.gz"
        if path.exists():
            path = path.with_name(f"{stem}{suffix}_{secrets.token_hex(4)}.json.gz")  # never over another window
        profile.export_chrome_trace(str(path))
        say_saved(str(path))

    keywords = {**_torch_keywords(torch, contents, "cuda"), "on_trace_ready": save}
    if schedule:
        keywords["schedule"] = torch.profiler.schedule(**schedule)
    profile = torch.profiler.profile(**keywords)
    if schedule:
        profile.record_steps = False
    return profile


def torch_npu_backend(
    around: MareyBackend,
    contents: list[str],
    schedule: dict[str, int] | None,
    *,
    level: str,
    analysis: bool,
    role: str | None,
    profile_step: Any,
) -> Any:
    """torch_npu.profiler within Marey's boundaries; one *_ascend_pt folder a window, named by role, step and mini-batches."""
    torch_npu: Any = importlib.import_module("torch_npu")
    profiler = torch_npu.profiler
    levels = {
        "level_none": profiler.ProfilerLevel.Level_none,
        "level0": profiler.ProfilerLevel.Level0,
        "level1": profiler.ProfilerLevel.Level1,
        "level2": profiler.ProfilerLevel.Level2,
    }
    folder = Path(around.profiler._index_folder)
    for part in (profile_step, role):
        if part is not None and part != "":
            folder = folder / str(part)

    def make(schedule_of: Any, window: tuple[int, int] | None, last_whole: Callable[[], int]) -> Any:
        # The handler sets the process's output folder as it is made, so it is made just before its own window.
        name = _stem(around, window)
        handler = profiler.tensorboard_trace_handler(str(folder), worker_name=name, analyse_flag=analysis)

        def save(profile: Any) -> None:
            handler(profile)
            _index.append(
                around.profiler._index_folder,
                around.profiler.lease_step,
                _entry(around, _recorded(window, last_whole()), "torch_npu", f"{name}_*_ascend_pt"),
            )

        activities = [profiler.ProfilerActivity.CPU]
        if not contents or "npu" in contents:
            activities.append(profiler.ProfilerActivity.NPU)
        return profiler.profile(
            activities=activities,
            with_modules="module" in contents,
            with_stack="stack" in contents,
            record_shapes="shapes" in contents,
            profile_memory="memory" in contents,
            schedule=schedule_of,
            on_trace_ready=save,
            experimental_config=profiler._ExperimentalConfig(
                profiler_level=levels[level],
                export_type=profiler.ExportType.Db,
                data_simplification=True,
                msprof_tx=True,
                mstx_domain_exclude=["communication"],
            ),
        )

    return PlatformBackend(around, make, schedule, profiler.ProfilerAction)
