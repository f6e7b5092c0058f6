"""Random changes of corpus inputs, for builds of the codec whose coverage a fuzzer cannot see."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.targets import MAX_INPUT_BYTES, read_as_batches

CORPUS = Path(__file__).parent / "corpus"


def read_changes(count: int) -> None:
    """Read the corpus and `count` changed inputs. Each run makes the same changes."""
    random = Random(20_260_823)
    inputs = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    for data in inputs:
        read_as_batches(data)
    for _ in range(count):
        read_as_batches(changed(random, inputs))


def changed(random: Random, inputs: list[bytes]) -> bytes:
    """Return one of `inputs` with up to six random changes, such as flipped bits, or removed or inserted bytes."""
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
