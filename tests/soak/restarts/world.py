"""Replicated data directories over many lives; a life is one start and end of an engine."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random

from tests.doubles.manual_clock import ManualClock
from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.mortal_disk import Killed
from tests.soak.restarts import expectation, places
from topicfs.main import run
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import StorageError
from topicfs.storage.manager import Machine
from topicfs.storage.model import Offset

MAX_REFUSALS = 8
"""Maximum number of refusals in one start: each directory may be damaged, missing and forked."""
STEPS = 25
"""Maximum number of steps in a life."""
FARTHEST_OPENING, FARTHEST = 15.0, 60.0
"""Mean number of disk writes before a kill: while a process starts, and while it runs."""


class World:
    """The data directories, and the records that the directories must have."""

    def __init__(
        self, base: Path, seed: int, counts: Counter[str], log: list[str], *, segments: bool
    ) -> None:
        """Create the directories and the topics; without `segments` only small files are damaged."""
        chance = Random(seed)
        number = chance.choice((2, 2, 3))
        self.places = [places.TestedDirectory(base / f"d{one}") for one in range(1, number + 1)]
        self.base, self.counts, self.log, self._segments = base, counts, log, segments
        self.clock = ManualClock()
        self.config = EngineConfig(
            recovery_threads=1,
            replication_factor=number,
            topic_defaults=TopicConfig(segment_index_bytes=1_200, internal_segment_bytes=500),
        )
        self.expected = expectation.Expectation()
        self.number = 0
        self.saved: set[bytes] = set()
        self.chance = chance
        engine = self._start(self.places, dies=False)
        assert engine is not None
        engine.create_topic("plain", partitions=len(places.PLAIN))
        engine.create_topic("retained", overrides={"retention.bytes": "1500"})
        self._append(engine)
        self._close(engine)

    # Lives.

    def live(self, chance: Random) -> None:
        """Prepare the directories, start, work, and close or be killed; compare all the time. Raises AssertionError."""
        self.chance = chance
        named = self._prepare()
        before = self._disks()
        self.expected.forget_destroyed(before)
        engine = self._start(named, dies=True)
        if engine is not None and _has_topics(engine):
            self._work(engine)
        elif engine is not None:  # A new disk without topics runs alone.
            self._close(engine)
        self.expected.compare_disks(before, self._disks(), self.saved)

    def end(self) -> None:
        """Bring all directories back and let all replicas catch up; then no record may be missing.

        Raises AssertionError.
        """
        self.chance = Random(0)
        self._restore(self.places)
        before = self._disks()
        self.expected.forget_destroyed(before)
        engine = self._start(self.places, dies=False)
        assert engine is not None
        if not _has_topics(engine):
            assert self.expected.replaced
            self._close(engine)
            return
        if self.expected.replaced:
            self._elect_unclean(engine)
        started = self._disks()
        for _ in range(4):
            self._maintain(engine)
            engine.catch_up()
        for partition in places.PARTITIONS:
            status = engine.replicated(partition).status()
            for one in status.replicas:
                # If no directory has a whole replica, copying stops at the missing records.
                assert one.in_sync or (one.reason and status.missing), (
                    f"{partition}: {one}; {status.missing}; {engine.warnings}"
                )
        self.expected.compare(engine)
        self._compare_start(engine, started, settled=True)
        self._close(engine)
        self.expected.compare_disks(before, self._disks(), self.saved)

    def _prepare(self) -> list[places.TestedDirectory]:
        """Bring back, take away and damage directories; return those that the start names."""
        chance = self.chance
        for place in self.places:
            if chance.random() < 0.6:
                self._bring_back(place)
            if chance.random() < 0.5:
                self._note(*(f"repaired {one}" for one in place.repair()))
        present = chance.sample(self.places, chance.randint(1, len(self.places)))
        named = []
        for place in self.places:
            if place in present:
                self._bring_back(place)
                named.append(place)
            elif chance.random() < 0.5:
                place.take_away()
                named += [place] if chance.random() < 0.5 else []
        self._damage(present)
        self._note("named " + " ".join(f"{one.path.name}{'' if one.path.exists() else '?'}" for one in named))
        return named

    def _damage(self, present: Sequence[places.TestedDirectory]) -> None:
        """Sometimes damage files of directories, or throw away a disk."""
        chance = self.chance
        for place in present:
            if chance.random() < 0.15:
                self._note(place.damage_small_file(chance))
            if chance.random() < 0.08 and self._segments:
                self._note(place.damage_segment(chance))
        if len(present) > 1 and chance.random() < 0.04:
            present[0].replace_disk()
            self.expected.replaced = True
            self._note(f"replaced {present[0].path.name}")

    def _bring_back(self, place: places.TestedDirectory) -> None:
        if place.bring_back():
            self._note(f"{place.path.name}: the disk that was away is thrown away")
            self.expected.replaced = True
            self.expected.forget_destroyed(self._disks())

    def _elect_unclean(self, engine: ReplicatedEngine) -> None:
        """Elect a leader uncleanly, because disks were thrown away.

        A kill may have prevented an out-of-sync copy from recording that its leader had lost the beginning of its
        log.
        """
        paths = {replica_dir.number: replica_dir.path for replica_dir in engine._replica_dirs}
        for name in places.PARTITIONS:
            partition = engine.replicated(name)
            if partition.leader is None:
                self._note(f"{name}: unclean election")
                for number, log in engine.controller.logs(name).items():
                    self.expected.elected_unclean(
                        name, places.told_start(paths[number], name, log.log_start_offset)
                    )
                    engine.elect_unclean(name, str(number))
                    break

    def _work(self, engine: ReplicatedEngine) -> None:
        if self.chance.random() < 0.4:
            self.disk.steps_left = int(self.chance.expovariate(1 / FARTHEST))
        try:
            for _ in range(self.chance.randint(0, STEPS)):
                self._act(engine)
            if self.chance.random() < 0.7:
                self._close(engine)
                return
            self.disk.kill()
            self._note("killed")
        except (Killed, AssertionError) as error:
            self._note(f"killed at {_death_behind(error)}")
        self.counts["kills"] += 1
        self._die()

    def _act(self, engine: ReplicatedEngine) -> None:
        actions = (
            [self._append] * 8
            + [self._delete_records, self._maintain, self._catch_up, self._catch_up]
            + [self._fail, self._heal, self.expected.compare]
        )
        self.chance.choice(actions)(engine)

    # Starts.

    def _start(self, named: Sequence[places.TestedDirectory], *, dies: bool) -> ReplicatedEngine | None:
        """Open the directories, doing what refusals demand; return None if the process was killed."""
        left_out: set[Path] = set()
        self.named = named
        for _ in range(MAX_REFUSALS):
            self.disk = places.FailingDirectory(self.clock, self.chance)
            if dies and self.chance.random() < 0.15:
                self.disk.steps_left = int(self.chance.expovariate(1 / FARTHEST_OPENING))
            before = self._disks()
            forgot = {name for place in self.places for name in place.forgot}
            self.expected.told = {
                partition: {
                    place.path: places.told_start(place.path, partition, sys.maxsize) for place in self.places
                }
                for partition in places.PARTITIONS
                if str(partition) in forgot
            }
            try:
                engine = open_replicas(
                    [place.path for place in self.named],
                    config=self.config,
                    machine=Machine(files=self.disk, clock=self.clock, flushers=ManualFlusher),
                    left_out=sorted(left_out),
                    in_background=False,
                )
            except (Killed, AssertionError) as error:
                self._note(f"killed in the start at {_death_behind(error)}")
                self.counts["kills in starts"] += 1
                self._die()
                return None
            except (StorageError, OSError) as error:
                self._note(f"refused: {error}")
                self.counts[f"refused: {type(error).__name__}"] += 1
                self._do_as_told(str(error), self.named, left_out)
                continue
            self.disk.steps_left = None
            self.counts["starts"] += 1
            self._compare_start(engine, before)
            return engine
        raise AssertionError(f"refused {MAX_REFUSALS} times")

    def _compare_start(
        self, engine: ReplicatedEngine, before: expectation.Disks, *, settled: bool = False
    ) -> None:
        serving = [Path(one.path) for one in engine.directories() if one.offline is None]
        self._note(*(f"{one.path}: {one.offline}" for one in engine.directories() if one.offline is not None))
        self._note(f"serves in {' '.join(path.name for path in serving)}")
        for place in self.places:
            if place.path in serving:
                place.serves()
        if _has_topics(engine):
            there = [place.path for place in self.places if not place.away.exists()]
            serving = [path for path in serving if path in there]
            self.expected.compare_start(engine, before, serving, settled=settled)

    def _do_as_told(self, message: str, named: Sequence[places.TestedDirectory], left_out: set[Path]) -> None:
        """Do what a refusal demands. If it names no command, all present directories must be damaged.

        Raises AssertionError.
        """
        without = {Path(one) for one in re.findall(r"--without (\S+)", message)}
        if "topicfs replicas resolve" in message:
            self._resolve(shlex.split(message[message.index("topicfs replicas resolve") :])[1:])
        elif ": belongs to another set of replicas" in message and self.expected.replaced:
            # The new disks have started a separate set of replicas.
            place = next(one for one in named if message.startswith(f"{one.path}:"))
            place.replace_disk()
            self.expected.forget_destroyed(self._disks())
        elif "; name more, or give --replicas" in message:
            # A directory that lost `topicfs.replicas` and ran alone knows no other directory.
            self._restore(self.places)
            self.named = self.places
        elif "; move one of the two away" in message:
            # Both directories lost `topicfs.replicas`, and `--without OTHER` would leave out the wrong one.
            left_out |= {Path(one) for one in re.findall(r"is in (\S+) and in another", message)}
            self.named = [place for place in named if place.path not in left_out]
        elif without:
            assert not without <= left_out, f"the command that the refusal names does not help: {message}"
            left_out |= without
        else:
            there = [place for place in named if place.path.exists()]
            assert all(place.damaged for place in there), f"the refusal names no command: {message}"
            self._restore(named)

    def _resolve(self, words: list[str]) -> None:
        assert not self.disk.changes, f"{self.disk.changes} changes before a fork was refused"
        self.counts["resolved"] += 1
        before = self._disks()
        folder = self.base / f"saved{self.counts['resolved']}"
        where = words.index("--keep") + 1
        kept, damaged = words[where], None
        for keep in [kept, *(one for one in words[-1].split(",") if one != kept)]:
            words[where] = keep
            status, said = _command(words)
            self._note(f"{shlex.join(words)}: {said}")
            assert 1 == status, f"{words}: {said}"
            assert before == self._disks()
            if "keep another directory" not in said:
                break
            damaged = keep if "go on with --save FOLDER --yes" in said else damaged
        else:
            if damaged is None:
                self.counts["forks that need another disk"] += 1
                self._restore(self.places)
                self.named = self.places
                return
            self.counts["forks of two damaged logs"] += 1
            words[where] = damaged
        status, said = _command([*words, "--save", str(folder), "--yes"])
        self._note(f"{shlex.join(words)}: {said}")
        if "; repair it, or give it up without --save" in said or "; repair the others" in said:
            self._restore(self.places)
            return
        assert 0 == status, f"{words}: {said}"
        for file in folder.rglob("*"):  # Read each file alone, because partitions have the same offsets.
            self.saved |= set(places.held(places.read_batches([file])))

    def _restore(self, named: Sequence[places.TestedDirectory]) -> None:
        """Bring back directories and repair their files."""
        for place in named:
            self._bring_back(place)
            self._note(*(f"repaired {one}" for one in place.repair()))

    # Steps.

    def _append(self, engine: ReplicatedEngine) -> None:
        partition = engine.replicated(self.chance.choice(places.PARTITIONS))
        values = [b"%d" % (self.number + n) for n in range(self.chance.randint(1, 4))]
        self.number += len(values)
        self.expected.uncertain |= set(values)
        (batch,) = encode_lines(b"".join(value + b"\n" for value in values), timestamp=self.clock())
        try:
            appended = partition.append(batch, encoded_here=True, durable=self.chance.random() < 0.5)
        except (OSError, StorageError):
            return
        self.expected.uncertain -= set(values)
        for offset, value in enumerate(values, appended.base_offset):
            self.expected.acknowledged[partition.name][value] = offset
        self.counts["records"] += len(values)

    def _delete_records(self, engine: ReplicatedEngine) -> None:
        name = self.chance.choice(places.PLAIN)
        partition = engine.replicated(name)
        bounds = partition.offsets()
        before = self.chance.randint(bounds.log_start_offset, bounds.high_watermark)
        if self.chance.random() < 0.5:
            before = min(before, bounds.log_start_offset + 5)
        with suppress(OSError, StorageError):
            self.expected.deleted_below[name] = max(self.expected.deleted_below.get(name, 0), before)
            partition.delete_records(Offset(before))

    def _maintain(self, engine: ReplicatedEngine) -> None:
        for replica_dir in engine._replica_dirs:
            replica_dir._next_attempt = 0.0
        for one in (*engine._catching_up.values(), *engine._moves._threads.values()):
            one._pauses.clear()
        self.clock.advance(300_000)
        engine.maintenance(self.clock())

    def _catch_up(self, engine: ReplicatedEngine) -> None:
        engine.catch_up()

    def _fail(self, engine: ReplicatedEngine) -> None:
        serving = [Path(one.path) for one in engine.directories() if one.offline is None]
        if serving and self.chance.random() < 0.5:
            path = self.chance.choice(serving)
            self.disk.broken.add(path)
            self._note(f"{path.name} fails")

    def _heal(self, engine: ReplicatedEngine) -> None:
        if self.disk.broken:
            self.disk.broken.clear()
            self._note("all disks work")
            for _ in range(2):
                self._maintain(engine)
            engine.catch_up()

    # Ends.

    def _close(self, engine: ReplicatedEngine) -> None:
        known = places.PARTITIONS if _has_topics(engine) else ()
        states = {one: engine.replicated(one).state for one in known}
        starts = {one: engine.replicated(one).log_start_offset for one in known}
        missing = {one: expectation.named_missing(engine, one) for one in known}
        paths = {
            replica_dir.number: replica_dir.path for replica_dir in engine._replica_dirs if replica_dir.serves
        }
        try:
            engine.close()
        except (OSError, StorageError) as error:
            self._note(f"closed: {error}")
        else:
            self._note("closed")
            self.counts["closed"] += 1
        self._die()
        if self.disk.broken:
            return
        for partition, state in states.items():
            synced = {paths[number].name: paths[number] for number in state.in_sync if number in paths}
            logs = {name: places.batches_in(path, partition) for name, path in synced.items()}
            if len(logs) > 1:
                expectation.compare_replicas(logs, partition, starts[partition], missing[partition])
            told = {
                (min(logs[name], default=None), places.told_start(path, partition, starts[partition]))
                for name, path in synced.items()
            }
            if partition != places.RETAINED:  # Each directory applies retention independently.
                assert len(told) == len(dict(told)), (
                    f"{partition}: in-sync replicas differ in (first batch, recorded log start): {told}"
                )

    def _die(self) -> None:
        for place in self.places:
            place.release_lock()

    def _disks(self) -> expectation.Disks:
        return expectation.read_disks(
            [place.path for place in self.places],
            {place.path: place.away for place in self.places if place.away.exists()},
        )

    def _note(self, *lines: str | None) -> None:
        self.log += [f"    {line}" for line in lines if line is not None]


def _has_topics(engine: ReplicatedEngine) -> bool:
    """Return whether all partitions exist; a new disk that runs alone has only partitions that were copied to it."""
    topics = engine.topics()
    return all(
        one.topic in topics and one.partition in topics[one.topic].partitions() for one in places.PARTITIONS
    )


def _command(words: Sequence[str]) -> tuple[int, str]:
    """Run a `topicfs` command in this process; return its exit status and its output."""
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(text), redirect_stderr(text):
        status = run(words, sys.stderr)
    text.flush()
    return status, text.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _death_behind(error: BaseException) -> Killed:
    """Return the simulated kill that led to `error`; raise `error` again if there was none."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, Killed):
        found = found.__context__
    if found is None:
        raise error
    return found
