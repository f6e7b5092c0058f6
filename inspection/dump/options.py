"""The options of a dump."""

from __future__ import annotations

from dataclasses import dataclass

from topicfs.inspection.dump.decoders import RecordDecoder

UNLIMITED_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of kafka-dump-log, under the same names."""

    print_data_log: bool = False
    """Print the key and value of each record; implies `deep_iteration`."""
    decoder: RecordDecoder | None = None
    """Decode keys and values as records of a coordinator's topic; implies `print_data_log`."""
    deep_iteration: bool = False
    """Print a line per record, not only per batch."""
    skip_record_metadata: bool = False
    """Do not print a record's metadata, only its key and value."""
    verify_index_only: bool = False
    """Only compare indexes with their segment, without printing entries."""
    index_sanity_check: bool = False
    """Only do the check that a broker does of each index when it starts."""
    max_bytes: int = UNLIMITED_BYTES
    """Maximum number of bytes read from a segment."""
    max_message_size: int = 5 * 1024 * 1024
    """Largest batch, in bytes, that an index entry may point to."""

    @property
    def records(self) -> bool:
        return self.deep_iteration or self.contents

    @property
    def contents(self) -> bool:
        return self.print_data_log or self.decoder is not None
