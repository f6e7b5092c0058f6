"""Complete outputs of kafka-dump-log for every file of two brokers' log directories, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from topicfs.inspection.dump.decoders import RecordDecoder
from topicfs.inspection.dump.files import dump
from topicfs.inspection.dump.log import DumpOptions
from topicfs.storage.disk.native import NativeFileSystem

VECTORS = Path(__file__).parents[1] / "vectors"
LOG_FILES = (".log",)
OTHER_FILES = (".index", ".snapshot", ".timeindex", ".txnindex")
DECODERS = {
    "__consumer_offsets": RecordDecoder.OFFSETS,
    "__transaction_state": RecordDecoder.TRANSACTIONS,
}


def outputs(vectors: str, kind: str) -> list[tuple[str, str, str]]:
    folder = VECTORS / vectors / "dump"
    return [(vectors, path.name.split(".")[0], kind) for path in sorted(folder.glob(f"*.{kind}.txt"))]


EVERY_OUTPUT = [
    output
    for vectors in ("kafka", "broker-made")
    for kind in ("log", "idx")
    for output in outputs(vectors, kind)
]


def dumped(log_dirs: Path, partition: str, suffixes: Sequence[str], options: DumpOptions) -> tuple[str, str]:
    """Return standard output, and standard error with file names that are relative to `log_dirs`."""
    names = sorted(
        f"{partition}/{path.name}" for path in (log_dirs / partition).iterdir() if path.suffix in suffixes
    )
    lines = list(dump(names, options, NativeFileSystem(read_only=True)))
    printed = "".join(f"{line.text}\n" for line in lines if not line.error)
    errors = "".join(f"{line.text}\n" for line in lines if line.error)
    return printed, errors.replace(f"{log_dirs}/", "")


def findings(text: str) -> list[str]:
    """Return the findings as sorted blocks, one block for each file.

    The order in which Kafka's tool prints files depends on where the files are.
    """
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return sorted(found)


def test_there_are_outputs_of_every_kind():
    """The vectors have two outputs for each of thirteen partitions of one broker and twelve of the other."""
    assert {"kafka": 26, "broker-made": 24} == {
        vectors: sum(output[0] == vectors for output in EVERY_OUTPUT) for vectors in ("kafka", "broker-made")
    }


@pytest.mark.parametrize(("vectors", "partition", "kind"), EVERY_OUTPUT)
def test_every_file_prints_as_kafkas_tool_printed_it(vectors, partition, kind, monkeypatch):
    """Row 149: batches, records of all codecs, decoded records, indexes, producers and aborts print as in Kafka."""
    log_dirs = VECTORS / vectors / "log-dirs"
    monkeypatch.chdir(log_dirs)
    options = DumpOptions(decoder=DECODERS.get(partition.rpartition("-")[0]), print_data_log=kind == "log")

    printed, errors = dumped(log_dirs, partition, LOG_FILES if kind == "log" else OTHER_FILES, options)

    expected = (VECTORS / vectors / "dump" / f"{partition}.{kind}.txt").read_text()
    # Standard error comes last in the file.
    assert expected[: len(printed)] == printed
    assert findings(expected[len(printed) :]) == findings(errors)
