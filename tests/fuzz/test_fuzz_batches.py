"""Any bytes as batches: the corpus, many changes of it, and a short coverage-guided run."""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import MAX_INPUT_BYTES, read_as_batches

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
CHANGED_INPUTS = 20_000
GUIDED_RUNS = 4000
GUIDED_TIMEOUT_SECONDS = 280
MEMORY_BYTES = 2 * 1024**3
"""Of address space: what a content of the largest size takes twice, and the interpreter with its libraries."""


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_every_input_of_the_corpus_is_read(path):
    """Each was found once, or leads deep inside; this build and the plain sources read it without a fault."""
    read_as_batches(path.read_bytes())


def test_the_seeds_are_in_the_corpus():
    """They come from the writers as these are now: another byte in a format shows here."""
    uncompressed = {f"seed-{name}": content for name, content in seeds() if "-" not in name}
    assert uncompressed == {name: (CORPUS / name).read_bytes() for name in uncompressed}
    assert {f"seed-{name}" for name, _ in seeds()} <= {path.name for path in CORPUS.iterdir()}


def changed(random: Random, inputs: list[bytes]) -> bytes:
    """One of the inputs with a few bytes flipped, cut, repeated, or spliced with another's."""
    data = bytearray(random.choice(inputs))
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1 if at < len(data):
                data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del data[at : at + random.randint(1, 8)]
            case 3:
                data[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                other = random.choice(inputs)
                data[at:] = other[random.randrange(len(other)) :]
    return bytes(data[:MAX_INPUT_BYTES])


def read_changes() -> None:
    """The same changes each time; called in a process of its own, whose memory is bounded."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    random = Random(20_260_823)
    inputs = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    for _ in range(CHANGED_INPUTS):
        read_as_batches(changed(random, inputs))


@pytest.mark.slow
def test_changes_of_the_corpus_are_read_within_bounds():
    """No crash, no hang, no memory beyond the bound, over this build: what a fuzzer can do without seeing coverage."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.fuzz.test_fuzz_batches import read_changes; read_changes()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUIDED_TIMEOUT_SECONDS,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not made for this platform; the corpus ran above",
)
def test_a_short_guided_run_finds_nothing(tmp_path):
    """A few thousand inputs towards new branches of the plain sources; `tests/fuzz/__main__.py` says how to run longer."""
    # By a shell that forks: a program begins with the peak of memory of the process that starts it, and a test run is large.
    done = subprocess.run(
        [
            *("sh", "-c", '"$@"; exit $?', "sh"),
            sys.executable,
            *("-m", "tests.fuzz", f"-runs={GUIDED_RUNS}", "-seed=1"),
            *(f"-artifact_prefix={tmp_path}/", str(tmp_path), str(CORPUS)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUIDED_TIMEOUT_SECONDS,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    assert f"Done {GUIDED_RUNS} runs" in done.stderr
