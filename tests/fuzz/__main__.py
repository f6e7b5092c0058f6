"""`python -m tests.soak fuzz [FLAGS] [CORPUS…]`: a coverage-guided run of the codec's plain sources.

Without flags the command runs until it finds something, and writes new inputs to the first folder. A long run:

    mkdir -p build/fuzz && python -m tests.soak fuzz -max_total_time=3600 build/fuzz tests/fuzz/corpus

FLAGS are libFuzzer's; `-help=1` lists them. A finding is written to a file `crash-…`, `timeout-…` or `oom-…` in this
folder. Add the file to `tests/fuzz/corpus`, so that the tests read it with both builds. The run uses the codec's
uncompiled sources, because the fuzzer sees coverage only in Python. The tests read the same corpus, and changed
inputs of it, with the compiled build.

`python -m tests.soak fuzz requests [--seconds 600] [--seed 0] [--mount]`: write hostile batches with valid checksums
to a mount and read them. Each request may use 300 MB of memory and one second of CPU time, at most a quarter of it in
the event loop (`tests/fuzz/requests.py`). The mount has no kernel, or a real one with `--mount`. The command prints
each request that exceeds a limit, with the options that repeat it (`--seed N --seconds 1`), and then ends with status
1.

`python -m tests.fuzz changes [COUNT]` reads the corpus and COUNT changed inputs of it with the compiled codec; `make
sanitize` runs it with a codec compiled with AddressSanitizer and UBSan (`scripts/sanitize.sh`).

`python -m tests.fuzz frames [COUNT] [--seed 0]` sends COUNT changed frames to a listener, before and after
authentication (`tests/fuzz/frames.py`). Add an input that fails to `tests/fuzz/frame_corpus`.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.uncompiled import SourceFinder

SECONDS_AN_INPUT = 10
MEMORY_MIB = 1024
"""Memory limit of the run in MiB: a batch's content has at most 256 MiB, and may exist twice while it is assembled."""


@click.command()
@click.option("--seconds", default=600.0, help="How long the rounds run.", show_default=True)
@click.option(
    "--seed", default=0, help="Seed of the first round. Each further round adds 1.", show_default=True
)
@click.option("--mount", is_flag=True, help="Use a real mount.")
def requests(*, seconds: float, seed: int, mount: bool) -> None:
    """Write hostile batches to a mount, read them, and measure the cost of each request."""
    from tests.fuzz.requests import run_rounds

    tally = run_rounds(itertools.count(seed), seconds=seconds, on_a_mount=mount)
    for line in tally.exceeding:
        click.echo(line)
    click.echo(
        f"{tally.requests} requests from seed {seed} on, {len(tally.exceeding)} beyond their bounds; "
        f"slowest {tally.slowest:.2f} s, measuring {tally.slowest_measuring:.2f} s, "
        f"in the event loop {tally.longest_loop:.2f} s, largest {tally.largest / 1e6:.0f} MB"
    )
    sys.exit(bool(tally.exceeding))


@click.command()
@click.argument("count", default=200_000)
def changes(count: int) -> None:
    """Read the corpus and COUNT randomly changed inputs of it."""
    from tests.fuzz.changes import read_changes

    read_changes(count)
    click.echo(f"the corpus and {count:,} changes of it were read")


@click.command()
@click.argument("count", default=50_000)
@click.option("--seed", default=0, help="Another seed changes the frames in other ways.", show_default=True)
def frames(count: int, seed: int) -> None:
    """Send requests to a listener: valid ones, those of the corpus, and COUNT randomly changed requests."""
    from tests.fuzz.frames import read_frames

    with TemporaryDirectory() as folder:
        read_frames(Path(folder), count, seed)
    click.echo(f"the corpus and {count:,} changes of it were answered or refused")


def main() -> None:
    """Instrument the codec and start the fuzzer."""
    import atheris

    sys.meta_path.insert(0, SourceFinder())
    with atheris.instrument_imports(include=["topicfs.storage.codec", "tests.fuzz.targets"]):
        from tests.fuzz.targets import MAX_INPUT_BYTES, read_as_batches
    limits = [f"-max_len={MAX_INPUT_BYTES}", f"-timeout={SECONDS_AN_INPUT}", f"-rss_limit_mb={MEMORY_MIB}"]
    atheris.Setup([sys.argv[0], *limits, *sys.argv[1:]], read_as_batches)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["requests"]:
        requests(sys.argv[2:])
    if sys.argv[1:2] == ["changes"]:
        changes(sys.argv[2:])
    if sys.argv[1:2] == ["frames"]:
        frames(sys.argv[2:])
    if {"-h", "--help"} & {*sys.argv[1:]}:  # libFuzzer would ignore these options and start a run.
        click.echo(__doc__)
        sys.exit()
    main()
