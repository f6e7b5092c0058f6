"""The figures that users ask for: short tables of a run's medians, each compared with another program."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.frame.question import OURS, Better
from benchmarks.frame.results import CaseResult, Figures, RunResult
from benchmarks.frame.table import number

HEADING = "| | topicfs | compared with | |\n|---|--:|--:|--:|"
FACTS = ("processor", "cores", "memory", "kernel", "file system", "python", "topicfs")
"""Facts that `machine_in_brief` mentions."""


class Line(NamedTuple):
    """A row of a table: a case, described in a user's words, and the side with which topicfs is compared."""

    words: str
    benchmark: str
    case: str
    other: str
    ours: str = OURS


KCAT, CONSOLE, KAFKA_SOURCE = "kcat", "console tools", "Kafka source"
READ, WRITE, ECHO = (
    "`cat mnt/orders/0/log`",
    "`cat file >> mnt/orders/0/log`",
    "`echo line >> mnt/orders/0/log`",
)
CAT = Line(READ, "shell", "consume", KCAT)
ONE_LINE = Line(ECHO, "shell", "produce one line", KCAT)
TOTAL = Line("Spark: `sum(length(value))` over a topic", "spark", "sum(length(value))", KAFKA_SOURCE)

TABLES = {
    "front": (CAT, ONE_LINE, TOTAL),
    "tools": (
        CAT,
        Line(READ, "shell", "consume", CONSOLE),
        Line(f"{READ}, compressed with lz4", "shell", "consume lz4", KCAT),
        Line(f"{READ}, compressed with zstd", "shell", "consume zstd", KCAT),
        Line(WRITE, "shell", "produce", KCAT),
        Line(WRITE, "shell", "produce", CONSOLE),
        ONE_LINE,
        Line(ECHO, "shell", "produce one line", CONSOLE),
        Line("`cat mnt/orders/0/42`", "shell", "consume one record by offset", KCAT),
    ),
    "python": (
        Line("`for record in topic`", "consumers", "small records", "confluent-kafka"),
        Line("`for record in topic`", "consumers", "small records", "kafka-python"),
    ),
    "tables of Spark": (
        Line("`count()`", "spark", "count()", KAFKA_SOURCE),
        TOTAL._replace(words="`sum(length(value))`"),
        Line("archive to Parquet", "spark", "archive", KAFKA_SOURCE),
        TOTAL._replace(words="`sum(length(value))`", other="Parquet"),
    ),
    "plain files": (
        Line("read a log, 512 KiB at a time", "stream", "16 KiB batches, 512 KiB reads, warm", "ext4"),
        Line("append lines, 128 KiB at a time", "bulk", "128 KiB writes", "tmpfs"),
        Line("append one line of 100 bytes", "append", "100 bytes on one descriptor", "tmpfs"),
        Line("`echo line >>` in a loop", "echo", "echo line >> log", "tmpfs"),
        Line(
            "`echo line >>` in a loop, two processors",
            "echo",
            "echo line >> log, not pinned",
            "empty, C libfuse",
        ),
    ),
    "waiting": (
        Line("one record by offset, from 10 GB", "lookup", "0/OFFSET, warm", "10 MB", "10 GB"),
        Line("one record by time, from 10 GB", "lookup", "0/@TIME, warm", "10 MB", "10 GB"),
        Line("from an append to `follow`, median", "follow", "p50", "a pipe"),
        Line("from an append to `follow`, 99th percentile", "follow", "p99", "a pipe"),
    ),
}


def table(report: RunResult, lines: tuple[Line, ...]) -> str | None:
    """Return a Markdown table; None if the run lacks a figure of the table."""
    cases = [(result.name, case) for result in report.benchmarks for case in result.cases]
    # If two cases have the same name, the first has the elapsed time and the second the processor time.
    known = {(name, case.name): case for name, case in reversed(cases)}
    if any((line.benchmark, line.case) not in known for line in lines):
        return None
    rows = (_row(line, known[line.benchmark, line.case]) for line in lines)
    return "\n".join((HEADING, *(f"| {' | '.join(row)} |" for row in rows)))


def _row(line: Line, case: CaseResult) -> Iterator[str]:
    ours, other = case.of(line.ours), case.of(line.other)
    unit = case.unit.name
    yield line.words
    yield f"{number(ours.median)} {unit}"
    yield f"{line.other}: {number(other.median)} {unit}"
    yield _compared(ours, other, case.unit.better)


def _compared(ours: Figures, other: Figures, better: Better) -> str:
    """Return a comparison by the median of the rounds' ratios, as in goals."""
    ratio = statistics.median(one / two for one, two in zip(ours.rounds, other.rounds, strict=True))
    speed = ratio if better is Better.HIGHER else 1 / ratio
    return f"{number(speed)}× faster" if speed >= 1 else f"{number(1 / speed)}× slower"


def machine_in_brief(report: RunResult) -> str:
    """Return one line about the machine."""
    named = {"cores": "{} cores", "memory": "{} of memory", "python": "Python {}", "topicfs": "topicfs {}"}
    known = ((name, report.machine[name]) for name in FACTS if name in report.machine)
    return "Measured on: " + ", ".join(named.get(name, "{}").format(value) for name, value in known) + "."
