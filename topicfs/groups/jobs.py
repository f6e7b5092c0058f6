"""Records of a queue as jobs, taken one by one and then acknowledged, through a mount or an engine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from topicfs.coordination.engine import Engine
from topicfs.coordination.share_groups import Acknowledgement, RecordName
from topicfs.fusefs.forms import JSON
from topicfs.lines import say
from topicfs.storage.messages import reason_of
from topicfs.storage.model import TopicPartition

LEASE_SETTING = "share.record.lock.duration.ms"
JOB_READ_BYTES = 1 << 20
"""Maximum bytes that one read returns of a record. A larger record takes several reads."""


@dataclass(frozen=True, slots=True)
class Job:
    record_name: RecordName
    value: bytes
    shown: Mapping[str, Any]
    """The record in the fields of `take.json`."""

    def environment(self) -> dict[str, str]:
        """Return a command's environment variables for the record. Leaves out a key that no environment can hold."""
        told = {
            "TOPICFS_TOPIC": self.record_name.topic,
            "TOPICFS_PARTITION": str(self.record_name.partition),
            "TOPICFS_OFFSET": str(self.record_name.offset),
            "TOPICFS_TIMESTAMP": str(self.shown.get("ts", -1)),
            "TOPICFS_HEADERS": json.dumps(self.shown.get("headers", [])),
        }
        key = self.shown.get("key")
        if isinstance(key, str):
            told["TOPICFS_KEY"] = key
        return {name: value for name, value in told.items() if "\0" not in value}


class JobSource(Protocol):
    """One session of a queue."""

    def take(self) -> Job | None:
        """Take the next record. If there is no record, wait for one; if the session does not wait, return None."""

    def renew(self, job: Job) -> float:
        """Renew the record's lease; return its length in seconds."""

    def acknowledge(self, job: Job, word: Acknowledgement) -> bool:
        """Acknowledge a record; return whether the queue has rejected it. The acknowledgement is durable on return."""

    def close(self) -> None:
        """Release all held records."""


class MountJobs:
    """Jobs through the `take` file of a mount."""

    def __init__(self, mountpoint: Path, group: str, topic: str, *, waits: bool) -> None:
        self._mountpoint = mountpoint
        self._group = mountpoint / "@queues" / group
        flags = os.O_RDWR if waits else os.O_RDWR | os.O_NONBLOCK
        self._descriptor = os.open(self._group / topic / "take.json", flags)

    def take(self) -> Job | None:
        while True:
            line = b""
            while not line.endswith(b"\n"):
                try:
                    line += os.read(self._descriptor, JOB_READ_BYTES)
                except BlockingIOError:
                    return None
            shown = json.loads(line)
            record_name = RecordName(shown["topic"], shown["partition"], shown["offset"])
            record = (
                self._mountpoint / record_name.topic / str(record_name.partition) / str(record_name.offset)
            )
            try:
                return Job(record_name, record.read_bytes(), shown)
            except OSError as error:
                # The record cannot be read or was deleted: the queue rejects it after some deliveries.
                say(f"topicfs: {record_name}: {reason_of(error)}: given back", error=True)
                self.acknowledge(Job(record_name, b"", shown), Acknowledgement.RELEASE)

    def renew(self, job: Job) -> float:
        self._acknowledge(job, Acknowledgement.RENEW)
        lines = (self._group / "config").read_text().splitlines()
        settings = dict(line.removeprefix("# ").partition("=")[::2] for line in lines)
        return int(settings[LEASE_SETTING]) / 1000

    def acknowledge(self, job: Job, word: Acknowledgement) -> bool:
        self._acknowledge(job, word)
        if word is not Acknowledgement.RELEASE:
            return word is Acknowledgement.REJECT
        return (self._group / job.record_name.topic / "rejected" / str(job.record_name)).exists()

    def _acknowledge(self, job: Job, word: Acknowledgement) -> None:
        os.write(self._descriptor, f"{word.name.lower()} {job.record_name}\n".encode())

    def close(self) -> None:
        os.close(self._descriptor)


class EngineJobs:
    def __init__(self, engine: Engine, group: str, topic: str, *, waits: bool) -> None:
        self._group = engine.share_groups.group(group)
        self._session = self._group.open([topic], holder=f"topicfs {os.getpid()}")
        self._news = threading.Event()
        self._session.listen(self._news.set)
        self._waits = waits

    def take(self) -> Job | None:
        while True:
            self._news.clear()
            leased = self._session.take()
            if leased is not None:
                break
            if not self._waits:
                return None
            self._news.wait()
        record_name = leased.record_name
        partition = TopicPartition(record_name.topic, record_name.partition)
        line = JSON.render(leased.columns, partition, record_name.offset, record_name.offset + 1)
        return Job(record_name, leased.record.value or b"", json.loads(line))

    def renew(self, job: Job) -> float:
        self._session.acknowledge({job.record_name: Acknowledgement.RENEW})
        return self._group.settings.share_record_lock_duration_ms / 1000

    def acknowledge(self, job: Job, word: Acknowledgement) -> bool:
        self._session.acknowledge({job.record_name: word})
        if word is not Acknowledgement.RELEASE:
            return word is Acknowledgement.REJECT
        return any(one.record_name == job.record_name for one in self._group.rejected(job.record_name.topic))

    def close(self) -> None:
        self._session.close()
