"""The codec: lines into batches, batches into lines and into columns, beside two other implementations.

Records a second of one core; every checksum is checked where batches are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from benchmarks import lines
from benchmarks.engine.codecs import AIOKAFKA, KAFKA_PYTHON, Codec, codecs, texts
from benchmarks.engine.repeating import seconds_each
from benchmarks.frame.question import (
    MILLION_RECORDS_A_SECOND,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    WrongResultError,
)

FLOOR_OF_AIOKAFKA = 0.8
BATCHES = {"128 KiB batches": 128 * 1024, "one-record batches": lines.LINE_BYTES}


def cases(conditions: Conditions) -> Cases:
    text_bytes = conditions.choose(full=1_000_000, short=250_000)
    for name, batch_bytes in BATCHES.items():
        written = texts(text_bytes // batch_bytes, batch_bytes)
        whole = b"".join(written)
        batches = codecs()[0].encode(written)
        _check(written, whole, batches)
        yield _case(f"encode, {name}", whole, methodcaller("encode", written))
        yield _case(f"to text, {name}", whole, methodcaller("to_text", batches))
        yield _case(f"to Arrow, {name}", whole, methodcaller("to_columns", batches))


def _case(name: str, whole: bytes, work: Callable[[Codec], object]) -> Case:
    records = len(whole) // lines.LINE_BYTES

    def speed(codec: Codec) -> float:
        return records / seconds_each(partial(work, codec)) / 1e6

    return Case(
        name=name,
        unit=MILLION_RECORDS_A_SECOND,
        sides=tuple(Side(codec.name, partial(speed, codec)) for codec in codecs()),
        goals=(Goal(of=AIOKAFKA, floor=FLOOR_OF_AIOKAFKA), Goal(of=KAFKA_PYTHON, floor=3.0)),
    )


def _check(written: Sequence[bytes], whole: bytes, batches: bytes) -> None:
    """Raise WrongResultError unless all codecs make the same of the same."""
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
