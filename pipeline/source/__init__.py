"""Reading: tasks read the ranges of a query (`query/`) from segments, as Arrow batches.

`topic_source` is a query's view of its data directories; `readers` implements Spark's interface.
"""
