"""The Spark session in which the command runs its jobs, and their progress."""
