"""Inspection of the files on disk: `dump` prints files, `check` finds damage, `explain` lists the steps of a lookup."""
