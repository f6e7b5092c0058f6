"""Reading: which topics and offsets a query means, how they are split into tasks, and segments as Arrow batches."""
