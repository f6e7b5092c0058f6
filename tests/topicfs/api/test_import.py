"""Tests of the modules that `import topicfs` imports, and of mypy's errors in programs that use the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import topicfs

PROGRAM = """
from datetime import UTC, datetime

import topicfs


def main() -> None:
    with topicfs.open("data") as topics:
        orders: topicfs.Topic = topics.create("orders", partitions=4, config={"retention.ms": "-1"})
        appended = orders.append(b"one", key=b"k", headers=[("h", b"v")], timestamp=datetime.now(UTC))
        offset: int | None = appended.offset
        orders[0].append_many([topicfs.Record(b"two", b"k"), b"three"], durable=True)
        for record in orders[0].records(start=42, stop=100):
            value: bytes | None = record.value
            headers: tuple[tuple[str, bytes | None], ...] = record.headers
            print(offset, value, headers, record.offset + record.timestamp)
        print(orders.arrow(start="@yesterday").read_all())
        with topics.group("billing").join("orders") as member:
            for record in member:
                member.commit()
        position: int = topics.group("billing").positions()[topicfs.TopicPartition("orders", 0)]
        with topicfs.serve("data", settings={"num.partitions": 3}) as server:
            address: str = server.bootstrap_servers
            print(address)
        try:
            topics.delete("orders")
        except topicfs.errors.TopicNotEmptyError as error:
            print(position, error.records)
        except (topicfs.errors.PlaceError, topicfs.errors.AddressError):
            pass
"""
WRONG = {
    'topicfs.opens("data")': 'Module has no attribute "opens"',
    "topicfs.open(5)": 'incompatible type "int"',
    'topicfs.open("data")["orders"].append("text")': 'incompatible type "str"',
    'topicfs.open("data").creat("orders")': 'has no attribute "creat"',
    "topicfs.errors.NoSuchError": 'has no attribute "NoSuchError"',
}


def test_importing_the_package_imports_nothing_else():
    """`import topicfs` imports no other module of the package."""
    command = "import sys, topicfs; print(sorted(name for name in sys.modules if name.startswith('topicfs')))"
    ran = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True, text=True)
    assert "['topicfs']\n" == ran.stdout


def test_a_program_needs_no_terminal_and_no_event_loop():
    """The API imports no library that is needed only by the command, the mount, Spark or Arrow."""
    command = "import sys, topicfs; topicfs.open; topicfs.Member; topicfs.serve; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True, text=True)
    assert set() == {"click", "rich", "trio", "pyfuse3", "pyspark", "pyarrow"} & set(ran.stdout.split())


def test_all_public_names_are_there():
    """All names of `__all__` exist."""
    assert set() == {name for name in topicfs.__all__ if not hasattr(topicfs, name)}
    assert issubclass(topicfs.errors.UnknownTopicError, topicfs.errors.StorageError)
    assert not hasattr(topicfs, "opens")


@pytest.mark.slow
def test_a_program_is_checked_by_mypy(tmp_path):
    """mypy --strict accepts a correct program, and reports each wrong line."""
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("import topicfs\n" + "".join(f"{line}\n" for line in WRONG))
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "right.py", "wrong.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    found = [line for line in ran.stdout.splitlines() if ": error: " in line]
    assert [f"wrong.py:{number}" for number in range(2, len(WRONG) + 2)] == [
        line.partition(": error")[0] for line in found
    ]
    assert [] == [line for line, reason in zip(found, WRONG.values(), strict=True) if reason not in line]
    assert (Path(topicfs.__file__).parent / "py.typed").exists()
