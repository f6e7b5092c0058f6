"""The command `python -m tests.soak restarts`."""

from __future__ import annotations

import sys
from collections import Counter

from tests.soak.restarts import __doc__ as text
from tests.soak.restarts.run import run_lives
from tests.soak.seeds import parser_of, run_seeds

if __name__ == "__main__":
    parser = parser_of("restarts", text, "lives", 12)
    parser.add_argument("--small-files", action="store_true", help="damage small files only, and no segments")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    last = run_seeds(
        lambda seed, lives: run_lives(seed, lives, counts=counts, segments=not asked.small_files), asked
    )
    sys.stdout.write(f"seeds {asked.seed} to {last}: nothing was lost; {dict(counts)}\n")
