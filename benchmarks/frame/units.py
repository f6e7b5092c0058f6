"""The units of the figures."""

from __future__ import annotations

from benchmarks.frame.question import Better, Unit

MEGABYTES_A_SECOND = Unit("MB/s", Better.HIGHER)
MICROSECONDS = Unit("µs", Better.LOWER)
MILLISECONDS = Unit("ms", Better.LOWER)
SECONDS = Unit("s", Better.LOWER)
MEGABYTES = Unit("MB", Better.LOWER)
MILLISECONDS_OF_PROCESSOR = Unit("ms of a core", Better.LOWER)
LINES_A_SECOND = Unit("lines/s", Better.HIGHER)
MILLION_RECORDS_A_SECOND = Unit("M records/s", Better.HIGHER)
MILLION_RECORDS_A_SECOND_OF_PROCESSOR = Unit("M records/s a core", Better.HIGHER)
LINES_A_SECOND_OF_PROCESSOR = Unit("lines/s a core", Better.HIGHER)
MICROSECONDS_OF_PROCESSOR = Unit("µs of a core", Better.LOWER)
MEGABYTES_A_SECOND_OF_PROCESSOR = Unit("MB/s a core", Better.HIGHER)
GIGABYTES_A_SECOND_OF_PROCESSOR = Unit("GB/s a core", Better.HIGHER)
COMMANDS_A_SECOND = Unit("commands/s", Better.HIGHER)
