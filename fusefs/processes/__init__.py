"""Other processes as /proc shows them: their signals, the files that they have open, and their names."""
