"""The command `python -m tests.soak crossings`."""

from __future__ import annotations

import sys

from tests.soak.crossings import __doc__ as text
from tests.soak.crossings.machine import Counts
from tests.soak.crossings.run import run_seed
from tests.soak.seeds import parser_of, run_seeds

if __name__ == "__main__":
    asked = parser_of("crossings", text, "steps", 400).parse_args()
    counts = Counts()
    last = run_seeds(lambda seed, steps: run_seed(seed, steps, counts=counts), asked)
    sys.stdout.write(
        f"seeds {asked.seed} to {last}: {sum(counts.steps.values())} steps, {counts.records} records, "
        f"{counts.compacted} compacted, {counts.deleted} deleted\n"
        f"steps {dict(counts.steps)}\nkills {dict(counts.kills)}\nrefusals {dict(counts.refusals)}\n"
    )
