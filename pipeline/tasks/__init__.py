"""Work as tasks of Spark: their sizes, running them, and their output."""
