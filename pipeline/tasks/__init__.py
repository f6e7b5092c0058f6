"""Work divided into Spark tasks: how large a task is, running tasks, and their output."""
