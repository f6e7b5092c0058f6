"""Inspection of the files on disk: `dump` prints them, `check` finds damage, `explain` lists the steps of a lookup."""
