"""Runs every benchmark of a build and prints one table: path, gate, aim, measured, verdict.

The C++ parts are Google Benchmark programs (bin/marey_*_bench). A Python part is a script in this folder that takes
--build, --f-ns and --smoke and prints a JSON object: {"rows": [{"path": ..., "measured": ..., "unit": ..., "gate": ...,
"aim": ..., "note": ...}]}, or {"absent": "reason"}. Every ratio is formed within one run of one program, so a noisy machine
moves its parts alike; of several rounds the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import Counters, Row, range_rows, session_rows, trace_rows

BENCH = Path(__file__).resolve().parent
DOCUMENT = BENCH.parent / "docs" / "performance.md"
BEGIN, END = "<!-- table: made by bench/run.py --write -->", "<!-- table ends -->"
PROGRAMS = {"marey_range_bench": range_rows, "marey_session_bench": session_rows, "marey_trace_bench": trace_rows}
PARTS = ("python_range.py", "torch_ops.py")


def run_program(program: Path, smoke: bool) -> dict[str, Counters]:
    """Counters by benchmark."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = [str(program), f"--benchmark_out={out.name}", "--benchmark_out_format=json", *(["--smoke"] if smoke else [])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench: {program.name} failed ({done.returncode}):\n{done.stderr}")
        found = json.loads(Path(out.name).read_text())["benchmarks"]
    return {
        "/".join(part for part in each["name"].split("/") if ":" not in part and part != "manual_time"): {
            key: value for key, value in each.items() if isinstance(value, float | int)
        }
        for each in found
    }


def median_of(rounds: list[dict[str, Counters]]) -> dict[str, Counters]:
    first = rounds[0]
    return {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in counters} for name, counters in first.items()
    }


def run_part(part: Path, build: Path, f_ns: float, smoke: bool) -> tuple[list[Row], str]:
    """Its rows, or none and why."""
    words = [sys.executable, str(part), "--build", str(build), "--f-ns", str(f_ns), *(["--smoke"] if smoke else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {part.name} failed ({done.returncode}):\n{done.stderr}")
    result = json.loads(done.stdout)
    return [Row(**row) for row in result.get("rows", [])], result.get("absent", "")


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def compiler(build: Path) -> str:
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("CMAKE_CXX_COMPILER:"):
            done = subprocess.run([line.split("=", 1)[1], "--version"], capture_output=True, text=True, check=False)
            return done.stdout.splitlines()[0] if done.stdout else line
    return "unknown compiler"


def machine(build: Path, f_ns: float) -> str:
    return (
        f"{processor()}, {os.cpu_count()} logical CPUs, Linux {platform.release()}, {platform.machine()}; {compiler(build)}. "
        f"F = {f_ns:.1f} ns."
    )


def number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 2 if value < 10 and unit in ("F", "x", "ns", "B") else 1 if value < 100 else 0
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no minus before a zero
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def table(rows: list[Row], smoke: bool) -> str:
    lines = ["| path | gate | aim | measured | verdict | |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        verdict = "" if smoke else row.verdict
        cells = [
            row.path,
            number(row.gate, row.unit),
            number(row.aim, row.unit),
            number(row.measured, row.unit),
            verdict,
            row.note,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_document(text: str) -> None:
    page = DOCUMENT.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"bench: {DOCUMENT} must hold '{BEGIN}' and '{END}' once each")
    head, rest = page.split(BEGIN)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure every row of the speed table.")
    parser.add_argument("--build", type=Path, default=BENCH.parent / "build" / "release", help="a build with MAREY_BUILD_BENCH")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program; the median counts")
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes: everything runs, no time is judged")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    rounds = 1 if options.smoke else options.rounds
    if options.smoke and options.write:
        parser.error("--smoke says nothing about time, so it is not written")

    rows: list[Row] = []
    f_ns = 0.0
    for name, rows_of in PROGRAMS.items():
        program = options.build / "bin" / name
        if not program.exists():
            sys.exit(f"bench: {program} is not there; build the release preset first (make bench does)")
        found = median_of([run_program(program, options.smoke) for _ in range(rounds)])
        f_ns = f_ns or found["range/recorded"]["clock"]
        rows += rows_of(found)
    absent: list[str] = []
    for part in PARTS:
        if not (BENCH / part).exists():
            continue
        more, reason = run_part(BENCH / part, options.build, f_ns, options.smoke)
        rows += more
        if reason:
            absent.append(f"{part}: {reason}")

    about = machine(options.build, f_ns)
    text = table(rows, options.smoke)
    print(about)
    print(text)
    for line in absent:
        print(f"left out: {line}")
    if options.write:
        write_document(f"{about}\n\n{text}" + "".join(f"\n\nLeft out: {line}." for line in absent))
        print(f"written: {DOCUMENT}")


if __name__ == "__main__":
    main()
