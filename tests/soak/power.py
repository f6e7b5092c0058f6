"""`python -m tests.soak power [--losses N] [--seed N]`: a machine with replicas loses power repeatedly, at any change.

An engine over two or three simulated disks appends, flushes, rolls, elects and moves replicas, while single disks
fail, fill up and recover. The power fails before a random change of any disk, even while the engine is opened after
the previous failure. Each disk keeps what was flushed and a random part of what was not. Then every flushed line is
there, every line is there at most once and in order, and no lost line comes back. Once all replicas are in sync, their
files are equal.
"""

from __future__ import annotations

import argparse
import errno
import random
from contextlib import suppress
from dataclasses import dataclass, field

from tests.doubles.mortal_disk import Killed
from tests.doubles.powered_replicas import PoweredReplicas
from tests.doubles.records import keyed
from tests.doubles.replicated import ORDERS
from tests.doubles.several_disks import break_disk
from tests.soak import say
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.errors import StorageError

LIFE_STEPS = 400
"""Maximum number of changes of the disks before a power failure: about thirty appends."""
OPENING_STEPS = 150
"""Maximum number of changes before a power failure while the engine is opened."""
LIVES = 8
"""Number of power failures before the run continues with empty disks."""


@dataclass
class Losses:
    """The results of a run."""

    working: int = 0
    """Number of power failures while the engine worked."""
    opening: int = 0
    """Number of power failures while the engine was being opened."""
    answered: int = 0
    """Number of lines whose append returned."""
    flushed: int = 0
    """Number of lines that were on disk when the power failed."""

    @property
    def total(self) -> int:
        return self.working + self.opening


@dataclass
class Expectation:
    """The lines that must be in the topic."""

    lines: list[str] = field(default_factory=list)
    """All lines in order."""
    flushed: int = 0
    """Number of `lines` that are on disk."""
    open: set[str] = field(default_factory=set)
    """Lines that may be missing, because their append raised or they were not flushed before the power failed."""

    def lose_power(self) -> None:
        self.open |= set(self.lines[self.flushed :])
        self.lines = self.lines[: self.flushed]

    def meet(self, found: list[str]) -> None:
        """Compare the expected lines with `found`; from now on all lines in `found` must be there.

        Raises AssertionError.
        """
        assert len(found) == len(set(found)), f"a line is stored twice: {found}"
        certain = [line for line in found if line not in self.open]
        assert self.lines == certain, f"expected {self.lines}, found {certain} in {found}"
        last = self.lines[self.flushed - 1] if self.flushed else None
        self.flushed = 0 if last is None else found.index(last) + 1
        self.lines, self.open = found, set()


class Machine:
    """A machine with replicas that loses power."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        disks = self.chance.choice((2, 2, 3))
        self.all = PoweredReplicas(
            disks, replicas=self.chance.randint(1, disks), seed=seed, internal_segment_bytes=500
        )
        overrides = {"min.insync.replicas": str(self.chance.randint(1, 2))}
        self.keyed = self.chance.random() < 0.3
        """True if the topic may be compacted later, so that a gap in its offsets does not mean a loss."""
        if self.keyed:
            overrides |= {"cleanup.policy": "compact", "min.compaction.lag.ms": str(10**12)}
        self.all.engine.create_topic("orders", overrides=overrides)
        self.expected = Expectation()
        self.answered = 0
        self.number = 0
        self.broken: set[int] = set()
        self.failed = False
        """True if a disk has failed since the power returned."""

    def live(self) -> None:
        """Work until the power fails at a random change of a disk."""
        self.all.supply.steps_left = int(self.chance.triangular(0, LIFE_STEPS, 0))
        with suppress(Killed):
            while True:
                self._act()()
        self._lose_power()

    def open(self) -> int:
        """Open the engine, sometimes after more power failures; return the number of these failures."""
        losses = 0
        while self.chance.random() < 0.4:
            self.all.supply.steps_left = self.chance.randrange(OPENING_STEPS)
            try:
                self.all.open()
            except Killed:
                losses += 1
                self._lose_power()
            else:
                self.all.supply.steps_left = None
                break
        self.all.open()
        return losses

    def _lose_power(self) -> None:
        self.all.lose_power()
        self.broken.clear()
        self.failed = False
        self.expected.lose_power()

    def look(self) -> None:
        """Compare all lines and, once the replicas are in sync, all files of the replicas."""
        self._meet()
        for number in range(1, len(self.all.roots) + 1):
            self.all.disk(number).heal()
        for _ in range(3):
            self._maintain()
            self._catch_up()
        state = self.all.partition().state
        assert state.assigned == state.in_sync, f"{state}"
        assert state.leader is not None
        assert state.moving is None
        assert dict.fromkeys(sorted(state.assigned), "live") == self.all.names()
        self._meet()
        self.all.engine.close()  # A close cuts off the indexes' unused slots.
        first, *others = [self.all.files(number) for number in state.assigned]
        for other in others:
            differ = sorted(name for name in first | other if first.get(name) != other.get(name))
            assert not differ, f"replicas differ: {differ}"
        self.all.open()

    def _meet(self) -> None:
        partition = self.all.partition()
        bounds = partition.offsets()
        if partition.leader is not None and bounds.high_watermark == bounds.log_end_offset:
            self.expected.meet(self.all.lines())

    def _act(self):
        actions = [self._append] * 10 + [self._sync] * 2 + [self._maintain] + [self._catch_up] * 2
        actions += [self._elect, self._move, self._cancel, self._fail, *[self._heal] * 2]
        return self.chance.choice([*actions, self._meet, self._restart])

    def _append(self) -> None:
        lines = [f"line {self.number + n}" for n in range(self.chance.randint(1, 3))]
        self.number += len(lines)
        # Even if the call fails, these lines may have been appended.
        self.expected.open |= set(lines)
        try:
            if self.keyed:
                pairs = [(line.encode(), line.encode()) for line in lines]
                self.all.partition().append(encode(keyed(*pairs), BatchStamp()), encoded_here=True)
            else:
                self.all.append("".join(f"{line}\n" for line in lines))
        except (OSError, StorageError):
            return
        self.expected.open -= set(lines)
        self.expected.lines += lines
        self.answered += len(lines)

    def _sync(self) -> None:
        with suppress(OSError, StorageError):
            self.all.partition().sync()
            self.expected.flushed = len(self.expected.lines)

    def _maintain(self) -> None:
        self.all.forget_failures()
        self.all.clock.advance(1000)
        self.all.engine.maintenance(self.all.clock())

    def _catch_up(self) -> None:
        self.all.forget_failures()
        self.all.engine.catch_up()

    def _elect(self) -> None:
        with suppress(OSError, StorageError):
            self.all.engine.elect_preferred()

    def _move(self) -> None:
        assigned = self.all.partition().state.assigned
        others = [number for number in range(1, len(self.all.roots) + 1) if number not in assigned]
        if others:
            with suppress(OSError, StorageError):
                target, source = self.chance.choice(others), self.chance.choice(assigned)
                self.all.engine.move_replica(ORDERS, str(target), str(source))

    def _cancel(self) -> None:
        with suppress(OSError, StorageError):
            self.all.engine.cancel_move(ORDERS)

    def _fail(self) -> None:
        number = self.chance.randint(1, len(self.all.roots))
        self.broken.add(number)
        self.failed = True
        if self.chance.random() < 0.5:
            for operation in ("pwrite", "write_bytes"):
                self.all.disk(number).fail(operation, number=errno.ENOSPC, times=1_000_000)
        else:
            break_disk(self.all.disk(number))

    def _heal(self) -> None:
        if self.broken:
            number = self.chance.choice(sorted(self.broken))
            self.broken.discard(number)
            self.all.disk(number).heal()

    def _restart(self) -> None:
        # After a failed flush the page cache considers its pages written; only this engine knows that it must
        # write them again.
        if not self.failed:
            self.all.reopen()


def run_losses(count: int, seed: int) -> Losses:
    """Cause `count` power failures on one machine after another (blocking).

    The message of an AssertionError has the machine's seed.
    """
    losses = Losses()
    while losses.total < count:
        machine = Machine(seed)
        try:
            for _ in range(LIVES):
                machine.live()
                losses.working += 1
                losses.flushed += machine.expected.flushed
                losses.opening += machine.open()
                machine.look()
        except Exception as error:
            raise AssertionError(f"with the machine of seed {seed}: {error}") from error
        losses.answered += machine.answered
        seed += 1
    return losses


def main() -> None:
    """Cause many power failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak power", description=__doc__)
    parser.add_argument("--losses", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which")
    asked = parser.parse_args()
    losses = run_losses(asked.losses, asked.seed)
    say(
        f"{losses.total} losses of power, {losses.opening} of them while the engine was opened; "
        f"{losses.answered} lines answered, none lost that was flushed, none doubled, replicas equal"
    )


if __name__ == "__main__":
    main()
