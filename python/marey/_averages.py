"""Tables per name, like torch.profiler's key_averages(). Traces are read by the `marey` program in a child process: reading
never happens inside the training process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from marey._log import log_once

_READ_TIMEOUT_S = 600.0
#: torch.profiler's names of columns -> (attribute, what it is called in a table). Times of devices fall back to the CPU's.
_SORT_KEYS = {
    "count": "count",
    "cpu_time": "cpu_time",
    "cpu_time_total": "cpu_time_total",
    "self_cpu_time_total": "self_cpu_time_total",
}
_UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3}


@dataclass(frozen=True)
class AverageRow:
    """All ranges of one name. Times in microseconds, as in torch.profiler."""

    key: str
    category: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float

    @property
    def cpu_time(self) -> float:
        """Average of one range."""
        return self.cpu_time_total / self.count if self.count else 0.0


class Averages(Sequence[AverageRow]):
    """What key_averages() returns: rows in the order of total time, and table()."""

    def __init__(self, rows: Sequence[AverageRow]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[AverageRow]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> AverageRow: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AverageRow]: ...
    def __getitem__(self, index: int | slice) -> AverageRow | Sequence[AverageRow]:
        return self._rows[index]

    @property
    def self_cpu_time_total(self) -> float:
        return sum(row.self_cpu_time_total for row in self._rows)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The rows as text, at most `row_limit` (-1: all), largest `sort_by` first."""
        if top_level_events_only:
            log_once("table top_level_events_only", "table(top_level_events_only=True) is not supported yet; all are shown")
        if time_unit is not None and time_unit not in _UNITS_NS:
            raise ValueError(f"time_unit={time_unit!r} is not known; choose from {', '.join(_UNITS_NS)}")
        rows = self._sorted(sort_by)
        if row_limit >= 0:
            rows = rows[:row_limit]
        titles = ("Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls")
        whole = self.self_cpu_time_total
        lines = [
            (
                _cut(row.key, max_name_column_width),
                f"{100 * row.self_cpu_time_total / whole if whole else 0:.2f}%",
                _time(row.self_cpu_time_total, time_unit),
                _time(row.cpu_time_total, time_unit),
                _time(row.cpu_time, time_unit),
                str(row.count),
            )
            for row in rows
        ]
        widths = [max(len(line[column]) for line in (titles, *lines)) for column in range(len(titles))]
        rule = "  ".join("-" * width for width in widths)

        def layout(line: Sequence[str]) -> str:
            return "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])

        text = [] if header is None else ["=" * len(rule), header]
        text += [rule, layout(titles), rule, *map(layout, lines), rule, f"Self CPU time total: {_time(whole, time_unit)}", ""]
        return "\n".join(text)

    def _sorted(self, sort_by: str | None) -> list[AverageRow]:
        if sort_by is None:
            return list(self._rows)
        key = _SORT_KEYS.get(sort_by)
        if key is None and any(word in sort_by for word in ("cuda", "device", "xpu", "npu", "privateuse")) and "time" in sort_by:
            key = "self_cpu_time_total" if sort_by.startswith("self_") else "cpu_time_total"
            log_once(f"sort_by {sort_by}", f"sort_by={sort_by!r}: devices are not recorded yet; sorted by {key} instead")
        if key is None:
            raise ValueError(f"sort_by={sort_by!r} is not known; choose from {', '.join(_SORT_KEYS)}")
        return sorted(self._rows, key=lambda row: float(getattr(row, key)), reverse=True)

    def __str__(self) -> str:
        return self.table()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _time(us: float, unit: str | None) -> str:
    ns = us * 1e3
    if unit is None:
        unit = "s" if ns >= 1e9 else "ms" if ns >= 1e6 else "us"
    return f"{ns / _UNITS_NS[unit]:.3f}{unit}"


def find_cli() -> Path | None:
    """The `marey` program: of this package, of this environment, or on PATH."""
    candidates = (
        Path(os.path.abspath(__file__)).parent / "bin" / "marey",
        Path(sysconfig.get_path("scripts")) / "marey",
        shutil.which("marey"),
    )
    return next((Path(path) for path in candidates if path is not None and os.access(path, os.X_OK)), None)


def averages_of(paths: Sequence[Path]) -> Averages:
    """Rows over all events of these traces; units and stages are left out, as they hold all the others."""
    if not paths:
        return Averages(())
    cli = find_cli()
    if cli is None:
        raise FileNotFoundError("key_averages() needs the `marey` program, and there is none in this environment or on PATH")
    words = [str(cli), "top", "--json", "--tier", "detail", *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_READ_TIMEOUT_S, check=False)
    if done.returncode not in (0, 3) or not done.stdout.strip():
        raise RuntimeError(f"key_averages(): `{' '.join(words)}` failed: {done.stderr.strip()[-400:]}")
    return Averages(
        [
            AverageRow(row["name"], row["category"], row["count"], row["total_ns"] / 1e3, row["self_ns"] / 1e3)
            for row in json.loads(done.stdout)
        ]
    )
