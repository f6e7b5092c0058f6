"""The log of a compacted topic, with short ways to fill and clean it."""

from __future__ import annotations

from tests.doubles.logs import LogOnDisk
from tests.doubles.mortal_disk import dies
from tests.doubles.records import keyed, marker, read_records
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.model import Isolation, Timestamp
from topicfs.storage.producers.append import Origin

COMPACT = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0}


def keyed_batch(*pairs, **stamp):
    return encode(keyed(*pairs), BatchStamp(**stamp))


class CompactedLog(LogOnDisk):
    """The log of a compacted topic; `checkpoint` is the offset up to which the log has been cleaned."""

    def __init__(self, **settings):
        super().__init__(**(COMPACT | settings))
        self.checkpoint = None

    def put(self, *pairs, **stamp):
        return self.log.append(keyed_batch(*pairs, **stamp))

    def put_record(self, record):
        return self.log.append(encode([record]))

    def fill(self, keys, rounds, *, per_segment=5):
        """Write every key once per round, with the number of the write as value; roll after `per_segment` writes."""
        written = 0
        for _ in range(rounds):
            for key in range(keys):
                self.put((b"k%d" % key, b"%d" % written))
                written += 1
                if written % per_segment == 0:
                    self.log.appender.roll()
        self.log.appender.roll()

    def end_transaction(self, *, commit, pid=7, epoch=0):
        """Append the marker that ends a producer's transaction."""
        self.log.append(marker(commit=commit, pid=pid, epoch=epoch), origin=Origin.COORDINATOR)

    def batches(self):
        """Return the last offset and the number of records of every batch, control batches included."""
        offset, found = self.log.log_start_offset, []
        while len(
            (fetched := self.log.read(offset, max_bytes=9999, isolation=Isolation.READ_UNCOMMITTED)).data
        ):
            for columns in decode(fetched.data, control=True):
                found += [(header.last_offset, header.record_count) for header in columns.batches]
            offset = fetched.next_offset
        return found

    def plan(self):
        return plan(cleaning_params(self.log, self.checkpoint, Timestamp(self.clock.now)))

    def clean(self, **settings):
        done = clean(self.log, self.plan(), now=Timestamp(self.clock.now), **settings)
        self.checkpoint = done.end_offset
        return done

    def clean_all(self, *, after_ms=0):
        """Roll, advance the clock by `after_ms`, and then clean everything from the log start on."""
        if self.log.chain.active.size:
            self.log.appender.roll()
        self.clock.advance(after_ms)
        self.checkpoint = None
        self.clean()

    def dies(self, run, steps):
        """Call `run` on a mortal disk that stops after `steps` changes. Return False if `run` ended before that."""
        try:
            return dies(self.disk, run, steps)
        except PartitionOfflineError:  # Raised if the disk stops while files are renamed.
            return True

    def table(self):
        """Return the newest value of each key, without the deleted keys."""
        return {r.key: r.value for r in self.records() if r.value is not None}

    def records(self):
        return read_records(self.log, max_bytes=300, isolation=Isolation.READ_COMMITTED)
