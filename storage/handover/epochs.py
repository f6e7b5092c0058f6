"""Leader epochs under another leader.

A broker that has led a partition in epoch 3 must not find batches of epoch 7 there: consumers remember the highest
epoch they saw and would take what the broker says for outdated. Batches may be given a lower epoch in place, for it
stands outside their checksum (kafka-storage.md#batch-header, kafka-storage.md#moving-partitions).
"""

from __future__ import annotations

from struct import Struct

from storage.checkpoints.leader_epochs import Entries, EpochEntry
from storage.codec.headers import CURRENT_MAGIC, Batches

LEADER_EPOCH_POSITION = 12
"""In a batch of format 2; the older formats have no epoch."""
_EPOCH = Struct(">i")


def lower_epochs(entries: Entries, highest: int) -> Entries:
    """Give `entries` with no epoch above `highest`; of those that become equal the first stays."""
    lowered: list[EpochEntry] = []
    for entry in entries:
        epoch = min(entry.epoch, highest)
        if not lowered or lowered[-1].epoch < epoch:
            lowered.append(EpochEntry(epoch, entry.start_offset))
    return tuple(lowered)


def lower_batches(data: bytes, batches: Batches, highest: int) -> bytes | bytearray:
    """Give the whole batches at the front of `data` with no leader epoch above `highest`."""
    high = [
        batch.position for batch in batches if batch.magic == CURRENT_MAGIC and batch.leader_epoch > highest
    ]
    if not high:
        return data[: batches.stop]
    lowered = bytearray(data[: batches.stop])
    for position in high:
        _EPOCH.pack_into(lowered, position + LEADER_EPOCH_POSITION, highest)
    return lowered
