"""Other processes as /proc shows them: their signals, open files and names."""
