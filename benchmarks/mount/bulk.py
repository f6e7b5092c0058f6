"""Bulk appends: a text of 100-byte lines in large writes, each of which becomes one batch."""

from __future__ import annotations

from functools import partial

from benchmarks import lines
from benchmarks.frame.question import (
    MEGABYTES_A_SECOND,
    MEGABYTES_A_SECOND_OF_PROCESSOR,
    Benchmark,
    Cases,
    Conditions,
)
from benchmarks.mount.setup.cpu_time import Timing, one_processor
from benchmarks.mount.setup.system_calls import KIB, MIB, append_pieces, check_text
from benchmarks.mount.setup.targets import Display, MeasuredLog, logs_for_appends

PIECES = {"16 KiB": 16 * KIB, "128 KiB": 128 * KIB, "1 MiB": MIB}
MOST_ROUNDS = 11


def cases(conditions: Conditions) -> Cases:
    size = conditions.choose(full=24, short=12) * len(lines.BLOCK)
    text = memoryview(lines.text(size))

    def work(log: MeasuredLog, piece: int) -> Timing:
        return log.appended(size, lambda: append_pieces(log.path, text, piece))

    written_bytes = 2 * size * MOST_ROUNDS * len(PIECES)
    with one_processor(), logs_for_appends(conditions, written_bytes) as logs:
        for name, piece in PIECES.items():
            shown = Display(
                name=f"{name} writes",
                unit=MEGABYTES_A_SECOND,
                processor_unit=MEGABYTES_A_SECOND_OF_PROCESSOR,
                figure=lambda seconds: size / 1e6 / seconds,
            )
            yield from logs.cases(partial(work, piece=piece), shown, target_of_least=0.8, floor=0.25)
        check_text(logs.ours.path, logs.ours.size())


BENCHMARK = Benchmark(
    name="bulk", question="How fast are large writes of lines?", cases=cases, logarithmic=True
)
