"""The command line as a person or a script meets it: shapes, exit codes, errors on stderr, help."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("plan", "info", "units", "top", "dump", "doctor")


@pytest.fixture(scope="module")
def folder(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traces")
    subprocess.run([build_dir / "bin" / "write_sample_trace", out, "5"], check=True, timeout=60)
    return out


@pytest.fixture(scope="module")
def window(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if "mini-batch2-3" in path.name)


def run(build_dir: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build_dir / "bin" / "marey", *map(str, words)], capture_output=True, text=True, timeout=60)


def test_plan_prints_the_documented_json(marey: Callable[..., Any]) -> None:
    plan = marey("plan", "--schedule", "skip_first=1,wait=0,warmup=1,active=2,repeat=1", "--units", 8, "--json")
    assert plan == {
        "schedule": {"skip_first": 1, "wait": 0, "warmup": 1, "active": 2, "repeat": 1, "skip_first_wait": 0},
        "units": 8,
        "actions": ["none", "warmup", "record", "record_and_save", "none", "none", "none", "none"],
        "windows": [{"first": 2, "last": 3, "complete": True}],
    }
    cut = marey("plan", "--schedule", "wait=1,active=3", "--units", 7, "--json")
    assert cut["windows"] == [{"first": 1, "last": 3, "complete": True}, {"first": 5, "last": 7, "complete": False}]


def test_plan_as_text_is_a_strip(marey: Callable[..., Any]) -> None:
    text = marey("plan", "--schedule", "skip_first=1,warmup=1,active=2", "--units", 8)
    assert " .wRSwRSw\n" in text
    assert "window 1: mini_batch 5-6\n" in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plan", "--schedule", "active=-1", "--units", 3], 2, "active=-1 is negative"),
        (["plan", "--schedule", "active=True", "--units", 3], 2, "active=True is not a whole number"),
        (["plan", "--units", 3], 2, "--schedule is required"),
        (["plan", "--schedule", "active=1", "--units", 0], 2, "--units"),
        (["info", "/no/such/file"], 1, "'/no/such/file' does not exist"),
        (["info", "."], 1, "no .pftrace file in '.'"),
        (["top", "--sort", "colour", "x"], 2, "--sort"),
        (["fly"], 2, ""),
        ([], 2, ""),
    ],
)
def test_errors_go_to_stderr_with_their_exit_code(
    build_dir: Path, tmp_path: Path, words: list[object], code: int, said: str
) -> None:
    done = subprocess.run(
        [build_dir / "bin" / "marey", *map(str, words)], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(build_dir: Path, command: str) -> None:
    done = run(build_dir, command, "--help")
    assert done.returncode == 0
    assert f"Example: marey {command}" in done.stdout
    assert "Exit codes: 0 ok" in done.stdout


def test_info_has_every_documented_key(folder: Path, window: Path, marey: Callable[..., Any]) -> None:
    traces = marey("info", folder, "--json")
    assert [trace["kind"] for trace in traces] == ["skeleton", "window"]
    info = traces[1]
    keys = (
        "path state kind role stage train_step unit first_unit last_unit recorded_units planned_units complete rank world_size host pid "
        "begin_unix_ns duration_ns events bytes schedule contents sources losses marey_version"
    )
    assert set(keys.split()) <= set(info)
    expected = {
        "path": str(window),
        "state": "sealed",
        "role": "actor",
        "stage": "actor_update",
        "train_step": 5,
        "unit": "mini_batch",
        "first_unit": 2,
        "last_unit": 3,
        "recorded_units": 2,
        "planned_units": 2,
        "complete": True,
        "rank": 3,
        "world_size": 8,
        "parallel": "tp1-pp0-dp2",
        "contents": ["cpu"],
        "losses": [],
        "bytes": window.stat().st_size,
    }
    assert {key: info[key] for key in expected} == expected
    assert info["sources"][0] == {"name": "host", "state": "armed", "reason": ""}


def test_units_joins_the_window_with_the_skeleton(folder: Path, window: Path, marey: Callable[..., Any]) -> None:
    joined = marey("units", folder, "--unit", "mini_batch", "--json")
    assert [row["number"] for row in joined] == list(range(6))
    assert [row["number"] for row in joined if row["events"]] == [2, 3]
    alone = marey("units", window, "--json")
    step = next(row for row in alone if row["unit"] == "train_step")
    assert step["truncated"] and step["number"] == 5
    whole = next(row for row in marey("units", folder, "--json") if row["unit"] == "train_step")
    assert not whole["truncated"] and whole["duration_ns"] > step["duration_ns"]
    assert set(whole["stages"]) == {"rollout", "actor_update"}


def test_several_paths_and_files_of_one_lease_count_nothing_twice(folder: Path, window: Path, marey: Callable[..., Any]) -> None:
    def count(rows: list[dict[str, Any]], name: str) -> int:
        return sum(row["count"] for row in rows if row["name"] == name)

    alone = marey("top", window, "--json")
    joined = marey("top", folder, window, "--json")
    assert count(joined, "outer") == count(alone, "outer") == 40
    assert count(joined, "actor_update") == 1
    assert count(joined, "mini_batch 2") == 1


def test_what_is_missing_is_told_in_both_forms(build_dir: Path, tmp_path: Path) -> None:
    for command in ("units", "top", "info"):
        for words in ([], ["--json"]):
            done = run(build_dir, command, tmp_path, *words)
            assert done.returncode == 1
            assert "no .pftrace file" in done.stderr
            assert done.stdout == ("[]\n" if words else "")


@pytest.mark.parametrize("command", ["dump", "top", "units", "info"])
def test_output_that_cannot_be_written_is_an_error(build_dir: Path, window: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [build_dir / "bin" / "marey", command, window], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


def test_top_self_times_add_up_to_the_outermost_times(window: Path, marey: Callable[..., Any]) -> None:
    rows = marey("top", window, "--json")
    events = marey("dump", window, "--json")
    outermost = sum(event["duration_ns"] or 0 for event in events if event["depth"] == 0)
    assert sum(row["self_ns"] for row in rows) == outermost
    assert abs(sum(row["share"] for row in rows) - 1) < 1e-9
    for row in rows:
        durations = [
            event["duration_ns"] or 0 for event in events if (event["name"], event["category"]) == (row["name"], row["category"])
        ]
        assert (row["count"], row["total_ns"]) == (len(durations), sum(durations))
        assert (row["min_ns"], row["max_ns"], row["mean_ns"]) == (
            min(durations),
            max(durations),
            sum(durations) // len(durations),
        )


def test_dump_says_where_every_event_lies(window: Path, marey: Callable[..., Any]) -> None:
    events = marey("dump", window, "--json")
    assert [event["begin_ns"] for event in events] == sorted(event["begin_ns"] for event in events)
    outer = [event for event in events if event["name"] == "outer"]
    assert len(outer) == 2 * 2 * 2 * 5
    for event in outer:
        assert event["args"]["unit"] == event["mini_batch"]
        assert (event["train_step"], event["stage"], event["source"], event["tier"]) == (5, "actor_update", "host", "detail")
        assert event["micro_batch"] in (0, 1)
    assert outer[0]["args"]["loss"] == "nan" and outer[1]["args"]["loss"] == 0.5
    marks = [event for event in events if event["name"] == "mark"]
    assert marks and all(event["duration_ns"] is None for event in marks)
    quoted = next(event for event in events if event["name"].startswith("quote"))
    assert quoted["name"] == 'quote"backslash\\newline\n'


def test_a_damaged_file_is_told_and_the_others_are_read(build_dir: Path, folder: Path, window: Path, tmp_path: Path) -> None:
    data = bytearray(window.read_bytes())
    at = data.index(b"\x78")  # somewhere in the compressed batch
    damaged = tmp_path / "a_damaged.pftrace"
    data[len(data) * 2 // 3] ^= 0xFF
    damaged.write_bytes(data)
    assert at > 0
    other = tmp_path / "b_whole.pftrace"
    other.write_bytes(window.read_bytes())
    (tmp_path / "c_text.pftrace").write_text("no trace at all")
    done = run(build_dir, "info", tmp_path, "--json")
    assert done.returncode == 3
    assert "a_damaged.pftrace' is damaged" in done.stderr and "c_text.pftrace' is not a trace of Marey's" in done.stderr
    assert [trace["state"] for trace in json.loads(done.stdout)] == ["damaged", "sealed"]


def test_doctor_answers_in_both_forms(marey: Callable[..., Any], build_dir: Path) -> None:
    report = marey("doctor", "--json")
    assert [check["check"] for check in report["checks"]][:4] == ["marey", "clock", "output", "library"]
    assert report["checks"][3]["state"] == "ok"
    assert {check["state"] for check in report["checks"]} <= {"ok", "warn", "fail"}
    assert "ok    marey" in run(build_dir, "doctor").stdout


def test_a_closed_pipe_is_quiet(build_dir: Path, window: Path) -> None:
    shell = f"set -o pipefail; {build_dir}/bin/marey dump {window} | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
