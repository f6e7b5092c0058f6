"""Tests of variants of compressed content that Kafka's readers accept or refuse."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testing.broker.libraries import Java
from tests.doubles.codec_variants import DEPENDS_ON_JAVA, RECORDS, REFUSED, VARIANTS, batch_of

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).with_name("ReadBatches.java")
TIMEOUT_SECONDS = 300


def test_kafkas_readers_accept_what_our_readers_accept(java: Java, tmp_path: Path):
    """Our readers accept exactly what Kafka's consumer and broker accept, with the libraries in `pom.xml`."""
    names = {}
    for number, (codec, name) in enumerate(VARIANTS.keys() - DEPENDS_ON_JAVA):
        file = tmp_path / str(number)
        file.write_bytes(batch_of(codec, VARIANTS[codec, name]))
        names[str(file)] = codec, name
    ran = subprocess.run(
        [java.program, "-cp", f"{java.jars}/*", str(PROGRAM), *names],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    said = {}
    for line in ran.stdout.splitlines():
        reader, file, verdict, count, _ = line.split("\t", 4)
        said[names[file], reader] = verdict == "read" and int(count) == len(RECORDS)
    expected = {
        ((codec, name), reader): name not in REFUSED[codec]
        for codec, name in names.values()
        for reader in ("consumer", "broker")
    }
    assert expected == said
