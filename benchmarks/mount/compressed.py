"""Compressed topics: `cat log` and large writes, compared with only running the codec's library on the same bytes.

The text compresses to a third to a half of its size, like JSON. There are cases with one reader, and with two
simultaneous readers of different logs. All cases measure elapsed time on all processors, and so also show how
well a mount uses a second processor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import lines
from benchmarks.frame import units
from benchmarks.frame.question import OURS, Benchmark, Case, Cases, Conditions, Goal, Side, WrongResultError
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.mounts import Mount, topicfs
from benchmarks.mount.setup.system_calls import KIB, MIB, append_pieces, read_through
from topicfs.replication import open_engine
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.compression.codecs import deflate, inflate
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode_columns, encode_lines
from topicfs.storage.model import Timestamp

CODECS = (Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP)
BATCHES = {"16 KiB batches": 160, "128 KiB batches": 1280}
"""Lines per batch: as in a batch of a producer with default settings, and as in a large write."""
FLOORS = {Codec.LZ4: 0.3, Codec.SNAPPY: 0.3, Codec.ZSTD: 0.42, Codec.GZIP: 0.45}
LIBRARY = "library alone"
"""The side that only runs the codec on the same batches on one processor, without reading or making lines."""
THREADS = "library, two threads"
"""The side that runs the library in two threads of one process, each on all batches; it shows the cost of the
interpreter's lock.
"""
LEAST = "library, then uncompressed"
"""The time of the codec plus the time of the same text on a mount without compression. A mount with one thread cannot
be faster.
"""
READERS = 2
MAX_ROUNDS = 11
START_TIME = Timestamp(1_700_000_000_000)


class Sample(NamedTuple):
    """A text, and its lines as batches of each codec."""

    text: bytes
    batches: dict[Codec, list[bytes]]


def cases(conditions: Conditions) -> Cases:
    size = conditions.choose(full=64, short=8) * 10**6
    text = lines.varied_text(4 * 10**6)
    with directory_in_memory(conditions, 12 * size) as directory:
        for name, lines_in_batch in BATCHES.items():
            sample = _sample(text, lines_in_batch)
            copies = size // len(text)
            with _logs(directory / str(lines_in_batch), sample, copies) as mount:
                for codec in CODECS:
                    yield _reading(mount, sample, codec, name, copies, readers=1)
                    yield _reading(mount, sample, codec, name, copies, readers=READERS)
        with topicfs(directory, directory / "appended") as mount:
            for codec in CODECS:
                yield _appending(mount, text, codec)


def _sample(text: bytes, lines_in_batch: int) -> Sample:
    piece = lines_in_batch * lines.LINE_BYTES
    plain = [
        bytes(batch)
        for at in range(0, len(text), piece)
        for batch in encode_lines(text[at : at + piece], timestamp=START_TIME)
    ]
    compressed = {
        codec: [bytes(encode_columns(decode(batch)[0], BatchStamp(codec=codec))[0]) for batch in plain]
        for codec in CODECS
    }
    return Sample(text, {Codec.NONE: plain, **compressed})


@contextmanager
def _logs(directory: Path, sample: Sample, copies: int) -> Iterator[Mount]:
    """Mount a topic for each codec, with one partition per reader; each partition has `copies` copies of the text."""
    directory.mkdir()
    with closing(open_engine(directory / "data")) as engine:
        for codec, batches in sample.batches.items():
            partitions = engine.create_topic(codec.label, partitions=READERS).partitions()
            for partition in partitions.values():
                for _ in range(copies):
                    for at in range(0, len(batches), 32):
                        partition.append(bytearray().join(batches[at : at + 32]), encoded_here=True)
    with topicfs(directory, directory / "data") as mount:
        for log in mount.path.glob("*/*/log"):
            _check(log, sample.text, copies)
        yield mount


def _check(log: Path, text: bytes, copies: int) -> None:
    """Raise WrongResultError unless the log has `copies` copies of the text. The daemon then knows the log's size."""
    with log.open("rb") as file:
        for _ in range(copies):
            if file.read(len(text)) != text:
                raise WrongResultError(f"{log} shows other bytes than were written")


def _reading(mount: Mount, sample: Sample, codec: Codec, shape: str, copies: int, *, readers: int) -> Case:
    size = copies * len(sample.text)
    contents = [batch[HEADER_SIZE:] for batch in sample.batches[codec]]

    def together(codec: Codec = codec) -> float:
        logs = [mount.path / codec.label / str(number) / "log" for number in range(readers)]
        started = time.perf_counter()
        with ThreadPoolExecutor(readers) as pool:
            list(pool.map(lambda log: read_through(log, MIB, size), logs))
        return readers * size / 1e6 / (time.perf_counter() - started)

    def inflate_all(_: int = 0) -> None:
        for content in contents:
            inflate(codec, content)

    def library() -> float:
        started = time.perf_counter()
        inflate_all()
        return len(sample.text) / 1e6 / (time.perf_counter() - started)

    def in_threads() -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(readers) as pool:
            list(pool.map(inflate_all, range(readers)))
        return readers * len(sample.text) / 1e6 / (time.perf_counter() - started)

    threads = (Side(THREADS, in_threads),) if readers > 1 else ()
    name = f"read {codec.label}, {shape}" + (f", {readers} readers" if readers > 1 else "")
    return Case(
        name=name,
        unit=units.MEGABYTES_A_SECOND,
        sides=(
            Side(OURS, together),
            Side(LIBRARY, library),
            *threads,
            Side(LEAST, lambda: _one_after_the_other(library(), together(Codec.NONE))),
        ),
        goals=(
            Goal(of=LIBRARY, target=0.8 if readers == 1 else 1.4, floor=FLOORS[codec]),
            Goal(of=LEAST),
            *(Goal(side=side.name, of=LIBRARY) for side in threads),
        ),
        max_rounds=MAX_ROUNDS,
    )


def _one_after_the_other(*speeds: float) -> float:
    return 1 / sum(1 / speed for speed in speeds)


def _appending(mount: Mount, text: bytes, codec: Codec) -> Case:
    piece = 128 * KIB
    log = _new_topic(mount.path / codec.label, codec.label)
    uncompressed = _new_topic(mount.path / f"{codec.label}-uncompressed", "uncompressed")

    def ours(log: Path = log) -> float:
        return len(text) / 1e6 / append_pieces(log, memoryview(text), piece)

    def library() -> float:
        started = time.perf_counter()
        for at in range(0, len(text), piece):
            deflate(codec, text[at : at + piece])
        return len(text) / 1e6 / (time.perf_counter() - started)

    return Case(
        name=f"append {codec.label}, 128 KiB writes",
        unit=units.MEGABYTES_A_SECOND,
        sides=(
            Side(OURS, ours),
            Side(LIBRARY, library),
            Side(LEAST, lambda: _one_after_the_other(library(), ours(uncompressed))),
        ),
        goals=(Goal(of=LIBRARY, target=0.8, floor=0.19), Goal(of=LEAST)),
        max_rounds=MAX_ROUNDS,
    )


def _new_topic(topic: Path, codec: str) -> Path:
    """Create a topic with one partition that uses a codec, and return the path of the partition's log."""
    topic.mkdir()
    (topic / "config").write_text(f"compression.type={codec}\n")
    return topic / "0" / "log"


BENCHMARK = Benchmark(
    name="compressed",
    question="How fast are compressed topics, compared with their codecs?",
    cases=cases,
    logarithmic=True,
)
