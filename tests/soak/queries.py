"""`python -m tests.soak queries --kills 20 --seed 1`: kill a streaming query's driver, and a daemon, repeatedly.

The test runs twice. In the first run the writer owns the data directory during each commit. In the second run a
mount's daemon owns the directory, and a user appends through the mount at the same time. The test kills (SIGKILL) the
driver with its JVM or, if there is a mount, the daemon. Kills come at random times, and while a write is staged,
requested or being appended. Some drivers have tasks that fail after writing. After every kill no row is duplicated
and no committed row is missing. In the end each input is stored once.

`--form copies`: the test kills Python processes of queries from topic to topic as well, during compactions,
retention, slow owners and resets of checkpoints (`copies`).

`--form recreated --seconds 300`: a query runs while its topics are deleted and created again and its checkpoint is
reset (`recreated_topics`).
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.pipeline.crashes import LINES, Moment, Scene
from tests.soak import copies, kept_if_failed, recreated_topics, say

LONGEST_START_SECONDS = 15.0
"""Longest random time in seconds from a start to a kill. A kill may precede the driver's first commit."""


@dataclass
class Summary:
    """The results of a run."""

    form: str
    victims: Counter[str] = field(default_factory=Counter)
    caught: Counter[str] = field(default_factory=Counter)
    """For each state of a write, the number of kills after which a write was found in this state."""
    flaky_drivers: int = 0
    micro_batches: int = 0
    records: int = 0
    acknowledged: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count}" for name, count in sorted(self.victims.items()))
        caught = ", ".join(f"{name} {count}" for name, count in sorted(self.caught.items()))
        person = f"; {self.acknowledged} lines of a person" if self.acknowledged else ""
        return (
            f"{self.form}: {self.victims.total()} kills ({killed}) in {self.seconds:.0f} s; found then: {caught}\n"
            f"  drivers with failing tasks {self.flaky_drivers}; micro-batches {self.micro_batches}; "
            f"records {self.records}{person}: each once, nothing left behind"
        )


def soak(scene: Scene, *, kills: int, chance: random.Random, form: str) -> Summary:
    """Kill `kills` times and run to the end.

    Raises AssertionError if rows are duplicated or lost, or if files are left over.
    """
    summary, begun = Summary(form), time.monotonic()
    witness = scene.folder / "failed"
    for _ in range(kills):
        _kill_once(scene, chance, summary, witness)
        scene.check_after_a_kill()
        say(f"{form}: kill {summary.victims.total()}, {scene.committed()} micro-batches")
    if scene.driver is not None:
        scene.kill_driver()
    scene.feed()
    scene.finish("--flaky", str(witness))
    summary.flaky_drivers += 1
    assert witness.exists(), "no task failed"
    scene.check_at_the_end()
    summary.seconds = time.monotonic() - begun
    summary.micro_batches = scene.files
    summary.records = scene.files * LINES
    summary.acknowledged = len(scene.person.acknowledged) if scene.person is not None else 0
    return summary


def _kill_once(scene: Scene, chance: random.Random, summary: Summary, witness: Path) -> None:
    if scene.driver is None:
        flaky = chance.random() < 1 / 3
        summary.flaky_drivers += flaky
        scene.start(*(("--flaky", str(witness)) if flaky else ()))
        if chance.random() < 1 / 5:
            scene.until_moment(Moment.ANY, chance, longest_seconds=LONGEST_START_SECONDS)
        else:
            scene.until_committed()
    moment = chance.choice(list(Moment))
    scene.until_moment(moment, chance)
    if scene.mount is not None and chance.random() < 1 / 2:
        scene.kill_daemon()
        summary.victims["daemon"] += 1
        _note(scene, summary)
        # For a while the driver runs undisturbed, and finishes writes that killed drivers began.
        scene.until_moment(Moment.ANY, chance)
        scene.remount()
    else:
        scene.kill_driver()
        summary.victims["driver"] += 1
        _note(scene, summary)


def _note(scene: Scene, summary: Summary) -> None:
    names = sorted(kind.value for kind in scene.pending())
    summary.caught[" and ".join(names) or "nothing pending"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="kills in each of the two runs (default 20)")
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the random moments; printed if not given"
    )
    parser.add_argument("--form", choices=["alone", "mounted", "both", "copies", "recreated"], default="both")
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="seconds of --form recreated (default 300)"
    )
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.randrange(1 << 32)
    say(f"seed {seed}")
    if asked.form == "recreated":
        say(recreated_topics.soak(seconds=asked.seconds, seed=seed))
        return
    if asked.form == "copies":
        with kept_if_failed() as folder:
            copies.soak(folder, asked.kills, seed)
        return
    forms = {"alone": "owned by the writer", "mounted": "with a mounted daemon"}
    summaries = []
    for form, text in forms.items():
        if asked.form not in (form, "both"):
            continue
        with kept_if_failed() as folder:
            scene = Scene(folder, mounted=form == "mounted")
            try:
                summaries.append(soak(scene, kills=asked.kills, chance=random.Random(seed), form=text))
            finally:
                scene.clean_up()
    say("\n".join(map(str, summaries)))


if __name__ == "__main__":
    main()
