"""C++ programs as users write them: each window holds exactly the mini-batches that its role's schedule chose."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ACTOR_RANGES = ("forward", "policy_loss", "backward", "optimizer")
CRITIC_RANGES = ("forward", "value_loss", "backward", "optimizer")


def run_program(program: Path, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAREY_")}
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, timeout=120, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def ppo(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of eleven train steps, and what the run printed."""
    folder = tmp_path_factory.mktemp("ppo")
    done = run_program(build_dir / "bin" / "marey_ppo", "--steps", 11, "--out", folder / "traces", cwd=folder)
    return folder / "traces", done.stdout


def windows(folder: Path, marey: Callable[..., Any], role: str) -> list[dict[str, Any]]:
    found = [info for info in marey("info", folder, "--json") if info["kind"] == "window" and info["role"] == role]
    return sorted(found, key=lambda info: (info["train_step"], info["first_unit"]))


def details(info: dict[str, Any], marey: Callable[..., Any]) -> Counter[tuple[int, int, str]]:
    events = [event for event in marey("dump", info["path"], "--json") if event["tier"] == "detail"]
    assert not any(event["truncated"] for event in events)
    return Counter((event["train_step"], event["mini_batch"], event["name"]) for event in events)


def test_the_actors_window_is_mini_batches_3_and_4_of_step_5(ppo: tuple[Path, str], marey: Callable[..., Any]) -> None:
    (info,) = windows(ppo[0], marey, "actor")
    assert (info["state"], info["complete"], info["end_reason"], info["losses"]) == ("sealed", True, "schedule", [])
    assert (info["train_step"], info["stage"], info["first_unit"], info["last_unit"]) == (5, "actor_update", 3, 4)
    assert details(info, marey) == Counter({(5, mini, name): 1 for mini in (3, 4) for name in ACTOR_RANGES})


def test_the_critics_windows_are_mini_batches_1_and_3_of_steps_5_and_10(ppo: tuple[Path, str], marey: Callable[..., Any]) -> None:
    found = windows(ppo[0], marey, "critic")
    assert [(info["train_step"], info["first_unit"], info["last_unit"]) for info in found] == [
        (5, 1, 1),
        (5, 3, 3),
        (10, 1, 1),
        (10, 3, 3),
    ]
    for info in found:
        assert (info["state"], info["complete"], info["stage"], info["losses"]) == ("sealed", True, "critic_update", [])
        expected = {(info["train_step"], info["first_unit"], name): 1 for name in CRITIC_RANGES}
        assert details(info, marey) == Counter(expected)


def test_arguments_of_ranges_are_in_the_trace(ppo: tuple[Path, str], marey: Callable[..., Any]) -> None:
    (info,) = windows(ppo[0], marey, "actor")
    rows = [event["args"] for event in marey("dump", info["path"], "--json") if event["name"] == "forward"]
    assert rows == [{"rows": 128}, {"rows": 128}]


def test_every_step_stays_visible_for_both_roles(ppo: tuple[Path, str], marey: Callable[..., Any]) -> None:
    rows = marey("units", ppo[0], "--json")
    minis = Counter((row["train_step"], row["stage"]) for row in rows if row["unit"] == "mini_batch")
    # 8 environments x 128 samples / 128 a mini-batch x 4 epochs
    assert minis == Counter({(step, stage): 32 for step in range(11) for stage in ("actor_update", "critic_update")})


def test_the_run_names_every_file_and_the_next_command(ppo: tuple[Path, str]) -> None:
    folder, printed = ppo
    assert {line.strip() for line in printed.splitlines() if ".pftrace" in line} == {str(path) for path in folder.iterdir()}
    assert printed.rstrip().endswith(f"marey units {folder}")


def test_profiling_does_not_change_what_is_learned(ppo: tuple[Path, str], build_dir: Path, tmp_path: Path) -> None:
    done = run_program(build_dir / "bin" / "marey_ppo", "--steps", 11, "--no-profile", cwd=tmp_path)
    steps = [line for line in ppo[1].splitlines() if line.startswith("step")]
    assert done.stdout.splitlines() == steps
    assert not list(tmp_path.iterdir())
    returns = [float(line.split()[4]) for line in steps]
    assert returns[-1] > 3 * returns[0]


def test_an_option_that_does_not_exist_is_refused(build_dir: Path, tmp_path: Path) -> None:
    words = [str(build_dir / "bin" / "marey_ppo"), "--step", "3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: marey_ppo ")


def test_the_readmes_sample_records_mini_batches_2_and_3(build_dir: Path, tmp_path: Path, marey: Callable[..., Any]) -> None:
    run_program(build_dir / "bin" / "marey_quickstart", cwd=tmp_path)
    (info,) = windows(tmp_path / "marey-traces", marey, "actor")
    assert (info["first_unit"], info["last_unit"], info["complete"]) == (2, 3, True)
    names = Counter(
        (event["mini_batch"], event["name"]) for event in marey("dump", info["path"], "--json") if event["tier"] == "detail"
    )
    assert names == Counter({(2, "forward"): 1, (3, "forward"): 1})
