"""A takeover: how copied logs are checked."""

from __future__ import annotations

import pytest

from tests.doubles.handover import DATA, LOG_DIR, contents, numbered, prepared_disk, taken
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk import names
from topicfs.storage.errors import StorageError

pytestmark = pytest.mark.slow


def test_copied_logs_are_checked_despite_a_clean_mark() -> None:
    """A data directory's clean-shutdown mark covers only its own logs, so copied logs are checked."""
    disk, records = prepared_disk(LOG_DIR)
    disk.unlink(LOG_DIR / names.CLEAN_SHUTDOWN)
    disk.unlink(LOG_DIR / names.RECOVERY_POINTS)
    sealed = LOG_DIR / "orders-0" / "00000000000000000000.log"
    last = scan(disk.read_bytes(sealed))[-1]
    disk.write_bytes(sealed, disk.read_bytes(sealed)[:-1] + b"?")
    assert disk.exists(DATA / names.CLEAN_SHUTDOWN)
    taken(disk)
    left = [record for record in records["orders", 0] if record.offset < last.base_offset]
    assert records | {("orders", 0): left} == contents(disk, DATA)


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_a_takeover_of_a_torn_tail_can_be_repeated(damage: str) -> None:
    """A repeated takeover accepts a copy that ends where the first takeover truncated it, but no shorter copy."""
    disk, records = prepared_disk(LOG_DIR)
    disk.unlink(LOG_DIR / names.CLEAN_SHUTDOWN)
    disk.unlink(LOG_DIR / names.RECOVERY_POINTS)
    path = max(
        LOG_DIR / "orders-0" / entry.name
        for entry in disk.list_directory(LOG_DIR / "orders-0")
        if entry.name.endswith(".log")
    )
    torn = bytes(numbered(16, 4))
    torn = torn[:-20] if damage == "torn" else torn[:-1] + b"?"
    disk.write_bytes(path, disk.read_bytes(path) + (16).to_bytes(8) + torn[8:])
    for _ in range(2):
        taken(disk)
        assert records == contents(disk, DATA)
    target = DATA / "orders-0" / path.name
    disk.write_bytes(target, disk.read_bytes(target)[: -len(numbered(12, 4))])
    with pytest.raises(StorageError, match="/data/orders-0: has other records"):
        taken(disk)
