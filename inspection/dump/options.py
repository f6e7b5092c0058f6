"""The options of a dump."""

from __future__ import annotations

from dataclasses import dataclass

from topicfs.inspection.dump.decoders import RecordDecoder

UNLIMITED_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """kafka-dump-log's flags, by its names."""

    print_data_log: bool = False
    """Keys and values of every record; implies `deep_iteration`."""
    decoder: RecordDecoder | None = None
    """Keys and values as the records of a coordinator's topic; implies `print_data_log`."""
    deep_iteration: bool = False
    """A line a record."""
    skip_record_metadata: bool = False
    """True if only a record's key and value are printed."""
    verify_index_only: bool = False
    """Compare indexes with their segment, print no entry."""
    index_sanity_check: bool = False
    """Only the check that a broker makes of an index at start-up."""
    max_bytes: int = UNLIMITED_BYTES
    """Bytes of a segment that are read at most."""
    max_message_size: int = 5 * 1024 * 1024
    """Largest batch that an index entry may lead to, bytes."""

    @property
    def records(self) -> bool:
        return self.deep_iteration or self.contents

    @property
    def contents(self) -> bool:
        return self.print_data_log or self.decoder is not None
