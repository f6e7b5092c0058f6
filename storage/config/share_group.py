"""A share group's settings: the one table of their names, defaults and meanings. Names and bounds are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from topicfs.storage.config.group import EARLIEST, FROM_THE_EARLIEST, LATEST, OffsetReset, OffsetResetChoice
from topicfs.storage.config.kinds import OneOf, WholeNumber
from topicfs.storage.config.setting import Setting, read_overrides, read_table, row


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """The settings of a share group. Immutable: a change makes a new value."""

    # fmt: off
    share_record_lock_duration_ms: Annotated[int, row("Length of a lease: a member that neither acknowledges nor "
        "renews a record in this time loses it to another member.",
        WholeNumber(1000, 3_600_000), "ms")] = 30_000
    share_delivery_count_limit: Annotated[int, row("How often a record is delivered before it is given up and listed "
        "in rejected.",
        WholeNumber(2, 10), "")] = 5
    share_partition_max_record_locks: Annotated[int, row("Most records of a partition from the first unfinished one "
        "to the last delivered one.",
        WholeNumber(100, 10_000), "")] = 2000
    share_auto_offset_reset: Annotated[OffsetReset, row("Where the group begins in a partition that is new to it: at "
        "the earliest record (a broker's groups: at the latest), at the latest, or at the first record of a "
        "given age.",
        OffsetResetChoice((EARLIEST, LATEST)), "")] = FROM_THE_EARLIEST
    share_isolation_level: Annotated[str, row("With read_committed, the default here, records of aborted "
        "transactions are skipped, and undecided ones are waited for; a broker's default is read_uncommitted.",
        OneOf(("read_committed", "read_uncommitted")), "")] = "read_committed"
    # fmt: on

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str]) -> ShareGroupSettings:
        """Return the defaults with `overrides` applied. Raises InvalidConfigError for an unknown name or bad value."""
        return replace(
            cls(), **read_overrides(SHARE_GROUP_SETTINGS, overrides, what="setting of share groups")
        )


SHARE_GROUP_SETTINGS: Mapping[str, Setting] = read_table(ShareGroupSettings())
"""Every setting by its name, in the table's order."""
