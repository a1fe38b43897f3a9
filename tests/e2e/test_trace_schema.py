"""What Marey writes, read by others: Perfetto's public schema and Perfetto's own trace_processor."""

from __future__ import annotations

import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")


@pytest.fixture(scope="module")
def traces(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A window and a skeleton, large enough that the window has several compressed batches."""
    folder = tmp_path_factory.mktemp("traces")
    subprocess.run([build_dir / "bin" / "write_sample_trace", folder, "4000"], check=True, timeout=60)
    found = sorted(folder.iterdir())
    assert [path.name.split("_")[1] for path in found] == ["skeleton", "step5"]
    return found


def messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for child in value if field.is_repeated else [value]:
            yield from messages(child)


def packets(path: Path) -> Iterator[Any]:
    trace = pb.Trace.FromString(path.read_bytes())
    for packet in trace.packet:
        if packet.compressed_packets:
            inner = pb.Trace.FromString(zlib.decompress(packet.compressed_packets))
            assert len(packet.compressed_packets) < 512 * 1024
            assert not any(each.compressed_packets for each in inner.packet)
            yield from inner.packet
        else:
            yield packet


def test_decodes_with_the_public_schema_and_knows_every_field(traces: list[Path]) -> None:
    for path in traces:
        count = 0
        for packet in packets(path):
            count += 1
            for message in messages(packet):
                assert len(unknown_fields.UnknownFieldSet(message)) == 0, message
        assert count > 20


def test_uses_several_compressed_batches(traces: list[Path]) -> None:
    trace = pb.Trace.FromString(traces[1].read_bytes())
    assert sum(1 for packet in trace.packet if packet.compressed_packets) > 3


def test_trace_processor_reads_it_without_error_loss_or_nameless_slice(
    traces: list[Path], trace_processor: Callable[[Path, str], list[list[str]]]
) -> None:
    for path in traces:
        stats = trace_processor(
            path,
            "select name, severity, value from stats where value != 0 and (severity in ('error', 'data_loss') "
            "or name in ('tokenizer_skipped_packets', 'interned_data_tokenizer_errors'))",
        )
        assert stats == []
        assert trace_processor(path, "select count(*) from slice where name is null or name = ''") == [["0"]]
        assert trace_processor(path, "select count(*) from slice where dur < 0") == [["0"]]


def test_trace_processor_counts_what_marey_counts(
    traces: list[Path], marey: Callable[..., Any], trace_processor: Callable[[Path, str], list[list[str]]]
) -> None:
    for path in traces:
        # Names with newlines would break the rows of the text output: hex keeps them whole.
        rows = trace_processor(path, "select hex(name), category, count(*), sum(dur) from slice group by 1, 2")
        theirs = {(bytes.fromhex(name).decode(), category): (int(count), int(total)) for name, category, count, total in rows}
        ours = {(row["name"], row["category"]): (row["count"], row["total_ns"]) for row in marey("top", path, "--json")}
        assert theirs == ours
        assert sum(count for count, _ in ours.values()) == marey("info", path, "--json")[0]["events"]


def test_trace_processor_nests_and_times_as_marey_does(
    traces: list[Path], marey: Callable[..., Any], trace_processor: Callable[[Path, str], list[list[str]]]
) -> None:
    path = traces[1]
    theirs = Counter(
        (int(ts), int(dur), int(depth))
        for ts, dur, depth in trace_processor(path, "select ts, dur, depth from slice where category != 'unit'")
    )
    ours = Counter(
        (event["begin_ns"], event["duration_ns"] or 0, event["depth"])
        for event in marey("dump", path, "--json")
        if event["category"] != "unit"
    )
    assert theirs == ours


def test_arguments_arrive_as_they_were_given(traces: list[Path], trace_processor: Callable[[Path, str], list[list[str]]]) -> None:
    rows = trace_processor(
        traces[1],
        "select distinct key, display_value from args join slice on slice.arg_set_id = args.arg_set_id "
        "where slice.name = 'outer' and key in ('debug.unit', 'debug.text') order by 1, 2",
    )
    assert rows == [["debug.text", 'value "quoted"'], ["debug.unit", "2"], ["debug.unit", "3"]]
