"""The session of Spark in which the command runs its jobs: its start, its progress, its output."""
