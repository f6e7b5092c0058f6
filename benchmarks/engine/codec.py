"""The codec: lines to batches, and batches to lines and to columns, compared with two other implementations.

Figures are records per second of one core. Every read of batches verifies each checksum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from benchmarks import lines
from benchmarks.engine.codecs import AIOKAFKA, KAFKA_PYTHON, MeasuredCodec, codecs, texts
from benchmarks.frame import units
from benchmarks.frame.question import Benchmark, Case, Cases, Conditions, Goal, Side, WrongResultError

BATCHES = {"128 KiB batches": 128 * 1024, "one-record batches": lines.LINE_BYTES}
FLOORS = {
    "encode, 128 KiB batches": (4.0, 30.0),
    "to text, 128 KiB batches": (3.0, 50.0),
    "to Arrow, 128 KiB batches": (4.0, 35.0),
    "encode, one-record batches": (1.2, 3.5),
    "to text, one-record batches": (3.0, 45.0),
    "to Arrow, one-record batches": (4.0, 45.0),
}
"""Smallest accepted ratios to the speeds of aiokafka and of kafka-python."""
FLOORS_IN_FULL = {"to Arrow, 128 KiB batches": (7.0, 60.0)}
"""Floors without --short: one call then decodes more records, and aiokafka takes more time per record."""

LEAST_SECONDS = 0.02
"""Least processor time for one figure. Only the time of this process counts, not that of other programs."""


def cases(conditions: Conditions) -> Cases:
    text_bytes = conditions.choose(full=1_000_000, short=250_000)
    floors = FLOORS if conditions.short else FLOORS | FLOORS_IN_FULL
    for name, batch_bytes in BATCHES.items():
        written = texts(text_bytes // batch_bytes, batch_bytes)
        whole = b"".join(written)
        batches = codecs()[0].encode(written)
        _check(written, whole, batches)
        for work, call in (
            ("encode", methodcaller("encode", written)),
            ("to text", methodcaller("to_text", batches)),
            ("to Arrow", methodcaller("to_columns", batches)),
        ):
            yield _case(f"{work}, {name}", whole, call, floors[f"{work}, {name}"])


def _case(
    name: str, whole: bytes, work: Callable[[MeasuredCodec], object], floors: tuple[float, float]
) -> Case:
    records = len(whole) // lines.LINE_BYTES

    def speed(codec: MeasuredCodec) -> float:
        return records / seconds_each(partial(work, codec)) / 1e6

    return Case(
        name=name,
        unit=units.MILLION_RECORDS_A_SECOND,
        sides=tuple(Side(codec.name, partial(speed, codec)) for codec in codecs()),
        goals=(Goal(of=AIOKAFKA, floor=floors[0]), Goal(of=KAFKA_PYTHON, floor=floors[1])),
    )


def seconds_each(work: Callable[[], object]) -> float:
    """Return the processor time of one call in seconds, averaged over enough calls to take LEAST_SECONDS."""
    calls = 0
    started = time.process_time()
    while True:
        work()
        calls += 1
        elapsed = time.process_time() - started
        if elapsed >= LEAST_SECONDS:
            return elapsed / calls


def _check(written: Sequence[bytes], whole: bytes, batches: bytes) -> None:
    """Raise WrongResultError unless all codecs give equal results."""
    ours: Any = None
    for codec in codecs():
        table = codec.to_columns(batches)
        ours = table if ours is None else ours
        if codec.to_text(batches) != whole or codec.to_text(codec.encode(written)) != whole or table != ours:
            raise WrongResultError(f"{codec.name} reads or writes other records than were given to it")


BENCHMARK = Benchmark(
    name="codec",
    question="How many records a second does the codec write and read?",
    cases=cases,
    logarithmic=True,
)
