"""Rows of the speed table: what was measured, and what is allowed. Lower is better in all of them."""

from __future__ import annotations

from dataclasses import dataclass

Counters = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One path. gate: the bound it must keep; aim: what is wanted; both in `unit`, None where nothing is promised."""

    path: str
    measured: float
    unit: str
    gate: float | None = None
    aim: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.gate is None:
            return ""
        if self.aim is not None and self.measured <= self.aim:
            return "aim"
        return "gate" if self.measured <= self.gate else "MISSED"


def lost_note(lost: float) -> str:
    return f"{lost:.0f} lost" if lost else "none lost"


def range_rows(found: dict[str, Counters]) -> list[Row]:
    """Of marey_range_bench."""
    closed, recorded, mean = found["range/closed"], found["range/recorded"], found["range/recorded_mean"]
    work, threads = found["range/next_to_work"], found["range/two_threads"]
    clock = recorded["clock"]
    one = threads["one"] / threads["one_clock"]
    two = threads["two"] / threads["two_clock"]
    return [
        Row("range, recorded, median", recorded["range"] / clock, "F", 1.15, 1.03, f"{recorded['range']:.1f} ns"),
        Row(
            "range, recorded, mean of 10^6 with the drain running",
            mean["range"] / mean["clock"],
            "F",
            1.30,
            1.10,
            f"{mean['range']:.1f} ns of CPU time, {lost_note(mean['lost'])}",
        ),
        Row("range, recorded, through the C ABI", recorded["range_c_abi"] / clock, "F", note=f"{recorded['range_c_abi']:.1f} ns"),
        Row("range, recorded, one argument", recorded["range_with_argument"] / clock, "F"),
        Row("range, recorded, clock replaced by a constant", recorded["range_without_clock"], "ns", 3, 1.5),
        Row(
            f"range next to {work['work']:.0f} ns of work, over the bare clock there",
            work["range"] / work["clock"],
            "x",
            1.6,
            1.2,
            f"{work['range']:.1f} ns, the clock {work['clock']:.1f} ns",
        ),
        Row(
            "range, closed shutter, C++ inline",
            closed["range"] - closed["empty_loop"],
            "ns",
            0.6,
            0.3,
            f"{closed['range']:.2f} ns a turn, an empty turn {closed['empty_loop']:.2f} ns",
        ),
        Row("range, closed shutter, through the C ABI", closed["range_c_abi"] - closed["empty_loop"], "ns", 3, 2.2),
        Row("range, closed shutter, two arguments", closed["range_with_arguments"] - closed["empty_loop"], "ns"),
        Row(
            "two threads against one (each against F there)",
            two / one,
            "x",
            1.05,
            1.02,
            f"{threads['two']:.1f} ns against {threads['one']:.1f} ns; F {threads['two_clock']:.1f} ns against "
            f"{threads['one_clock']:.1f} ns",
        ),
    ]


def session_rows(found: dict[str, Counters]) -> list[Row]:
    """Of marey_session_bench. A smoke run has only the smaller windows."""
    step = found["session/step"]
    rows = [
        Row("step() where nothing changes, no skeleton", step["no_skeleton"], "ns", 5, 2),
        Row("step() where nothing changes, with a skeleton", step["skeleton"], "ns", note="records the unit"),
    ]
    sizes = [size for size in ("1e3", "1e4", "1e5", "1e6") if f"call_{size}" in found["session/close_by_step"]]
    for name, words in (("close_by_step", "step() that closes a window"), ("close_by_stop", "stop() that closes a window")):
        counters = found[f"session/{name}"]
        medians = ", ".join(f"{counters[f'call_{size}'] / 1e3:.0f} us at {size}" for size in sizes[:-1])
        slowest = max(counters[f"call_max_{size}"] for size in sizes) / 1e3
        cpu = counters[f"call_cpu_{sizes[-1]}"] / 1e3
        note = f"{cpu:.0f} us of CPU; {medians}; slowest of all {slowest:.0f} us"
        rows.append(Row(f"{words} of {sizes[-1]} ranges", counters[f"call_{sizes[-1]}"] / 1e3, "us", 50, 5, note))
    paced, burst = found["session/close_by_step"], found["session/close_burst"]
    others = ", ".join(f"{paced[f'sealed_{size}'] / 1e6:.1f} ms at {size}" for size in sizes[:-1])
    lost = sum(counters[f"lost_{size}"] for counters in (paced, burst) for size in sizes)
    rows.append(Row(f"window of {sizes[-1]} closed to file sealed", paced[f"sealed_{sizes[-1]}"] / 1e6, "ms", 50, 10, others))
    rows.append(
        Row(
            f"the same after a burst of {sizes[-1]} ranges at full speed",
            burst[f"sealed_{sizes[-1]}"] / 1e6,
            "ms",
            note=f"the drain's backlog; {lost_note(lost)}",
        )
    )
    size = found["session/varied_size"]
    bulk = ", ".join(f"{burst[f'drain_cpu_{each}']:.0f} ns at {each}" for each in sizes)
    note = f"{size['ranges']:.0f} ranges with work between them; bursts of one range: {bulk}"
    rows.append(Row("drain, CPU per range, varied load", size["drain_cpu"], "ns", 200, 80, note))
    rows.append(
        Row("bytes per range on disk, varied load", size["bytes_per_range"], "B", 10, 8, f"of {size['ranges']:.0f} ranges")
    )
    memory = found["session/memory"]
    peak = max(memory["peak_first_half_mib"], memory["peak_second_half_mib"])
    note = (
        f"{memory['ranges']:.0f} ranges at full speed, {memory['lost'] / memory['ranges']:.0%} dropped and counted; "
        f"first half {memory['peak_first_half_mib']:.0f} MiB; at a pace that the drain keeps {memory['paced_peak_mib']:.0f} MiB"
    )
    rows.append(Row("memory while a window is open (lanes' cap 256 MiB)", peak, "MiB", 272, None, note))
    return rows


def trace_rows(found: dict[str, Counters]) -> list[Row]:
    """Of marey_trace_bench: times drawn at random, which is the hardest load to compress."""
    plain, args, read = found["encode_and_compress/args/0"], found["encode_and_compress/args/1"], found["read"]
    encode = found["encode"]["cpu_ns_per_range"]
    return [
        Row("bytes per range on disk, random times", plain["bytes_per_range"], "B", 10, 8),
        Row("the same, an argument in each", args["bytes_per_range"], "B"),
        Row(
            "encoding and compressing, per range, random times",
            plain["cpu_ns_per_range"],
            "ns",
            note=f"encoding alone {encode:.0f} ns",
        ),
        Row("reading, per range", read["cpu_ns_per_range"], "ns"),
    ]
