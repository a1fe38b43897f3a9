"""The demo: a real GRPO run whose window holds exactly the chosen mini-batches, compared with what PyTorch itself counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
TRAIN = Path(__file__).resolve().parents[2] / "examples" / "grpo" / "train.py"


def run_demo(build_dir: Path, cwd: Path, *options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(TRAIN), *map(str, options)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(build_dir / "python")},
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def demo(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    run_demo(build_dir, folder, "--steps", 4)
    return folder


@pytest.fixture(scope="module")
def window(demo: Path) -> Path:
    found = [path for path in (demo / "marey-traces").iterdir() if "skeleton" not in path.name]
    assert len(found) == 1
    return found[0]


def test_the_window_holds_exactly_mini_batches_2_and_3(window: Path, marey: Callable[..., Any]) -> None:
    (info,) = marey("info", window, "--json")
    assert (info["state"], info["complete"], info["train_step"], info["stage"]) == ("sealed", True, 2, "actor_update")
    assert (info["unit"], info["first_unit"], info["last_unit"], info["recorded_units"]) == ("mini_batch", 2, 3, 2)
    assert info["losses"] == []
    assert [source["name"] for source in info["sources"] if source["state"] == "armed"] == ["host", "torch"]
    details = [event for event in marey("dump", window, "--json") if event["tier"] == "detail"]
    # What optimizer.step and zero_grad do lies between the micro-batches' ends and the mini-batch's.
    assert {(event["train_step"], event["mini_batch"]) for event in details} == {(2, 2), (2, 3)}
    assert {event["micro_batch"] for event in details} == {0, 1, None}
    assert all(not event["truncated"] for event in details)


def test_the_window_holds_the_skeleton_of_its_step_so_far(window: Path, marey: Callable[..., Any]) -> None:
    skeleton = [event for event in marey("dump", window, "--json") if event["tier"] == "skeleton"]
    counts = Counter(event["name"] for event in skeleton)
    stages = ("rollout", "compute_log_prob", "ref_compute_log_prob", "actor_update")
    assert {name: counts[name] for name in stages} == dict.fromkeys(stages, 1)
    assert {
        name: counts[name] for name in ("train_step 2", "mini_batch 0", "mini_batch 1", "mini_batch 2", "mini_batch 3")
    } == dict.fromkeys(("train_step 2", "mini_batch 0", "mini_batch 1", "mini_batch 2", "mini_batch 3"), 1)
    assert counts["micro_batch 0"] == counts["micro_batch 1"] == 4
    assert "mini_batch 4" not in counts


def test_the_folder_shows_every_step_whole(demo: Path, marey: Callable[..., Any]) -> None:
    rows = marey("units", demo / "marey-traces", "--json")
    steps = [row for row in rows if row["unit"] == "train_step"]
    assert [row["number"] for row in steps] == [0, 1, 2, 3]
    assert all(set(row["stages"]) == {"rollout", "compute_log_prob", "ref_compute_log_prob", "actor_update"} for row in steps)
    minis = [(row["train_step"], row["number"], row["events"] > 0) for row in rows if row["unit"] == "mini_batch"]
    assert minis == [(step, mini, step == 2 and mini in (2, 3)) for step in range(4) for mini in range(8)]


def test_operator_counts_equal_those_of_torch_profiler(
    window: Path, build_dir: Path, tmp_path: Path, marey: Callable[..., Any]
) -> None:
    counts_file = tmp_path / "counts.json"
    run_demo(build_dir, tmp_path, "--steps", 4, "--profiler", "torch", "--counts-json", counts_file)
    theirs = json.loads(counts_file.read_text())
    ours: dict[str, int] = {}
    for row in marey("top", window, "--tier", "detail", "--json"):
        ours[row["name"]] = ours.get(row["name"], 0) + row["count"]
    assert ours == theirs
    assert sum(ours.values()) > 3000


def test_forward_operators_flow_to_their_backward_nodes(window: Path, marey: Callable[..., Any]) -> None:
    events = [event for event in marey("dump", window, "--json") if event["tier"] == "detail"]
    begins = {event["flow_id"]: event for event in events if event["flow_id"] is not None}
    ends = [event for event in events if event["terminating_flow_id"] in begins]
    assert len(ends) > 100
    for end in ends:
        begin = begins[end["terminating_flow_id"]]
        assert end["category"] == "backward" and begin["category"] == "operator"
        assert begin["begin_ns"] < end["begin_ns"]
        assert begin["args"]["Sequence number"] == end["args"]["Sequence number"]
    pairs = {(begins[end["terminating_flow_id"]]["name"], end["name"]) for end in ends}
    assert {("aten::addmm", "AddmmBackward0"), ("aten::gelu", "GeluBackward0")} <= pairs


def test_trace_processor_agrees(
    window: Path, marey: Callable[..., Any], trace_processor: Callable[[Path, str], list[list[str]]]
) -> None:
    stats = trace_processor(
        window,
        "select name, value from stats where value != 0 and (severity in ('error', 'data_loss') "
        "or name in ('tokenizer_skipped_packets', 'interned_data_tokenizer_errors'))",
    )
    assert stats == []
    theirs = {
        (name, category): int(count)
        for name, category, count in trace_processor(window, "select name, category, count(*) from slice group by 1, 2")
    }
    assert theirs == {(row["name"], row["category"]): row["count"] for row in marey("top", window, "--json")}
    (flows,) = trace_processor(window, "select count(*) from flow")
    assert int(flows[0]) > 100


def test_the_reward_rises_and_the_run_is_the_same_without_a_profiler(build_dir: Path, tmp_path: Path) -> None:
    rewards = {}
    for profiler in ("marey", "none"):
        file = tmp_path / f"{profiler}.json"
        run_demo(build_dir, tmp_path, "--profiler", profiler, "--rewards-json", file)
        rewards[profiler] = json.loads(file.read_text())
    assert rewards["marey"] == rewards["none"]
    values = rewards["marey"]
    assert sum(values[-5:]) / 5 > sum(values[:5]) / 5 + 0.15
