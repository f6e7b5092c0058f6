"""`python -m tests.fuzz [FLAGS] [CORPUS…]`: the coverage-guided run over the codec's plain sources.

Without flags it goes on until something is found; new inputs go into the first folder named. A long run:

    mkdir -p build/fuzz && python -m tests.fuzz -max_total_time=3600 build/fuzz tests/fuzz/corpus

FLAGS are libFuzzer's. What is found is written to a `crash-…`, `timeout-…` or `oom-…` file here; put it into
`tests/fuzz/corpus`, and both builds are held to it from then on. The codec's sources run uncompiled, for the fuzzer sees
how far it came in Python alone; the compiled build reads the same corpus, and changes of it, in the tests.
"""

from __future__ import annotations

import sys

import atheris

from tests.uncompiled import SourceFinder

SECONDS_AN_INPUT = 10
MEMORY_MIB = 1024
"""A batch's content is bounded (256 MiB), and may be there twice while it is put together."""


def main() -> None:
    """Instrument the codec and run."""
    sys.meta_path.insert(0, SourceFinder())
    with atheris.instrument_imports(include=["storage.codec", "tests.fuzz.targets"]):
        from tests.fuzz.targets import MAX_INPUT_BYTES, read_as_batches  # noqa: PLC0415 -- instrumented here
    limits = [f"-max_len={MAX_INPUT_BYTES}", f"-timeout={SECONDS_AN_INPUT}", f"-rss_limit_mb={MEMORY_MIB}"]
    atheris.Setup([sys.argv[0], *limits, *sys.argv[1:]], read_as_batches)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
