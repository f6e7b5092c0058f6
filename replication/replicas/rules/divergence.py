"""The offset up to which a follower's log agrees with its leader's.

    leader     epoch 0 ──────────┬ epoch 2 ───
                                 │ 40
    follower   epoch 0 ──────────┴──── epoch 1 ──
                                 40      55          cut at 40: the leader has no epoch 1, and its epoch 0 ended there

A follower says the epoch of its last batch. Where the leader's log of that epoch ended before, or where it does not know
the epoch, the follower cuts its log and asks again (kafka-storage.md#truncation; KIP-101, KIP-279, KIP-595).
"""

from __future__ import annotations

from topicfs.storage.checkpoints.leader_epochs import Entries, EpochEnd, end_offset_for
from topicfs.storage.model import NO_LEADER_EPOCH, Offset


def diverging(leader: Entries, leader_end: Offset, epoch: int, end_offset: Offset) -> EpochEnd | None:
    """Return what a leader answers to a follower that ends there, in that epoch; None where the follower may go on.

    The end of the largest epoch that both can know, in the leader's log.
    """
    if epoch == NO_LEADER_EPOCH or not leader:
        return None
    end = end_offset_for(leader, epoch, leader_end)
    if (
        end is None
    ):  # Nobody has led in it since: the follower's last leader was lost before anybody followed.
        return EpochEnd(leader[-1].epoch, leader_end)
    return end if end.epoch < epoch or end.end_offset < end_offset else None


def truncation_point(answer: EpochEnd, follower: Entries, follower_end: Offset) -> Offset:
    """Return where the follower cuts its log: the leader's end of the epoch, or its own, or its log's."""
    own = end_offset_for(follower, answer.epoch, follower_end)
    return min(answer.end_offset, own.end_offset if own else follower_end, follower_end)
